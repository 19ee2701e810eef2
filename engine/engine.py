"""Engine: one model on one device, ready to feed sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from engine.decode.sampling import Sampling
from engine.decode.state import pack_step
from engine.errors import EngineError
from engine.footprint import Footprint
from engine.info import describe_model, sampling_defaults
from engine.models import architecture
from engine.profile.bubble_report import BubbleReport
from engine.profile.instruments import SubmitHint
from engine.progress import Progress, no_progress
from engine.room import free_bytes, require_room
from engine.row_tuner import Tuning
from engine.runtime import Runtime
from engine.session import Session
from engine.switches import Switches
from engine.text.model_text import open_text
from engine.text.tokenizer import Tokenizer
from engine.vulkan import budget
from engine.vulkan.device import Device
from engine.vulkan.instance import Instance
from engine.weights.load import check_tensors
from engine.weights.open_model import open_model
from engine.weights.source import ModelSource

DEFAULT_CONTEXT = 2048
_GREEDY = pack_step(Sampling(temperature=0.0))
_CLOSED = "the engine is closed"


class _Build(NamedTuple):
    """Which device, and which build of the kernels."""

    device: str | int | None
    binding: str
    validation: bool
    row_kernels: bool | None
    tuning: bool | None


class Engine(Switches):
    """A model loaded on a Vulkan device. One thread owns it; mode, fusion and barriers may be set from any.

    Make one with ``Engine.open``. Attributes besides the properties: ``model`` (ModelInfo), ``device``
    (DeviceInfo), ``context`` (tokens the KV cache holds), ``weight_bytes`` (bytes of weights a token reads),
    ``sampling`` (the model's defaults). A conversation takes ``kv_token_bytes`` a token, and ``state_bytes`` whatever
    its length (recurrent state; 0 for a model of attention layers only).
    """

    _cleanup: ExitStack

    @classmethod
    def open(
        cls,
        path: str | Path,
        device: str | int | None = None,
        context: int | None = None,
        mode: str = "reuse",
        fusion: bool | Iterable[str] = True,
        barriers: str | None = None,
        progress: Progress | None = None,
        *,
        quantize: str | None = None,
        takes: str = "ids",
        tuning: bool | None = None,
        binding: str = "addresses",
        validation: bool = False,
        row_kernels: bool | None = None,
    ) -> Self:
        """Load a GGUF file or a Hugging Face folder.

        ``context`` None takes 2,048 tokens, or the model's own limit if that is less. ``quantize``, one of
        QUANTISATIONS, is what a folder's matrices become as they are read. ``takes`` is what prompts will be made
        of: "ids", "text" (for ``encode``) or "messages" (for ``render``); a model without a tokenizer or template for
        that is an error before its weights are read.

        ``barriers`` None takes "flags" on GPUs that pass its check, "needed" elsewhere.

        ``tuning``: whether to divide rows as a measurement on this device finds best (once for each kind of model: its
        result is kept) or as usual; None measures on GPUs alone, unless ZINCCHAT_TUNING is "off".

        ``progress(stage, done, total)`` is called for the stages "device", "kernels" (a count), "weights" (bytes) and,
        where something is measured, "fusion" and "tuning" (percent, and a count for long contexts); "kernels" may come
        again behind these.
        ``binding="descriptors"`` with ``validation`` is the build the validation layer can follow; ``row_kernels``
        overrides the choice between the kernels for software devices and those for GPUs.
        Raise EngineError with one clear line for anything that is wrong; nothing stays allocated then.
        """
        with ExitStack() as cleanup:
            build = _Build(device, binding, validation, row_kernels, tuning)
            file = cleanup.enter_context(open_model(Path(path), quantize))
            engine = cls(file, build, context, takes, progress or no_progress, cleanup)
            engine.mode, engine.fusion = mode, fusion
            engine.barriers = barriers or engine._runtime.usual_barriers
            try:
                engine._runtime.flag_policy.prepare(engine._settings())
            except EngineError:
                if barriers is not None:
                    raise
            engine._cleanup = cleanup.pop_all()
        return engine

    def __init__(
        self,
        file: ModelSource,
        build: _Build,
        context: int | None,
        takes: str,
        progress: Progress,
        cleanup: ExitStack,
    ) -> None:
        """Not for callers: use ``Engine.open``."""
        model = architecture(file.path.name, file.metadata.get("general.architecture"))
        geometry = model.geometry(file.path.name, file.metadata, file.tensors)
        specs = model.tensors(geometry, file.tensors)
        check_tensors(file, specs)
        self.context = _context(context, geometry.trained_context)
        self._session: Session | None = None
        self._closed = False
        self._text = open_text(file.path, file.metadata, geometry.vocab)
        self._text.check(takes, file.path.name)
        self.model = describe_model(file, geometry, self._text.template)
        self.sampling = sampling_defaults(file.metadata)
        self.stop_ids = self._text.stop_ids

        progress("device", 0, 1)
        self._instance = Instance(build.validation)
        cleanup.callback(self._instance.close)
        vulkan = Device(self._instance, build.device, build.binding, row_kernels=build.row_kernels)
        cleanup.callback(vulkan.close)
        self.device = vulkan.info
        footprint = Footprint(model, geometry, file.metadata, file.tensors, specs, vulkan.row_kernels)
        room_bytes = free_bytes(vulkan.info, budget.available_bytes(vulkan.physical, vulkan.extensions))
        require_room(footprint, vulkan.info, room_bytes, self.context, can_quantise=file.path.is_dir())
        progress("device", 1, 1)
        self._runtime = Runtime(vulkan, file, model, geometry, specs, self.context, build.tuning, progress, cleanup)
        self.weight_bytes = self._runtime.weight_bytes
        self.kv_token_bytes, self.state_bytes = geometry.kv_bytes_a_token, geometry.recurrent_bytes
        file.close()

    @property
    def tuning(self) -> Tuning:
        """How the rows of matrices are divided."""
        return self._runtime.tuner.used

    @property
    def device_bytes(self) -> int:
        """Bytes of Vulkan memory allocated."""
        return self._runtime.memory.allocated_bytes

    @property
    def builds(self) -> int:
        """Decode programs built so far."""
        return self._runtime.builder.builds

    @property
    def recordings(self) -> int:
        """Decode command buffers recorded so far."""
        return self._runtime.recordings

    @property
    def vulkan_messages(self) -> list[str]:
        """What the validation layer said so far; empty without it."""
        return self._instance.messages

    def render(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> list[int]:
        """The ids of a conversation with the generation prompt, by the model's own chat template.

        ``messages``: {"role": "system" | "user" | "assistant", "content": str} each; an assistant's may have its
        thoughts as "reasoning_content", for the template to keep or leave out. ``thinking`` switches thinking on or
        off where ``model.thinking`` is not None. Raise EngineError where the model has no tokenizer, template or
        switch, or the template refuses the messages.
        """
        return self._text.need_template(self.model.path.name).render_ids(messages, thinking)

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, after a begin-of-text token where the model wants one. EngineError if it cannot."""
        tokenizer = self._need_tokenizer()
        start = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        return start + tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens give nothing. EngineError without a tokenizer."""
        return self._need_tokenizer().decode(ids)

    def session(self) -> Session:
        """A new, empty conversation. It takes over the KV cache: an older session ends."""
        runtime = self._open_runtime()
        if self._session is not None:
            self._session.end("a newer session has taken over the KV cache: prefill that one")
        self._session = Session(runtime, self._text, self.stop_ids, self._settings, self.context, self.model.vocab_size)
        return self._session

    @property
    def stamp_every(self) -> int:
        """Every how many tokens of a reply one is stamped; 0: never."""
        return self._runtime.stamp_every

    @stamp_every.setter
    def stamp_every(self, value: int) -> None:
        self._runtime.stamp_every = value

    @property
    def probe_gb_s(self) -> float:
        """Read bandwidth of the device, 1e9 bytes a second; measured at the first request, between replies."""
        return self._open_runtime().instruments.probe.gb_s

    @property
    def queued_gap_us(self) -> float:
        """The GPU's idle time between two buffers queued ahead, us; measured at the first request, between replies."""
        return self._open_runtime().instruments.queued_gap_us

    def token_bytes(self, position: int | None = None) -> dict[str, int]:
        """Bytes that the token fed at ``position`` must read: "weights", "head", "kv", "state" and their "total".

        ``position`` None: where the newest session stands.
        """
        return self._runtime.token_bytes(self._fed_at(position))

    def bytes_by_tensor(self) -> dict[str, int]:
        """Bytes of each weight tensor that a token reads, by name."""
        return self._runtime.bytes_by_tensor()

    def warm_up(self) -> None:
        """Run every decode kernel and its stamped twin once on a scratch state, between replies.

        A driver may compile a kernel only when it first runs (llvmpipe does, for up to a second in all, and keeps it
        on disk). Without this the first tokens would show that time as their own.
        """
        self._open_runtime().warm_up(self._settings())

    def measure_bubbles(self, position: int | None = None) -> BubbleReport:
        """Measure the bubbles of a greedy token under the current settings, between replies.

        ``position`` is where it would be fed; None: where the newest session stands. It runs 80 to 300 times, for up to
        three seconds, on a scratch state, which changes nothing of any session. Raise EngineError in mode persistent.
        """
        runtime = self._open_runtime()
        if self._mode == "persistent":
            raise EngineError("the bubble meter runs dispatches without their work, and mode persistent has but one")
        return runtime.measure_bubbles(self._fed_at(position), self._settings(), _GREEDY)

    def measure_submit_hint(self, position: int | None = None) -> SubmitHint:
        """Measure what the one-time-submit hint is worth to the GPU, as ``measure_bubbles`` runs a token."""
        return self._open_runtime().measure_submit_hint(self._fed_at(position), self._settings(), _GREEDY)

    def request_stamps(self) -> None:
        """Make the next token a stamped one; waits for the stamped kernels if they are still being built."""
        self._open_runtime().request_stamps()

    def close(self) -> None:
        """End the session and free everything on the device. Closing twice is harmless."""
        if self._session is not None:
            self._session.end(_CLOSED)
        self._closed = True
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_runtime(self) -> Runtime:
        """What may use the device. EngineError after close: a driver would crash."""
        if self._closed:
            raise EngineError(_CLOSED)
        return self._runtime

    def _fed_at(self, position: int | None) -> int:
        if position is None:
            position = self._session.position if self._session is not None else 0
        elif not 0 <= position < self.context:
            raise EngineError(f"position {position} is outside the context of {self.context} tokens")
        return min(position, self.context - 1)

    def _need_tokenizer(self) -> Tokenizer:
        return self._text.need_tokenizer(self.model.path.name)


def _context(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return min(DEFAULT_CONTEXT, trained)
    if not 2 <= wanted <= trained:
        raise EngineError(f"a context of {wanted} tokens is not possible: this model was trained for 2 to {trained}")
    return wanted
