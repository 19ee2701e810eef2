"""A model's kernels compiled and its decode programs recorded, without its weights and without running anything.

It serves devices that only pretend to be there: RADV for a card that is faked compiles and records as for the card
itself, and drops what is submitted. So nothing here submits or waits.
"""

from __future__ import annotations

import gc
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import thread_time_ns

from engine.decode.flags import Flags
from engine.decode.program import ProgramBuilder, Settings, Slot
from engine.decode.state import STEP_BYTES
from engine.dry_run.report import RECORDED_MODES, DryRun, KernelStatistics, RecordedProgram
from engine.dry_run.shapes import SHAPES
from engine.errors import EngineError
from engine.prefill import chunk_tokens
from engine.profile.traffic import bytes_by_tensor
from engine.program.activations import ActivationBuffers, Activations
from engine.program.fusion import PASSES
from engine.program.lower import Lowering
from engine.program.matrix_kernels import layout
from engine.program.schedule import BARRIERS, FLAGS
from engine.setup import allocate_buffers, decode_builder, kernel_jobs, sampler
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.executables import executable_statistics, no_statistics
from engine.vulkan.instance import Instance
from engine.vulkan.pipelines import Defines, Kernel, Kernels
from engine.vulkan.unbacked import UnbackedMemory
from engine.weights.load import allocate_weights

_REPEATS = 50
_USAGE = {"rerecord": ONE_TIME_SUBMIT, "reuse": 0}
_STATISTICS = {  # our name: the driver's (those of RADV)
    "vgprs": "VGPRs",
    "sgprs": "SGPRs",
    "spilled_vgprs": "Spilled VGPRs",
    "spilled_sgprs": "Spilled SGPRs",
    "scratch_bytes": "Scratch size",
    "lds_bytes": "LDS size",
    "code_bytes": "Code size",
    "waves_per_simd": "Subgroups per SIMD",
}


def compile_and_record(
    shape: str, device: str | int | None = None, context: int = 2048, subgroup_size: int | None = None
) -> DryRun:
    """Compile every kernel that the model ``shape`` (of SHAPES) uses on ``device``, and record its decode programs.

    ``subgroup_size`` overrides the one that the engine takes on this device. Raise EngineError for an unknown shape
    or size, or no context, and where the driver offers no compile statistics or names them otherwise than RADV.
    """
    if shape not in SHAPES:
        raise EngineError(f"unknown shape {shape!r}; there is {', '.join(SHAPES)}")
    if context < 1:
        raise EngineError(f"a context of {context} tokens is not possible: at least one")
    geometry, tensors = SHAPES[shape].geometry_and_tensors(shape)
    model = SHAPES[shape].model
    specs = model.tensors(geometry, tensors)
    with ExitStack() as cleanup:
        instance = Instance()
        cleanup.callback(instance.close)
        vulkan = Device(instance, device, statistics=True)
        cleanup.callback(vulkan.close)
        if not vulkan.keeps_statistics:
            raise no_statistics(vulkan)
        if subgroup_size is not None:
            low, high = vulkan.subgroup_sizes
            if not low <= subgroup_size <= high or subgroup_size & (subgroup_size - 1):
                raise EngineError(f"{vulkan.info.name} has no subgroup size {subgroup_size}: {low} to {high}")
            vulkan.subgroup_size = subgroup_size
        kernels = Kernels(vulkan)
        cleanup.callback(kernels.close)
        jobs = kernel_jobs(kernels, geometry, tensors, specs)
        jobs += [(name, defines, True) for name, defines, stamped in jobs if not stamped]
        memory = UnbackedMemory(vulkan)
        weights = allocate_weights(tensors, specs, memory, layout(kernels))
        tokens = chunk_tokens(vulkan.row_kernels)
        buffers = allocate_buffers(
            memory, geometry, context, model.rope_frequencies(geometry, SHAPES[shape].metadata(), {}), tokens
        )
        single = Activations(ActivationBuffers(memory, geometry, tokens), 1)
        sampling = sampler(memory, kernels, geometry.vocab, single, buffers)
        lowering = Lowering(kernels, geometry, buffers, context)
        builder = decode_builder(model, weights, single, lowering, sampling)
        slot = Slot(memory.allocate(STEP_BYTES), memory.allocate(16))
        bucket = builder.bucket(0)
        flags = Flags(vulkan, memory, kernels)
        commands = CommandBuffer(vulkan)
        cleanup.callback(commands.close)

        both = [builder.build(bucket, Settings("reuse", passes, "needed"), slot) for passes in (PASSES, ())]
        outer = [
            builder.build(bucket, Settings("reuse", passes, "needed"), slot)
            for bucket in builder.outer_buckets
            for passes in (PASSES, ())
        ]
        dispatched = [op for program in outer for op in program.ops]
        jobs += [job for stamped in (False, True) for job in flags.jobs(dispatched, stamped)]
        kernels.prepare(jobs, lambda: None)
        waiting = [flags.recordable(program.ops, program.barriers, FLAGS)[0] for program in both]
        counts = [
            Counter(op.kernel for op in (*program.ops, *waits)) for program, waits in zip(both, waiting, strict=True)
        ]
        programs = [
            _record(builder, flags, bucket, Settings("reuse", passes, barriers), slot, commands)
            for passes in ((), PASSES)
            for barriers in BARRIERS
        ]
        return DryRun(
            shape=shape,
            device=vulkan.info.name,
            driver=vulkan.info.driver,
            api_version=vulkan.info.api_version,
            subgroup_size=vulkan.subgroup_size,
            context_tokens=context,
            bucket_tokens=bucket,
            weight_bytes=sum(bytes_by_tensor(builder.nodes()).values()),
            kernels=[_statistics(vulkan, kernels, job, counts) for job in jobs],
            programs=programs,
        )


