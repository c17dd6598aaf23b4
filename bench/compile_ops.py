"""PyTorch's own databases under `torch.compile(backend="flambeau")`, and `aot_eager` beside it in the same run.

    python bench/compile_ops.py --results FILE             # goes on where it was stopped
    python bench/compile_ops.py --check --results FILE     # only look at what is there

The tests of PyTorch's compilers are not in its wheel; what they draw from is: single ops (`op_db`), higher-order ops
(`hop_db`), functions with gradients of their own (`autograd_function_db`), modules (`module_db`) and optimisers
(`optim_db`). Each entry, with the first sample that it gives, is compiled by both backends; results and gradients are
compared with eager PyTorch's (of entries that draw random numbers, or give memory as it is, shapes and dtypes). A case
passes as a backend's own tests would have it: no error, and the same numbers. `--every 3` takes each third op and
module.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from processes import known_records, measure, work
from torch.utils._pytree import tree_leaves, tree_map

BACKENDS = ("aot_eager", "flambeau")


@cache
def databases() -> dict[str, dict[str, Any]]:
    """Collect the entries of each database by name."""
    from torch.testing._internal.autograd_function_db import autograd_function_db
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
    from torch.testing._internal.hop_db import hop_db

    ops = {f"{i.name}.{i.variant_test_name}" if i.variant_test_name else i.name: i for i in op_db}
    return {
        "hop": {i.name: i for i in hop_db},
        "autograd_function": {i.name: i for i in autograd_function_db},
        "optimizer": {i.optim_cls.__name__: i for i in optim_db},
        "module": {i.name: i for i in module_db},
        "op": {name: i for name, i in ops.items() if torch.float32 in i.dtypes},
    }


def chosen(every: int) -> list[str]:
    """Name the cases: each `every`-th op and module, and all of the smaller databases."""
    return [
        f"{kind}:{name}"
        for kind, entries in databases().items()
        for i, name in enumerate(entries)
        if kind not in ("op", "module") or i % every == 0
    ]


def outcome_of_op(info: Any, compiler: Any) -> Any:
    """Call an op, and differentiate the sum of the squares of what it gives."""
    torch.manual_seed(0)
    sample = next(iter(info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd)))

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        return info.op(x, *args, **kwargs)

    leaves = [t for t in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor)]
    torch.manual_seed(1)
    return outcome(compiler(call)(sample.input, sample.args, sample.kwargs), leaves)


def outcome_of_module(info: Any, compiler: Any) -> Any:
    """Call a module in training, and differentiate by its parameters and inputs."""
    torch.manual_seed(0)
    given = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=True)[0]
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    inputs = given.forward_input
    leaves = [t for t in tree_leaves((inputs.args, inputs.kwargs)) if isinstance(t, torch.Tensor)]
    torch.manual_seed(1)
    return outcome(compiler(module)(*inputs.args, **inputs.kwargs), [*leaves, *module.parameters()])


def outcome_of_optimizer(info: Any, compiler: Any) -> Any:
    """Make three steps with an optimiser; gives the parameters after them."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4, 2))]
    given = info.optim_inputs_func(device="cpu")[0]
    optimizer = info.optim_cls(parameters, **{"lr": 1e-2, **given.kwargs})
    if info.step_requires_closure:
        raise NotImplementedError("its step takes a closure")

    def step() -> None:
        optimizer.step()

    fast = compiler(step)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        fast()
    return [p.detach().clone() for p in parameters]


def outcome(result: Any, leaves: list[torch.Tensor]) -> Any:
    """Give the tensors of a result, and the gradients of the leaves that require one."""
    tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    losses = [t.abs().square().sum() for t in tensors if t.requires_grad]
    wanted = [t for t in leaves if t.requires_grad and t.is_leaf]
    gradients = torch.autograd.grad(sum(losses), wanted, allow_unused=True) if losses and wanted else ()  # type: ignore[arg-type]
    return tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (tensors, gradients))


OUTCOMES = {
    "op": outcome_of_op, "hop": outcome_of_op, "autograd_function": outcome_of_op, "module": outcome_of_module,
    "optimizer": outcome_of_optimizer,
}  # fmt: skip


def same(actual: Any, expected: Any, is_random: bool) -> None:
    """Raise if results differ."""
    if is_random:
        actual, expected = (tree_map(lambda t: t if t is None else torch.zeros_like(t), r) for r in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def measured(item: str, options: dict[str, Any]) -> dict[str, Any]:
    """Try a case with both backends; gives `ok` or the error for each."""
    kind, _, name = item.partition(":")
    info = databases()[kind][name]
    run = OUTCOMES[kind]
    expected = run(info, lambda function: function)
    drawn, _ = torch.get_rng_state(), torch.manual_seed(1)
    is_random = (kind != "optimizer" and not torch.equal(drawn, torch.get_rng_state())) or "empty" in name
    record: dict[str, Any] = {"random": is_random}
    for backend in BACKENDS:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        extra = {"options": options} if backend == "flambeau" else {}
        try:
            same(run(info, lambda f, b=backend, e=extra: torch.compile(f, backend=b, **e)), expected, is_random)
            record[backend] = "ok"
        except Exception as error:
            record[backend] = f"{type(error).__name__}: {str(error).strip()[:1500]}"
    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=2, help="take each so manieth op and module")
    parser.add_argument("--engine", default="iree")
    parser.add_argument("--results", type=Path, default=Path("compile-ops.jsonl"), metavar="FILE")
    parser.add_argument("--check", action="store_true", help="measure nothing: only say what the results are")
    parser.add_argument("--work", nargs="+", metavar="CASE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        warnings.simplefilter("ignore")
        options = {"engine": "iree", "profile": "quick"} if arguments.engine == "iree" else {"engine": arguments.engine}
        work(arguments.work, lambda item: measured(item, options))
        return 0
    cases = chosen(arguments.every)
    if not arguments.check:
        cache = str(arguments.results.with_suffix(".cache").resolve())
        command = [__file__, "--engine", arguments.engine, "--work"]
        for record in measure(cases, arguments.results, command, FLAMBEAU_CACHE_DIR=cache):
            print(
                record["item"],
                *(f"{b}: {str(record.get(b, record.get('error')))[:100]!r}" for b in BACKENDS),
                flush=True,
            )
    done = [record for item, record in known_records(arguments.results).items() if item in cases]
    return report(done)


def report(done: list[dict[str, Any]]) -> int:
    """Print how many cases pass with each backend, and those that pass with `aot_eager` alone."""
    for kind in OUTCOMES:
        of_kind = [record for record in done if record["item"].startswith(f"{kind}:")]
        passed = {b: sum(record.get(b) == "ok" for record in of_kind) for b in BACKENDS}
        print(f"{kind}: {len(of_kind)} cases, " + ", ".join(f"{b} {n}" for b, n in passed.items()))
    behind = [record for record in done if record.get("aot_eager") == "ok" and record.get("flambeau") != "ok"]
    for record in done:
        if record in behind or "error" in record:
            print(f"  {record['item']}: {str(record.get('flambeau', record.get('error')))[:200]!r}")
    passed = {b: sum(record.get(b) == "ok" for record in done) for b in BACKENDS}
    print(f"{len(done)} cases: " + ", ".join(f"{b} passes {n}" for b, n in passed.items()))
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
