"""Rows of keys: elements as unsigned integers, in the order that they are sorted and selected by.

A sort distributes keys and positions by one digit of 8 bits after the other, from the lowest; each pass is stable, so
the whole is. That is one loop over the elements for each digit, whatever they are. On their way a key and its position
are packed into 64 bits where they fit: a digit has 256 places to write to then, and not 512. Elements are made of the
sorted keys; only of zeros and NaN, where several have one key, are they taken from where they were. The k-th key is
found digit by digit from the highest. Short rows are sorted by counting how many keys come before each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.verbs import RuleBuilder

DIGIT = 8
RADIX = 1 << DIGIT
SHORT = 64
"""Up to so many elements are sorted by counting."""

_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


@dataclass(frozen=True)
class Order:
    """An order of elements, as that of unsigned integers of the same width."""

    dtype: DType
    descending: bool
    nan_last: bool = False
    """Whether NaN is the greatest in descending order too, where it would be the least."""

    @property
    def kind(self) -> DType:
        """The dtype of keys."""
        return _UNSIGNED[self.dtype.size]

    @property
    def _sign(self) -> int:
        return 1 << (self.kind.bits - 1)

    def key(self, e: Element) -> Element:
        """Map an element to an integer: equal ones for equal elements, the greatest for NaN."""
        kind, sign = self.kind, self._sign
        if self.dtype.is_float:
            bits = e.bits(kind)
            bits = (bits == sign).select(0, bits)  # one zero, not two; by its bits, as engines may flush denormals
            ordered = (bits >= sign).select(~bits, bits | sign)
            ordered = e.isnan().select(self._nan, ordered)
        else:
            ordered = e.to(kind) ^ self._flipped
        return ~ordered if self.descending else ordered

    @property
    def _nan(self) -> int:
        return 0 if self.descending and self.nan_last else (1 << self.kind.bits) - 1

    @property
    def _flipped(self) -> int:
        return self._sign if self.dtype.is_int and self.dtype.signed else 0

    def keys(self, b: RuleBuilder, x: Tensor) -> Tensor:
        """Map elements to integers."""
        return b.elementwise([x], self.key, self.kind)

    def element(self, key: Element) -> Element:
        """Map a key back to the element that it comes from, unless it stands for several."""
        ordered = ~key if self.descending else key
        if not self.dtype.is_float:
            return (ordered ^ self._flipped).to(self.dtype)
        return (ordered >= self._sign).select(ordered ^ self._sign, ~ordered).bits(self.dtype)

    def stands_for_several(self, key: Element) -> Element | None:
        """Tell whether a key is that of both zeros, or of all NaNs; None where no key is."""
        if not self.dtype.is_float:
            return None
        ordered = ~key if self.descending else key
        return (ordered == self._sign) | (ordered == self._nan)


@dataclass
class Row:
    """A row that is sorted, and where."""

    b: RuleBuilder
    x: Tensor
    """All rows of elements."""
    order: Order
    keys: Tensor
    """The keys of all rows."""
    row: Size
    count: Size
    """How many keys the row has."""
    numbers: Tensor | None = None
    """The positions that the keys come from; by default 0, 1, 2 ..."""

    def key(self, i: Size) -> Element:
        return self.b.load(self.keys, self._at(self.keys, i))

    def number(self, i: Size, dtype: DType) -> Element:
        numbers = self.numbers
        at = self.b.element(i, dtypes.int64) if numbers is None else self.b.load(numbers, self._at(numbers, i))
        return at.to(dtype)

    def _given(self, i: Size) -> list[Element]:
        return [self.key(i), self.number(i, dtypes.int64)]

    def _at(self, room: Tensor, i: Size) -> list[Size]:
        """Return the position of element i, in a tensor for all rows, or for one."""
        return [self.row, i] if room.rank == 2 else [i]

    def _read(self, room: Sequence[Tensor], i: Size) -> list[Element]:
        """Read a key and its position: from a tensor for each, or packed into one of 64 bits."""
        found = [self.b.load(t, self._at(t, i)) for t in room]
        if len(found) == 2:
            return found
        return [(found[0] >> 32).to(self.keys.dtype), found[0].to(dtypes.uint32).to(dtypes.int64)]

    def _write(self, room: Sequence[Tensor], i: Size, key: Element, number: Element) -> list[Tensor]:
        own = [key, number] if len(room) == 2 else [(key.to(dtypes.int64) << 32) | number.to(dtypes.int64)]
        return [self.b.store(t, self._at(t, i), e.to(t.dtype)) for t, e in zip(room, own, strict=True)]

    def finish(self, out: Sequence[Tensor], i: Size, key: Element, number: Element) -> list[Tensor]:
        """Write the element that a key stands for, and its position."""
        b, value = self.b, self.order.element(key)
        if (is_open := self.order.stands_for_several(key)) is not None:
            value = b.branch(is_open, [value], lambda: [b.load(self.x, [self.row, b.as_index(number)])])[0]
        return [b.store(t, self._at(t, i), e.to(t.dtype)) for t, e in zip(out, (value, number), strict=True)]

    @property
    def digits(self) -> int:
        return self.keys.dtype.size

    def digit(self, key: Element, number: int) -> SSAValue:
        """Extract a digit of a key as an index, 0 for the lowest."""
        return self.b.as_index(((key >> (DIGIT * number)) & (RADIX - 1)).to(dtypes.int64))

    def zeros(self, size: int) -> Tensor:
        b = self.b
        return b.loop(0, size, [b.empty([size], dtypes.int32)], lambda i, t: [b.store(t, [i], b.element(0, t.dtype))])[
            0
        ]

    def _is_everywhere(self, counts: Tensor, d: int) -> Element:
        """Tell whether all keys have the same digit, so that they are in its order already."""
        b = self.b
        same = b.load(counts, [b.add(self.digit(self.key(0), d), d * RADIX)])
        return same.to(dtypes.int64) == b.element(self.count, dtypes.int64)

    def by_counting(self, *out: Tensor) -> list[Tensor]:
        """Write elements and positions in order: the place of one is the number of those that come before it."""
        b = self.b

        def place(i: SSAValue, *out: Tensor) -> list[Tensor]:
            mine = self.key(i)

            def count(j: SSAValue, before: Element) -> list[Element]:
                other, is_earlier = self.key(j), b.scalar_bool(b.compare("slt", j, i))
                return [before + ((other < mine) | ((other == mine) & is_earlier)).to(before.dtype)]

            at = b.loop(0, self.count, [b.element(0, dtypes.int64)], count)[0]
            return self.finish(out, b.as_index(at), mine, self.number(i, out[1].dtype))

        return b.loop(0, self.count, out, place)

    def _tallied(self) -> tuple[Tensor, list[Element | None]]:
        """Compute where the keys of each digit begin, and for keys of 64 bits in which digits all are equal."""
        b, digits = self.b, self.digits

        def tally(i: SSAValue, counts: Tensor) -> list[Tensor]:
            key = self.key(i)
            for d in range(digits):
                at = b.add(self.digit(key, d), d * RADIX)
                counts = b.store(counts, [at], b.load(counts, [at]) + 1)
            return [counts]

        def accumulate(i: SSAValue, total: Element, counts: Tensor) -> list[Any]:
            # Each digit starts from 0 again.
            total = b.scalar_bool(b.compare("eq", b.mod(i, RADIX), 0)).select(0, total)
            return [total + b.load(counts, [i]), b.store(counts, [i], total)]

        counts = b.loop(0, self.count, [self.zeros(digits * RADIX)], tally)[0]
        are_equal = [self._is_everywhere(counts, d) if digits == 8 else None for d in range(digits)]
        return b.loop(0, digits * RADIX, [b.element(0, dtypes.int32), counts], accumulate)[1], are_equal

    def by_digits(self, *rooms: Tensor) -> list[Tensor]:
        """Write elements and positions in order.

        Besides the tensors for them there is room for a row of keys and positions, packed into one tensor, and the
        positions of the result are a second one; or for two rows of keys and one of positions. One digit needs none.
        """
        b, digits, state = self.b, self.digits, list(rooms)
        counts, are_equal = self._tallied()
        out = [0, 1]
        first, second = ([2, 3], [4, 1]) if len(state) == 5 else ([2], [1])

        def distribute(d: int, source: Sequence[Tensor], room: Sequence[Tensor], counts: Tensor) -> list[Tensor]:
            """Put keys and positions in the order of one digit, from one room to another."""
            write = self.finish if d == digits - 1 else self._write

            def element(i: SSAValue) -> list[Element]:
                return self._given(i) if d == 0 else self._read(source, i)

            def copy(i: SSAValue, *room: Tensor) -> list[Tensor]:
                return write(room, i, *element(i))

            def turn(i: SSAValue, counts: Tensor, *room: Tensor) -> list[Tensor]:
                key, number = element(i)
                bucket = b.add(self.digit(key, d), d * RADIX)
                place = b.load(counts, [bucket])
                return [b.store(counts, [bucket], place + 1), *write(room, b.as_index(place), key, number)]

            carried = [counts, *room]
            if (is_equal := are_equal[d]) is None:
                return b.loop(0, self.count, carried, turn)
            return b.branch(
                is_equal,
                carried,
                lambda: [counts, *b.loop(0, self.count, room, copy)],
                lambda: b.loop(0, self.count, carried, turn),
            )

        for d in range(digits):
            # The last pass reads the first room; those before it go back and forth between the two.
            to, source = (first, second) if (digits - d) % 2 == 0 else (second, first)
            to = out if d == digits - 1 else to
            given = [state[j] for j in source] if d else []
            counts, *written = distribute(d, given, [state[j] for j in to], counts)
            for j, t in zip(to, written, strict=True):
                state[j] = t
        return state

    def threshold(self, k: Size) -> tuple[Element, Element]:
        """Find the k-th least key, counted from 1, and how many of the keys equal to it belong to the k least."""
        b, kind = self.b, self.keys.dtype
        found, left = b.element(0, kind), b.element(k, dtypes.int32)
        for d in reversed(range(self.digits)):

            def tally(i: SSAValue, counts: Tensor, d: int = d, found: Element = found) -> list[Tensor]:
                key = self.key(i)
                at = self.digit(key, d)
                if d == self.digits - 1:
                    return [b.store(counts, [at], b.load(counts, [at]) + 1)]
                is_candidate = (key >> (DIGIT * (d + 1))) == found
                return b.branch(is_candidate, [counts], lambda: [b.store(counts, [at], b.load(counts, [at]) + 1)])

            counts = b.loop(0, self.count, [self.zeros(RADIX)], tally)[0]

            def choose(i: SSAValue, left: Element, chosen: Element, is_found: Element, counts: Tensor = counts) -> Any:
                here = b.load(counts, [i])
                is_here = ~is_found & (left <= here)
                passed = is_found | is_here
                return [passed.select(left, left - here), is_here.select(b.scalar(i).to(kind), chosen), passed]

            start = [left, b.element(0, kind), b.element(False, dtypes.bool_)]
            left, chosen, _ = b.loop(0, RADIX, start, choose)
            found = chosen if d == self.digits - 1 else (found << DIGIT) | chosen
        return found, left

    def least(self, k: Size, keys: Tensor, numbers: Tensor, in_place: bool = False) -> list[Any]:
        """Write the k least keys and their positions as they come: of those that equal the k-th, the first ones.

        With `in_place` keys and positions are those in the tensors that are written. The k-th key is returned first.
        """
        b = self.b
        limit, ties = self.threshold(k)

        def take(j: SSAValue, taken: Element, left: Element, keys: Tensor, numbers: Tensor) -> list[Any]:
            key, number = self._read((keys, numbers), j) if in_place else self._given(j)
            is_tie = key == limit
            is_taken = (key < limit) | (is_tie & (left > 0))

            def write() -> list[Any]:
                written = self._write((keys, numbers), b.as_index(taken), key, number)
                return [taken + 1, is_tie.select(left - 1, left), *written]

            return b.branch(is_taken, [taken, left, keys, numbers], write)

        return [limit, *b.loop(0, self.count, [b.element(0, dtypes.int64), ties, keys, numbers], take)[2:]]

    def collected(self, k: int, keys: Tensor, numbers: Tensor) -> list[Tensor]:
        """Write the k least keys and their positions as they come, in one pass, with room for `collecting(k)` more.

        Keys below a bar are collected. Where there are too many the k least are kept, and the bar is the last of them.
        """
        b, count, block = self.b, self.count, collecting(k)
        blocks = b.ceildiv(count, block)

        def turn(j: SSAValue, filled: Element, bar: Element, is_open: Element, keys: Tensor, numbers: Tensor) -> Any:
            def collect(i: SSAValue, filled: Element, keys: Tensor, numbers: Tensor) -> list[Any]:
                key, number = self._given(i)

                def take() -> list[Any]:
                    return [filled + 1, *self._write((keys, numbers), b.as_index(filled), key, number)]

                return b.branch((key < bar) | is_open, [filled, keys, numbers], take)

            lower = b.mul(j, block)
            span = lower, b.minimum(b.add(lower, block), count)
            filled, keys, numbers = b.loop(*span, [filled, keys, numbers], collect)
            is_last = b.scalar_bool(b.compare("eq", b.add(j, 1), blocks))

            def keep() -> list[Any]:
                row = Row(b, self.x, self.order, keys, self.row, b.as_index(filled), numbers)
                limit, *kept = row.least(k, keys, numbers, True)
                return [b.element(k, filled.dtype), limit, b.element(False, dtypes.bool_), *kept]

            # The next block has room behind them.
            is_full = filled > k + block // 4
            return b.branch(is_full | is_last, [filled, bar, is_open, keys, numbers], keep)

        start = [b.element(0, dtypes.int64), b.element(0, self.keys.dtype), b.element(True, dtypes.bool_)]
        return b.loop(0, blocks, [*start, keys, numbers], turn)[3:]


def collecting(k: int) -> int:
    """Choose how many keys are gone through before it is seen whether too many are collected."""
    return max(1024, 4 * k)
