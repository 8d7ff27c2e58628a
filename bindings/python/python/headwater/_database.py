"""The open database."""

from __future__ import annotations

import os
import time as _clock
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from . import _arrays, _log, _native, _time
from ._errors import ForkedError, InvalidError, RefusedError
from ._frame import Frame, Result
from ._types import (
    UNCHANGED,
    ArrowStream,
    BackupReport,
    CheckReport,
    Condition,
    Damage,
    EndedSnapshot,
    FieldType,
    Instant,
    Last,
    NamedSnapshot,
    Recovery,
    Refused,
    RepairReport,
    Span,
    Table,
    Tags,
    Values,
    Written,
    _Unchanged,
)

#: A path of this machine.
Path: TypeAlias = "str | os.PathLike[str]"


def _written(done: _native._Done, on_refused: str) -> Written:
    accepted, count, refused, repeated, replaced = done
    written = Written(accepted, count, tuple(Refused(*one) for one in refused), repeated, replaced)
    if count and on_refused == "raise":
        first = written.refused[0]
        raise RefusedError(
            f"{count} of {count + accepted} rows were refused, {accepted} are stored; the first is row {first.row}: "
            f"{first.code}, {first.message}",
            written,
        )
    return written


def _how(expires_at: Instant | None, producer: tuple[str, int] | None, require_all: bool) -> _native._How:
    return (None if expires_at is None else _time.instant(expires_at), producer, require_all)


def _check_has_fields(names: Sequence[str] | Mapping[str, Any]) -> None:
    """A row without a value is none: nothing of it would be stored."""
    if not names:
        raise InvalidError("there is no field to write: a row needs a value, such as db.write(table, tags, temperature=21.5)")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidError(f"{name}: expected {' or '.join(map(repr, choices))}, found {value!r}")


class Ticket:
    """A write on its way. It goes on whether or not it is waited for; it is acknowledged when :meth:`wait` says so."""

    __slots__ = ("_inner", "_on_refused")

    def __init__(self, inner: _native.Ticket, on_refused: str) -> None:
        self._inner = inner
        self._on_refused = on_refused

    def wait(self) -> Written:
        """Waits until the rows are as durable as the database promises; every later read finds them. May be called again.

        :raises RefusedError: when rows were refused, unless the write was made with ``on_refused="return"``.
        """
        return _written(self._inner.wait(), self._on_refused)


