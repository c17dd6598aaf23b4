"""Dead code goes, and takes its shape bindings along."""

from __future__ import annotations

from collections.abc import Callable


def test_unused_ops_and_their_shape_bindings_go(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        "dce",
        """
        // CHECK: func.func @f
        // CHECK-NEXT: torch.symbolic_int "s0"
        // CHECK-NEXT: torch.bind_symbolic_shape %a
        // CHECK-NEXT: func.return %a
        func.func @f(%a: !torch.vtensor<[?],f32>) -> !torch.vtensor<[?],f32> {
          %s = torch.symbolic_int "s0" {min_val = 0, max_val = 9} : !torch.int
          torch.bind_symbolic_shape %a, [%s], affine_map<()[s0] -> (s0)> : !torch.vtensor<[?],f32>
          %0 = torch.aten.relu %a : !torch.vtensor<[?],f32> -> !torch.vtensor<[?],f32>
          torch.bind_symbolic_shape %0, [%s], affine_map<()[s0] -> (s0)> : !torch.vtensor<[?],f32>
          func.return %a : !torch.vtensor<[?],f32>
        }
        """,
    )
