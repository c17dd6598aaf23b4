"""Programs over many devices: XLA partitions them, and each device has its part of the tensors.

In several processes (`jax.distributed.initialize`), each has the devices of its own, compiles the same program, and is
called with the same arguments; of weights it reads the parts that its devices need.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.backend as backends
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.xla.client import OPTIONS, Device, JaxError, from_array, host_array
from flambeau.engines.xla.programs import Program
from flambeau.ir.module import ScalarSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A function that XLA has compiled for a mesh of devices, with its weights on them."""

    program: Program
    executable: Any
    shardings: list[NamedSharding]
    split: list[NamedSharding | None]
    """How results are laid out that are split; None for those that are whole."""
    written: frozenset[int]
    """The results that become state, which are put together."""
    weights: list[Any]
    device: Device
    """Any of those that the program runs on, which tells what kind they are."""
    arguments: tuple[TensorSpec | ScalarSpec, ...]
    results: tuple[TensorSpec | ScalarSpec, ...]

    def __call__(self, values: Sequence[Any], as_torch: bool) -> list[Any]:
        """Run the function on a value for each argument; gives its results: tensors, or JAX's arrays if split."""
        arrays = [
            _distribute(host_array(value, spec), sharding)
            for value, spec, sharding in zip(values, self.arguments, self.shardings, strict=False)
        ]
        try:
            outputs = self.executable.execute_sharded([*arrays, *self.weights])
            found = outputs.disassemble_into_single_device_arrays()
            if self.program.checks and (failed := int(np.asarray(found[-1][0]))):
                raise RunError(self.program.checks[failed - 1])
            return [
                self._result(parts, spec, sharding, as_torch, i in self.written)
                for i, (parts, spec, sharding) in enumerate(zip(found, self.results, self.split, strict=False))
            ]
        except JaxError as error:
            raise RunError(str(error)) from error

    def _result(
        self,
        parts: Sequence[Any],
        spec: TensorSpec | ScalarSpec,
        sharding: NamedSharding | None,
        as_torch: bool,
        is_state: bool,
    ) -> Any:
        if sharding is None or not isinstance(spec, TensorSpec):
            # It is whole on every device: the first one's will do.
            return from_array(self.device, parts[0], spec, as_torch, to_cpu=True)
        shape = tuple(n or 0 for n in spec.shape)
        with jax.enable_x64(True):
            array = jax.make_array_from_single_device_arrays(shape, sharding, list(parts))
            if not is_state:
                return array
            if not array.is_fully_addressable:
                array = multihost_utils.process_allgather(array, tiled=True)
            whole = jax.device_put(array, self.device.handle)
        return from_array(self.device, whole, spec, as_torch, to_cpu=True)

    def collectives(self) -> dict[str, int]:
        """Count the collective operations of the partitioned program by name, `all-reduce` and others."""
        text = self.executable.hlo_modules()[0].to_string()
        names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
        return {name: count for name in names if (count := text.count(f" {name}(") + text.count(f" {name}-start("))}

    def bytes_per_device(self) -> int:
        """Count the bytes of arguments and weights that one device holds."""
        return int(self.executable.get_compiled_memory_stats().argument_size_in_bytes)


def partition(
    program: Program,
    device: Device,
    weights: Mapping[str, Any],
    arguments: tuple[TensorSpec | ScalarSpec, ...],
    results: tuple[TensorSpec | ScalarSpec, ...],
    written: Collection[int] = (),
) -> Partitioned:
    """Compile a program for its mesh, on the devices of the same kind as `device`, and distribute its weights.

    `written` are the results that become state.
    """
    axes = dict(program.axes)
    wanted, devices = math.prod(axes.values()), device.client.devices()
    if len(devices) < wanted:
        raise EngineError(
            f"the program is laid out over {wanted} devices ({_show(axes)}), and there are {len(devices)}: give load() "
            "another mesh, or simulate devices on the CPU by XLA_FLAGS=--xla_force_host_platform_device_count="
            f"{wanted} in the environment"
        )
    used = devices[:wanted]
    mesh = Mesh(np.array(used, dtype=object).reshape(tuple(axes.values())), tuple(axes))
    shardings = [_sharding(mesh, layout) for layout in program.layouts]
    stay = [None if layout is None else _sharding(mesh, layout) for layout in program.results]
    options = backends.get_compile_options(
        num_replicas=1,
        num_partitions=wanted,
        device_assignment=np.array([[d.id for d in used]]),
        env_options_overrides=dict(OPTIONS),
        backend=device.client,
    )
    try:
        executable = device.client.compile_and_load(program.text, used, options)
    except (JaxError, ValueError, RuntimeError) as error:
        raise EngineError(f"XLA could not compile the program: {str(error).strip()[:2000]}") from error
    of_weights = shardings[len(arguments) :]
    placed = []
    for name, sharding in zip(program.weights, of_weights, strict=True):
        try:
            placed.append(_distribute(_readable(name, weights[name]), sharding))
        except (ValueError, TypeError) as error:
            raise EngineError(f"cannot distribute the weight {name!r}: {error}") from error
    split = stay or [None] * len(results)
    of_arguments = shardings[: len(arguments)]
    return Partitioned(program, executable, of_arguments, split, frozenset(written), placed, device, arguments, results)


def _sharding(mesh: Mesh, layout: Sequence[Sequence[str]]) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*(tuple(part) or None for part in layout)))  # type: ignore[no-untyped-call]


class _Parts:
    """A weight of which this process has a part: a `DTensor`, whose own part is that of its rank."""

    def __init__(self, name: str, tensor: Any) -> None:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        self.name, self.shape = name, tuple(tensor.shape)
        sizes, starts = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        self.bounds = [(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        self.own = host_array(tensor.to_local().detach())

    def __getitem__(self, index: tuple[slice, ...]) -> Any:
        """Read a part of the whole; EngineError if another rank has it."""
        wanted = [s.indices(n)[:2] for s, n in zip(index, self.shape, strict=True)]
        if any(start < low or stop > high for (start, stop), (low, high) in zip(wanted, self.bounds, strict=True)):
            raise EngineError(
                f"{self.name} is a DTensor of which this process has {_ranges(self.bounds)}, and its devices need "
                f"{_ranges(wanted)}: give compile() the whole weights, Plan(weights=state_dict), or run one process "
                "for each rank"
            )
        return self.own[tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(wanted, self.bounds, strict=True))]


def _ranges(bounds: Sequence[tuple[int, ...]]) -> str:
    return "[" + ", ".join(f"{bound[0]}:{bound[1]}" for bound in bounds) + "]"


def _readable(name: str, weight: Any) -> Any:
    """Make something of a weight that parts can be read of."""
    return _Parts(name, weight) if hasattr(weight, "device_mesh") else host_array(weight)


def _distribute(array: Any, sharding: NamedSharding) -> Any:
    """Give each device its part of an array; only the parts of this process's devices are read."""
    with jax.enable_x64(True):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _show(axes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in axes.items())
