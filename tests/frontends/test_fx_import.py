"""What the FX frontend promises: any program that torch.export gives runs as it does in eager PyTorch."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fx_support import Counter, load, matrix, ops_of, runs_like_eager, same_call
from support import Together, assert_same, check_all
from torch import Tensor, nn
from torch.export import Dim

import flambeau
from flambeau.ir.locations import frames_of, module_path, user_frame


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Constants


@pytest.mark.engine
def test_tensor_constants_are_literals() -> None:
    """S26: `lift_fresh_copy` of `torch.tensor([1, 2])` comes from the module that owns it."""
    module = flambeau.compile(lambda x: x + torch.tensor([1, 2]), (torch.ones(2),), output_type="raw")
    assert "torch.vtensor.literal(dense<[1, 2]> : tensor<2xsi64>)" in str(module)
    assert not module.weights
    runs_like_eager(lambda x: x + torch.tensor([1, 2]), torch.ones(2))


@pytest.mark.engine
def test_one_constant_used_twice() -> None:
    """S26: a shared get_attr is one literal."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2)
    first, second = graph.get_attr("c"), graph.get_attr("c")
    a = graph.call_function(torch.ops.aten.add.Tensor, (x, first))
    b = graph.call_function(torch.ops.aten.mul.Tensor, (a, second))
    for node in (a, b):
        node.meta["val"] = torch.empty(2)
    graph.output((b,))
    root = nn.Module()
    root.register_buffer("c", torch.tensor([3.0, 4.0]))
    module = flambeau.fx.stateless_fx_import(torch.fx.GraphModule(root, graph), output_type="linalg-on-tensors")
    assert_same(load(module)(torch.tensor([1.0, 2.0])), (torch.tensor([12.0, 24.0]),))


EXACT = {
    "bfloat16": torch.tensor([1.5, -2.0, 0.1], dtype=torch.bfloat16),
    "float16": torch.tensor([1.5, 65504.0, 6e-8], dtype=torch.float16),
    "float64": torch.tensor([0.1, 1e300], dtype=torch.float64),
    "complex64": torch.tensor([1 + 2j, -0.5j], dtype=torch.complex64),
    "uint8": torch.tensor([0, 127, 200, 255], dtype=torch.uint8),
    "int8": torch.tensor([-128, 127], dtype=torch.int8),
    "int16": torch.tensor([-32768, 5], dtype=torch.int16),
    "int64": torch.tensor([-(1 << 63), (1 << 63) - 1]),
    "bool": torch.tensor([True, False, True]),
    "bool of one value": torch.tensor([True, True, True]),
    "empty": torch.empty(0, 3),
    "empty int": torch.empty(2, 0, dtype=torch.int64),
    "nan and inf": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
    "0-d": torch.tensor(2.5),
    "0-d bool": torch.tensor(False),
    "0-d int": torch.tensor(7),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "large": torch.arange(500.0),
    "large strided": torch.arange(2000.0).reshape(40, 50).t()[::2],
    "large bfloat16": torch.arange(500.0).bfloat16(),
    "large bool": torch.arange(500) % 3 == 0,
}


