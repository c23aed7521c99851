"""Durations: seconds, `timedelta`, or text such as `30s` and `1h30m`, as the daemon reads them."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from pinfold.errors import InvalidArgumentError
from pinfold.options import Span

UNITS = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "secs": 1, "m": 60, "min": 60, "mins": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "d": 86400,
}  # fmt: skip
PART = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµ]+)\s*")
PLAIN = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*")
EXAMPLE = "write seconds, or text such as `500ms`, `30s` or `1h30m`"


def seconds(span: Span) -> float:
    """The duration in seconds; raises InvalidArgumentError."""
    if isinstance(span, timedelta):
        return checked(span.total_seconds(), span)
    if isinstance(span, str):
        return checked(parse(span), span)
    if isinstance(span, bool) or not isinstance(span, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"{span!r} is not a duration: {EXAMPLE}")
    return checked(float(span), span)


def optional_seconds(span: Span | None) -> float | None:
    return None if span is None else seconds(span)


def parse(text: str) -> float:
    if PLAIN.fullmatch(text):
        return float(text)
    total, position = 0.0, 0
    while position < len(text):
        part = PART.match(text, position)
        if part is None or part[2] not in UNITS:
            return math.nan
        total += float(part[1]) * UNITS[part[2]]
        position = part.end()
    return total if position else math.nan


def checked(value: float, span: Span) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidArgumentError(f"{span!r} is not a duration: {EXAMPLE}")
    return value
