"""Mode ``pipelined``: recordings submitted ahead; the GPU feeds itself, the CPU reads ids behind it."""

from __future__ import annotations

from collections import deque

from engine.decode.recordings import Recordings
from engine.decode.step import Flight, Request, Resources, Step, Stopwatch, land, launch

RING = 4  # recordings a bucket: one being read, the rest queued


class Pipelined:
    """A ring of recordings a bucket, each with its own slot, fence and timestamps; none is resubmitted while pending.

    The sampled id reaches the next token through the state on the GPU, which also knows the stop ids: tokens in
    flight behind an end token write nothing.
    """

    def __init__(self, resources: Resources) -> None:
        self._recordings = Recordings(resources, RING)
        self._flights: deque[Flight] = deque()
        self._turn = 0

    @property
    def recordings(self) -> int:
        """Command buffers recorded so far."""
        return self._recordings.recordings

    @property
    def in_flight(self) -> int:
        """Tokens submitted and not returned yet."""
        return len(self._flights)

    def step(self, request: Request) -> Step:
        """Fill the queue, then return the oldest token in it."""
        flights = self._flights
        if request.stamped:
            return self._stamped(request)
        for ahead in range(min(RING - len(flights), request.remaining)):
            watch = Stopwatch()
            ring, fresh = self._recordings.ring(request.position + ahead, request.settings, False, watch)
            starved = not flights or flights[-1].recording.commands.finished
            flights.append(launch(ring[self._turn], request, watch, fresh, starved))
            self._turn = (self._turn + 1) % RING
        return self.collect()

    def collect(self) -> Step:
        """Return the oldest token in flight."""
        step = land(self._flights.popleft())
        if not self._flights:
            self._recordings.make_room()
        return step

    def _stamped(self, request: Request) -> Step:
        watch = Stopwatch()
        ring, fresh = self._recordings.ring(request.position, request.settings, True, watch)
        self._flights.append(launch(ring[0], request, watch, fresh))
        return self.collect()

    def close(self) -> None:
        """Destroy the recordings."""
        self._recordings.close()
