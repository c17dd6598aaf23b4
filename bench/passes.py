"""Whether the passes take time in proportion to the program: made-up programs of 1,000 to 50,000 ops.

python bench/passes.py                            # all passes, three sizes
python bench/passes.py --sizes 1000,4000 --passes dce
python bench/passes.py --check                    # exits 1 if the time per op grows with the size
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

SIZES = (1_000, 10_000, 50_000)
RUNS = 20_000
"""A program is run so often that about so many ops are seen, the best run counts."""
LIMIT = 1.5
"""How much longer an op may take in one program than in another."""

console = Console()


# --- Programs ---


@dataclass(frozen=True)
class Spelling:
    """How the types in a program are written: with shapes, or without any."""

    tensor: str
    row: str
    part: str
    tensors: str
    pair: str


TYPED = Spelling(
    "!torch.tensor<[4,8],f32>",
    "!torch.tensor<[8],f32>",
    "!torch.tensor<[3],f32>",
    "!torch.list<tensor<[4,8],f32>>",
    "!torch.tuple<tensor<[4,8],f32>, tensor<[8],f32>>",
)
UNTYPED = Spelling(
    "!torch.tensor", "!torch.tensor", "!torch.tensor", "!torch.list<tensor>", "!torch.tuple<tensor, tensor>"
)

STEP = """
  %a{i} = torch.aten.add.Scalar %t{i}, %int1, %int1 : {tensor}, !torch.int, !torch.int -> {tensor}
  %b{i} = torch.aten.tanh %a{i} : {tensor} -> {tensor}
  %n{i} = torch.aten.size.int %b{i}, %int0 : {tensor}, !torch.int -> !torch.int
  %m{i} = torch.aten.sub.int %n{i}, %int2 : !torch.int, !torch.int -> !torch.int
  %r{i} = torch.aten.select.int %b{i}, %int0, %m{i} : {tensor}, !torch.int, !torch.int -> {row}
  %p{i} = torch.aten.slice.Tensor %r{i}, %int0, %int1, %int4, %int1
    : {row}, !torch.int, !torch.int, !torch.int, !torch.int -> {part}
  %w{i} = torch.aten.relu_ %p{i} : {part} -> {part}
  %c{i} = torch.prim.TupleConstruct %b{i}, %r{i} : {tensor}, {row} -> {pair}
  %d{i}, %e{i} = torch.prim.TupleUnpack %c{i} : {pair} -> {tensor}, {row}
  %x{i} = torch.aten.add_.Scalar %e{i}, %int2, %int1 : {row}, !torch.int, !torch.int -> {row}
  %l{i} = torch.prim.ListConstruct %a{i} : ({tensor}) -> {tensors}
  %k{i} = torch.aten.append.t %l{i}, %d{i} : {tensors}, {tensor} -> {tensors}
  %g{i} = torch.aten.__getitem__.t %l{i}, %int1 : {tensors}, !torch.int -> {tensor}
  %h{i} = torch.aten.mul.Tensor %g{i}, %a{i} : {tensor}, {tensor} -> {tensor}
  %u{i} = torch.aten.sin %a{i} : {tensor} -> {tensor}
"""

PLAIN = """
  %t{next} = torch.aten.neg_ %h{i} : {tensor} -> {tensor}
"""

BRANCH = """
  %y{i} = torch.prim.If %flag -> ({tensor}) {{
    %q{i} = torch.aten.relu_ %h{i} : {tensor} -> {tensor}
    torch.prim.If.yield %h{i} : {tensor}
  }} else {{
    %z{i} = torch.aten.cos %b{i} : {tensor} -> {tensor}
    torch.prim.If.yield %z{i} : {tensor}
  }}
  %t{next} = torch.aten.neg_ %y{i} : {tensor} -> {tensor}
"""

LOOP = """
  %t{next} = torch.prim.Loop %count, %true, init(%h{i}) {{
  ^bb0(%i{i}: !torch.int, %o{i}: {tensor}):
    %q{i} = torch.aten.add_.Scalar %b{i}, %i{i}, %int1 : {tensor}, !torch.int, !torch.int -> {tensor}
    %z{i} = torch.aten.add.Tensor %o{i}, %b{i}, %int1 : {tensor}, {tensor}, !torch.int -> {tensor}
    torch.prim.Loop.condition %true, iter(%z{i} : {tensor})
  }} : (!torch.int, !torch.bool, {tensor}) -> {tensor}
