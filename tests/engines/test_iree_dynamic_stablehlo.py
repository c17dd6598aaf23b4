"""StableHLO of dynamic size that IREE does not take: `engines/iree/stablehlo_ops.py`."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from support import Together

import flambeau
from flambeau import torchscript

pytestmark = pytest.mark.engine


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.to(torch.float32), y * 2, y], 0)


def test_parts_that_are_computed_are_joined() -> None:
    places = [torchscript.TensorPlaceholder([-1, 3], dtype) for dtype in (torch.float16, torch.float32)]
    run = flambeau.load(torchscript.compile(Joined(), places, output_type="stablehlo"), profile="quick")
    for rows in ((2, 3), (0, 1), (5, 0)):
        x, y = torch.randn(rows[0], 3).half(), torch.randn(rows[1], 3)
        assert torch.equal(run(x, y), Joined()(x, y))


PRODUCTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ("mk,kn->mn", (4, 3), (3, 5)),
    "a batch": ("bmk,bkn->bmn", (2, 4, 3), (2, 3, 5)),
    "a row": ("k,kn->n", (3,), (3, 5)),
    "numbers": ("k,k->", (3,), (3,)),
    "an outer product": ("m,n->mn", (4,), (5,)),
    "many dims": ("abmk,kabn->bamn", (2, 3, 4, 5), (5, 2, 3, 6)),
}


def product(equation: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.einsum(equation, x, y).exp().sum(-1) if not equation.endswith(">") else torch.dot(x, y)


def compiled_product(name: str) -> flambeau.Module:
    equation, *shapes = PRODUCTS[name]
    dims = tuple(dict.fromkeys(range(len(shape)), torch.export.Dim.DYNAMIC) for shape in shapes)
    args = tuple(torch.zeros(shape) for shape in shapes)
    return flambeau.compile(lambda x, y: product(equation, x, y), args, dynamic_shapes=dims, output_type="stablehlo")


ON_IREE = Together({name: partial(compiled_product, name) for name in PRODUCTS})


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_any_size(name: str) -> None:
    equation, *shapes = PRODUCTS[name]
    for more in (0, 1, 13):
        given = tuple(torch.randn([n + more for n in shape]) * 0.3 for shape in shapes)
        torch.testing.assert_close(ON_IREE[name](*given), product(equation, *given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2}, {"transposed": True, "stride": 2}],
    ids=str,
)
@pytest.mark.parametrize("n", [1, 2])
def test_convolutions_of_any_size(n: int, options: dict[str, int]) -> None:
    given = dict(options)
    name = f"conv{'_transpose' if given.pop('transposed', 0) else ''}{n}d"
    weight = torch.randn(4, 4 // given.get("groups", 1), *[3] * n)

    def convolution(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(torch.nn.functional, name)(x, weight, **given)
        return result

    dims = ({i: torch.export.Dim.DYNAMIC for i in (0, *range(2, 2 + n))},)
    module = flambeau.compile(convolution, (torch.randn(2, 4, *[8] * n),), dynamic_shapes=dims, output_type="stablehlo")
    run = flambeau.load(module, profile="quick")
    for size in (7, 8, 15):
        x = torch.randn(3, 4, *[size] * n)
        torch.testing.assert_close(run(x), convolution(x), rtol=1e-4, atol=1e-4)
