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


# Splits of one pattern: {letter} and {mark} tell Qwen 3.5 from Qwen 2, {digits} Llama 3.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?{letter}+|{digits}"
    r"| ?[^\s\p{L}{mark}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# A word is upper-case, then lower-case letters; either may be missing, and other letters count as both.
_CASED_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _words(*, letter: str = r"\p{L}", mark: str = "", digits: str = r"\p{N}") -> tuple[tuple[str, str], ...]:
    pattern = _WORDS.replace("{letter}", letter).replace("{mark}", mark).replace("{digits}", digits)
    return ((pattern, "isolated"),)


_GPT2 = PreTokenizerSpec()
_SMOLLM = PreTokenizerSpec(((r"\p{N}", "isolated"),))
_QWEN2 = PreTokenizerSpec(_words(), gpt2=False)
_QWEN35 = PreTokenizerSpec(_words(letter=r"[\p{L}\p{M}]", mark=r"\p{M}"), gpt2=False)
_LLAMA3 = PreTokenizerSpec(_words(digits=r"\p{N}{1,3}"), gpt2=False, ignore_merges=True, add_bos=True)
# SmolLM 3 has Llama 3's pattern; its GGUF files bear the name of the first model that llama.cpp saw it in.
_SMOLLM3 = PreTokenizerSpec(_words(digits=r"\p{N}{1,3}"), gpt2=False)
# Mistral's Tekken. llama.cpp cannot express this pattern and takes a near one that splits marks from their letters.
_TEKKEN = PreTokenizerSpec(((_CASED_WORDS, "isolated"),), gpt2=False, ignore_merges=True, add_bos=True)

PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "qwen2": _QWEN2,
    "qwen35": _QWEN35,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _SMOLLM3,
    "tekken": _TEKKEN,
}
