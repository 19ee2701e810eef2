"""What a user can switch between two tokens: decode mode, fusion and barriers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.decode import MODES
from engine.decode.program import Settings
from engine.errors import EngineError
from engine.program.fusion import PASSES
from engine.program.schedule import BARRIERS, NEEDED
from engine.runtime import Runtime


class Switches:
    """The part of an Engine that holds them; they may be set from any thread, and are read before each token."""

    _runtime: Runtime
    _mode: str
    _barriers: str
    _passes: tuple[str, ...]

    @property
    def mode(self) -> str:
        """The decode mode; setting it takes effect at the next token boundary. EngineError if unknown or refused."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        if value not in MODES:
            raise EngineError(f"unknown mode {value!r}; there is {', '.join(MODES)}")
        if (reason := self.refused_modes.get(value)) is not None:
            raise EngineError(f"mode {value} is not offered here: {reason}")
        self._mode = value

    @property
    def modes(self) -> tuple[str, ...]:
        """Those of MODES that this device and model have."""
        return tuple(mode for mode in MODES if mode not in self.refused_modes)

    @property
    def refused_modes(self) -> Mapping[str, str]:
        """The others, with the reason: one line. A mode may come to this when it is first tried."""
        return self._runtime.refused_modes

    @property
    def barriers(self) -> str:
        """The barrier policy; setting it takes effect at the next token boundary. EngineError if unknown or refused.

        Once a device has come to refuse it, it is "needed".
        """
        return NEEDED if self._barriers in self.refused_barriers else self._barriers

    @barriers.setter
    def barriers(self, value: str) -> None:
        if value not in BARRIERS:
            raise EngineError(f"unknown barrier policy {value!r}; there is {', '.join(BARRIERS)}")
        if (reason := self.refused_barriers.get(value)) is not None:
            raise EngineError(f"barriers {value} are not offered here: {reason}")
        self._barriers = value

    @property
    def barrier_policies(self) -> tuple[str, ...]:
        """Those of BARRIERS that this device has."""
        return tuple(policy for policy in BARRIERS if policy not in self.refused_barriers)

    @property
    def refused_barriers(self) -> Mapping[str, str]:
        """The others, with the reason: one line. A policy may come to this when it is first tried."""
        return self._runtime.flag_policy.refused

    @property
    def fusion(self) -> bool:
        """Whether fusion passes run. Set it, from the next token on, to True (those that pay here), False or names."""
        return bool(self._passes)

    @fusion.setter
    def fusion(self, value: bool | Iterable[str]) -> None:
        self._passes = self._chosen_passes(value)

    def _settings(self) -> Settings:
        return Settings(self._mode, self._passes, self.barriers)

    def _chosen_passes(self, value: bool | Iterable[str]) -> tuple[str, ...]:
        if isinstance(value, bool):
            return self._runtime.passes if value else ()
        names = {value} if isinstance(value, str) else set(value)
        if unknown := sorted(names - set(PASSES)):
            raise EngineError(f"unknown fusion pass {unknown[0]!r}; there is {', '.join(PASSES)}")
        return tuple(name for name in self._runtime.offered_passes if name in names)
