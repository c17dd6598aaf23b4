"""Models that TorchScript compiles: with loops, lists, state and shared parts."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """The residual block of a small ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: Optional[nn.Module] = None  # noqa: UP045
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-18 with narrow layers."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            for i in range(2):
                outputs = width << stage
                blocks.append(BasicBlock(inputs, outputs, 2 if stage and not i else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(torch.flatten(self.pool(x), 1))


class LanguageModel(nn.Module):
    """An LSTM language model that walks over the tokens in a loop."""

    def __init__(self, words: int = 11, size: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.cell = nn.LSTMCell(size, size)
        self.head = nn.Linear(size, words)
        self.size = size

    def forward(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h = torch.zeros(ids.size(0), self.size)
        c = torch.zeros(ids.size(0), self.size)
        logits: list[Tensor] = []
        for t in range(ids.size(1)):
            h, c = self.cell(self.embedding(ids[:, t]), (h, c))
            logits.append(self.head(h))
        return torch.stack(logits, 1), (h, c)


class Generator(nn.Module):
    """Runs a cell as often as the data say."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(size, size)

    def forward(self, x: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        h, c = torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(int(steps.item())):
            h, c = self.cell(x + h, (h, c))
        return h, c


class BeamStep(nn.Module):
    """One step of a beam search, with list appends."""

    def __init__(self, words: int = 9, size: int = 6) -> None:
        super().__init__()
        self.head = nn.Linear(size, words)
        self.words = words

    def forward(self, scores: Tensor, states: Tensor, beam: int = 3) -> tuple[Tensor, Tensor, list[Tensor]]:
        total = scores.unsqueeze(1) + torch.log_softmax(self.head(states), -1)
        best, flat = torch.topk(total.view(-1), beam)
        parents: list[Tensor] = []
        tokens: list[Tensor] = []
        for i in range(beam):
            parents.append(states[torch.div(flat[i], self.words, rounding_mode="floor")])
            tokens.append(flat[i] % self.words)
        return best, torch.stack(parents), tokens


class SharedTree(nn.Module):
    """One layer under three names, and a block that holds it too."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.first = shared
        self.second = shared
        self.block = nn.Sequential(shared, nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.second(self.first(x))) + self.first.weight.sum()


class RunningMean(nn.Module):
    """Keeps state between calls, in place and by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean = self.mean + (x.mean(0) - self.mean) / self.count
        return x - self.mean
