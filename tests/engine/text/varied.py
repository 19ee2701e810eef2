# ruff: noqa: RUF001
"""About 200 strings that tokenizers tend to get wrong."""

from __future__ import annotations

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
)


def varied_strings() -> list[str]:
    """The pieces above, and as many again joined at random (always the same)."""
    rng = random.Random(5)
    joined = ["".join(rng.choices(_PIECES, k=rng.randint(2, 5))) for _ in range(2 * len(_PIECES))]
    return [*_PIECES, *joined]
