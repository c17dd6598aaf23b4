"""PyTorch's operator registry as a snapshot, and what follows from it: schemas, traits, ODS text.

The snapshot, `registry.json`, holds every schema as PyTorch prints it. `flambeau registry update` writes it anew
from the installed torch. Schemas are parsed one by one, on first use, so that loading costs a few milliseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flambeau.dialects.torch.schema import REQUIRED, Argument, Schema, SchemaType, parse_schema

SNAPSHOT = Path(__file__).with_name("registry.json")
NAMESPACES = ("aten", "prim", "prims", "quantized", "_c10d_functional")
TAGS = ("core", "inplace_view", "nondeterministic_seeded")
"""What PyTorch says about ops besides their schemas, as far as it is of use here."""


@dataclass(frozen=True)
class Snapshot:
    """The checked-in registry."""

    torch_version: str
    declarations: dict[str, str]
    """Op names to declarations, `aten.relu` to `(Tensor self) -> Tensor`."""
    upstream: frozenset[str]
    """The ops that torch-mlir's dialect defines; all others travel as `torch.operator`."""
    jit_only: frozenset[str]
    """The ops that only TorchScript's interpreter has, not PyTorch's dispatcher."""
    tags: dict[str, frozenset[str]]
    """The ops that have each of PyTorch's tags in `TAGS`."""


@cache
def snapshot() -> Snapshot:
    data = json.loads(SNAPSHOT.read_text())
    return Snapshot(
        data["torch"],
        data["ops"],
        frozenset(data["upstream"]),
        frozenset(data["jit_only"]),
        {tag: frozenset(names) for tag, names in data["tags"].items()},
    )


EXTENSIONS = {
    "prim.Exit": "(Any inp) -> Tensor",
    "per_tensor_affine.create": "(Tensor int_repr, float scale, int offset) -> Tensor",
    "valsem.aten.bernoulli.float": "(Tensor self, float p=0.5, Generator? generator=None) -> Tensor",
    "hop_flex_attention": (
        "(Tensor query, Tensor key, Tensor value, float? scale, bool return_lse, bool return_max_scores) "
        "-> (Tensor output, Tensor logsumexp, Tensor max_scores)"
    ),
    "onnx.rotary_embedding": (
        "(Tensor input, Tensor position_ids, Tensor cos_cache, Tensor sin_cache, int interleaved, "
        "int is_packed_batching, int num_heads, int rotary_embedding_dim, float scale) -> Tensor"
    ),
    "quantized_decomposed.quantize_per_tensor": (
        "(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
    ),
    "quantized_decomposed.quantize_per_channel": (
        "(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) "
        "-> Tensor"
    ),
    "quantized_decomposed.quantize_per_channel_group": (
        "(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, "
        "int group_size) -> Tensor"
    ),
    "quantized_decomposed.dequantize_per_tensor": (
        "(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
        "ScalarType? out_dtype=None) -> Tensor"
    ),
    "quantized_decomposed.dequantize_per_channel": (
        "(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, "
        "*, ScalarType? out_dtype=None) -> Tensor"
    ),
    "quantized_decomposed.dequantize_per_channel_group": (
        "(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, "
        "int group_size, ScalarType out_dtype) -> Tensor"
    ),
    "torchvision.deform_conv2d": (
        "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, "
        "int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask) -> Tensor"
    ),
    "torchvision.nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision.roi_align": (
        "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, "
        "bool aligned) -> Tensor"
    ),
    "torchvision.roi_pool": (
        "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) -> (Tensor, Tensor)"
    ),
}
"""Ops of torch-mlir's dialect that PyTorch's own registry does not have: other libraries declare them, or nobody."""

OWN = {
    "flambeau.philox": "(Tensor state, int delta, int[] size) -> Tensor",
    "flambeau.philox.pair": "(Tensor state, int delta, int[] size, int first) -> (Tensor, Tensor)",
    "flambeau.permute_tensor": "(Tensor input, int[] targets, str group_name) -> Tensor",
    "flambeau.constrain": "(Tensor input, str axis, int? dim) -> Tensor",
}
"""Ops that only programs of Flambeau have; they travel as `torch.operator`. `philox` draws random words.
`permute_tensor` is a function of `torch.distributed` that has no op there: device i of a group sends its tensor to
device `targets[i]`. `constrain` gives its argument, split by a dim along an axis of a mesh, or whole along it."""

