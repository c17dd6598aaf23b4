"""What a lazy tensor does with each op that reaches it: record it, read contents, or let PyTorch run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau.frontends.lazy import views
from flambeau.frontends.lazy.graph import Spec, Value, interned_spec, user_place
from flambeau.frontends.lazy.kinds import Call, is_here, kind_of, lazy_tensors, snapshot
from flambeau.frontends.lazy.overloads import Overload, aten, overload_of
from flambeau.frontends.lazy.session import current_session
from flambeau.frontends.lazy.tensor import LazyTensor, View, become, on_dispatch, tensor_on, with_data
from flambeau.frontends.lazy.trace import LOCK, current_trace, data_of, emit, materialized, value_of, wrap

Rule = Callable[[Overload, Sequence[Any], dict[str, Any]], Any]


@on_dispatch
def dispatch(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do what an op is to do, with at least one lazy tensor among its arguments, or where it is to make one."""
    overload = overload_of(func)
    with LOCK:
        if overload.rule is not None:
            return overload.rule(overload, args, kwargs)
        if overload.is_composite:
            return func.decompose(*args, **kwargs)
        if overload.is_loop:
            return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        if overload.is_view and args and isinstance(args[0], LazyTensor):
            return _view(overload, args, kwargs)
        if overload.is_view_in_place:
            return _view_in_place(overload, args, kwargs)
        if overload.written:
            return _write(overload, args, kwargs)
        return _functional(overload, args, kwargs)


# --- Ops that give new tensors ---


