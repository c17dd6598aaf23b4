"""What the tests of the FX frontend share."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from support import assert_same
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import flambeau


def load(module: flambeau.Module) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync")


def runs_like_eager(
    model: Callable[..., Any], *args: Any, dynamic_shapes: Any = None, calls: int = 1, **kwargs: Any
) -> flambeau.Module:
    """Compile, run, compare: results, and what the program leaves in its arguments and buffers."""
    eager = deepcopy(model)
    module = flambeau.compile(model, deepcopy(args), deepcopy(kwargs), dynamic_shapes=dynamic_shapes)
    run = load(module)
    for _ in range(calls):
        ours, theirs = deepcopy((args, kwargs)), deepcopy((args, kwargs))
        actual, expected = run(*ours[0], **ours[1]), eager(*theirs[0], **theirs[1])
        assert pytree.tree_structure(actual) == pytree.tree_structure(expected)
        assert_same(pytree.tree_leaves(actual), pytree.tree_leaves(expected), "result")
        assert_same(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), "argument")
    if isinstance(model, nn.Module):
        assert_same([*model.state_dict().values()], [*eager.state_dict().values()], "state")
    return module


def ops_of(module: flambeau.Module, prefix: str = "torch.aten.") -> list[str]:
    return [name for op in module.op.walk() if (name := op.name).startswith(prefix)]


def matrix() -> Tensor:
    return torch.arange(12.0).reshape(3, 4) - 5


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("untouched", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total.add_(x.sum(0))
        return x + self.total * self.untouched + self.calls


def stages(module: flambeau.Module) -> list[Any]:
    """The program under the eager engine, as imported and under the backend contract."""
    return [flambeau.load(flambeau.compile(module, output_type=t), engine="eager") for t in ("raw", "torch")]


def state_of(model: nn.Module) -> list[Tensor]:
    """All tensors of a model, in whatever attribute they are."""
    found: list[Tensor] = []
    for part in model.modules():
        for name, value in vars(part).items():
            if name != "_modules":
                found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    return found


def steps_like_eager(make: type[nn.Module], *calls: tuple[Tensor, ...], on_iree: bool = False) -> flambeau.Module:
    """Compare the results and the state of a model with eager's after each call, at each stage."""
    module = None
    for stage in ["raw", "torch", *(["linalg-on-tensors"] if on_iree else [])]:
        model, eager = make(), make()  # A deep copy of a parameter does not share memory any more.
        module = flambeau.compile(model, deepcopy(calls[0]), output_type=stage)
        options = {"profile": "quick", "device": "local-sync"} if on_iree and stage.startswith("linalg") else {}
        run = flambeau.load(module, engine="iree" if options else "eager", **options)
        for i, args in enumerate(calls):
            ours, theirs = deepcopy(args), deepcopy(args)
            with torch.no_grad():
                expected = eager(*theirs)
            label = f"{stage}, call {i}"
            assert_same(pytree.tree_leaves(run(*ours)), pytree.tree_leaves(expected), f"{label}: result")
            assert_same(list(ours), list(theirs), f"{label}: argument")
            assert_same(state_of(model), state_of(eager), f"{label}: state")
    assert module is not None
    return module


THREE = [(torch.tensor([1.0, 2.0]),), (torch.tensor([-3.0, 0.5]),), (torch.tensor([float("nan"), 4.0]),)]
