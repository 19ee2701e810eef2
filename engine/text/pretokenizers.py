"""The splits that byte-level BPE tokenizers apply to text before merging, by their GGUF name.

``tokenizer.ggml.pre`` names the split; the names and patterns are those of llama.cpp's vocabulary loader
(src/llama-vocab.cpp), and each model's own tokenizer.json has the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split


@dataclass(frozen=True, slots=True)
class PreTokenizerSpec:
    """``patterns`` are applied in turn; ``gpt2`` adds the GPT-2 pattern after them."""

    patterns: tuple[tuple[str, str], ...] = ()  # (regular expression, tokenizers' split behaviour)
    gpt2: bool = True
    ignore_merges: bool = False  # a word that is a token is taken whole
    add_bos: bool = False  # where the file does not say

    def build(self) -> PreTokenizer:
        """The pre-tokenizer: text in, byte-level words out."""
        splits: list[PreTokenizer] = [Split(Regex(pattern), behavior) for pattern, behavior in self.patterns]
        byte_level = ByteLevel(add_prefix_space=False, use_regex=self.gpt2)
        return Sequence([*splits, byte_level]) if splits else byte_level


# {digits} is the only difference between Qwen 2 and Llama 3.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|{digits}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = PreTokenizerSpec()
_SMOLLM = PreTokenizerSpec(((r"\p{N}", "isolated"),))
_QWEN2 = PreTokenizerSpec(((_WORDS.replace("{digits}", r"\p{N}"), "isolated"),), gpt2=False)
_LLAMA3 = PreTokenizerSpec(
    ((_WORDS.replace("{digits}", r"\p{N}{1,3}"), "isolated"),), gpt2=False, ignore_merges=True, add_bos=True
)

PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}
