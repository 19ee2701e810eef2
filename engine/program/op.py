"""One kernel launch of a program, as data: what it runs, touches and costs."""

from __future__ import annotations

from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernel

PIECES = ("weights", "kv", "small", "head")


class Op:
    """A dispatch of ``kernel`` over ``groups`` workgroups, in x and y alone: in z the bubble meter repeats their work.

    ``buffers`` follow the kernel's bindings, ``push`` holds its push constants, ``bytes_moved`` the bytes
    it must read and write, wherever the token stands, ``piece`` the part of a token's time it counts under (one of
    PIECES), ``name`` what the timeline calls it.
    """

    __slots__ = ("buffers", "bytes_moved", "groups", "kernel", "name", "piece", "push")

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        buffers: tuple[Slice, ...],
        scalars: tuple[int | float, ...],
        groups: tuple[int, int, int],
        piece: str = "small",
        bytes_moved: int = 0,
    ) -> None:
        if groups[2] != 1:
            raise ValueError(f"{name}: workgroups in z would do the work of z = 0 again")
        self.name = name
        self.kernel = kernel
        self.buffers = buffers
        self.push = kernel.pack(*[item.address for item in buffers], *scalars)
        self.groups = groups
        self.piece = piece
        self.bytes_moved = bytes_moved

    def bytes_at(self, position: int) -> int:
        """All that it must read and write for a token fed at ``position``."""
        return self.bytes_moved

    def with_kernel(self, kernel: Kernel, push: bytes) -> Op:
        """This op run by another kernel with other push constants."""
        other = Op.__new__(type(self))
        other.name, other.kernel, other.buffers, other.push = self.name, kernel, self.buffers, push
        other.groups, other.piece, other.bytes_moved = self.groups, self.piece, self.bytes_moved
        return other


class Attention(Op):
    """Decode attention, which beside ``bytes_moved`` reads ``kv_token_bytes`` of each token of the KV cache.

    It sees the newest ``window`` of them; 0: all.
    """

    __slots__ = ("kv_token_bytes", "window")

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        buffers: tuple[Slice, ...],
        scalars: tuple[int | float, ...],
        groups: tuple[int, int, int],
        bytes_moved: int,
        kv_token_bytes: int,
        window: int,
    ) -> None:
        super().__init__(name, kernel, buffers, scalars, groups, "kv", bytes_moved)
        self.kv_token_bytes, self.window = kv_token_bytes, window

    def bytes_at(self, position: int) -> int:
        """See Op."""
        return self.bytes_moved + min(position + 1, self.window or position + 1) * self.kv_token_bytes

    def with_kernel(self, kernel: Kernel, push: bytes) -> Op:
        """See Op."""
        other = super().with_kernel(kernel, push)
        assert isinstance(other, Attention)
        other.kv_token_bytes, other.window = self.kv_token_bytes, self.window
        return other
