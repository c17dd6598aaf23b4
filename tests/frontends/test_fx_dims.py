"""Symbolic sizes as a contract: names and ranges in the signature, and calls that are held to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import flambeau
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.ir.symbolic import Sizes, Symbol, SymbolicDim


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: dict[str, Tensor], y: Tensor, scale: int = 2) -> tuple[Any, ...]:
        self.calls += 1
        return torch.cat([x["a"], y]) * scale, x["a"].flatten(), y[1:], x["a"].shape[0]


ROWS, BLOCKS = Dim("rows", min=2, max=9), Dim("blocks", max=4)
ARGS = ({"a": torch.ones(3, 6)}, torch.ones(8, 6))
SHAPES = {"x": {"a": {0: ROWS}}, "y": {0: 4 * BLOCKS}}


def compiled(**options: Any) -> flambeau.Module:
    return flambeau.compile(Parts(), ARGS, dynamic_shapes=SHAPES, **options)


def test_a_signature_spells_the_contract_out() -> None:
    assert str(compiled(output_type="torch").signature).splitlines() == [
        "(x_a: float32[rows, 6], y: float32[4*blocks, 6]) -> "
        "(float32[4*blocks + rows, 6], float32[6*rows], float32[4*blocks - 1, 6], int)",
        "  where rows: 2..9, blocks: 0..4",
        "  writes state calls: int64[]",
    ]


def test_names_are_in_the_program_too() -> None:
    text = str(compiled(output_type="torch"))
    assert 'torch.symbolic_int "rows" {min_val = 2, max_val = 9}' in text
    assert 'torch.symbolic_int "blocks"' in text


def test_sizes_without_names_and_what_was_assumed_of_them() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return x.reshape(-1, 8).sum(0) + y.sum()

    auto = {0: Dim.AUTO}
    signature = flambeau.compile(
        program, (torch.ones(16), torch.ones(3, 4)), dynamic_shapes=(auto, auto), output_type="torch"
    ).signature
    text = str(signature)
    assert text.startswith("(args_0: float32[s0], args_1: float32[s1, 4]) -> float32[8]")
    assert "s0 % 8 == 0" in text
    assert [str(s) for s in signature.symbols] == ["s0: 0..", "s1: 0.."]


MISTAKES = {
    "too few": ((1, 8), "dimension 0 of argument 'x_a' is 1, and must be rows: 2..9"),
    "too many": ((10, 8), "dimension 0 of argument 'x_a' is 10, and must be rows: 2..9"),
    "no multiple": ((3, 7), r"dimension 0 of argument 'y' is 7, and must be 4\*blocks for an integer blocks"),
    "too large a multiple": ((3, 20), r"'y' is 20, and must be 4\*blocks with blocks: 0..4"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_call_is_held_to_it(mistake: str) -> None:
    run = flambeau.load(compiled(output_type="torch"), engine="eager")
    (rows, columns), message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        run({"a": torch.ones(rows, 6)}, torch.ones(columns, 6))
    run({"a": torch.ones(2, 6)}, torch.ones(16, 6))


@pytest.mark.engine
def test_a_saved_program_keeps_it(tmp_path: Path) -> None:
    run = flambeau.load(compiled(), profile="quick")
    run.save(tmp_path / "parts")
    again = flambeau.load(tmp_path / "parts.vmfb")
    given = {"a": torch.randn(5, 6)}, torch.randn(12, 6)
    torch.testing.assert_close(again(*given), Parts()(*given))
    with pytest.raises(ValueError, match=r"must be rows: 2\.\.9"):
        again({"a": torch.ones(1, 6)}, torch.ones(4, 6))


def test_it_survives_json() -> None:
    signature = compiled(output_type="torch").signature
    again = signature_from_json(signature_to_json("main", signature))
    assert str(again) == str(signature)
    assert again.symbols == signature.symbols


def test_two_arguments_of_one_symbol_agree() -> None:
    sizes = Sizes([Symbol("n", 1, 8)])
    sizes.check("x", (SymbolicDim("n", "n"), None), (4, 3))
    sizes.check("y", (SymbolicDim("2*n + 1", "n", 2, 1),), (9,))
    with pytest.raises(ValueError, match="of argument 'z' is 3, and must be 4: n is 4 in dimension 0 of argument 'x'"):
        sizes.check("z", (SymbolicDim("n", "n"),), (3,))


def test_a_module_of_several_functions_has_several() -> None:
    module = flambeau.compile({"f": (torch.relu, (torch.ones(2),)), "g": (torch.exp, (torch.ones(3),))})
    with pytest.raises(ValueError, match="its functions are: f, g"):
        _ = module.signature
    assert str(module.signatures["g"]) == "(args_0: float32[3]) -> float32[3]"


DATA_DEPENDENT = {
    "narrow": (lambda x: torch.arange(10).narrow(0, 0, x[0].item()), torch.tensor([3])),
    "list": (lambda x: torch.zeros(*x.tolist()) + 1, torch.tensor([3, 4])),
    "quotient": (lambda x: torch.ones(x.max().item() // 2 + 1), torch.tensor([3, 4])),
    "pad": (lambda x: nn.functional.pad(torch.ones(3), (0, x.sum().item())), torch.tensor([3, 4])),
    "slice": (lambda x: torch.arange(10)[: x.max().item()], torch.tensor([3, 4])),
    "repeat": (lambda x: torch.ones(5).repeat_interleave(x), torch.tensor([3, 4, 0, 1, 2])),
    "unique": (lambda x: torch.unique(x) * 2, torch.tensor([3, 4, 3])),
    "piecewise": (lambda x: torch.zeros(max(x.nonzero().shape[0], 2)), torch.tensor([3, 0, 3])),
    "number": (lambda x: (x.sum().item() + 1, x.float().mean().item()), torch.tensor([3, 4])),
}
"""Programs with sizes and numbers that come from data."""


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_sizes_that_come_from_data(target: str) -> None:
    entries: Any = {name: (function, (x,)) for name, (function, x) in DATA_DEPENDENT.items()}
    if target == "tosa":
        del entries["number"]  # a Python float has 64 bits
    run = flambeau.load(flambeau.compile(entries, output_type=target), profile="quick")
    for name, (function, (x,)) in entries.items():
        torch.testing.assert_close(run.function(name)(x), function(x), msg=name)


def test_a_number_that_python_asks_for_is_refused_with_the_line() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.arange(10)[: int(x.max().item())]

    with pytest.raises(flambeau.CompileError, match=r"(?s)test_fx_dims.py:\d+ in program.*Leave it out"):
        flambeau.compile(program, (torch.tensor([3, 4]),))