@pytest.mark.engine
def test_constants_of_all_kinds_are_exact() -> None:
    """S27, S28: the bits of a constant arrive as they are, for every dtype."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, tensor in enumerate(EXACT.values()):
                self.register_buffer(f"c{i}", tensor, persistent=i % 2 == 0)

        def forward(self) -> list[Tensor]:
            return [getattr(self, f"c{i}").clone() for i in range(len(EXACT))]

    actual = load(flambeau.compile(Constants(), ()))()
    for (name, expected), result in zip(EXACT.items(), actual, strict=True):
        assert result.dtype == expected.dtype, name
        assert result.shape == expected.shape, name
        bits = [t.contiguous().flatten().view(torch.uint8) if t.numel() else t for t in (result, expected)]
        assert torch.equal(*bits), name


def test_literals_in_the_text() -> None:
    """S27, S28: what the torch dialect shows for constants of each dtype."""

    def program() -> tuple[Tensor, ...]:
        return (
            torch.tensor([1.5, 2.0], dtype=torch.bfloat16),
            torch.tensor([1 + 2j]),
            torch.tensor([1e200 - 0.5j], dtype=torch.complex128),
            torch.tensor([200], dtype=torch.uint8),
            torch.tensor([True, False]),
        )

    text = str(flambeau.compile(program, (), output_type="raw"))
    assert "torch.vtensor.literal(dense<[1.500000e+00, 2.000000e+00]> : tensor<2xbf16>)" in text
    assert "torch.vtensor.literal(dense<(1.000000e+00,2.000000e+00)> : tensor<1xcomplex<f32>>)" in text
    assert "torch.vtensor.literal(dense<(1.000000e+200,-5.000000e-01)> : tensor<1xcomplex<f64>>)" in text
    assert "torch.vtensor.literal(dense<200> : tensor<1xui8>)" in text
    assert "torch.vtensor.literal(dense<[true, false]> : tensor<2xi1>)" in text


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_constants_compute(dtype: torch.dtype) -> None:
    """S28: an add of a complex constant runs."""
    runs_like_eager(lambda x: x + torch.tensor([1 + 2j, -3j], dtype=dtype), torch.tensor([1j, 2.0], dtype=dtype))


@pytest.mark.engine
def test_nan_and_infinite_numbers() -> None:
    """S2: fills with -inf, as a number and as a tensor, are exact."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.full((2, 2), float("-inf")),
            torch.full((2, 2), torch.tensor(float("-inf"))),
            x.masked_fill(x > 0, float("nan")),
            x * float("inf"),
        )

    runs_like_eager(program, torch.tensor([1.0, -1.0]))


@pytest.mark.engine
def test_lift_is_the_identity() -> None:
    """S29."""
    runs_like_eager(lambda x: torch.ops.aten.lift(x) + 1, matrix())
    runs_like_eager(lambda x: torch.ops.aten.lift_fresh(x) + 1, matrix())


# Weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


@pytest.mark.engine
def test_tied_weights_are_one_resource() -> None:
    model = Tied()
    module = runs_like_eager(model, torch.tensor([[1, 2, 49]]))
    assert len(module.weights) == 1
    (weight,) = module.weights.values()
    assert weight.data_ptr() == model.head.weight.data_ptr()


def test_weights_are_not_copied() -> None:
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 2))
    module = flambeau.compile(model, (torch.ones(1, 40),))
    assert {w.data_ptr() for w in module.weights.values()} == {p.data_ptr() for p in model.parameters()}
    assert set(module.weights) == {"_0.weight", "_0.bias", "_1.weight", "_1.bias"}
    assert "dense_resource<_0.weight>" in str(module)


@pytest.mark.engine
def test_weights_that_are_views_of_one_storage() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            base = torch.randn(200, 10)
            self.register_buffer("first", base[:100])
            self.register_buffer("second", base[100:])
            self.register_buffer("turned", base.t())

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.first.t() + x @ self.second.t() + (x @ self.turned)[:, ::2]

    module = runs_like_eager(Views(), torch.randn(2, 10))
    assert len(module.weights) == 3


