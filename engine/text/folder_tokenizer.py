"""A tokenizer's definition from the tokenizer.json of a Hugging Face folder, through the ``tokenizers`` library.

The library runs the file's own normaliser, pre-tokenizer and merges; here is found out what its tokens stand for.
tokenizer_config.json says which tokens begin and end a text, and adds to the control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace

from engine.errors import EngineError
from engine.text.definition import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Definition,
    SpacePrefix,
    Spelling,
    ids_by_token,
    one_line,
)
from engine.text.json_file import json_object, read_json_object, read_text
from engine.text.spellings import any_of

MAX_FILE_BYTES = 1 << 28  # Gemma's, the largest there is, has 33 MB
MAX_ID = 1 << 22  # the largest vocabularies have 2^18 tokens
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens")
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def read_folder(folder: Path) -> Definition:
    """The tokenizer of ``folder``. Raise EngineError where it is missing, of an unknown kind or damaged."""
    text = read_text(folder / "tokenizer.json", MAX_FILE_BYTES)
    if text is None:
        raise EngineError(f"{folder.name} has no tokenizer.json: download it beside the model")
    document, library = _parse(text)
    config = read_json_object(folder / "tokenizer_config.json") or {}
    model = library.model
    if not isinstance(model, BPE):
        raise EngineError(f"the tokenizer.json is a {type(model).__name__} model; only BPE is supported")
    model.dropout = None  # of training: it would leave out merges at random
    tokens, types = _vocabulary(document, library, model)
    _make_named_tokens_control(library, config, tokens, types)
    id_of = ids_by_token(tokens)
    first_id = id_of.get(_first_token(document))
    bos_id = id_of.get(_content(config.get("bos_token")), first_id)
    add_bos = config.get("add_bos_token")
    return Definition(
        tokens=tokens,
        types=types,
        spelling=_spelling(document, model),
        encoder=_LibraryEncoder(library, {token: id for token, id in id_of.items() if types[id] == CONTROL}),
        user_defined={},
        space_prefix=_space_prefix(document),
        bos_id=bos_id,
        eos_id=id_of.get(_content(config.get("eos_token"))),
        add_bos=add_bos if isinstance(add_bos, bool) else first_id is not None and first_id == bos_id,
    )


class _LibraryEncoder:
    """Runs tokenizer.json, but makes no control token of a text."""

    def __init__(self, library: tokenizers.Tokenizer, control: Mapping[str, int]) -> None:
        self._first = library
        self._control_ids = frozenset(control.values())
        self._control_pattern = any_of(control)
        self._later = library
        if isinstance(library.pre_tokenizer, Metaspace) and library.pre_tokenizer.prepend_scheme == "first":
            self._later = tokenizers.Tokenizer.from_str(library.to_str())
            self._later.encode_special_tokens = True
            self._later.pre_tokenizer = Metaspace(
                replacement=library.pre_tokenizer.replacement,
                prepend_scheme="never",
                split=library.pre_tokenizer.split,
            )

    def encode(self, text: str, first: bool) -> list[int]:
        """The ids of ``text``; only the prompt's beginning gets the space that some files ask for there."""
        ids = self._run(text, first)
        if self._control_ids.isdisjoint(ids):
            return ids
        # A vocabulary that holds the control tokens' spellings can merge one: cut each after its first character.
        ids = []
        for piece in self._cut(text):
            ids += self._run(piece, first)
            first = False
        return ids

    def _run(self, text: str, first: bool) -> list[int]:
        return (self._first if first else self._later).encode(text, add_special_tokens=False).ids

    def _cut(self, text: str) -> Iterator[str]:
        position = 0
        while self._control_pattern is not None and (match := self._control_pattern.search(text, position)):
            yield text[position : match.start() + 1]
            position = match.start() + 1
        yield text[position:]


def _parse(text: str) -> tuple[dict[str, Any], tokenizers.Tokenizer]:
    document = json_object(text, "tokenizer.json")
    try:
        library = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise EngineError(f"tokenizer.json is damaged or of an unknown kind: {one_line(error)}") from error
    library.post_processor = None  # its tokens are added here, its offsets not needed
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    return document, library


