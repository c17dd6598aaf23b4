"""How long lowering a model to each target takes, beside linalg: `python bench/targets.py [--check]`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import OPTConfig, OPTForCausalLM

import flambeau
from flambeau.lowering.linalg.lower import lower_to_linalg
from flambeau.lowering.stablehlo.lower import lower_to_stablehlo
from flambeau.lowering.tosa.lower import lower_to_tosa

LIMIT = 1.3
RUNS = 7
TARGETS: dict[str, Callable[[Any], Any]] = {
    "linalg-on-tensors": lower_to_linalg,
    "stablehlo": lower_to_stablehlo,
    "tosa": lower_to_tosa,
}


def seconds(lower: Callable[[Any], Any], op: Any) -> float:
    """Measure the least CPU time of some runs; nothing is collected meanwhile, as in the pipeline."""
    times = []
    for _ in range(RUNS):
        gc.collect()
        gc.disable()
        start = time.process_time()
        lower(op)
        times.append(time.process_time() - start)
        gc.enable()
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help=f"fail if a target takes more than {LIMIT} times linalg")
    arguments = parser.parse_args()
    with torch.device("meta"):
        model = OPTForCausalLM(OPTConfig(use_cache=False)).eval()
    ids = torch.zeros(1, 16, dtype=torch.int64, device="meta")
    contract = flambeau.compile(model, (), {"input_ids": ids}, output_type="torch")
    table = Table("target", "seconds", "against linalg", title="lowering OPT-125M")
    base = seconds(lower_to_linalg, contract.op)
    worst = 1.0
    for name, lower in TARGETS.items():
        taken = base if name == "linalg-on-tensors" else seconds(lower, contract.op)
        worst = max(worst, taken / base)
        table.add_row(name, f"{taken:.3f}", f"{taken / base:.2f}x")
    Console().print(table)
    return 1 if arguments.check and worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
