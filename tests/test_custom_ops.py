"""Ops of others: rules that users add, what they are told of mistakes, ops that are left to the engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from xdsl.ir import Dialect

import flambeau
from flambeau.api import Module
from flambeau.dialects.context import parse_module
from flambeau.engines.errors import EngineError, RunError
from flambeau.ir import plugins
from flambeau.opt import run_pipeline
from flambeau.python_files import import_file

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")
X, Y = torch.randn(3, 5), torch.randn(3, 5)
DYNAMIC = ({0: torch.export.Dim("n")}, {0: torch.export.Dim("n")})


@torch.library.custom_op("ours::gate", mutates_args=())
def gate(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return x * torch.sigmoid(y) * scale


@torch.library.custom_op("ours::halves", mutates_args=())
def halves(x: Tensor, dims: list[int], swap: bool) -> tuple[Tensor, Tensor]:
    return x / 2, x < 0


@torch.library.custom_op("ours::bump", mutates_args={"x"})
def bump(x: Tensor) -> None:
    x.add_(1)


gate.register_fake(lambda x, y, scale=1.0: torch.empty_like(x))
halves.register_fake(lambda x, dims, swap: (torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)))


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    plugins.load_plugins()
    before = dict(plugins._registered)
    yield
    plugins._registered.clear()
    plugins._registered.update(before)
    plugins._unchecked.clear()


def program(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(gate(x.exp(), y, 2.0)) + 1


def gate_rule(b: Any, x: Any, y: Any, scale: float) -> Any:
    return b.elementwise([x, y], lambda e, g: e / ((-g).exp() + 1) * scale, x.dtype)


def gate_decomposition(t: Any, x: Any, y: Any, scale: float) -> Any:
    return t.mul(t.mul(x, t.sigmoid(y)), scale)


def names_in(module: Module) -> set[str]:
    return {op.name for op in module.op.walk()}


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["rule", "decomposition"])
def test_a_custom_op_is_kept_as_a_composite(kind: str) -> None:
    """S59: its arguments have the names that the rule gives them, and its body is what the rule makes."""
    flambeau.lower("ours::gate")(gate_rule) if kind == "rule" else flambeau.decompose("ours::gate")(gate_decomposition)
    module = flambeau.compile(program, (X, Y), output_type="stablehlo", keep={"ours.gate"})
    assert 'stablehlo.composite "ours.gate"' in str(module)
    assert "{composite_attributes = {scale = 2.000000e+00 : f64}, decomposition = @ours.gate.impl_0}" in str(module)
    torch.testing.assert_close(flambeau.load(module, profile="quick")(X, Y), program(X, Y))


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [None, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_rule_serves_all_targets(target: str, dynamic: Any) -> None:
    flambeau.lower("ours::gate")(gate_rule)
    run = flambeau.load(
        flambeau.compile(program, (X, Y), output_type=target, dynamic_shapes=dynamic, verify=True), profile="quick"
    )
    torch.testing.assert_close(run(X, Y), program(X, Y))
    if dynamic is not None:
        torch.testing.assert_close(run(X[:2], Y[:2]), program(X[:2], Y[:2]))


def test_rules_for_dynamic_shapes_are_specialised_on_xla() -> None:
    flambeau.lower("ours::gate")(gate_rule)
    module = flambeau.compile(program, (X, Y), output_type="stablehlo", dynamic_shapes=DYNAMIC)
    run = flambeau.load(module, engine="xla")
    for n in (2, 3):
        torch.testing.assert_close(run(X[:n], Y[:n]), program(X[:n], Y[:n]))


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_a_decomposition_serves_the_targets_without_a_rule(target: str) -> None:
    flambeau.decompose("ours::gate")(gate_decomposition)
    flambeau.lower("ours::gate", target="TOSA")(gate_rule)
    module = flambeau.compile(program, (X, Y), output_type=target)
    torch.testing.assert_close(flambeau.load(module, profile="quick")(X, Y), program(X, Y))
    assert ("tosa.sigmoid" in names_in(module)) is False
    assert "ours.gate" in str(flambeau.compile(program, (X, Y), output_type="torch"))


def test_eager_calls_the_op_itself() -> None:
    run = flambeau.load(flambeau.compile(program, (X, Y), output_type="torch"), engine="eager")
    assert torch.equal(run(X, Y), program(X, Y))


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda: flambeau.lower("ours::gaet")(gate_rule), r"no op ours::gaet; did you mean 'ours::gate'"),
        (lambda: flambeau.lower("nowhere::gibberish")(gate_rule), r"import the library that defines it first"),
        (lambda: flambeau.lower("ours::gate.out")(gate_rule), r"no overload 'out'; there is ours::gate"),
        (lambda: flambeau.lower("gate"), r"named 'library::op'.*not 'gate'"),
        (lambda: flambeau.lower("ours::gate", target="linalk"), r"no target 'linalk'; known targets: linalg"),
        (lambda: flambeau.lower("ours::gate", target="torch"), r"no target 'torch'"),
        (lambda: flambeau.lower("ours::gate")(lambda b, x, z, scale: x), r"\(x, z, scale\).*op has \(x, y, scale\)"),
        (lambda: flambeau.decompose("ours::gate")(lambda t, x, y: x), r"\(x, y\).*op has \(x, y, scale\)"),
        (lambda: flambeau.lower("aten::relu"), r"op of PyTorch's own.*override=True"),
        (lambda: flambeau.decompose("prims::sum"), r"op of PyTorch's own.*override=True"),
        (lambda: flambeau.lower("ours::bump")(lambda b, x: x), r"ours.bump writes to its argument 'x'"),
        (lambda: flambeau.lower("aten::relu_", override=True)(lambda b, self: self), r"writes to its argument 'self'"),
    ],
)  # fmt: skip
def test_mistakes_in_a_rule_are_told_at_once(add: Callable[[], Any], message: str) -> None:
    before = dict(plugins._registered)
    with pytest.raises(ValueError, match=message):
        add()
    assert plugins._registered == before


def test_two_rules_for_an_op_are_told_with_both_places() -> None:
    flambeau.lower("ours::gate")(gate_rule)
    flambeau.lower("ours::gate")(gate_rule)  # a file that is imported again

    def other(b: Any, x: Any, y: Any, scale: float) -> Any:
        return x

    with pytest.raises(ValueError, match=r"test_custom_ops.py:\d+ and at .*test_custom_ops.py:\d+"):
        flambeau.lower("ours::gate")(other)
    flambeau.lower("ours::gate", override=True)(other)
    assert "math.exp" not in str(flambeau.compile(lambda x, y: gate(x, y), (X, Y)))


def test_rules_of_pytorchs_ops_can_be_overridden_on_purpose() -> None:
    def squared(b: Any, self: Any) -> Any:
        return b.elementwise([self], lambda e: e * e, self.dtype)

    def halved(t: Any, self: Any) -> Any:
        return t.mul(self, 0.5)

    flambeau.lower("aten::silu", target="stablehlo", override=True)(squared)
    flambeau.decompose("aten::hardswish", override=True)(halved)

    def both(x: Tensor) -> Tensor:
        return nn.functional.hardswish(nn.functional.silu(x))

    assert "stablehlo.logistic" not in names_in(flambeau.compile(both, (X,), output_type="stablehlo"))
    linalg = str(flambeau.compile(both, (X,)))
    assert "math.exp" in linalg
    assert "arith.constant 5.000000e-01" in linalg


def test_rules_are_checked_once_pytorch_has_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules may be added where there is no PyTorch; what they are for shows when it is imported."""
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "torch")
        flambeau.lower("ours::gate")(lambda b, x, z, scale: x)
    with pytest.raises(ValueError, match=r"op has \(x, y, scale\)"):
        flambeau.compile(program, (X, Y))


