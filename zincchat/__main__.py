"""``python -m zincchat``: the same as the ``zincchat`` command."""

from __future__ import annotations

import sys

from zincchat.launcher import main

if __name__ == "__main__":
    sys.exit(main())
