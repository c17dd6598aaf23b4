"""MLIR text with mistakes: one error of ours with the line and column, soon, and never a traceback."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from xdsl.ir import Operation

import flambeau
from flambeau.diagnostics import CompileError, Unsupported, reporting
from flambeau.dialects.context import parse_module
from flambeau.files import parse_text, read_module
from flambeau.ir.module import Weights
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline

TYPE = "!torch.vtensor<[2,3],f32>"
GOOD = f"""func.func @main(%x: {TYPE}) -> {TYPE} {{
  %none = torch.constant.none
  %0 = torch.aten.relu %x : {TYPE} -> {TYPE}
  %1 = torch.aten.clone %0, %none : {TYPE}, !torch.none -> {TYPE}
  return %1 : {TYPE}
}}
"""


def problem_of(text: str) -> flambeau.diagnostics.Diagnostic:
    """Return the one problem of a text, which is found within a second of CPU time, in one of three attempts."""
    times: list[float] = []
    while not times or (times[-1] >= 1 and len(times) < 3):
        start = time.process_time()
        with pytest.raises(CompileError) as caught:
            parse_text(text, "a.mlir")
        times.append(time.process_time() - start)
    assert min(times) < 1
    (problem,) = caught.value.diagnostics
    return problem


def place(text: str) -> str:
    location = str(problem_of(text).location)
    return location.removeprefix('loc("a.mlir":').removesuffix(")")


def test_ops_know_their_line_and_column() -> None:
    module = parse_text(GOOD, "a.mlir")
    assert [str(op.location) for op in module.walk()] == [
        f'loc("a.mlir":{at})' for at in ("1:1", "1:1", "2:3", "3:3", "4:3", "5:3")
    ]
    explicit = parse_module(GOOD.replace(f"-> {TYPE}\n  %1", f'-> {TYPE} loc("model.py":7:1)\n  %1'), "a.mlir")
    assert 'loc("model.py":7:1)' in pretty_text(explicit, locations=True)


MISTAKES = {
    "a string without an end": ('"' + "a" * 10_000, "1:1", "string literal"),
    "an escape without an end": (GOOD.replace("@main", '@"' + "\\\\n" * 2000), "1:12", "string literal"),
    "brackets without an end": (GOOD + "(" * 5000, "7:1", "Could not parse"),
    "modules in modules": ("builtin.module {" * 3000, "", "nested too deeply"),
    "lists in lists": (GOOD.replace(TYPE, "!torch." + "list<" * 3000 + "int" + ">" * 3000, 1), "", "nested too deeply"),
    "a number of 5000 digits": (GOOD.replace("[2,3]", "[" + "9" * 5000 + "]", 1), "", "cannot be read"),
    "a size over 64 bits": (GOOD.replace("[2,3]", "[2,99999999999999999999]"), "1:", ""),
    "an unknown op": (GOOD.replace("aten.relu", "aten.rellu"), "3:8", "not registered"),
    "a value that is defined later": (GOOD.replace("relu %x", "relu %1"), "3:3", "not defined"),
    "a value that is never defined": (GOOD.replace("relu %x", "relu %y"), "3:24", "%y is not defined"),
    "an op that does not verify": (GOOD.replace("clone %0, %none", "clone %none, %0"), "", ""),
    "no return": (GOOD.replace(f"  return %1 : {TYPE}\n", ""), "4:3", "terminator"),
    "an empty function": (f"func.func @main(%x: {TYPE}) {{\n^bb0:\n}}", "", ""),
    "half a file": (GOOD[:150], "", ""),
    "nothing": ("", "1:1", "empty"),
    "a comment": ("// nothing here", "1:16", "Could not parse"),
    "odd digits": (GOOD.replace("[2,3]", "[²,3]"), "1:", ""),
    "contents that are no bytes": (GOOD + '{-# dialect_resources: { builtin: { w: "0x4000zz" } } #-}', "7:", ""),
    "contents without alignment": (GOOD + '{-# dialect_resources: { builtin: { w: "0x40" } } #-}', "7:", "alignment"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_place(name: str) -> None:
    text, at, message = MISTAKES[name]
    problem = problem_of(text)
    assert problem.file == "a.mlir"
    assert problem.line is not None
    assert place(text).startswith(at)
    assert message in problem.reason


def test_the_message_shows_the_line_and_marks_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(GOOD.replace("aten.relu", "aten.rellu"))
    with pytest.raises(CompileError) as caught:
        read_module(path)
    *_, place, line, mark = str(caught.value).splitlines()
    assert place.endswith("a.mlir:3:8")
    assert line[mark.index("^") :].startswith("torch.aten.rellu")


def test_a_long_line_is_cut_around_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text("builtin.module { " * 40 + "what is this" + " }" * 40)
    with pytest.raises(CompileError) as caught:
        read_module(path)
    *_, line, mark = str(caught.value).splitlines()
    assert len(line) < 130
    assert line[mark.index("^") :].startswith("what")


def test_what_is_wrong_later_is_reported_with_the_line_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(GOOD.replace("torch.aten.relu", "torch.aten.linalg_pinv"))
    with pytest.raises(CompileError) as caught:
        flambeau.compile(read_module(path))
    assert [(d.file, d.line) for d in caught.value.diagnostics] == [(str(path), 3)]


def test_a_program_without_functions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(f"builtin.module {{\nbuiltin.module {{\n{GOOD}}}\n%0 = torch.constant.none\n}}")
    module = read_module(path)
    with pytest.raises(CompileError) as caught:
        flambeau.compile(module)
    assert caught.value.diagnostics[0].line is not None


def test_contents_of_the_wrong_length_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    literal = f"  %0 = torch.vtensor.literal(dense_resource<w> : tensor<2x3xf32>) : {TYPE}\n"
    head = GOOD.replace("  %none", literal + "  %none").replace("%0 = torch.aten.relu %x", "%2 = torch.aten.relu %0")
    path.write_text(head + '{-# dialect_resources: { builtin: { w: "0x400000000000803F" } } #-}')
    with pytest.raises(CompileError, match="contents of w are 4 bytes, which is not what a 2x3xfloat32 has") as caught:
        read_module(path)
    assert caught.value.diagnostics[0].line == 2


def test_a_symbol_is_not_a_number() -> None:
    symbol = '  %s = torch.symbolic_int "s0" {min_val = 0, max_val = 9} : !torch.int\n'
    text = GOOD.replace("  %none", symbol + "  %none").replace(
        f"torch.aten.relu %x : {TYPE}", f"torch.aten.mul.Scalar %x, %s : {TYPE}, !torch.int"
    )
    with pytest.raises(CompileError, match="the symbol s0 only names sizes") as caught:
        run_pipeline(parse_text(text, "a.mlir"), "convert-torch-to-linalg")
    assert caught.value.diagnostics[0].line == 2


def test_consequences_of_a_problem_are_not_reported() -> None:
    """A wrong type makes the next op fail too; that is not told, and not an internal error."""
    text = f"""func.func @main(%x: {TYPE}, %i: !torch.vtensor<[2],si64>) -> {TYPE} {{
      %one = torch.constant.int 1
      %false = torch.constant.bool false
      %0 = torch.aten.unsqueeze %i, %one : !torch.vtensor<[2],si64>, !torch.int -> !torch.vtensor<[],si64>
      %1 = torch.aten.gather %x, %one, %0, %false : {TYPE}, !torch.int, !torch.vtensor<[],si64>, !torch.bool -> {TYPE}
      return %1 : {TYPE}
    }}"""
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse_text(text, "a.mlir"), "convert-torch-to-linalg")
    assert [d.line for d in caught.value.diagnostics] == [4]


def test_ops_that_a_short_form_stands_for_have_its_place() -> None:
    text = """func.func @main(%x: tensor<2x3xf32>, %z: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.reduce(%x init: %z) applies stablehlo.transpose across dimensions = [0, 1] \\
          : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }""".replace("\\\n", "")
    assert place(text) == "2:7"


# The net under passes and lowerings


def test_an_internal_error_names_the_op_and_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.passes import common_subexpressions

    def faulty(op: object) -> None:
        raise KeyError("size")

    run = staticmethod(lambda m: [faulty(op) for op in m.walk()])
    monkeypatch.setattr(common_subexpressions.CommonSubexpressionElimination, "run", run)
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse_text(GOOD, "a.mlir"), "cse")
    assert isinstance(caught.value.__cause__, KeyError)
    (problem,) = caught.value.diagnostics
    assert (problem.stage, problem.file, problem.line) == ("cse", "a.mlir", 1)
    assert "KeyError: 'size'" in problem.reason


def test_what_a_stage_does_not_support_is_a_diagnostic() -> None:
    op = next(op for op in parse_text(GOOD, "a.mlir").walk() if op.name == "torch.aten.relu")

    def lower(op: Operation) -> None:
        with reporting("lower"):
            raise Unsupported(f"{op.name}, not today", "Try tomorrow.")

    with pytest.raises(CompileError, match="not today") as caught:
        lower(op)
    assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].hint) == (3, "Try tomorrow.")


def test_sums_of_very_many_elements_are_lowered() -> None:
    huge = "!torch.vtensor<[4294967296,3],f32>"
    text = f"""func.func @main(%x: {huge}) -> !torch.vtensor<[],f32> {{
      %none = torch.constant.none
      %0 = torch.aten.sum %x, %none : {huge}, !torch.none -> !torch.vtensor<[],f32>
      return %0 : !torch.vtensor<[],f32>
    }}"""
    lowered = run_pipeline(parse_text(text, "a.mlir"), "convert-torch-to-linalg")
    lowered.verify()
    assert "reduction" in pretty_text(lowered)


def test_a_type_that_an_op_does_not_have_is_refused() -> None:
    wrong = GOOD.replace(TYPE, "!torch.vtensor<[2,4],f32>").replace(
        "%x: !torch.vtensor<[2,4]", "%x: !torch.vtensor<[2,3]"
    )
    text = wrong.replace("relu %x : !torch.vtensor<[2,4]", "relu %x : !torch.vtensor<[2,3]")
    module = flambeau.Module(parse_text(text, "a.mlir"), Weights(), {}, flambeau.OutputType.RAW)
    with pytest.raises(CompileError, match=r"gives a tensor \[2,3\] of .*, and the program says") as caught:
        run_pipeline(module.op, "convert-torch-to-linalg")
    assert caught.value.diagnostics[0].line == 3
