"""Exceptions. Each has a stable ``code``; the message says what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._types import Written


class Error(Exception):
    """Anything that went wrong in Headwater."""

    #: The stable code: a word that never changes its meaning.
    code: str = "internal"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidError(Error, ValueError):
    """The request itself is wrong: change it."""

    code = "invalid"


class NotFoundError(Error, LookupError):
    """A table, stream or field that is not there, or no database in the directory."""

    code = "not_found"


class BusyError(Error):
    """Too much at once: try again later."""

    code = "busy"


class ClosedError(Error):
    """The database was closed, or stopped taking writes after one failed: open it again."""

    code = "closed"


class CorruptError(Error):
    """Bytes on the medium are not what was written: run :func:`headwater.check`."""

    code = "corrupt"

    #: The damaged file, and the byte in it, where they are known.
    file: str | None = None
    offset: int | None = None


class FullError(Error, OSError):
    """No space left: free some, or delete data."""

    code = "full"

    def __init__(self, message: str, code: str | None = None) -> None:
        OSError.__init__(self, message)
        if code is not None:
            self.code = code


class StorageError(Error, OSError):
    """The operating system refused."""

    code = "io"

    def __init__(self, message: str, code: str | None = None) -> None:
        OSError.__init__(self, message)
        if code is not None:
            self.code = code


class LockedError(Error):
    """Another process owns the directory; ``read_only=True`` reads beside it."""

    code = "locked"


class ReadOnlyError(Error):
    """The database was opened read-only."""

    code = "read_only"


class ForkedError(Error):
    """The database was opened by the process that this one was forked from."""

    code = "forked"


class TierError(Error):
    """The fast tier of the database is missing, of another database, or of another time."""

    code = "tier"


class GoneError(Error, LookupError):
    """What was there and is not kept any more, such as a named snapshot that ended by itself."""

    code = "gone"


class InternalError(Error):
    """An internal error of Headwater."""

    code = "internal"


class RefusedError(Error):
    """Rows were refused. The others are stored, unless ``require_all`` was asked for.

    ``written`` says how many were stored, and lists those that were not, with the reason of each.
    """

    code = "refused"

    #: What became of the write.
    written: Written

    def __init__(self, message: str, written: Written) -> None:
        super().__init__(message)
        self.written = written

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, Written]]:
        return type(self), (str(self), self.written)


_CLASSES: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidError,
        NotFoundError,
        BusyError,
        ClosedError,
        CorruptError,
        FullError,
        StorageError,
        LockedError,
        ReadOnlyError,
        ForkedError,
        TierError,
        GoneError,
        InternalError,
    )
}


def make(code: str, message: str, place: tuple[object, int] | None) -> Error:
    """The exception of a code. Called by the native half."""
    error = _CLASSES.get(code, Error)(message, code)
    if place is not None and isinstance(error, CorruptError):
        error.file, error.offset = str(place[0]), place[1]
    return error


__all__: Sequence[str] = [
    "BusyError",
    "ClosedError",
    "CorruptError",
    "Error",
    "ForkedError",
    "FullError",
    "GoneError",
    "InternalError",
    "InvalidError",
    "LockedError",
    "NotFoundError",
    "ReadOnlyError",
    "RefusedError",
    "StorageError",
    "TierError",
]
