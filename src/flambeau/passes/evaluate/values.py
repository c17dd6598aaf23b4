"""What an evaluator knows of a value.

A value is one of:

- an SSA value of the new program: only the run time knows it;
- `Known`: a Python number, string or None;
- `Tuple`: its elements are values;
- a `Cell`: something that can be written, so that identity counts: a list, a dictionary, an object, a storage;
- `View`: a tensor in PyTorch's sense. It looks at a `Storage` through a chain of view ops.

Whatever can change is changed through the `Heap`, which can tell what changed since some moment and undo it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from xdsl.ir import Attribute, SSAValue

from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.ops import ConstantOp, ListConstructOp
from flambeau.dialects.torch.types import BOOL, DEVICE, FLOAT, INT, NONE, STR
from flambeau.ir.locations import UNKNOWN

SERIAL = count()
"""Numbers for things in the order in which they are made."""


@dataclass(frozen=True, eq=False)
class Known:
    """A Python value."""

    value: Any

    def __eq__(self, other: object) -> bool:
        # repr tells 0.0 from -0.0 and takes NaN to be itself.
        return (
            isinstance(other, Known) and type(self.value) is type(other.value) and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash(repr(self.value))

    @property
    def type(self) -> Attribute:
        return type_of_constant(self.value)


def type_of_constant(value: Any) -> Attribute:
    """Find the torch type of a Python value."""
    if isinstance(value, Device):
        return DEVICE
    return {bool: BOOL, int: INT, float: FLOAT, str: STR, type(None): NONE}[type(value)]


@dataclass(frozen=True)
class Uninitialized:
    """A value that the program never looks at: what a variable holds on a path that does not set it."""

    type: Attribute


@dataclass(frozen=True, eq=False)
class Tuple:
    """A tuple."""

    items: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Maybe:
    """A value or None, as a flag says at run time."""

    flag: Any
    """A known or unknown bool: whether there is a value."""
    value: Any


@dataclass(eq=False)
class Cell:
    """Something that can be written."""

    content: Any
    depth: int = 0
    """How many regions are around the place where it was made."""
    links: tuple[Link, ...] = ()
    stale: Stale | None = None
    """Set once it may have been written through an alias, so that nobody may look at it any more."""
    born: int = field(default_factory=SERIAL.__next__)


@dataclass(eq=False)
class List(Cell):
    """A list; `content` is a Python tuple of values."""

    element_type: Attribute = NONE


@dataclass(eq=False)
class Dict(Cell):
    """A dictionary; `content` is a Python tuple of pairs of values."""

    type: Attribute = NONE


@dataclass(eq=False)
class Object(Cell):
    """An instance of a class; `content` is a Python tuple of pairs of name and value."""

    type: Attribute = NONE


@dataclass(eq=False)
class Storage(Cell):
    """What the tensors of an alias set share; `content` is the SSA value of the whole, a value tensor."""

    argument: SSAValue | None = None
    """The function's argument that this storage belongs to, if the caller can see it."""
    is_contiguous: bool = False
    location: Attribute = UNKNOWN
    """Where the tensor was made."""


@dataclass(frozen=True)
class Step:
    """One view op: how to look at a part of a tensor."""

    name: str
    operands: tuple[SSAValue, ...]
    """The op's operands after the tensor."""
    type: Attribute
    """The value type of the part."""

    def same(self, other: Step) -> bool:
        return self.name == other.name and all(map(same_operand, self.operands, other.operands))


def same_operand(a: SSAValue, b: SSAValue) -> bool:
    """Tell whether two operands are one value, or equal constants."""
    if a is b:
        return True
    if isinstance(a.owner, ConstantOp) and isinstance(b.owner, ConstantOp):
        return Known(a.owner.python_value) == Known(b.owner.python_value)
    if isinstance(a.owner, ListConstructOp) and isinstance(b.owner, ListConstructOp):
        return len(a.owner.operands) == len(b.owner.operands) and all(
            map(same_operand, a.owner.operands, b.owner.operands)
        )
    return False


@dataclass(eq=False)
class View:
    """A tensor: a storage and the way from it. One of these is one tensor object of the program."""

    storage: Storage
    steps: tuple[Step, ...] = ()
    cached: SSAValue | None = None
    cached_from: Any = None
    """The content of the storage that `cached` was read from."""
    born: int = field(default_factory=SERIAL.__next__)

    @property
    def type(self) -> Attribute:
        """The value type of the tensor."""
        type_: Attribute = self.steps[-1].type if self.steps else self.storage.content.type
        return type_

    def same(self, other: View) -> bool:
        """Tell whether both look at the same part of the same storage."""
        return (
            self.storage is other.storage
            and len(self.steps) == len(other.steps)
            and all(a.same(b) for a, b in zip(self.steps, other.steps, strict=True))
        )


@dataclass(frozen=True, eq=False)
class Link:
    """A storage or list that may be another one under a second name."""

    other: Cell
    """The other one; it has the twin of this link."""
    condition: SSAValue | None = None
    """The link holds where this is true; None where nothing in the program tells."""
    view: View | None = None
    """The view (of one of the two) that is the whole of the other; None where nothing tells."""
    location: Attribute = UNKNOWN
    """Where the two became aliases."""


@dataclass(frozen=True)
class Both:
    """True where all of these flags are."""

    flags: tuple[SSAValue, ...]


@dataclass(frozen=True, eq=False)
class Way:
    """How a storage that may be another is that other: as a view of it, where some flags are true."""

    condition: Both
    view: View


@dataclass(frozen=True)
class Either:
    """True where one of these conjunctions is."""

    options: tuple[Both, ...]


@dataclass(frozen=True)
class Stale:
    """Why a storage may not be looked at: it was written through an alias."""

    written_at: Attribute
    aliased_at: Attribute


@dataclass
class Heap:
    """Journals every change, so that a branch can be tried and taken back."""

    log: list[tuple[Any, str, Any]] = field(default_factory=list)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Change an attribute of a cell or view."""
        self.log.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def mark(self) -> int:
        return len(self.log)

    def changed(self, mark: int) -> Iterator[tuple[Any, str, Any]]:
        """List what was changed since, each once, with what it was before."""
        seen: set[tuple[int, str]] = set()
        for owner, name, before in self.log[mark:]:
            if (id(owner), name) not in seen:
                seen.add((id(owner), name))
                yield owner, name, before

    def undo(self, mark: int) -> None:
        """Take back everything since."""
        while len(self.log) > mark:
            owner, name, value = self.log.pop()
            setattr(owner, name, value)
