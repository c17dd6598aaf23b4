"""Signatures as JSON, so that a saved program can be called in another process."""

from __future__ import annotations

from typing import Any

from flambeau.engines.errors import EngineError
from flambeau.ir.dtypes import BY_NAME
from flambeau.ir.module import Argument, Fixed, Mutation, Output, ScalarSpec, Signature, TensorSpec
from flambeau.ir.symbolic import Dims, Symbol, SymbolicDim
from flambeau.ir.trees import Tree


def signature_to_json(name: str, signature: Signature) -> dict[str, Any]:
    """Encode a signature as JSON values; `name` is for the error when a type cannot be written down."""
    return {
        "arguments": [
            {
                "name": a.name,
                "type": _type_to_json(a.spec),
                "state": a.state,
                "strides": a.strides,
                "random": a.is_random,
                "dims": [_dim_to_json(d) for d in a.dims],
            }
            for a in signature.arguments
        ],
        "results": [_type_to_json(r) for r in signature.results],
        "outputs": [_output_to_json(name, o) for o in signature.outputs],
        "mutations": [{"result": m.result, "argument": m.argument} for m in signature.mutations],
        "inputs": None if signature.inputs is None else list(signature.inputs),
        "fixed": [{"leaf": f.leaf, "name": f.name, "value": _value_to_json(name, f)} for f in signature.fixed],
        "symbols": [vars(s) for s in signature.symbols],
        "result_dims": [[_dim_to_json(d) for d in dims] for dims in signature.result_dims],
        "conditions": list(signature.conditions),
        "in_spec": _tree_to_json(f"arguments of {name!r}", signature.in_spec),
        "out_spec": _tree_to_json(f"result of {name!r}", signature.out_spec),
    }


def signature_from_json(data: dict[str, Any]) -> Signature:
    """Decode what `signature_to_json` wrote; KeyError, TypeError or ValueError if it is no signature."""
    return Signature(
        arguments=tuple(
            Argument(
                a["name"],
                _type_from_json(a["type"]),
                a["state"],
                _strides_from_json(a.get("strides")),
                bool(a.get("random")),
                _dims_from_json(a.get("dims", ())),
            )
            for a in data["arguments"]
        ),
        results=tuple(_type_from_json(r) for r in data["results"]),
        outputs=tuple(Output(o["result"], o.get("constant")) for o in data["outputs"]),
        mutations=tuple(Mutation(m["result"], m["argument"]) for m in data["mutations"]),
        in_spec=_tree_from_json(data["in_spec"]),
        out_spec=_tree_from_json(data["out_spec"]),
        inputs=None if data["inputs"] is None else tuple(data["inputs"]),
        fixed=tuple(Fixed(f["leaf"], f["name"], _value_from_json(f["value"])) for f in data.get("fixed", ())),
        symbols=tuple(Symbol(**s) for s in data.get("symbols", ())),
        result_dims=tuple(map(_dims_from_json, data.get("result_dims", ()))),
        conditions=tuple(map(str, data.get("conditions", ()))),
    )


def _dim_to_json(dim: SymbolicDim | None) -> dict[str, Any] | None:
    return None if dim is None else dict(vars(dim))


def _dims_from_json(data: Any) -> Dims:
    return tuple(None if d is None else SymbolicDim(**d) for d in data)


def _strides_from_json(data: Any) -> tuple[int, ...] | str | None:
    return tuple(data) if isinstance(data, list) else data


def _type_to_json(spec: TensorSpec | ScalarSpec) -> dict[str, Any]:
    if isinstance(spec, ScalarSpec):
        return {"scalar": spec.kind}
    return {"dtype": spec.dtype.name, "shape": list(spec.shape)}


def _type_from_json(data: dict[str, Any]) -> TensorSpec | ScalarSpec:
    if "scalar" in data:
        return ScalarSpec(data["scalar"])
    return TensorSpec(tuple(data["shape"]), BY_NAME[data["dtype"]])


def _output_to_json(name: str, output: Output) -> dict[str, Any]:
    if output.result is not None:
        return {"result": output.result}
    if not isinstance(output.constant, (type(None), bool, int, float, str)):
        raise EngineError(
            f"cannot save the program: {name!r} returns the constant {output.constant!r}, and a "
            f"{type(output.constant).__name__} has no form in JSON"
        )
    return {"result": None, "constant": output.constant}


_PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "complex": complex}
_OF_TORCH = ("dtype", "device", "layout", "memory_format")


def _value_to_json(name: str, fixed: Fixed) -> Any:
    """Encode a value with its type, as text: JSON takes neither NaN nor the difference between 1 and 1.0."""
    value, kind = fixed.value, type(fixed.value).__name__
    if value is None:
        return None
    if kind in _PLAIN and type(value) is _PLAIN[kind]:
        return [kind, value if kind in ("bool", "str") else repr(value)]
    if kind in _OF_TORCH and type(value).__module__ == "torch":
        return [kind, str(value).removeprefix("torch.")]
    raise EngineError(
        f"cannot save the program: {name!r} was compiled for {fixed.name}={value!r}, and a {kind} has no form in JSON"
    )


def _value_from_json(data: Any) -> Any:
    if data is None:
        return None
    kind, text = data
    if kind in _PLAIN:
        return text if kind in ("bool", "str") else _PLAIN[kind](text)
    if kind not in _OF_TORCH:
        raise ValueError(f"there is no kind of value {kind!r}")
    import torch

    return torch.device(text) if kind == "device" else getattr(torch, text)


def _tree_to_json(what: str, spec: Any) -> Any:
    if spec is None:
        return None
    if isinstance(spec, Tree):
        return {"tree": spec.to_json()}
    from torch.utils._pytree import treespec_dumps

    try:
        return treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise EngineError(
            f"cannot save the program: the {what} contain a type that PyTorch cannot write down ({error}). "
            "Give it a name with the `serialized_type_name` argument of `torch.utils._pytree.register_pytree_node`, "
            "or compile a function of lists, tuples and dicts."
        ) from error


def _tree_from_json(text: Any) -> Any:
    if text is None:
        return None
    if isinstance(text, dict):
        return Tree.from_json(text["tree"])
    from torch.utils._pytree import treespec_loads

    return treespec_loads(text)
