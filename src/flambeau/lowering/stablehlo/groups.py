"""Groups of devices that exchange tensors: the lines of a mesh along some of its axes.

Devices are numbered by their places in the mesh, the last axis fastest. In a mesh of `data=2` and `tensor=3` the groups
along `tensor` are [0, 1, 2] and [3, 4, 5]; those along `data` are [0, 3], [1, 4] and [2, 5].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from flambeau.diagnostics import Unsupported


@dataclass(frozen=True)
class Groups:
    """The mesh of a program, and the axes that its process groups are along."""

    mesh: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the axes."""
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of a process group, the axes along which it is; the first is the slowest in its ranks' order."""

    @classmethod
    def parse(cls, mesh: Sequence[str], groups: Sequence[str]) -> Groups:
        """Read the options of a pass: `("data=2", "tensor=4")`, and `("5=tensor", "0=data+tensor")`."""
        sizes = {name: int(size) for name, _, size in (part.rpartition("=") for part in mesh)}
        along = {name: tuple(filter(None, axes.split("+"))) for name, _, axes in (g.rpartition("=") for g in groups)}
        for name, axes in along.items():
            if unknown := [axis for axis in axes if axis not in sizes]:
                raise ValueError(f"the process group {name!r} is along {unknown[0]!r}, and the mesh has no such axis")
        return cls(sizes, along)

    def options(self) -> dict[str, tuple[str, ...]]:
        """Write them as the options of a pass, which `parse` reads."""
        return {
            "mesh": tuple(f"{name}={size}" for name, size in self.mesh.items()),
            "groups": tuple(f"{name}={'+'.join(axes)}" for name, axes in self.axes.items()),
        }

    def members(self, name: str) -> list[list[int]]:
        """List the devices of each of the groups that a process group stands for, in the order of its ranks.

        Raises Unsupported for a process group of which nobody has said where it is.
        """
        if name not in self.axes:
            raise Unsupported(
                f"it is over the process group {name!r}, and nobody says which devices these are",
                "Give compile() the mesh, a DeviceMesh or {'tensor': 4}, and Plan(groups={...}) if the group's ranks "
                "are not those along axes of the mesh.",
            )
        return groups_along(self.mesh, self.axes[name])


def groups_along(mesh: Mapping[str, int], axes: Sequence[str]) -> list[list[int]]:
    """List the devices of each line of a mesh along some axes, the first of which is the slowest within a line."""
    numbers = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    names = list(mesh)
    order = [i for i, name in enumerate(names) if name not in axes] + [names.index(axis) for axis in axes]
    size = math.prod(mesh[axis] for axis in axes)
    lines: list[list[int]] = numbers.transpose(order).reshape(-1, size).tolist()
    return lines


def axes_along(mesh: Mapping[str, int], line: Sequence[int]) -> tuple[str, ...] | None:
    """Find the axes that a line of devices is along, the inverse of `groups_along`; None if it is along none.

    Axes of size 1 are left out: along them every line has one device.
    """
    names = [name for name, size in mesh.items() if size > 1]
    for count in range(len(names) + 1):
        for axes in permutations(names, count):
            if math.prod(mesh[axis] for axis in axes) == len(line) and list(line) in groups_along(mesh, axes):
                return axes
    return None
