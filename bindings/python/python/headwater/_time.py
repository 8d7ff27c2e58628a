"""Instants and spans in the forms Python programs have them in, as integers of nanoseconds."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import numpy as np

from ._errors import InvalidError
from ._types import Instant, Span

MIN = -(2**63)
MAX = 2**63 - 1

#: Nanoseconds of numpy's units.
UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "D": 86_400 * 10**9,
    "W": 7 * 86_400 * 10**9,
}
_SPANS = {**{k: UNITS[k] for k in ("ns", "us", "ms", "s", "h")}, "min": UNITS["m"], "d": UNITS["D"], "w": UNITS["W"]}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_FRACTION = re.compile(r"(.*\d{2}:\d{2}:\d{2})[.,](\d+)(.*)", re.DOTALL)


def _bounded(what: str, ns: int) -> int:
    if not MIN <= ns <= MAX:
        raise InvalidError(f"{what} lies outside of the years 1677 to 2262, the range of nanoseconds in 64 bits")
    return ns


def _of_datetime(value: dt.datetime) -> int:
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.timezone.utc)
    return _of_timedelta(value - _EPOCH)


def _of_timedelta(value: dt.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) * 1000


def _of_numpy(value: np.datetime64 | np.timedelta64[Any]) -> int:
    if np.isnat(value):
        raise InvalidError("expected a time, found NaT")
    unit, count = np.datetime_data(value.dtype)
    if unit not in UNITS:
        # Years and months have no fixed length; finer units than nanoseconds are rounded down.
        coarse = unit in ("Y", "M")
        value = value.astype(f"{value.dtype.kind}8[{'s' if coarse else 'ns'}]")
        unit, count = ("s" if coarse else "ns"), 1
    return int(value.astype(np.int64)) * UNITS[unit] * count


def _of_text(text: str) -> int:
    found = _FRACTION.fullmatch(text)
    fraction = ""
    plain = text
    if found is not None:
        plain, fraction = found[1] + found[3], found[2]
    try:
        whole = _of_datetime(dt.datetime.fromisoformat(plain))
    except ValueError:
        raise InvalidError(f"expected a time such as 2013-07-18T12:00:00Z, found {text!r}") from None
    return whole + int(fraction.ljust(9, "0")[:9] or 0)


def instant(value: Instant) -> int:
    """Nanoseconds since 1970 UTC."""
    if isinstance(value, bool) or value is None:
        raise InvalidError(f"expected a time, found {value!r}")
    if isinstance(value, (int, np.integer)):
        ns = int(value)
    elif isinstance(value, np.datetime64):
        ns = _of_numpy(value)
    elif isinstance(value, dt.datetime):
        # pandas' Timestamp is a datetime with nanoseconds.
        as_unit = getattr(value, "as_unit", None)
        ns = int(as_unit("ns").value) if as_unit is not None else _of_datetime(value)
    elif isinstance(value, dt.date):
        ns = _of_datetime(dt.datetime(value.year, value.month, value.day))
    elif isinstance(value, str):
        ns = _of_text(value)
    else:
        raise InvalidError(
            f"expected a time as int (nanoseconds), datetime64, datetime, date or text, found {type(value).__name__}"
            + ("; seconds as a float are not exact: give nanoseconds as an int" if isinstance(value, float) else "")
        )
    return _bounded(repr(value), ns)


def span(value: Span) -> int:
    """Nanoseconds."""
    if isinstance(value, dt.timedelta):
        ns = _of_timedelta(value)
    elif isinstance(value, np.timedelta64):
        ns = _of_numpy(value)
    elif isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", value)
        if found is None or found[2] not in _SPANS:
            raise InvalidError(f"expected a length of time such as 15min (units: {', '.join(_SPANS)}), found {value!r}")
        whole, _, fraction = found[1].partition(".")
        unit = _SPANS[found[2]]
        ns = int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        ns = int(value) * 10**9 if isinstance(value, (int, np.integer)) else round(float(value) * 1e9)
    else:
        raise InvalidError(f"expected seconds, timedelta, timedelta64 or text such as 15min, found {value!r}")
    return _bounded(repr(value), ns)


def seconds(value: Span | None) -> float | None:
    """Seconds, or none."""
    return None if value is None else span(value) / 1e9


def between(start: Instant | None, end: Instant | None) -> tuple[int, int]:
    """The first and the last nanosecond of ``[start, end)``."""
    first = MIN if start is None else instant(start)
    if end is None:
        return first, MAX
    beyond = instant(end)
    # No instant is inside: the engine's empty range.
    return (first, beyond - 1) if beyond > first else (MAX, MIN)