def _vocabulary(document: dict[str, Any], library: tokenizers.Tokenizer, model: BPE) -> tuple[list[str], list[int]]:
    """Tokens and their types; ids that no token has are unused."""
    id_of: dict[str, int] = library.get_vocab(with_added_tokens=True)
    if not id_of:
        raise EngineError("tokenizer.json has no tokens")
    for added in document.get("added_tokens") or ():
        if id_of.get(added["content"]) != added["id"]:  # the library gives it the next free id, silently
            where = f"{added['content']!r} at id {added['id']}"
            raise EngineError(f"tokenizer.json is damaged: it has no place for its added token {where}")
    last = max(id_of.values())
    if last >= MAX_ID:
        raise EngineError(f"tokenizer.json is damaged: it has a token of id {last}")
    if len(set(id_of.values())) != len(id_of):
        raise EngineError("tokenizer.json is damaged: two of its tokens have the same id")
    tokens, types = [""] * (last + 1), [UNUSED] * (last + 1)
    for token, id in id_of.items():
        tokens[id] = token
        types[id] = BYTE if model.byte_fallback and _BYTE_TOKEN.fullmatch(token) else NORMAL
    for added in document.get("added_tokens") or ():
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    if model.unk_token in id_of and types[id_of[model.unk_token]] == NORMAL:
        types[id_of[model.unk_token]] = UNKNOWN
    return tokens, types


def _make_named_tokens_control(
    library: tokenizers.Tokenizer, config: dict[str, Any], tokens: list[str], types: list[int]
) -> None:
    """The tokens that tokenizer_config.json names are special, whatever tokenizer.json says, as in transformers."""
    id_of = ids_by_token(tokens)
    for name in _NAMED_TOKENS:
        values = config.get(name)
        for value in values if isinstance(values, list) else [values]:
            token = _content(value)
            if token in id_of and len(token) > 1:
                types[id_of[token]] = CONTROL
                library.add_special_tokens([token])


def _content(value: Any) -> str:
    """A token's spelling, given as such or as an AddedToken; empty where there is none."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _first_token(document: dict[str, Any]) -> str:
    """The special token that the file's post-processor puts before a text; empty where there is none."""
    for part in _parts(document.get("post_processor")):
        template = part.get("single") if part.get("type") == "TemplateProcessing" else None
        if isinstance(template, list) and template and isinstance(template[0], dict):
            token = template[0].get("SpecialToken")
            return _content({"content": token.get("id")}) if isinstance(token, dict) else ""
    return ""


def _spelling(document: dict[str, Any], model: BPE) -> Spelling:
    kinds = [part.get("type") for name in ("decoder", "pre_tokenizer") for part in _parts(document.get(name))]
    if "ByteLevel" in kinds:
        return Spelling.BYTE_LEVEL
    if model.byte_fallback or "Metaspace" in kinds:
        return Spelling.SENTENCEPIECE
    raise EngineError("tokenizer.json is neither byte-level BPE nor SentencePiece BPE, the kinds that are supported")


def _parts(component: Any) -> Iterator[dict[str, Any]]:
    """A component of tokenizer.json, or those of a sequence."""
    if isinstance(component, dict):
        yield component
        for name in ("decoders", "pretokenizers", "normalizers", "processors"):
            for part in component.get(name) or ():
                yield from _parts(part)


def _space_prefix(document: dict[str, Any]) -> SpacePrefix:
    parts = [part for name in ("normalizer", "pre_tokenizer") for part in _parts(document.get(name))]
    for part in parts:
        if part.get("type") == "Prepend":
            return SpacePrefix.EVERY
        if part.get("type") == "Metaspace":
            prepends = "always" if part.get("add_prefix_space", True) else "never"  # before there were schemes
            scheme = part.get("prepend_scheme", prepends)
            return {"first": SpacePrefix.FIRST, "always": SpacePrefix.EVERY}.get(str(scheme), SpacePrefix.NONE)
    return SpacePrefix.NONE
