"""Which ops a frontend imports whole, and which PyTorch's own decompositions take apart on the way in.

This does not depend on what a target can do: the `raw` form of a program is the same whatever it is lowered to.
"""

from __future__ import annotations

from flambeau.infer.builder import rules

EXPANDED = frozenset(
    {
        "aten.__interpolate", "aten.__interpolate.scale_list", "aten.__interpolate.size_list",
        "aten.__interpolate.size_list_scale_list", "aten._assert_tensor_metadata", "aten._cast_Float",
        "aten._cast_Long", "aten._log_softmax_backward_data", "aten._reshape_alias_copy",
        "aten._shape_as_tensor", "aten._softmax_backward_data", "aten._unsafe_index_put.hacked_twin", "aten.allclose",
        "aten.argwhere", "aten.conv_tbc", "aten.cpu", "aten.cuda", "aten.data",
        "aten.elu_backward", "aten.embedding_dense_backward", "aten.equal",
        "aten.frobenius_norm.dim", "aten.gelu_backward", "aten.gru.input", "aten.gru_cell",
        "aten.hann_window.periodic", "aten.hardtanh_backward", "aten.i0", "aten.is_complex",
        "aten.is_floating_point", "aten.is_nonzero", "aten.isin.Tensor_Scalar", "aten.isin.Tensor_Tensor",
        "aten.isreal", "aten.lcm", "aten.leaky_relu_backward", "aten.len.Tensor", "aten.linalg_cross",
        "aten.linalg_norm",
        "aten.linspace.Scalar_Tensor", "aten.linspace.Tensor_Scalar", "aten.linspace.Tensor_Tensor",
        "aten.log_sigmoid_backward", "aten.log_sigmoid_forward", "aten.logspace", "aten.lstm.input", "aten.lstm_cell",
        "aten.mse_loss_backward", "aten.mvlgamma", "aten.narrow.Tensor", "aten.narrow_copy",
        "aten.native_dropout_backward", "aten.nll_loss2d_backward", "aten.nll_loss_backward", "aten.nonzero_numpy",
        "aten.polar", "aten.renorm", "aten.repeat_interleave.self_Tensor", "aten.rnn_relu.input",
        "aten.rnn_relu_cell", "aten.rnn_tanh.input", "aten.rnn_tanh_cell", "aten.rrelu_with_noise",
        "aten.sigmoid_backward", "aten.softplus_backward", "aten.special_bessel_j0", "aten.special_bessel_j1",
        "aten.special_entr", "aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.special_log_ndtr",
        "aten.split_copy.Tensor", "aten.sym_numel", "aten.sym_size",
        "aten.sym_size.int", "aten.tanh_backward", "aten.tensor.complex", "aten.tril_indices",
        "aten.triu_indices", "aten.unique_dim", "aten.view_copy.dtype", "aten.xlogy.Scalar_Self", "aten.zero",
        "prim.NumToTensor.bool", "prim.dtype", "prim.layout",
    }
)  # fmt: skip
"""Ops whose types we know, for TorchScript and the nn frontend, and which PyTorch takes apart where it is there."""


def is_whole(name: str) -> bool:
    """Tell whether an overload is imported whole: it has an inference rule and is not in the list of expanded ones."""
    return name in rules() and name not in EXPANDED
