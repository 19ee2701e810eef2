"""Engine: one model on one device, ready to feed sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from engine.decode import MODE_CLASSES, MODES
from engine.decode.first import first_step
from engine.decode.program import ProgramBuilder, Settings
from engine.decode.sampling import Sampling
from engine.decode.state import STEP_BYTES, initial_state
from engine.decode.step import Mode, Resources, Step
from engine.errors import EngineError
from engine.info import describe_model
from engine.models import architecture
from engine.prefill import Prefill, chunk_tokens
from engine.profile.brackets import Brackets
from engine.profile.stamps import Stamps
from engine.program.activations import ActivationBuffers, Activations
from engine.program.lower import Lowering
from engine.program.matrix import layout
from engine.program.op import Op
from engine.program.sample import sample, scratch_bytes
from engine.program.schedule import BARRIERS
from engine.session import Session
from engine.setup import allocate_buffers, kernel_jobs
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.vulkan.clocks import kernel_clock
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.instance import Instance
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels
from engine.weights.gguf import GGUFFile
from engine.weights.load import check_tensors, load

DEFAULT_CONTEXT = 2048
Progress = Callable[[str, int, int], None]


class Engine:
    """A model loaded on a Vulkan device. One thread owns it; mode, fusion and barriers may be set from any.

    Make one with ``Engine.open``. Attributes besides the properties: ``model`` (ModelInfo), ``device``
    (DeviceInfo), ``context`` (tokens the KV cache holds), ``weight_bytes`` (bytes of weights a token reads),
    ``sampling`` (the model's defaults), ``stamp_every`` (every how many tokens one is stamped; 0: never).
    """

    _cleanup: ExitStack

    @classmethod
    def open(
        cls,
        path: str | Path,
        device: str | int | None = None,
        context: int | None = None,
        mode: str = "reuse",
        fusion: bool = True,
        barriers: str = "needed",
        progress: Progress | None = None,
        *,
        binding: str = "addresses",
        validation: bool = False,
    ) -> Self:
        """Load a GGUF file. ``context`` None takes 2,048 tokens, or the model's own limit if that is less.

        ``progress(stage, done, total)`` is called for the stages "device", "kernels" (a count) and "weights"
        (bytes). ``binding="descriptors"`` with ``validation`` is the build the validation layer can follow.
        Raise EngineError with one clear line for anything that is wrong; nothing stays allocated then.
        """
        with ExitStack() as cleanup:
            engine = cls(Path(path), device, context, progress or _no_progress, binding, validation, cleanup)
            engine.mode, engine.fusion, engine.barriers = mode, fusion, barriers
            engine._cleanup = cleanup.pop_all()
        return engine

    def __init__(
        self,
        path: Path,
        device: str | int | None,
        context: int | None,
        progress: Progress,
        binding: str,
        validation: bool,
        cleanup: ExitStack,
    ) -> None:
        """Not for callers: use ``Engine.open``."""
        file = cleanup.enter_context(GGUFFile.open(path))
        model = architecture(path.name, file.metadata.get("general.architecture"))
        geometry = model.geometry(path.name, file.metadata, file.tensors)
        specs = model.tensors(geometry, file.tensors)
        check_tensors(file, specs)
        self.context = _context(context, geometry.trained_context)
        self._text_problem: EngineError | None = None
        self._tokenizer, self._template = self._open_text(file, geometry.vocab)
        self.model = describe_model(file, geometry, self._template is not None)
        self.sampling = Sampling()
        self.stop_ids = self._tokenizer.stop_ids if self._tokenizer else frozenset[int]()

        progress("device", 0, 1)
        self._instance = Instance(validation)
        cleanup.callback(self._instance.close)
        vulkan = self._vulkan = Device(self._instance, device, binding)
        cleanup.callback(vulkan.close)
        self.device = vulkan.info
        progress("device", 1, 1)
        memory = self._memory = Memory(vulkan)
        cleanup.callback(memory.close)
        kernels = self._kernels = Kernels(vulkan)
        cleanup.callback(kernels.close)
        jobs = kernel_jobs(kernels, geometry, file, specs)
        progress("kernels", 0, len(jobs))
        finished = iter(range(1, len(jobs) + 1))
        kernels.prepare(jobs, lambda: progress("kernels", next(finished), len(jobs)))

        weights = load(file, specs, memory, layout(kernels), lambda done, total: progress("weights", done, total))
        file.close()
        table = model.rope_frequencies(geometry, weights.host.get("rope_freqs.weight"))
        buffers = allocate_buffers(memory, geometry, self.context, table, chunk_tokens(vulkan.is_cpu))
        activations = ActivationBuffers(memory, geometry, chunk_tokens(vulkan.is_cpu))
        single = Activations(activations, 1)
        step_slot = memory.allocate(STEP_BYTES, "upload")
        readback = memory.allocate(16, "readback")
        scratch = memory.allocate(scratch_bytes(geometry.vocab))

        def sampling_ops(advance: int) -> list[Op]:
            return sample(kernels, single.logits, geometry.vocab, step_slot, buffers.state, readback, scratch, advance)

        builder = self._builder = ProgramBuilder(
            lambda: model.layers(geometry, weights, single) + model.head(geometry, weights, single),
            lambda: sampling_ops(1),
            Lowering(kernels, geometry, buffers, self.context),
            weights.stacks,
            single.spans,
            geometry,
        )
        self._state = buffers.state
        self._sampling_ops = sampling_ops
        self._resources = Resources(vulkan, kernels, builder, Stamps(memory), step_slot, readback)
        self._clock = kernel_clock(vulkan, memory, kernels)
        self._brackets = Brackets(vulkan, memory, kernels, buffers.state) if self._clock is None else None
        self._ranges: dict[tuple[int, bool, str], tuple[float, float]] = {}
        self._modes: dict[str, Mode] = {}
        self._first_commands = CommandBuffer(vulkan)
        self._prefill = Prefill(model, geometry, weights, activations, kernels, memory, buffers, self.context)
        cleanup.callback(self._close_commands)
        self.weight_bytes = _weights_read(builder)
        self.stamp_every = 16
        self._stamp_requested = False
        self._stamp_thread = Thread(target=self._prepare_stamps, args=(jobs,), name="zincchat-stamps", daemon=True)
        self._stamp_thread.start()

    @property
    def mode(self) -> str:
        """The decode mode; setting it takes effect at the next token boundary. EngineError if unknown."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        if value not in MODES:
            raise EngineError(f"unknown mode {value!r}; there is {', '.join(MODES)}")
        self._mode = value

    @property
    def barriers(self) -> str:
        """The barrier policy; setting it takes effect at the next token boundary. EngineError if unknown."""
        return self._barriers

    @barriers.setter
    def barriers(self, value: str) -> None:
        if value not in BARRIERS:
            raise EngineError(f"unknown barrier policy {value!r}; there is {', '.join(BARRIERS)}")
        self._barriers = value

    @property
    def fusion(self) -> bool:
        """Whether the fusion passes run; setting it takes effect at the next token boundary."""
        return self._fusion

    @fusion.setter
    def fusion(self, value: bool) -> None:
        self._fusion = bool(value)

    @property
    def device_bytes(self) -> int:
        """Bytes of Vulkan memory allocated."""
        return self._memory.allocated_bytes

    @property
    def builds(self) -> int:
        """Decode programs built so far."""
        return self._builder.builds

    @property
    def recordings(self) -> int:
        """Decode command buffers recorded so far."""
        return sum(mode.recordings for mode in self._modes.values())

    @property
    def vulkan_messages(self) -> list[str]:
        """What the validation layer said so far; empty without it."""
        return self._instance.messages

    def render(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation with the generation prompt, by the model's own chat template.

        ``messages``: {"role": "system" | "user" | "assistant", "content": str} each. Raise EngineError where
        the model has no tokenizer or template, or the template refuses the messages.
        """
        self._need_tokenizer()
        if self._template is None:
            if self._text_problem is not None:
                raise self._text_problem
            raise EngineError(f"{self.model.path.name} has no chat template: use --raw, or an instruct model")
        return self._template.render_ids(messages)

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, after a begin-of-text token where the model wants one. EngineError if it cannot."""
        tokenizer = self._need_tokenizer()
        start = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        return start + tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens give nothing. EngineError without a tokenizer."""
        return self._need_tokenizer().decode(ids)

    def session(self) -> Session:
        """A new, empty conversation. It takes over the KV cache: an older session must not be used any more."""
        return Session(self)

    def request_stamps(self) -> None:
        """Make the next token a stamped one; waits for the stamped kernels if they are still being built."""
        self._stamp_thread.join()
        self._stamp_requested = True

    def close(self) -> None:
        """Free everything on the device. Closing twice is harmless."""
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settings(self) -> Settings:
        return Settings(self._mode, self._fusion, self._barriers)

    def _first_step(self, ids: Sequence[int], params: bytes) -> Step:
        """Sample a reply's first token from the prefill's logits, whose sequence is ``ids``."""
        state = initial_state(len(ids), 0, ids)
        return first_step(self._resources, self._first_commands, self._state, state, self._sampling_ops(0), params)

    def _bubbles_range(self, index: int, position: int, settings: Settings) -> tuple[float, float] | None:
        """Where kernels cannot read a clock: bounds on the bubbles of the token to be fed at ``position``.

        Measured once for each bucket and setting, at a token that would be stamped elsewhere; None otherwise.
        """
        if self._brackets is None or not self._is_due(index):
            return None
        bucket = self._builder.bucket(position)
        key = (bucket, settings.fusion, settings.barriers)
        if key not in self._ranges:
            self._ranges[key] = self._brackets.measure(self._builder.build(bucket, settings))
        return self._ranges[key]

    def _mode_object(self, name: str) -> Mode:
        mode = self._modes.get(name)
        if mode is None:
            mode = self._modes[name] = MODE_CLASSES[name](self._resources)
        return mode

    def _wants_stamp(self, index: int) -> bool:
        """Whether a reply's token ``index`` is to be stamped; a request is used up by it."""
        return self._clock is not None and self._is_due(index)

    def _is_due(self, index: int) -> bool:
        if self._stamp_thread.is_alive():
            return False
        if self._stamp_requested:
            self._stamp_requested = False
            return True
        return self.stamp_every > 0 and index % self.stamp_every == self.stamp_every - 1

    def _prepare_stamps(self, jobs: list[tuple[str, dict[str, str | int], bool]]) -> None:
        self._kernels.prepare([(name, defines, True) for name, defines, _ in jobs], lambda: None, threads=1)

    def _open_text(self, file: GGUFFile, vocab: int) -> tuple[Tokenizer | None, ChatTemplate | None]:
        """A model whose tokenizer or template is unusable still takes ids; the reason is kept for who needs text."""
        tokenizer = None
        try:
            tokenizer = Tokenizer.from_gguf(file.metadata)
            if tokenizer is not None and tokenizer.vocab_size > vocab:
                size, tokenizer = tokenizer.vocab_size, None
                raise EngineError(f"{file.path.name}: the tokenizer has {size} tokens, the embedding {vocab} rows")
            return tokenizer, ChatTemplate.from_gguf(file.metadata, tokenizer)
        except EngineError as error:
            self._text_problem = error
            return tokenizer, None

    def _need_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            if self._text_problem is not None:
                raise self._text_problem
            raise EngineError(f"{self.model.path.name} has no tokenizer, so it takes ids but no text")
        return self._tokenizer

    def _close_commands(self) -> None:
        self._stamp_thread.join()
        self._vulkan.wait_idle()
        for mode in self._modes.values():
            mode.close()
        self._first_commands.close()
        if self._brackets is not None:
            self._brackets.close()
        self._prefill.close()


def _context(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return min(DEFAULT_CONTEXT, trained)
    if not 2 <= wanted <= trained:
        raise EngineError(f"a context of {wanted} tokens is not possible: this model was trained for 2 to {trained}")
    return wanted


def _weights_read(builder: ProgramBuilder) -> int:
    program = builder.build(builder.bucket(0), Settings("reuse", True, "every"))
    builder.builds = 0
    return sum(op.bytes_moved for op in program.ops if op.piece in ("weights", "head"))


def _no_progress(stage: str, done: int, total: int) -> None:
    pass
