"""Every shape and dtype rule against PyTorch: over its own op samples, over mixed dtypes, and by hand for the rest."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch._prims  # registers the prims namespace
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed namespace
import torch.distributed._functional_collectives  # registers the meta kernels of collectives
from primitives import primitives

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import REQUIRED
from flambeau.infer.builder import rules
from flambeau.infer.rules import InferenceError, Meta, Unknown
from flambeau.infer.scalars import KINDS
from flambeau.ir import dtypes
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.scalars import SCALAR_RULES
from flambeau.passes.decompose import decompositions
from flambeau.testing.shape_rules import CANNOT_KNOW, Report, all_names, check_call, check_rules

DTYPES = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
DTYPES += (torch.complex64,)
SHAPES = ((), (3,), (2, 3), (2, 1), (0, 3))
F8 = torch.float8_e4m3fn


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def spelt(report: Report) -> list[str]:
    return [str(m) for found in report.mismatches.values() for m in found]


# --- Samples of PyTorch's own ---


@pytest.fixture(scope="module")
def samples() -> Report:
    return check_rules(all_names(), (torch.float32, torch.int64, torch.bool, torch.complex64), samples=8)


@pytest.mark.long
def test_rules_agree_on_the_samples_of_opinfo(samples: Report) -> None:
    # The shapes of some results of embedding bags differ from kernel to kernel; ours are one for each bag or index.
    assert [m for m in spelt(samples) if not m.startswith("aten.embedding_bag.padding_idx(")] == []
    assert len(samples.checked) > 500


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: Meta(x.shape, dtypes.int64),
        lambda x: Meta((*x.shape, 1), x.dtype),
        lambda x: Meta((None,) * x.rank, x.dtype),
        lambda x: x if None not in x.shape else Meta((7,) * x.rank, x.dtype),
        lambda x: {}[x],
    ],
)
def test_wrong_rules_are_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spelt(check_rules(["nn.functional.relu"], (torch.float32,))) == []
    monkeypatch.setitem(rules().rules, "aten.relu", wrong)
    assert set(check_rules(["nn.functional.relu"], (torch.float32,)).mismatches) == {"aten.relu"}


# --- All dtypes with all others ---


def _kind(name: str) -> str:
    """Spell the required arguments of an op that takes tensors and numbers alone: T for a tensor, N for a number."""
    schema = registry.schema(name)
    if schema is None or schema.is_mutable or not name.startswith("aten."):
        return ""
    required = [a for a in schema.arguments if a.default is REQUIRED and not a.type.is_optional]
    letters = {"Tensor": "T", "Scalar": "N"}
    return "".join("?" if a.type.is_list else letters.get(a.type.base, "?") for a in required)


def _arguments(kind: str) -> list[tuple[Any, ...]]:
    tensors = [ones(*s, dtype=d) for s in SHAPES for d in DTYPES]
    if len(kind) > 1:
        tensors = [ones(*s, dtype=d) for s in ((), (2, 3)) for d in DTYPES]
    values = {"T": tensors, "N": [2, 2.5, True]}
    return list(itertools.product(*(values[letter] for letter in kind)))


MIXED = {name: _kind(name) for name in rules() if _kind(name) in ("T", "TT", "TN", "NT")}


@pytest.fixture(scope="module")
def mixed() -> Report:
    report = Report()
    for name, kind in MIXED.items():
        for args in _arguments(kind):
            try:
                check_call(report, name, *args)
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                pass  # PyTorch refuses these arguments
    return report


@pytest.mark.long
def test_rules_agree_on_mixed_dtypes(mixed: Report) -> None:
    # PyTorch reads pivots of any shape, whatever they then mean.
    assert [m for m in spelt(mixed) if "we refuse: pivots of matrices" not in m] == []
    assert len(mixed.checked) > 250


# --- What no sample reaches ---

X = ones(2, 3, 4)
INDEX = torch.tensor([0, 1])
CODES = ones(2, 3, 4, dtype=torch.int8)
IMAGE = ones(1, 2, 6, 6)


def _recurrent(gates: int) -> list[torch.Tensor]:
    shapes = [(gates * 5, 4), (gates * 5, 5), (gates * 5,), (gates * 5,)]
    return [ones(*s) for s in (*shapes, *shapes)]


SEQUENCE = ones(7, 2, 4)
STATE = ones(2, 2, 5)
VOLUME = ones(1, 2, 3, 4, 5)
WEIGHT = ones(3, 2, 3, 3)
F16, F64 = torch.float16, torch.float64
CONVOLUTION = (None, [2, 1], [1, 1], [1, 2], False, [0, 0], 1)
SPECIAL = (
    "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "digamma", "erf_inv", "erfcx",
    "frexp", "lgamma", "ndtri", "spherical_bessel_j0",
)  # fmt: skip
CASES: list[tuple[str, tuple[Any, ...]]] = [
    *((f"prims.{name}", (X,)) for name in SPECIAL), ("prims.nextafter", (X, X)), ("prims.zeta", (X + 1, X)),
    ("prims.igamma", (X + 1, X)), ("prims.igammac", (X + 1, X)),
    ("prims.as_strided_scatter", (X, ones(2), [2], [1], 3)), ("aten.embedding_renorm", (ones(4, 3), INDEX, 1.0, 2.0)),
    ("aten.resize_as", (X, ones(4, 6))), ("aten.searchsorted.Scalar", (ones(3), 1)),
    ("aten.row_stack", ([ones(3), ones(2, 3)],)), ("aten.__interpolate", (IMAGE, 9)),
    ("aten.__interpolate", (IMAGE, None, 1.7)), ("aten.moveaxis.intlist", (IMAGE, [0, 1], [3, 0])),
    ("aten.__interpolate.scale_list", (IMAGE, None, [1.5, 2.0])), ("aten.__interpolate.size_list", (IMAGE, [3, 9])),
    ("aten.__interpolate.size_list_scale_list", (IMAGE, [3, 9])),
    ("aten._upsample_bilinear2d_aa.vec", (IMAGE, None, False, [1.5, 2.0])),
    ("aten._upsample_bicubic2d_aa.vec", (IMAGE, None, False, [1.5, 2.0])),
    ("aten._autocast_to_full_precision", (X, False, False)),
    ("aten._autocast_to_reduced_precision", (X, False, False, F16, F16)),
    ("aten._convolution", (IMAGE, WEIGHT, *CONVOLUTION, False, False, False, False)),
    ("aten._convolution.deprecated", (IMAGE, WEIGHT, *CONVOLUTION, False, False, False)),
    ("aten.convolution", (IMAGE, ones(2, 3, 3, 3), None, [2, 1], [1, 0], [1, 2], True, [1, 0], 1)),
    *[("aten.conv2d.padding", (IMAGE, WEIGHT, None, [1, 1], p)) for p in ("same", "valid")],
    ("aten.convolution_backward",
     (ones(2, 4, 5), ones(2, 3, 7), ones(4, 3, 3), [4], [1], [0], [1], False, [0], 1, [True] * 3)),
    ("aten.conv_tbc", (ones(5, 2, 3), ones(3, 3, 4), ones(4), 1)),
    ("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams", (X, ones(1), INDEX[:1].int(), INDEX[1:], 0, 9)),
    ("aten.fake_quantize_per_channel_affine", (X, ones(3), torch.zeros(3), 1, 0, 9)),
    ("aten.fake_quantize_per_channel_affine_cachemask", (X, ones(3), torch.zeros(3), 1, 0, 9)),
    ("aten.fake_quantize_per_tensor_affine", (X, 0.5, 0, 0, 9)),
    ("aten.fake_quantize_per_tensor_affine.tensor_qparams", (X, ones(1), INDEX[:1].int(), 0, 9)),
    ("aten.fake_quantize_per_tensor_affine_cachemask", (X, 0.5, 0, 0, 9)),
    ("aten._index_put_impl", (X, [INDEX], ones(2, 3, 4))), ("aten._unsafe_index_put", (X, [None, INDEX], ones())),
    ("aten._unsafe_index.Tensor", (X, [None, INDEX])), ("aten._unsafe_index.Tensor", (X, [INDEX, None, INDEX])),
    ("aten.index.Tensor", (X, [None, ones(3, 4, dtype=torch.bool)])), ("aten.index.Tensor_hacked_twin", (X, [INDEX])),
    ("aten.index_put.hacked_twin", (X, [INDEX], ones(2, 3, 4))),
    ("aten._unsafe_index_put.hacked_twin", (X, [INDEX], ones(2, 3, 4))),
    ("aten._int_mm", (ones(32, 16, dtype=torch.int8), ones(16, 8, dtype=torch.int8))),
    ("aten._scaled_mm", (ones(32, 16).to(F8), ones(16, 16).to(F8).t(), ones(), ones(), None, None, torch.half)),
    ("aten._scaled_mm", (ones(32, 16).to(F8), ones(16, 16).to(F8).t(), ones(32, 1), ones(1, 16))),
    ("aten._weight_int8pack_mm", (ones(4, 32), ones(16, 32, dtype=torch.int8), ones(16))),
    ("aten._fake_quantize_learnable_per_tensor_affine", (X, ones(1), torch.zeros(1), 0, 9)),
    ("aten._fake_quantize_learnable_per_channel_affine", (X, ones(3), torch.zeros(3), 1, 0, 9)),
    ("aten._log_softmax_backward_data", (X, X, 1, torch.float32)),
    ("aten._native_batch_norm_legit.no_stats", (IMAGE, None, None, True, 0.1, 1e-5)),
    ("aten._native_batch_norm_legit_functional", (IMAGE, None, None, ones(2), ones(2), True, 0.1, 1e-5)),
    ("aten._native_batch_norm_legit_no_training", (IMAGE, None, None, ones(2), ones(2), 0.1, 1e-5)),
    ("aten.native_batch_norm", (IMAGE, None, None, ones(2), ones(2), False, 0.1, 1e-5)),
    ("aten._reshape_alias", (X, [6, 4], [4, 1])), ("aten._reshape_alias_copy", (X, [6, 4], [4, 1])),
    ("aten._reshape_copy", (X, [-1, 4])), ("aten._upsample_bicubic2d_aa", (IMAGE, [3, 9], False)),
    ("aten.upsample_nearest3d", (VOLUME, [2, 3, 4])), ("aten.upsample_nearest3d.vec", (VOLUME, None, [2.0, 1.5, 1.0])),
    ("aten._upsample_nearest_exact3d", (VOLUME, [2, 3, 4])),
    ("aten._upsample_nearest_exact3d.vec", (VOLUME, None, [2.0, 1.5, 1.0])),
    ("aten.reflection_pad3d", (VOLUME, [1, 2, 0, 1, 1, 1])), ("aten.replication_pad3d", (VOLUME, [1, 2, 0, 1, 1, 1])),
    ("aten.col2im", (ones(1, 8, 25), [6, 6], [2, 2], [1, 1], [0, 0], [1, 1])),
    ("aten.bernoulli.p", (X, 0.5)), ("aten.random.to", (X, 9)), ("aten.normal_functional", (X, 1.0, 2.0)),
    *[(f"aten.{f}", (X, 0.5)) for f in ("cauchy", "geometric", "log_normal")],
    ("aten.normal.float_Tensor", (1.0, X)), ("aten.rrelu_with_noise_functional", (X, X, 0.1, 0.3, True)),
    ("aten.bucketize.Scalar", (2.5, ones(3))), ("aten.random.from", (X, 0, 9)),
    ("aten.clip.Tensor", (X, ones(4, dtype=F64), None)), ("aten.concat", ([X, X], 1)),
    ("aten.concatenate", ([X, ones(2, 1, 4, dtype=F64)], -2)), ("aten.det", (ones(2, 3, 3),)),
    ("aten.inverse", (torch.eye(3),)), ("aten.linalg_matmul", (X, ones(4, 5))), ("aten.ger", (ones(2), ones(3))),
    *[("aten.elu_backward", (X, 1, 1, 1, False, ones(2, 3, 4, dtype=d))) for d in (F64, torch.float32)],
    *[("aten.hardtanh_backward", (X, X, 0, 1)), ("aten.leaky_relu_backward", (X, ones(3, 4), 0.1, False))],
    *[("aten.hardshrink_backward", (X, X, 0.2)), ("aten.softshrink_backward", (X, X, 0.2))],
    *[("aten.softplus_backward", (X, X, 1, 20)), ("aten.threshold_backward", (X, X, 0)),
    ("aten.log_sigmoid_backward", (X, X, X))],
    ("aten.embedding_dense_backward", (ones(2, 4), INDEX, 9, -1, False)), ("aten.mse_loss_backward", (X, X, X, 0)),
    ("aten.nll_loss_backward", (ones(), ones(2, 3), INDEX, None, 1, -100, ones())),
    ("aten.nll_loss2d_backward", (ones(), ones(1, 3, 2, 2), torch.zeros(1, 2, 2).long(), None, 1, -100, ones())),
    *[(f"aten.{loss}", (ones(2, 3), ones(2, 3, dtype=F64), 0)) for loss in ("huber_loss", "soft_margin_loss")],
    ("aten.frobenius_norm.dim", (X, [0, 1], True)), ("aten.special_logsumexp", (X, [0])),
    ("aten.lstm.input", (SEQUENCE, [STATE, STATE], _recurrent(4), True, 1, 0.0, False, True, False)),
    ("aten.gru.input", (SEQUENCE, STATE, _recurrent(3), True, 1, 0.0, False, True, False)),
    *[(f"aten.rnn_{f}.input", (SEQUENCE, STATE, _recurrent(1), True, 1, 0.0, False, True, False))
      for f in ("tanh", "relu")],
    ("aten.lstm_cell", (ones(2, 4), [ones(2, 5), ones(2, 5)], ones(20, 4), ones(20, 5))),
    ("aten.gru_cell", (ones(2, 4), ones(2, 5), ones(15, 4), ones(15, 5))),
    *[(f"aten.rnn_{f}_cell", (ones(2, 4), ones(2, 5), ones(5, 4), ones(5, 5))) for f in ("tanh", "relu")],
    *[(f"aten.{w}_window", (9,)) for w in ("bartlett", "blackman", "hamming", "kaiser")],
    *[(f"aten.{w}_window.periodic", (9, True)) for w in ("bartlett", "blackman", "hamming", "kaiser")],
    ("aten.hamming_window.periodic_alpha", (9, True, 0.5)), ("aten.kaiser_window.beta", (9, False, 5.0)),
    ("aten.hamming_window.periodic_alpha_beta", (9, True, 0.5, 0.5)), ("aten.fft_fftfreq", (7, 0.5)),
    ("aten.fft_rfftfreq", (7, 0.5)), ("aten.range", (1, 4)), ("aten.range.step", (5, 1, -2)),
    ("aten.hann_window.periodic", (9, True)), ("aten.randperm", (9,)), ("aten.meshgrid", ([ones(2), ones(3)],)),
    ("aten.moveaxis.int", (X, 0, -1)), ("aten.movedim.int", (X, 2, 0)), ("aten.native_dropout", (X, 0.5, True)),
    ("aten.scatter.value", (X, 1, torch.zeros(1, 1, 1).long(), 2)), ("aten.select_copy.int", (X, 1, 2)),
    ("aten.swapaxes", (X, 0, 2)), ("aten.swapdims", (X, 0, 2)), ("aten.split.sizes", (X, [1, 2], 1)),
    ("aten.split_copy.Tensor", (X, 2, 2)), ("aten.split.Tensor", (X, 3, 2)),
    ("aten.unsafe_split_with_sizes", (X, [1, 2], 1)), ("aten.squeeze_copy.dims", (ones(2, 1, 1), [0, 1])),
    ("aten.resize", (X, [3, 3])), ("aten.size.int", (X, -1)), ("aten.sym_size.int", (X, 0)),
    ("aten.tensor.bool", (True,)),
    ("aten.tensor.float", (1.5,)), ("aten.tensor.int", (2,)), ("aten.tensor.complex", (2j,)),
    *[("prim.NumToTensor.Scalar", (v,)) for v in (1, 1.5)], ("prim.NumToTensor.bool", (True,)),
    *[("aten.to.prim_Device", (X, None, d)) for d in (None, 4)], *[("aten.to.prim_dtype", (X, d)) for d in (None, 4)],
    ("aten.unique_dim", (X, 1)), *[("aten.view.dtype", (X, d)) for d in (F16, F64, torch.int32)],
    ("aten.view_copy.dtype", (X, F64)), ("aten.view_as_complex_copy", (ones(3, 2),)),
    *[("aten.where.Scalar", (ones(3, dtype=torch.bool), a, b)) for a in (1, 1.5, True) for b in (2, True)],
    ("aten.where.ScalarOther", (ones(3, dtype=torch.bool), ones(2, 1, dtype=F16), 2.5)),
    ("prim.dtype", (ones(2, dtype=F64),)), ("prims.collapse", (X, 0, 1)),
    ("prims.convert_element_type", (X, F64)), ("prims.prod", (X, [0, 2])), ("prims.split_dim", (X, 2, 2)),
    ("prims.sqrt", (X,)), ("prims.squeeze", (ones(2, 1, 3), [1])), ("prims.sum", (X, [1])),
    ("prims.var", (X, [1], 1.0)), ("prims.view_of", (X,)),
    ("quantized_decomposed.dequantize_per_channel", (CODES, ones(3), torch.zeros(3).long(), 1, -128, 127, torch.int8)),
    (
        "quantized_decomposed.dequantize_per_channel_group",
        (CODES[0], ones(6), torch.zeros(6).long(), -128, 127, torch.int8, 2, F16),
    ),
    ("quantized_decomposed.dequantize_per_tensor", (CODES, 0.5, 0, -128, 127, torch.int8)),
    ("quantized_decomposed.quantize_per_channel", (X, ones(3), torch.zeros(3).long(), 1, -128, 127, torch.int8)),
    (
        "quantized_decomposed.quantize_per_channel_group",
        (X[0], ones(6), torch.zeros(6).long(), -128, 127, torch.int8, 2),
    ),
    ("quantized_decomposed.quantize_per_tensor", (X, 0.5, 0, 0, 255, torch.uint8)),
]  # fmt: skip
KEYWORDS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("aten.div.Scalar_mode", (X, 2), {"rounding_mode": "floor"}),
    ("aten.divide.Scalar_mode", (X, 2), {"rounding_mode": "floor"}),
    ("aten.divide.Tensor_mode", (X, X), {"rounding_mode": "floor"}),
    ("aten.norm.ScalarOpt_dim_dtype", (X, 2, [1], False), {"dtype": F64}),
    ("aten.norm.ScalarOpt_dtype", (X, 2), {"dtype": F64}),
    ("aten.rand.generator", ([2, 3],), {"generator": None}),
    ("aten.randn.generator", ([2, 3],), {"generator": None}),
    *[(f"aten.{f}_like.generator", (X,), {"generator": None}) for f in ("rand", "randn")],
    ("aten.randint.generator", (9, [2, 3]), {"generator": None}),
    ("aten.randint.low_generator", (3, 9, [2, 3]), {"generator": None}),
    ("aten.randint_like.generator", (X, 9), {"generator": None}),
    ("aten.randint_like.low_generator_dtype", (X, 3, 9), {"generator": None}),
    ("aten.randperm.generator", (9,), {"generator": None}),
    *[
        (f"prims.{f}", ([2, 3],), {**names, "dtype": F64, "device": torch.device("cpu"), **more})
        for f, names, more in (
            ("normal", {"mean": 0.0, "std": 1.0}, {"requires_grad": False}),
            ("uniform", {"low": 0.0, "high": 1.0}, {"stride": [3, 1]}),
        )
    ],
    ("aten.normal.float_float", (1.0, 2.0, [2, 3]), {"dtype": F64}),
    ("aten.scatter.value_reduce", (X, 1, torch.zeros(1, 1, 1).long(), 2), {"reduce": "add"}),
    (
        "prims.iota",
        (5,),
        {"start": 1, "step": 2, "dtype": torch.int32, "device": torch.device("cpu"), "requires_grad": False},
    ),
]
FAR = torch.empty(4, 3, device="meta")
COLLECTIVES: list[tuple[str, tuple[Any, ...]]] = [
    ("all_reduce", (FAR, "sum", "0")),
    ("all_reduce_coalesced", ([FAR, FAR[0]], "sum", "0")),
    ("all_gather_into_tensor", (FAR, 2, "0")),
    ("all_gather_into_tensor_coalesced", ([FAR, FAR[0]], 2, "0")),
    ("reduce_scatter_tensor", (FAR, "sum", 2, "0")),
    ("reduce_scatter_tensor_coalesced", ([FAR, FAR.bool()], "sum", 2, "0")),
    ("all_to_all_single", (FAR, [3, 2], [1, 3], "0")),
    ("broadcast", (FAR, 0, "0")),
    ("wait_tensor", (FAR,)),
]
"""Calls of `torch.distributed`'s functional collectives, whose meta kernels need no group of processes."""
_KERNELS = "the shapes of some of its results differ from kernel to kernel"
PYTORCH_SAYS = {
    "aten._embedding_bag": _KERNELS,
    "aten._embedding_bag_forward_only": _KERNELS,
    "aten._grouped_mm": "takes memory layouts that types do not show",
    "aten._trilinear": "what F.bilinear is made of, in PyTorch only",
    "aten.histogram.bin_ct": "frontends without PyTorch have histc",
    "aten.histogram.bins_tensor": "the same",
    "aten.segment_reduce": "the size may depend on the data",
    "transformers.grouped_mm_fallback": "an op of transformers, which the registry does not have",
}
"""Ops whose types only PyTorch knows, as it does wherever a program comes from it, and why."""
NO_KERNEL = {
    "aten.convolution_overrideable": "for other devices than the CPU",
    "aten.cuda": "for other devices than the CPU",
    "flambeau.constrain": "Flambeau's own",
    "flambeau.permute_tensor": "Flambeau's own",
    "flambeau.philox": "Flambeau's own",
    "flambeau.philox.pair": "Flambeau's own",
    "quantized_decomposed.choose_qparams.tensor": "not in the registry; tests/lowering/tosa/test_quantized.py has it",
    "quantized_decomposed.choose_qparams_symmetric.tensor": "the same",
    "quantized_decomposed.dequantize_per_tensor.tensor": "the same",
    "quantized_decomposed.quantize_per_tensor.tensor": "the same",
    "valsem.aten.bernoulli.float": "torch-mlir's",
}
"""Ops that cannot be run here, and why."""