@pytest.mark.engine
def test_non_persistent_buffers() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("ids", torch.arange(300).expand(1, -1), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.ids[:, : x.shape[1]]

    runs_like_eager(Positions(), torch.zeros(2, 5))


# Structure of arguments and results

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Sample:
    data: Tensor
    mask: Tensor


torch.export.register_dataclass(Sample, serialized_type_name="flambeau.tests.Sample")


@pytest.mark.engine
def test_lists_tuples_and_dicts() -> None:
    def program(xs: list[Tensor], ys: tuple[Tensor, dict[str, Tensor]]) -> dict[str, Any]:
        return {"sum": xs[0] + xs[1], "nested": [(ys[0],), {"k": ys[1]["b"] * 2}]}

    runs_like_eager(program, [torch.ones(2), torch.ones(2)], (torch.zeros(3), {"b": torch.ones(1)}))


@pytest.mark.engine
def test_dict_keys_in_another_order() -> None:
    module = flambeau.compile(lambda d: d["a"] - d["b"], ({"a": torch.ones(2), "b": torch.zeros(2)},))
    assert_same(load(module)({"b": torch.ones(2), "a": torch.full((2,), 3.0)}), torch.full((2,), 2.0))


@pytest.mark.engine
def test_named_tuples() -> None:
    runs_like_eager(lambda p: Pair(p.left + 1, p.right * 2), Pair(torch.ones(2), torch.ones(3)))


@pytest.mark.engine
def test_dataclasses() -> None:
    def program(s: Sample) -> Sample:
        return Sample(s.data * s.mask, ~s.mask)

    runs_like_eager(program, Sample(torch.randn(4), torch.tensor([True, False, True, True])))


class Options(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        return x * scale if shift is None else x * scale + shift


@pytest.mark.engine
def test_keyword_arguments() -> None:
    runs_like_eager(Options(), torch.ones(3), scale=torch.tensor(2.0))
    runs_like_eager(Options(), torch.ones(3), shift=torch.ones(3), scale=torch.tensor(2.0))


@pytest.mark.engine
def test_none_results() -> None:
    """S34: None keeps its place in the result."""

    def program(x: Tensor) -> tuple[Any, ...]:
        return None, x + 1, {"cache": None}

    runs_like_eager(program, matrix())


@pytest.mark.engine
def test_constant_results() -> None:
    runs_like_eager(lambda x: (x, 3, "name", 2.5, True), matrix())


@pytest.mark.engine
def test_no_results_and_no_arguments() -> None:
    runs_like_eager(lambda: torch.ones(2, 3))


@pytest.mark.engine
def test_constant_arguments_are_baked_in() -> None:
    def program(x: Tensor, n: int, flag: bool, name: str) -> Tensor:
        return x + n if flag and name == "plus" else x - n

    runs_like_eager(program, matrix(), 3, True, "plus")


@pytest.mark.engine
def test_arguments_that_are_not_used() -> None:
    runs_like_eager(lambda x, y, z: x + z, matrix(), torch.ones(7), matrix())


# Symbolic sizes

ROWS = ({0: Dim("rows", min=1, max=64)},)
BOTH = ({0: Dim("rows", min=1, max=64), 1: Dim("columns", min=1, max=64)},)


def size_arithmetic(x: Tensor) -> Tensor:
    rows, columns = x.shape
    return x.reshape(rows * columns // 2, 2) * (rows + 1) - columns % 3


def arange_of_size(x: Tensor) -> Tensor:
    """S1: `torch.arange(x.size(-1))`."""
    return torch.arange(x.size(-1)) + x


def ones_of_size(x: Tensor) -> Tensor:
    return torch.ones(x.shape[0], x.shape[1] * 2) * x.shape[0]


def float_of_size(x: Tensor) -> Tensor:
    return x / (x.shape[0] / 3.0) + x.shape[1] * 0.5


def root_of_size(x: Tensor) -> Tensor:
    return x / x.shape[1] ** 0.5


def head_view(x: Tensor) -> Tensor:
    """S10: view, transpose, contiguous with sizes that come from `size()`."""
    b, t = x.size()
    return x.view(b, t // 2, 2).transpose(1, 2).contiguous().view(b, -1)


def mask_expand(x: Tensor) -> Tensor:
    """S8: None-indexing and expand."""
    b, t = x.size()
    return x[:, None, None, :].expand(b, 1, 3, t)


def causal_mask(x: Tensor) -> Tensor:
    """S9: the causal mask of OPT's first implementation."""
    t = x.size(1)
    mask = torch.full((t, t), torch.tensor(torch.finfo(x.dtype).min))
    condition = torch.arange(mask.size(-1))
    mask.masked_fill_(condition < (condition + 1).view(mask.size(-1), 1), 0)
    return mask.to(x.dtype)[None, None, :, :].expand(x.size(0), 1, t, t)


def expand_mask(x: Tensor) -> Tensor:
    """S5: the four lines of OPT's padding mask."""
    b, t = x.size()
    expanded = (x > 0)[:, None, None, :].expand(b, 1, t, t).to(torch.float32)
    inverted = 1.0 - expanded
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(torch.float32).min)


def slices_by_size(x: Tensor) -> Tensor:
    half = x.shape[1] // 2
    return torch.cat([-x[:, half:], x[:, :half]], dim=-1)


def maximum_of_sizes(x: Tensor) -> Tensor:
    return x.new_zeros(torch.sym_max(x.shape[0], x.shape[1]))


SIZES = [
    size_arithmetic, arange_of_size, ones_of_size, float_of_size,
    root_of_size, head_view, mask_expand, causal_mask, expand_mask,
    slices_by_size, maximum_of_sizes,
]  # fmt: skip


EVEN = ({0: Dim("rows", min=1, max=64), 1: 2 * Dim("half", min=1, max=64)},)
OF_SIZES = Together(
    {f.__name__: partial(flambeau.compile, f, (torch.zeros(3, 4),), dynamic_shapes=EVEN) for f in SIZES}
)


@pytest.mark.engine
@pytest.mark.parametrize("function", SIZES, ids=lambda f: f.__name__)
def test_sizes_in_the_program(function: Callable[[Tensor], Tensor]) -> None:
    """S1, S5, S7-S10: sizes are symbols of the program, and one compilation serves all of them."""
    run = OF_SIZES[function.__name__]
    for shape in ((3, 4), (5, 10)):
        x = torch.randn(shape)
        assert_same(run(x), function(x), function.__name__)


@pytest.mark.engine
def test_integer_results() -> None:
    """S94: sizes are returned as Python ints."""
    module = flambeau.compile(lambda x: (x.shape[0] * 2, x.numel() + 1, x + 1), (matrix(),), dynamic_shapes=BOTH)
    assert "-> (i64, i64, tensor<?x?xf32>)" in str(module)
    run = load(module)
    for shape in ((3, 4), (5, 2)):
        doubled, numel, _ = run(torch.zeros(shape))
        assert (doubled, numel) == (2 * shape[0], shape[0] * shape[1] + 1)
        assert type(doubled) is int


@pytest.mark.engine
def test_number_arguments_can_vary() -> None:
    """S94: an int argument that is dynamic is an i64 of the function."""
    shapes = ({0: Dim.DYNAMIC}, Dim.DYNAMIC)
    module = flambeau.compile(lambda x, n: x * n, (torch.ones(3), 5), dynamic_shapes=shapes)
    assert "i64" in str(module).split("->")[0]
    assert_same(load(module)(torch.ones(4), 7), torch.full((4,), 7.0))


def test_symbols_bind_the_shapes_of_the_torch_dialect() -> None:
    text = str(flambeau.compile(lambda x: x.t(), (matrix(),), dynamic_shapes=ROWS, output_type="torch"))
    assert "torch.symbolic_int" in text
    assert "torch.bind_symbolic_shape" in text
    assert "!torch.vtensor<[?,4],f32>" in text


# Ops that PyTorch's decompositions cover


def image() -> Tensor:
    return torch.randn(1, 4, 4, 4)


DECOMPOSED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "cosine_similarity": (F.cosine_similarity, lambda: (torch.randn(3, 4), torch.randn(3, 4))),
    "huber_loss": (F.huber_loss, lambda: (torch.randn(5), torch.randn(5))),
    "smooth_l1_loss": (F.smooth_l1_loss, lambda: (torch.randn(5), torch.randn(5))),
    "mse_loss": (F.mse_loss, lambda: (torch.randn(5), torch.randn(5))),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), lambda: (image(),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), lambda: (image(),)),
    "logaddexp": (torch.logaddexp, lambda: (torch.randn(4), torch.randn(4))),
    "cross_entropy": (F.cross_entropy, lambda: (torch.randn(3, 5), torch.tensor([0, 4, 2]))),
    "cross_entropy with smoothing": (
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), lambda: (torch.randn(3, 5), torch.tensor([0, 4, 2]))
    ),
    "nll_loss": (
        lambda x, y: F.nll_loss(x, y, ignore_index=2), lambda: (torch.randn(3, 5), torch.tensor([0, 4, 2]))
    ),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), lambda: (torch.randn(3, 5), torch.rand(3, 5))),
    "binary_cross_entropy_with_logits": (
        F.binary_cross_entropy_with_logits, lambda: (torch.randn(4), torch.tensor([0.0, 1, 1, 0]))
    ),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False), lambda: (image(), torch.rand(1, 3, 3, 2) * 2 - 1)
    ),
    "isclose": (torch.isclose, lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.0 + 1e-9, 2.1]))),
    "normalize": (F.normalize, lambda: (torch.randn(3, 4),)),
    "kron": (torch.kron, lambda: (torch.randn(2, 2), torch.randn(2, 3))),
    "trace": (torch.trace, lambda: (torch.randn(3, 3),)),
    "tril_indices": (lambda x: x[torch.tril_indices(3, 3)[0]], lambda: (torch.randn(3, 2),)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=2), lambda: (torch.randn(3),) * 3),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), lambda: (torch.randn(3), torch.randn(3))),
    "outer": (torch.outer, lambda: (torch.randn(3), torch.randn(4))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), lambda: (torch.randn(2, 3, 4), torch.randn(2, 5, 4))),
    "unfold": (lambda x: F.unfold(x, 2), lambda: (image(),)),
    "channel_shuffle": (lambda x: torch.channel_shuffle(x, 2), lambda: (image(),)),
    "glu": (F.glu, lambda: (torch.randn(2, 6),)),
    "hypot and heaviside": (
        lambda a, b: (torch.hypot(a, b), torch.heaviside(a, b)), lambda: (torch.randn(4), torch.randn(4))
    ),
    "block_diag": (torch.block_diag, lambda: (torch.randn(2, 2), torch.randn(1, 3))),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), lambda: (torch.randn(3, 4),)),
}  # fmt: skip


