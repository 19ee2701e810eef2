"""Writing the tokens of a chat to a file: their records, or their timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import AtomicFile, EngineError, chrome_trace, export_suffix, export_text
from zincchat.provenance import provenance

if TYPE_CHECKING:
    from engine import Token
    from zincchat.engine_events import Loaded


def export_records(name: str, tokens: Sequence[Token]) -> str:
    """Write a record a token to a .jsonl or .csv file; returns what to tell the user, or raises EngineError."""
    suffix = export_suffix(name)
    path = Path(name).expanduser()
    with AtomicFile(path) as file:
        file.write(export_text([token.timing for token in tokens], suffix))
        file.commit()
    return f"wrote the records of {_count(tokens)} to {path.resolve()}"


def export_trace(name: str, tokens: Sequence[Token], engine: Loaded) -> str:
    """Write the timeline to a .json file, for ui.perfetto.dev; returns and raises as export_records."""
    if not name.lower().endswith(".json"):
        raise EngineError(f"cannot write a trace to {name}: its name must end in .json")
    path = Path(name).expanduser()
    with AtomicFile(path) as file:
        metadata = provenance(engine, "zincchat")
        file.write(json.dumps(chrome_trace(tokens, metadata), allow_nan=False))
        file.commit()
    return f"wrote the timeline of {_count(tokens)} to {path.resolve()}: open it in ui.perfetto.dev"


def _count(tokens: Sequence[Token]) -> str:
    return "1 token" if len(tokens) == 1 else f"{len(tokens):,} tokens"