"""


def chain(ops: int, spelling: Spelling) -> ModuleOp:
    """Make a straight line of value ops, views, writes through them, tuples, lists, with branches and loops between."""
    types = vars(spelling)
    steps: list[str] = []
    for i in range(ops // 17):
        end = BRANCH if i % 8 == 3 else LOOP if i % 16 == 9 else PLAIN
        steps.append((STEP + end).format(i=i, next=i + 1, **types))
    value = "!torch.vtensor<[4,8],f32>"
    return parse_module(f"""
func.func @forward(%x: {value}, %flag: !torch.bool, %count: !torch.int) -> !torch.vtensor {{
  %true = torch.constant.bool true
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %start = torch.copy.to_tensor %x : !torch.tensor<[4,8],f32>
  %t0 = torch.tensor_static_info_cast %start : !torch.tensor<[4,8],f32> to {spelling.tensor}
{"".join(steps)}
  %end = torch.tensor_static_info_cast %t{len(steps)} : {spelling.tensor} to !torch.tensor
  %result = torch.copy.to_vtensor %end : !torch.vtensor
  func.return %result : !torch.vtensor
}}
""")


LAYER = """
func.func private @Layer.forward(%self: !torch.nn.Module<"Layer">, %x: !torch.tensor) -> !torch.tensor {
  %one = torch.constant.int 1
  %w = torch.prim.GetAttr %self["weight"] : !torch.nn.Module<"Layer"> -> !torch.tensor
  %b = torch.prim.GetAttr %self["bias"] : !torch.nn.Module<"Layer"> -> !torch.tensor
  %0 = torch.aten.mul.Tensor %x, %w : !torch.tensor, !torch.tensor -> !torch.tensor
  %1 = torch.aten.add_.Tensor %0, %b, %one : !torch.tensor, !torch.tensor, !torch.int -> !torch.tensor
  %2 = torch.aten.tanh %1 : !torch.tensor -> !torch.tensor
  func.return %2 : !torch.tensor
}
torch.class_type @Layer {
  torch.attr private "weight" : !torch.tensor
  torch.attr private "bias" : !torch.tensor
  torch.method private "forward", @Layer.forward
}
"""


def objects(ops: int) -> ModuleOp:
    """Make a root object with many submodules of one class, each with a weight and a bias of its own."""
    count = ops // 10
    layer = '!torch.nn.Module<"Layer">'
    tensor = "!torch.tensor<[8],f32>"
    literal = "torch.tensor.literal(dense<0.5> : tensor<8xf32>)"
    calls = "".join(
        f'  %l{i} = torch.prim.GetAttr %self["l{i}"] : !torch.nn.Module<"Model"> -> {layer}\n'
        f'  %t{i + 1} = torch.prim.CallMethod %l{i}["forward"] (%t{i}) : {layer}, (!torch.tensor) -> !torch.tensor\n'
        for i in range(count)
    )
    made = "".join(
        f"%w{i} = {literal} : {tensor}\n%b{i} = {literal} : {tensor}\n"
        f'%o{i} = torch.nn_module {{ torch.slot "weight", %w{i} : {tensor}  torch.slot "bias", %b{i} : {tensor} }}'
        f" : {layer}\n"
        for i in range(count)
    )
    attrs = "".join(f'  torch.attr private "l{i}" : {layer}\n' for i in range(count))
    slots = "".join(f'  torch.slot "l{i}", %o{i} : {layer}\n' for i in range(count))
    return parse_module(f"""{LAYER}
