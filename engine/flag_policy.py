"""When barrier policy ``flags`` may be used: what it needs before a token runs under it, and what ends its use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.decode import flags
from engine.decode.flags import Flags
from engine.decode.program import Settings
from engine.decode.step import Mode
from engine.errors import EngineError
from engine.profile.waiting import waits_in_memory
from engine.program.op import Op
from engine.program.schedule import FLAGS, NEEDED
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Kernels


class FlagPolicy:
    """``refused`` has the policy's name and the reason, one line, where it is not offered or no longer.

    ``decode_ops`` are a token's ops by fusion passes, ``run_once`` runs such a token on a scratch state, ``arrivals``
    are attention's counters, zero between tokens.
    """

    def __init__(
        self,
        device: Device,
        memory: Memory,
        kernels: Kernels,
        waits: Flags,
        arrivals: Slice,
        decode_ops: Callable[[tuple[str, ...]], Sequence[Op]],
        run_once: Callable[[Settings], None],
    ) -> None:
        self._device, self._memory, self._kernels = device, memory, kernels
        self._waits, self._arrivals, self._decode_ops, self._run_once = waits, arrivals, decode_ops, run_once
        self._prepared: set[tuple[str, ...]] = set()  # passes whose kernels are there
        reason = flags.unavailable(device)
        self.refused: dict[str, str] = {} if reason is None else {FLAGS: reason}

    def usual(self, passes: tuple[str, ...]) -> str:
        """The policy that is fastest on such a device: this one on GPUs that pass its check."""
        if self._device.is_cpu or self.refused:
            return NEEDED
        try:
            self._prepare(passes)
        except EngineError:
            return NEEDED
        return FLAGS

    def prepare(self, settings: Settings) -> bool:
        """Build the kernels that tokens of ``settings`` wait by, and at the first time check that they can.

        False where there was nothing left to do; else nothing may be in flight. EngineError where they cannot: the
        policy is refused from then on.
        """
        return waits_in_memory(settings.mode, settings.barriers) and self._prepare(settings.passes)

    def forget(self) -> None:
        """A token's kernels are others now: build anew what they wait by."""
        self._prepared.clear()

    def problem(self, mode: Mode | None = None) -> str | None:
        """What to tell the user where kernels waited in vain since the last call; None: they did not.

        Then what ``mode`` has in flight is discarded, and the policy refused from now on.
        """
        if not self._waits.stuck:
            return None
        while mode is not None and mode.in_flight:
            mode.collect()
        self._waits.reset()
        self._memory.write(self._arrivals, np.zeros(self._arrivals.size, np.uint8))
        self._memory.flush()
        self.refused[FLAGS] = "a kernel waited in vain for those before it"
        return f"barriers {FLAGS}: {self.refused[FLAGS]}: ask again, with barriers {NEEDED}"

    def require(self) -> None:
        """Raise EngineError where kernels waited in vain; nothing may be in flight."""
        if (problem := self.problem()) is not None:
            raise EngineError(problem)

    def _prepare(self, passes: tuple[str, ...]) -> bool:
        if passes in self._prepared:
            return False
        try:
            if not self._prepared and (problem := self._waits.check()) is not None:
                raise EngineError(problem)
            self._kernels.prepare(self._waits.jobs(self._decode_ops(passes), stamped=False), lambda: None)
        except EngineError as error:
            self.refused[FLAGS] = str(error)
            raise EngineError(f"barriers {FLAGS} are not offered here: {error}") from error
        self._prepared.add(passes)
        if self._device.is_cpu:  # which compiles a kernel when it first runs
            self._run_once(Settings("reuse", passes, FLAGS))
            self.require()
        return True
