//! Rows from Arrow.

use super::{ArrowArray, ArrowSchema};
use crate::batch::{self, hw_batch};
use crate::handles;
use crate::status::{Outcome, guard, hw_error, invalid};
use crate::stream::{Stream, hw_stream};
use crate::text::{hw_str, slice};
use headwater::{Bitmap, Column, StreamRows, Values, VarBytes};
use std::ffi::{CStr, c_char};

/// A column of the caller's: its type and values, and which rows of it are meant.
struct Source<'a> {
    description: String,
    format: &'a str,
    array: &'a ArrowArray,
    first: usize,
    rows: usize,
}

fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: by the specification it ends with a NUL, and lives as long as the schema.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| invalid(format!("{what}: expected UTF-8")))
}

fn count(number: i64, what: &str) -> Outcome<usize> {
    usize::try_from(number)
        .map_err(|_| invalid(format!("{what}: expected 0 or more, found {number}")))
}

/// One struct behind a pointer.
fn one<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    slice(pointer, 1, what)?
        .first()
        .ok_or_else(|| invalid(format!("{what}: expected one, found none")))
}

impl Source<'_> {
    fn buffer<T: Copy>(&self, index: usize, elements: usize) -> Outcome<&[T]> {
        let buffers = slice(
            self.array.buffers.cast_const(),
            count(self.array.n_buffers, &self.description)?,
            &self.description,
        )?;
        let Some(buffer) = buffers.get(index) else {
            return Err(invalid(format!(
                "{}: expected a buffer {index}, found {} buffers",
                self.description,
                buffers.len()
            )));
        };
        slice(buffer.cast::<T>(), elements, &self.description)
    }

    /// Bits of the rows meant.
    fn bits(&self, index: usize) -> Outcome<Bitmap> {
        let bytes: &[u8] = self.buffer(index, (self.first + self.rows).div_ceil(8))?;
        let mut bits = Bitmap::default();
        for row in self.first..self.first + self.rows {
            bits.push(bytes[row / 8] >> (row % 8) & 1 == 1);
        }
        Ok(bits)
    }

    /// Which rows have a value; `None` = all.
    fn presence(&self) -> Outcome<Option<Bitmap>> {
        let no_bitmap = self.array.null_count == 0
            || self.array.n_buffers == 0
            || self.buffer::<*const u8>(0, 0).is_err()
            || self.validity_is_null()?;
        if no_bitmap || self.rows == 0 {
            return Ok(None);
        }
        let bits = self.bits(0)?;
        Ok((bits.count_ones() < self.rows).then_some(bits))
    }

    fn validity_is_null(&self) -> Outcome<bool> {
        let buffers = slice(self.array.buffers.cast_const(), 1, &self.description)?;
        Ok(buffers.first().is_none_or(|b| b.is_null()))
    }

    /// Numbers of the rows meant; of absent rows zeros.
    fn numbers<T: Copy, U: Default>(
        &self,
        presence: &Option<Bitmap>,
        convert: impl Fn(T) -> U,
    ) -> Outcome<Vec<U>> {
        let all: &[T] = self.buffer(1, self.first + self.rows)?;
        let meant = all[self.first..].iter().enumerate();
        Ok(meant
            .map(|(row, value)| match presence {
                Some(bits) if !bits.get(row) => U::default(),
                _ => convert(*value),
            })
            .collect())
    }

    /// Texts of the rows meant.
    fn texts<T: Copy + TryInto<usize>>(&self, presence: &Option<Bitmap>) -> Outcome<VarBytes> {
        let mut out = VarBytes::new();
        if self.rows == 0 {
            return Ok(out);
        }
        let offsets: &[T] = self.buffer(1, self.first + self.rows + 1)?;
        let mut ends = Vec::with_capacity(self.rows + 1);
        for offset in &offsets[self.first..] {
            let end: Result<usize, _> = (*offset).try_into();
            ends.push(
                end.map_err(|_| invalid(format!("{}: an offset is negative", self.description)))?,
            );
        }
        if !ends.is_sorted() {
            return Err(invalid(format!(
                "{}: offsets must not decrease",
                self.description
            )));
        }
        let last = ends.last().copied().unwrap_or(0);
        if last - ends[0] > u32::MAX as usize {
            return Err(invalid(format!(
                "{}: more than 4 GiB of text: split the write",
                self.description
            )));
        }
        let bytes: &[u8] = self.buffer(2, last)?;
        for (row, ends) in ends.windows(2).enumerate() {
            let is_absent = presence.as_ref().is_some_and(|bits| !bits.get(row));
            out.push(if is_absent {
                b""
            } else {
                &bytes[ends[0]..ends[1]]
            });
        }
        Ok(out)
    }

    /// Instants, whatever their unit.
    fn times(&self) -> Outcome<Vec<i64>> {
        let per_unit = match self.format.split(':').next().unwrap_or_default() {
            "tsn" | "l" => 1,
            "tsu" => 1_000,
            "tsm" => 1_000_000,
            "tss" => 1_000_000_000,
            other => {
                return Err(invalid(format!(
                    "{}: expected a timestamp (or 64-bit nanoseconds since 1970), found the format `{other}`",
                    self.description
                )));
            }
        };
        if self.presence()?.is_some() {
            return Err(invalid(format!(
                "{}: every row needs a time",
                self.description
            )));
        }
        let times: Vec<i64> = self.numbers(&None, |t: i64| t)?;
        let in_nanos = times.into_iter().map(|t| t.checked_mul(per_unit)).collect();
        let in_nanos: Option<Vec<i64>> = in_nanos;
        in_nanos.ok_or_else(|| {
            invalid(format!(
                "{}: a time outside of the years 1677 to 2262",
                self.description
            ))
        })
    }

    /// Values of a field.
    fn column(&self) -> Outcome<Column> {
        let presence = self.presence()?;
        let p = &presence;
        let values = match self.format {
            "g" => Values::F64(self.numbers(p, |v: f64| v)?),
            "f" => Values::F64(self.numbers(p, |v: f32| f64::from(v))?),
            "l" => Values::I64(self.numbers(p, |v: i64| v)?),
            "i" => Values::I64(self.numbers(p, |v: i32| i64::from(v))?),
            "s" => Values::I64(self.numbers(p, |v: i16| i64::from(v))?),
            "c" => Values::I64(self.numbers(p, |v: i8| i64::from(v))?),
            "L" => Values::U64(self.numbers(p, |v: u64| v)?),
            "I" => Values::U64(self.numbers(p, |v: u32| u64::from(v))?),
            "S" => Values::U64(self.numbers(p, |v: u16| u64::from(v))?),
            "C" => Values::U64(self.numbers(p, |v: u8| u64::from(v))?),
            "b" => {
                let bits = self.bits(1)?;
                let set = |row| bits.get(row) && p.as_ref().is_none_or(|bits| bits.get(row));
                Values::Bool((0..self.rows).map(set).collect())
            }
            "u" => Values::String(self.texts::<i32>(p)?),
            "U" => Values::String(self.texts::<i64>(p)?),
            "z" => Values::Bytes(self.texts::<i32>(p)?),
            "Z" => Values::Bytes(self.texts::<i64>(p)?),
            other => {
                return Err(invalid(format!(
                    "{}: the format `{other}` is not supported: expected floats of 32 or 64 bits (f g), integers (c s i l C S I L), booleans (b), text (u U) or bytes (z Z); convert the column first",
                    self.description
                )));
            }
        };
        Column::from_parts(values, presence)
            .ok_or_else(|| invalid(format!("{}: expected text in UTF-8", self.description)))
    }
}