@pytest.fixture(scope="module")
def cases() -> Report:
    report = Report()
    collectives = [(f"_c10d_functional.{name}", args) for name, args in COLLECTIVES]
    for name, args, kwargs in [*((n, a, {}) for n, a in (*CASES, *collectives)), *KEYWORDS, *primitives()]:
        before = report.checked[name]
        check_call(report, name, *args, **kwargs)
        assert report.checked[name] == before + 1, name
    return report


def test_rules_agree_on_what_no_sample_reaches(cases: Report) -> None:
    assert spelt(cases) == []


def test_tensors_of_lists() -> None:
    @torch.jit.script
    def script():  # type: ignore[no-untyped-def]
        return torch.tensor([1, 2]), torch.tensor([[1.5], [2.5]]), torch.tensor([True])

    rule = rules().get("aten.tensor")
    assert rule is not None
    for tensor, values in zip(script(), ([1, 2], [[1.5], [2.5]], [True]), strict=True):
        assert rule(values, None, None, False) == Meta(tuple(tensor.shape), dtypes.from_torch(tensor.dtype))


# --- Numbers and strings ---

VALUES: dict[str, tuple[Any, ...]] = {
    "int": (7, -3, 1, -1),  # a remainder by zero ends the process in PyTorch
    "float": (2.5, -1.5, 0.5, 1.0),
    "bool": (True, False),
    "str": ("12", "2"),
    "Scalar": (7, -3, 2.5, 0.5),
}


