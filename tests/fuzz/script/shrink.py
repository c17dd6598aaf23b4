"""Make a failing program small: take away what it fails without."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

from fuzz.script.variables import Program


def shrink(program: Program, fails: Callable[[Program], bool], attempts: int = 600) -> Program:
    """Find the smallest program that still fails."""
    at, progress = 0, False
    candidates = list(smaller(program))
    for _ in range(attempts):
        if at >= len(candidates):
            if not progress:
                break
            at, progress = 0, False
        if fails(candidates[at]):
            program, progress = candidates[at], True
            candidates = list(smaller(program))
        else:
            at += 1
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, those that take away much first."""
    tree = ast.parse(program.source)
    sizes = [len(list(ast.walk(node))) for node in ast.walk(tree)]
    edits = []
    for at, node in enumerate(ast.walk(tree)):
        for kind, take in EDITS.items():
            if take(deepcopy(node)) is not None:
                edits.append((-sizes[at] if kind == "drop" else 0, at, kind))
    for _, at, kind in sorted(edits):
        copy = deepcopy(tree)
        if _edit(copy, at, EDITS[kind]):
            text = ast.unparse(ast.fix_missing_locations(copy)) + "\n"
            if text != program.source:
                yield replace(program, source=text)


def _edit(tree: ast.AST, at: int, take: Callable[[ast.AST], list[ast.AST] | None]) -> bool:
    """Replace the node of this number; False where that cannot be."""
    target = list(ast.walk(tree))[at]
    new = take(target)
    if new is None:
        return False
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target and len(new) == 1:
                setattr(parent, name, new[0])
                return True
            if isinstance(value, list) and any(v is target for v in value):
                i = next(i for i, v in enumerate(value) if v is target)
                value[i : i + 1] = new
                if not value and name == "body":
                    value.append(ast.Pass())
                return True
    return False


def _drop(node: ast.AST) -> list[ast.AST] | None:
    """Without a statement."""
    if isinstance(node, ast.stmt) and not isinstance(node, ast.Return | ast.Pass):
        return []
    return None


def _unwrap(node: ast.AST) -> list[ast.AST] | None:
    """Replace a branch or loop by its body; None for other nodes."""
    return list(node.body) if isinstance(node, ast.If | ast.For | ast.While) else None


def _other(node: ast.AST) -> list[ast.AST] | None:
    return list(node.orelse) if isinstance(node, ast.If) and node.orelse else None


def _without_else(node: ast.AST) -> list[ast.AST] | None:
    if isinstance(node, ast.If) and node.orelse:
        return [ast.If(node.test, node.body, [])]
    return None


def _first(node: ast.AST) -> list[ast.AST] | None:
    """One operand instead of an operation, what a method is called on instead of the call."""
    if isinstance(node, ast.BinOp):
        return [node.left]
    if isinstance(node, ast.BoolOp):
        return [node.values[0]]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value]
    if isinstance(node, ast.Subscript):
        return [node.value]
    return None


def _last(node: ast.AST) -> list[ast.AST] | None:
    if isinstance(node, ast.BinOp):
        return [node.right]
    if isinstance(node, ast.BoolOp):
        return [node.values[-1]]
    if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.List):
        return [node.args[0]]
    return None


def _shorter(index: int) -> Callable[[ast.AST], list[ast.AST] | None]:
    """Make a step that drops one element of a tuple or list."""

    def take(node: ast.AST) -> list[ast.AST] | None:
        if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load) and len(node.elts) > index + 1:
            return [type(node)([e for i, e in enumerate(node.elts) if i != index], node.ctx)]
        return None

    return take


def _only(index: int) -> Callable[[ast.AST], list[ast.AST] | None]:
    """One element instead of a tuple."""

    def take(node: ast.AST) -> list[ast.AST] | None:
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > index:
            return [node.elts[index]]
        return None

    return take


EDITS: dict[str, Callable[[ast.AST], list[ast.AST] | None]] = {
    "drop": _drop, "unwrap": _unwrap, "other": _other, "without else": _without_else, "first": _first, "last": _last,
    **{f"only {i}": _only(i) for i in range(5)}, **{f"without {i}": _shorter(i) for i in range(4)},
}  # fmt: skip
