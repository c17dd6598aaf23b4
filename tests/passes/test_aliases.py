"""Tensors, lists and tuples under several names: scripted programs whose flags and counts are known at run time only.

Each program is compiled once and run for all flags and counts; PyTorch says what must come out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import torchscript
from flambeau.diagnostics import CompileError

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


# --- Branches ---


@program
def a_view_of_one_or_the_other(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a if p else b
    c[0].neg_()
    return a, b, c


@program
def an_original_is_written_and_a_view_of_the_choice_read(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a if p else b
    v = c[0]
    a.neg_()
    v += 1
    return a, b, c


@program
def a_choice_of_a_choice(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a if p else b
    d = c if q else a
    d.neg_()
    a += 1
    return a, b, c, d


@program
def rows_of_one_or_the_other(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        c = a[0]
    else:
        c = b[1]
    a += 1
    c.neg_()
    return a, b, c


@program
def a_row_or_a_copy(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a[0] if p else a[1].clone()
    c.neg_()
    a *= 2
    return a, b, c


@program
def the_branches_write_what_they_give(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        a += 1
        c = a
    else:
        b.neg_()
        c = b
    c += 1
    return a, b, c


@program
def a_pair_in_one_order_or_the_other(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    t = (a, b) if p else (b, a)
    t[0].add_(1)
    t[1].neg_()
    return a, b, t[0], t[1]


@program
def one_tensor_twice(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    t = (a, a) if p else (b, b)
    t[0].add_(1)
    t[1].neg_()
    return a, b, t[0], t[1]


@program
def a_tensor_or_none(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    o: Tensor | None = None
    if p:
        o = a
    if o is not None:
        o.neg_()
    return a, b


@program
def a_row_that_the_run_time_chooses(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v = a[n % 2]
    v.neg_()
    a += 1
    return a, b, v


@program
def a_return_in_a_branch(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        a += 1
        return a, b
    if q:
        b.neg_()
        return b, a
    return a, a


@program
def a_view_of_an_argument_or_of_a_copy(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        c = a.t()
    else:
        c = b.clone().t()
    c.add_(1)
    return a, b, c


@program
def names_that_change_places_if_a_tensor_says_so(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if bool(a.sum() > b.sum()):
        a, b = b, a
    a += 1
    return a, b


# --- Loops ---


@program
def inner_and_outer_loop(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    for _ in range(n):
        for j in range(n):
            a[1] += j
    return a, b


@program
def only_the_first_iteration_writes_to_the_original(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a
    for _ in range(n):
        c += 1
        c = c * 2
    return a, b, c


@program
def a_branch_in_a_loop_keeps_or_replaces(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a
    for _ in range(n):
        if q:
            c = c + 1
        c.neg_()
    return a, b, c


@program
def a_branch_in_a_loop_goes_over_to_another(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a
    for i in range(n):
        if q and i == 1:
            c = b
        c += 1
    c.neg_()
    return a, b, c


@program
def a_row_of_another_number_in_each_iteration(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v = a[0]
    for _ in range(n):
        v.neg_()
        v = a[1]
    v += 1
    return a, b, v


@program
def the_last_and_the_one_before(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    last, before = a, b
    for _ in range(n):
        before.neg_()
        last, before = last + 1, last
    before += 1
    return a, b, last, before


@program
def two_change_places(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c, d = a, b
    for _ in range(n):
        c += 1
        c, d = d, c
    return a, b, c, d


@program
def one_of_two_that_changed_places_is_written(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c, d = a, b
    for _ in range(n):
        c, d = d, c
    c += 1
    return a, b, c, d


@program
def what_the_loop_gives_is_written(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a
    for _ in range(n):
        c = b
    c.neg_()
    return a, b, c


@program
def a_loop_that_a_tensor_ends(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    i = 0
    while bool(a.sum() < 20) and i < n:
        a += 1
        i += 1
    return a, b, i


@program
def a_break(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    for i in range(n):
        if q and i == 1:
            break
        a += 1
    return a, b


@program
def a_tuple_in_a_loop(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    t = (a, b)
    for _ in range(n):
        t[0].add_(1)
        t = (t[1], t[0])
    t[0].neg_()
    return a, b, t[0]


@program
def a_view_of_what_a_loop_carries(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a
    for _ in range(n):
        v = c[0]
        v += 1
        if p:
            c = c * 1
    v2 = c[1]
    v2.neg_()
    return a, b, c


@program
def a_return_in_a_loop(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    for i in range(n):
        a += 1
        if q and i == 1:
            return a, b
        b.neg_()
    return b, a


@program
def two_views_change_places(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v, w = a[0], a[1]
    for _ in range(n):
        v, w = w, v
    v += 1
    w *= 3
    return a, b, v, w


@program
def a_loop_that_runs_once_at_least(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    done = False
    i = 0
    while not done:
        i += 1
        a += i
        done = i >= n or q
    return a, b, i


# --- Lists and dictionaries ---


@program
def a_list_whose_element_a_loop_replaces(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items = [a, b]
    for _ in range(n):
        items[0] = items[0] + 1
    c = items[0]
    c += 1
    return a, b, c


@program
def a_list_whose_elements_a_loop_exchanges(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items = [a, b]
    for _ in range(n):
        first = items[0]
        first += 1
        items[0] = items[1]
        items[1] = first
    c = items[0]
    c.neg_()
    return a, b, c


@program
def a_list_whose_element_a_branch_replaces(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items = [a, b]
    if p:
        items[0] = b
    c = items[0]
    c.neg_()
    return a, b, c


@program
def one_list_or_another(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items = [a, b] if p else [b, a]
    c = items[0]
    c.neg_()
    return a, b, c


@program
def a_list_under_two_names(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items = [a]
    same = items
    same.append(b)
    items[1].neg_()
    return a, b, len(items)


@program
def a_dictionary_in_a_loop(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    d: dict[str, Tensor] = {"a": a}
    for _ in range(n):
        d["a"] = d["a"] * 2
    d["b"] = b
    d["b"].neg_()
    return a, b, d["a"]


@program
def views_in_a_list(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    rows: list[Tensor] = []
    for i in range(2):
        rows.append(a[i])
    a += 1
    rows[1].neg_()
    return a, b, torch.stack(rows)


@program
def views_change_places_in_a_list(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    rows = [a[0], a[1]]
    for _ in range(n):
        rows[0] += 1
        rows[1] *= 2
        rows[0], rows[1] = rows[1], rows[0]
    return a, b, rows[0], rows[1]


@program
def a_list_with_none_in_it(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    items: list[Tensor | None] = [None, a]
    if p:
        items[0] = b
    x = items[0]
    if x is not None:
        x.neg_()
    y = items[1]
    if y is not None:
        y += 1
    return a, b


@program
def a_dictionary_that_a_branch_changes(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    d = {"x": a, "y": b}
    if p:
        d["x"] = b
    d["x"].add_(1)
    for v in d.values():
        v.neg_()
    return a, b, d["x"]


@program
def a_pair_of_lists_in_one_order_or_the_other(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    xs = [a]
    ys = [b]
    t = (xs, ys) if p else (ys, xs)
    t[0][0].add_(1)
    return a, b, len(xs)


@program
def a_new_list_in_each_iteration(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    xs = [a, b]
    for _ in range(n):
        xs = [xs[1], xs[0] + 1]
    xs[0].neg_()
    return a, b, xs[0], xs[1]


# --- Views ---


@program
def overlapping_parts(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    left, right = a[:, 0:2], a[:, 1:3]
    left += 1
    right.neg_()
    left += 1
    return a, b, left, right


@program
def a_view_that_changes_its_shape(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v = a.detach()
    v.t_()
    v[0] += 1
    v.unsqueeze_(0)
    return a, b, v


@program
def a_row_is_copied_over_a_matrix(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    b.copy_(a[0])
    a.fill_(3.0)
    return a, b


@program
def a_mask_over_a_view(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v = a.t()
    v.masked_fill_(v < 0, 0.0)
    a[b > 0] = 7.0
    return a, b, v


@program
def a_view_is_added_to_its_neighbour(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    a += a.clone()
    v = a[0]
    a[1] += v
    v -= a[1]
    return a, b


@program
def chunks_are_views(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    x, y, z = a.chunk(3, 1)
    x += 1
    y.neg_()
    z.copy_(x)
    return a, b, y


@program
def what_is_stacked_is_copied(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    s = torch.stack([a, b])
    s[0] += 1
    t = s if p else s.clone()
    t[1].neg_()
    return a, b, s, t


@program
def one_view_on_two_ways(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    v = a.t()[0]
    w = a[:, 0]
    v += 1
    w *= 2
    return a, b, v, w


@program
def an_alias_and_a_copy_of_one_tensor(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c = a.t().reshape(6)
    d = a.reshape(6)
    c += 1
    d += 2
    return a, b, c, d


@program
def a_list_made_in_a_branch_has_two_names(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        x = [a + 1]
        y = x
    else:
        x = [b * 2]
        y = x
    y[0] = b - 1
    return x[0], y[0]


@program
def a_list_that_a_loop_makes_anew_or_not(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    x = [a]
    for _ in range(n):
        x = [x[0] + b]
    x[0] = x[0] * 2
    return x[0]


@torch.jit.script
class Pair:
    def __init__(self, x: Tensor, count: int) -> None:
        self.x = x
        self.count = count

    def add(self, y: Tensor) -> None:
        self.x = self.x + y
        self.count += 1

    def scaled(self) -> Tensor:
        return self.x * self.count


@torch.jit.script
class Holder:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.last = pair

    def renew(self, x: Tensor) -> Pair:
        self.last = Pair(x, 7)
        return self.last


@program
def objects_that_the_program_makes(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    first = Pair(a, n)
    for _ in range(n):
        first.add(b)
    holder = Holder(first)
    new = holder.renew(b)
    holder.pair.x[0] += 1
    new.count = 3
    pairs = [first, holder.last]
    total = 0
    for pair in pairs:
        total += pair.count
    return first.scaled(), holder.last.scaled(), total


@program
def objects_that_a_branch_makes(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        pair = Pair(a, 1)
        other = pair
    else:
        pair = Pair(b + 1, 2)
        other = pair
    if q:
        other.add(a)
    return pair.scaled(), other.count


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_a_compiled_program_does_what_pytorch_does(function: Callable[..., Any]) -> None:
    """S15, S17, S82: whatever the flags and counts; the arguments are compared too."""
    module = torchscript.compile(function, (True, True, 1, torch.zeros(2, 3), torch.zeros(2, 3)), "torch")
    run = flambeau.load(module, engine="eager")
    for p, q, n in itertools.product((True, False), (True, False), (0, 1, 2, 5)):
        ours, eagers = ([torch.arange(-3.0, 3.0).view(2, 3), torch.arange(6.0).view(2, 3)] for _ in range(2))
        expected = function(p, q, n, *eagers)
        torch.testing.assert_close(run(p, q, n, *ours), expected, msg=lambda m: f"{m}\n{module}")
        torch.testing.assert_close(ours, eagers)


def exchanged(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    c, d = a, b
    for _ in range(n):
        if p:
            c, d = d, c
        else:
            c = c + 1
        if q:
            d += 1
        c *= 2
    return a, b, c, d


def test_what_nobody_can_tell_is_refused_with_the_lines() -> None:
    """A write that may reach a tensor under another name, in a way that the program keeps no record of."""
    with pytest.raises(CompileError, match="clone") as error:
        torchscript.compile(exchanged, (True, True, 1, torch.zeros(2, 3), torch.zeros(2, 3)), "torch")
    assert "may have been written through an alias" in str(error.value)
    assert "`d += 1`" in str(error.value)
    assert all(d.file == __file__ for d in error.value.diagnostics)


def one_list_or_two(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    x, y = [a], [b]
    for _ in range(n):
        x = [x[0] + 1]
        y = x
    y[0] = a
    return x[0]


def one_object_or_two(p: bool, q: bool, n: int, a: Tensor, b: Tensor):
    if p:
        x, y = Pair(a, 1), Pair(a, 1)
    else:
        x = Pair(b, 2)
        y = x
    y.add(a)
    return x.x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (one_list_or_two, "two variables name one list in a loop whose trip count is not known"),
        (one_object_or_two, "two variables name one container after one branch, and two after the other"),
    ],
)
def test_containers_that_are_one_on_some_paths_are_refused(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        torchscript.compile(function, (True, True, 1, torch.zeros(2, 3), torch.zeros(2, 3)), "torch")