def _is_scalar(name: str) -> bool:
    schema = registry.schema(name)
    return (
        schema is not None
        and bool(schema.returns)
        and all(a.type.base in KINDS for a in (*schema.arguments, *schema.returns))
    )


SCALARS = sorted(n for n in rules() if _is_scalar(n))


def _values(argument: Any) -> tuple[Any, ...]:
    values = VALUES[argument.type.base]
    return (list(values), list(values[:1])) if argument.type.is_list else values


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        # PyTorch computes some of its functions of Scalars in single precision.
        return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", SCALARS)
def test_rules_of_numbers_compute_what_torchscript_computes(name: str) -> None:
    schema, rule = registry.schema(name), rules().get(name)
    assert schema is not None
    assert rule is not None
    namespace, base, *overload = name.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), base), overload[0] if overload else "default")
    checked = 0
    for args in itertools.product(*(_values(a) for a in schema.arguments)):
        if "shift" in name and args[1] < 0:
            continue  # C++ leaves open what this is
        if base in ("center", "ljust", "rjust", "zfill") and args[1] < 0:
            continue  # PyTorch takes it for a very large width
        try:
            expected = op(*args)
        except (IndexError, RuntimeError, ValueError):
            with pytest.raises(InferenceError):
                rule(*args)
            continue
        try:
            result = rule(*args)
        except InferenceError as refused:
            if "there TorchScript does not do what Python does" in str(refused):
                continue
            # Python refuses where C++ gives a value that is no number.
            assert isinstance(expected, float)
            assert not math.isfinite(expected), args
            checked += 1
            continue
        if name == "aten.pow.int_to_int":
            expected = int(expected)  # PyTorch gives a float, against its schema
        assert _same(result, expected), (args, result, expected)
        checked += 1
        unknown = [Unknown(type(a)) if not isinstance(a, list) else a for a in args]
        answers, values = (v if isinstance(v, tuple) else (v,) for v in (rule(*unknown), expected))
        assert len(answers) == len(values)
        for answer, value in zip(answers, values):
            assert isinstance(answer, Unknown) or all(isinstance(a, list) for a in args)
            if isinstance(answer, Unknown):
                assert answer.kind is type(value), (args, answer)
    assert checked > 0