def decomposed(name: str) -> flambeau.Module:
    function, inputs = DECOMPOSED[name]
    return flambeau.compile(lambda *args: function(*args), inputs())


ON_IREE = Together({name: partial(decomposed, name) for name in DECOMPOSED})


@pytest.mark.engine
@pytest.mark.parametrize("name", DECOMPOSED)
def test_ops_that_pytorch_decomposes(name: str) -> None:
    function, inputs = DECOMPOSED[name]
    same_call(ON_IREE[name], function, *inputs())


def test_an_expanded_op_keeps_the_location_of_its_call() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return torch.logaddexp(x, y)

    line = inspect.getsourcelines(program)[1] + 1
    module = flambeau.compile(program, (torch.ones(2), torch.ones(2)), output_type="torch")
    frames = [user_frame(op.location) for op in module.op.walk() if op.name.startswith("torch.aten.")]
    assert frames
    assert {(f.file, f.line) for f in frames if f} == {(__file__, line)}


# Pooling by its functional and its module: the seed's own programs


@pytest.mark.engine
def test_default_stride_of_pooling_is_the_kernel() -> None:
    """S21, S22, S23: an empty stride is an empty list of ints and means the kernel."""
    x = torch.randn(1, 2, 16, 16)
    raw = flambeau.compile(lambda x: F.avg_pool2d(x, 8), (x,), output_type="raw")
    assert "torch.prim.ListConstruct  : () -> !torch.list<int>" in str(raw) or "list<int>" in str(raw)
    runs_like_eager(lambda x: (F.max_pool2d(x, 8), F.avg_pool2d(x, 8)), x)


