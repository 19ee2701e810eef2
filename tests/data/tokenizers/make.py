"""Makes this folder's JSON files: llama.cpp's own token ids of the strings of tests/engine/text/varied.py.

    pip install llama-cpp-py-sync==0.11739        # llama.cpp 0ce8cd1 as a prebuilt library; needs glibc 2.38
    PYTHONPATH=. python tests/data/tokenizers/make.py SMOLLM2.gguf GEMMA3.gguf

smollm2.json, gemma3.json: {"strings_sha256", "ids"}, the ids of 2,000 strings; null where llama.cpp takes what a
model means as text for a control token. sentencepiece.json: a vocabulary of 800 ({"tokens", "scores", "types"}),
trained here on a hundred of the strings with the sentencepiece library, and the ids of 400 strings with and without
the space that such tokenizers put before a text.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import sentencepiece
from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib

from tests.engine.text.varied import strings_sha256, varied_strings

HERE = Path(__file__).parent
CONTROL, USER_DEFINED = 3, 4
ADDED = [("<start>", CONTROL), ("<end>", CONTROL), ("<image>", USER_DEFINED), ("\n\n", USER_DEFINED)]
ADDED += [(" " * count, USER_DEFINED) for count in range(2, 9)]


class LlamaCpp:
    """llama.cpp's tokenizer of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self._ffi, self._lib = get_ffi(), get_lib()
        parameters = self._lib.llama_model_default_params()
        parameters.vocab_only = True
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), parameters)
        self._vocabulary = self._lib.llama_model_get_vocab(self._model)

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        ids = self._ffi.new("llama_token[]", len(data) + 8)
        count = self._lib.llama_tokenize(self._vocabulary, data, len(data), ids, len(ids), False, False)
        assert count >= 0
        return list(ids[0:count])


def write(name: str, **content: Any) -> None:
    (HERE / name).write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")


def write_reference(name: str, path: Path, not_comparable: str | None = None) -> None:
    strings = varied_strings(2000)
    llama_cpp = LlamaCpp(path)
    ids = [None if not_comparable and not_comparable in text else llama_cpp.encode(text) for text in strings]
    write(name, strings_sha256=strings_sha256(strings), ids=ids)


def train(strings: Sequence[str]) -> dict[str, list[Any]]:
    """A vocabulary with byte fallback that lacks some of the strings' characters, and tokens of every type."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in strings for line in text.split("\n") if line.strip()]),
        model_writer=model,
        model_type="bpe",
        vocab_size=800 - len(ADDED),
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(pieces.vocab_size())
    types = [
        2 if pieces.is_unknown(id) else 3 if pieces.is_control(id) else 6 if pieces.is_byte(id) else 1 for id in ids
    ]
    return {
        "tokens": [pieces.id_to_piece(id) for id in ids] + [token for token, _ in ADDED],
        "scores": [pieces.get_score(id) for id in ids] + [-1000.0] * len(ADDED),
        "types": types + [kind for _, kind in ADDED],
    }


def write_vocabulary(path: Path, vocabulary: dict[str, list[Any]], space_prefix: bool) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_vocab_size(len(vocabulary["tokens"]))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_scores(vocabulary["scores"])
    writer.add_token_types(vocabulary["types"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main() -> None:
    smollm2, gemma3 = map(Path, sys.argv[1:])
    write_reference("smollm2.json", smollm2)
    write_reference("gemma3.json", gemma3, not_comparable="</s>")  # in Gemma an HTML tag like others
    strings = varied_strings(400)
    vocabulary = train(strings[:100])
    ids = {}
    for space_prefix in (False, True):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            write_vocabulary(Path(file.name), vocabulary, space_prefix)
            llama_cpp = LlamaCpp(Path(file.name))
            ids["ids_space_prefix" if space_prefix else "ids"] = [llama_cpp.encode(text) for text in strings]
    write("sentencepiece.json", strings_sha256=strings_sha256(strings), **vocabulary, **ids)


if __name__ == "__main__":
    main()
