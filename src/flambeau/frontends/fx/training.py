"""A training step as one graph: forward, backward and the optimiser's update.

PyTorch's own autograd and optimisers run on fake tensors and are traced, so whatever they do is in the graph: in-place
writes to parameters, to buffers and to the optimiser's state, which become arguments and results of the function.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.fx.compile import export_failure, quiet, whole_stacks
from flambeau.frontends.fx.expansion import TRACING, plain_ops
from flambeau.frontends.fx.exported import FunctionImporter, Imported, Keep
from flambeau.frontends.fx.importer import raise_problems
from flambeau.frontends.fx.numbers import noted_numbers
from flambeau.frontends.fx.state import State, untouched


@dataclass(frozen=True)
class StepOptions:
    """How a training step is taken, beside the model, its loss and its optimiser."""

    schedule: tuple[str, ...] = ("lr",)
    """The optimiser's numbers that each call is given anew."""
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    """Into how many parts of equal size a batch is cut; the gradients are those of the mean of their losses."""
    autocast: torch.dtype | None = None
    """The dtype that `torch.autocast` computes the forward pass in."""


@dataclass(frozen=True)
class TracedStep:
    """A step as a graph. Its placeholders are first the state, then the leaves of the call."""

    graph_module: GraphModule
    states: Mapping[str, Tensor]
    leaves: tuple[tuple[str, Any], ...]
    """The name and the example of each leaf of `in_spec`."""
    in_spec: Any
    unused: tuple[str, ...]
    """Parameters of the optimiser's that the loss does not depend on: they have no gradient and stay what they are."""


class _Undone(TorchDispatchMode):
    """Notes what tensors hold before ops write to them, so that all writes can be undone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            given = (*args, *(kwargs or {}).values())
            self.before += [(t, t.clone()) for t in pytree.tree_leaves(given) if isinstance(t, Tensor)]
        return func(*args, **(kwargs or {}))

    def undo(self) -> None:
        """Write back what the tensors held."""
        for tensor, contents in reversed(self.before):
            tensor.copy_(contents)


def initialize(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], schedule: Sequence[str]) -> None:
    """Give an optimiser the state that it would make in its first step, in place; what is there already stays.

    Raises CompileError where the first step is unlike all others: where the state is made of the first gradient, or of
    a number that the schedule gives.
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if all(optimizer.state.get(p) for p in params):
        return
    found = _small_first_states(optimizer, params, schedule) or [
        _first_state(optimizer, params, fill, schedule) for fill in (0.0, 1.0)
    ]
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not p.requires_grad or optimizer.state.get(p):
                continue
            state, other = (f.get(p, {}) for f in found)
            depend = [k for k, v in state.items() if isinstance(v, Tensor) and not torch.equal(v, other[k])]
            if isinstance(optimizer, torch.optim.SGD) and depend == ["momentum_buffer"] and not group["dampening"]:
                # The first step takes the gradient for the momentum, which from zero is what all other steps do.
                state["momentum_buffer"], depend = torch.zeros_like(p, requires_grad=False), []
            if depend:
                kind, given = type(optimizer).__name__, " and ".join(("the gradient", *schedule))
                reason = f"the first step of {kind} makes {depend[0]!r} for {names[p]!r} of {given}"
                hint = "Take the first step with PyTorch, then export: the optimiser has its state from then on."
                raise CompileError([Diagnostic("export", reason, hint=hint)])
            optimizer.state[p] = state


def _small_first_states(
    optimizer: torch.optim.Optimizer, params: Sequence[Tensor], schedule: Sequence[str]
) -> list[dict[Any, Any]] | None:
    """Find the state that first steps make without taking them: by steps on parameters of as many dims of size 2.

    None where that does not tell, because a state is neither one number nor one number everywhere in a parameter.
    """
    small = {p: torch.zeros([2] * p.dim(), dtype=p.dtype, requires_grad=True) for p in params}
    stand_in = copy.copy(optimizer)
    stand_in.param_groups = [
        {**g, "params": [small[p] for p in g["params"] if p in small]} for g in optimizer.param_groups
    ]
    stand_in.state = defaultdict(dict)
    found = []
    for fill in (0.0, 1.0):
        states = _first_state(stand_in, list(small.values()), fill, schedule)
        large = {p: {k: _like(v, s, p) for k, v in states.get(s, {}).items()} for p, s in small.items()}
        if any(v is NotImplemented for state in large.values() for v in state.values()):
            return None
        found.append(large)
    return found


