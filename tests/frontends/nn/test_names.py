"""The names of torch.nn, torch.nn.functional and torch.nn.init: each is here, or there is a reason."""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

import pytest
import torch

LAZY = "its shapes come from the first input: give the sizes, which a program needs anyway"
RANDOM = "random in evaluation too, and programs have no random numbers"
QUANTISED = "PyTorch's quantisation is built on its own modules"
INSIDE = "part of PyTorch's machinery, not of its interface"
OLD = "deprecated in PyTorch: the name with an underscore is here"
SCALED = "a kernel of particular GPUs: no operator of the torch dialect's targets"

MISSING: dict[str, dict[str, str]] = {
    "torch.nn": {
        "Container": "deprecated in PyTorch",
        "CrossMapLRN2d": "written with autograd functions in PyTorch, for old models; LocalResponseNorm is here",
        "DataParallel": "a program has one device",
        "LinearCrossEntropyOptions": "how PyTorch splits the work; a compiler decides that",
        "NLLLoss2d": "deprecated in PyTorch: NLLLoss takes images",
        "SyncBatchNorm": "a program has one device",
        "UninitializedBuffer": LAZY,
        "UninitializedParameter": LAZY,
        **dict.fromkeys(
            (f"Lazy{kind}{n}d" for kind in ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm") for n in (1, 2, 3)),
            LAZY,
        ),
        "LazyLinear": LAZY,
        "FractionalMaxPool2d": RANDOM,
        "FractionalMaxPool3d": RANDOM,
        **dict.fromkeys(("intrinsic", "qat", "quantizable", "quantized"), QUANTISED),
        **dict.fromkeys(("attention", "common_types", "factory_kwargs", "modules", "parameter"), INSIDE),
        "grad": "programs are built without autograd",
        "parallel": "a program has one device",
        "utils": "it works on gradients, on parameters while they train, and on packed sequences",
    },
    "torch.nn.functional": {
        **dict.fromkeys(
            (f"fractional_max_pool{n}d{end}" for n in (2, 3) for end in ("", "_with_indices")), RANDOM
        ),
        "gumbel_softmax": RANDOM,
        **dict.fromkeys(("ScalingType", "SwizzleType", "grouped_mm", "scaled_grouped_mm", "scaled_mm"), SCALED),
        **dict.fromkeys(
            ("BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "DType", "GRID_SAMPLE_INTERPOLATION_MODES",
             "GRID_SAMPLE_PADDING_MODES", "assert_int_or_pair", "boolean_dispatch", "grad", "handle_torch_function",
             "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "reproducibility_notes",
             "sparse_support_notes", "tf32_notes"),
            INSIDE,
        ),
    },
    "torch.nn.init": dict.fromkeys(
        ("constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal", "sparse", "uniform",
         "xavier_normal", "xavier_uniform"),
        OLD,
    ),
}  # fmt: skip

IMPORTED = {"Callable", "Literal", "Optional", "ParamSpec", "TYPE_CHECKING", "Tensor", "TypeVar"}
"""Names that PyTorch's files import from elsewhere; so are the modules among them that are not torch's."""


def names_of(module: types.ModuleType) -> set[str]:
    found = set()
    for name in dir(module):
        value = getattr(module, name)
        other = isinstance(value, types.ModuleType) and not value.__name__.startswith("torch.nn")
        if not name.startswith("_") and name not in IMPORTED and not other:
            found.add(name)
    return found


@pytest.mark.parametrize("space", MISSING)
def test_names(space: str) -> None:
    """S44: the names of `torch.nn`, and what is missing by name."""
    theirs = names_of(importlib.import_module(space))
    ours = set(dir(importlib.import_module(space.replace("torch", "flambeau", 1))))
    missing = MISSING[space]
    assert all(missing.values())
    assert not theirs - ours - set(missing), "neither here nor in the list"
    assert not ours & set(missing), "here and in the list"
    assert not set(missing) - theirs, "in the list, but not a name of PyTorch's"


def parameters_of(function: Any) -> list[str] | None:
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # one that PyTorch writes in C++
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in found):
        return None
    return [p.name for p in found]


@pytest.mark.parametrize("space", ["functional", "init"])
def test_functions_take_what_those_of_torch_take(space: str) -> None:
    theirs, ours = (importlib.import_module(f"{package}.nn.{space}") for package in ("torch", "flambeau"))
    compared = 0
    for name in sorted(names_of(theirs) & set(dir(ours))):
        wanted, found = parameters_of(getattr(theirs, name)), getattr(ours, name)
        if wanted is None or not inspect.isfunction(found):
            continue
        compared += 1
        assert parameters_of(found) == wanted, name
    assert compared >= (75 if space == "functional" else 15)


def test_the_modules_are_imported_by_their_names() -> None:
    import flambeau.nn.functional as functional
    import flambeau.nn.init as init

    from flambeau import nn

    assert nn.functional is functional
    assert nn.init is init
    assert torch.nn.functional is not functional
    with pytest.raises(AttributeError, match=r"flambeau.nn.functional has no 'gumbel_softmax'"):
        functional.gumbel_softmax  # noqa: B018
