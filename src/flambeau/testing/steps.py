"""A model under a compiler beside eager PyTorch: one call, and one step of training."""

from __future__ import annotations

from typing import Any


def worst_error(actual: Any, expected: Any) -> float:
    """Return the largest error over all tensors, relative to the largest number in each; infinity for another type.

    Where all of a tensor is small beside the others, as a gradient that is zero but for rounding, it is relative to a
    thousandth of what is largest in those.
    """
    import torch
    from torch.utils._pytree import tree_flatten

    (ours, our_spec), (theirs, spec) = tree_flatten(actual), tree_flatten(expected)
    if our_spec != spec:
        return float("inf")
    largest = max((_largest(e) for e in theirs if isinstance(e, torch.Tensor)), default=0.0)
    worst = 0.0
    for a, e in zip(ours, theirs, strict=True):
        if not isinstance(e, torch.Tensor):
            worst = max(worst, 0.0 if a == e or not isinstance(e, (int, float, str)) else float("inf"))
        elif a.shape != e.shape or a.dtype is not e.dtype:
            return float("inf")
        elif e.numel():
            scale = max(_largest(e), largest / 1000, 1e-6)
            a, e = a.detach().double(), e.detach().double()
            error = torch.where((a == e) | (a.isnan() & e.isnan()), 0.0, (a - e).abs()).max().item()
            worst = max(worst, float("inf") if error != error else error / scale)
    return worst


def _largest(tensor: Any) -> float:
    finite = tensor.detach()[tensor.isfinite()].double().abs()
    return finite.max().item() if finite.numel() else 0.0


def without_dropout(model: Any) -> Any:
    """Set a model to training, with all probabilities of dropping anything at zero."""
    for module in model.train().modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and "drop" in name:
                setattr(module, name, 0.0)
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
    for module in model.modules():
        config = getattr(module, "config", None)
        for name, value in list(vars(config).items()) if config is not None else []:
            if isinstance(value, float) and "drop" in name:
                setattr(config, name, 0.0)
    return model


def step(model: Any, call: Any, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Make one step of SGD on the sum of the squares of the first result that has a gradient.

    Gives the loss, the gradients, and parameters and buffers after it.
    """
    import numpy
    import torch
    from torch.utils._pytree import tree_leaves

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.manual_seed(0)
    numpy.random.seed(0)
    result = call(*args, **kwargs)
    first = next(t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad)
    loss = first.abs().square().sum()
    loss.backward()
    # AOTAutograd gives zeros where eager PyTorch gives nothing: for a result that the loss does not depend on.
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    optimizer.step()
    return loss, gradients, model.state_dict()
