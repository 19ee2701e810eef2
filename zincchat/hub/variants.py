"""Which files of a repository make up a model: GGUF files by quantisation, parts together, or safetensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from zincchat.hub.reference import Reference
from zincchat.setup.errors import SetupError

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
DEFAULT_QUANTISATION = "Q4_K_M"  # what llama.cpp and Ollama take of a repository too

# Beside the weights, what a model needs to be run and to chat.
_COMPANIONS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_QUANTISATION = re.compile(
    r"(?<![A-Z0-9])(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32)(?![A-Z0-9])"
)
_NO_MODEL = ("mmproj", "imatrix")  # GGUF files beside models: vision towers, statistics for quantising
_MOST_LISTED = 24


@dataclass(frozen=True, slots=True)
class Variant:
    """One GGUF model of a repository. ``label`` is its quantisation, or its name where that says none."""

    label: str
    paths: tuple[str, ...]  # in the repository; of a model in parts all, in order
    is_complete: bool  # no part is absent


def quantisation_in(path: str) -> str | None:
    """The quantisation that a file's name or its folders' names state, in capitals."""
    found = _QUANTISATION.findall(path.upper())
    return str(found[-1]).replace("FP16", "F16").replace("FP32", "F32") if found else None


def gguf_variants(paths: Iterable[str]) -> list[Variant]:
    """The GGUF models among a repository's files, by name."""
    groups: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for path in sorted(paths):
        name = PurePosixPath(path).name
        if not name.lower().endswith(".gguf") or any(word in name.lower() for word in _NO_MODEL):
            continue
        match = _PART.fullmatch(path)
        stem = path[: -len(".gguf")] if match is None else f"{match['stem']} of {match['count']}"
        groups.setdefault(stem, []).append(path)
        counts[stem] = 1 if match is None else int(match["count"])
    return [
        Variant(quantisation_in(members[0]) or PurePosixPath(members[0]).stem, tuple(members), len(members) == count)
        for members, count in ((groups[stem], counts[stem]) for stem in groups)
    ]


def choose_variant(reference: Reference, variants: list[Variant]) -> Variant:
    """The variant that ``reference`` means. Raises SetupError, listing what there is, where none or several fit."""
    chosen = fitting(reference.part, variants)
    if not chosen:
        raise SetupError(f"{reference.repo} has no {reference.part}; there is {_listing(variants)}")
    if len(chosen) > 1:
        raise SetupError(
            f"{reference} could be several: name one, as in {reference.repo}:{_names(chosen)[0]}; "
            f"there is {_listing(chosen)}"
        )
    if not chosen[0].is_complete:
        raise SetupError(
            f"{reference.repo} has only {len(chosen[0].paths)} of the parts of {chosen[0].label}: take another"
        )
    return chosen[0]


def fitting(part: str | None, variants: list[Variant]) -> list[Variant]:
    """The variants that ``part`` of a reference may mean."""
    if part is None:
        preferred = [variant for variant in variants if variant.label == DEFAULT_QUANTISATION]
        return preferred or variants
    exact = [variant for variant in variants if part in variant.paths]
    if exact:
        return exact
    wanted = part.upper()
    return [
        variant
        for variant in variants
        if wanted in (variant.label.upper(), *(PurePosixPath(path).name.upper() for path in variant.paths))
    ]


def _names(variants: list[Variant]) -> list[str]:
    """Labels, or paths where a label is there twice."""
    labels = [variant.label for variant in variants]
    return [variant.label if labels.count(variant.label) == 1 else variant.paths[0] for variant in variants]


def variant_name(repo: str, variant: Variant, variants: list[Variant]) -> str:
    """The shortest reference that means ``variant`` alone among ``variants``."""
    return f"{repo}:{_names(variants)[variants.index(variant)]}"


def _listing(variants: list[Variant]) -> str:
    names = _names(variants)
    return ", ".join(names[:_MOST_LISTED]) + (f" and {len(names) - _MOST_LISTED} more" * (len(names) > _MOST_LISTED))


def folder_files(reference: Reference, paths: Collection[str]) -> tuple[list[str], bool]:
    """The files of a repository of safetensors, and whether weights come on top of them, as its index lists them.

    Raises SetupError where it has no weights that can be read.
    """
    if reference.part is not None:
        raise SetupError(f"{reference.repo} has no GGUF files to choose from: pull all of it as {reference.repo}")
    if CONFIG not in paths:
        raise SetupError(f"{reference.repo} has neither GGUF files nor a {CONFIG}: there is no model to run in it")
    files = [CONFIG, *(name for name in _COMPANIONS if name in paths)]
    if INDEX in paths:
        return [*files, INDEX], True
    weights = [path for path in paths if path.endswith(".safetensors") and "/" not in path]
    if "model.safetensors" in weights:
        weights = ["model.safetensors"]
    if len(weights) != 1:
        found = f"{len(weights)} safetensors files without an index" if weights else "no GGUF or safetensors files"
        raise SetupError(f"{reference.repo} has {found}: its weights cannot be read; take another conversion of it")
    return [*files, *weights], False