class Database:
    """An open database. Made by :func:`headwater.open`; used best in a ``with`` statement, which closes it.

    A table holds streams; a stream is one set of tags, say one device; an event of a stream has a time in nanoseconds and the
    values of fields, each of which may be absent. Tables, fields and streams are made by the first write.

    All methods may be called from several threads at once; Python's global lock is released while they work. Closing waits for
    the calls that are going on, and ends open results. Spans of time ``[start, end)`` hold their start and not their end; each may
    be left out. See :data:`headwater.Instant` for what a time may be.
    """

    __slots__ = ("__weakref__", "_inner", "_unclosed")

    def __init__(self, inner: _native.Database) -> None:
        self._inner = inner
        self._unclosed = True

    # --- life ---

    @property
    def path(self) -> str:
        """The directory."""
        return os.fspath(self._inner.path)

    @property
    def read_only(self) -> bool:
        """True when it was opened read-only."""
        return self._inner.read_only

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._inner.is_closed()

    def close(self) -> None:
        """Stores every event that is in memory in segments, and closes. Closing again does nothing."""
        self._unclosed = False
        self._inner.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_unclosed", False):
            try:
                if not self._inner.is_closed():
                    warnings.warn(f"unclosed database {self.path}", ResourceWarning, stacklevel=2, source=self)
                    self.close()
            except ForkedError:
                pass  # The parent process closes it.

    def __repr__(self) -> str:
        return f"<headwater.Database {self.path!r}>"

    # --- writing ---

    def write(
        self,
        table: str,
        tags: Tags | None = None,
        *,
        time: Instant | Values | None = None,
        data: Mapping[str, Any] | None = None,
        nan: _arrays.Nan = "keep",
        expires_at: Instant | None = None,
        producer: tuple[str, int] | None = None,
        require_all: bool = False,
        on_refused: Literal["raise", "return"] = "raise",
        **fields: Any,
    ) -> Written:
        """Writes events of one stream, given as arrays or as single values, and waits until they are stored.

        ``db.write("pumps", {"id": "p1"}, time=times, pressure=array, rpm=array)`` writes a column for each field;
        ``db.write("pumps", {"id": "p1"}, pressure=4.2)`` one event, now. Arrays of float64, int64, uint64 and datetime64[ns] are
        read where they are; smaller numbers are widened. Do not change an array while it is being written.

        Float arrays become ``f64``, signed integers ``i64``, unsigned ``u64``, booleans ``bool``, ``str`` ``string`` and
        ``bytes`` ``bytes``. A value is absent where a masked array says so, where pandas has ``NA``, or where an object is
        ``None``. NaN is a value and stays NaN, unless ``nan="absent"``.

        What fits into a batch (16 MiB, the setting ``batch_bytes_max``) is stored whole or, after a crash, not at all. More is
        written in pieces, in order; an error or an interrupt then says in a note how many rows are stored.

        :param tags: the tags that name the stream.
        :param time: when, in any order: datetime64 of any unit, integers of nanoseconds since 1970 UTC, or pandas times. For
            single values a time, or nothing for now.
        :param data: more fields, for names that are no keywords or that are taken here.
        :param expires_at: from then on no reader finds the values.
        :param producer: a name and a number that rises from batch to batch: a batch whose number was taken in before is
            acknowledged and not stored again, so that a write can be repeated after an error.
        :param require_all: store nothing when a row is refused.
        :param on_refused: ``"return"`` gives refused rows back with the result instead of raising.
        :raises RefusedError: rows do not fit their table or a limit; the others are stored.
        :raises BusyError: memory stays used up for longer than ``busy_timeout``; nothing of the batch is stored.
        """
        _check_choice("on_refused", on_refused, ("raise", "return"))
        how = _how(expires_at, producer, require_all)
        values = self._fields(data, fields)
        if all(_arrays.is_scalar(v) for v in (time, *values.values())):
            at = (_clock.time_ns(), True) if time is None else (_time.instant(cast("Instant", time)), False)
            event = {k: _arrays.scalar(v) for k, v in values.items() if v is not None}
            return _written(self._inner.write_event(table, _arrays.tags(tags), at, event, how), on_refused)
        times, columns = self._columns(time, values, nan)
        done = self._inner.write_columns(table, _arrays.tags(tags), times, columns, [], how)
        return _written(done, on_refused)

    def submit(
        self,
        table: str,
        tags: Tags | None = None,
        *,
        time: Values,
        data: Mapping[str, Any] | None = None,
        nan: _arrays.Nan = "keep",
        expires_at: Instant | None = None,
        producer: tuple[str, int] | None = None,
        require_all: bool = False,
        on_refused: Literal["raise", "return"] = "raise",
        **fields: Any,
    ) -> Ticket:
        """As :meth:`write` with arrays, without waiting: the ticket says when the rows are stored. One writer may have several on
        their way, which share the waiting for the medium."""
        _check_choice("on_refused", on_refused, ("raise", "return"))
        times, columns = self._columns(time, self._fields(data, fields), nan)
        how = _how(expires_at, producer, require_all)
        return Ticket(self._inner.submit_columns(table, _arrays.tags(tags), times, columns, [], how), on_refused)

    def write_frame(
        self,
        table: str,
        frame: ArrowStream | Mapping[str, Any] | object,
        *,
        tag_columns: Sequence[str] = (),
        tags: Tags | None = None,
        time: str = "time",
        fields: Sequence[str] | None = None,
        nan: _arrays.Nan = "keep",
        expires_at: Instant | None = None,
        producer: tuple[str, int] | None = None,
        require_all: bool = False,
        on_refused: Literal["raise", "return"] = "raise",
    ) -> Written:
        """Writes a DataFrame of pandas or polars, a pyarrow table, batch or reader, anything else with ``__arrow_c_stream__``, or
        a dict of arrays; and waits until the rows are stored.

        Rows of many streams may stand in one frame: the columns named by ``tag_columns`` say which stream a row is of. They are
        text, best as categories (pandas), ``Categorical`` (polars) or dictionaries (Arrow). Arrow data are read where they are,
        without pyarrow; nulls are absent values. Batches of a reader are taken as they come. Otherwise as :meth:`write`.

        :param tag_columns: columns that are tags.
        :param tags: tags of all rows.
        :param time: the column of times; a DataFrame of pandas may have them as its index. Arrow timestamps of any unit and time
            zone, or integers of nanoseconds since 1970 UTC.
        :param fields: columns that are fields; all others when left out.
        """
        _check_choice("on_refused", on_refused, ("raise", "return"))
        how = _how(expires_at, producer, require_all)
        fixed = _arrays.tags(tags)
        keys = [tag_columns] if isinstance(tag_columns, str) else list(tag_columns)
        by_name: Mapping[Any, Any]
        if _arrays.is_frame(frame):
            pandas_frame = cast("Any", frame)
            by_name = {name: pandas_frame[name] for name in pandas_frame.columns}
            if time not in by_name and (pandas_frame.index.name == time or pandas_frame.index.dtype.kind == "M"):
                by_name[time] = pandas_frame.index
        elif isinstance(frame, Mapping):
            by_name = frame
        elif hasattr(frame, "__arrow_c_stream__"):
            if nan != "keep":
                raise InvalidError("nan='absent' is for numpy and pandas: Arrow data marks missing values by nulls")
            columns = (time, keys, None if fields is None else list(fields))
            return _written(self._inner.write_arrow(table, fixed, frame, columns, how), on_refused)
        else:
            raise InvalidError(
                f"expected a DataFrame, Arrow data or a dict of arrays, found {type(frame).__name__}"
            )
        wanted = [n for n in by_name if n != time and n not in keys] if fields is None else list(fields)
        for name in (time, *keys, *wanted):
            if name not in by_name:
                raise InvalidError(f"there is no column `{name}`; there are: {', '.join(map(str, by_name))}")
            if not isinstance(name, str):
                raise InvalidError(f"column {name!r}: names of fields are text")
        _check_has_fields(wanted)
        times, found = self._columns(by_name[time], {name: by_name[name] for name in wanted}, nan)
        tag_arrays = [_arrays.tag_column(key, by_name[key]) for key in keys]
        done = self._inner.write_columns(table, fixed, times, found, tag_arrays, how)
        return _written(done, on_refused)

    @staticmethod
    def _fields(data: Mapping[str, Any] | None, fields: dict[str, Any]) -> dict[str, Any]:
        values = dict(data) if data is not None else {}
        for name, value in fields.items():
            if name in values:
                raise InvalidError(f"field `{name}` is given twice, by keyword and in data")
            values[name] = value
        _check_has_fields(values)
        return values

    @staticmethod
    def _columns(time: Any, values: dict[str, Any], nan: _arrays.Nan) -> tuple[Any, list[_native._Field]]:
        _check_choice("nan", nan, ("keep", "absent"))
        if time is None:
            raise InvalidError("arrays of values need an array of times: time=…")
        columns = (_arrays.field(name, value, nan) for name, value in values.items())
        return _arrays.times(time), [column for column in columns if column is not None]

    # --- reading ---

    def scan(
        self,
        table: str,
        tags: Tags | None = None,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        fields: Sequence[str] | None = None,
        where: Iterable[Condition] = (),
        with_tags: bool | None = None,
        order: Literal["stream", "time"] = "stream",
        snapshot: str | None = None,
    ) -> Result:
        """The rows of every stream of a table that has these tags: stream by stream, each by time.

        ``db.scan("weather", {"origin": "JFK"}, start="2013-07-01", end="2013-08-01", fields=["temp"]).pandas()``

        :param where: conditions that must all hold, such as ``[("temp", ">", 30.0)]``; a row without the field, or with NaN in
            it, fulfils none but ``!=`` for NaN.
        :param with_tags: tags as columns: ``None`` = those that ``tags`` does not fix, ``True`` = all, ``False`` = none.
        :param order: ``"time"`` gives the rows of all streams as one sequence in the order of time: a replay. Rows of one
            time stand in the order of their streams' names.
        :param snapshot: as a named snapshot has it (:meth:`create_snapshot`); the present when left out. So everywhere.
        :raises NotFoundError: there is no such table or field. A table without such streams gives no rows.
        """
        _check_choice("order", order, ("stream", "time"))
        names = None if fields is None else list(fields)
        conditions = [(f, op, _arrays.scalar(v)) for f, op, v in where]
        bounds = _time.between(start, end)
        by_time = order == "time"
        found = self._inner.query(table, _arrays.tags(tags), bounds, names, conditions, with_tags, by_time, snapshot)
        return Result(found)

    def aggregate(
        self,
        table: str,
        field: str,
        tags: Tags | None = None,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
        every: Span | None = None,
        origin: Instant = 0,
        level: int | None = None,
        first_last: bool = False,
        with_tags: bool | None = None,
        snapshot: str | None = None,
    ) -> Frame:
        """Count, mean, least, greatest, deviation and sum of a field, for each stream that has these tags.

        Columns: ``time`` (where the bin begins), tags, ``count``, ``mean``, ``min``, ``max``, ``stddev`` (of the population),
        ``sum`` (rounded to a double), ``mean_time``. Bins without a value are left out. NaN and infinities are counted, and take
        no part in the others. Mostly answered from stored buckets, without reading rows.

        :param every: width of the bins; one bin for the whole span when left out.
        :param origin: an instant at which a bin begins.
        :param level: instead of ``every``: bins of 2^level seconds, -20 to 40, which are the stored buckets.
        :param first_last: also ``first_time``, ``first``, ``last_time``, ``last``; reads every row.
        """
        bins = None if every is None else (_time.span(every), _time.instant(origin))
        bounds = _time.between(start, end)
        keys = _arrays.tags(tags)
        found = self._inner.aggregate(table, keys, field, bounds, bins, level, first_last, with_tags, snapshot)
        return Frame(found)

    def tile(
        self, table: str, tags: Tags | None, field: str, level: int, offset: int, *, snapshot: str | None = None
    ) -> Frame:
        """The filled buckets of a tile of one stream: 512 buckets of 2^level seconds from ``offset * 512 * 2**level`` s on.

        Columns as of :meth:`aggregate`, and ``bucket``. :func:`headwater.tile_offset` gives the offset of an instant.

        :raises NotFoundError: there is no stream of exactly these tags, or no such field.
        """
        return Frame(self._inner.tile(table, _arrays.tags(tags), field, level, offset, snapshot))

    def last(self, table: str, tags: Tags | None = None, *, snapshot: str | None = None) -> dict[str, Last]:
        """The newest value of each field of one stream; fields without any are left out.

        :raises NotFoundError: there is no stream of exactly these tags.
        """
        found = self._inner.last(table, _arrays.tags(tags), snapshot)
        return {name: Last(time_ns, value) for name, time_ns, value in found}

    def streams(self, table: str, tags: Tags | None = None, *, snapshot: str | None = None) -> list[dict[str, str]]:
        """The tags of each stream of a table that has these, sorted."""
        return [dict(one) for one in self._inner.streams(table, _arrays.tags(tags), snapshot)]

    def tables(self) -> dict[str, Table]:
        """The tables, by name."""
        out = {}
        for found in self._inner.tables():
            found["tags"] = tuple(found["tags"])
            found["fields"] = dict(found["fields"])
            out[found["name"]] = Table(**found)
        return out

    def stats(self) -> dict[str, int | float]:
        """Counters and sizes: ``events``, ``disk_bytes``, ``memory_bytes``, ``write_amplification_events`` and others; see
        docs/embed/python.md."""
        return self._inner.stats()

    @property
    def recovery(self) -> Recovery:
        """What opening had to put right after a crash."""
        return Recovery(**self._inner.recovery())

    def refresh(self) -> None:
        """Looks again, when opened with ``read_only=True``: later reads see the database as it is now."""
        self._inner.refresh()

    # --- named snapshots ---

    def create_snapshot(self, name: str) -> NamedSnapshot:
        """Stores what is in memory, and keeps the state of now under a name: ``scan``, ``aggregate``, ``tile``, ``last`` and
        ``streams`` read it with ``snapshot=name``, also after the database was closed and opened again.

        It lasts until :meth:`drop_snapshot`, or until it is dropped automatically: when it is older than the setting ``snapshot_age_max``,
        when what snapshots keep is more than ``snapshot_bytes_max``, or when the disk is full. What is deleted later is not in it
        either; what goes because of its age stays in it.

        :raises InvalidError: a bad name, one that is taken, ``"now"``, or more than 64 snapshots.
        """
        return NamedSnapshot(**self._inner.create_snapshot(name))

    def drop_snapshot(self, name: str) -> None:
        """Drops a named snapshot. Results that read it go on; its files go after them.

        :raises NotFoundError: there is none of this name.
        """
        self._inner.drop_snapshot(name)

    def snapshots(self) -> list[NamedSnapshot]:
        """The named snapshots, the oldest first."""
        return [NamedSnapshot(**one) for one in self._inner.snapshots()]

    def ended_snapshots(self) -> list[EndedSnapshot]:
        """The newest of those that ended by themselves, the oldest first. Who reads one gets a :class:`GoneError`."""
        return [EndedSnapshot(*one) for one in self._inner.ended_snapshots()]

    # --- changing ---

    def create_table(
        self,
        name: str,
        fields: Mapping[str, FieldType] | None = None,
        *,
        tags: Sequence[str] = (),
        duplicates: Literal["last", "keep"] = "last",
        leaf_events: int | None = None,
        retention: Span | None = None,
        raw_for: Span | None = None,
    ) -> Table:
        """Declares a table. Writing makes tables too; declare one for its settings, or to fix the types of fields.

        :param tags: keys of tags that are known before the first write; more may come with writes.
        :param duplicates: ``"last"``: of events of equal time the later write counts, field by field; ``"keep"``: all stay.
        :param leaf_events: events of a full leaf, 16 to 65,536.
        :param retention: rows older than this are removed.
        :param raw_for: rows older than this are removed and leave their aggregates.
        """
        lives = (_time.seconds(retention), _time.seconds(raw_for))
        self._inner.create_table(name, list((fields or {}).items()), list(tags), duplicates, leaf_events, *lives)
        return self.tables()[name]

    def alter_table(
        self,
        name: str,
        *,
        add_fields: Mapping[str, FieldType] | None = None,
        add_tags: Sequence[str] = (),
        duplicates: Literal["last", "keep"] | None = None,
        leaf_events: int | None = None,
        retention: Span | None | _Unchanged = UNCHANGED,
        raw_for: Span | None | _Unchanged = UNCHANGED,
    ) -> Table:
        """Changes a table; what is left out stays. ``retention=None`` keeps rows for ever. An ``i64`` field may become ``f64``."""
        lives = [None if isinstance(v, _Unchanged) else (_time.seconds(v),) for v in (retention, raw_for)]
        fields = list((add_fields or {}).items())
        self._inner.alter_table(name, fields, list(add_tags), duplicates, leaf_events, lives[0], lives[1])
        return self.tables()[name]

    def drop_table(self, name: str) -> None:
        """Drops a table with all its streams and events."""
        self._inner.drop_table(name)

    def drop_streams(self, table: str, tags: Tags) -> int:
        """Drops the streams that have these tags, and their events. Gives their number."""
        return self._inner.drop_streams(table, _arrays.tags(tags))

    def delete(
        self,
        table: str,
        tags: Tags | None = None,
        *,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> int:
        """Deletes the events in ``[start, end)`` of the streams that have these tags. Gives the number of streams concerned. Later
        writes to the span stay."""
        return self._inner.delete(table, _arrays.tags(tags), _time.between(start, end))

    def flush(self) -> None:
        """Stores every event that is in memory in segments. Not needed for safety: what was acknowledged is in the log."""
        self._inner.flush()

    def compact(self) -> None:
        """Flushes, then rewrites what would become smaller or tidier. Long, and not to be interrupted."""
        self._inner.compact()

    def backup(self, to: Path) -> BackupReport:
        """Backs up into a folder: one state of the database. Into a folder with an older backup of it, only what is new is
        copied. Writers and readers go on meanwhile."""
        return BackupReport(**self._inner.backup(to))


def open(
    path: Path,
    *,
    read_only: bool = False,
    create: bool = True,
    memory_budget: int | None = None,
    durability: Literal["synced", "written"] | Span | None = None,
    shards: int | None = None,
    busy_timeout: Span | None = None,
    max_future: Span | None = None,
    late_policy: str | None = None,
    late_merge_interval: Span | None | _Unchanged = UNCHANGED,
    batch_bytes_max: int | None = None,
    fast_dir: Path | None = None,
    fast_parts: str | None = None,
    idle_after: Span | None | _Unchanged = UNCHANGED,
    **more: int | str,
) -> Database:
    """Opens the database in a directory, or makes it; recovers it if it was not closed.

    ``with headwater.open("sensors.db") as db: …``

    One process owns a database at a time, and may use it from many threads. Others open it with ``read_only=True``, beside the
    owner or without one: they see it as it was when they opened or last called :meth:`Database.refresh`.

    Do not use it in a child process made by ``fork`` (``os.fork``, the ``fork`` method of multiprocessing): its threads are not
    there. Every call says so (:class:`ForkedError`), and the parent's database is not touched. Open it in the child, or use
    ``spawn``.

    What happens in the background, such as recovery or a flush that found no space, is told to the logger ``headwater``.

    :param read_only: read a database that may have another owner.
    :param create: ``False`` refuses to make a new database.
    :param memory_budget: bytes for events not yet in segments, for caches and for flushes; 64 MiB, at least 1 MiB.
    :param durability: what an acknowledged write has survived. ``"synced"``: it is on disk, and survives a power failure; the
        default. ``"written"``: the operating system has it, and it survives the end of the process. A span: as ``"written"``, and
        synced at least this often.
    :param shards: of a new database: streams are spread over so many, each with its own worker; the cores, at most 4.
    :param busy_timeout: the longest wait for memory before a write raises :class:`BusyError`; 5 s.
    :param max_future: refuse events further in the future than this; never by default.
    :param late_policy: what is done about late events, as in docs/late-data.md; ``"adaptive"``.
    :param late_merge_interval: late events are merged after this time at the latest; 10 min, ``None`` = they wait.
    :param batch_bytes_max: most bytes of a batch, which is stored whole or not at all; 16 MiB.
    :param fast_dir: folder of a fast tier, on a small fast medium beside that of the database; the one the database has, if it has
        one. See docs/operate/tiers.md.
    :param fast_parts: what is to lie there: ``"log"``, ``"pins"``, ``"index"``, ``"newest"``, or several with commas
        between them; ``"log,pins"``.
    :param idle_after: when nothing was written for this time, what memory holds is stored, and the log gives back files that it
        does not need; 30 s, ``None`` = never.
    :param more: ``late_runs_max``, ``partition_target_bytes``, ``partition_bytes_max``, ``leaf_events``, ``bucket_events``,
        ``groups_max``, ``clock_jump_max``, ``clock_settle``, ``compaction_bytes_per_second``, ``compaction_bytes_per_day``, ``log_file_bytes``, ``string_bytes_max``, ``tables_max``,
        ``fields_max``, ``streams_max``, ``reserve_bytes``, ``open_files_max``, ``fast_bytes``, ``fast_index_bytes``,
        ``fast_newest_bytes``, ``fast_newest_age``, ``log_mirror``, ``snapshot_age_max``, ``snapshot_bytes_max``,
        ``io_backend``, ``read_ahead``, ``queue_sets``, ``queue_placement``: as in docs/embed/python.md.
    :raises NotFoundError: there is no database, with ``create=False`` or ``read_only=True``.
    :raises LockedError: another process owns it.
    :raises CorruptError: files are damaged.
    """
    _log.start()
    settings: dict[str, Any] = {"must_exist": not create, **more}
    if durability is not None:
        plain = durability in ("synced", "written") if isinstance(durability, str) else False
        settings["durability"] = durability if plain else _time.seconds(durability)
    plain_settings = {
        "memory_budget": memory_budget,
        "shards": shards,
        "busy_timeout": _time.seconds(busy_timeout),
        "max_future": _time.seconds(max_future),
        "late_policy": late_policy,
        "batch_bytes_max": batch_bytes_max,
        "fast_dir": None if fast_dir is None else os.fspath(fast_dir),
        "fast_parts": fast_parts,
    }
    settings.update({k: v for k, v in plain_settings.items() if v is not None})
    if not isinstance(late_merge_interval, _Unchanged):
        settings["late_merge_interval"] = _time.seconds(late_merge_interval)
    if not isinstance(idle_after, _Unchanged):
        settings["idle_after"] = _time.seconds(idle_after)
    return Database(_native.Database(path, read_only, settings))


def _check_report(found: dict[str, Any]) -> CheckReport:
    damages = tuple(Damage(os.fspath(file), offset, message) for file, offset, message in found.pop("damages"))
    return CheckReport(damages, **found)


def check(path: Path) -> CheckReport:
    """Verifies a database in a directory: every byte of what is stored, and the log. Changes nothing, and works beside a process
    that has it open. Damage is part of the report, not an exception."""
    return _check_report(_native.check(path))


def backup(path: Path, to: Path) -> BackupReport:
    """Backs up the database in a directory, beside a process that has it open or without one. See :meth:`Database.backup`."""
    return BackupReport(**_native.backup(path, to))


def verify_backup(path: Path) -> CheckReport:
    """Checks the backup in a folder: the checksum of every file, and all that :func:`check` checks."""
    return _check_report(_native.verify_backup(path))


def restore(backup: Path, path: Path) -> CheckReport:
    """Makes the database in a directory, which must be empty or not there, of a backup; and checks it."""
    return _check_report(_native.restore(backup, path))


def repair(path: Path, *, dry_run: bool = False) -> RepairReport:
    """Repairs a damaged database, which must not be open; everything that can be read stays, and damaged files are copied to
    ``quarantine`` first. ``dry_run=True`` says what it would do, and changes nothing."""
    found = _native.repair(path, dry_run)
    return RepairReport(
        tuple(found["findings"]),
        tuple(found["lost"]),
        tuple(os.fspath(one) for one in found["quarantined"]),
        _check_report(found["after"]),
    )


def tile_offset(level: int, time: Instant) -> int:
    """The offset of the tile of a level that holds an instant."""
    if not -20 <= level <= 40:
        raise InvalidError(f"level: expected -20 to 40, found {level}")
    ns = _time.instant(time)
    width = 512 * 10**9
    return (ns << -level) // width if level < 0 else ns // (width << level)
