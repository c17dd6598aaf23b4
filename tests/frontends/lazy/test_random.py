"""Random ops draw new numbers in each run, and the same ones after the same seed: S51."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from flambeau import lazy


def draws(device: torch.device) -> Any:
    return torch.rand(3, device=device).tolist(), torch.dropout(torch.ones(200, device=device), 0.5, True).sum().item()


@pytest.fixture(autouse=True)
def own_state() -> Any:
    with torch.random.fork_rng(devices=[]):
        yield


def test_replays_draw_anew_and_seeds_repeat(device: torch.device) -> None:
    torch.manual_seed(0)
    first, second = draws(device), draws(device)
    torch.manual_seed(0)
    assert (draws(device), draws(device)) == (first, second)
    assert first != second
    assert 60 < first[1] / 2 < 140
    assert lazy.report().hits >= 4


def test_a_seed_counts_from_where_it_is_set(device: torch.device) -> None:
    torch.manual_seed(0)
    a = torch.rand(3, device=device)
    torch.manual_seed(0)
    b = torch.rand(3, device=device)
    torch.manual_seed(1)
    assert a.tolist() == b.tolist()
    torch.manual_seed(0)
    c, d = torch.rand(3, device=device), torch.rand(3, device=device)
    assert c.tolist() == a.tolist()
    assert d.tolist() != c.tolist()


def test_a_seed_of_our_own(device: torch.device) -> None:
    lazy.seed(3)
    before = torch.get_rng_state()
    first, second = draws(device), draws(device)
    lazy.seed(3)
    assert (draws(device), draws(device)) == (first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_nobody_looks_at_is_drawn_too(device: torch.device) -> None:
    torch.manual_seed(0)
    torch.rand(5, device=device)
    unseen = torch.rand(3, device=device).tolist()
    torch.manual_seed(0)
    kept = torch.rand(5, device=device)
    assert torch.rand(3, device=device).tolist() == unseen
    assert kept.shape == (5,)


def test_in_place_distributions(device: torch.device) -> None:
    x = torch.empty(4000, device=device)
    assert abs(x.normal_(3.0, 2.0).mean().item() - 3) < 0.2
    assert x.uniform_(2, 3).min().item() >= 2
    assert x.max().item() <= 3
    assert abs(x.bernoulli_(0.25).mean().item() - 0.25) < 0.05
    assert abs(x.exponential_().mean().item() - 1) < 0.1
    assert sorted(torch.randperm(10, device=device).tolist()) == list(range(10))
    assert lazy.report().fallbacks == {}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_draw_again_what_they_drew(reentrant: bool, device: torch.device) -> None:
    x = torch.ones(50, device=device, requires_grad=True)
    torch.dropout(x, 0.1, True)

    def block(a: torch.Tensor) -> torch.Tensor:
        a = a + torch.randn_like(a) * 0
        return torch.dropout(torch.dropout(a, 0.5, True), 0.5, True)

    y = checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()
    assert 0 < y.sum().item() < 200
    assert torch.equal(x.grad, y.detach())
