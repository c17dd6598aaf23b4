"""Where TorchScript comes from: the user's lines, archives, and programs that are scripted or traced."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Optional, Tuple  # noqa: UP035

import pytest
import torch
from frontends.script_import import Accumulator, Holder, has, imported, line_of, loops, ops_of, upstream_accepts
from torch import Tensor, nn

from flambeau.diagnostics import CompileError
from flambeau.frontends.script.compile import import_script_module, load_archive, script_module
from flambeau.ir.locations import frames_of, user_frame
from flambeau.ir.printing import pretty_text

# ruff: noqa: UP006, UP045
# TorchScript wants the names of `typing`.


# --- Locations ---


def convert(x: Tensor) -> Tensor:
    y = x + 1
    return y.to(torch.float64)


class Converts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return convert(x)


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Converts()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_scripted_ops_have_the_line_and_column_of_the_user() -> None:
    """S4: the call is known exactly, and so is each call that leads to it."""
    module = imported(Calls())
    (to,) = ops_of(module, "torch.aten.to.dtype")
    frame = user_frame(to.location)
    assert frame is not None
    line = line_of(convert, ".to(")
    assert (frame.file, frame.line, frame.function) == (__file__, line, "convert")
    assert frame.source[frame.column - 5 :].startswith("y.to(")
    (call,) = ops_of(module, "func.call")
    assert next(frames_of(call.location)).line == line_of(Converts, "convert(x)")
    (method,) = ops_of(module, "torch.prim.CallMethod")
    assert next(frames_of(method.location)).line == line_of(Calls, "self.inner(x)")


def test_traced_ops_have_the_whole_stack_of_the_user() -> None:
    """S4: a trace knows its callers, without PyTorch's own frames."""
    module = imported(Calls(), torch.ones(2), tracing=True)
    (to,) = ops_of(module, "torch.aten.to.dtype")
    assert [(f.file, f.line, f.function) for f in frames_of(to.location)] == [
        (__file__, line_of(convert, ".to("), "convert"),
        (__file__, line_of(Converts, "convert(x)"), "forward"),
        (__file__, line_of(Calls, "self.inner(x)"), "forward"),
    ]


def test_nodes_without_a_line_have_that_of_the_loop_around_them() -> None:
    def leaves(n: int) -> int:
        total = 0
        for i in range(n):
            if i == 3:
                break
            total += i
        return total

    module = imported(leaves)
    (loop,) = ops_of(module, "torch.prim.Loop")
    counts = [op for op in ops_of(module, "torch.aten.lt.int") if op.parent_op() is loop]
    assert [next(frames_of(op.location)).line for op in counts] == [line_of(leaves, "for i")]


# --- Archives ---


def helper(x: Tensor, y: Optional[Tensor]) -> Tensor:
    return x if y is None else x + y


class Archived(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0))
        self.held = Accumulator(2)

    def forward(self, x: Tensor) -> Tuple[Tensor, int]:
        made = Accumulator(3)
        made.add(x)
        y = helper(helper(x, None), self.weight)
        return convert(y + made.items[0] + helper(x, x)), self.held.add(x)


def test_an_archive_is_imported_without_its_python_code(tmp_path: Path) -> None:
    """Functions of an archive are imported for the types that they are called with, from the archive's own code."""
    path = tmp_path / "model.pt"
    script_module(Archived()).save(str(path))
    module, weights = import_script_module(load_archive(path))
    module.verify()
    text = pretty_text(module)
    upstream_accepts(text)
    torch.testing.assert_close(weights["weight"].detach(), torch.arange(6.0))
    calls = [op for op in ops_of(module, "func.call") if "helper" in str(op.properties["callee"])]
    assert len(calls) == 3
    assert len({str(op.properties["callee"]) for op in calls}) == 2
    has(text, 'torch.slot "start", %int2')
    (to,) = ops_of(module, "torch.aten.to.dtype")
    frame = user_frame(to.location)
    assert frame is not None
    assert (frame.file, frame.line) == (__file__, line_of(convert, ".to("))


def test_objects_whose_class_is_not_defined_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    script_module(Holder()).save(str(path))
    code = f"""
import sys
from flambeau.diagnostics import CompileError
from flambeau.frontends.script.compile import import_script_module, load_archive
try:
    import_script_module(load_archive({str(path)!r}))
except CompileError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "attribute 'held': PyTorch shows an object only where its class is defined" in done.stdout


def test_a_traced_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    script_module(Calls(), (torch.ones(2),), use_tracing=True).save(str(path))
    (to,) = ops_of(imported(load_archive(path)), "torch.aten.to.dtype")
    assert next(frames_of(to.location)).line == line_of(convert, ".to(")


@pytest.mark.parametrize("contents", ["weights", "text", "nothing"])
def test_files_that_are_no_archives(contents: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    if contents == "weights":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    elif contents == "text":
        path.write_text("hello")
    with pytest.raises(CompileError, match="no file" if contents == "nothing" else "not a TorchScript archive"):
        load_archive(path)


# --- Making TorchScript ---


class Unscriptable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.missing


def test_what_cannot_be_scripted_is_reported_at_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        script_module(Unscriptable())
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Unscriptable, "self.missing"))
    assert diagnostic.stage == "script"


def test_what_cannot_be_traced_is_reported_at_its_line() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(77)

    with pytest.raises(CompileError) as caught:
        script_module(Broken(), (torch.ones(2),), use_tracing=True)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Broken, "x.view(77)"))
    with pytest.raises(CompileError, match="script the model"):
        script_module(loops, (3,), use_tracing=True)
    with pytest.raises(TypeError, match="example arguments"):
        script_module(loops, use_tracing=True)
    with pytest.raises(TypeError, match="not int"):
        script_module(3)


def test_torchscript_stays_as_it_is_and_nobody_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = nn.Dropout().eval()
        script = script_module(model)
        assert script_module(script) is script
        assert not script.training
        import_script_module(script)
        script_module(lambda x: x if x.sum() > 0 else -x, (torch.ones(2),), use_tracing=True)