/// The columns of a struct array.
fn columns<'a>(
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
) -> Outcome<Vec<(&'a str, Source<'a>)>> {
    let format = text(schema.format, "schema")?;
    if format != "+s" {
        return Err(invalid(format!(
            "schema: expected a struct array (a record batch: `+s`), found `{format}`"
        )));
    }
    if schema.release.is_none() || array.release.is_none() {
        return Err(invalid("schema and array: one of them was released"));
    }
    let whole = Source {
        description: "the struct array".into(),
        format,
        array,
        first: count(array.offset, "offset")?,
        rows: count(array.length, "length")?,
    };
    if whole.presence()?.is_some() {
        return Err(invalid("the struct array: null rows are not supported"));
    }
    let number = count(schema.n_children, "schema")?;
    if count(array.n_children, "array")? != number {
        return Err(invalid(
            "schema and array have different numbers of children",
        ));
    }
    let schemas = slice(
        schema.children.cast_const(),
        number,
        "children of the schema",
    )?;
    let arrays = slice(array.children.cast_const(), number, "children of the array")?;
    let mut out = Vec::with_capacity(number);
    for (schema, array) in schemas.iter().zip(arrays) {
        let schema = one(schema.cast_const(), "a child of the schema")?;
        let array = one(array.cast_const(), "a child of the array")?;
        let name = text(schema.name, "name of a column")?;
        let description = format!("column `{name}`");
        if !schema.dictionary.is_null() {
            return Err(invalid(format!(
                "{description}: dictionaries are not supported: convert the column to plain values first"
            )));
        }
        let first = whole.first + count(array.offset, &description)?;
        if count(array.length, &description)? < whole.first + whole.rows {
            return Err(invalid(format!(
                "{description}: it has fewer values than there are rows"
            )));
        }
        out.push((
            name,
            Source {
                description,
                format: text(schema.format, name)?,
                array,
                first,
                rows: whole.rows,
            },
        ));
    }
    Ok(out)
}

/// Adds rows of a stream from Arrow: a struct array (a record batch) with a column of times of this
/// name (timestamps of any unit, or 64-bit integers in ns since 1970), and a field in every other
/// column. Everything is copied; schema and array stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_arrow(
    batch: hw_batch,
    stream: hw_stream,
    time_column: hw_str,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let stream = handles::get::<Stream>(stream)?;
        let time_column = time_column.read("time_column")?;
        let columns = columns(one(schema, "schema")?, one(array, "array")?)?;
        let mut rows = StreamRows::new(stream.name().clone());
        let mut has_times = false;
        for (name, source) in columns {
            if name == time_column && !has_times {
                rows.times = source.times()?;
                has_times = true;
            } else if rows.fields.iter().any(|(known, _)| known == name) {
                return Err(invalid(format!(
                    "column `{name}` is specified more than once"
                )));
            } else {
                rows.fields.push((name.to_owned(), source.column()?));
            }
        }
        if !has_times {
            return Err(invalid(format!("there is no time column `{time_column}`")));
        }
        batch::change(batch, |filling| {
            filling.add_rows(rows);
            Ok(())
        })
    })
}
