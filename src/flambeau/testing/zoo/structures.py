"""Architectures for graphs, tables and clouds of points, written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.testing.zoo.handwritten import BATCH, Handwritten


class GraphAttention(Handwritten):
    """Attention along the edges of a graph: scores by `scatter_reduce`, messages by `index_add`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project, self.source, self.target = nn.Linear(8, width), nn.Linear(width, 1), nn.Linear(width, 1)
        self.head = nn.Linear(width, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.project(nodes)
        score = F.leaky_relu(self.source(x)[source] + self.target(x)[target], 0.2).squeeze(-1)
        count = nodes.shape[0]
        highest = score.new_full((count,), -math.inf).scatter_reduce(0, target, score, "amax")
        weight = torch.exp(score - highest[target])
        total = weight.new_zeros(count).scatter_add(0, target, weight)
        message = x[source] * (weight / total[target])[:, None]
        return self.head(torch.zeros_like(x).index_add(0, target, message))

    def example(self) -> tuple[Tensor, ...]:
        loops = torch.arange(10).expand(2, 10)  # So that each node has a neighbour.
        return torch.randn(10, 8), torch.cat([torch.randint(0, 10, (2, 20)), loops], 1)


class Dlrm(Handwritten):
    """Clicks: dense features, bags of categories, and the products of all pairs of them."""

    def __init__(self, sizes: Sequence[int] = (20, 30, 40)) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum") for n in sizes)
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(bag(ids) for bag, ids in zip(self.bags, (a, b, c)))], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([x, products[:, rows, columns]], 1))

    def example(self) -> tuple[Tensor, ...]:
        return torch.randn(BATCH, 4), *(torch.randint(0, n, (BATCH, 3)) for n in (20, 30, 40))


class PointNet(Handwritten):
    """A cloud of points: turned by a matrix that it predicts, then the maximum over its points."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.points = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)
        )
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.matrix(torch.max(self.turn(x), 2).values).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), matrix).transpose(2, 1)
        return F.log_softmax(self.head(self.points(x).amax(2)), -1)

    def example(self) -> tuple[Tensor, ...]:
        return (torch.randn(BATCH, 3, 32),)
