"""What lazy tensors did, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flambeau.frontends.lazy.session import GraphCounts, Session


@dataclass(frozen=True)
class Report:
    """Counts of a session: by graph, and ops that ran in PyTorch by name."""

    engine: str
    graphs: Sequence[GraphCounts]
    fallbacks: Mapping[str, int]
    reasons: Mapping[str, str]

    @staticmethod
    def of(session: Session) -> Report:
        """Copy the counts as they are now."""
        graphs = [replace(counts) for counts in session.counts]
        return Report(session.engine, graphs, dict(session.fallbacks), dict(session.reasons))

    @property
    def compiles(self) -> int:
        """How many programs were compiled."""
        return sum(graph.compiles for graph in self.graphs)

    @property
    def hits(self) -> int:
        """How many runs found a program that was compiled before."""
        return sum(graph.hits for graph in self.graphs)

    def __str__(self) -> str:
        head = ("graph", "ops", "compiled", "found", "fallbacks", "compiling", "a run", "begins at")
        rows = [head, *map(_row, self.graphs)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        left = (0, len(head) - 1)
        lines = [
            "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        total = sum(self.fallbacks.values())
        title = f"engine {self.engine}: {self.compiles} compiled, {self.hits} found, {total} fallbacks"
        lines = [title, *lines]
        lines += [f"{name} ran in PyTorch {n} times: {self.reasons[name]}" for name, n in self.fallbacks.items()]
        return "\n".join(line.rstrip() for line in lines)


def _row(graph: GraphCounts) -> tuple[str, ...]:
    place = f"{graph.place[0].rpartition('/')[2]}:{graph.place[1]}" if graph.place is not None else ""
    each = graph.run_seconds / graph.runs * 1000 if graph.runs else 0.0
    return (
        graph.name, str(graph.ops), str(graph.compiles), str(graph.hits), str(graph.fallbacks),
        f"{graph.compile_seconds:.2f} s", f"{each:.2f} ms", place,
    )  # fmt: skip
