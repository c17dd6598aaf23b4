"""Programs of captured graphs on disk, by the text of the graph: what is found there is not compiled again.

What is kept is what an engine makes of a program, and how it is called. The engine has a cache of its own besides.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from flambeau.checking import interval
from flambeau.engines.cache import ArtefactCache, cache_directory, cache_enabled, cache_key
from flambeau.engines.errors import EngineError
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.frontends.fx.dynamo import count
from flambeau.frontends.fx.graph_text import NoText, graph_text
from flambeau.ir.plugins import registered

_LARGEST_STATE = 1 << 24
"""So many bytes of constants, at most, are kept beside a program."""


@dataclass(frozen=True)
class GraphCache:
    """Compiles graphs for an engine with its options, or finds on disk what it compiled of the same graph before."""

    engine: Any
    output_type: str
    options: Mapping[str, Any]
    compile_graph: Callable[[GraphModule], Any]

    def __call__(self, graph: GraphModule, held: Mapping[str, torch.Tensor]) -> Any:
        """Give a program; `held` are attributes of the graph whose contents are the program's weights, by name."""
        key = self._key(graph, held)
        if key is None:
            count("cache_bypasses")
            run = self.compile_graph(graph)
            count("compiled")
            return run
        store = ArtefactCache(cache_directory() / "graphs")
        if (found := store.get(key)) is not None and (run := self._restored(*found, held)) is not None:
            count("cache_hits")
            return run
        count("cache_misses")
        run = self.compile_graph(graph)
        count("compiled")
        if (packed := self._packed(run, held)) is not None:
            store.put(key, *packed)
        return run

    def _key(self, graph: GraphModule, held: Mapping[str, torch.Tensor]) -> str | None:
        """Name what is compiled of a graph; None where that cannot be told, or is not to be kept."""
        is_known = hasattr(self.engine, "pack") and isinstance(getattr(self.engine, "name", None), str)
        is_wanted = cache_enabled() and self.options.get("cache", True) and interval(None) is None
        if not is_known or not is_wanted or registered():
            return None
        if not all(isinstance(value, (str, int, float, type(None))) for value in self.options.values()):
            return None
        try:
            text = graph_text(graph, set(held))
        except NoText:
            return None
        choices = repr((self.engine.name, self.output_type, sorted(self.options.items()), sorted(held)))
        return cache_key(text, choices, versions(), torch.get_float32_matmul_precision())

    def _packed(self, run: Any, held: Mapping[str, torch.Tensor]) -> tuple[bytes, dict[str, Any]] | None:
        """Give what is to be kept of a program, and notes on it; None for one that cannot be kept."""
        addresses = {tensor.data_ptr(): name for name, tensor in held.items()}
        kept, bound = {}, {}
        for name, tensor in run.weights.items():
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
                return None
            if tensor.numel() and tensor.data_ptr() in addresses:
                bound[name] = addresses[tensor.data_ptr()]
            else:
                kept[name] = tensor
        if sum(tensor.nbytes for tensor in kept.values()) > _LARGEST_STATE:
            return None
        try:
            payload = self.engine.pack(run)
            signatures = {name: signature_to_json(name, s) for name, s in run.signatures.items()}
        except EngineError:
            return None
        weights = {name: _tensor_to_json(tensor) for name, tensor in kept.items()}
        return payload, {"signatures": signatures, "weights": weights, "bound": bound}

    def _restored(self, payload: bytes, notes: Mapping[str, Any], held: Mapping[str, torch.Tensor]) -> Any:
        """Make the program of which this was kept; None if that is not possible here."""
        try:
            signatures = {name: signature_from_json(s) for name, s in notes["signatures"].items()}
            weights = {name: _tensor_from_json(tensor) for name, tensor in notes["weights"].items()}
            weights |= {name: held[attribute] for name, attribute in notes["bound"].items()}
            return self.engine.unpack(payload, weights, signatures, **self.options)
        except (EngineError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _tensor_to_json(tensor: torch.Tensor) -> dict[str, Any]:
    data = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(tensor.shape), "data": base64.b64encode(data).decode()}


def _tensor_from_json(data: Mapping[str, Any]) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(base64.b64decode(data["data"])) or bytearray(1), dtype=torch.uint8)
    dtype = getattr(torch, data["dtype"])
    if 0 in data["shape"]:
        return torch.empty(data["shape"], dtype=dtype)
    # A copy is aligned, which the memory of Python's bytes need not be.
    return raw.clone().view(dtype).reshape(data["shape"])


@cache
def versions() -> str:
    """Tell by what programs are compiled: Flambeau as it is on this disk, PyTorch, and what the engines are made of."""
    root = Path(__file__).parent
    files = sorted(root.rglob("*.py")) + sorted(root.rglob("*.json"))
    ours = hashlib.sha256()
    for file in files:
        status = file.stat()
        ours.update(f"{file.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return f"{ours.hexdigest()} torch {torch.__version__} " + " ".join(map(_version, _PACKAGES))


_PACKAGES = ("flambeau", "xdsl", "iree-base-compiler", "iree-base-runtime", "jax", "jaxlib")


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"
