"""Hugging Face folders of tiny tokenizers, written as the families' own tokenizer.json files are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.text.pretokenizers import PRE_TOKENIZERS
from tests.engine.tiny_model import tiny_vocabulary

VOCABULARY = Path(__file__).parents[2] / "data" / "tokenizers" / "sentencepiece.json"
CONTROL, USER_DEFINED = 3, 4
BOS_FIRST: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}


def added_token(id: int, content: str, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, **flags, "special": special}


def byte_level_json(pre: str = "qwen2") -> dict[str, Any]:
    """The tokenizer of ``tiny_metadata``."""
    tokens, types, merges = tiny_vocabulary(320)
    spec = PRE_TOKENIZERS[pre]
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern, _ in spec.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": spec.gpt2}
    control = [id for id, kind in enumerate(types) if kind == CONTROL]
    return {
        "version": "1.0",
        "added_tokens": [added_token(id, tokens[id]) for id in control],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "post_processor": {**byte_level, "use_regex": True},
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def sentencepiece_json(style: str) -> dict[str, Any]:
    """The vocabulary of sentencepiece.json in the style of "llama2", "mistral" (no space after control) or "gemma"."""
    content = json.loads(VOCABULARY.read_text())
    types = content["types"]
    tokens = list(content["tokens"])
    merges = _merges(tokens, content["scores"], types)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if style != "gemma":
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [
            added_token(id, tokens[id], special=kind == CONTROL)
            for id, kind in enumerate(types)
            if kind == CONTROL or (kind == USER_DEFINED and not tokens[id].isspace())
        ],
        "normalizer": {"llama2": prepend, "mistral": None, "gemma": replace}[style],
        "pre_tokenizer": {"llama2": None, "mistral": metaspace, "gemma": split}[style],
        "post_processor": BOS_FIRST,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": merges,
        },
    }


def _merges(tokens: list[str], scores: Sequence[float], types: Sequence[int]) -> list[list[str]]:
    """Every split of every token into two others, best score first: what transformers' converter writes."""
    known = set(tokens)
    splits = [
        (scores[id], token[:cut], token[cut:])
        for id, token in enumerate(tokens)
        if types[id] in (1, USER_DEFINED)
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return [[left, right] for _, left, right in sorted(splits, key=lambda split: -split[0])]


def write_folder(folder: Path, document: Any, config: dict[str, Any] | None = None) -> Path:
    """tokenizer.json (a text as it is) and, where there is a ``config``, tokenizer_config.json."""
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "tokenizer.json").write_text(text)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
