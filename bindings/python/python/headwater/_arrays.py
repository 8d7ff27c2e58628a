"""Arrays of callers as the native half takes them: one-dimensional, contiguous, of few types, with a mask of absent rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _time
from ._errors import InvalidError

Mask: TypeAlias = "npt.NDArray[np.bool_] | None"
Nan: TypeAlias = Literal["keep", "absent"]
#: Name, kind, units of a row, array, which rows are absent.
Field: TypeAlias = "tuple[str, str, int, Any, npt.NDArray[np.uint8] | None]"
TagColumn: TypeAlias = "tuple[str, npt.NDArray[np.int32], list[str]]"


def _loaded(name: str) -> Any:
    """A module if the caller has imported it: only then can a value be of one of its types."""
    return sys.modules.get(name)


def is_pandas(value: object) -> bool:
    """A series, an index or an array of pandas."""
    pandas = _loaded("pandas")
    return pandas is not None and isinstance(
        value, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    )


def is_frame(value: object) -> bool:
    """A DataFrame of pandas."""
    pandas = _loaded("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_scalar(value: object) -> bool:
    """One value rather than many."""
    return value is None or isinstance(value, (str, bytes)) or np.ndim(value) == 0  # type: ignore[arg-type]


def scalar(value: Any) -> Any:
    """One value as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


