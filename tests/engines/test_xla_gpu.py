"""What programs are for a GPU: their IR, and that it computes the same, which the CPU tells; cuDNN's part runs on GPUs.

`bench/gpu.py` compares models on a GPU with eager PyTorch, and measures them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from xdsl.dialects.builtin import ModuleOp

import flambeau
from flambeau.dialects.context import parse_module
from flambeau.engines import RunError
from flambeau.engines.xla import attention
from flambeau.engines.xla.client import compile_program, get_device, to_arrays
from flambeau.engines.xla.executable import XlaExecutable
from flambeau.engines.xla.gpu import GpuProgram, with_attention
from flambeau.engines.xla.programs import Program, Wanted, program_of
from flambeau.ir.arrays import dtype_of
from flambeau.ir.module import TensorSpec

HALVES = [torch.bfloat16, torch.float16]


def for_gpu(function: Any, *args: Any) -> tuple[Program, GpuProgram]:
    """Make the program of a function for a GPU, and the one that is neutral."""
    module = flambeau.compile(function, args, output_type="stablehlo")
    program = program_of(with_attention(module), "main", Wanted(is_cpu=False))
    assert program.gpu is not None
    return program, program.gpu


def ops(text: str) -> list[str]:
    """List the ops of `@main` that compute something, in order, without their dialect."""
    module: ModuleOp = parse_module(text)
    main = next(op for op in module.ops if op.properties["sym_name"].data == "main")  # type: ignore[attr-defined]
    spread = {"func", "return", "constant", "broadcast_in_dim", "reshape"}
    return [name for op in main.walk() if (name := op.name.split(".")[-1]) not in spread]


def on_cpu(text: str, *args: torch.Tensor) -> torch.Tensor:
    """Run a program on the CPU."""
    device = get_device("cpu")
    specs = [TensorSpec(tuple(a.shape), found) for a in args if (found := dtype_of(a)) is not None]
    result = compile_program(text, device, use_cache=False).execute(to_arrays(device, args, specs))[0]
    return torch.from_dlpack(result)


@pytest.mark.parametrize("dtype", HALVES)
def test_products_that_are_rounded_give_16_bits(dtype: torch.dtype) -> None:
    x, w = torch.randn(4, 8, dtype=dtype), torch.randn(8, 2, dtype=dtype)
    program, gpu = for_gpu(torch.matmul, x, w)
    assert ops(program.text) == ["dot_general", "convert"]
    assert ops(gpu.text) == ["dot_general"]
    torch.testing.assert_close(on_cpu(gpu.text, x, w), x @ w)
    image, kernel = torch.randn(1, 3, 5, 5, dtype=dtype), torch.randn(2, 3, 3, 3, dtype=dtype)
    program, gpu = for_gpu(F.conv2d, image, kernel)
    assert ops(program.text) == ["convolution", "convert"]
    assert ops(gpu.text) == ["convolution"]


def test_a_bias_is_added_where_a_sum_cannot_be_too_large() -> None:
    for dtype, expected in zip(HALVES, (["dot_general", "add"], ["dot_general", "convert", "add", "convert"])):
        x, w, b = torch.randn(4, 8, dtype=dtype), torch.randn(2, 8, dtype=dtype), torch.randn(2, dtype=dtype)
        _, gpu = for_gpu(F.linear, x, w, b)
        assert ops(gpu.text) == expected
        torch.testing.assert_close(on_cpu(gpu.text, x, w, b), F.linear(x, w, b), rtol=2e-2, atol=2e-2)


def test_relu_is_done_in_16_bits() -> None:
    x, w, b = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((4, 8), (2, 8), (2,)))
    _, gpu = for_gpu(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b)
    assert ops(gpu.text) == ["dot_general", "add", "maximum"]
    x = torch.tensor([-1.0, -0.0, 2.0, float("nan"), float("inf")], dtype=torch.bfloat16)
    _, gpu = for_gpu(torch.relu, x)
    assert ops(gpu.text) == ["maximum"]
    torch.testing.assert_close(on_cpu(gpu.text, x), torch.relu(x), equal_nan=True)
    _, gpu = for_gpu(lambda x: x.clamp(max=0.1), x)
    assert "convert" in ops(gpu.text)  # 0.1 has more than 16 bits


def test_sums_that_stay_in_f32_are_left_alone() -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    for function in (lambda x: F.softmax((x @ x.T).float(), -1), lambda x: x.float() @ x.T.float()):
        program, gpu = for_gpu(function, x)
        assert ops(gpu.text) == [op for op in ops(program.text)] or "convert" in ops(gpu.text)
    y = torch.randn(4, 8)
    program, gpu = for_gpu(lambda y: torch.relu(y @ y.T), y)
    assert ops(gpu.text) == ops(program.text)


def test_checks_of_arguments_are_a_program_of_their_own() -> None:
    table, head = torch.randn(50, 8), torch.randn(8, 3)
    indices = torch.randint(0, 50, (4, 7))
    program, gpu = for_gpu(lambda i, t, h: F.embedding(i, t) @ h, indices, table, head)
    assert program.checks == ("index out of range",)
    assert gpu.reads == (0,)
    assert "dot_general" in ops(gpu.text)
    assert "dot_general" not in ops(gpu.checks)
    assert int(on_cpu(gpu.checks, indices)) == 0
    assert int(on_cpu(gpu.checks, indices + 50)) == 1
    torch.testing.assert_close(on_cpu(gpu.text, indices, table, head), F.embedding(indices, table) @ head)


def test_checks_of_what_takes_long_to_compute_stay_in_the_program() -> None:
    x, table = torch.randn(8, 8), torch.randn(5, 3)
    program, gpu = for_gpu(lambda x, t: t[(x @ x).sum(0).long() % 5], x, table)
    assert program.checks
    assert gpu.checks == ""
    assert gpu.reads == ()


MASKS = {
    "bool": lambda: torch.rand(2, 1, 40, 72) > 0.5,
    "float": lambda: torch.randn(2, 8, 40, 72).to(torch.bfloat16),
    "rows": lambda: torch.rand(40, 72) > 0.5,
}


@pytest.mark.parametrize("kind", ["none", "causal", *MASKS])
def test_attention_becomes_a_call_of_cudnns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_FEWEST_WEIGHTS", 1)
    q, k = torch.randn(2, 8, 40, 64, dtype=torch.bfloat16), torch.randn(2, 8, 72, 64, dtype=torch.bfloat16)
    if kind == "causal":
        _, gpu = for_gpu(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    elif kind == "none":
        _, gpu = for_gpu(lambda q, k: F.scaled_dot_product_attention(q, k, k, scale=0.5), q, k)
    else:
        mask = MASKS[kind]()
        _, gpu = for_gpu(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m), q, k, mask)
    call = "__cudnn$fmhaScaleBiasSoftmax" if kind in MASKS else "__cudnn$fmhaSoftmax"
    assert f'call_target_name = "{call}"' in gpu.text
    assert "dot_general" not in ops(gpu.text)
    calls = [op for op in parse_module(gpu.text).walk() if op.name == "stablehlo.custom_call"]
    described = json.loads(calls[0].properties["backend_config"].data)["cudnn_fmha_backend_config"]
    assert described["mask_type"] == ("CAUSAL" if kind == "causal" else "NO_MASK")
    assert described["fmha_scale"] == (0.5 if kind == "none" else 0.125)
    assert described["intermediate_tensor_shape"]["dimensions"] == ["2", "8", "40", "40" if kind == "causal" else "72"]


UNTAKEN = {
    "f32": (torch.float32, (2, 4, 16, 64)),
    "one query": (torch.float16, (2, 4, 1, 64)),
    "width": (torch.bfloat16, (2, 4, 16, 12)),
    "few weights": (torch.bfloat16, (1, 4, 16, 64)),
}


@pytest.mark.parametrize("kind", list(UNTAKEN))
def test_attention_that_cudnn_is_not_for_is_lowered(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "few weights":
        monkeypatch.setattr(attention, "_FEWEST_WEIGHTS", 1)
    dtype, shape = UNTAKEN[kind]
    q = torch.randn(shape, dtype=dtype)
    program, gpu = for_gpu(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    assert "fmha" not in gpu.text
    expected = F.scaled_dot_product_attention(q, q, q)
    for text in (program.text, gpu.text):  # a composite, that XLA lowers by its decomposition
        torch.testing.assert_close(on_cpu(text, q), expected, rtol=2e-2, atol=2e-2)


def test_what_is_saved_runs_everywhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_FEWEST_WEIGHTS", 1)
    q = torch.randn(1, 2, 16, 8, dtype=torch.bfloat16)
    program, gpu = for_gpu(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    assert "fmha" in gpu.text
    assert "fmha" not in program.text
    assert np.isfinite(on_cpu(program.text, q).float().numpy()).all()


def test_late_checks_are_raised_by_the_next_call_or_by_waiting() -> None:
    indices, table = torch.tensor([0, 4]), torch.randn(5, 3)
    module = flambeau.compile(lambda i, t: t[i] * 2, (indices, table), output_type="stablehlo")
    wanted = Wanted(late=True)
    program = program_of(module.op, "main", wanted)
    run = XlaExecutable({"main": program}, None, module.weights, module.signatures, wanted=wanted)
    torch.testing.assert_close(run(indices, table), table[indices] * 2)
    run(indices + 1, table)
    with pytest.raises(RunError, match=r"index out of range \(in an earlier call\)"):
        run(indices, table)
    run.wait()
    run(indices + 1, table)
    with pytest.raises(RunError, match=r"index out of range$"):
        run.wait()
    torch.testing.assert_close(run(indices, table), table[indices] * 2)
    with pytest.raises(ValueError, match='checks is True, False or "late"'):
        flambeau.load(module, engine="xla", checks="never")
