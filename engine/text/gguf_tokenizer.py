"""A tokenizer's definition from the ``tokenizer.ggml`` entries of a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.text.byte_level import ByteLevelEncoder
from engine.text.definition import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    Definition,
    SpacePrefix,
    Spelling,
    ids_by_token,
    with_control,
)
from engine.text.pretokenizers import PRE_TOKENIZERS
from engine.text.sentencepiece_bpe import SentencePieceEncoder

# What llama.cpp takes where a SentencePiece file does not say: Llama's own.
_UNKNOWN_ID = 0
_SENTENCEPIECE_IDS = {"bos": 1, "eos": 2}


def read_gguf(metadata: Mapping[str, Any]) -> Definition | None:
    """The tokenizer that the metadata describes, or None if it describes none (a synthetic model).

    Raise EngineError where it is of an unknown kind, incomplete or damaged.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        return None
    if not isinstance(kind, str):
        raise EngineError("the model's tokenizer.ggml.model is not text")
    if kind in ("none", "no_vocab"):
        return None
    if kind == "gpt2":
        return _byte_level(metadata)
    if kind == "llama":
        return _sentencepiece(metadata)
    raise EngineError(f"the model's tokenizer is of kind {kind!r}; supported are byte-level BPE ('gpt2') and 'llama'")


def _byte_level(metadata: Mapping[str, Any]) -> Definition:
    pre = metadata.get("tokenizer.ggml.pre")
    spec = PRE_TOKENIZERS.get(pre) if isinstance(pre, str) else None
    if spec is None:
        stated = "the model names no pre-tokenizer" if pre is None else f"the model's pre-tokenizer is {pre!r}"
        raise EngineError(f"{stated}; supported are {', '.join(PRE_TOKENIZERS)}")
    tokens, types, ids = _vocabulary(metadata, {})
    merges = []
    for merge in _strings(metadata, "merges"):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise EngineError(f"the model's tokenizer is damaged: merge {merge!r} is not two tokens")
        merges.append((left, right))
    id_of = ids_by_token(tokens)
    # With ignore_merges a word that spells a control token would become it.
    vocabulary = {token: id for token, id in id_of.items() if types[id] != CONTROL}
    return Definition(
        tokens=tokens,
        types=types,
        spelling=Spelling.BYTE_LEVEL,
        encoder=ByteLevelEncoder(vocabulary, merges, spec),
        user_defined=_user_defined(id_of, types),
        space_prefix=SpacePrefix.NONE,
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        add_bos=_flag(metadata, "add_bos_token", spec.add_bos),
    )


def _sentencepiece(metadata: Mapping[str, Any]) -> Definition:
    tokens, types, ids = _vocabulary(metadata, _SENTENCEPIECE_IDS)
    scores = _numbers(metadata, "scores", "if", len(tokens)).astype(np.float32)
    unknown_id = _id(metadata, "unknown", len(tokens), _UNKNOWN_ID) or _UNKNOWN_ID
    space_prefix = _flag(metadata, "add_space_prefix", True)
    return Definition(
        tokens=tokens,
        types=types,
        spelling=Spelling.SENTENCEPIECE,
        encoder=SentencePieceEncoder(tokens, scores, types, unknown_id, space_prefix),
        user_defined=_user_defined(ids_by_token(tokens), types),
        space_prefix=SpacePrefix.EVERY if space_prefix else SpacePrefix.NONE,  # llama.cpp's rule
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        add_bos=_flag(metadata, "add_bos_token", True),
    )


def _vocabulary(
    metadata: Mapping[str, Any], defaults: Mapping[str, int]
) -> tuple[list[str], list[int], dict[str, int | None]]:
    """Tokens, their types, and the ids that the file names."""
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise EngineError("the model's tokenizer has no tokens")
    if "tokenizer.ggml.token_type" in metadata or metadata["tokenizer.ggml.model"] == "llama":
        types = _numbers(metadata, "token_type", "iu", len(tokens)).tolist()
    else:  # of SentencePiece's tokens bytes and unknown could not be told
        types = [NORMAL] * len(tokens)
    ids = {name: _id(metadata, name, len(tokens), defaults.get(name)) for name in ("bos", "eos")}
    return tokens, with_control(types, (ids["bos"], ids["eos"])), ids


def _user_defined(id_of: Mapping[str, int], types: Sequence[int]) -> dict[str, int]:
    return {token: id for token, id in id_of.items() if types[id] == USER_DEFINED}


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise EngineError(f"the model's tokenizer.ggml.{name} is neither true nor false")
    return value


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list) or set(map(type, values)) - {str}:
        raise EngineError(f"the model's tokenizer.ggml.{name} is missing or not a list of strings")
    return values


def _numbers(metadata: Mapping[str, Any], name: str, kinds: str, count: int) -> npt.NDArray[Any]:
    """One number a token; ``kinds``: the letters of numpy's ``dtype.kind`` that they may have."""
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        raise EngineError(f"the model's tokenizer.ggml.{name} is missing or not a list of numbers")
    if len(values) != count:
        raise EngineError(f"the model's tokenizer has {count} tokens but {len(values)} {_PLURAL[name]}")
    return values


_PLURAL = {"token_type": "token types", "scores": "scores"}


def _id(metadata: Mapping[str, Any], name: str, vocab_size: int, default: int | None) -> int | None:
    """A special token's id, if the file states one."""
    key = f"tokenizer.ggml.{name}_token_id"
    id = metadata.get(key)
    if id is None:
        return default if default is not None and default < vocab_size else None
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < vocab_size:
        raise EngineError(f"the model's {key} is {id!r}, outside its vocabulary of {vocab_size}")
    return id
