"""export_train_step(): training as a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.api import Module, OutputType, globalized, lower, paused_gc, stage
from flambeau.distributed.placing import before_mesh, placed
from flambeau.keeping import check_names, kept_ops


@dataclass
class TrainStep(Module):
    """A module whose function takes one step of training and returns the loss."""

    unused: tuple[str, ...] = ()
    """Parameters that the loss does not depend on: they have no gradient, and are neither read nor written."""


def export_train_step(
    model: Any,
    loss: Callable[..., Any] | None,
    optimizer: Any,
    example_batch: Any,
    *,
    output_type: str = OutputType.LINALG_ON_TENSORS,
    schedule: Sequence[str] = ("lr",),
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    autocast: Any = None,
    keep: Collection[str] = (),
    function: str = "main",
    options: Mapping[str, Any] | None = None,
    verify: bool = False,
    state: str = "functional",
    mesh: Any = None,
    plan: Any = None,
) -> TrainStep:
    """Make one program of forward pass, backward pass and update: `run(inputs, targets, lr=0.1)` gives the loss.

    `example_batch` is `(inputs, targets)`: the model is called with `inputs` (a tensor, a tuple of positional or a
    dictionary of keyword arguments), and `loss(outputs, targets)` gives one number. Where `loss` is None the batch is
    `(inputs,)`, and the model returns its loss, or something that has it under the name `loss`.

    The state is what the model and the optimiser hold: parameters, buffers, and `optimizer.weight.exp_avg` and the like
    are named weights of the module, and a call writes them in place. An optimiser that has taken no step yet gets the
    state that its first step would make.

    `schedule` names the optimiser's numbers that every call is given, as keyword arguments: a number, or a list with
    one for each of several parameter groups; all others are those of the export. `clip_norm` and `clip_value` clip the
    gradients as PyTorch's functions do; `accumulate` cuts a batch into so many parts, one after the other; `autocast`
    is the dtype that the forward pass computes in under `torch.autocast`. The rest is as in `flambeau.compile`; with a
    `mesh`, what the optimiser holds for a parameter lies as that does.
    """
    from flambeau.frontends.fx.training import StepOptions, import_train_step, trace_step

    output = wanted = OutputType.get(output_type)
    check_names(keep)
    if mesh is not None or plan is not None:
        output = before_mesh(model, output, None, mesh)
    batch = tuple(example_batch) if isinstance(example_batch, (tuple, list)) else (example_batch,)
    _check(model, loss, optimizer, batch, accumulate, state)
    timings: dict[str, float] = {}
    with stage(timings, "export"):
        settings = StepOptions(tuple(schedule), clip_norm, clip_value, accumulate, autocast)
        traced = trace_step(model, loss, optimizer, batch, settings)
    with paused_gc():
        with stage(timings, "import"):
            op, weights, signature = import_train_step(traced, kept_ops(keep), function)
        module = lower(Module(op, weights, {function: signature}, OutputType.RAW, timings), output, options, keep)
    if state == "globals":
        module = globalized(module, mesh)
    if mesh is not None:
        told = options or {}
        module = placed(model, mesh, plan, function, module, lambda m, o: lower(m, wanted, {**told, **o}, keep))
    if verify:
        module.verify()
    return TrainStep(**{**vars(module), "unused": traced.unused})


def _check(model: Any, loss: Any, optimizer: Any, batch: tuple[Any, ...], accumulate: int, state: str) -> None:
    """Raise TypeError or ValueError for arguments that make no training step."""
    import torch

    for given, kind in ((model, torch.nn.Module), (optimizer, torch.optim.Optimizer)):
        if not isinstance(given, kind):
            raise TypeError(f"export_train_step() takes a {kind.__name__}, not {type(given).__name__}")
    if state not in ("functional", "globals"):
        raise ValueError(f"a training step has state: it is 'functional' or 'globals', not {state!r}")
    wanted = 1 if loss is None else 2
    if len(batch) != wanted:
        form = "(inputs, targets)" if loss is not None else "(inputs,)"
        raise TypeError(f"example_batch is {form}, not {len(batch)} values: several inputs are a tuple in it")
    if accumulate < 1:
        raise ValueError(f"accumulate is a number of parts, at least 1, not {accumulate}")
