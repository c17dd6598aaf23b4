"""A compiler of one's own for Helion's Device IR that builds text: ATen nodes come from Flambeau, the rest is its own.

    python examples/helion_visitor.py [raw | torch | linalg-on-tensors | tosa | stablehlo]

It takes the loop of a flash attention kernel and prints what one turn of the loop computes, as a function: what the
loop carries and loads are the arguments, and each ATen node is inlined in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import helion
import helion.language as hl
import torch
from torch import fx

from flambeau.helion import NodeImporter, TextBuilder, import_aten_node_to_mlir, inline_text, trace


@helion.kernel(config=helion.Config(block_sizes=[1, 32, 16]), static_shapes=True)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    batch, m, head = q.size()
    n = k.size(1)
    head = hl.specialize(head)
    out = torch.empty_like(q)
    keys = k.transpose(1, 2)
    for tile_b, tile_m in hl.tile([batch, m]):
        highest = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = torch.full_like(highest, 1.0)
        acc = hl.zeros([tile_b, tile_m, head], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            scores = torch.bmm(queries, keys[tile_b, :, tile_n])
            now = torch.maximum(highest, torch.amax(scores, -1) * 1.44269504)
            weights = torch.exp2(scores * 1.44269504 - now[:, :, None])
            scale = torch.exp2(highest - now)
            total = total * scale + torch.sum(weights, -1)
            acc = torch.baddbmm(acc * scale[:, :, None], weights, v[tile_b, tile_n, :])
            highest = now
        out[tile_b, tile_m, :] = acc / total[:, :, None]
    return out


@dataclass
class Context:
    """What the visitor knows: the name of each node's value, and its type as an example."""

    aten_output_type: str = "raw"
    node_values: dict[str, Any] = field(default_factory=dict)
    node_examples: dict[str, Any] = field(default_factory=dict)


class IRVisitor:
    """Visits the nodes of one graph of the Device IR and builds the text of a function."""

    def __init__(self, program: Any, output_type: str) -> None:
        self.program = program
        self.ctx = Context(output_type)
        self.builder = TextBuilder(indent=2)
        self.arguments: list[tuple[str, str]] = []

    def visit_graph(self, graph: fx.Graph) -> str:
        results: Sequence[fx.Node] = ()
        for node in graph.nodes:
            self.ctx.node_examples[node.name] = self.program.example(node.meta.get("val"))
            if node.op == "output":
                (results,) = node.args
            elif node.op == "placeholder" or node.target.__name__ == "load":
                self.visit_argument(node)
            elif node.target.__name__ == "_new_var":
                self.ctx.node_values[node.name] = self.ctx.node_values[node.args[0].name]
            elif node.target.__name__ == "subscript":
                self.visit_subscript(node)
            elif hasattr(node.target, "_schema") and isinstance(node.meta["val"], torch.Tensor):
                self.visit_aten_compute(node)
        names = ", ".join(self.ctx.node_values[n.name] for n in results)
        types = ", ".join(self.type_of(n) for n in results)
        arguments = ", ".join(f"{name}: {type_}" for name, type_ in self.arguments)
        head = ["builtin.module {", f"  func.func @turn({arguments}) -> ({types}) {{"]
        return "\n".join([*head, *self.builder.lines, f"    func.return {names} : {types}", "  }", "}", ""])

    def visit_argument(self, node: fx.Node) -> None:
        self.ctx.node_values[node.name] = f"%{node.name}"
        self.arguments.append((f"%{node.name}", self.type_of(node)))

    def visit_aten_compute(self, node: fx.Node) -> str:
        """Generate MLIR for an ATen node, where the builder stands."""
        output_type = getattr(self.ctx, "aten_output_type", "raw")
        tensor_operands: list[str] = []
        inputs: list[Any] = []

        def collect_operands(arg: fx.Node) -> fx.Node:
            tensor_operands.append(self.ctx.node_values[arg.name])
            inputs.append(self.ctx.node_examples[arg.name])
            return arg

        fx.map_arg(node.args, collect_operands)
        fx.map_arg(node.kwargs, collect_operands)
        mlir_text = import_aten_node_to_mlir(node, output_type, inputs)
        result = inline_text(mlir_text, tensor_operands, self.builder)
        self.ctx.node_values[node.name] = result
        return str(result)

    def visit_subscript(self, node: fx.Node) -> None:
        """`tile[:, :, None]` is ATen's `unsqueeze`."""
        source, index = node.args
        call = fx.Graph().call_function(torch.ops.aten.unsqueeze.default, (source, index.index(None)))
        call.name = node.name
        self.visit_aten_compute(call)

    def type_of(self, node: fx.Node) -> str:
        """How the output type writes the type of a value: that of the argument of an op on it."""
        example = self.ctx.node_examples.get(node.name)
        if example is None:
            example = self.program.example(node.meta["val"])
        graph = fx.Graph()
        call = graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),))
        return str(NodeImporter(self.ctx.aten_output_type).import_node(call, [example]).body.block.args[0].type)


def main(output_type: str = "linalg-on-tensors") -> str:
    q, k, v = torch.randn(2, 64, 16), torch.randn(2, 48, 16), torch.randn(2, 48, 16)
    program = trace(attention, (q, k, v))
    return IRVisitor(program, output_type).visit_graph(program.graphs[0].graph)


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