def test_pooling_modules_equal_functionals() -> None:
    """S24: nn.MaxPool2d gives the IR of F.max_pool2d."""
    x = torch.randn(1, 2, 8, 8)
    by_module = flambeau.compile(nn.MaxPool2d(2), (x,))
    by_function = flambeau.compile(lambda x: F.max_pool2d(x, 2), (x,))
    assert str(by_module).replace("%input", "%x") == str(by_function).replace("%args", "%x")


@pytest.mark.engine
def test_casts() -> None:
    """S3, S5, S6: `.to` of dtype, device, bool (NaN is True), and layout."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (
            x.to(torch.bool),
            x.to("cpu"),
            x.to(torch.float64),
            x.to(x.device, torch.int32),
            torch.ops.aten.to.dtype_layout(x, dtype=torch.float16, layout=torch.strided, device="cpu"),
        )

    runs_like_eager(program, torch.tensor([0.0, -0.0, 1.5, -3.0]))
    module = flambeau.compile(lambda x: x.to(torch.bool), (torch.ones(2),))
    assert load(module)(torch.tensor([float("nan"), 0.0])).tolist() == [True, False]


# Regions, functions, programs, graphs


@pytest.mark.engine
def test_no_grad_and_autocast_regions() -> None:
    """S52: the higher-order ops of these regions are inlined."""

    class Regions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                x = x @ x.t()
            with torch.enable_grad():
                return x + 1

    module = runs_like_eager(Regions(), matrix())
    assert len(module.weights) == 2


@pytest.mark.engine
def test_autocast_computes_in_bfloat16() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()

    runs_like_eager(program, torch.randn(4, 8).round())


@pytest.mark.engine
def test_writes_inside_a_region() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        with torch.no_grad():
            y[:, 0] = 1
            y.mul_(2)
        return y + 1

    runs_like_eager(program, matrix())


@pytest.mark.parametrize("output_type", ["raw", "torch", "linalg-on-tensors"])
def test_every_way_in_gives_the_same_program(output_type: str) -> None:
    """S52: a module, an ExportedProgram, `export_and_import` and a raw Module that is lowered further."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    x = matrix()
    program = torch.export.export(model, (x,))
    direct = flambeau.compile(model, (x,), output_type=output_type)
    assert direct.output_type == output_type
    direct.verify()
    others = [
        flambeau.compile(program, output_type=output_type),
        flambeau.fx.export_and_import(model, x, output_type=output_type),
        flambeau.fx.export_and_import(program, output_type=flambeau.OutputType.get(output_type)),
        flambeau.compile(flambeau.compile(model, (x,), output_type="raw"), output_type=output_type),
    ]
    assert [str(other) for other in others] == [str(direct)] * len(others)


