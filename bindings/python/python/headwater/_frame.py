"""Columns of answers, and the libraries they go to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._errors import InvalidError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Rows of the batches of an iteration.
BATCH_ROWS = 65_536


def _texts(values: list[str]) -> npt.NDArray[np.object_]:
    """Texts and, behind them, none: code -1 finds that."""
    out = np.empty(len(values) + 1, np.object_)
    out[:-1] = values
    out[-1] = None
    return out


class Columns:
    """Columns of equal length. What :class:`Result` and :class:`Frame` have in common.

    Anything that reads Arrow streams (pyarrow, polars, DuckDB, …) can be given one directly: it has
    ``__arrow_c_stream__``. Columns are ``time`` (nanoseconds, UTC), then tags (dictionaries of text), then fields. A field or tag
    whose name is taken, such as ``time``, gets ``_1``, ``_2`` … behind it.
    """

    __slots__ = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        raise NotImplementedError

    def _arrays(self) -> list[_native._Column]:
        raise NotImplementedError

    def _whole(self) -> Columns:
        """The rows in memory."""
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """An Arrow C stream. Another schema than the rows have cannot be asked for."""
        raise NotImplementedError

    def numpy(self, *, masked: bool | None = None) -> dict[str, npt.NDArray[Any]]:
        """The columns as numpy arrays, by name; each may be written to.

        ``time`` is ``datetime64[ns]`` (UTC); numbers and booleans are arrays of their type, without a copy where possible. Text,
        tags and bytes are object arrays (one Python object a row; equal tags share theirs): for much text use Arrow or polars.

        :param masked: what becomes of absent values; where they are objects they are ``None``. ``None`` = numbers and booleans
            are a :class:`numpy.ma.MaskedArray` if some are absent; ``True`` = all columns but time are; ``False`` = none is: an
            absent float is NaN, and integers or booleans with absent values are an error.
        """
        out: dict[str, npt.NDArray[Any]] = {}
        for name, kind, values, absent in self._arrays():
            array: npt.NDArray[Any]
            if kind == "time":
                out[name] = values.view("datetime64[ns]") if absent is None else _absent_times(values, absent)
                continue
            if kind == "tag":
                codes, texts = values
                array = _texts(texts)[codes]
            else:
                array = values
            if masked is False:
                array = _without_mask(name, kind, array, absent)
            elif masked or (absent is not None and kind in ("f64", "i64", "u64", "bool")):
                array = np.ma.MaskedArray(array, mask=np.zeros(array.size, np.bool_) if absent is None else absent)
            out[name] = array
        return out

    def pandas(self, *, dtype_backend: Literal["numpy", "pyarrow"] = "numpy") -> pandas.DataFrame:
        """The columns as a DataFrame.

        :param dtype_backend: ``"numpy"``: floats are ``float64``, where NaN stands for absent values too; integers and booleans
            are plain, or ``Int64``, ``UInt64``, ``boolean`` where some are absent; tags are categories. ``"pyarrow"`` (needs
            pyarrow): Arrow types throughout, which keep NaN and absent values apart.
        """
        import pandas as pd

        if dtype_backend == "pyarrow":
            return self.arrow().to_pandas(types_mapper=pd.ArrowDtype)
        if dtype_backend != "numpy":
            raise InvalidError(f"dtype_backend: expected 'numpy' or 'pyarrow', found {dtype_backend!r}")
        data: dict[str, Any] = {}
        for name, kind, values, absent in self._arrays():
            if kind == "time":
                times = values.view("datetime64[ns]") if absent is None else _absent_times(values, absent)
                data[name] = pd.DatetimeIndex(times, copy=False).tz_localize("UTC")
            elif kind == "tag":
                codes, texts = values
                data[name] = pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype="str"))
            elif absent is None or kind in ("string", "bytes"):
                data[name] = values
            elif kind == "f64":
                values[absent] = np.nan
                data[name] = values
            elif kind == "bool":
                data[name] = pd.arrays.BooleanArray(values, absent)
            else:
                data[name] = pd.arrays.IntegerArray(values, absent)
        return pd.DataFrame(data, copy=False)

    def polars(self) -> polars.DataFrame:
        """The columns as a DataFrame of polars; through Arrow, without pyarrow."""
        import polars as pl

        return pl.DataFrame(self._whole())

    def arrow(self) -> pyarrow.Table:
        """The columns as a table of pyarrow, without a copy."""
        import pyarrow as pa

        return pa.table(self._whole())


def _absent_times(values: npt.NDArray[np.int64], absent: npt.NDArray[np.bool_]) -> npt.NDArray[np.datetime64]:
    times = values.view("datetime64[ns]")
    times[absent] = np.datetime64("NaT")
    return times


def _without_mask(
    name: str, kind: str, array: npt.NDArray[Any], absent: npt.NDArray[np.bool_] | None
) -> npt.NDArray[Any]:
    if absent is not None:
        if kind == "f64":
            array[absent] = np.nan
        elif kind in ("i64", "u64", "bool"):
            raise InvalidError(
                f"`{name}` is absent in {int(absent.sum())} rows, and {kind} has no missing value: use masked=None or True"
            )
    return array


class Frame(Columns):
    """Rows in memory, by columns. It never changes."""

    __slots__ = ("_inner",)

    def __init__(self, inner: _native.Frame) -> None:
        self._inner = inner

    @property
    def columns(self) -> list[str]:
        return self._inner.columns

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        return f"<headwater.Frame: {len(self)} rows of {', '.join(self.columns)}>"

    def _arrays(self) -> list[_native._Column]:
        return self._inner.numpy()

    def _whole(self) -> Columns:
        return self

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__()


class Result(Columns):
    """The answer to :meth:`Database.scan`: rows stream by stream, each by time. Nothing is read before it is asked for.

    It is answered from the state of the database at the time of the scan, however often it is read, and it keeps what it sees on
    disk and in memory until it is closed or forgotten: hold it for a question, not for a day. Closing the database ends it.

    Iterating gives :class:`Frame` objects of up to 65,536 rows, in bounded memory; :meth:`batches` takes another number. An Arrow
    consumer that is given the result reads it in the same way.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: _native.Query) -> None:
        self._inner = inner

    @property
    def columns(self) -> list[str]:
        return self._inner.columns

    @property
    def stream_count(self) -> int:
        """Number of streams that the question concerns."""
        return self._inner.stream_count

    def __repr__(self) -> str:
        return f"<headwater.Result: {', '.join(self.columns)} of {self.stream_count} streams>"

    def read(self) -> Frame:
        """All rows."""
        return Frame(self._inner.frame())

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[Frame]:
        """All rows, at most so many at a time."""
        cursor = self._inner.cursor()
        while (frame := cursor.next(rows)) is not None:
            yield Frame(frame)

    def __iter__(self) -> Iterator[Frame]:
        return self.batches()

    def close(self) -> None:
        """Lets go of the state that it sees. Batches that are being iterated can still start no new stream."""
        self._inner.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arrays(self) -> list[_native._Column]:
        return self._inner.numpy()

    def _whole(self) -> Columns:
        return self.read()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__()
