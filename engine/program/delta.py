"""Gated DeltaNet layers, and the output gate of the attention layers beside them: from nodes to ops.

Nodes' arguments (slices hold float32 activations, ``tokens`` rows of them; ``state`` numbers the recurrent states):

    conv        (x, weight, state, y)      y = SiLU of the convolution of x; queries and keys l2-normed
    delta       (x, y, alpha, beta, bias, a, state, o)  the delta rule on y, whose input x enters the state
    gated_norm  (o, z, weight, y)          y = RMS norm of each head of o, times silu(z)
    delta_step  (x, conv weight, alpha, beta, bias, a, z, norm weight, state, y)  all three of one token
    sigmoid_mul  (x, gate)                 x *= sigmoid(gate)

``x`` (conv_size) are queries, keys and values one after another, ``alpha`` and ``beta`` (value_heads) what the state's
decay and the strength of its change are worked out from, with ``bias`` and ``a`` (value_heads,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.cache import RecurrentState
from engine.models.config import Geometry
from engine.program.nodes import Node
from engine.program.op import Op
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Defines, KernelSet

_FLOAT_BYTES = 4
_GROUP_LANES = 128  # LANES of delta_groups.comp
_MOST_LANES = 1024
_COLUMN_LANES = 8  # COLUMN_LANES of delta.glsl


def delta_kernels(kernels: KernelSet, g: Geometry, prefill: bool) -> dict[str, tuple[str, Defines]]:
    """Kernel and defines of each kind of node on this device; none for a model without such layers."""
    if g.delta is None:
        return {}
    size = g.delta.head_size
    head: Defines = {"HEAD_DIM": size}
    found = {
        "conv": ("conv", head),
        "delta": ("delta_rows" if kernels.device.row_kernels else "delta_groups", head),
        "gated_norm": ("gated_norm", head),
        "sigmoid_mul": ("sigmoid_mul", {}),
    }
    if not prefill and not kernels.device.row_kernels:
        if kernels.resident is None:
            lanes = min(size * _column_lanes(kernels), _MOST_LANES, kernels.device.most_invocations)
        else:
            lanes = kernels.resident.group
        found["delta_step"] = ("delta_step", {**head, "LANES": lanes})
    return found


class DeltaLowering:
    """Turns the nodes of this module into ops for ``tokens`` rows."""

    def __init__(
        self,
        kernels: KernelSet,
        g: Geometry,
        state: Slice,
        recurrent: Sequence[RecurrentState],
        marked: Sequence[RecurrentState],
        tokens: int,
        prefill: bool,
    ) -> None:
        found = delta_kernels(kernels, g, prefill)
        self._kernels = {kind: kernels.get(name, defines) for kind, (name, defines) in found.items()}
        self._g, self._state, self._recurrent, self._marked, self._tokens = g, state, recurrent, marked, tokens
        lanes = _GROUP_LANES // _column_lanes(kernels)
        rows = kernels.device.row_kernels
        shape = g.delta
        self.lowered: dict[str, Callable[[Node], Op]] = {}
        if shape is None:
            return
        self._heads = (shape.key_heads, shape.value_heads)
        self._state_bytes = 2 * shape.state_bytes
        if rows:
            self._delta_groups = (-(-shape.value_size // kernels.device.subgroup_size), 1, 1)
        else:
            self._delta_groups = (shape.head_size // lanes, shape.value_heads, 1)
        self._conv_heads = 2 * shape.key_heads + shape.value_heads
        self.lowered = {
            "conv": self._conv,
            "delta": self._delta,
            "gated_norm": self._gated_norm,
            "sigmoid_mul": self._sigmoid_mul,
        }
        if "delta_step" in found:
            self.lowered["delta_step"] = self._delta_step

    def _conv(self, node: Node) -> Op:
        x, weight, state, y = node.args
        buffers = (x, weight, self._recurrent[state].conv, self._state, y)
        groups = (self._conv_heads, self._tokens, 1)
        return Op(node.name, self._kernels["conv"], buffers, self._heads, groups, "small", x.size * 2 + weight.size)

    def _delta(self, node: Node) -> Op:
        x, y, alpha, beta, bias, a, state, o = node.args
        recurrent = self._recurrent[state]
        buffers = (y, x, alpha, beta, bias, a, *recurrent, self._state, o, *self._marked[state])
        scalars = (*self._heads, self._tokens)
        moved = self._state_bytes + y.size + o.size
        return Op(node.name, self._kernels["delta"], buffers, scalars, self._delta_groups, "small", moved)

    def _gated_norm(self, node: Node) -> Op:
        o, z, weight, y = node.args
        groups = (self._heads[1], self._tokens, 1)
        return Op(
            node.name, self._kernels["gated_norm"], (o, z, weight, y), (self._g.eps,), groups, "small", o.size * 3
        )

    def _sigmoid_mul(self, node: Node) -> Op:
        x, gate = node.args
        count = x.size // _FLOAT_BYTES
        groups = (-(-count // 64), 1, 1)
        return Op(node.name, self._kernels["sigmoid_mul"], (x, gate), (count,), groups, "small", x.size * 3)

    def _delta_step(self, node: Node) -> Op:
        x, conv_weight, alpha, beta, bias, a, z, weight, state, y = node.args
        recurrent = self._recurrent[state]
        buffers = (
            x, conv_weight, alpha, beta, bias, a, z, weight, recurrent.conv, recurrent.delta, self._state, y
        )  # fmt: skip
        moved = self._state_bytes + recurrent.conv.size + conv_weight.size + x.size + 2 * y.size
        groups = (self._heads[1], 1, 1)
        return Op(node.name, self._kernels["delta_step"], buffers, (*self._heads, self._g.eps), groups, "small", moved)


def _column_lanes(kernels: KernelSet) -> int:
    return min(_COLUMN_LANES, kernels.device.subgroup_size)
