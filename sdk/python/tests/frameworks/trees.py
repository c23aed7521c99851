"""A command with a descendant that detaches, and what is left of it."""

from __future__ import annotations

import os
from pathlib import Path

# Says so when it is set up, so that it is not cancelled before.
DETACHING = "setsid sleep 600 & echo $! > pid; echo ready > ready; wait"


def is_gone(work: Path) -> bool:
    """Whether the descendant of DETACHING has ended."""
    return not os.path.exists(f"/proc/{(work / 'pid').read_text().strip()}")
