"""Whole Helion kernels on IREE against PyTorch, with sizes that are multiples of the blocks and sizes that are not."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import Together, assert_same

import flambeau
from flambeau.dialects.context import parse_module
from flambeau.python_files import import_file

pytest.importorskip("helion", reason="Helion is not installed: pip install -c constraints.txt -e '.[helion]'")
pytestmark = [pytest.mark.helion, pytest.mark.engine]

from frontends.helion import kernels  # noqa: E402


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


def check(
    kernel: Any, args: tuple[Any, ...], expected: Any, tolerance: float = 1e-4, **options: Any
) -> flambeau.Module:
    """Compile a kernel, run it twice on IREE, compare with what PyTorch gives."""
    module = flambeau.helion.compile(kernel, args, **options)
    run = flambeau.load(module, profile="quick", device="local-sync")
    for _ in range(2):
        assert_same(run(*args), expected, kernel.fn.__name__, rtol=tolerance, atol=tolerance)
    return module


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


# --- Helion's kinds of kernels ---


@pytest.mark.engine
@pytest.mark.parametrize("m,n", [(32, 16), (20, 33), (1, 1), (16, 9)])
def test_vector_add(m: int, n: int) -> None:
    a, b = x(m, n), x(n)
    check(kernels.add, (a, b), a + b)


@pytest.mark.engine
@pytest.mark.parametrize("m,k,n", [(32, 64, 48), (40, 50, 33), (5, 3, 2), (17, 32, 16)])
def test_matmul(m: int, k: int, n: int) -> None:
    a, b = x(m, k), x(k, n)
    check(kernels.matmul, (a, b), a @ b)


@pytest.mark.engine
@pytest.mark.parametrize("dtype,tolerance", [(torch.float16, 1e-2), (torch.bfloat16, 1e-1)])
def test_matmul_of_16_bit_floats_adds_up_in_32(dtype: torch.dtype, tolerance: float) -> None:
    a, b = x(20, 40, dtype=dtype), x(40, 20, dtype=dtype)
    check(kernels.matmul, (a, b), a @ b, tolerance)


@pytest.mark.engine
@pytest.mark.parametrize("b,m,k,n", [(4, 32, 16, 16), (3, 20, 21, 18)])
def test_batched_matmul(b: int, m: int, k: int, n: int) -> None:
    left, right = x(b, m, k), x(b, k, n)
    check(kernels.bmm, (left, right), left @ right)


@pytest.mark.engine
@pytest.mark.parametrize("m,k,n", [(16, 64, 32), (20, 70, 19)])
def test_matmul_split_k(m: int, k: int, n: int) -> None:
    a, b = x(m, k), x(k, n)
    check(kernels.matmul_split_k, (a, b), a @ b)


@pytest.mark.engine
@pytest.mark.parametrize("m,n", [(8, 32), (10, 37), (1, 5)])
def test_softmax(m: int, n: int) -> None:
    a = x(m, n)
    check(kernels.softmax, (a,), torch.softmax(a, -1))


@pytest.mark.engine
@pytest.mark.parametrize("m,n", [(8, 32), (10, 37), (3, 1)])
def test_softmax_in_two_passes(m: int, n: int) -> None:
    a = x(m, n)
    check(kernels.softmax_two_pass, (a,), torch.softmax(a, -1))


@pytest.mark.engine
@pytest.mark.parametrize("m,n", [(8, 32), (10, 37)])
def test_layer_norm(m: int, n: int) -> None:
    a, weight, bias = x(m, n), x(n), x(n)
    rstd = torch.rsqrt(a.var(-1, unbiased=False) + 1e-5)
    check(kernels.layer_norm, (a, weight, bias), (F.layer_norm(a, (n,), weight, bias), a.mean(-1), rstd))


@pytest.mark.engine
@pytest.mark.parametrize("m,n", [(8, 32), (10, 37)])
def test_rms_norm(m: int, n: int) -> None:
    a, weight = x(m, n), x(n)
    inverse = torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-5)
    check(kernels.rms_norm, (a, weight), (F.rms_norm(a, (n,), weight, 1e-5), inverse))


@pytest.mark.engine
@pytest.mark.parametrize("n,v", [(8, 32), (10, 37)])
def test_cross_entropy(n: int, v: int) -> None:
    logits, labels = x(n, v), torch.randint(0, v, (n,))
    check(kernels.cross_entropy, (logits, labels), F.cross_entropy(logits, labels))


@pytest.mark.engine
@pytest.mark.parametrize("kernel", [kernels.long_sum, kernels.long_sum_looped], ids=["whole", "looped"])
@pytest.mark.parametrize("m,n", [(8, 256), (10, 301)])
def test_long_sum(kernel: Any, m: int, n: int) -> None:
    a = x(m, n)
    check(kernel, (a,), a.sum(-1))


@pytest.mark.engine
@pytest.mark.parametrize("m,n,d", [(32, 48, 16), (40, 24, 16), (17, 33, 8)])
def test_flash_attention(m: int, n: int, d: int) -> None:
    q, k, v = x(1, 2, m, d), x(1, 2, n, d), x(1, 2, n, d)
    check(kernels.attention, (q, k, v), F.scaled_dot_product_attention(q, k, v))


@pytest.mark.engine
@pytest.mark.parametrize("shape", [(2, 2, 1, 16, 2, 8, 4), (1, 2, 2, 12, 4, 10, 5), (1, 1, 1, 20, 2, 12, 3)])
def test_mamba_chunk_scan(shape: tuple[int, ...]) -> None:
    batch, chunks, groups, length, heads, width, state = shape
    cb, inputs = x(batch, chunks, groups, length, length), x(batch, chunks * length, heads, width)
    dt, decay = torch.rand(batch, heads, chunks, length), -torch.rand(batch, heads, chunks, length).cumsum(-1)
    c, states, d = x(batch, chunks * length, groups, state), x(batch, chunks, heads, width, state), x(heads)
    share = heads // groups
    whole = c.view(batch, chunks, length, groups, state).repeat_interleave(share, 3)
    steps = decay.permute(0, 2, 1, 3)
    before = torch.einsum("bclhn,bchpn,bchl->bclhp", whole, states, steps.exp())
    scores = cb.repeat_interleave(share, 2) * (steps[..., :, None] - steps[..., None, :]).exp()
    scores = (scores * dt.permute(0, 2, 1, 3)[..., None, :]).tril()
    inside = torch.einsum("bchlk,bckhp->bclhp", scores, inputs.view(batch, chunks, length, heads, width))
    expected = (before + inside).reshape(inputs.shape) + inputs * d[:, None]
    check(kernels.mamba_chunk_scan, (cb, inputs, dt, decay, c, states, d), expected, 1e-3)


# --- Features, one at a time ---

_PLACES = torch.arange(20)

FEATURES: dict[str, tuple[Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "grid": (lambda: (x(3, 20),), lambda a: a * 2 + _PLACES // 8 * 8 + torch.arange(3)[:, None]),
    "looking_ahead": (lambda: (x(21),), lambda a: torch.cat([a[3:] + a[2:20], torch.zeros(3)])),
    "from_three": (lambda: (x(20),), lambda a: a + torch.where(_PLACES < 3, -a, 3 + (_PLACES - 3) // 8 * 9)),
    "branch": (
        lambda: (x(20),),
        lambda a: torch.where(_PLACES == 5, 0, torch.where(_PLACES // 8 * 8 > 8, a * 2, a + 1)),
    ),
    "branch_on_one_side": (lambda: (x(20),), lambda a: torch.where(_PLACES >= 16, a * 2, 0)),
    "doubling": (lambda: (x(20),), lambda a: a * 8),
    "dot": (lambda: (x(20, 20), x(20, 20)), torch.matmul),
    "index_add": (
        lambda: (x(10, 12), torch.randint(0, 5, (10,)), 5),
        lambda a, rows, n: torch.zeros(n, 12).index_add(0, rows, a),
    ),
    "embedding": (lambda: (torch.randint(0, 7, (10,)), x(7, 12)), lambda rows, w: w[rows]),
    "permute_rows": (lambda: (x(10, 5), torch.randperm(10)), lambda a, p: torch.zeros(10, 5).index_copy(0, p, a)),
    "two_phases": (lambda: (x(20),), lambda a: (a + 1) ** 2),
    "argmax": (lambda: (x(20, 13),), lambda a: a.argmax(-1)),
    "lower_triangle_sum": (lambda: (x(20, 20),), lambda a: a.tril().sum(-1)),
    "cumsum": (lambda: (x(10, 13),), lambda a: a.cumsum(1)),
    "reduce_with_a_function": (lambda: (x(10, 13),), lambda a: a.sum(1)),
    "jagged_sum": (
        lambda: (x(30), torch.tensor([0, 5, 5, 20, 30])),
        lambda v, o: torch.stack([v[a:b].sum() for a, b in itertools.pairwise(o)]),
    ),
    "with_dynamic_shapes": (lambda: (x(20, 33),), lambda a: a * 33 + 20),
    "with_one_column": (lambda: (x(10, 1), x(10, 37)), torch.add),
    "sorted_rows": (lambda: (x(10, 13),), lambda a: a.sort(1).values),
    "flat_gather": (lambda: (x(10, 13),), lambda a: a.flip(1)),
    "joint_gather": (
        lambda: (x(10, 13),),
        lambda a: (a * (torch.arange(10)[:, None] != torch.arange(13))).flip(0, 1),
    ),
    "greatest": (lambda: (-torch.rand(20) - 1,), lambda a: a.max().view(1)),
    "halves": (lambda: (x(10, 16),), lambda a: torch.cat([torch.zeros(10, 8), a[:, :8] * 2], 1)),
    "variance": (lambda: (x(10, 13),), lambda a: a.var(1)),
    "with_a_global": (lambda: (x(20), 3, 0.25), lambda a, n, s: a * 2.5 + n * s),
    "without_config": (lambda: (x(50),), torch.relu),
}


def feature(name: str) -> flambeau.Module:
    return flambeau.helion.compile(getattr(kernels, name), FEATURES[name][0]())


ON_IREE = Together({name: partial(feature, name) for name in FEATURES})


@pytest.mark.engine
@pytest.mark.parametrize("name", FEATURES)
def test_feature(name: str) -> None:
    make, expected = FEATURES[name]
    args, run = make(), ON_IREE[name]
    for _ in range(2):
        assert_same(run(*args), expected(*args), name, rtol=1e-4, atol=1e-4)


def test_a_scan_with_a_function_of_the_users() -> None:
    a, b = x(10, 13), x(10, 13)
    state, expected = torch.zeros(10), []
    for i in range(13):
        state = a[:, i] * state + b[:, i]
        expected.append(state)
    check(kernels.linear_recurrence, (a, b), torch.stack(expected, 1))


def test_a_kernel_that_writes_its_argument() -> None:
    a = x(20)
    expected = a * 2
    run = flambeau.load(flambeau.helion.compile(kernels.double_in_place, (a,)), profile="quick")
    assert run(a) is None
    torch.testing.assert_close(a, expected)


def test_what_an_argument_was_before_it_was_written() -> None:
    a = x(20)
    expected = a * 3
    run = flambeau.load(flambeau.helion.compile(kernels.old_and_new, (a,)), profile="quick")
    torch.testing.assert_close(run(a), expected)
    torch.testing.assert_close(a, expected / 3 * 2)


def test_a_kernel_that_writes_a_view_of_its_argument() -> None:
    a = x(4, 5)
    expected = a + 1
    run = flambeau.load(flambeau.helion.compile(kernels.through_a_view, (a,)), profile="quick")
    torch.testing.assert_close(run(a), expected)
    torch.testing.assert_close(a, expected)


def test_inputs_are_left_alone() -> None:
    a, b = x(40, 50), x(50, 33)
    before = a.clone(), b.clone()
    run = flambeau.load(flambeau.helion.compile(kernels.matmul, (a, b)), profile="quick")
    run(a, b)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


@pytest.mark.parametrize("blocks", [[4, 64, 16], [64, 4, 1], [128, 128, 128]])
def test_the_config_may_be_given(blocks: list[int]) -> None:
    a, b = x(40, 50), x(50, 33)
    module = check(kernels.matmul, (a, b), a @ b, config={"block_sizes": blocks})
    assert f"tensor<{blocks[0]}x{blocks[1]}xf32>" in str(module)


@pytest.mark.parametrize("profile", ["model", "host"])
def test_attention_under_the_other_profiles(profile: str) -> None:
    q, k, v = x(1, 2, 40, 16), x(1, 2, 24, 16), x(1, 2, 24, 16)
    run = flambeau.load(flambeau.helion.compile(kernels.attention, (q, k, v)), profile=profile)
    torch.testing.assert_close(run(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-4, atol=1e-4)


# --- What the IR looks like ---


def test_tile_loops_are_scf_for_over_slices() -> None:
    """Where the blocks divide the sizes there is nothing at the edge: no minimum, no pad, static slices."""
    text = str(flambeau.helion.compile(kernels.matmul, (x(32, 64), x(64, 48))))
    assert text.count("scf.for") == 3
    assert text.count("tensor.extract_slice") == 2
    assert text.count("tensor.insert_slice") == 1
    assert "linalg.matmul ins(" in text
    assert "arith.minsi" not in text
    assert "tensor.pad" not in text
    assert "tensor<?" not in text


def test_an_edge_is_padded_when_read_and_cut_when_written() -> None:
    module = flambeau.helion.compile(kernels.matmul, (x(32, 50), x(50, 48)))
    module.verify()
    text = str(module)
    # Only k is not a multiple of its block: both operands are padded along it, the result is whole.
    assert text.count("tensor.pad") == 2
    assert "to tensor<16x?xf32>" in text
    assert "to tensor<?x16xf32>" in text
    assert "tensor.insert_slice" in text
    assert "tensor<16x16xf32> into tensor<32x48xf32>" in text


def test_a_reduction_over_the_edge_is_masked() -> None:
    masked = flambeau.helion.compile(kernels.softmax_two_pass, (x(8, 37),))
    whole = flambeau.helion.compile(kernels.softmax_two_pass, (x(8, 32),))
    assert str(masked).count("arith.select") == 2
    assert "arith.select" not in str(whole)
    assert "0xff800000" in str(masked)


def test_ops_carry_the_kernels_lines() -> None:
    module = flambeau.helion.compile(kernels.matmul, (x(32, 64), x(64, 48)))
    assert "kernels.py" in module.text(locations=True)


def test_the_signature_is_the_kernels() -> None:
    module = flambeau.helion.compile(kernels.layer_norm, (x(10, 37), x(37), x(37), 1e-3), function="norm")
    signature = module.signatures["norm"]
    assert [a.name for a in signature.arguments] == ["x", "weight", "bias"]
    assert [str(r) for r in signature.results] == ["10x37xfloat32", "10xfloat32", "10xfloat32"]
    assert signature.inputs == (0, 1, 2, None)


def test_a_kernel_is_saved_and_read_again(tmp_path: Any) -> None:
    a = x(10, 37)
    module = flambeau.helion.compile(kernels.softmax, (a,))
    module.save(tmp_path / "softmax.mlir")
    run = flambeau.load(tmp_path / "softmax.mlir", profile="quick")
    torch.testing.assert_close(run(a), torch.softmax(a, -1), rtol=1e-4, atol=1e-4)


# --- What is refused ---


def test_other_output_types_are_for_single_nodes() -> None:
    with pytest.raises(ValueError, match="compiled to linalg-on-tensors, not to tosa"):
        flambeau.helion.compile(kernels.add, (x(4, 4), x(4)), output_type="tosa")


def test_a_tensor_that_is_written_under_one_name_and_read_under_another() -> None:
    with pytest.raises(flambeau.CompileError, match="writes flat, which shares memory with x"):
        flambeau.helion.compile(kernels.through_two_names, (x(4, 5),))


def test_an_op_that_may_mix_what_does_not_exist_is_refused_at_the_edge_only() -> None:
    a = x(16)
    check(kernels.sorted_tiles, (a,), a.view(2, 8).sort(1).values.view(-1))
    with pytest.raises(flambeau.CompileError, match="may mix elements of a tile that lies over the edge") as caught:
        flambeau.helion.compile(kernels.sorted_tiles, (x(20),))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.op == "aten.sort.default"
    assert diagnostic.file is not None
    assert diagnostic.file.endswith("kernels.py")


def test_an_op_of_helion_that_is_not_imported_is_named() -> None:
    with pytest.raises(flambeau.CompileError, match="rand of Helion is not imported"):
        flambeau.helion.compile(kernels.with_random_numbers, (x(20),))


def test_a_config_without_enough_blocks_is_refused() -> None:
    with pytest.raises(flambeau.CompileError, match="the config has 1 block sizes"):
        flambeau.helion.compile(kernels.matmul, (x(4, 4), x(4, 4)), config={"block_sizes": [8]})


# --- What the page and the example say ---

ROOT = Path(__file__).parents[3]


def test_the_kernel_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helion reads the source of a kernel from its file, so this block cannot be run from the page."""
    page = (ROOT / "docs" / "helion.md").read_text()
    (block,) = re.findall(r"<!-- no-test -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "kernel_of_the_page.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("kernel_of_the_page").module
    assert str(module).count("scf.for") == 3


@pytest.fixture(scope="module")
def visitor() -> Any:
    return import_file(ROOT / "examples" / "helion_visitor.py")


@pytest.mark.parametrize("output_type", list(flambeau.OutputType))
def test_s120_the_visitor_inlines_each_aten_node(visitor: Any, output_type: str) -> None:
    text = visitor.main(str(output_type))
    module = parse_module(text, "turn.mlir")
    module.verify()
    assert "#map" not in text
    if output_type in ("raw", "torch"):
        names = [op.name for op in module.walk() if op.name.startswith("torch.aten.")]
        assert names.count("torch.aten.exp2") == 2
        assert names[0] == "torch.aten.bmm"
        assert names[-1] == "torch.aten.baddbmm"


def test_s120_the_visitors_default_is_raw_and_operands_come_from_kwargs_too(visitor: Any) -> None:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(name) for name in ("a", "b")]
    call = graph.call_function(torch.ops.aten.clamp.Tensor, (nodes[0],), {"max": nodes[1]})
    visit = visitor.IRVisitor(program=None, output_type="linalg-on-tensors")
    del visit.ctx.aten_output_type
    visit.ctx.node_values = {"a": "%a", "b": "%b"}
    visit.ctx.node_examples = {"a": x(3), "b": x(3)}
    assert visit.visit_aten_compute(call) == "%t1"
    assert "torch.aten.clamp.Tensor %a, %t0, %b" in visit.builder.text()