@pytest.mark.engine
def test_functional_programs_of_run_decompositions() -> None:
    """A program whose mutations torch.export has made into results already."""
    model = Counter()
    program = torch.export.export(model, (matrix(),)).run_decompositions()
    eager = deepcopy(model)
    run = load(flambeau.compile(program))
    for _ in range(2):
        assert_same(run(matrix()), eager(matrix()))
    assert model.calls.item() == 2


@pytest.mark.engine
def test_graph_modules_of_make_fx() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    w = torch.randn(4, 4)
    graph = make_fx(lambda x: (torch.relu(x @ w), x.sum(1)))(matrix())
    module = flambeau.fx.stateless_fx_import(graph, output_type="linalg-on-tensors", model_name="graph")
    assert "@graph" in str(module)
    assert_same(load(module)(matrix()), [torch.relu(matrix() @ w), matrix().sum(1)])


@pytest.mark.engine
def test_graph_modules_with_symbolic_sizes() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: torch.softmax(x, -1) * x.shape[0], tracing_mode="symbolic")(matrix())
    run = load(flambeau.compile(graph))
    x = torch.randn(5, 3)
    assert_same(run(x), torch.softmax(x, -1) * 5)


def test_raw_and_backend_contract() -> None:
    """S52: `raw` keeps what PyTorch traced; `torch` is under the backend contract."""

    def program(x: Tensor) -> Tensor:
        y = x.clone()
        y[0] = 1
        return F.softmax(y, -1)

    raw = flambeau.compile(program, (matrix(),), output_type="raw")
    contract = flambeau.compile(program, (matrix(),), output_type="torch")
    assert "torch.aten.fill_" in str(raw) or "torch.aten.copy_" in str(raw)
    assert "!torch.tensor<" not in str(contract)
    assert not [name for name in ops_of(contract) if name.endswith("_") or "_." in name]
    raw.verify()
    contract.verify()


