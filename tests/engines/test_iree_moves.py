"""Branches of compiled programs copy the references that they pass."""

from __future__ import annotations

import pytest

from flambeau.engines.errors import EngineError
from flambeau.engines.iree import moves
from flambeau.engines.iree.compiler import compile_mlir

LISTING = """
vm.export @main
vm.func @main(%r0: !vm.ref<?>) -> (!vm.ref<?>) {
[00000000]^bb0:
[00000001]  vm.const.i64.zero %i0
[00000146]  vm.br ^bb1(%R1->%r6, %r2->%r5, %i10->%i30)
[0000015E]^bb1:
[00000166]  vm.cond_br %i6, ^bb2(), ^bb1(%i1->%i2)
[00000180]^bb2:
[00000181]  vm.return %R0
}
vm.func @__init() -> () {
[00000000]^bb0:
[00000010]  vm.br ^bb1(%R3->%r4)
[00000020]^bb1:
}
"""


def test_lists_are_read_from_a_listing() -> None:
    found = sorted(moves._lists_with_moves(LISTING))
    assert found == [(0x20, [0xC003, 0x8004]), (0x15E, [0xC001, 0x8006, 0x8002, 0x8005, 10, 30])]


def test_only_lists_behind_their_target_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_disassembly", lambda program: LISTING)
    first = bytes.fromhex("5e010000 0300 01c00680 02800580 0a001e00")
    second = bytes.fromhex("20000000 00 0100 03c00480")
    alone = bytes.fromhex("0100 03c00480")
    changed = moves.without_moves(alone + first + second)
    assert changed == alone + first.replace(b"\x01\xc0", b"\x01\x80") + second.replace(b"\x03\xc0", b"\x03\x80")
    with pytest.raises(EngineError, match="another form"):
        moves.without_moves(alone + first)


LOOP = b"""
func.func @main(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> (tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %sum = linalg.map { arith.addf } ins(%s, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>)
    scf.yield %sum : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""


@pytest.mark.engine
def test_a_compiled_loop_moves_nothing() -> None:
    program = compile_mlir(LOOP, profile="quick").vmfb
    assert "vm.br ^bb" in moves._disassembly(program)
    assert not [*moves._lists_with_moves(moves._disassembly(program))]


@pytest.mark.engine
def test_what_is_no_program_is_an_error() -> None:
    with pytest.raises(EngineError, match="iree-dump-module ended with"):
        moves.without_moves(b"nothing")
