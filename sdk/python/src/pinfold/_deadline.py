"""How long is left of a wait, in pieces that one request may wait."""

from __future__ import annotations

import time

from pinfold._span import optional_seconds
from pinfold.options import Span

# The longest wait that the daemon accepts in one request.
MAX_WAIT = 3600.0
# A longer wait is several requests, so that a daemon that hangs is noticed.
MAX_SLICE = 300.0


class Deadline:
    """A point in time, or never."""

    def __init__(self, timeout: Span | None):
        length = optional_seconds(timeout)
        self._end = None if length is None else time.monotonic() + length

    def next_wait(self, most: float = MAX_SLICE) -> float:
        """How long the next request may wait, in seconds."""
        return most if self._end is None else min(max(self._end - time.monotonic(), 0.0), most)

    def has_passed(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end
