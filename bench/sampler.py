"""What share of a decoding step the choice of the next token takes: `python bench/sampler.py [--check]`.

    python bench/sampler.py --loads 20 --json sampler.json

A GPT-2 with its own vocabulary of 50,257 and few small layers, so that the sampler has nowhere to hide, is compiled
three times: up to the logits of the last position, with the greatest of them (greedy), and with one of the 50 greatest
by a number that the caller draws (top-k). All are called in turns in one process, on one thread, and CPU time counts.
Each program is loaded several times, as with a single load of each one run differs from the next by more than a
sampler takes: of each load the least time counts, and of the loads the median.

There are two shares: what a step takes beyond one that gives the logits, which has to hand 200 kB over instead of a
token; and what the sampler takes as a program of its own. Both have the bar.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import flambeau

SHARE = 0.05
"""The bar: the sampler's share of a step."""
K = 50


class Greedy(nn.Module):
    """The token with the greatest logit."""

    def forward(self, logits: Tensor, number: Tensor) -> Tensor:
        return logits.argmax(-1)


class TopK(nn.Module):
    """One of the 50 tokens with the greatest logits, by their probabilities and a uniform number from 0 to 1."""

    def forward(self, logits: Tensor, number: Tensor) -> Tensor:
        values, places = logits.topk(K)
        passed = values.softmax(-1).cumsum(-1) < number[:, None]
        return places.gather(-1, passed.sum(-1, keepdim=True).clamp(max=K - 1))[:, 0]


class Step(nn.Module):
    """The logits of the token that follows a prompt, or the token that a sampler chooses by them."""

    def __init__(self, model: nn.Module, sampler: nn.Module | None) -> None:
        super().__init__()
        self.model, self.sampler = model, sampler

    def forward(self, tokens: Tensor, number: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, use_cache=False, logits_to_keep=1).logits[:, -1]
        return logits if self.sampler is None else self.sampler(logits, number)


def seconds(functions: list[Callable[[], Any]], runs: int) -> list[float]:
    """Measure the least CPU time of each function; turns differ in order, as what runs first finds cold caches."""
    best, order = [math.inf] * len(functions), list(range(len(functions)))
    for _ in range(runs):
        random.shuffle(order)
        for i in order:
            start = time.process_time()
            functions[i]()
            best[i] = min(best[i], time.process_time() - start)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=16, help="how many tokens a step reads")
    parser.add_argument("--loads", type=int, default=9, help="how often each program is loaded")
    parser.add_argument("--runs", type=int, default=60, help="how often each is called")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a sampler takes more than its share")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    config = GPT2Config(n_layer=arguments.layers, n_embd=arguments.width, n_head=4)
    model = GPT2LMHeadModel(config).eval()
    inputs = torch.randint(config.vocab_size, (1, arguments.prompt)), torch.rand(1)
    samplers = {"greedy": Greedy(), f"top-k of {K}": TopK()}
    steps = {"logits": Step(model, None)} | {name: Step(model, sampler) for name, sampler in samplers.items()}
    modules = [flambeau.compile(step, inputs) for step in steps.values()]
    loaded = [flambeau.load(module, device="local-sync") for _ in range(arguments.loads) for module in modules]
    with torch.no_grad():
        for run, step in zip(loaded, steps.values(), strict=False):
            torch.testing.assert_close(run(*inputs), step(*inputs), rtol=1e-3, atol=1e-3)
        times = seconds([lambda f=f: f(*inputs) for f in loaded], arguments.runs)
        given = steps["logits"](*inputs), inputs[1]
        alone = [flambeau.load(flambeau.compile(s, given), device="local-sync") for s in samplers.values()]
        alone_times = dict(zip(samplers, seconds([lambda f=f: f(*given) for f in alone], arguments.runs), strict=True))
        eager = dict(zip(steps, seconds([lambda f=f: f(*inputs) for f in steps.values()], 10), strict=True))
    ours = {name: statistics.median(times[i :: len(steps)]) for i, name in enumerate(steps)}
    title = f"{arguments.layers} layers of {arguments.width}, {arguments.prompt} tokens, one thread, CPU time"
    table = Table("step", "ms", "beyond the logits", "sampler alone", "over eager", title=title)
    shares = {name: 1 - ours["logits"] / ours[name] for name in samplers}
    shares_alone = {name: alone_times[name] / ours[name] for name in samplers}
    for name in steps:
        both = (s.get(name) for s in (shares, shares_alone))
        cells = ["" if s is None else f"{'[red]' if s > SHARE else ''}{s:.1%}" for s in both]
        table.add_row(name, f"{ours[name] * 1e3:.2f}", *cells, f"{ours[name] / eager[name]:.2f}")
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"ours": ours, "eager": eager, "shares": shares, "alone": shares_alone}, indent=1)
        )
    return 1 if arguments.check and max(*shares.values(), *shares_alone.values()) > SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
