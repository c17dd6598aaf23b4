"""What goes wrong while a graph is recorded or run leaves all other tensors as they are: S51."""

from __future__ import annotations

import pytest
import torch

from flambeau import lazy


def test_an_op_that_raises_is_not_recorded(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    y = x * 2
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(4\)"):
        y + torch.ones(4, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.arange(3, device=device).add_(1.5)
    assert (y + 1).tolist() == [3.0, 3.0, 3.0]


def test_an_exception_of_the_user_leaves_a_graph_that_goes_on(device: torch.device) -> None:
    x = torch.ones(3, device=device)

    def step() -> None:
        x.add_(1)
        raise KeyError("data")

    with pytest.raises(KeyError, match="data"):
        step()
    x.mul_(2)
    assert x.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("engine", ["eager", pytest.param("xla", marks=pytest.mark.engine)])
def test_an_op_that_fails_in_a_run_takes_only_what_depends_on_it(engine: str, device: torch.device) -> None:
    lazy.use_engine(engine)
    x = torch.arange(3.0, device=device)
    wrong = x[torch.tensor([5], device=device)]
    after, apart = wrong + 1, x + 1
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        apart.tolist()
    assert apart.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="never computed, because an op before it failed: index 5"):
        after.tolist()
    with pytest.raises(RuntimeError, match="never computed"):
        after * 2
    after.fill_(0)
    assert after.tolist() == [0.0]


def test_an_engine_that_stops_is_replaced_by_pytorch(device: torch.device) -> None:
    class Stops:
        name = "stops"
        output_type = "torch"

        def compile(self, module: object) -> object:
            def run(*args: object) -> object:
                raise OSError("the device is gone")

            return run

    lazy.use_engine(Stops())
    with pytest.warns(lazy.LazyFallbackWarning, match=r"aten.mul.Tensor runs in PyTorch: .*the device is gone"):
        assert (torch.ones(2).to(device) * 3).tolist() == [3.0, 3.0]
    assert lazy.report().fallbacks["aten.mul.Tensor"] == 1


def test_results_of_an_engine_are_checked(device: torch.device) -> None:
    class Wrong:
        name = "wrong"
        output_type = "torch"

        def compile(self, module: object) -> object:
            return lambda *args: "nothing"

    lazy.use_engine(Wrong())
    y = torch.ones(2, device=device) * 3
    with pytest.raises(TypeError, match=r"the engine gave \(str\) for a program with 1 tensors as results"):
        y.tolist()
    lazy.use_engine("eager")
    with pytest.raises(RuntimeError, match="the engine gave"):
        y.tolist()


def test_types_of_results_are_checked(device: torch.device) -> None:
    class Doubles:
        name = "doubles"
        output_type = "torch"

        def compile(self, module: object) -> object:
            return lambda *args: torch.ones(2, dtype=torch.double)

    lazy.use_engine(Doubles())
    y = torch.ones(2, device=device) * 3
    with pytest.raises(RuntimeError, match=r"is \[2\] of torch.float32, and what was computed .* torch.float64"):
        y.tolist()


def test_what_has_no_meaning_here_says_so(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    with pytest.raises(NotImplementedError, match=r"keeps its shape: \[3\] is not resized to \[5\]"):
        x.resize_(5)
    with pytest.raises(NotImplementedError, match="gives a tensor other memory"):
        x.set_(torch.ones(2, device=device))
    with pytest.raises(NotImplementedError, match="no memory"):
        x.untyped_storage()
    with pytest.raises(RuntimeError, match="a tensor on meta meets lazy ones"):
        x + torch.ones(3, device="meta")
    with pytest.raises(TypeError, match=r"not with one of layout torch\.sparse_coo"):
        torch.add(x, torch.ones(3).to_sparse())
    with pytest.raises(NotImplementedError, match="as_strided of a lazy tensor that is itself a view"):
        x[1:].as_strided((1,), (1,), 0)
    with pytest.raises(TypeError, match=r"made by to\(flambeau.lazy.device\(\)\)"):
        lazy.LazyTensor([1.0])
    with pytest.raises(TypeError, match="can only be set to a lazy tensor"):
        x.data = torch.ones(3)
    with pytest.raises(TypeError, match="options for an engine, and no engine"), lazy.mode(profile="quick"):
        pass


def test_numbers_are_checked_as_pytorch_checks_them(device: torch.device) -> None:
    x = torch.arange(1, 4).to(device)
    assert (x**2).tolist() == [1, 4, 9]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x**-1
    for fill in (lambda: torch.full((2,), 300, dtype=torch.uint8, device=device), lambda: x.byte().fill_(300)):
        with pytest.raises(RuntimeError, match="without overflow"):
            fill()
    with pytest.raises(RuntimeError, match="std >= 0"):
        x.float().normal_(0, -1)
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="p to be in"):
        x.float().bernoulli_(2.0)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (x // 0).tolist()