def _one_dimension(what: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.ndim != 1:
        raise InvalidError(f"{what} has {array.ndim} dimensions, expected 1")
    return array


def _native(array: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Contiguous, of this type, in this machine's byte order; the same array when it is that already."""
    return np.ascontiguousarray(array, dtype=dtype)


def _u8(mask: Mask) -> npt.NDArray[np.uint8] | None:
    if mask is None:
        return None
    return np.ascontiguousarray(mask, dtype=np.bool_).view(np.uint8)


def times(values: Any) -> npt.NDArray[np.int64]:
    """Nanoseconds since 1970 UTC."""
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.getmaskarray(values).any():
            raise InvalidError("time is masked in some rows: a row without a time cannot be stored")
        values = values.data
    elif is_pandas(values):
        pandas = _loaded("pandas")
        series = pandas.Series(values)
        if isinstance(series.dtype, pandas.DatetimeTZDtype):
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        if series.isna().any():
            raise InvalidError("time is missing in some rows: a row without a time cannot be stored")
        values = series.to_numpy()
    array = _one_dimension("time", np.asarray(values))
    kind = array.dtype.kind
    if kind == "M":
        return _datetimes(array)
    if kind == "i":
        return _native(array, np.int64)
    if kind == "u":
        if array.size and int(array.max()) > _time.MAX:
            raise InvalidError("time has values beyond 2^63 ns")
        return _native(array, np.int64)
    if kind == "O" or kind in "UT":
        return np.fromiter((_time.instant(v) for v in array), np.int64, array.size)
    if not array.size:
        return np.empty(0, np.int64)
    raise InvalidError(
        f"time has type {array.dtype}: expected datetime64, or integers of nanoseconds since 1970 UTC"
    )


def _datetimes(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if np.isnat(array).any():
        raise InvalidError("time has NaT in some rows: a row without a time cannot be stored")
    unit, count = np.datetime_data(array.dtype)
    if unit in ("Y", "M"):
        array, unit, count = array.astype("datetime64[s]"), "s", 1
    factor = _time.UNITS.get(unit, 0) * count
    if factor == 1:
        return _native(array, "datetime64[ns]").view(np.int64)
    if factor and array.size:
        numbers = array.astype(np.int64)
        for extreme in (int(numbers.min()), int(numbers.max())):
            if not _time.MIN <= extreme * factor <= _time.MAX:
                raise InvalidError("time lies outside of the years 1677 to 2262 in some rows")
    return _native(array, "datetime64[ns]").view(np.int64)


def _no_type(name: str, what: object, hint: str = "") -> InvalidError:
    return InvalidError(
        f"field `{name}` has type {what}: expected floats, integers, booleans, str or bytes{hint}"
    )


def field(name: str, values: Any, nan: Nan) -> Field | None:
    """A field's values; ``None`` when every row is absent and the type is not known."""
    mask: Mask = None
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        values = values.data
    elif is_pandas(values):
        found = _pandas(name, values)
        if isinstance(found, _Arrow):
            return (name, "arrow", 0, found.array, None)
        values, mask = found
    elif hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return (name, "arrow", 0, _one_column(name, values), None)
    array = _one_dimension(f"field `{name}`", np.asarray(values))
    kind = array.dtype.kind
    if kind == "f" and isinstance(values, (list, tuple)) and any(isinstance(v, int) and abs(v) > 2**53 for v in values):
        # numpy makes floats of integers that no type of its own holds together.
        array, kind = np.array(values, object), "O"
    if (
        kind in "US"
        and isinstance(values, (list, tuple))
        and not any(all(isinstance(v, one) for v in values) for one in (str, bytes))
    ):
        # numpy makes text of everything where one value is text.
        array, kind = np.array(values, object), "O"
    if kind == "O" or kind == "T":
        return _objects(name, array, mask, nan)
    if kind == "f" and array.dtype.itemsize <= 8:
        floats = _native(array, np.float64)
        if nan == "absent":
            gone = np.isnan(floats)
            mask = gone if mask is None else mask | gone
        return (name, "f64", 0, floats, _u8(mask))
    if kind == "i":
        return (name, "i64", 0, _native(array, np.int64), _u8(mask))
    if kind == "u":
        return (name, "u64", 0, _native(array, np.uint64), _u8(mask))
    if kind == "b":
        return (name, "bool", 0, _native(array, np.bool_).view(np.uint8), _u8(mask))
    if kind == "U":
        units = _native(array, array.dtype.newbyteorder("="))
        width = array.dtype.itemsize // 4
        return (name, "utf32", width, _units(units, width, np.uint32), _u8(mask))
    if kind == "S":
        width = array.dtype.itemsize
        return (name, "fixed", width, _units(_native(array, array.dtype), width, np.uint8), _u8(mask))
    hint = "; store times and lengths of time as integers of nanoseconds" if kind in "mM" else ""
    raise _no_type(name, array.dtype, hint)


def _units(array: npt.NDArray[Any], width: int, unit: type[np.generic]) -> npt.NDArray[Any]:
    return array.view(unit) if width and array.size else np.empty(0, unit)


def _is_missing(value: object) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    pandas = _loaded("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def _objects(name: str, array: npt.NDArray[Any], mask: Mask, nan: Nan) -> Field | None:
    """An array of Python objects, which must be of one type."""
    objects = array.astype(object)
    missing = np.fromiter((_is_missing(v) for v in objects), np.bool_, objects.size)
    absent = missing if mask is None else mask | missing
    present = objects[~absent]
    kinds = {type(v) for v in present}
    if not kinds:
        # All missing: floats of NaN are values, anything else has no type.
        if nan == "keep" and mask is None and objects.size and all(isinstance(v, float) for v in objects):
            return field(name, objects.astype(np.float64), nan)
        return None
    gone = _u8(absent if absent.any() else None)
    if kinds == {str}:
        return (name, "string", 0, objects, gone)
    if kinds == {bytes}:
        return (name, "bytes", 0, objects, gone)
    bools = {bool, np.bool_}
    if kinds <= bools:
        return _filled(name, present, absent, np.bool_, nan)
    if all(issubclass(k, (int, np.integer)) for k in kinds) and not kinds & bools:
        low, high = int(min(present)), int(max(present))
        if low >= _time.MIN and high <= _time.MAX:
            return _filled(name, present, absent, np.int64, nan)
        if low >= 0 and high < 2**64:
            return _filled(name, present, absent, np.uint64, nan)
        raise InvalidError(f"field `{name}` has integers beyond 64 bits")
    if all(issubclass(k, (int, float, np.integer, np.floating)) for k in kinds) and not kinds & bools:
        # NaN among floats is a value, None is not.
        is_float = np.fromiter((isinstance(v, (float, np.floating)) for v in objects), np.bool_, objects.size)
        absent = absent & ~is_float if mask is None else mask | (missing & ~is_float)
        return _filled(name, objects[~absent], absent, np.float64, nan)
    raise _no_type(name, " and ".join(sorted(k.__name__ for k in kinds)))


def _filled(
    name: str, present: npt.NDArray[Any], absent: npt.NDArray[np.bool_], dtype: type[np.generic], nan: Nan
) -> Field | None:
    whole = np.zeros(absent.size, dtype)
    whole[~absent] = present.astype(dtype)
    return field(name, np.ma.MaskedArray(whole, absent) if absent.any() else whole, nan)


class _Arrow:
    """A column that goes the Arrow way: a frame or table of this column alone, in one piece."""

    def __init__(self, array: object) -> None:
        self.array = array


def _one_column(name: str, values: Any) -> object:
    """An Arrow array or a series of polars as a frame of one column, in one piece."""
    if hasattr(values, "to_frame"):
        return values.to_frame(name).rechunk()
    pyarrow = _pyarrow()
    if pyarrow is None:
        raise InvalidError(f"field `{name}`: an Arrow array by itself needs pyarrow; write_frame takes whole frames without it")
    if not isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
        values = pyarrow.chunked_array(values)
    return pyarrow.table({name: values}).combine_chunks()


def _pandas(name: str, values: Any) -> tuple[npt.NDArray[Any], Mask] | _Arrow:
    pandas = _loaded("pandas")
    series = pandas.Series(values)
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy(), None
    if isinstance(dtype, (pandas.StringDtype, pandas.ArrowDtype, pandas.CategoricalDtype)):
        pyarrow = _pyarrow()
        if pyarrow is not None:
            return _Arrow(_one_column(name, pyarrow.array(series.array)))
        return series.astype(object).to_numpy(), None
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if numpy_dtype is not None and numpy_dtype.kind in "iufb":
        mask = series.isna().to_numpy(dtype=np.bool_)
        return series.to_numpy(dtype=numpy_dtype, na_value=numpy_dtype.type(0)), mask
    raise _no_type(name, dtype)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def tag_column(key: str, values: Any) -> TagColumn:
    """A tag by row: codes, -1 for none, and what they stand for."""
    if is_pandas(values):
        pandas = _loaded("pandas")
        series = pandas.Series(values)
        if isinstance(series.dtype, pandas.CategoricalDtype):
            codes, known = series.cat.codes.to_numpy(), series.cat.categories
        else:
            codes, known = pandas.factorize(series)
        return key, np.ascontiguousarray(codes, np.int32), _tag_values(key, list(known))
    array = _one_dimension(f"tag `{key}`", np.asarray(values))
    if array.dtype.kind == "U":
        unique, inverse = np.unique(array, return_inverse=True)
        return key, np.ascontiguousarray(inverse, np.int32), _tag_values(key, unique.tolist())
    numbers: dict[object, int] = {}
    codes = np.fromiter(
        (-1 if _is_missing(v) else numbers.setdefault(v, len(numbers)) for v in array.astype(object)),
        np.int32,
        array.size,
    )
    return key, codes, _tag_values(key, list(numbers))


def _tag_values(key: str, values: list[Any]) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise InvalidError(f"tag `{key}` has a value of type {type(value).__name__}: tags are text, use str")
    return values


def tags(values: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Tags as pairs."""
    if values is None:
        return []
    if not isinstance(values, Mapping):
        raise InvalidError(f"tags: expected a dict of text, found {type(values).__name__}")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidError(f"tags: expected text, found {key!r}: {value!r}")
    return list(values.items())
