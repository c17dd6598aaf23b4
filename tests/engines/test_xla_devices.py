"""Programs over many devices, simulated on the CPU: equal results, the expected collectives, less memory for each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("many_devices.py")
SOURCES = Path(__file__).parents[2] / "src"
EQUAL = 1e-5

pytestmark = pytest.mark.engine


def start(*names: str, **environment: str) -> subprocess.Popen[str]:
    """Start functions of the script in a process of its own, which has devices of its own."""
    env = {**os.environ, "PYTHONPATH": str(SOURCES), **environment}
    command = [sys.executable, str(SCRIPT), *names]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> Any:
    """Wait for a process and read what it printed last."""
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return json.loads(out.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def found() -> Any:
    return result_of(start("tensor_parallel", "embeddings_and_sequences", "fully_sharded", "state", "training"))


def test_a_llama_in_tensor_parallel(found: Any) -> None:
    found = found["tensor_parallel"]
    assert all(found[key]["difference"] < EQUAL for key in ("2x4", "1x4", "2x2", "1x2", "1x1"))
    # Megatron's plan: one all-reduce behind attention and one behind the MLP of each of four layers, nothing else.
    assert found["1x4"]["collectives"] == {"all-reduce": 8}
    assert found["1x2"]["collectives"] == {"all-reduce": 8}
    # Where the batch is split too, the result is gathered, and so is whether all indices are in range.
    assert found["2x4"]["collectives"] == {"all-reduce": 9, "all-gather": 1}
    whole, split = found["weights"], found["split"]
    for key, parts in (("1x4", 4), ("1x2", 2)):
        expected = whole - split + split / parts
        assert expected <= found[key]["bytes"] <= expected + 4096  # the inputs


def test_embeddings_and_sequences_are_split_too(found: Any) -> None:
    found = found["embeddings_and_sequences"]
    assert found["difference"] < EQUAL
    assert found["collectives"]["all-gather"] > 0
    assert found["bytes"] < 210_000  # the embedding and the head, 128 kB, are split into four


def test_weights_are_fully_sharded(found: Any) -> None:
    found = found["fully_sharded"]
    assert found["difference"] < EQUAL
    assert found["bytes"] <= found["weights"] / 8 + 1024
    assert found["collectives"]["all-gather"] > 0


def test_state_is_written_and_checks_raise(found: Any) -> None:
    assert found["state"] == {"same": True, "calls": [2.0] * 8, "message": "index out of range"}


@pytest.mark.parametrize(("plan", "share"), [("megatron", 0.45), ("fsdp", 0.25)])
def test_a_training_step_is_split_as_the_model_is(found: Any, plan: str, share: float) -> None:
    """What the optimiser holds lies as the parameters do, and all of it is written back."""
    found = found["training"][plan]
    for mine, expected in found["losses"]:
        assert abs(mine - expected) < 1e-4
    assert found["losses"][-1][0] < found["losses"][0][0]
    assert found["difference"] < 1e-4
    assert found["collectives"]["all-reduce"] > 8  # those of the forward pass, of its gradients, and over the data
    assert found["bytes"] < share * found["state"]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run two processes with four devices each, and give what they find."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    names = ("one_of_two_processes", "shard_by_shard", "own_parts")
    shared = {"PORT": port, "SIMULATED_DEVICES": "4", "FOLDER": str(tmp_path_factory.mktemp("shards"))}
    processes = [start(*names, PROCESS=str(n), **shared) for n in range(2)]
    return list(map(result_of, processes))


def test_two_processes(of_two: list[Any]) -> None:
    for result in of_two:
        found = result["one_of_two_processes"]
        assert found["difference"] < EQUAL
        assert (found["local"], found["all"]) == (4, 8)
        assert found["collectives"]["all-reduce"] == 9


def test_a_process_reads_of_weights_what_its_devices_need(of_two: list[Any]) -> None:
    for result in of_two:
        found = result["shard_by_shard"]
        assert found["difference"] < EQUAL
        # It has four of the eight devices, so half of each weight, in the memory that the file is mapped to.
        assert found["read"] == found["weights"] / 2
        assert found["are_mapped"]
        assert found["bytes"] <= found["weights"] / 8 + 4096


def test_a_process_has_the_parts_of_dtensors_that_its_rank_has(of_two: list[Any]) -> None:
    for result in of_two:
        assert result["own_parts"]["difference"] < EQUAL
        assert result["own_parts"]["collectives"] == {"all-reduce": 1}