def test_s120_what_the_visitor_builds_computes_what_the_kernel_does(visitor: Any, tmp_path: Path) -> None:
    path = tmp_path / "turn.mlir"
    path.write_text(visitor.main("linalg-on-tensors"))
    run = flambeau.load(path, profile="quick", device="local-sync")
    program = flambeau.helion.trace(visitor.attention, (x(2, 64, 16), x(2, 48, 16), x(2, 48, 16)))
    (loop,) = (n for n in program.roots[0].nodes if n.name == "_for_loop")
    before = {"queries": x(1, 32, 16), "highest": x(1, 32), "total": torch.rand(1, 32), "acc": x(1, 32, 16)}
    keys, values = x(1, 16, 16), x(1, 16, 16)
    scores = before["queries"] @ keys
    highest = torch.maximum(before["highest"], scores.amax(-1) * 1.44269504)
    weights = torch.exp2(scores * 1.44269504 - highest[..., None])
    scale = torch.exp2(before["highest"] - highest)
    after = {
        "highest": highest,
        "total": before["total"] * scale + weights.sum(-1),
        "acc": before["acc"] * scale[..., None] + weights @ values,
    }
    names = [n.name for n in loop.args[3]]
    actual = run(*(before[n] for n in names), keys, values)
    assert_same(list(actual), [after[n] for n in names if n in after], rtol=1e-4, atol=1e-4)