PROPERTIES = {"hop_flex_attention": ("enable_gqa", "mask_mod_fn", "score_mod_fn")}
"""What some of them take as attributes rather than as operands."""


@cache
def schema(name: str) -> Schema | None:
    """Return the schema of `aten.add.Tensor`; None for an op that nobody declares."""
    declaration = snapshot().declarations.get(name) or EXTENSIONS.get(name) or OWN.get(name)
    return None if declaration is None else parse_schema(name, declaration)


@cache
def overloads(base: str) -> tuple[Schema, ...]:
    """List the overloads of an operator: those of `aten.add` are `aten.add.Tensor`, `aten.add.Scalar`, ..."""
    return tuple(s for name in _overload_names().get(base, ()) if (s := schema(name)) is not None)


@cache
def _overload_names() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name in (*snapshot().declarations, *EXTENSIONS):
        names.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return names


def scalar_twin(schema_: Schema, given: list[Any]) -> tuple[Schema, list[Any]]:
    """Replace `add.Tensor(x, 2)`, where a number stands for a tensor, by the overload `add.Scalar(x, 2)`."""
    for i, (argument, value) in enumerate(zip(schema_.arguments, given, strict=True)):
        if i == 0 or not argument.type.is_tensor or argument.type.is_list or not isinstance(value, (int, float)):
            continue
        suffix = schema_.overload_name.replace("Tensor", "Scalar")
        twin = schema(f"{schema_.namespace}.{schema_.base_name}.{suffix}")
        if twin is None or twin is schema_ or len(twin.arguments) < len(given):
            break
        if [a.name for a in twin.arguments[: len(given)]] != [a.name for a in schema_.arguments]:
            break
        extra = [a.default for a in twin.arguments[len(given) :]]
        if any(e is REQUIRED for e in extra):
            break
        return twin, [*given, *extra]
    return schema_, given


def is_upstream(name: str) -> bool:
    """Tell whether torch-mlir's dialect defines this op."""
    return name in snapshot().upstream or name in EXTENSIONS


def upstream_names() -> Iterator[str]:
    """Yield the names of the ops that torch-mlir's dialect defines and a schema describes."""
    yield from snapshot().upstream
    yield from EXTENSIONS


def is_random(name: str) -> bool:
    """Tell whether the op draws random numbers."""
    return name in snapshot().tags["nondeterministic_seeded"] or name == "valsem.aten.bernoulli.float"


_VALUE_FORMS = {"aten.zero_": "aten.zeros_like", "aten.normal_": "aten.normal_functional"}
"""In-place ops whose value forms have other names."""


@cache
def value_form(name: str) -> str | None:
    """Return the value form of an in-place op, `aten.add.Tensor` for `aten.add_.Tensor`; None if there is none."""
    if name in _VALUE_FORMS:
        return _VALUE_FORMS[name]
    namespace, base, *overload = name.split(".", 2)
    same = ".".join([namespace, base.removesuffix("_"), *overload])
    written = schema(name)
    if schema(same) is not None or written is None:
        return same if schema(same) is not None else None
    alike = (s for s in overloads(f"{namespace}.{base.removesuffix('_')}") if _parameters(s) == _parameters(written))
    return next((s.name for s in alike), None)


def _parameters(s: Schema) -> list[tuple[str, SchemaType]]:
    return [(a.name, a.type) for a in s.arguments]


@cache
def inplace_views() -> dict[str, str]:
    """Map in-place ops that change a tensor's view of its storage to the ops that return such a view.

    `set_` is not among them: it gives the tensor another storage.
    """
    names = sorted(snapshot().tags["inplace_view"])
    forms = {name: value_form(name) for name in names if not name.startswith("aten.set_")}
    return {name: form for name, form in forms.items() if form is not None}


TRAINING_FLAGS = {
    "aten.batch_norm": "training", "aten.native_batch_norm": "training", "aten._native_batch_norm_legit": None,
    "aten.instance_norm": "use_input_stats", "aten._batch_norm_with_update": None,
}  # fmt: skip
"""Norms that write their running mean and variance in training, of which not all schemas tell, and the argument that
says whether this is training. Those with none have schemas that say that they write."""