def test_the_function_has_the_name_that_was_asked_for() -> None:
    module = flambeau.fx.export_and_import(nn.ReLU(), matrix(), func_name="forward")
    assert "func.func @forward" in str(module)
    assert set(module.signatures) == {"forward"}


def test_printing_switches_of_the_torch_mlir_names(capsys: pytest.CaptureFixture[str]) -> None:
    flambeau.fx.export_and_import(nn.ReLU(), matrix(), enable_ir_printing=True)
    assert "torch.aten.relu" in capsys.readouterr().out


# Locations


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(Inner(), nn.ReLU())])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[0](x) + 1


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_an_op_knows_its_line_and_its_module(output_type: str) -> None:
    """S4: file, line, the chain of callers, and the path of the nn.Module."""
    module = flambeau.compile(Outer(), (matrix(),), output_type=output_type)
    by_name = {op.name: op.location for op in module.op.walk() if op.name.startswith("torch.aten.")}
    tanh = by_name["torch.aten.tanh"]
    frame = user_frame(tanh)
    assert frame is not None
    assert (frame.file, frame.line) == (__file__, inspect.getsourcelines(Inner)[1] + 2)
    assert frame.source == "return torch.tanh(x)"
    assert frame.function == "forward"
    assert module_path(tanh) == "blocks.0.0"
    caller = inspect.getsourcelines(Outer)[1] + 6
    assert (__file__, caller) in {(f.file, f.line) for f in frames_of(tanh)}
    assert module_path(by_name["torch.aten.relu"]) == "blocks.0.1"
    add = user_frame(by_name["torch.aten.add.Scalar"])
    assert add is not None
    assert add.line == caller


def test_locations_reach_the_last_lowering() -> None:
    """S4, S20: linalg ops carry the line, and the text shows it on request only."""
    module = flambeau.compile(Outer(), (matrix(),))
    line = inspect.getsourcelines(Inner)[1] + 2
    assert any((f := user_frame(op.location)) and f.line == line for op in module.op.walk())
    assert f'"{__file__}":{line}' in module.text(locations=True)
    assert __file__ not in module.text()


C = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
SQUARE, BATCH = torch.randn(3, 3, dtype=torch.complex64), torch.randn(2, 3, 3, dtype=torch.complex64)
COMPLEX_NUMBERS: list[tuple[Any, ...]] = [
    (lambda: torch.full((2, 3), 1 + 2j), ()),
    (lambda x: torch.full_like(x, 3j) + x.new_full((3,), 1 - 1j), (C,)),
    (lambda x: torch.constant_pad_nd(x, (1, 2), 1 + 2j), (C,)),
    (lambda x: x.index_fill(1, torch.tensor([0, 2]), 4j), (C,)),
    (lambda x: x.masked_fill(x.real > 2, 2j) * (1 + 1j) + 3j, (C,)),
    (lambda x, a: torch.addmm(x, x, a, beta=2j, alpha=1 + 1j), (C, SQUARE)),
    (lambda x, a: torch.addmv(a[0], a, x[0], beta=1j, alpha=2j), (C, SQUARE)),
    (lambda x, a: torch.addr(a, x[0], x[1], beta=0, alpha=2 + 1j), (C, SQUARE)),
    (
        lambda a, b: torch.baddbmm(b, b, b, beta=1j, alpha=0.5) + torch.addbmm(a, b, b, beta=2, alpha=1j),
        (SQUARE, BATCH),
    ),
    (lambda x: x**2j, (C,)),
    (lambda x: torch.fill(x, 2j) + torch.where(x.real > 2, x, 1j), (C,)),
]


@pytest.mark.engine
def test_complex_numbers_as_arguments() -> None:
    check_all(COMPLEX_NUMBERS, rtol=1e-4, atol=1e-4)
