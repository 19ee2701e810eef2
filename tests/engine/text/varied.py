# ruff: noqa: RUF001
"""Strings that tokenizers tend to get wrong."""

from __future__ import annotations

import hashlib
import random

_PIECES = (
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; ++i) { a[i] += 1; }",
    "SELECT * FROM t WHERE a='b';",
    "\t\tif err != nil {\r\n\t\t\treturn err\r\n\t}",
    "https://example.org/a?b=c&d=%20#e",
    "C:\\Users\\x\\y.txt",
    "0",
    "1234567890",
    "3.14159",
    "1,000,000",
    "2024-02-29T12:34:56Z",
    "0xDEADBEEF",
    "½ ² ٣ ४ Ⅷ",
    "1st 2nd 3rd",
    "I'm you're they've we'll he'd it's DON'T can’t",
    "'s 't '",
    "Hello, world!",
    "HELLO WORLD",
    "camelCaseWord snake_case_word",
    "😀",
    "👩‍👩‍👧‍👦 family",
    "🇫🇷🇯🇵",
    "👍🏽 ok",
    "e\u0301 a\u0300\u0316",
    "Z\u0351\u036b\u0343algo",
    "한국어 텍스트",
    "日本語のテキスト、カタカナ。",
    "中文字符测试",
    "مرحبا بالعالم",
    "שָׁלוֹם",
    "नमस्ते दुनिया",
    "ไทยไม่มีช่องว่าง",
    "Ελληνικά",
    "Русский текст",
    "Tiếng Việt",
    " ",
    "  ",
    "   leading",
    "trailing   ",
    "a  b   c    d     e",
    "\n",
    "\n\n\n",
    " \n \n",
    "\r\n\r\n",
    "\u00a0nbsp\u2003em\u200bzero",
    "<|im_end|>",
    "<|im_start|>system\nyou are",
    "<|endoftext|>",
    "<|im_end",
    "|im_end|>",
    "<<|im_end|>>",
    "<s></s>",
    "[INST]",
    "…—–“”‘’«»",
    "∑∫√∞≠≤≥",
    "a+b=c; x^2-y_1",
    "$100 €50 £20",
    "#hashtag @user",
    "```python\nprint('x')\n```",
    "| a | b |\n|---|---|",
    "\ufeffBOM",
    "\U0001f9ff\U00020000",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ÀÉÎÕÜ ß ﬁ Ǆ",
    "x" * 300,
    "ab" * 100,
    " " * 97 + "x",
    "<bos><start_of_turn>user\nhi<end_of_turn>",
    "<eos></s><unk><pad><0x0A>",
    "<|begin_of_text|><|eot_id|><|start_header_id|>system<|end_header_id|>",
    "<think>no</think><tool_call>",
    "<start_of_image>[INST] <<SYS>>",
)


# Alphabets for made-up words: Latin, digits, Cyrillic, Arabic, Devanagari with its signs, CJK, kana, Hangul, emoji,
# combining marks, symbols, and the characters of control tokens.
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_'",
    "0123456789.,:-+eE%",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
    "".join(map(chr, range(0x0627, 0x0653))),
    "".join(map(chr, range(0x0905, 0x0950))),
    "".join(map(chr, range(0x4E00, 0x9FA0, 97))),
    "".join(map(chr, range(0x3041, 0x3097))),
    "".join(map(chr, range(0xAC00, 0xD7A0, 101))),
    "".join(map(chr, range(0x1F300, 0x1F650, 3))) + "\u200d\ufe0f\U0001f3fb\U0001f3ff",
    "aeiou" + "".join(map(chr, range(0x0300, 0x0330))),
    "".join(map(chr, range(0x2190, 0x2300, 7))) + "(){}[];=<>/\\#@&*^~`$|",
    "<|>_/[]imstarendof",
    " ",
    " \t\n\r",
)


def varied_strings(count: int = 3 * len(_PIECES)) -> list[str]:
    """``count`` strings, the same on every machine: the pieces above, then pieces and made-up words at random."""
    rng = random.Random(5)

    def below(limit: int) -> int:
        return int(rng.random() * limit)  # the only method whose numbers no Python version changes

    strings = list(_PIECES)
    joined = [piece for piece in _PIECES if len(piece) < 60]
    while len(strings) < count:
        parts = []
        for _ in range(1 + below(3)):
            alphabet = _ALPHABETS[below(len(_ALPHABETS))]
            word = "".join(alphabet[below(len(alphabet))] for _ in range(1 + below(7))) + " " * below(2)
            parts.append(joined[below(len(joined))] if rng.random() < 0.25 else word)
        strings.append("".join(parts))
    return strings[:count]


def strings_sha256(strings: list[str]) -> str:
    """Tells whether reference ids were made from these very strings."""
    return hashlib.sha256("\0".join(strings).encode()).hexdigest()