def read_installed() -> dict[str, Any]:
    """Read the snapshot's content from the torch that is installed, and torch-mlir's op set where that is installed.

    A fresh interpreter reads it: much of what a program imports (inductor, other libraries) adds to the registry.
    """
    code = f"import json; from {__name__} import _read_registry; print(json.dumps(_read_registry()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _read_registry() -> dict[str, Any]:
    import torch
    import torch._prims  # registers the prims namespace

    dispatcher = set(torch._C._dispatch_get_all_op_names())
    ops: dict[str, str] = {}
    jit_only: list[str] = []
    for declared in torch._C._jit_get_all_schemas():
        namespace, base = declared.name.split("::")
        if namespace not in NAMESPACES:
            continue
        text = str(declared)
        name = f"{namespace}.{base}" + (f".{declared.overload_name}" if declared.overload_name else "")
        ops[name] = text[text.index("(") :]
        qualified = declared.name + (f".{declared.overload_name}" if declared.overload_name else "")
        if qualified not in dispatcher:
            jit_only.append(name)
    return {
        "torch": torch.__version__.split("+")[0],
        "upstream": sorted(_upstream_ops(ops)),
        "jit_only": sorted(jit_only),
        "tags": {tag: sorted(name for name in ops.keys() - jit_only if _has_tag(name, tag)) for tag in TAGS},
        "ops": dict(sorted(ops.items())),
    }


def _has_tag(name: str, tag: str) -> bool:
    import torch

    namespace, base, *overload = name.split(".", 2)
    op = getattr(getattr(getattr(torch.ops, namespace), base), overload[0] if overload else "default")
    return getattr(torch.Tag, tag) in op.tags


def _upstream_ops(ops: dict[str, str]) -> Iterator[str]:
    try:
        from torch_mlir.dialects import torch as torch_d
        from torch_mlir.ir import Context
    except ImportError:
        yield from (name for name in snapshot().upstream if name in ops)
        return
    with Context() as context:
        torch_d.register_dialect(context)
        yield from (name for name in ops if context.is_registered_operation(f"torch.{name}"))


def write_snapshot(path: Path = SNAPSHOT) -> tuple[list[str], list[str], list[str]]:
    """Write the snapshot anew; gives the names that were added, removed and changed."""
    new = read_installed()
    old = json.loads(path.read_text())["ops"] if path.exists() else {}
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(new, indent=0, ensure_ascii=False) + "\n")
    scratch.replace(path)
    for cached in (snapshot, schema, overloads, _overload_names, value_form, inplace_views):
        cached.cache_clear()
    ops = new["ops"]
    return (
        sorted(ops.keys() - old.keys()),
        sorted(old.keys() - ops.keys()),
        sorted(name for name in ops.keys() & old.keys() if ops[name] != old[name]),
    )


# --- The record and the ODS text of an op, as torch-mlir's generator prints them. ---


def _jit_type(argument: Argument) -> str:
    t = argument.type
    inner = {"Scalar": "Scalar"}.get(t.base, t.base)
    if t.is_list:
        inner = f"{inner}{'?' if t.elements_optional else ''}[]"
    return inner + ("?" if t.is_optional else "")


def _py_type(argument: Argument) -> str:
    t = argument.type
    inner = {"Scalar": "number"}.get(t.base, t.base)
    if t.elements_optional:
        inner = f"Optional[{inner}]"
    if t.is_list:
        inner = f"List[{inner}]"
    return f"Optional[{inner}]" if t.is_optional else inner


def signature_text(s: Schema) -> str:
    """Write a schema as torch-mlir does: `aten::relu : (Tensor) -> (Tensor)`."""
    arguments = ", ".join(_jit_type(a) for a in s.arguments)
    returns = ", ".join(_jit_type(r) for r in s.returns)
    qualified = f"{s.namespace}::{s.base_name}" if s.namespace else s.base_name
    qualified += f".{s.overload_name}" if s.overload_name else ""
    return f"{qualified} : ({arguments}) -> ({returns})"


def class_name(name: str) -> str:
    """Return torch-mlir's class name of an op, `AtenAddTensorOp` for `aten.add.Tensor`."""
    words = [word for part in name.split(".") for word in part.split("_")]
    return "".join(w[:1].upper() + w[1:] or "_" for w in words) + "Op"


