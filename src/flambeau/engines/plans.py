"""From a Python call to a flat list of values, and from a flat list of results back to Python objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.engines.calling import (
    answer_in_torch,
    check_argument,
    check_fixed,
    check_writes,
    flatten_call,
    leaf_arguments,
)
from flambeau.ir.arrays import GradientError, overwrite
from flambeau.ir.module import ScalarSpec, Signature, TensorSpec
from flambeau.ir.symbolic import Sizes
from flambeau.ir.trees import Tree


class CallPlan:
    """What is known of all calls of a function before the first, so that a call has little left to find out.

    The common case, tensors of static shapes that are passed side by side, is compared with what was expected; all
    else, and all that is wrong, takes the way through the checks of `calling`.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._leaves = leaf_arguments(signature)
        self._names = _plain_call(signature, len(self._leaves))
        self._state = [(i, a.state) for i, a in enumerate(signature.arguments) if a.state is not None]
        self._has_gradient = any(
            isinstance(r, TensorSpec) and (r.dtype.is_float or r.dtype.is_complex) for r in signature.results
        )
        self._build = _builder(signature.out_spec)
        self._torch: Any = None
        self._expected = self._expectations()

    def _expectations(self) -> list[tuple[int | None, Any, Any, Any]]:
        """List for each leaf the argument that it feeds, its dtypes in PyTorch and numpy, and its static shape."""
        expected: list[tuple[int | None, Any, Any, Any]] = []
        for position in self._leaves:
            argument = None if position is None else self.signature.arguments[position]
            spec = argument.spec if argument is not None and argument.strides is None else None
            if spec is None or isinstance(spec, ScalarSpec) or None in spec.shape:
                expected.append((position, None, None, None))
            else:
                dtype = None if self._torch is None else spec.dtype.torch
                expected.append((position, dtype, spec.dtype.numpy, spec.shape))
        return expected

    @property
    def is_plain(self) -> bool:
        """Tell whether a call is its arguments, one after another, with nothing to check or to write but these."""
        signature = self.signature
        return (
            self._names == {}
            and list(self._leaves) == list(range(len(signature.arguments)))
            and not (signature.fixed or signature.mutations or self._state)
            and all(a.strides is None for a in signature.arguments)
        )

    @property
    def is_static(self) -> bool:
        """Tell whether all arguments are tensors whose shapes are known."""
        specs = [argument.spec for argument in self.signature.arguments]
        return all(isinstance(spec, TensorSpec) and None not in spec.shape for spec in specs)

    @property
    def gives_one_result(self) -> bool:
        """Tell whether what the caller gets is the first result of the program, as it is."""
        outputs, spec = self.signature.outputs, self.signature.out_spec
        return len(outputs) == 1 and outputs[0].result == 0 and (spec is None or spec.is_leaf())

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], weights: Mapping[str, Any]) -> tuple[list[Any], bool]:
        """Return the value of each argument, passed or state; and whether to answer in torch tensors."""
        signature = self.signature
        names = self._names
        if not kwargs and not names and names is not None and len(args) == len(self._leaves):
            leaves: Sequence[Any] = args
        elif names and len(args) + len(names) == len(self._leaves) and kwargs.keys() == names.keys():
            leaves = [*args, *(kwargs[name] for name in names)]
        else:
            leaves = flatten_call(signature, args, kwargs)
        for fixed in signature.fixed:
            check_fixed(fixed, leaves[fixed.leaf])
        torch = sys.modules.get("torch")
        if torch is not self._torch:
            self._torch = torch
            self._expected = self._expectations()
        tensor = None if torch is None else torch.Tensor
        values: list[Any] = [None] * len(signature.arguments)
        in_torch = is_tracked = False
        for leaf, (position, dtype, array_dtype, shape) in zip(leaves, self._expected, strict=True):
            if position is None:
                continue
            kind = type(leaf)
            if kind is tensor and leaf.dtype is dtype and leaf.shape == shape:
                in_torch = True
                is_tracked = is_tracked or leaf.requires_grad
            elif kind is not np.ndarray or leaf.dtype is not array_dtype or leaf.shape != shape:
                leaf = check_argument(signature.arguments[position], leaf)
                is_tracked = is_tracked or getattr(leaf, "requires_grad", False)
            values[position] = leaf
        if is_tracked:
            self.check_gradients(values)
        if signature.symbols:
            sizes = Sizes(signature.symbols)
            for value, argument in zip(values, signature.arguments, strict=True):
                if argument.dims and argument.state is None:
                    sizes.check(argument.name, argument.dims, value.shape)
        for position, name in self._state:
            values[position] = weights[name]
        if signature.mutations:
            check_writes(signature, values, weights)
        return values, in_torch or answer_in_torch(signature, values, weights)

    def places(self, values: Sequence[Any]) -> list[Any]:
        """Return where the tensors among the values lie, to tell later whether they are still there."""
        kind = np.ndarray if self._torch is None else self._torch.Tensor
        return [
            (v.shape, v.strides) if isinstance(v, np.ndarray) else (v.data_ptr(), v.dtype, v.shape, v.stride())
            for v in values
            if isinstance(v, (kind, np.ndarray))
        ]

    def check_gradients(self, values: Sequence[Any]) -> None:
        """Raise where PyTorch would go on to record what a gradient needs: a compiled program records nothing."""
        torch = self._torch
        if torch is None or not self._has_gradient or not torch.is_grad_enabled():
            return
        for value, argument in zip(values, self.signature.arguments, strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad and argument.state is None:
                raise GradientError(
                    f"argument {argument.name!r} requires a gradient, and a compiled program gives none: call it under "
                    "torch.no_grad(), or pass detach() of the argument"
                )

    def finish(self, values: Sequence[Any], results: Sequence[Any]) -> Any:
        """Write results into what they are the new values of, and build what the caller gets back."""
        for mutation in self.signature.mutations:
            overwrite(values[mutation.argument], results[mutation.result])
        return self._build([o.constant if o.result is None else results[o.result] for o in self.signature.outputs])


def _plain_call(signature: Signature, leaves: int) -> dict[str, None] | None:
    """Return the names of the leaves passed by name, in order; None if some argument is a container of leaves."""
    if signature.in_spec is None:
        return {}
    args, kwargs = signature.in_spec.children()
    if len(args.children()) + len(kwargs.children()) != leaves:
        return None
    if not all(child.is_leaf() for child in (*args.children(), *kwargs.children())):
        return None
    return dict.fromkeys(kwargs.context)


def _builder(spec: Any) -> Callable[[list[Any]], Any]:
    """Make a function from leaves to the result; `spec` is PyTorch's, our `Tree`, or None for a flat list."""
    if spec is None:
        return lambda leaves: leaves[0] if len(leaves) == 1 else leaves
    if spec.is_leaf():
        return lambda leaves: leaves[0]
    if spec.type in (tuple, list) and all(child.is_leaf() for child in spec.children()):
        kind: Callable[[list[Any]], Any] = spec.type
        return kind
    if isinstance(spec, Tree):
        return spec.unflatten
    from torch.utils._pytree import tree_unflatten

    return lambda leaves: tree_unflatten(leaves, spec)