func.func private @Model.forward(%self: !torch.nn.Module<"Model">,
    %t0: !torch.tensor {{torch.type_bound = !torch.vtensor<[4,8],f32>}}) -> !torch.tensor {{
{calls}  func.return %t{count} : !torch.tensor
}}
torch.class_type @Model {{
{attrs}  torch.method "forward", @Model.forward
}}
{made}%model = torch.nn_module {{
{slots}}} : !torch.nn.Module<"Model">
""")


# --- Measuring ---


@dataclass(frozen=True)
class Bench:
    """A pipeline, what it runs on, and what is done to that before the clock starts."""

    program: Callable[[int], ModuleOp]
    pipeline: str
    before: str = ""


def typed(ops: int) -> ModuleOp:
    return chain(ops, TYPED)


def untyped(ops: int) -> ModuleOp:
    return chain(ops, UNTYPED)


_OBJECTS = (
    "torch-prepare-for-globalize-object-graph", "torch-globalize-object-graph", "symbol-dce", "inline",
    "torch-adjust-calling-conventions", "torch-inline-global-slots", "torch-erase-module-initializer",
    "torch-refine-public-return",
)  # fmt: skip

BENCHES = {
    "torch-reduce-op-variants": Bench(typed, "torch-reduce-op-variants"),
    "torch-maximize-value-semantics": Bench(typed, "torch-maximize-value-semantics", "torch-reduce-op-variants"),
    "torch-refine-types": Bench(untyped, "torch-refine-types"),
    "canonicalize": Bench(untyped, "canonicalize"),
    "dce": Bench(typed, "dce", "torch-reduce-op-variants,torch-maximize-value-semantics"),
    "to_backend_contract": Bench(untyped, "torch-function-to-torch-backend-pipeline"),
    **{name: Bench(objects, name, ",".join(_OBJECTS[:i])) for i, name in enumerate(_OBJECTS)},
    "objects to_backend_contract": Bench(objects, "torchscript-module-to-torch-backend-pipeline"),
}


@dataclass
class Row:
    """What one pass took, by size."""

    name: str
    microseconds: dict[int, float] = field(default_factory=dict)
    """Per op of the program before the pass."""

    @property
    def growth(self) -> float:
        """How many times longer an op takes in a larger program; what is spent once per program does not count."""
        sizes = sorted(self.microseconds)
        pairs = ((small, large) for small in sizes for large in sizes if small < large)
        return max((self.microseconds[large] / self.microseconds[small] for small, large in pairs), default=1.0)


@contextmanager
def paused_gc() -> Iterator[None]:
    """As `flambeau.compile` does it: IR lives until the end, and collecting it midway is time for nothing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Programs:
    """Programs by kind, size and what was done to them; each is made once."""

    def __init__(self) -> None:
        self.made: dict[tuple[Callable[[int], ModuleOp], int, str], ModuleOp] = {}

    def get(self, program: Callable[[int], ModuleOp], size: int, before: str) -> ModuleOp:
        """Return the program itself, not a copy."""
        key = (program, size, before)
        if key not in self.made:
            *earlier, last = before.split(",")
            source = self.get(program, size, ",".join(earlier)).clone() if before else None
            with paused_gc():
                self.made[key] = program(size) if source is None else run_pipeline(source, last)
            # The collector need not look at what lives until the end.
            gc.freeze()
        return self.made[key]


def measure(programs: Programs, bench: Bench, size: int) -> float:
    """Microseconds per op, the best of some runs."""
    program = programs.get(bench.program, size, bench.before)
    count = sum(1 for _ in program.walk())
    best = float("inf")
    for _ in range(max(1, min(8, RUNS // size))):
        module = program.clone()
        with paused_gc():
            start = time.process_time()
            run_pipeline(module, bench.pipeline)
            best = min(best, time.process_time() - start)
    return best / count * 1e6


def report(rows: list[Row], sizes: list[int]) -> None:
    table = Table("pass", *(f"{size:,}" for size in sizes), "growth", title="microseconds per op")
    for row in rows:
        color = "red" if row.growth > LIMIT else "green"
        times = (f"{row.microseconds[size]:.1f}" for size in sizes)
        table.add_row(row.name, *times, f"[{color}]{row.growth:.2f}x[/]")
    console.print(table)


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter("give numbers, separated by commas") from None


@click.command()
@click.option("--sizes", default=",".join(map(str, SIZES)), callback=_numbers, help="Numbers of ops.")
@click.option("--passes", default=",".join(BENCHES), help="Passes, separated by commas.")
@click.option(
    "--check", "check_bars", is_flag=True, help=f"Exit with 1 if an op takes {LIMIT} times longer in a larger program."
)
def main(sizes: list[int], passes: str, check_bars: bool) -> None:
    """Measure the passes on programs of growing size."""
    names = passes.split(",")
    if unknown := [name for name in names if name not in BENCHES]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(BENCHES)}", param_hint="--passes")
    rows = []
    programs = Programs()
    with console.status("") as status:
        for name in names:
            status.update(f"{name}: warm up")
            measure(programs, BENCHES[name], min(sizes))
            row = Row(name)
            for size in sizes:
                status.update(f"{name}: {size:,} ops")
                row.microseconds[size] = measure(programs, BENCHES[name], size)
            rows.append(row)
    report(rows, sizes)
    if check_bars and any(row.growth > LIMIT for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
