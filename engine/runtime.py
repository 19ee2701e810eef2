"""Runtime: one model's weights, buffers, kernels and modes on one device."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from threading import Event, Thread

import numpy as np

from engine.decode import MODE_CLASSES
from engine.decode.first import First
from engine.decode.flags import Flags
from engine.decode.persistent import Persistent, unavailable
from engine.decode.program import ProgramBuilder, Settings, Slot
from engine.decode.sampling import Sampling
from engine.decode.state import STEP_BYTES, initial_state, pack_step
from engine.decode.step import Mode, Request, Resources, Step
from engine.errors import EngineError
from engine.flag_policy import FlagPolicy
from engine.models.architecture import Architecture
from engine.models.config import Geometry
from engine.prefill import Prefill, chunk_tokens
from engine.profile import traffic
from engine.profile.bubble_meter import FEW_ROUNDS
from engine.profile.bubble_report import BubbleReport
from engine.profile.choose import choice_key, remember, remembered
from engine.profile.instruments import Instruments, SubmitHint
from engine.profile.kernel_clock import kernel_clock
from engine.profile.scratch import Scratch
from engine.profile.stamps import Stamps
from engine.program.activations import ActivationBuffers, Activations
from engine.program.attend_division import sees_many
from engine.program.lower import Lowering
from engine.program.matrix_kernels import layout
from engine.program.op import Op
from engine.program.resident import ResidentKernels
from engine.program.schedule import FLAGS, NEEDED
from engine.progress import Progress
from engine.row_measurement import RowMeasurement
from engine.row_tuner import RowTuner
from engine.setup import allocate_buffers, decode_builder, kernel_jobs, sampler
from engine.snapshots import SnapshotStore
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Defines, Kernels, KernelSet
from engine.weights.load import TensorSpec, load
from engine.weights.source import ModelSource

_STAMP_EVERY = 16


class Runtime:
    """Everything that lives on the device. What it registers on ``cleanup`` frees it again.

    ``offered_passes`` are the fusion passes this device has kernels for, ``passes`` those that pay here;
    ``usual_barriers`` is the barrier policy that is fastest on such a device;
    ``stamp_every``: every how many tokens of a reply one is stamped; 0: never.
    """

    def __init__(
        self,
        device: Device,
        file: ModelSource,
        model: Architecture,
        geometry: Geometry,
        specs: list[TensorSpec],
        context: int,
        tuning: bool | None,
        progress: Progress,
        cleanup: ExitStack,
    ) -> None:
        """Build the kernels and load the weights; EngineError where memory is out or a kernel is refused.

        ``tuning``: see RowTuner.
        """
        self._device = device
        memory = self.memory = Memory(device)
        cleanup.callback(memory.close)
        kernels = self._kernels = Kernels(device)
        cleanup.callback(kernels.close)
        usual_jobs = kernel_jobs(kernels, geometry, file.tensors, specs)
        self.tuner = RowTuner(kernels, tuning, (geometry, usual_jobs))

        def prepare_kernels(used: KernelSet) -> list[tuple[str, Defines, bool]]:
            jobs = kernel_jobs(used, geometry, file.tensors, specs)
            progress("kernels", 0, len(jobs))
            finished = iter(range(1, len(jobs) + 1))
            kernels.prepare(jobs, lambda: progress("kernels", next(finished), len(jobs)))
            return jobs

        def prepare_far() -> list[tuple[str, Defines, bool]]:
            far = self.tuner.far
            return [] if far is None or not sees_many(context) else prepare_kernels(far)

        jobs, far_jobs = prepare_kernels(kernels), prepare_far()

        weights = load(file, specs, memory, layout(kernels), lambda done, total: progress("weights", done, total))
        frequencies = model.rope_frequencies(geometry, file.metadata, weights.host)
        buffers = allocate_buffers(memory, geometry, context, frequencies, chunk_tokens(device.row_kernels))
        activations = ActivationBuffers(memory, geometry, chunk_tokens(device.row_kernels))
        single = Activations(activations, 1)
        sampling = sampler(memory, kernels, geometry.vocab, single, buffers)

        def new_slot() -> Slot:
            return Slot(memory.allocate(STEP_BYTES, "upload"), memory.allocate(16, "readback"))

        def new_commands() -> CommandBuffer:
            # a GPU's driver answers at once when it is asked; the copy takes 8 us a token on an H200
            return CommandBuffer(device, memory.allocate(16, "readback") if device.is_cpu else None)

        self._context = context
        lowering = Lowering(kernels, geometry, buffers, context)
        lowering.far = self.tuner.far
        builder = self.builder = decode_builder(model, weights, single, lowering, sampling)
        self._slot = new_slot()

        def resident_builder(resident: ResidentKernels) -> ProgramBuilder:
            other = Lowering(resident, geometry, buffers, context)
            return decode_builder(
                model, weights, single, other, sampler(memory, resident, geometry.vocab, single, buffers)
            )

        self.clock, self.calibration = kernel_clock(device, memory, kernels), device.calibration
        waits = Flags(device, memory, kernels)
        self._resources = Resources(
            device=device,
            kernels=kernels,
            builder=builder,
            stamps=Stamps(memory),
            new_slot=new_slot,
            new_commands=new_commands,
            memory=memory,
            resident_builder=resident_builder,
            state=buffers.state,
            arrivals=buffers.arrivals,
            flags=waits,
            clock=self.clock,
        )
        self._modes: dict[str, Mode] = {}
        reason = unavailable(device)
        self.refused_modes: dict[str, str] = {} if reason is None else {"persistent": reason}
        self._first = First(new_commands(), self._slot, buffers.state, lambda slot: sampling(slot, 0, None))
        cleanup.callback(self._first.close)
        self.prefill = Prefill(model, geometry, weights, activations, kernels, memory, buffers, context)
        cleanup.callback(self.prefill.close)
        scratch = Scratch(device, memory, buffers.state, single.logits, buffers.arrivals, buffers.cache)
        self.instruments = Instruments(device, memory, kernels, builder, scratch, self.clock, waits)
        self._geometry = geometry
        self.snapshots = (
            SnapshotStore(device, memory, buffers.cache, single.logits) if geometry.recurrent_bytes else None
        )
        memory.write(buffers.state, np.frombuffer(initial_state(0, 0, ()), np.uint8))
        memory.write(self._slot.step, np.frombuffer(pack_step(Sampling(temperature=0.0)), np.uint8))
        memory.flush()
        self.offered_passes = lowering.passes
        self.flag_policy = FlagPolicy(
            device,
            memory,
            kernels,
            waits,
            buffers.arrivals,
            self._decode_ops,
            lambda settings: self.instruments.run_once(settings, self._slot),
        )
        rows = RowMeasurement(
            self.tuner,
            builder,
            lowering,
            self.instruments,
            waits,
            self.flag_policy,
            self._slot,
            weights.all_matrices(),
        )
        if self.tuner.is_due:
            rows.near(progress)
            jobs = prepare_kernels(kernels)
        self.passes = self._choose_passes(choice_key(device.info.name, device.info.driver, geometry, jobs), progress)
        self.usual_barriers = self.flag_policy.usual(self.passes)
        if rows.far(self.passes, self.usual_barriers, progress):
            far_jobs = prepare_far()
            self.usual_barriers = self.flag_policy.usual(self.passes)
        self._ranges: dict[tuple[int, tuple[str, ...], str], tuple[float, float]] = {}
        self.weight_bytes = sum(self.bytes_by_tensor().values())
        self.stamp_every = _STAMP_EVERY
        self._stamp_requested = False
        stamped = [(name, defines, True) for name, defines, _ in (*jobs, *far_jobs)]
        if self.usual_barriers == FLAGS:
            stamped = waits.jobs(self._decode_ops(self.passes), stamped=True) + stamped
        self._closing = Event()
        self._stamp_thread = Thread(target=self._prepare_stamps, args=(stamped,), name="zincchat-stamps", daemon=True)
        cleanup.callback(self._stop)
        self._stamp_thread.start()

    @property
    def recordings(self) -> int:
        """Decode command buffers recorded so far."""
        return sum(mode.recordings for mode in self._modes.values())

    def mode(self, name: str) -> Mode:
        """The mode's object, made on first use."""
        mode = self._modes.get(name)
        if mode is None:
            mode = self._modes[name] = MODE_CLASSES[name](self._resources)
        return mode

    def begin_mode(self, settings: Settings) -> Mode:
        """The mode of ``settings``, ready for their passes. EngineError where it turns out not to work here."""
        mode = self.mode(settings.mode)
        if isinstance(mode, Persistent):
            try:
                mode.prepare(settings.passes)
            except EngineError as error:
                self.refused_modes[settings.mode] = str(error)
                raise EngineError(f"mode {settings.mode} is not offered here: {error}") from error
        return mode

    def first_step(self, ids: list[int], params: bytes, settings: Settings) -> Step:
        """Sample a reply's first token from the prefill's logits, whose sequence is ``ids``."""
        request = Request(settings, len(ids), params, False, 1)
        return self._first.step(request, initial_state(len(ids), 0, ids))

    def request_stamps(self) -> None:
        """Make the next token a stamped one; waits for the stamped kernels if they are still being built."""
        self._stamp_thread.join()
        self._stamp_requested = True

    def stamp_due(self, index: int) -> bool:
        """Whether a reply's token ``index`` is to be an instrumented one; a request is used up by it."""
        if self._stamp_thread.is_alive():
            return False
        if self._stamp_requested:
            self._stamp_requested = False
            return True
        return self.stamp_every > 0 and index % self.stamp_every == self.stamp_every - 1

    def bubbles_range(self, position: int, settings: Settings) -> tuple[float, float]:
        """Bounds on the bubbles of the token to be fed at ``position``, us; nothing may be in flight.

        Where no upper one is known, they are at most all of its GPU time. Measured once for each bucket and setting.
        """
        bucket = self.builder.bucket(position)
        key = (bucket, settings.passes, settings.barriers)
        if key not in self._ranges:
            report = self.instruments.bubbles(position, settings, self._slot, FEW_ROUNDS)
            self.flag_policy.require()
            upper_us = report.clean_gpu_us if report.upper_us is None else report.upper_us
            self._ranges[key] = (report.lower_us, max(report.lower_us, upper_us))
        return self._ranges[key]

    def warm_up(self, settings: Settings) -> None:
        """Run a token's kernels and their stamped twins, fused as in ``settings`` and unfused; nothing in flight."""
        self._stamp_thread.join()
        for passes in {settings.passes, ()}:
            self.flag_policy.prepare(settings._replace(passes=passes))
            self.instruments.run_once(settings._replace(passes=passes), self._slot)
        self.flag_policy.require()

    def measure_bubbles(self, position: int, settings: Settings, params: bytes) -> BubbleReport:
        """The bubble meter over the token to be fed at ``position``; nothing may be in flight."""
        self._stamp_thread.join()
        self.flag_policy.prepare(settings)
        self.memory.write(self._slot.step, np.frombuffer(params, np.uint8))
        report = self.instruments.bubbles(position, settings, self._slot)
        self.flag_policy.require()
        return report

    def measure_submit_hint(self, position: int, settings: Settings, params: bytes) -> SubmitHint:
        """The same token's GPU time with and without the one-time-submit hint; nothing may be in flight."""
        self.flag_policy.prepare(settings)
        self.memory.write(self._slot.step, np.frombuffer(params, np.uint8))
        hint = self.instruments.submit_hint(position, settings, self._slot)
        self.flag_policy.require()
        return hint

    def bytes_by_tensor(self) -> dict[str, int]:
        """Bytes of each weight a token reads."""
        return traffic.bytes_by_tensor(self.builder.nodes())

    def token_bytes(self, position: int) -> dict[str, int]:
        """Bytes the token fed at ``position`` must read, by part."""
        return traffic.token_bytes(self.builder.nodes(), self._geometry, position)

    def _choose_passes(self, key: str, progress: Progress) -> tuple[str, ...]:
        chosen = remembered(key, self.offered_passes)
        if chosen is None:
            progress("fusion", 0, 1)
            chosen = self.instruments.choose_passes(self.offered_passes, self._slot)
            remember(key, chosen)
            progress("fusion", 1, 1)
        return chosen

    def _decode_ops(self, passes: tuple[str, ...]) -> list[Op]:
        """Those of the contexts whose kernels are all that there are: attention may be another build in each."""
        settings, builder = Settings("reuse", passes, NEEDED), self.builder
        return [op for bucket in builder.outer_buckets for op in builder.build(bucket, settings, self._slot).ops]

    def _prepare_stamps(self, jobs: list[tuple[str, Defines, bool]]) -> None:
        if self.clock is None:
            return
        with suppress(EngineError):  # the token that needs the kernel meets it again, and says it
            for job in jobs:
                if self._closing.is_set():
                    return
                self._kernels.get(*job)

    def _stop(self) -> None:
        self._closing.set()
        self._stamp_thread.join()
        self._device.wait_idle()
        for mode in self._modes.values():
            mode.close()
