"""Models that call collectives themselves, on simulated devices: equal to what the ranks compute in plain PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("collectives.py")
SOURCES = Path(__file__).parents[2] / "src"
EQUAL = 1e-6

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def found() -> Any:
    names = ("each_of_them", "along_axes", "megatron", "checks", "in_place", "split_results")
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, str(SCRIPT), *names], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_each_collective_on_two_four_and_eight_devices(found: Any) -> None:
    assert found["each_of_them"] == []


def test_groups_along_an_axis_and_along_all(found: Any) -> None:
    assert found["along_axes"] == [0.0] * 6


def test_megatrons_mlp_by_hand(found: Any) -> None:
    for size, result in found["megatron"].items():
        assert result["difference"] < EQUAL
        assert result["collectives"]["all-reduce"] == 1
        # Both matrices and the first bias are split; the last bias and the inputs are not.
        split = result["weights"] - 64
        assert split / int(size) + 64 <= result["bytes"] <= split / int(size) + 64 + 256


def test_a_check_that_fails_on_one_device_raises(found: Any) -> None:
    assert found["checks"] == {"difference": 0.0, "message": "index out of range"}


def test_a_collective_writes_its_argument(found: Any) -> None:
    assert max(found["in_place"]) < EQUAL


def test_results_stay_split(found: Any) -> None:
    found = found["split_results"]
    assert found["difference"] < EQUAL
    assert found["shape"] == [4, 16]
    assert len(found["parts"]) == 8
    assert all(part == [2, 4] for part in found["parts"].values())
    assert found["collectives"] == {}


def test_xla_has_no_broadcast_on_cpus() -> None:
    """The reason for `engines/xla/broadcasts.py`, which goes when this fails."""
    from flambeau.engines.errors import EngineError
    from flambeau.engines.xla.client import compile_program, get_device

    text = (
        "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {"
        ' %0 = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<0> : tensor<1x1xi64>}>'
        " : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }"
    )
    with pytest.raises(EngineError, match="collective-broadcast"):
        compile_program(text, get_device("cpu"), use_cache=False)
