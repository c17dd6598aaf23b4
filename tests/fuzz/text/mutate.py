"""Mutations of MLIR text: what an editor, a broken pipe or a careless script makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<value>%[\w$.#-]+(?:\:\d+)?)
  | (?P<block>\^\w+)
  | (?P<symbol>@[\w.$]+)
  | (?P<attribute>\#[\w.$]+)
  | (?P<type>![\w.$]+(?:<[^<>\n]*>)?|\b(?:tensor|vector|memref|complex)<[^<>\n]*>)
  | (?P<number>-?\b\d+(?:\.\d*)?(?:[eE][-+]?\d+)?\b)
  | (?P<word>[A-Za-z_][\w.$]*)
  | (?P<arrow>->)
  | (?P<mark>[^\s\w])
    """,
    re.VERBOSE,
)

NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "-9", "64", "4294967296", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "340282366920938463463374607431768211456", "9" * 5000, "1e400", "1.0", "-0.5", "0x7FC00000",
    "1000000000",
)  # fmt: skip
TYPES = (
    "!torch.vtensor<[2,3],f32>", "!torch.vtensor<[2,?],si64>", "!torch.vtensor<[],i1>", "!torch.vtensor", "!torch.int",
    "!torch.vtensor<[?,?],f64>", "!torch.vtensor<*,f32>", "!torch.tensor<[2,3],f32>", "!torch.none", "!torch.bool",
    "!torch.float", "!torch.str", "!torch.list<int>", "!torch.list<vtensor<[2,3],f32>>", "!torch.optional<int>",
    "!torch.tuple<int, float>", "!torch.any", "!torch.number", "!torch.Device", "!torch.dict<str, int>", "i1", "i64",
    "f32", "index", "tensor<2x3xf32>", "tensor<?x3xi64>", "tensor<f32>", "tensor<*xf32>", "tensor<0x3xf32>",
    "!torch.vtensor<[0,3],f32>", "!torch.vtensor<[9223372036854775807,9],f32>", "!torch.vtensor<[2,3],complex<f32>>",
    "!torch.vtensor<[2,3],bf16>", "!torch.vtensor<[2,3,1,1,1],f32>", "tensor<2x3xcomplex<f32>>", "none",
)  # fmt: skip
WORDS = (
    "true", "false", "unit", "dense", "affine_map", "func.func", "func.return", "torch.aten.relu", "torch.prim.If",
    "torch.prim.Loop", "torch.constant.int", "arith.addf", "linalg.generic", "stablehlo.add", "tosa.add",
    "builtin.module", "torch.aten.mm", "torch.aten.view", "torch.aten.sum.dim_IntList", "private", "loc", "ins", "outs",
)  # fmt: skip
MARKS = (*'(){}[]<>,:=@%#!"^-', "->", "{-#", "#-}", "//", "\\", "\n", "\0", "é", "²", "\ufeff")

Tokens = list[tuple[str, int, int]]


def tokens(text: str) -> Tokens:
    """List the kind, the start and the end of each token."""
    return [(m.lastgroup or "", m.start(), m.end()) for m in _TOKEN.finditer(text)]


def replace_by_kind(r: Random, text: str, other: str) -> str:
    """Replace a token by another of its kind, from this text, another one, or the lists above."""
    found = tokens(text)
    if not found:
        return text
    kind, start, end = r.choice(found)
    pools = {"number": NUMBERS, "type": TYPES, "word": WORDS, "mark": MARKS}
    near = [text[a:b] for k, a, b in found if k == kind]
    far = [other[a:b] for k, a, b in tokens(other) if k == kind]
    pool = r.choice([near, near, far or near, list(pools.get(kind, near))])
    return text[:start] + r.choice(pool) + text[end:]


def replace_everywhere(r: Random, text: str, other: str) -> str:
    """All occurrences of a number, a type, a name or a word become another of its kind, so that much stays valid."""
    found = [t for t in tokens(text) if t[0] in ("number", "type", "word", "symbol", "value")]
    if not found:
        return text
    kind, start, end = r.choice(found)
    old = text[start:end]
    far = [other[a:b] for k, a, b in tokens(other) if k == kind]
    near = [text[a:b] for k, a, b in found if k == kind]
    new = r.choice(r.choice([near, far or near, list({"number": NUMBERS, "type": TYPES}.get(kind, near))]))
    if len(new) > 100:
        return text
    changed, at = [], 0
    for k, a, b in found:
        if k == kind and text[a:b] == old:
            changed += [text[at:a], new]
            at = b
    return "".join([*changed, text[at:]])


