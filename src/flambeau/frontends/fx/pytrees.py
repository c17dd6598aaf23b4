"""Containers that PyTorch does not know: how a program takes and returns key-value caches and dataclasses.

`torch.export` refuses an argument or a result that is an object of a class without a pytree registration. Transformers'
decoders return such an object, their cache, by default; so these classes are registered here, and a model compiles
unedited.

A cache is flattened without knowledge of its version: its attributes are walked, and what is not plain data (tensors,
symbolic integers, PyTorch's stand-ins for them) is a leaf; the rest describes the object. Unflattening never looks at
the leaves, because PyTorch unflattens trees of names and of shapes too, and so it never calls a constructor.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

CACHE_MODULE = "transformers.cache_utils"
CACHE_CLASSES = ("DynamicCache", "StaticCache", "QuantizedCache", "EncoderDecoderCache")

_COUNTERS = frozenset({"cumulative_length", "_seen_tokens"})
"""Integers that are a cache's state and not its configuration: leaves even where they are plain numbers."""


def register_known_containers() -> None:
    """Make `torch.export` accept transformers' caches, if that library is in use. Calling it again costs nothing."""
    module = sys.modules.get(CACHE_MODULE)
    if module is None:
        return
    for name in CACHE_CLASSES:
        cls = getattr(module, name, None)
        if isinstance(cls, type) and not _is_registered(cls):
            _register(cls, _flatten, _unflatten, _flatten_with_keys)


def register_dataclass_of(value: Any) -> None:
    """Make `torch.export` accept the dataclasses found in an example argument or result."""
    import torch

    for cls in _dataclasses_in(value):
        if not _is_registered(cls):
            torch.export.register_dataclass(cls, serialized_type_name=_path_of(cls))


def _dataclasses_in(value: Any) -> Iterable[type]:
    children: Iterable[Any] = ()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        children = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        children = value.values()
    elif isinstance(value, (list, tuple)):
        children = value
    for child in children:
        yield from _dataclasses_in(child)


# Registering. `torch.utils._pytree` is where PyTorch documents these functions; the table is only a shortcut.


def _is_registered(cls: type) -> bool:
    import torch.utils._pytree as pytree

    return cls in getattr(pytree, "SUPPORTED_NODES", ())


def _register(
    cls: type,
    flatten: Callable[[Any], tuple[list[Any], Any]],
    unflatten: Callable[[Iterable[Any], Any], Any],
    flatten_with_keys: Callable[[Any], tuple[list[Any], Any]],
) -> None:
    import torch.utils._pytree as pytree

    try:
        pytree.register_pytree_node(
            cls,
            flatten,
            unflatten,
            serialized_type_name=_path_of(cls),
            flatten_with_keys_fn=flatten_with_keys,
        )
    except ValueError as error:
        if "already registered" not in str(error):
            raise


# Flattening. A description is made of lists, so that PyTorch can compare it and write it as JSON: a plain value
# stands for itself, and `[tag, ...]` for anything else.


def _flatten(cache: Any) -> tuple[list[Any], Any]:
    leaves: list[tuple[str, Any]] = []
    description = _describe(cache, "", leaves)
    return [leaf for _, leaf in leaves], description


def _flatten_with_keys(cache: Any) -> tuple[list[Any], Any]:
    from torch.utils._pytree import MappingKey

    leaves: list[tuple[str, Any]] = []
    description = _describe(cache, "", leaves)
    return [(MappingKey(path), leaf) for path, leaf in leaves], description


def _unflatten(leaves: Iterable[Any], description: Any) -> Any:
    return _rebuild(description, list(leaves))


def _describe(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Any:
    import torch

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    if isinstance(value, type):
        return ["class", _path_of(value)]
    if isinstance(value, (list, tuple)):
        items = [_describe(item, _join(path, i), leaves) for i, item in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", items]
    if isinstance(value, dict):
        return ["dict", [[key, _describe(item, _join(path, key), leaves)] for key, item in value.items()]]
    if _is_part_of_a_cache(value):
        attributes = [
            [name, _describe_attribute(value, name, item, _join(path, name), leaves)]
            for name, item in vars(value).items()
        ]
        return ["object", _path_of(type(value)), attributes]
    return _leaf(value, path, leaves)


def _describe_attribute(owner: Any, name: str, value: Any, path: str, leaves: list[tuple[str, Any]]) -> Any:
    if name in _COUNTERS:
        return _leaf(value, path, leaves)
    if name == "_sliding_window_tensor":
        # `sliding_window` once more, as a tensor: a constant, not a result of the program.
        return ["constant", owner.sliding_window]
    return _describe(value, path, leaves)


def _leaf(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Any:
    leaves.append((path, value))
    return ["leaf", len(leaves) - 1]


_Build = Callable[[Sequence[Any]], Any]
_BUILDERS: OrderedDict[int, tuple[Any, _Build]] = OrderedDict()
"""How to build what the last descriptions describe, by their identities; each is kept, so that it stays itself."""


def _rebuild(description: Any, leaves: Sequence[Any]) -> Any:
    found = _BUILDERS.get(id(description))
    if found is None or found[0] is not description:
        found = _BUILDERS[id(description)] = (description, _builder_of(description))
        if len(_BUILDERS) > 256:
            _BUILDERS.popitem(last=False)
    return found[1](leaves)


def _builder_of(description: Any) -> _Build:
    """Make the function that builds what is described from its leaves: a program has the same result in every call."""
    import torch

    if not isinstance(description, (list, tuple)):
        return lambda leaves: description
    tag, content, *rest = description
    if tag == "leaf":
        return itemgetter(content)
    if tag in ("dtype", "device", "class"):
        value = torch.device(content) if tag == "device" else getattr(torch, content, None)
        value = _class_at(content) if tag == "class" else value
        return lambda leaves: value
    if tag == "constant":
        return lambda leaves: torch.tensor(content)
    if tag in ("list", "tuple"):
        items = [_builder_of(item) for item in content]
        kind = list if tag == "list" else tuple
        return lambda leaves: kind([item(leaves) for item in items])
    pairs = [(name, _builder_of(item)) for name, item in (content if tag == "dict" else rest[0])]
    if tag == "dict":
        return lambda leaves: {key: item(leaves) for key, item in pairs}
    cls = _class_at(content)

    def build(leaves: Sequence[Any]) -> Any:
        value = cls.__new__(cls)
        vars(value).update([(name, item(leaves)) for name, item in pairs])
        return value

    return build


def _is_part_of_a_cache(value: Any) -> bool:
    """Recognise caches and their layers by the module of a base class, as models define their own."""
    return any(base.__module__ == CACHE_MODULE for base in type(value).__mro__)


def _join(path: str, name: object) -> str:
    return f"{path}_{name}" if path else str(name)


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _class_at(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
