"""Names of models and which files of a repository they mean."""

from __future__ import annotations

import pytest

from zincchat.hub.reference import Reference, parse_reference
from zincchat.hub.variants import choose_variant, folder_files, gguf_variants, quantisation_in, variant_name
from zincchat.setup.errors import SetupError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/repo", Reference("org/repo")),
        ("org/repo:Q4_K_M", Reference("org/repo", "Q4_K_M")),
        ("Org-1/Repo_2.5-GGUF:a/b.gguf", Reference("Org-1/Repo_2.5-GGUF", "a/b.gguf")),
        ("smollm2-135m", None),
        ("./model.gguf", None),
        ("../org/repo", None),
        ("/org/repo", None),
        ("a/b/c.gguf", None),
        ("org/repo:", None),
        ("org/", None),
        ("", None),
    ],
)
def test_references(text: str, expected: Reference | None) -> None:
    assert parse_reference(text) == expected
    if expected is not None:
        assert str(expected) == text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q5_0.gguf", "Q5_0"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Qwen3.5-9B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("m-IQ4_XS.gguf", "IQ4_XS"),
        ("BF16/m-00001-of-00002.gguf", "BF16"),
        ("model-fp16.gguf", "F16"),
        ("m-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("gemma-3-270m-it-F32.gguf", "F32"),
        ("Qwen3-4B.gguf", None),
        ("q4nothing.gguf", None),
    ],
)
def test_quantisations(path: str, expected: str | None) -> None:
    assert quantisation_in(path) == expected


FILES = [
    "README.md", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-q8_0-00001-of-00002.gguf", "m-q8_0-00002-of-00002.gguf",
    "mmproj-m-F16.gguf", "m-imatrix.gguf", "m-Q2_K-00001-of-00002.gguf", "other.gguf",
]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "paths"),
    [
        (None, ("m-Q4_K_M.gguf",)),
        ("q4_k_m", ("m-Q4_K_M.gguf",)),
        ("Q4_0", ("m-Q4_0.gguf",)),
        ("Q8_0", ("m-q8_0-00001-of-00002.gguf", "m-q8_0-00002-of-00002.gguf")),
        ("m-q8_0-00002-of-00002.gguf", ("m-q8_0-00001-of-00002.gguf", "m-q8_0-00002-of-00002.gguf")),
        ("other", ("other.gguf",)),
    ],
)
def test_a_part_means_a_variant(part: str | None, paths: tuple[str, ...]) -> None:
    variants = gguf_variants(FILES)
    chosen = choose_variant(Reference("o/r", part), variants)
    assert chosen.paths == paths
    name = parse_reference(variant_name("o/r", chosen, variants))
    assert name is not None and choose_variant(name, variants) == chosen


@pytest.mark.parametrize(
    ("files", "part", "message"),
    [
        (FILES, "Q6_K", "o/r has no Q6_K; there is Q2_K, Q4_0, Q4_K_M, Q8_0, other"),
        (FILES, "Q2_K", "o/r has only 1 of the parts of Q2_K"),
        (["a-Q8_0.gguf", "a-Q6_K.gguf"], None, "o/r could be several: name one, as in o/r:Q6_K; there is Q6_K, Q8_0"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "there is a-Q8_0.gguf, b-Q8_0.gguf"),
        ([f"a{number}-Q8_0.gguf" for number in range(30)], None, "and 6 more"),
    ],
)
def test_what_is_not_clear_is_listed(files: list[str], part: str | None, message: str) -> None:
    with pytest.raises(SetupError) as caught:
        choose_variant(Reference("o/r", part), gguf_variants(files))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "part", "message"),
    [
        (["README.md"], None, "o/r has neither GGUF files nor a config.json"),
        (["config.json", "pytorch_model.bin"], None, "o/r has no GGUF or safetensors files"),
        (["config.json", "a.safetensors", "b.safetensors"], None, "2 safetensors files without an index"),
        (["config.json", "model.safetensors"], "Q4_0", "has no GGUF files to choose from: pull all of it as o/r"),
    ],
)
def test_repositories_that_cannot_be_read(files: list[str], part: str | None, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        folder_files(Reference("o/r", part), files)
