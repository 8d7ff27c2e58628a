"""Headwater: an embedded database for events with timestamps, for numpy, pandas, polars and Arrow.

::

    import headwater, numpy as np

    with headwater.open("sensors.db") as db:
        time = np.datetime64("2026-01-01", "ns") + np.arange(1000) * np.timedelta64(1, "s")
        db.write("pumps", {"id": "p1"}, time=time, pressure=np.linspace(4.0, 4.2, 1000))
        print(db.scan("pumps", {"id": "p1"}, end="2026-01-01T00:00:10").numpy())
        print(db.aggregate("pumps", "pressure", every="1min").pandas())
        print(db.last("pumps", {"id": "p1"})["pressure"].value)

Start with :func:`open`; the rest are methods of :class:`Database`. A *table* holds *streams*; a stream is one set of tags, say one
device; its *events* have a time in nanoseconds and values of *fields*, each of which may be absent. Events may come in any order.
What a write has acknowledged survives a crash.

Errors are :class:`Error`, by kind, with a stable ``code``. Results go to numpy, pandas, polars and pyarrow, and to anything that
reads Arrow streams; only numpy is needed.
"""

from . import _native
from ._database import (
    Database,
    Path,
    Ticket,
    backup,
    check,
    open,
    repair,
    restore,
    tile_offset,
    verify_backup,
)
from ._errors import (
    BusyError,
    ClosedError,
    CorruptError,
    Error,
    ForkedError,
    FullError,
    GoneError,
    InternalError,
    InvalidError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    RefusedError,
    StorageError,
    TierError,
)
from ._frame import Columns, Frame, Result
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
)

__version__: str = _native.VERSION

__all__ = [
    "UNCHANGED",
    "ArrowStream",
    "BackupReport",
    "BusyError",
    "CheckReport",
    "ClosedError",
    "Columns",
    "Condition",
    "CorruptError",
    "Damage",
    "Database",
    "EndedSnapshot",
    "Error",
    "FieldType",
    "ForkedError",
    "Frame",
    "FullError",
    "GoneError",
    "Instant",
    "InternalError",
    "InvalidError",
    "Last",
    "LockedError",
    "NamedSnapshot",
    "NotFoundError",
    "Path",
    "ReadOnlyError",
    "Recovery",
    "Refused",
    "RefusedError",
    "RepairReport",
    "Result",
    "Span",
    "StorageError",
    "Table",
    "Tags",
    "Ticket",
    "TierError",
    "Values",
    "Written",
    "__version__",
    "backup",
    "check",
    "open",
    "repair",
    "restore",
    "tile_offset",
    "verify_backup",
]

for _name in __all__:
    _found = globals()[_name]
    if isinstance(_found, type):
        # Shown, and pickled, under the name that programs use.
        _found.__module__ = __name__
del _name, _found
