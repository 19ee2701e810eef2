"""Mode ``reuse``: recorded once a context bucket, then patched and resubmitted."""

from __future__ import annotations

from engine.decode.recordings import Recordings
from engine.decode.step import Request, Resources, Step, Stopwatch, land, launch


class Reuse:
    """Keeps a recording for each (bucket, fusion, barriers, stamped) in use."""

    in_flight = 0

    def __init__(self, resources: Resources) -> None:
        self._recordings = Recordings(resources, 1)

    @property
    def recordings(self) -> int:
        """Command buffers recorded so far."""
        return self._recordings.recordings

    def step(self, request: Request) -> Step:
        """Resubmit this bucket's recording; build and record it first where there is none."""
        watch = Stopwatch()
        ring, fresh = self._recordings.ring(request.position, request.settings, request.stamped, watch)
        step = land(launch(ring[0], request, watch, rerecorded=fresh))
        self._recordings.make_room()
        return step

    def collect(self) -> Step:
        """Nothing is ever in flight between two steps."""
        raise RuntimeError("nothing is in flight")

    def close(self) -> None:
        """Destroy the recordings."""
        self._recordings.close()
