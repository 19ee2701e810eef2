"""Small random llama models as GGUF files, so that engine tests need no download."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As CHATML, but it opens the think block itself unless told not to, and leaves out earlier thoughts.
THINKING = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'].split('</think>')[-1] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}{% endif %}"
)
THINK_TAGS = ("<think>", "</think>")
CORPUS = (
    "the cat sat on the mat and then the other cat came in and sat there with the first one; "
    "when they are here we think that this is what there is to see, and nothing more than that. "
)
DEFAULT_TYPES: Mapping[str, Type] = {"*": Type.Q4_1, "token_embd": Type.Q8_0}

# Where gguf has no quantiser: byte offset of the float16 scale in a block, of the minimum's scale if there is
# one, and the ratio of the two that centres the values of random bits on zero.
_RANDOM_BLOCKS: Mapping[Type, tuple[int, int | None, float]] = {
    Type.Q5_1: (0, 2, -15.5),
    Type.Q2_K: (80, 82, 1.5),
    Type.Q3_K: (108, None, 0.0),
    Type.Q4_K: (0, 2, 7.5),
    Type.Q5_K: (0, 2, 15.5),
    Type.Q6_K: (208, None, 0.0),
    Type.IQ4_NL: (0, None, 0.0),
    Type.IQ4_XS: (0, None, 0.0),
}


def byte_characters() -> list[str]:
    """GPT-2's character for each of the 256 bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def tiny_vocabulary(size: int) -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges: control tokens, the 256 bytes, then merges learnt from ``CORPUS``."""
    tokens = [*CONTROL_TOKENS, *byte_characters()]
    types = [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS) + [gguf.TokenType.NORMAL] * 256
    assert size >= len(tokens), f"a byte-level vocabulary needs {len(tokens)} tokens"
    merges: list[str] = []
    characters = byte_characters()
    words = [[characters[byte] for byte in f" {word}".encode()] for word in CORPUS.split()]
    while len(tokens) < size:
        pairs = Counter(pair for word in words for pair in itertools.pairwise(word))
        if not pairs:
            tokens.append(f"[PAD{len(tokens)}]")
            types.append(gguf.TokenType.UNUSED)
            continue
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(f"{left} {right}")
        tokens.append(left + right)
        types.append(gguf.TokenType.NORMAL)
        words = [_merge(word, left, right) for word in words]
    return tokens, [int(kind) for kind in types], merges


def _merge(word: list[str], left: str, right: str) -> list[str]:
    merged: list[str] = []
    for token in word:
        if merged and merged[-1] == left and token == right:
            merged[-1] = left + right
        else:
            merged.append(token)
    return merged


def tensor_bytes(
    rng: np.random.Generator, rows: int, columns: int, tensor_type: Type, deviation: float
) -> np.ndarray[tuple[int, int], np.dtype[np.generic]]:
    """A random (rows, columns) matrix of about ``deviation``, in the type's own layout; F32 stays float32."""
    weights = (rng.standard_normal((rows, columns)) * deviation).astype(np.float32)
    if tensor_type == Type.F32:
        return weights
    if tensor_type not in _RANDOM_BLOCKS:
        return gguf.quants.quantize(weights, tensor_type)
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[tensor_type]
    assert columns % block_elements == 0, f"{tensor_type.name} needs columns in multiples of {block_elements}"
    scale_at, minimum_at, ratio = _RANDOM_BLOCKS[tensor_type]
    count = rows * columns // block_elements
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    relative = rng.uniform(0.5, 1.5, count)

    def set_scales(unit: float) -> None:
        scale = (relative * unit).astype(np.float16)
        blocks[:, scale_at : scale_at + 2] = scale.view(np.uint8).reshape(count, 2)
        if minimum_at is not None:
            minimum = (scale.astype(np.float32) * ratio).astype(np.float16)
            blocks[:, minimum_at : minimum_at + 2] = minimum.view(np.uint8).reshape(count, 2)

    set_scales(1 / 16)
    set_scales(deviation / 16 / float(gguf.quants.dequantize(blocks, tensor_type).std()))
    return blocks.reshape(rows, -1)


