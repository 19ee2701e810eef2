"""SentencePiece BPE from a GGUF file's tokens, scores and types, through the SentencePiece library itself.

The library takes its model as a protobuf message (sentencepiece_model.proto of google/sentencepiece), written here
field by field: a vocabulary of 262,144 is ready in a third of a second, where rebuilding merges takes two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.text.definition import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, one_line

_VARINT, _LENGTH, _FIXED32 = 0, 2, 5  # protobuf wire types
_MODEL_PIECE = bytes([1 << 3 | _LENGTH])
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = (
    bytes([1 << 3 | _LENGTH]),
    bytes([2 << 3 | _FIXED32]),
    bytes([3 << 3 | _VARINT]),
)
_BPE = 2  # TrainerSpec.ModelType
_BYTES = 256


class SentencePieceEncoder:
    """Merges by score, leftmost first among equals; what then is no token becomes bytes, or the unknown token."""

    def __init__(
        self,
        tokens: Sequence[str],
        scores: npt.NDArray[np.float32],
        types: Sequence[int],
        unknown_id: int,
        space_prefix: bool,
    ) -> None:
        """``scores`` (vocabulary,): higher is merged earlier. Raise EngineError where the tokens make no model.

        Control and user-defined tokens are never made from text here: ``Tokenizer`` finds them.
        """
        byte_count = list(types).count(BYTE)
        if byte_count not in (0, _BYTES):
            raise EngineError(f"the model's tokenizer is damaged: it has {byte_count} byte tokens, not {_BYTES}")
        import sentencepiece  # most models have another tokenizer

        sentencepiece.set_min_log_level(3)  # its errors come as exceptions too
        try:
            self._processor = sentencepiece.SentencePieceProcessor(
                model_proto=_model(tokens, scores, types, unknown_id, space_prefix)
            )
        except Exception as error:  # RuntimeError, OSError: it differs by what is wrong
            raise EngineError(f"the model's tokenizer is damaged: {one_line(error)}") from error

    def encode(self, text: str, first: bool) -> list[int]:
        """The ids of ``text``, wherever it stands: llama.cpp's rule, a space prefix after every control token."""
        ids: list[int] = self._processor.encode(text)
        return ids


def _model(
    tokens: Sequence[str], scores: npt.NDArray[np.float32], types: Sequence[int], unknown_id: int, space_prefix: bool
) -> bytes:
    """A serialised ModelProto."""
    score_bytes = scores.astype("<f4").tobytes()
    written_types = {kind: _PIECE_TYPE + _varint(_written_type(kind)) for kind in set(types)}
    pieces = []
    for id, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        text = token.encode()
        piece = _PIECE_TEXT + _varint(len(text)) + text + _PIECE_SCORE + score_bytes[4 * id : 4 * id + 4]
        # The library wants one unknown token; Gemma's file has it as a control token.
        piece += written_types[kind] if id != unknown_id else _PIECE_TYPE + _varint(UNKNOWN)
        pieces.append(_MODEL_PIECE + _varint(len(piece)) + piece)
    trainer = _number(3, _BPE) + _number(35, BYTE in types) + _number(40, unknown_id)
    # name, add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
    normalizer = _message(1, b"identity") + _number(3, space_prefix) + _number(4, 0) + _number(5, 1)
    return b"".join(pieces) + _message(2, trainer) + _message(3, normalizer)


def _written_type(kind: int) -> int:
    return kind if kind in (NORMAL, UNUSED, BYTE) else CONTROL


@functools.cache
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH) + _varint(len(content)) + content
