"""What PyTorch leaves undefined, or does by accident: not asked for, each with its reason."""

from __future__ import annotations

import re

RANDOM_OR_EMPTY = re.compile(
    r"aten\.(rand\w*|bernoulli|multinomial|normal\w*|uniform|exponential|random|(?:\w+_)?dropout|native_dropout"
    r"|rrelu|empty\w*|new_empty\w*|resize\w*|data|valsem\b)(\.|$)"
)
"""Ops with contents that nobody can foretell: random numbers, memory that nobody has written."""

NO_TENSOR_RESULT = frozenset(
    {
        "aten.Bool.Tensor", "aten.Float.Tensor", "aten.FloatImplicit", "aten.Int.Tensor", "aten.IntImplicit",
        "aten.ScalarImplicit", "aten._local_scalar_dense", "aten.item", "aten.is_nonzero", "aten.equal",
        "aten.allclose", "aten.size", "aten.size.int", "aten.dim", "aten.numel", "aten.len.Tensor", "aten.is_complex",
        "aten.is_floating_point", "aten.sym_size", "aten.sym_size.int", "aten.sym_numel",
        "aten._assert_tensor_metadata",
    }
)  # fmt: skip
"""Ops that give numbers: tests of their own have them."""

NOT_CALLED_DIRECTLY = frozenset(
    {
        "aten.__interpolate", "aten.__interpolate.scale_list", "aten.__interpolate.size_list",
        "aten.__interpolate.size_list_scale_list", "aten.tensor", "aten.tensor.bool", "aten.tensor.complex",
        "aten.tensor.float", "aten.tensor.int", "aten.cuda", "aten.cpu", "aten.to.prim_Device", "aten.to.prim_dtype",
        "aten.index_put.hacked_twin", "aten._unsafe_index_put.hacked_twin", "aten.index.Tensor_hacked_twin",
        "aten.lift", "aten.lift_fresh", "aten._autocast_to_full_precision", "aten._autocast_to_reduced_precision",
        "aten._index_put_impl", "aten.convolution_overrideable", "aten.to.device", "aten.hash_tensor",
        "aten._reshape_alias", "aten._reshape_alias_copy", "aten._unsafe_masked_index",
    }
)  # fmt: skip
"""Ops of TorchScript and of PyTorch's own insides, which `torch.ops.aten` does not give or does not check."""

TIES = frozenset(
    {
        "argsort", "sort", "topk", "kthvalue", "median", "nanmedian", "mode", "max", "min", "argmax", "argmin",
        "cummax",
        "cummin", "aminmax", "unique_consecutive", "_unique2", "unique_dim", "max_pool1d_with_indices",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool1d", "adaptive_max_pool2d",
        "adaptive_max_pool3d",
    }
)  # fmt: skip
"""Which of several equal elements these name is not defined: their elements differ."""

ORDERED = frozenset({("topk", "sorted")})
"""Arguments without which the order of the results is not defined: they are true."""

CASTS = frozenset(
    {
        "to", "_to_copy", "type_as", "copy", "fill", "full", "full_like", "new_full", "arange", "linspace", "logspace",
        "_cast_Long", "_cast_Float", "scatter", "index_fill", "masked_fill", "where", "clamp", "clamp_min", "clamp_max",
        "clip", "sum", "prod", "cumsum", "cumprod", "nansum", "index_put", "scalar_tensor", "constant_pad_nd", "pad",
        "masked_scatter", "view", "bincount", "histc", "histogram", "one_hot", "mean", "scatter_reduce", "scatter_add",
        "index_add", "index_copy", "index_reduce", "slice_scatter", "select_scatter", "diagonal_scatter", "put",
    }
)  # fmt: skip
"""Floats become integers here: what does not fit is not defined in C++, so there is neither NaN nor anything large."""

IN_ORDER = frozenset(
    {
        "searchsorted",
        "bucketize",
        "histogram",
        "segment_reduce",
        "_segment_reduce",
        "_embedding_bag",
        "_embedding_bag_forward_only",
    }
)
"""These take numbers in order without looking: elements are not repeated."""