def _alias_record(argument: Argument) -> dict[str, Any]:
    assert argument.alias is not None

    def sets(names: tuple[str, ...]) -> list[str]:
        return [f"alias::{n}" for n in names]

    return {
        "is_write": argument.alias.is_write,
        "before": sets(argument.alias.sets),
        "after": sets(argument.alias.after),
    }


def record_text(s: Schema) -> str:
    """Write what PyTorch's registry says about an op, in the layout of torch-mlir's registry dump."""

    def entry(argument: Argument) -> dict[str, Any]:
        row: dict[str, Any] = {"name": argument.name, "type": _jit_type(argument), "pytype": _py_type(argument)}
        if argument.alias is not None:
            row["alias_info"] = _alias_record(argument)
        return row

    lines = [
        f"JitOperator '{signature_text(s)}':",
        f"  MLIR op name = torch.{s.name}",
        f"  MLIR td def name = Torch_{class_name(s.name)}",
        f"  namespace = {s.namespace}",
        f"  unqualified_name = {s.base_name}",
        f"  overload_name = {s.overload_name}".rstrip(" ") if s.overload_name else "  overload_name =",
        f"  is_c10_op = {s.name not in snapshot().jit_only}",
        f"  is_vararg = {s.is_vararg}",
        f"  is_varret = {s.is_varret}",
        f"  is_mutable = {s.is_mutable}",
        "  arguments:",
        *(f"    arg: {entry(a)}" for a in s.arguments),
        "  returns:",
        *(f"    ret: {entry(r)}" for r in s.returns),
    ]
    return "\n".join(lines)


def traits(s: Schema) -> tuple[str, ...]:
    """List the op's traits in torch-mlir's vocabulary, derived from its alias annotations."""
    found = []
    if s.is_inplace_variant:
        found.append("IsTrailingUnderscoreInplaceVariant")
    found.append("AllowsTypeRefinement")
    if s.has_value_semantics:
        found.append("HasValueSemantics")
    if s.is_read_only:
        found.append("ReadOnly")
    return tuple(found)


_ODS_BASE = {
    "Tensor": "Tensor", "int": "Int", "float": "Float", "bool": "Bool", "Scalar": "Scalar", "str": "String",
    "Device": "Device", "Generator": "Generator", "ScalarType": "Int", "Layout": "Int", "MemoryFormat": "Int",
}  # fmt: skip


def ods_type(t: SchemaType) -> str:
    """Return the name that ODS has for an argument type: `AnyTorchOptionalTensorType`."""
    base = _ODS_BASE.get(t.base, "Any")
    if t.is_list:
        element = ("Optional" if t.elements_optional else "") + ("Tensor" if base == "Tensor" else f"Torch{base}")
        return f"AnyTorch{'Optional' if t.is_optional else ''}ListOf{element}Type"
    if t.is_optional:
        return f"AnyTorchOptional{base}Type"
    return {"Tensor": "AnyTorchTensorType", "Scalar": "AnyTorchScalarType", "Any": "AnyTorchType"}.get(
        base, f"Torch_{base}Type"
    )


def ods_text(s: Schema) -> str:
    """Write the op's definition in MLIR's ODS language."""
    results = [r.name or ("result" if len(s.returns) == 1 else f"result{i}") for i, r in enumerate(s.returns)]
    operands = ", ".join(f"${a.name}" for a in s.arguments)
    operand_types = ", ".join(f"type(${a.name})" for a in s.arguments)
    result_types = ", ".join(f"type(${r})" for r in results)
    arrow = f" `->` {result_types}" if results else ""
    colon = f" `:` {operand_types}" if s.arguments else ""
    lines = [
        f'def Torch_{class_name(s.name)} : Torch_Op<"{s.name}", [',
        ",\n".join(f"  {t}" for t in traits(s)),
        "]> {",
        f'  let summary = "Generated op for `{signature_text(s)}`";',
        "  let arguments = (ins",
        ",\n".join(f"    {ods_type(a.type)}:${a.name}" for a in s.arguments),
        "  );",
        "  let results = (outs",
        ",\n".join(f"    {ods_type(r.type)}:${n}" for r, n in zip(s.returns, results, strict=True)),
        "  );",
        f'  let assemblyFormat = "{operands} attr-dict{colon}{arrow}";',
        "}",
    ]
    return "\n".join(line for line in lines if line)
