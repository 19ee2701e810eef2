"""The tensors a model asks for, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.program.matrix_kernels import Use
from engine.program.nodes import Stack
from engine.program.operands import Weight
from engine.vulkan.memory import Slice
from engine.weights.gguf_header import TensorInfo


class Rows(NamedTuple):
    """Of every ``period`` rows of a tensor in the file the ``taken`` from ``first`` on."""

    period: int
    first: int
    taken: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor a model needs: its name and shape, row-major.

    ``uses`` are what ``engine.program.matrix`` does with it; without one it is a vector, float32 on the device,
    whatever its shape. Tensors with the same ``stack`` are laid out next to each other where their types allow, and
    ``stacked`` is what it does with all of them at once besides; ``host`` ones stay on the host. With ``rows`` the
    tensor is those rows of the file's tensor ``source``.
    """

    name: str
    shape: tuple[int, ...]
    uses: tuple[Use, ...] = ()
    stack: str | None = None
    stacked: tuple[Use, ...] = ()
    host: bool = False
    source: str = ""  # the name in the file where it is another
    rows: Rows | None = None

    @property
    def file_name(self) -> str:
        """The tensor's name in the file."""
        return self.source or self.name

    @property
    def file_shape(self) -> tuple[int, ...]:
        """The tensor's shape in the file."""
        if self.rows is None:
            return self.shape
        return (self.shape[0] // self.rows.taken * self.rows.period, *self.shape[1:])

    def bytes_of(self, info: TensorInfo) -> int:
        """How many of the bytes of the file's tensor are this one's."""
        return info.size_bytes if self.rows is None else info.size_bytes // self.rows.period * self.rows.taken


@dataclass(slots=True)
class Weights:
    """What a model's nodes refer to.

    ``stacks`` is keyed by the id() of a stack's first matrix; ``spans`` has the slice of n stacked vectors at (id() of
    the first, n).
    """

    matrices: dict[str, Weight] = field(default_factory=dict)
    vectors: dict[str, Slice] = field(default_factory=dict)
    host: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    stacks: dict[int, Stack] = field(default_factory=dict)
    spans: dict[tuple[int, int], Slice] = field(default_factory=dict)

    def all_matrices(self) -> list[Weight]:
        """The matrices, and the stacks of them."""
        return [*self.matrices.values(), *(stack.combined for stack in self.stacks.values())]
