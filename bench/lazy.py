"""Training with lazy tensors beside eager PyTorch: milliseconds of a step, and what recording costs.

python bench/lazy.py [--engine xla] [--steps 50] [--threads 1]

PyTorch has one thread unless it is told otherwise: on a machine that others use, two wait for each other.

The loop is the same for both: a convolutional network for images of 28x28, AdamW, batches of 32. The last lines are
microseconds for each recorded op: in a chain of products where nothing else happens, for recording one, and for cutting
the graph and looking it up.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import nn

from flambeau import lazy


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip


def step_seconds(device: Any, steps: int) -> float:
    """Return the median time of a step, after three that warm up."""
    trained = model().to(device)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    x, y = torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))
    times = []
    for _ in range(steps + 3):
        start = time.perf_counter()
        inputs, targets = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def recording_seconds(device: torch.device, ops: int = 500, runs: int = 10) -> tuple[float, float]:
    """Return the least time of recording an op, and of cutting, for each op of the graph, without its run."""
    x = torch.ones(4).to(device)
    recorded, cut = [], []
    for _ in range(runs):
        start, run = time.perf_counter(), sum(g.run_seconds for g in lazy.report().graphs)
        y = x
        for _ in range(ops):
            y = y * x
        middle = time.perf_counter()
        lazy.step()
        run = sum(g.run_seconds for g in lazy.report().graphs) - run
        recorded.append((middle - start) / ops)
        cut.append((time.perf_counter() - middle - run) / ops)
    return min(recorded[1:]), min(cut[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="xla")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lazy.use_engine(options.engine)
    device = lazy.device()
    ours, eager = step_seconds(device, options.steps), step_seconds("cpu", options.steps)
    report = lazy.report()
    print(f"a step: lazy {ours * 1e3:.2f} ms, eager {eager * 1e3:.2f} ms; {report.compiles} compiled")
    print(report)
    recorded, cut = recording_seconds(device)
    print(f"recording {recorded * 1e6:.1f} us, cutting {cut * 1e6:.2f} us for each op")


if __name__ == "__main__":
    main()