def test_numbers_that_cannot_be_computed_are_refused() -> None:
    for name, args in (("aten.floordiv.int", (1, 0)), ("aten.div", (1.0, 0)), ("aten.mul.int", (1 << 40, 1 << 40))):
        rule = rules().get(name)
        assert rule is not None
        with pytest.raises(InferenceError):
            rule(*args)


# --- What tensors and containers tell ---

M = Meta((2, None), dtypes.float32)


ANSWERS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten.dim", (M,), 2),
    ("aten.size.int", (M, 0), 2),
    ("aten.len.Tensor", (M,), 2),
    ("aten.is_floating_point", (M,), True),
    ("prim.dtype", (M,), 6),
    ("prim.layout", (M,), 0),
    ("prim.ListUnpack", ([M, 3],), (M, 3)),
    ("prim.TupleUnpack", ([M, 3],), (M, 3)),
    ("prim.TupleIndex", ([M, 3], 1), 3),
    ("prim.unchecked_cast", (M,), M),
    ("aten.__getitem__.t", ([1, M], -1), M),
    ("aten.len.t", ([1, M],), 2),
    ("aten.add.t", ([1], [M]), [1, M]),
    ("aten.mul.left_t", ([M], 2), [M, M]),
    ("aten.slice.t", ([1, 2, 3, 4], 1, None, 2), [2, 4]),
    ("aten.list.t", ([1, M],), [1, M]),
    ("aten.__is__", (M, None), False),
    ("aten.__is__", (None, None), True),
    ("aten.__isnot__", (3, None), True),
    ("aten._assert_scalar", (True, "text"), ()),
    ("aten.warn", ("text", 2), ()),
    ("aten.sym_constrain_range", (3, 0, None), ()),
    ("aten.sym_constrain_range_for_size", (3, 0, None), ()),
]