def _statistics(
    device: Device, kernels: Kernels, job: tuple[str, Defines, bool], counts: list[Counter[Kernel]]
) -> KernelStatistics:
    name, defines, stamped = job
    kernel = kernels.get(name, defines, stamped)
    found = executable_statistics(device, kernel)
    missing = next((theirs for theirs in _STATISTICS.values() if theirs not in found), None)
    if missing is not None:
        raise EngineError(f"{device.info.driver} reports no {missing!r} for its kernels: RADV does")
    values = {ours: int(found[theirs]) for ours, theirs in _STATISTICS.items()}
    values["waves_per_simd"] //= max(1, int(found["Subgroup size"]) // 32)  # RADV counts a wave of 64 as two
    return KernelStatistics(
        name=name,
        defines=defines,
        stamped=stamped,
        fused_dispatches=counts[0][kernel],
        unfused_dispatches=counts[1][kernel],
        subgroup_size=int(found["Subgroup size"]),
        **values,
    )


def _record(
    builder: ProgramBuilder, flags: Flags, bucket: int, settings: Settings, slot: Slot, commands: CommandBuffer
) -> RecordedProgram:
    program = builder.build(bucket, settings, slot)
    recordable = partial(flags.recordable, program.ops, program.barriers, settings.barriers)

    def record(usage: int) -> None:
        commands.record_all(*recordable(), usage)

    works: dict[str, Callable[[], object]] = {
        "build": partial(builder.build, bucket, settings, slot),
        **{mode: partial(record, _USAGE[mode]) for mode in RECORDED_MODES},
    }
    times_us = _median_us(works)
    return RecordedProgram(
        fusion=bool(settings.passes),
        barriers=settings.barriers,
        dispatches=len(recordable()[0]),
        barrier_count=program.barrier_count,
        build_us=times_us.pop("build"),
        record_us=times_us,
    )


def _median_us(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU time of this thread in each of ``works``, microseconds.

    They take turns, forwards and backwards, so that neither a slow while of the machine nor what ran just before
    favours one. The garbage collector is kept out, as the app keeps it out of a reply.
    """
    times_ns: dict[str, list[int]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    try:
        for turn in range(_REPEATS):
            for name, work in list(works.items())[:: -1 if turn % 2 else 1]:
                start_ns = thread_time_ns()
                work()
                times_ns[name].append(thread_time_ns() - start_ns)
    finally:
        gc.enable()
    return {name: statistics.median(times) / 1e3 for name, times in times_ns.items()}
