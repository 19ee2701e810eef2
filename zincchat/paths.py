"""Where zincchat keeps what it fetches."""

from __future__ import annotations

import os
from pathlib import Path


def data_dir() -> Path:
    """The data folder: ``ZINCCHAT_DATA``, else the user's own for applications. It need not exist."""
    override = os.environ.get("ZINCCHAT_DATA")
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs  # here, because the first step of the setup runs before it is installed

    return platformdirs.user_data_path("zincchat")
