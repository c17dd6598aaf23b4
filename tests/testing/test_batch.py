"""Cases all the way: `testing/batch.py`."""

from __future__ import annotations

import torch

from flambeau.testing.batch import eager_result
from flambeau.testing.cases import Call, Sample


def test_a_program_that_changes_its_argument_changes_a_copy():
    class Grown(torch.nn.Module):
        def forward(self, seen: Seen) -> torch.Tensor:
            seen.tensors.append(torch.ones(2))
            return torch.cat(seen.tensors)

    class Seen:
        def __init__(self) -> None:
            self.tensors = [torch.zeros(2)]

    sample = Sample(Grown(), [Call((Seen(),))])
    assert [len(eager_result(sample, sample.calls[0])) for _ in range(2)] == [4, 4]
