"""Reading a range of a file, from any thread.

Read rather than mapped: a mapped file that is cut short meanwhile, or whose disk is taken away, kills the process.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_READ_BYTES = 1 << 30  # Linux reads less than 2 GiB at a time


def read_into(file: BinaryIO, offset: int, target: npt.NDArray[np.uint8]) -> bool:
    """Fill a contiguous array with the bytes from ``offset`` on; False where the file ends before.

    OSError where it cannot be read, ValueError where it is closed.
    """
    view = target.reshape(-1).data
    done = 0
    while done < len(view):
        count = os.preadv(file.fileno(), [view[done : done + _READ_BYTES]], offset + done)
        if count == 0:
            return False
        done += count
    return True
