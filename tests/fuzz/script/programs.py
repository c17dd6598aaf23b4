"""Random programs in the common language of Python and TorchScript.

The generator writes source text, statement by statement, and follows what each variable is: a tensor's shape and
strides (as a tensor on the meta device, on which PyTorch says whether an op is possible), what it may share memory
with, how long a list is. So nearly all programs are ones that PyTorch accepts; the few others are thrown away by
whoever runs them.
"""

from __future__ import annotations

from random import Random

import torch
from fuzz.script.statements import Statements
from fuzz.script.variables import (
    FLOAT,
    LONG,
    Helper,
    Program,
    Spec,
    Tensor,
    data_int,
)


class Generator(Statements):
    """Writes one program."""

    def returned(self) -> str:
        """Anything that the last return may give."""
        items: list[str] = []
        for _ in range(self.number(1, 4)):
            kind = self.weighted([(6, "tensor"), (2, "number"), (1, "float"), (1, "tuple")])
            if kind == "tensor":
                items.append(self.viewed(self.atom(), 20)[0])
            elif kind == "number":
                items.append(self.arithmetic()[0])
            elif kind == "float":
                items.append(f"float({self.atom()[0]}.sum())")
            else:
                items.append(f"({self.atom()[0]}, {self.integer()[0]})")
        return f"({', '.join([*items, self.total()])})"

    def total(self) -> str:
        """Write a number that depends on much of the program."""
        texts = [
            f"{p}.sum()" if v.meta.dtype is FLOAT else f"{p}.sum() * 0.5" for p, v in self.places() if self.chance(60)
        ]
        return " + ".join(texts) or "torch.zeros([])"

    def return_wanted(self) -> None:
        assert self.wanted is not None
        items = [self.like(w)[0] if isinstance(w, Tensor) else self.arithmetic()[0] for w in self.wanted]
        self.emit(f"return ({', '.join([*items, self.total()])})")

    def helper(self) -> None:
        """Define a small function that the program calls."""
        self.helpers_open = True
        name = f"g{len(self.helpers)}"
        kept = len(self.lines)
        metas = [self.random_tensor() for _ in range(self.number(1, 2))]
        names = [f"a{i}" for i in range(len(metas))]
        head = ["self"] if self.buffers else []
        self.emit(f"def {name}({', '.join([*head, *names])}):")
        with self.block() as block:
            block.scope.update(zip(names, metas, strict=True))
            self.left = 4
            self.body(1, 3)
            text, value = self.retry(self.expression)
            self.emit(f"return {text}")
        self.helpers.append(Helper(name, metas, value))
        self.helpers_open = False
        assert len(self.lines) > kept
        self.lines.append("")

    def random_tensor(self, dtype: torch.dtype = FLOAT) -> Tensor:
        shape = self.pick([(3,), (4,), (2, 3), (2, 2), (3, 4), (1, 3), (2, 3, 2), (2, 1, 3), (2, 2, 2)])
        return self.new(torch.empty(shape, dtype=dtype, device="meta"))

    def program(self) -> Program:
        """Write a program."""
        if self.chance(30):
            self.buffers = {f"b{i}": self.random_tensor() for i in range(self.number(1, 2))}
        while self.chance(30) and len(self.helpers) < 2:
            self.helper()
        arguments = {f"x{i}": self.random_tensor() for i in range(self.number(1, 3))}
        is_special = self.chance(15)
        specs = [Spec(*t.key, special=is_special) for t in arguments.values()]
        if self.chance(25):
            arguments["y"] = self.random_tensor(LONG)
            specs.append(Spec(*arguments["y"].key))
        head = ["self"] if self.buffers else []
        counts = self.chance(60)
        names = [*head, *arguments, *(["c"] if counts else [])]
        self.emit(f"def {'forward' if self.buffers else 'f'}({', '.join(names)}):")
        self.helpers_open = False
        with self.block() as block:
            block.scope.update(arguments)
            if counts:
                specs.append(Spec((), LONG, counts=True))
                self.emit("k = int(c.item())")
                self.define("k", data_int())
            if self.chance(25):
                floats = [t for t in arguments.values() if t.meta.dtype is FLOAT]
                self.wanted = [self.pick([*floats, 1]) for _ in range(self.number(1, 3))]
            self.left = self.number(4, 20)
            while self.left > 0:
                self.statement()
            if self.wanted is not None:
                self.return_wanted()
            else:
                self.emit(f"return {self.returned()}")
        buffers = tuple(Spec(*t.key) for t in self.buffers.values())
        return Program("\n".join(self.lines) + "\n", tuple(specs), buffers)


def generate(random: Random) -> Program:
    """Generate a random program."""
    return Generator(random).program()
