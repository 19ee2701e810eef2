"""What the engine thread tells the app: frozen records, drained by the app on a timer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import BubbleReport, DeviceInfo, ModelInfo, Sampling, Token


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A stage of loading and how far it is; ``total`` is bytes for the stage "weights", else a count."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What there is to know about the engine once it is open."""

    model: ModelInfo
    device: DeviceInfo
    context_tokens: int
    weight_bytes: int
    device_bytes: int
    kv_token_bytes: int
    state_bytes: int
    sampling: Sampling
    mode: str
    fusion: bool
    barriers: str
    refused_modes: Mapping[str, str] = field(default_factory=dict)  # those not offered here, with the reason
    refused_barriers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The engine could not be opened: one line."""

    problem: str


@dataclass(frozen=True, slots=True)
class DeviceMeasured:
    """What is measured once for a device, None where it could not be, and how many bytes a token reads.

    ``first_token_bytes`` at position 0, ``last_token_bytes`` at ``last_position``.
    """

    probe_gb_s: float | None
    queued_gap_us: float | None
    first_token_bytes: int
    last_token_bytes: int
    last_position: int

    def token_bytes(self, position: int) -> int:
        """Bytes read by the token fed at ``position``: weights, and a KV cache that grows by the same at each."""
        grown = (self.last_token_bytes - self.first_token_bytes) * position / max(self.last_position, 1)
        return round(self.first_token_bytes + grown)


@dataclass(frozen=True, slots=True)
class Measuring:
    """The measurement under way, and how many of all are done."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class BubblesMeasured:
    """What the bubble meter found."""

    report: BubbleReport


@dataclass(frozen=True, slots=True)
class SettingMeasured:
    """The tokens of a measurement under one setting, token 0 included."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class MeasuringEnded:
    """No more measurements come: all are there (empty ``problem``), or one line that says why not."""

    problem: str


@dataclass(frozen=True, slots=True)
class Trimmed:
    """So many of the oldest turns were left out to make room."""

    request: int
    dropped_turns: int


@dataclass(frozen=True, slots=True)
class TooLong:
    """The newest message does not fit into the context by itself."""

    request: int
    prompt_tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the prompt has been fed."""

    request: int
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the KV cache; ``kept_tokens`` of it were there already."""

    request: int
    fed_tokens: int
    kept_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenArrived:
    """One token; ``since_send_s`` is the time since the message was sent (token 0: time to first token)."""

    request: int
    token: Token
    position: int
    since_send_s: float
    device_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The reply is over: "stop", "length", "context" or "cancelled"."""

    request: int
    finish_reason: str


@dataclass(frozen=True, slots=True)
class ReplyFailed:
    """The engine gave up on this reply: one line. What had arrived stays."""

    request: int
    problem: str


ReplyEvent = Trimmed | TooLong | PrefillProgress | Prefilled | TokenArrived | ReplyEnded | ReplyFailed
Event = (
    LoadProgress
    | Loaded
    | LoadFailed
    | DeviceMeasured
    | Measuring
    | BubblesMeasured
    | SettingMeasured
    | MeasuringEnded
    | ReplyEvent
)
