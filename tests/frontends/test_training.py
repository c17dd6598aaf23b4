"""Training as a program (`flambeau.export_train_step`), and under `torch.compile`: S30, S32 to S34."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau import CompileError
from flambeau.engines.eager.random import philox

STEPS = 20


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][:, -1])


class GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        def gathered(x: Tensor) -> Tensor:
            return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

        return self.second(gathered(torch.relu(self.first(gathered(x)))))


def convolutional() -> nn.Module:
    # A bias in front of a batch norm has a gradient of zero, of which Adam would make steps of one size.
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 10),
    )  # fmt: skip


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, bias=False)
    return nn.Sequential(nn.Embedding(20, 16), layer, nn.Linear(16, 20), nn.Flatten(0, 1))


Batch = tuple[Any, Tensor]
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], Callable[..., Tensor]]] = {
    "linear": (lambda: nn.Linear(8, 3), lambda: (torch.randn(6, 8), torch.randn(6, 3)), nn.MSELoss()),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5)),
        lambda: (torch.randn(6, 8), torch.randint(0, 5, (6,))),
        nn.CrossEntropyLoss(),
    ),
    "cnn": (convolutional, lambda: (torch.randn(5, 1, 12, 12), torch.randint(0, 10, (5,))), nn.CrossEntropyLoss()),
    "transformer": (
        transformer, lambda: (torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (21,))), nn.CrossEntropyLoss()
    ),
    "lstm": (Recurrent, lambda: (torch.randn(3, 6, 5), torch.randn(3, 2)), nn.MSELoss()),
    "gcn": (
        GraphConvolution,
        lambda: ((torch.randn(9, 6), torch.randint(0, 9, (2, 20))), torch.randint(0, 3, (9,))),
        nn.CrossEntropyLoss(),
    ),
}  # fmt: skip

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, eps=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-4),
}


def called(model: nn.Module, inputs: Any) -> Any:
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def batches(make: Callable[[], Batch], count: int = STEPS) -> Iterator[tuple[Batch, float]]:
    """Batches, each with the learning rate of its step."""
    return ((make(), 0.05 / (1 + i)) for i in range(count))


def eager_step(model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, batch: Batch, lr: float) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad()
    value = loss(called(model, batch[0]), batch[1])
    value.backward()
    optimizer.step()
    return value.detach()


def assert_same_state(ours: nn.Module, reference: nn.Module, tolerance: float = 2e-5) -> None:
    for (name, mine), theirs in zip(ours.state_dict().items(), reference.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "optimizer", "target"),
    [
        *((name, kind, "linalg-on-tensors") for name, kind in zip(MODELS, itertools.cycle(OPTIMIZERS))),
        *(
            pytest.param(name, "adamw", "stablehlo", marks=() if name in ("cnn", "lstm") else pytest.mark.wide)
            for name in MODELS
        ),
    ],
)  # fmt: skip
def test_twenty_steps_are_those_of_eager(name: str, optimizer: str, target: str) -> None:
    """S54: losses and parameters over twenty steps."""
    make, batch, loss = MODELS[name]
    model = make()
    reference = copy.deepcopy(model)
    mine, theirs = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](reference.parameters())
    step = flambeau.export_train_step(model, loss, mine, batch(), output_type=target)
    assert not step.unused
    run = flambeau.load(step, profile="quick")
    for (inputs, targets), lr in batches(batch):
        expected = eager_step(reference, loss, theirs, (inputs, targets), lr)
        torch.testing.assert_close(run(inputs, targets, lr=lr), expected, rtol=2e-5, atol=2e-5)
    assert_same_state(model, reference)


class Block(nn.Module):
    """A small transformer with dropout where transformers have it."""

    def __init__(self, dropout: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.wide, self.narrow, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 20)
        self.dropouts = nn.ModuleList([dropout() for _ in range(4)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropouts[0](self.embed(tokens))
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        weights = self.dropouts[1]((q @ k.transpose(-1, -2) / 8**0.5).softmax(-1))
        x = x + self.dropouts[2](self.out((weights @ v).transpose(1, 2).flatten(2)))
        return self.head(x + self.dropouts[3](self.narrow(self.wide(x).relu()))).flatten(0, 1)


class PhiloxDropout(nn.Module):
    """Dropout that draws from the documented stream: one draw after the other, for as long as the class lives."""

    drawn = 0

    def forward(self, x: Tensor) -> Tensor:
        (word, *_), PhiloxDropout.drawn = philox(torch.tensor([3, 0, 0, 0, 0]), self.drawn, x.shape), self.drawn + 1
        uniform = (word.double() % 2**32).float() * 2.0**-32 + 2.0**-33
        return x * ((uniform < 0.9).float() / 0.9)


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo"])
def test_dropout_draws_the_documented_stream(target: str) -> None:
    PhiloxDropout.drawn = 0
    model, reference = Block(lambda: nn.Dropout(0.1)), Block(PhiloxDropout)
    reference.load_state_dict(model.state_dict())
    mine, theirs = (torch.optim.AdamW(m.parameters(), eps=1e-4) for m in (model, reference))
    loss, batch = nn.CrossEntropyLoss(), MODELS["transformer"][1]
    run = flambeau.load(flambeau.export_train_step(model, loss, mine, batch(), output_type=target), profile="quick")
    run.seed(3)
    for given, lr in batches(batch):
        expected = eager_step(reference, loss, theirs, given, lr)
        torch.testing.assert_close(run(*given, lr=lr), expected, rtol=5e-5, atol=5e-5)
    assert_same_state(model, reference, 5e-5)


@pytest.mark.engine
def test_a_step_through_tosa_and_on_xla() -> None:
    make, batch, loss = MODELS["mlp"]
    for options in ({"target": "tosa", "engine": "iree"}, {"target": "stablehlo", "engine": "xla"}):
        model = make()
        reference = copy.deepcopy(model)
        mine, theirs = OPTIMIZERS["adam"](model.parameters()), OPTIMIZERS["adam"](reference.parameters())
        step = flambeau.export_train_step(model, loss, mine, batch(), output_type=options["target"])
        run = flambeau.load(step, engine=options["engine"])
        for given, lr in batches(batch, 3):
            expected = eager_step(reference, loss, theirs, given, lr)
            torch.testing.assert_close(run(*given, lr=lr), expected, rtol=2e-5, atol=2e-5)
        assert_same_state(model, reference)


def eager_run(step: Any) -> Any:
    return flambeau.load(step, engine="eager")


def trained(
    model: nn.Module, loss: Any, optimizer: Callable[[Any], torch.optim.Optimizer], batch: Callable[[], Batch],
    reference_step: Any = eager_step, steps: int = 3, tolerance: float = 1e-5, **options: Any,
) -> Any:  # fmt: skip
    """Train a model by a compiled step on the eager engine, and a copy of it with PyTorch; compare."""
    reference = copy.deepcopy(model)
    mine, theirs = optimizer(model.parameters()), optimizer(reference.parameters())
    step = flambeau.export_train_step(model, loss, mine, batch(), output_type="torch", **options)
    run = eager_run(step)
    for given, rate in batches(batch, steps):
        lr = rate if options.get("schedule") != () else theirs.param_groups[0]["lr"]
        expected = reference_step(reference, loss, theirs, given, lr)
        numbers = {"lr": lr} if options.get("schedule") != () else {}
        torch.testing.assert_close(run(*given, **numbers), expected, rtol=tolerance, atol=tolerance)
    assert_same_state(model, reference, 2 * tolerance)
    return step


@pytest.mark.parametrize("kind", ["Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_every_optimizer_that_traces(kind: str) -> None:
    make, batch, loss = MODELS["mlp"]
    fixed = kind in ("ASGD", "Rprop")  # They make their first state of the learning rate.
    trained(make(), loss, getattr(torch.optim, kind), batch, schedule=() if fixed else ("lr",))


def test_state_is_named_and_written_in_place() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    step = flambeau.export_train_step(model, nn.MSELoss(), optimizer, (torch.ones(4, 3), torch.ones(4, 2)))
    names = [a.name for a in step.signatures["main"].arguments]
    state = [f"optimizer.{p}.{s}" for p in ("weight", "bias") for s in ("step", "exp_avg", "exp_avg_sq")]
    assert names == ["weight", "bias", *state, "inputs", "targets", "lr"]
    assert set(step.weights) == {"weight", "bias", *state}
    assert step.weights["weight"] is model.weight
    assert step.weights["optimizer.weight.exp_avg"] is optimizer.state[model.weight]["exp_avg"]
    assert len(step.signatures["main"].mutations) == 8
    assert all(not s["step"] and not s["exp_avg"].any() for s in optimizer.state.values())


def test_parameters_without_a_gradient_stay_as_they_are() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle, self.frozen = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + self.frozen(x)

    def batch() -> Batch:
        return torch.randn(4, 3), torch.randn(4, 2)

    step = trained(Half(), nn.MSELoss(), lambda p: torch.optim.AdamW(p, weight_decay=0.5), batch)
    assert step.unused == ("idle.weight", "idle.bias")
    written = {step.signatures["main"].arguments[m.argument].name for m in step.signatures["main"].mutations}
    assert "used.weight" in written
    assert not any("idle" in n or "frozen" in n for n in written)


def test_weights_that_are_one_stay_one() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    model[1].weight = model[0].weight
    trained(
        model, lambda y, t: nn.functional.cross_entropy(y.flatten(0, 1), t), torch.optim.SGD,
        lambda: (torch.randint(0, 7, (2, 3)), torch.randint(0, 7, (6,))),
    )  # fmt: skip
    assert model[1].weight is model[0].weight


def test_clipping_accumulation_and_autocast() -> None:
    def clipped(model: nn.Module, loss: Any, optimizer: Any, batch: Batch, lr: float) -> Tensor:
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        total = torch.zeros(())
        for x, y in zip(batch[0].chunk(3), batch[1].chunk(3), strict=True):
            value = loss(model(x), y) / 3
            value.backward()
            total += value.detach()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return total

    make, batch, loss = MODELS["mlp"]
    trained(make(), loss, torch.optim.Adam, batch, clipped, accumulate=3, clip_value=0.05, clip_norm=0.1)

    def mixed(model: nn.Module, loss: Any, optimizer: Any, batch: Batch, lr: float) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            optimizer.param_groups[0]["lr"] = lr
            optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        return value.detach()

    step = trained(make(), loss, torch.optim.SGD, batch, mixed, tolerance=1e-3, autocast=torch.bfloat16)
    assert "bf16" in str(step)


def test_several_groups_have_their_own_numbers() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    reference = copy.deepcopy(model)

    def optimizer(m: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": m[0].parameters(), "lr": 0.1}, {"params": m[1].parameters()}], lr=0.2)

    mine, theirs = optimizer(model), optimizer(reference)
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    step = flambeau.export_train_step(model, nn.MSELoss(), mine, (x, y), output_type="torch")
    eager_run(step)(x, y, lr=[0.3, 0.4])
    for group, lr in zip(theirs.param_groups, (0.3, 0.4), strict=True):
        group["lr"] = lr
    nn.MSELoss()(reference(x), y).backward()
    theirs.step()
    assert_same_state(model, reference)


def test_without_a_schedule_numbers_are_part_of_the_program() -> None:
    model = nn.Linear(3, 2)
    step = flambeau.export_train_step(
        model, nn.MSELoss(), torch.optim.ASGD(model.parameters()), (torch.ones(1, 3), torch.ones(1, 2)), schedule=()
    )
    assert [a.name for a in step.signatures["main"].arguments if a.state is None] == ["inputs", "targets"]


def test_a_model_that_returns_its_loss() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.mse_loss(self.linear(x), labels), "extra": x}

    model = WithLoss()
    before = copy.deepcopy(model)
    batch = ({"x": torch.randn(4, 3), "labels": torch.randn(4, 2)},)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = eager_run(flambeau.export_train_step(model, None, optimizer, batch, output_type="torch"))
    torch.testing.assert_close(run(*batch, lr=0.1), before(**batch[0])["loss"].detach())
    assert not torch.equal(model.linear.weight, before.linear.weight)


def test_an_optimizer_that_has_taken_steps_goes_on_from_there() -> None:
    make, batch, loss = MODELS["mlp"]
    model, reference = make(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    eager_step(model, loss, optimizer, batch(), 0.1)
    reference, theirs = copy.deepcopy((model, optimizer))
    run = eager_run(flambeau.export_train_step(model, loss, optimizer, batch(), output_type="torch"))
    for given, lr in batches(batch, 3):
        torch.testing.assert_close(run(*given, lr=lr), eager_step(reference, loss, theirs, given, lr))
    assert_same_state(model, reference)


class Counting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["count"] = self.state[p].get("count", 0) + 1
        return super().step(closure)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"optimizer": lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.1)}, CompileError, "Take the first step"),
        ({"optimizer": lambda p: Counting(p)}, CompileError, "'count' of its state"),
        ({"optimizer": lambda p: torch.optim.ASGD(p)}, CompileError, "'eta' for 'weight' of the gradient and lr"),
        ({"optimizer": lambda p: torch.optim.SGD([nn.Parameter(torch.ones(3))])}, CompileError, "one of the model's"),
        ({"optimizer": lambda p: torch.optim.Adafactor(p), "schedule": ()}, CompileError, "of Adafactor chooses"),
        ({"schedule": ("weight_decay",)}, CompileError, "Leave the number out of `schedule`"),
        ({"schedule": ("lrr",)}, CompileError, "no number 'lrr'"),
        ({"loss": lambda y, t: y - t}, CompileError, r"shape \[4, 2\], not one number"),
        ({"loss": None}, TypeError, r"example_batch is \(inputs,\), not 2"),
        ({"accumulate": 3}, CompileError, "cannot be cut into 3 parts"),
        ({"accumulate": 0}, ValueError, "at least 1"),
        ({"loss": lambda y, t: y.sum() if y.sum() > 0 else t.sum()}, CompileError, "torch.where"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_step_is_refused(arguments: dict[str, Any], error: type, message: str) -> None:
    model = nn.Linear(3, 2)
    before = copy.deepcopy(model.state_dict())
    options = {"loss": nn.MSELoss(), "optimizer": torch.optim.SGD, **arguments}
    optimizer = options.pop("optimizer")(model.parameters())
    with pytest.raises(error, match=message):
        flambeau.export_train_step(
            model, options.pop("loss"), optimizer, (torch.ones(4, 3), torch.ones(4, 2)), **options
        )
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.engine
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "gcn"])
def test_models_train_under_torch_compile(name: str) -> None:
    make, batch, loss = MODELS[name]
    torch._dynamo.reset()
    model = make()
    reference = copy.deepcopy(model)
    fast = torch.compile(model, backend="flambeau", options={"profile": "quick"})
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, reference))
    for given, lr in batches(batch, 4):
        expected = eager_step(reference, loss, theirs, given, lr)
        torch.testing.assert_close(eager_step(fast, loss, mine, given, lr), expected, rtol=2e-5, atol=2e-5)
    assert_same_state(model, reference)
    with torch.no_grad():
        inputs = batch()[0]
        torch.testing.assert_close(called(fast.eval(), inputs), called(reference.eval(), inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.engine
def test_gradients_of_inputs_and_what_is_kept_for_them() -> None:
    torch._dynamo.reset()
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(3, 4, requires_grad=True)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x @ weight).tanh()
        return y.sum(), torch.utils.checkpoint.checkpoint(lambda z: (z * z).sin(), y, use_reentrant=False)

    fast = torch.compile(function, backend="flambeau", options={"profile": "quick"})
    results = []
    for f in (function, fast):
        a, b = f(x)
        results.append((a, b, *torch.autograd.grad(a + (b * b).sum(), (x, weight))))
    for ours, eager in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