def _like(value: Any, small: Tensor, large: Tensor) -> Any:
    """Make of a state for a small parameter that for a large one; NotImplemented if it is not known how."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    first = value.reshape(-1)[0]
    if value.shape != small.shape or not bool((value == first).all()):
        return NotImplemented
    return torch.full_like(large, first.item(), dtype=value.dtype, requires_grad=False)


def _first_state(
    optimizer: torch.optim.Optimizer, params: Sequence[Tensor], fill: float, schedule: Sequence[str]
) -> dict[Any, Any]:
    """Collect the state that a step makes for gradients that are `fill` everywhere; the optimiser keeps what it had.

    Scheduled numbers are larger by `fill` than they are.
    """
    before, gradients, groups = optimizer.state, [p.grad for p in params], optimizer.param_groups
    optimizer.param_groups = [{**g, **{name: g[name] + fill for name in schedule}} for g in groups]
    optimizer.state = defaultdict(dict, {p: dict(s) for p, s in before.items()})
    try:
        for p in params:
            p.grad = torch.full_like(p, fill, requires_grad=False)
        with torch.no_grad():
            with _Undone() as writes:
                optimizer.step()
            writes.undo()
        return {p: pytree.tree_map_only(Tensor, Tensor.clone, s) for p, s in optimizer.state.items()}
    finally:
        optimizer.state, optimizer.param_groups = before, groups
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient


def trace_step(
    model: torch.nn.Module,
    loss: Callable[..., Any] | None,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Any, ...],
    options: StepOptions,
) -> TracedStep:
    """Trace one step of training on a batch: the arguments of the model, and what a loss compares its results with."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shared = _Shared(model, optimizer)
    scheduled = {name: _numbers(optimizer, name) for name in options.schedule}
    initialize(optimizer, shared.names, options.schedule)
    states = shared.tensors()
    examples, in_spec = pytree.tree_flatten((batch, scheduled))
    unused: list[str] = []

    def step(*values: Any) -> Tensor:
        live = dict(zip(states, values[: len(states)], strict=True))
        inputs, numbers = pytree.tree_unflatten(values[len(states) :], in_spec)
        return _take_step(model, loss, shared.moved(live, numbers), live, inputs, options, unused)

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)
    try:
        with TRACING, whole_stacks(), quiet(), untouched(model), noted_numbers(model) as changes, _compiling():
            fakes = [_fake(mode, value) for value in (*states.values(), *examples)]
            traced = make_fx(step, tracing_mode="real", record_stack_traces=True, _error_on_data_dependent_ops=False)
            with plain_ops(), mode:
                graph_module = traced(*fakes)
    except CompileError:
        raise
    except Exception as e:
        raise CompileError([export_failure(e)], summary="PyTorch could not trace the training step") from e
    if changes:
        reason = f"a step changes Python numbers: {', '.join(map(str, changes))}; they would stay what they were"
        raise CompileError([Diagnostic("export", reason, hint="Make what changes a buffer: register_buffer().")])
    for node in list(reversed(graph_module.graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler":
            graph_module.graph.erase_node(node)
    names = _leaf_names((batch, scheduled), loss is not None)
    return TracedStep(graph_module, states, tuple(zip(names, examples, strict=True)), in_spec, tuple(unused))


def import_train_step(step: TracedStep, keep: Keep, name: str) -> Imported:
    """Import a traced step as a function that returns the loss; what it writes are named arguments and results."""
    graph = step.graph_module.graph
    function = FunctionImporter(graph, keep)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    held, passed = placeholders[: len(step.states)], placeholders[len(step.states) :]
    named = zip(held, step.states.items(), strict=True)
    function.add_states([State(node, tensor, name, 0) for node, (name, tensor) in named if node.users])
    for node, (leaf, example) in zip(passed, step.leaves, strict=True):
        if isinstance(example, (Tensor, float)):
            function.add_argument(node, node.meta["val"], leaf)
        else:
            function.add_constant_input(node, example)
    function.add_written_attributes(graph, step.graph_module)
    raise_problems(function.importer.problems)
    output = function.importer.import_nodes(graph, step.graph_module, function.written)
    function.add_output(function.importer.resolve(output))
    return function.finish(name, step.in_spec, pytree.tree_flatten(0)[1])


class _Shared:
    """The tensors that a step reads and writes, by name: parameters, buffers and the optimiser's state."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())
        self.buffers: dict[str, Tensor] = dict(model.named_buffers())
        self.names = {p: name for name, p in self.parameters.items()}
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p not in self.names:
                shape = list(p.shape)
                reason = f"the optimiser has a parameter of shape {shape} that is not one of the model's"
                raise CompileError([Diagnostic("export", reason, hint="Make it with the model's own parameters().")])

    def tensors(self) -> dict[str, Tensor]:
        """Map names to tensors: the model's own names, and `optimizer.weight.exp_avg` for what belongs to `weight`."""
        kept = {
            f"optimizer.{self.names[p]}.{key}": value
            for p, state in self.optimizer.state.items()
            for key, value in state.items()
            if isinstance(value, Tensor)
        }
        return {**self.parameters, **self.buffers, **kept}

    def moved(self, live: Mapping[str, Tensor], numbers: Mapping[str, Sequence[Any]]) -> torch.optim.Optimizer:
        """Copy the optimiser for other tensors of the same names, with other numbers for those that are scheduled."""
        moved = copy.copy(self.optimizer)
        moved.param_groups = [
            {**group, **_plain(group), **{k: v[i] if isinstance(v, list) else v for k, v in numbers.items()},
             "params": [live[self.names[p]] for p in group["params"]]}
            for i, group in enumerate(self.optimizer.param_groups)
        ]  # fmt: skip
        moved.state = defaultdict(dict)
        for p, state in self.optimizer.state.items():
            name = self.names[p]
            moved.state[live[name]] = {k: live.get(f"optimizer.{name}.{k}", v) for k, v in state.items()}
        return moved


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the optimiser's implementation that is ops on one parameter at a time, and whose steps are tensors."""
    wanted = {"foreach": False, "fused": False, "capturable": True}
    return {name: value for name, value in wanted.items() if name in group}


def _take_step(
    model: torch.nn.Module,
    loss: Callable[..., Any] | None,
    optimizer: torch.optim.Optimizer,
    live: Mapping[str, Tensor],
    batch: tuple[Any, ...],
    options: StepOptions,
    unused: list[str],
) -> Tensor:
    """Compute the loss and its gradients, and let the optimiser write its update into the tensors of `live`."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    total: Tensor | None = None
    sums: list[Tensor | None] = [None] * len(params)
    for part in _parts(batch, options.accumulate):
        value = _loss_of(model, loss, live, part, options.autocast) / options.accumulate
        gradients = torch.autograd.grad(value, params, allow_unused=True)
        sums = [g if s is None else s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        total = value.detach() if total is None else total + value.detach()
    for p, gradient in zip(params, sums, strict=True):
        p.grad = gradient
    names = {id(tensor): name for name, tensor in live.items()}
    unused[:] = [names[id(p)] for p in params if p.grad is None]
    if options.clip_value is not None:
        torch.nn.utils.clip_grad_value_(params, options.clip_value, foreach=False)
    if options.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(params, options.clip_norm, foreach=False)
    before = {p: {k: v for k, v in s.items() if not isinstance(v, Tensor)} for p, s in optimizer.state.items()}
    keys = {p: set(s) for p, s in optimizer.state.items()}
    _update(optimizer)
    for p, state in optimizer.state.items():
        changed = [k for k, v in state.items() if k not in keys.get(p, ()) or (k in before[p] and before[p][k] != v)]
        if changed:
            kind = type(optimizer).__name__
            reason = f"a step of {kind} changes {changed[0]!r} of its state, which is no tensor that it had before"
            hint = "Keep what changes in tensors, and write them in place; then export after a step with PyTorch."
            raise CompileError([Diagnostic("export", reason, hint=hint)])
    assert total is not None
    return total


def _update(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimiser take its step; CompileError where it chooses by a number that a trace does not have."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        optimizer.step()
    except GuardOnDataDependentSymNode as error:
        kind, first = type(optimizer).__name__, str(error).splitlines()[0]
        reason = f"a step of {kind} chooses by a number that is known when it is taken only: {first}"
        hint = "Leave the number out of `schedule` if it is scheduled, or choose another optimiser."
        raise CompileError([Diagnostic("export", reason, hint=hint)]) from error


def _loss_of(
    model: torch.nn.Module, loss: Callable[..., Any] | None, live: Mapping[str, Tensor], batch: Any, dtype: Any
) -> Tensor:
    """Call the model with the tensors of `live` for its own, then the loss."""
    inputs = batch[0]
    own = {name: live[name] for name, _ in (*model.named_parameters(), *model.named_buffers())}
    args, kwargs = (
        ((), inputs) if isinstance(inputs, dict) else (inputs, {}) if isinstance(inputs, tuple) else ((inputs,), {})
    )
    with torch.autocast("cpu", dtype) if dtype is not None else nullcontext():
        outputs = torch.func.functional_call(model, own, args, kwargs)
        value = loss(outputs, *batch[1:]) if loss is not None else _own_loss(outputs)
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        hint = "Reduce it to one number, as with mean()." if loss is not None else "Give a loss function."
        raise CompileError([Diagnostic("export", f"the loss is {what}, not one number", hint=hint)])
    return value.reshape(())


def _own_loss(outputs: Any) -> Any:
    """Find the loss in what a model returns: the output itself, its item or attribute `loss`."""
    if isinstance(outputs, Mapping) and "loss" in outputs:
        return outputs["loss"]
    return getattr(outputs, "loss", outputs)


def _parts(batch: Any, count: int) -> list[Any]:
    """Cut all tensors of a batch into parts of one size along their first dim."""
    if count == 1:
        return [batch]
    leaves, spec = pytree.tree_flatten(batch)
    for leaf in leaves:
        if isinstance(leaf, Tensor) and (leaf.dim() == 0 or leaf.shape[0] % count):
            reason = f"a batch with a tensor of shape {list(leaf.shape)} cannot be cut into {count} parts of one size"
            raise CompileError([Diagnostic("export", reason, hint="Choose another `accumulate`, or another batch.")])
    cut = [leaf.chunk(count) if isinstance(leaf, Tensor) else (leaf,) * count for leaf in leaves]
    return [pytree.tree_unflatten(list(part), spec) for part in zip(*cut, strict=True)]


def _numbers(optimizer: torch.optim.Optimizer, name: str) -> Any:
    """Return what the groups of an optimiser have for a number: one, or a list with one for each of several groups."""
    values = [group.get(name) for group in optimizer.param_groups]
    values = [float(v) if isinstance(v, (int, float, Tensor)) and not isinstance(v, bool) else v for v in values]
    if not all(isinstance(v, float) for v in values):
        known = [k for k, v in optimizer.param_groups[0].items() if isinstance(v, float)]
        reason = f"{type(optimizer).__name__} has no number {name!r} that a schedule could change"
        raise CompileError([Diagnostic("export", reason, hint=f"There are {', '.join(map(repr, known))}.")])
    return values if len(values) > 1 else values[0]


def _fake(mode: Any, value: Any) -> Any:
    """Make what stands for a value in the trace: a fake tensor, a number that is not known, or the value itself."""
    if isinstance(value, Tensor):
        return mode.from_tensor(value, static_shapes=True)
    if not isinstance(value, float):
        return value
    with mode.shape_env.ignore_fresh_unbacked_symbols():  # no op of the graph has made it
        return mode.shape_env.create_unbacked_symfloat()


def _leaf_names(call: Any, has_targets: bool) -> list[str]:
    """Name the leaves of a call for messages: `inputs`, `targets[0]`, `lr`."""
    names = []
    for path, _ in pytree.tree_flatten_with_path(call)[0]:
        text = pytree.keystr(path[1:])
        head = "inputs" if text.startswith("[0]") else "targets"
        is_batch = pytree.keystr(path[:1]) == "[0]"
        names.append(head + text[3:] if is_batch else text.split("'")[1] + text.partition("]")[2])
    return names


@contextmanager
def _compiling() -> Iterator[None]:
    """Tell PyTorch's optimisers that they are traced: they compute with their counts of steps as tensors then."""
    flag = "_is_compiling_flag"
    before = getattr(torch.compiler, flag)
    setattr(torch.compiler, flag, True)
    try:
        yield
    finally:
        setattr(torch.compiler, flag, before)