def constant(r: Random, text: str, other: str) -> str:
    """Another number in one constant: what a program computes with changes, and little else."""
    found = list(re.finditer(r"(?<=torch\.constant\.int )-?\d+|(?<=value = )-?\d+(?= : i64)|\[[\d, ?]+\]", text))
    if not found:
        return replace_everywhere(r, text, other)
    at = r.choice(found)
    new = r.choice(["0", "1", "-1", "2", "3", "4", "5", "-2", "-3", "100", "4294967296", "9223372036854775807"])
    if at.group().startswith("["):
        sizes = at.group()[1:-1].split(",")
        sizes[r.randrange(len(sizes))] = r.choice([new, "?"])
        new = "[" + ",".join(sizes) + "]"
    return text[: at.start()] + new + text[at.end() :]


def delete_token(r: Random, text: str, other: str) -> str:
    found = tokens(text)
    if not found:
        return text
    _, start, end = r.choice(found)
    return text[:start] + text[end:]


def duplicate_token(r: Random, text: str, other: str) -> str:
    found = tokens(text)
    if not found:
        return text
    _, start, end = r.choice(found)
    return text[:end] + r.choice(["", " ", ", "]) + text[start:end] + text[end:]


def swap_tokens(r: Random, text: str, other: str) -> str:
    found = tokens(text)
    if len(found) < 2:
        return text
    (_, a, b), (_, c, d) = sorted(r.sample(found, 2), key=lambda t: t[1])
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def lines(r: Random, text: str, other: str) -> str:
    """Lines deleted, doubled, moved, or taken from another text."""
    rows = text.split("\n")
    i, j = r.randrange(len(rows)), r.randrange(len(rows))
    match r.randrange(4):
        case 0:
            del rows[i]
        case 1:
            rows.insert(j, rows[i])
        case 2:
            rows[i], rows[j] = rows[j], rows[i]
        case _:
            rows.insert(i, r.choice(other.split("\n")))
    return "\n".join(rows)


def characters(r: Random, text: str, other: str) -> str:
    """Delete, double, replace or insert a character."""
    if not text:
        return text
    at = r.randrange(len(text))
    new = r.choice([*MARKS, r.choice(text), chr(r.randrange(32, 127))])
    return text[:at] + r.choice(["", text[at] * 2, new, new + text[at]]) + text[at + 1 :]


def truncate(r: Random, text: str, other: str) -> str:
    at = r.randrange(len(text) + 1)
    return r.choice([text[:at], text[:at], text[at:], text[:at] + other[r.randrange(len(other)) :]])


def brackets(r: Random, text: str, other: str) -> str:
    """Insert a bracket or a quote that nobody closes, or many of them."""
    at = r.randrange(len(text) + 1)
    return text[:at] + r.choice('(){}[]<>"') * r.choice([1, 1, 2, 300, 2000]) + text[at:]


def nest(r: Random, text: str, other: str) -> str:
    """Nest the text, a type of it, or an attribute very deep inside itself."""
    depth = r.choice([3, 50, 400, 3000])
    match r.randrange(4):
        case 0:
            return "builtin.module {\n" * depth + text + "\n}" * depth
        case 1:
            found = [t for t in tokens(text) if t[0] == "type"]
            if not found:
                return text
            _, start, end = r.choice(found)
            inner = text[start:end].removeprefix("!torch.")
            outer = r.choice(["list<", "optional<", "tuple<"])
            return text[:start] + "!torch." + outer * depth + inner + ">" * depth + text[end:]
        case 2:
            at = text.find("{")
            return text[:at] + "attributes {a = " + "[" * depth + "]" * depth + "} " + text[at:]
        case _:
            rows = text.split("\n")
            rows.insert(r.randrange(len(rows)), "^bb:" * depth)
            return "\n".join(rows)


Mutation = Callable[[Random, str, str], str]
MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (replace_by_kind, 10), (replace_everywhere, 6), (constant, 8), (delete_token, 3), (duplicate_token, 2),
    (swap_tokens, 3), (lines, 5), (characters, 3), (truncate, 1), (brackets, 1), (nest, 1),
)  # fmt: skip


def mutate(r: Random, text: str, other: str) -> str:
    """One to four mutations; `other` is a text to take parts from."""
    functions, weights = zip(*MUTATIONS, strict=True)
    for function in r.choices(functions, weights, k=r.choice([1, 1, 1, 2, 3, 4])):
        text = function(r, text, other)
    return text
