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
        same_call(run, eager, *args, **kwargs)
    if isinstance(model, nn.Module):
        assert_same([*model.state_dict().values()], [*eager.state_dict().values()], "state")
    return module


def same_call(run: Callable[..., Any], eager: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compare a call of a compiled program with one of eager: results, and what is left in the arguments."""
    ours, theirs = deepcopy((args, kwargs)), deepcopy((args, kwargs))
    actual, expected = run(*ours[0], **ours[1]), eager(*theirs[0], **theirs[1])
    assert pytree.tree_structure(actual) == pytree.tree_structure(expected)
    assert_same(pytree.tree_leaves(actual), pytree.tree_leaves(expected), "result")
    assert_same(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), "argument")


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
    """Load the program under the eager engine, as imported and under the backend contract."""
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


def one_step(model: nn.Module, x: Tensor) -> None:
    """Take a training step by a compiled program, and compare the parameters with those after one of eager's."""
    eager = deepcopy(model)
    step = flambeau.export_train_step(
        model, lambda y, _: y.float().sum(), torch.optim.SGD(model.parameters(), lr=0.1), (x, torch.ones(()))
    )
    load(step)(x, torch.ones(()), lr=0.1)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    eager(x).float().sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), eager.state_dict())


def under_compile(model: nn.Module, x: Tensor) -> None:
    """Compare the gradients of a model under `torch.compile` with eager's."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="flambeau", options={"profile": "quick"}, fullgraph=True)
    gradients = [torch.autograd.grad(m(x).float().sum(), [*model.parameters()]) for m in (compiled, model)]
    torch.testing.assert_close(*gradients)