def _functional(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not overload.returns_tensors or kwargs.get("generator") is not None:
        return _in_pytorch(overload, args, kwargs, "it draws from a generator of its own")
    call = Call(overload, args, kwargs)
    kind = kind_of(call, args, kwargs)
    if kind is None:
        return _in_pytorch(overload, args, kwargs, "the shape of its result depends on what is in its arguments")
    op = current_trace().record(kind, call.tensors, call.numbers)
    results = [None if value is None else wrap(value) for value in op.results]
    return results[0] if kind.many is None else kind.many(results)


# --- Views ---


def _view(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Give tensors that share the storage; what they hold is read when somebody asks."""
    base = args[0]
    call = Call(overload, args, kwargs)
    kind = kind_of(call, args, kwargs)
    if kind is None or kwargs or len(call.tensors) != 1:
        return _functional(overload, args, kwargs)
    seen = [
        None if spec is None else tensor_on(base.storage_, spec, View(base.view_, kind, i))
        for i, spec in enumerate(kind.results)
    ]
    return seen[0] if kind.many is None else kind.many(seen)


def _view_in_place(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `squeeze_`, `t_` and the like: the tensor becomes a view of what it was."""
    if overload.view is None:
        return _refused(overload, args, kwargs)
    become(args[0], dispatch(overload.view, args, kwargs))
    return args[0]


def _same_storage(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `detach`: another tensor with the same storage."""
    base = args[0]
    return tensor_on(base.storage_, base.spec_, base.view_)


def _conjugate(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `conj`: a view whose elements are computed when it is read, as there is no bit for it here."""
    return _view(overload_of(aten.conj_physical.default), args, {})


def _negative(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _view(overload_of(aten.neg.default), args, {})


def _reshape_alias(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _view(overload_of(aten.view.default), args[:2], {})


def _as_strided(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `as_strided` where the places that it asks for are counted from the tensor's own first element."""
    base = args[0]
    offset = args[3] if len(args) > 3 else kwargs.get("storage_offset")
    if not base.is_contiguous() or (base.view_ is not None and offset is not None):
        raise NotImplementedError(
            "as_strided of a lazy tensor that is itself a view is not recorded, since it asks for places in memory: "
            "write it with narrow(), select() or unfold()"
        )
    return _view(overload, [*args[:3], offset or 0], {})


# --- Writes ---


def _write(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record what an op computes, and give it to the tensors that the op writes."""
    written = [args[i] if i < len(args) else kwargs.get(name) for i, name in overload.written]
    variant = overload.functional
    if variant is None or kwargs.get("generator") is not None:
        return _in_pytorch(overload, args, kwargs, "it has no form that returns what it writes")
    call = Call(overload, args, kwargs)  # PyTorch says what it does not take, as a dtype that cannot hold the result
    if kind_of(call, args, kwargs) is None:
        return _in_pytorch(overload, args, kwargs, "the shape of its result depends on what is in its arguments")
    given = {k: v for k, v in kwargs.items() if k not in overload.outs} if overload.outs else kwargs
    if overload.defaults:
        args = [*args, *(value for i, value in overload.defaults.items() if i >= len(args))]
    results = emit(variant, *args, **given)
    count = len(overload.func._schema.returns)
    fresh = max(count - len(overload.written), 0)
    for tensor, value in zip(written, results[fresh:], strict=False):
        if tensor is not None:
            assign(tensor, value)
    returned = [*(wrap(v) for v in results[:fresh]), *written]
    return None if count == 0 else returned[0] if count == 1 else tuple(returned)


def assign(tensor: torch.Tensor, value: Value) -> None:
    """Give a tensor new contents in place, in its own dtype. It may be one of PyTorch's, which is computed then."""
    if value.spec.dtype is not tensor.dtype:
        value = emit(aten._to_copy.default, value, dtype=tensor.dtype)[0]
    if value.spec.shape != tuple(tensor.shape):
        if not isinstance(tensor, LazyTensor):
            tensor.resize_(value.spec.shape)
        elif tensor.view_ is not None:
            raise RuntimeError(
                f"`out=` is a view of shape {list(tensor.shape)}, and the result {list(value.spec.shape)}"
            )
        else:
            become(tensor, wrap(value))
            return
    if not isinstance(tensor, LazyTensor):
        tensor.copy_(data_of(value))
    elif not views.write(tensor, value):
        name = views.write_in_pytorch(tensor, value)
        current_session().fell_back("aten.copy_.default", f"it writes through a view by {name}", user_place())


def _copy(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `copy_`: the contents of the source become those of the tensor."""
    tensor, source = args[0], args[1]
    if not isinstance(tensor, LazyTensor):
        return tensor.copy_(materialized(source))
    value = value_of(source) if isinstance(source, LazyTensor) else snapshot(source)
    shape = tuple(tensor.shape)
    if value.spec.shape != shape:
        value = emit(aten.expand.default, value, list(shape))[0]
    assign(tensor, value)
    return tensor


def _fill(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `fill_` and `zero_`, which do not depend on what was there."""
    tensor, number = args[0], args[1] if len(args) > 1 else 0
    if isinstance(number, torch.Tensor):
        value = emit(aten.expand.default, number, list(tensor.shape))[0]
    else:
        _require_fit(number, tensor.dtype)
        value = emit(aten.full.default, list(tensor.shape), number, dtype=tensor.dtype, device=torch.device("cpu"))[0]
    assign(tensor, value)
    return tensor


def _require_fit(number: Any, dtype: torch.dtype | None) -> None:
    """Raise as PyTorch does for a number that a tensor of integers cannot hold."""
    if dtype is not None and not dtype.is_floating_point and not dtype.is_complex:
        torch.full((), number, dtype=dtype, device="cpu")


def _full(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `full`, `full_like` and `new_full`."""
    like = args[0].dtype if isinstance(args[0], torch.Tensor) else None
    number = kwargs["fill_value"] if "fill_value" in kwargs else args[2 if overload.name.startswith("aten.new") else 1]
    _require_fit(number, kwargs.get("dtype") or like)
    return _functional(overload, args, kwargs)


def _power(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `pow` with a number: PyTorch refuses a negative one for integers."""
    base, exponent = args
    if isinstance(exponent, int) and exponent < 0:
        torch.pow(torch.ones((), dtype=base.dtype, device="cpu"), exponent)
    return (_write if overload.written else _functional)(overload, args, kwargs)


def _batch_norm(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do a batch norm, which writes its running statistics without saying so."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if mean is None:
        legit = aten._native_batch_norm_legit.no_stats
        return _functional(overload_of(legit), (x, weight, bias, training, momentum, eps), {})
    if not training:
        legit = aten._native_batch_norm_legit_no_training.default
        return _functional(overload_of(legit), (x, weight, bias, mean, var, momentum, eps), {})
    func = aten._native_batch_norm_legit_functional.default
    results = emit(func, x, weight, bias, mean, var, training, momentum, eps)
    assign(mean, results[3])
    assign(var, results[4])
    return tuple(wrap(value) for value in results[:3])


# --- Copies, and contents that somebody asks for ---


def _clone(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `clone`: a storage of its own with the same contents, which a write gives one of the two anew."""
    call = Call(overload, args, kwargs)
    kind = kind_of(call, args, kwargs)
    if kind is None or kind.results[0] is not args[0].spec_:
        return _functional(overload, args, kwargs)
    return wrap(value_of(args[0]), args[0].spec_)


def _to_copy(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do `to`: a copy of another dtype here, or the contents on another device."""
    source = args[0]
    if not is_here(kwargs.get("device")):
        given = {k: v for k, v in kwargs.items() if k != "layout"}
        return aten._to_copy.default(materialized(source), **given)
    given = {k: kwargs[k] for k in ("dtype", "memory_format") if kwargs.get(k) is not None}
    if given.get("dtype", source.dtype) is source.dtype:
        return _clone(overload_of(aten.clone.default), args, {k: v for k, v in given.items() if k != "dtype"})
    return _functional(overload, args, given)


def _number(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return materialized(args[0]).item()


def _resize(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if list(args[0].shape) == list(args[1]):
        return args[0]
    raise NotImplementedError(
        f"a lazy tensor keeps its shape: {list(args[0].shape)} is not resized to {list(args[1])}. Make a new tensor"
    )


def _refused(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    raise NotImplementedError(
        f"{overload.name} gives a tensor other memory, and a lazy tensor has none: write contents with copy_()"
    )


def _empty(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Make a tensor that nobody has written yet: zeros, of the strides that were asked for."""
    like = [args[0].spec_.empty("meta"), *args[1:]] if isinstance(args[0], LazyTensor) else args
    made = overload.func(*like, **{**kwargs, "device": torch.device("meta")})
    spec = interned_spec(tuple(made.shape), made.dtype, tuple(made.stride()))
    return zeros(spec)


def zeros(spec: Spec) -> LazyTensor:
    value = emit(aten.full.default, list(spec.shape), 0, dtype=spec.dtype, device=torch.device("cpu"))[0]
    return wrap(value, spec)


# --- PyTorch itself ---


def _in_pytorch(overload: Overload, args: Sequence[Any], kwargs: dict[str, Any], reason: str) -> Any:
    """Compute the arguments and let PyTorch run the op. What it gives are lazy tensors with contents."""
    written = [args[i] if i < len(args) else kwargs.get(name) for i, name in overload.written]
    targets = [w for group in written for w in (group if isinstance(group, (list, tuple)) else [group])]
    copies = {id(t): materialized(t).clone() for t in targets if isinstance(t, LazyTensor)}
    held = [materialized(t) for t in lazy_tensors([*args, *kwargs.values()])]

    def eager(value: Any) -> Any:
        if isinstance(value, LazyTensor):
            return copies[id(value)] if id(value) in copies else materialized(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(eager, value))
        return torch.device("cpu") if isinstance(value, torch.device) and is_here(value) else value

    with torch.no_grad(), torch._C.DisableTorchFunction():
        returned = overload.func(*map(eager, args), **{k: eager(v) for k, v in kwargs.items()})
    for target in targets:
        if isinstance(target, LazyTensor):
            copy = copies[id(target)]
            assign(target, snapshot(copy))
    if overload.returns_tensors:
        current_session().fell_back(overload.name, reason, user_place())
    back = {id(copies[id(t)]): t for t in targets if isinstance(t, LazyTensor)}
    memory = {t.untyped_storage().data_ptr() for t in held}

    def lazy(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(lazy, value))
        if not isinstance(value, torch.Tensor) or any(value is t for t in targets):
            return value
        if id(value) in back:
            return back[id(value)]
        return with_data(value.clone() if value.untyped_storage().data_ptr() in memory else value)

    return lazy(returned)


RULES: dict[Any, Rule] = {
    aten.detach.default: _same_storage,
    aten.alias.default: _same_storage,
    aten.lift_fresh.default: _same_storage,
    aten.lift.default: _clone,
    aten._reshape_alias.default: _reshape_alias,
    aten._conj.default: _conjugate,
    aten._neg_view.default: _negative,
    aten.as_strided.default: _as_strided,
    aten.copy_.default: _copy,
    aten.fill_.Scalar: _fill,
    aten.fill_.Tensor: _fill,
    aten.zero_.default: _fill,
    aten.full.default: _full,
    aten.full_like.default: _full,
    aten.new_full.default: _full,
    aten.pow.Tensor_Scalar: _power,
    aten.pow_.Scalar: _power,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _number,
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten.resize_.default: _resize,
    aten.empty.memory_format: _empty,
    aten.empty_strided.default: _empty,
    aten.empty_like.default: _empty,
    aten.new_empty.default: _empty,
    aten.new_empty_strided.default: _empty,
    aten.set_.source_Tensor: _refused,
    aten.set_.source_Storage: _refused,
    aten.set_.source_Storage_storage_offset: _refused,
    aten.set_.default: _refused,
}
"""Ops that are neither computed, viewed nor written as their schemas say."""

for _func, _rule in RULES.items():
    overload_of(_func).rule = _rule