TEXT = """
func.func @main(%x: !torch.vtensor<[2,?],f32>) -> !torch.vtensor<[2,?],f32> {
  %s = torch.constant.float 2.0
  %0 = torch.operator "torch.ours.gate"(%x, %x, %s)
    : (!torch.vtensor<[2,?],f32>, !torch.vtensor<[2,?],f32>, !torch.float) -> !torch.vtensor<[2,?],f32>
  return %0 : !torch.vtensor<[2,?],f32>
}
"""


def test_passes_on_text_know_the_rules_and_external_ops() -> None:
    external = run_pipeline(parse_module(TEXT, "x.mlir"), "convert-torch-to-stablehlo{external=ours.gate=kernel:x:y:s}")
    assert "custom_call @kernel(%x, %x) {api_version = 4 : i32, backend_config = {s = 2.000000e+00 : f64}}" in str(
        external
    )
    flambeau.decompose("ours::gate")(gate_decomposition)
    lowered = run_pipeline(parse_module(TEXT, "x.mlir"), "torch-decompose-complex-ops,convert-torch-to-linalg")
    assert "linalg.generic" in str(lowered)


# --- Left to the engine ---


def two_types(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    low, negative = halves(gate(x, y, 3.0), [0, 1], True)
    return low * negative, gate(x[:2], y[:2])


@pytest.mark.engine
def test_external_ops_run_as_functions_of_python_on_iree() -> None:
    module = flambeau.compile(two_types, (X, Y), external=["ours::gate", "ours.halves"], verify=True)
    declared = [line.strip() for line in str(module).splitlines() if "private" in line]
    assert declared == [
        "func.func private @ours.gate(tensor<3x5xf32>, tensor<3x5xf32>, f64) -> tensor<3x5xf32>",
        "func.func private @ours.halves(tensor<3x5xf32>, i64, i64, i1) -> (tensor<3x5xf32>, tensor<3x5xi1>)",
        "func.func private @ours.gate_1(tensor<2x5xf32>, tensor<2x5xf32>, f64) -> tensor<2x5xf32>",
    ]
    seen: list[Any] = []

    def python_halves(x: Tensor, *numbers: Any) -> tuple[Tensor, Tensor]:
        seen.extend(numbers)
        return halves(x, [0], True)

    functions = {"ours.gate": gate, "ours.halves": python_halves}
    run = flambeau.load(module, profile="quick", functions=functions)
    for _ in range(3):
        torch.testing.assert_close(run(X, Y), two_types(X, Y))
    assert seen[:3] == [0, 1, True]
    with pytest.raises(EngineError, match=r"cannot be saved: ours.gate, ours.halves"):
        run.save("x.vmfb")  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match=r"does not have: ours.halves\."):
        flambeau.load(module, functions={"ours.gate": gate})
    with pytest.raises(EngineError, match=r"does not call a function 'ours.gaet'"):
        flambeau.load(module, functions={**functions, "ours.gaet": gate})