@pytest.mark.parametrize("name, args, expected", ANSWERS)
def test_known_answers(name: str, args: tuple[Any, ...], expected: Any) -> None:
    rule = rules().get(name)
    assert rule is not None
    assert rule(*args) == expected


@pytest.mark.parametrize(
    "name, args, kind",
    [
        ("aten.size.int", (M, 1), int),
        ("aten.size.int", (M, Unknown(int)), int),
        ("aten.numel", (M,), int),
        ("aten.item", (Meta((), dtypes.int32),), int),
        ("aten.item", (Meta((1,), dtypes.float16),), float),
        ("aten.Int.Tensor", (Meta((), dtypes.float32),), int),
        ("aten.Bool.Tensor", (Meta((), dtypes.float32),), bool),
        ("aten.__is__", (M, M), bool),
    ],
)
def test_answers_of_known_type(name: str, args: tuple[Any, ...], kind: type) -> None:
    rule = rules().get(name)
    assert rule is not None
    answer = rule(*args)
    assert isinstance(answer, Unknown)
    assert answer.kind is kind


def test_the_type_of_a_number_decides_only_where_it_matters() -> None:
    add = rules().get("aten.add.Scalar")
    assert add is not None
    assert add(M, Unknown(object), 1) == M
    with pytest.raises(InferenceError, match="int or a float"):
        add(Meta((2,), dtypes.int64), Unknown(object), 1)


# --- No rule is missing, none is untested ---


@pytest.mark.long
def test_all_rules_that_are_said_to_refuse_unknown_sizes_do(samples: Report, cases: Report) -> None:
    assert samples.refused | cases.refused == set(CANNOT_KNOW)


def test_every_op_that_something_downstream_takes_has_a_rule() -> None:
    needed = {*linalg_rules(), *SCALAR_RULES, *decompositions()}
    assert sorted(needed - set(rules())) == sorted(PYTORCH_SAYS)


@pytest.mark.long
def test_every_rule_is_compared_with_pytorch(samples: Report, mixed: Report, cases: Report) -> None:
    compared = {
        *samples.checked,
        *mixed.checked,
        *cases.checked,
        *SCALARS,
        "aten.tensor",
        *(name for name, _, _ in ANSWERS),
    }
    assert sorted(set(rules()) - compared) == sorted(NO_KERNEL)