def write_tiny_llama(
    path: str | Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    ffn: int = 96,
    vocab: int = 320,
    context: int = 2048,
    types: Mapping[str, Type] | Type = DEFAULT_TYPES,
    tied: bool = True,
    tokenizer: bool = True,
    template: str = CHATML,
    added: Sequence[str] = (),
    theta: float = 1e4,
    eps: float = 1e-5,
    rope_freqs: bool = False,
    tensors_a_part: int = 0,
) -> Path:
    """Write a random llama model and return its path.

    ``types``: the quantisation of the matrices, by the tensor's name ("blk.0.attn_q") or short name ("attn_q",
    "ffn_down", "token_embd", "output", ...) with "*" for the others; norms are F32. ``tied``: no output.weight.
    ``added``: user-defined tokens at the end of the vocabulary. ``rope_freqs``: with the frequency divisors of Llama 3.
    ``tensors_a_part``: split into files of so many tensors, the first of which is returned. The same arguments give the
    same file.
    """
    rng = np.random.default_rng(seed)
    by_name = types if isinstance(types, Mapping) else {"*": types}
    head_size = hidden // heads
    writer = gguf.GGUFWriter(Path(path), "llama", split_max_tensors=tensors_a_part)
    writer.add_name("Tiny random llama")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(eps)
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(head_size)
    writer.add_vocab_size(vocab)
    if tokenizer:
        _add_tokenizer(writer, vocab, template, added)
    else:
        writer.add_tokenizer_model("none")

    def add_matrix(name: str, rows: int, columns: int, deviation: float) -> None:
        tensor_type = by_name.get(name) or by_name.get(name.split(".")[-1]) or by_name.get("*", Type.Q4_1)
        data = tensor_bytes(rng, rows, columns, tensor_type, deviation)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=None if tensor_type == Type.F32 else tensor_type)

    def add_norm(name: str, mean: float = 1.0) -> None:
        weights = mean * (1 + 0.2 * rng.standard_normal(hidden))
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))

    # Small embeddings and large layer outputs: what the layers compute decides the next token, not the last one.
    add_matrix("token_embd", vocab, hidden, 0.1)
    for layer in range(layers):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm")
        add_matrix(f"{block}.attn_q", hidden, hidden, 2 / hidden**0.5)
        add_matrix(f"{block}.attn_k", kv_heads * head_size, hidden, 2 / hidden**0.5)
        add_matrix(f"{block}.attn_v", kv_heads * head_size, hidden, 1 / hidden**0.5)
        add_matrix(f"{block}.attn_output", hidden, hidden, 1 / hidden**0.5)
        add_norm(f"{block}.ffn_norm")
        add_matrix(f"{block}.ffn_gate", ffn, hidden, 1.5 / hidden**0.5)
        add_matrix(f"{block}.ffn_up", ffn, hidden, 1.5 / hidden**0.5)
        add_matrix(f"{block}.ffn_down", hidden, ffn, 1 / ffn**0.5)
    # Logits of a deviation of about 3, whatever the width.
    add_norm("output_norm", 3 / (0.1 * hidden**0.5))
    if not tied:
        add_matrix("output", vocab, hidden, 0.1)
    if rope_freqs:
        divisors = np.geomspace(1, 8, head_size // 2).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = writer.format_shard_names(Path(path))[0]
    writer.close()
    return first


def _add_tokenizer(writer: gguf.GGUFWriter, vocab: int, template: str, added: Sequence[str]) -> None:
    tokens, types, merges = tiny_vocabulary(vocab - len(added))
    tokens += added
    types += [int(gguf.TokenType.USER_DEFINED)] * len(added)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