def test_external_ops_run_as_functions_of_python_on_xla() -> None:
    module = flambeau.compile(two_types, (X, Y), external=["ours::gate", "ours.halves"], output_type="stablehlo")
    seen: list[Any] = []

    def python_halves(x: Tensor, **numbers: Any) -> tuple[Tensor, Tensor]:
        seen.append(numbers)
        return halves(x, **numbers)

    run = flambeau.load(module, engine="xla", functions={"ours.gate": gate, "ours.halves": python_halves})
    for _ in range(3):
        torch.testing.assert_close(run(X, Y), two_types(X, Y))
    assert seen[0] == {"dims": [0, 1], "swap": True}
    with pytest.raises(EngineError, match=r"cannot be saved: ours.gate, ours.halves"):
        run.save("x.xla")  # type: ignore[attr-defined]

    def broken(*args: Any, **numbers: Any) -> Tensor:
        raise ValueError("no such luck")

    with pytest.raises(EngineError, match=r"does not call a function 'ours.gaet': it calls ours.gate, ours.halves"):
        flambeau.load(module, engine="xla", functions={"ours.gaet": gate})
    dynamic = flambeau.compile(
        program, (X, Y), external=["ours::gate"], dynamic_shapes=DYNAMIC, output_type="stablehlo"
    )
    run = flambeau.load(dynamic, engine="xla", functions={"ours.gate": gate})
    torch.testing.assert_close(run(X[:2], Y[:2]), program(X[:2], Y[:2]))
    for wrong, message in (
        (broken, "calls failed: ValueError: no such luck"),
        (gate_rows, r"\(1, 5\), and float32 \(3"),
    ):
        with pytest.raises(RunError, match=message):
            flambeau.load(dynamic, engine="xla", functions={"ours.gate": wrong})(X, Y)


