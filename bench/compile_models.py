"""Models under `torch.compile(backend="flambeau")` beside eager: `python bench/compile_models.py [--models 40]`.

    python bench/compile_models.py --models 40 --results FILE            # goes on where it was stopped
    python bench/compile_models.py --models 40 --results FILE --warm     # once more, in a second process
    python bench/compile_models.py --check --results FILE                # only look at what is there

Each model of the zoo is called, and trained for one step of SGD in training mode, with all dropout at zero, on the sum
of the squares of its first result that has a gradient. Outputs, the loss, all gradients and all parameters after the
step are compared with those of a copy that eager PyTorch runs; where they differ, with those of Dynamo's own backend
`eager` (`beside_dynamo`), since capturing may change a model. Models run one after another in a process of their own;
when one ends it, a new process goes on behind that model. The cache on disk is in a folder beside the results, so that
`--warm` is the second process: it fails for a model that misses there. (Graphs with custom ops are never kept.)
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from processes import known_records, measure, work

from flambeau.testing.steps import step, without_dropout, worst_error

COMPARED = ("forward", "loss", "gradients", "state")
TOLERANCE = 1e-3
"""The largest error, relative to the largest number of a tensor."""


def chosen(count: int) -> list[str]:
    """Choose so many models, spread over the zoo in its order."""
    from flambeau.testing.zoo import ZOO

    names = list(ZOO)
    return [names[i * len(names) // count] for i in range(min(count, len(names)))]


def measured(name: str, engine: str) -> dict[str, Any]:
    """Call and train a model; gives errors, counts and times."""
    import torch

    import flambeau.torch_compile
    from flambeau.testing.zoo import ZOO

    torch._dynamo.config.allow_rnn = True  # otherwise Dynamo leaves `nn.LSTM` and its like to PyTorch
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, args, kwargs = ZOO[name].make()
    other, other_args, other_kwargs = ZOO[name].make()
    record: dict[str, Any] = {}
    start = time.perf_counter()
    fast = torch.compile(model, backend="flambeau", options={"engine": engine})
    with torch.no_grad():
        torch.manual_seed(0)
        result = fast(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        record["first_call"] = time.perf_counter() - start
        torch.manual_seed(0)
        record["forward"] = worst_error(result, other(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    start = time.perf_counter()
    ours = step(without_dropout(model), fast, args, kwargs)
    record["first_step"] = time.perf_counter() - start
    theirs = step(without_dropout(other), other, other_args, other_kwargs)
    for what, actual, expected in zip(("loss", "gradients", "state"), ours, theirs, strict=True):
        record[what] = worst_error(actual, expected)
    counts = torch._dynamo.utils.counters
    record["breaks"] = sum(counts["graph_break"].values())
    record["unique_graphs"] = counts["stats"]["unique_graphs"]
    record["counters"] = flambeau.torch_compile.counters()
    if max(record[what] for what in COMPARED) > TOLERANCE:  # is it Dynamo that changes the model?
        torch._dynamo.reset()
        other, other_args, other_kwargs = ZOO[name].make()
        captured = torch.compile(without_dropout(other), backend="eager")
        record["beside_dynamo"] = worst_error(ours, step(other, captured, other_args, other_kwargs))
    return record


def is_right(record: dict[str, Any], warm: bool) -> bool:
    """Tell whether a model did what it is to do."""
    counts = record.get("counters", {})
    if "error" in record or counts.get("fallbacks") or not counts.get("graphs"):
        return False
    error = record.get("beside_dynamo", max(record[what] for what in COMPARED))
    return error <= TOLERANCE and not (warm and counts["cache_misses"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=40, help="how many, spread over the zoo")
    parser.add_argument("--engine", default="iree")
    parser.add_argument("--results", type=Path, default=Path("compile-models.jsonl"), metavar="FILE")
    parser.add_argument("--warm", action="store_true", help="a second process, which is to find all that it needs")
    parser.add_argument("--check", action="store_true", help="measure nothing: only say what the results are")
    parser.add_argument("--work", nargs="+", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        warnings.simplefilter("ignore")
        work(arguments.work, lambda name: measured(name, arguments.engine))
        return 0
    results = arguments.results.with_suffix(".warm.jsonl") if arguments.warm else arguments.results
    names = chosen(arguments.models)
    if not arguments.check:
        cache = str(arguments.results.with_suffix(".cache").resolve())
        command = [__file__, "--engine", arguments.engine, "--work"]
        for record in measure(names, results, command, FLAMBEAU_CACHE_DIR=cache):
            print("ok   " if is_right(record, arguments.warm) else "WRONG", json.dumps(record), flush=True)
    done = known_records(results)
    right = [name for name in names if name in done and is_right(done[name], arguments.warm)]
    print(f"{len(right)} of {len(names)} models as eager PyTorch; not: {sorted({*names} - {*right})}")
    return 0 if len(right) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
