"""Plain values that calls take and give."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

#: A point in time: nanoseconds since 1970 UTC as an ``int``; ``numpy.datetime64``; ``datetime`` (without a time zone it is
#: UTC), which includes ``pandas.Timestamp``; ``date``; or text such as ``"2013-07-18"`` or ``"2013-07-18T12:00:00Z"``.
Instant: TypeAlias = "int | np.integer[Any] | np.datetime64 | dt.datetime | dt.date | str"

#: A length of time: seconds as a number, ``timedelta``, ``numpy.timedelta64``, or text such as ``"15min"``: a number and one of
#: ns, us, ms, s, min, h, d, w.
Span: TypeAlias = "float | dt.timedelta | np.timedelta64[Any] | str"

#: Tags and their values.
Tags: TypeAlias = Mapping[str, str]

#: A condition on a field: its name, one of ``== != < <= > >=``, a value.
Condition: TypeAlias = tuple[str, str, "float | int | bool | str | bytes | np.generic"]

#: The type of a field.
FieldType: TypeAlias = Literal["f64", "i64", "u64", "bool", "string", "bytes"]

#: Values of one column: a numpy array, or what makes one.
Values: TypeAlias = npt.ArrayLike


class ArrowStream(Protocol):
    """Data that can be read through the Arrow C stream interface: a pyarrow table, a polars frame, a DuckDB relation, …"""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Refused(NamedTuple):
    """A row that was not stored."""

    #: Its place in what was written, from 0.
    row: int
    #: A stable code: ``E_TYPE``, ``E_TIME_ENDED``, ``E_TIME_FUTURE``, ``E_LIMIT_STRING``, ``E_LIMIT_FIELDS``,
    #: ``E_LIMIT_TABLES``, ``E_LIMIT_STREAMS``, ``E_NAME``, ``E_UNREADABLE``.
    code: str
    #: What was expected, what was found, what to do.
    message: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write."""

    #: Rows stored.
    accepted: int
    #: Rows not stored.
    refused_count: int
    #: The first 1,000 of them.
    refused: tuple[Refused, ...]
    #: The producer's number had been taken in before: nothing was stored again.
    repeated: bool
    #: Of the rows stored, those that put a value where another row of the same batch, before them, had put one.
    replaced: int = 0


class Last(NamedTuple):
    """The newest value of a field."""

    #: Nanoseconds since 1970 UTC.
    time_ns: int
    value: float | int | bool | str | bytes

    @property
    def time(self) -> np.datetime64:
        """When, as ``numpy.datetime64[ns]``."""
        return np.datetime64(self.time_ns, "ns")


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is defined."""

    name: str
    #: Keys of the tags of its streams, and those declared, sorted.
    tags: tuple[str, ...]
    #: Its fields and their types, in the order they were added.
    fields: dict[str, FieldType]
    #: Number of streams.
    streams: int
    #: ``"last"``: of equal times the later write counts, field by field; ``"keep"``: both stay.
    duplicates: Literal["last", "keep"]
    #: Events of a full leaf.
    leaf_events: int
    #: Rows older than so many seconds are removed; ``None`` = never.
    retention: float | None
    #: Rows older than so many seconds are removed and leave their aggregates; ``None`` = never.
    raw_for: float | None
    #: Nanoseconds since 1970 UTC before which nothing exists any more, and nothing can be written.
    cut: int | None
    #: Nanoseconds since 1970 UTC before which no rows can be written: only aggregates are kept there.
    aged_to: int | None


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A state of the database that lasts until it is dropped or ends by itself."""

    name: str
    #: When it was made, in nanoseconds since 1970 UTC.
    created: int
    #: When it ends by itself; ``None`` = never.
    ends: int | None
    #: The newest record in it.
    sequence: int
    #: What it had when it was made.
    tables: int
    streams: int
    events: int
    #: Bytes of the files that it names.
    bytes: int
    #: Bytes of those that are there for snapshots only, for this one or for several.
    kept_bytes: int
    #: Bytes that its end alone would free.
    own_bytes: int


class EndedSnapshot(NamedTuple):
    """A named snapshot that ended by itself."""

    name: str
    #: When it was made, and when it ended, in nanoseconds since 1970 UTC.
    created: int
    ended: int
    #: Why, in words.
    reason: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what was written."""

    file: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check looked at and found."""

    #: Damaged parts.
    damages: tuple[Damage, ...]
    segments: int
    leaves: int
    blocks: int
    rows: int
    log_records: int

    @property
    def is_sound(self) -> bool:
        """True when nothing is damaged."""
        return not self.damages


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds."""

    #: Number of the backup; the first into a folder is 1.
    number: int
    #: The newest record in it.
    sequence: int
    files: int
    bytes: int
    #: Of these, the bytes that had to be copied: the rest was in the folder already.
    bytes_copied: int


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found and did, or would do."""

    #: What is damaged, and what is done about it.
    findings: tuple[str, ...]
    #: What cannot be saved.
    lost: tuple[str, ...]
    #: Files kept in ``quarantine``.
    quarantined: tuple[str, ...]
    #: The check after the repair.
    after: CheckReport


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening had to put right."""

    log_records: int
    events_replayed: int
    #: The log ended in a record that was being written when the process ended.
    torn_tail: bool
    files_removed: int
    files_truncated: int


class _Unchanged:
    """The value of a setting that is not to be changed."""

    def __repr__(self) -> str:
        return "UNCHANGED"


#: The value of a setting that :meth:`Database.alter_table` is to leave alone.
UNCHANGED = _Unchanged()