def gate_rows(x: Tensor, y: Tensor, scale: float) -> Tensor:
    return x[:1]


@pytest.mark.engine
def test_external_functions_take_dynamic_shapes_and_their_failures_are_told() -> None:
    module = flambeau.compile(program, (X, Y), external=["ours::gate"], dynamic_shapes=DYNAMIC)
    run = flambeau.load(module, profile="quick", functions={"ours.gate": gate})
    torch.testing.assert_close(run(X[:2], Y[:2]), program(X[:2], Y[:2]))

    def broken(*args: Any) -> Tensor:
        raise ValueError("no such luck")

    with pytest.raises(RunError, match=r"calls failed: ValueError: no such luck$"):
        flambeau.load(module, profile="quick", functions={"ours.gate": broken})(X, Y)
    wrong = flambeau.load(module, profile="quick", functions={"ours.gate": lambda x, y, s: x.double()})
    with pytest.raises(RunError, match=r"result 0 of ours.gate is of float64, and float32 is taken"):
        wrong(X, Y)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("stablehlo", "stablehlo.custom_call @my.gate(%0, %args_1) {api_version = 4 : i32, backend_config = {scale = "
            "2.000000e+00 : f64}} : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>"),
        ("tosa", 'tosa.custom %0, %args_1 {domain_name = "my", implementation_attrs = "{\\22scale\\22: 2.0}", '
            'operator_name = "gate"} : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>'),
    ],
)  # fmt: skip
def test_external_ops_in_other_targets(target: str, line: str) -> None:
    def shallow(x: Tensor, y: Tensor) -> Tensor:
        return gate(x.tanh(), y, 2.0)

    module = flambeau.compile(shallow, (X, Y), output_type=target, external={"ours::gate": "my.gate"}, verify=True)
    assert line in str(module)
    assert str(parse_module(str(module), "x.mlir")) == str(module.op)
    if target == "stablehlo":
        with pytest.raises(EngineError, match=r"XLA does not have: my.gate\. Give them"):
            flambeau.load(module, engine="xla")
    with pytest.raises(EngineError, match=r"IREE takes no custom calls, and the program has my.gate"):
        flambeau.load(module)


@pytest.mark.parametrize(
    ("external", "message"),
    [
        (["ours::gaet"], r"did you mean 'ours::gate'"),
        (["ours::bump"], r"ours.bump writes to its arguments"),
        ({"ours::gate": "a b"}, r"'a b' is not the name of a function"),
    ],
)
def test_mistakes_in_external_are_told(external: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flambeau.compile(program, (X, Y), external=external)
    with pytest.raises(TypeError, match="collection of names"):
        flambeau.compile(program, (X, Y), external="ours::gate")


def test_an_op_without_a_rule_is_told_with_what_to_do() -> None:
    with pytest.raises(
        flambeau.CompileError, match=r"@flambeau.lower or @flambeau.decompose.*external=\['ours.gate'\]"
    ):
        flambeau.compile(program, (X, Y))


def test_a_dialect_of_the_users_own_takes_less_than_sixty_lines() -> None:
    """S59: a dialect of a customer's, its lowering, and the programs that it runs."""
    path = Path(__file__).parent.parent / "examples" / "custom_dialect.py"
    assert len(path.read_text().splitlines()) < 60
    example = import_file(path, "example_custom_dialect")
    module = flambeau.compile(example.Block(), (X,), verify=True)
    assert "%6 = accel.gate %x, %2 : tensor<3x5xf32>, tensor<3x5xf32> -> tensor<3x5xf32>" in str(module)
    assert str(parse_module(str(module), "x.mlir")) == str(module.op)
    with pytest.raises(ValueError, match="there is a dialect 'tosa' already"):
        flambeau.register_dialect(Dialect("tosa", []))