POLYNOMIALS = frozenset(
    f"special_{kind}_polynomial_{letter}"
    for kind, letters in {
        "chebyshev": "tuvw", "shifted_chebyshev": "tuvw", "hermite": ("h", "he"), "laguerre": "l", "legendre": "p",
    }.items()
    for letter in letters
)  # fmt: skip
"""Of NaN these give what happens to be in a variable that nothing was written to."""

NO_NAN = POLYNOMIALS | {"hardshrink_backward", "softshrink_backward", "scaled_dot_product_attention"}
"""Those, what gives for NaN one answer in whole vectors and another in the elements that are left, and attention, of
whose kernels one adds the causal mask and one does not look at what it hides."""

DISTINCT_ROWS = frozenset({"scatter", "index_put", "_unsafe_index_put", "index_copy", "put", "scatter_add"})
"""Which of two writes to one place wins is not defined: indices differ."""

NOT_OF_NOTHING = frozenset(
    {"_embedding_bag", "_embedding_bag_forward_only", "pixel_unshuffle", "scaled_dot_product_attention"}
)
"""PyTorch itself dies of indices that are in no bag, even beside a last offset, gives pixels back as they are where
there are none, and does not compare the sizes of what is empty in attention."""

NOT_FINITE = frozenset(
    {"native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm", "std_mean", "var_mean"}
    | {"layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "_upsample_bicubic2d_aa", "bilinear"}
)
"""Whether infinities give infinity or NaN here is a matter of the formula, and PyTorch has one for each kernel."""

MISSED_WINDOWS = frozenset(f"max_pool{n}d_with_indices" for n in (1, 2, 3))
"""PyTorch names any element, even one beyond the plane, where a dilated window misses the input; here it is -1."""

NO_LEAST = frozenset({"div", "divide", "floor_divide", "fmod", "remainder", "gcd", "lcm"})
"""PyTorch itself dies of the least integer divided by -1, with rounding_mode='trunc' and in lcm."""

IMPLEMENTATION = re.compile(
    r"not implemented|not supported|unsupported|only supports? |expected .* to be|could not create a primitive|"
    r"not support|does not support|must be (a )?float|expects? .*(float|dtype|type)|input dtype|type promotion|"
    r"should have the same dtype|same dtype|expected (scalar type|object)|dtype|scalar type|Unsupported|can't be cast|"
    r"Boolean|integral|floating|complex|expected a (long|int)|did not match|to have type|data type|"
    r"cannot be converted|view size is not compatible|last dimension with stride 1",
    re.IGNORECASE,
)
"""PyTorch has no kernel for a dtype or a mix of them. That is a gap and not a meaning: we may well have an answer."""

DEFECTS = re.compile(
    r"output with shape \[\] doesn't match the broadcast shape|input image .* smaller than kernel size|INTERNAL ASSERT|"
    r"failed to converge because the input matrix contained non-finite values"
)
"""PyTorch means to take it and fails: logsumexp over all dims, given as []; pools whose padding it forgets;
factors of what is not finite, which are NaN elsewhere."""


def is_gap(error: str) -> bool:
    """Whether PyTorch raises what it does not mean: then an answer is no mistake."""
    return bool(IMPLEMENTATION.search(error) or DEFECTS.search(error))


AVOIDED: dict[str, str] = {
    "aten._pdist_forward": "takes contiguous matrices without looking, and dies of others",
    "aten._fft_c2c": "takes dims that are in order, in range and distinct without looking, and dies of others",
    "aten._fft_r2c": "as _fft_c2c",
    "aten._fft_c2r": "as _fft_c2c",
    "aten._softmax_backward_data": "takes gradients of the shape and the dtype of the output without looking",
    "aten._log_softmax_backward_data": "as _softmax_backward_data",
    "aten._native_batch_norm_legit.no_stats": "dies where it is told not to train",
    "aten._embedding_bag": "reads indices that are not contiguous as if they were",
    "aten._embedding_bag_forward_only": "as _embedding_bag",
    "aten._upsample_bilinear2d_aa": "repeats the first row where the result is one column wide",
    "aten.histogram.bin_ct": "computes the edges of a range in an order of its own, which shows in what lies on one",
    "aten._trilinear": "adds in an order of its own, which infinities show",
}
"""What recipes do not ask for, since PyTorch is wrong there or ends the process."""
