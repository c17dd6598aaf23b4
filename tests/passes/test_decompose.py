"""Our decompositions: the text that they give, and the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from support import check_all

Check = Callable[[str, str], None]


def test_a_decomposition_reads_like_pytorch(filecheck: Check) -> None:
    filecheck(
        "torch-decompose-complex-ops,dce",
        """
        // CHECK: %[[D:.*]] = torch.aten.sub.Tensor %{{.*}}, %{{.*}}, %{{.*}} -> !torch.vtensor<[2,?],f32>
        // CHECK-NEXT: %[[S:.*]] = torch.aten.square %[[D]]
        // CHECK-NEXT: %[[M:.*]] = torch.aten.mean %[[S]]
        // CHECK-NEXT: func.return %[[M]] : !torch.vtensor<[],f32>
        func.func @f(%a: !torch.vtensor<[2,?],f32>, %b: !torch.vtensor<[2,?],f32>) -> !torch.vtensor<[],f32> {
          %int1 = torch.constant.int 1
          %0 = torch.aten.mse_loss %a, %b, %int1
            : !torch.vtensor<[2,?],f32>, !torch.vtensor<[2,?],f32>, !torch.int -> !torch.vtensor<[],f32>
          func.return %0 : !torch.vtensor<[],f32>
        }
        """,
    )


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
def test_decomposed_ops_match_eager(dynamic: bool) -> None:
    x, y = torch.rand(2, 8, 4, 6), torch.rand(2, 8, 4, 6)
    functions: list[Callable[..., torch.Tensor]] = [
        torch.logaddexp, torch.logaddexp2, lambda a, b: F.glu(a, 1), lambda a, b: F.cosine_similarity(a, b), F.mse_loss,
        F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, lambda a, b: F.pixel_shuffle(a, 2),
        lambda a, b: F.pixel_unshuffle(a, 2), lambda a, b: F.channel_shuffle(a, 2), torch.isclose, F.soft_margin_loss,
        F.pairwise_distance, lambda a, b: F.mse_loss(a, b, reduction="none"),
        lambda a, b: F.smooth_l1_loss(a, b, reduction="sum", beta=0.0),
    ]  # fmt: skip
    check_all([(f, (x, y)) for f in functions], dynamic=dynamic)
