# ruff: noqa: SIM905, UP031 - what is written here is what scripts have
"""S82: scripts with strings, enumerations, tensors of lists and lists of objects, compiled and run by PyTorch's ops."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau import torchscript
from flambeau.diagnostics import CompileError

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


@program
def parts_of_strings(x: Tensor, k: int):
    words = "a,b,,c".split(",")
    name, _, value = "key=1=2".partition("=")
    path, _, last = "a/b/c".rpartition("/")
    lengths = [len(words), len(" a b  c ".split()), len("a-b-c".rsplit("-", 1)), len("x\ny\nz".splitlines())]
    return x * lengths[0] + lengths[1] - lengths[2] * lengths[3] + len(name) * len(value) - len(path) + len(last)


@program
def questions_about_strings(x: Tensor, k: int):
    count = 0
    for letter in "hello":
        if letter == "l":
            count += 1
    if "ell" in "hello" and "abc".isalpha() and not "a1".isdigit() and "b" < "c" and "hello".endswith("lo"):
        count += 10
    place = "hello".find("l") + "hello".rfind("l") + "hello".count("l") + "hello".index("o")
    return x * count + place + ord("a") + int("12") + float("1.5") + len("a".zfill(4) + "b".center(5, "*")[1:])


@program
def strings_that_are_made(x: Tensor, k: int):
    text = "%d-%s" % (3, "q") + "{}:{}".format(1, "z") + "Ab".swapcase().title().strip() + "-".join(["a", "b"])
    return x + len(text) + (1 if text.startswith("3-q1:zAb") else 0)


@program
def tensors_of_lists(x: Tensor, k: int):
    known = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    chosen = known[:, [0]] + torch.tensor([True, False]) + torch.tensor([[k, k * 2]], dtype=torch.float16)
    return chosen, torch.tensor([x.size(0), k]), torch.tensor([float(k), 0.5]), x[[1, 0]], torch.tensor([[k], [3]])


class Mode(enum.Enum):
    ADD = 1
    MULTIPLY = 2


class WithMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.MULTIPLY

    def forward(self, x: Tensor, k: int) -> Tensor:
        chosen = Mode.ADD if k > 2 else Mode.MULTIPLY
        if self.mode == Mode.ADD:
            return x
        for mode in Mode:
            x = x + mode.value * len(mode.name)
        if chosen != self.mode:
            x = x * 5
        return x * chosen.value


PROGRAMS.append(WithMode())


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda m: getattr(m, "__name__", type(m).__name__))
def test_a_script_does_what_python_does(model: Callable[..., Any]) -> None:
    x = torch.arange(6.0).view(3, 2)
    run = flambeau.load(torchscript.compile(torch.jit.script(model), (x, 1), "torch"), engine="eager")
    for k in (1, 5):
        torch.testing.assert_close(run(x, k), model(x, k))


@pytest.mark.engine
def test_the_same_on_iree() -> None:
    x = torch.arange(6.0).view(3, 2)
    for model in (tensors_of_lists, WithMode()):
        module = flambeau.compile(torch.jit.script(model), (x, 1))
        torch.testing.assert_close(flambeau.load(module, profile="quick")(x, 4), model(x, 4))


def ragged(x: Tensor, k: int):
    return torch.tensor([[1, 2], [3]])


def of_a_run_time_name(x: Tensor, k: int):
    mode = Mode.ADD if k > 2 else Mode.MULTIPLY
    return x + len(mode.name)


def a_string_of_no_number(x: Tensor, k: int):
    return x + int("k")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (ragged, "nested lists that have other lengths"),
        (of_a_run_time_name, "cannot give a !torch.str"),
        (a_string_of_no_number, "invalid literal for int"),
    ],
)
def test_what_has_no_answer_is_refused_with_the_line(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as error:
        flambeau.compile(torch.jit.script(function), (torch.ones(3, 2), 1))
    assert error.value.diagnostics[0].file == __file__
