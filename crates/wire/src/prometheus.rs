//! Remote write 1.0 of Prometheus: a protocol buffer in a block of snappy, as columns.
//!
//! Purpose: [`unpack`] and [`read`]. A series is a stream: its label `__name__` is the table, the
//! others are tags, and its samples are the field `value`. Milliseconds become nanoseconds; values
//! keep every bit. A staleness marker is not a sample: its row has no value.
//!
//! Invariants: the few kinds of fields are walked in place, so that the memory for a message does
//! not exceed its length; malformed messages are refused as a whole; a series that cannot be stored
//! does not affect the others. Unknown fields are skipped, as the encoding demands. Failure:
//! [`MessageError`] names the byte; refused series are returned as [`crate::RefusedLine`]s whose
//! line is the number of the series. Source: the Prometheus Remote-Write 1.0 specification,
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>, and the encoding of protocol buffers,
//! <https://protobuf.dev/programming-guides/encoding/>. Format: docs/http/prometheus.md.

use crate::parsed_batch::ParsedBatch;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::{Column, FieldType, StreamName, StreamRows, ValueRef, Values};

/// The label that names the table.
const NAME: &str = "__name__";
/// The field that samples are stored in.
pub const FIELD: &str = "value";

/// Bits of the NaN with which Prometheus reports that a series has ended.
pub const STALE: u64 = 0x7ff0_0000_0000_0002;
/// Maximum labels of one series.
const LABELS_MAX: usize = 256;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Reason for refusing a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Not a block of snappy.
    #[error(
        "the body is not a snappy block ({0}); the snappy stream format, with a header, is not supported"
    )]
    Snappy(String),
    /// The unpacked body would exceed the limit.
    #[error("the decompressed body has {bytes} bytes; at most {max} are allowed")]
    TooLarge {
        /// The length stated in the block.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Not a message of this protocol.
    #[error("the decompressed body is not a WriteRequest of remote write 1.0: {what} at byte {at}")]
    Malformed {
        /// The wrong part.
        what: &'static str,
        /// Offset from the beginning of the unpacked body.
        at: usize,
    },
}

/// Unpacks a block of snappy.
///
/// # Errors
/// When the body is not valid, or the unpacked body would exceed `max` bytes; no more memory is
/// allocated.
pub fn unpack(body: &[u8], max: usize) -> Result<Vec<u8>, MessageError> {
    let wrong = |error: snap::Error| MessageError::Snappy(error.to_string());
    let bytes = snap::raw::decompress_len(body).map_err(wrong)?;
    if bytes > max {
        return Err(MessageError::TooLarge { bytes, max });
    }
    snap::raw::Decoder::new()
        .decompress_vec(body)
        .map_err(wrong)
}

/// Reads a `WriteRequest`.
///
/// ```
/// // A series `up{job="a"}` with the value 1 at 1 ms.
/// let body = b"\x0a\x27\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x08\x0a\x03job\x12\x01a\x12\x0b\x09\0\0\0\0\0\0\xf0\x3f\x10\x01\x1a\0";
/// let parsed = headwater_wire::prometheus::read(&body[..]).unwrap();
/// assert_eq!(parsed.batch.entries()[0].name.to_string(), "up,job=a");
/// assert_eq!(parsed.batch.entries()[0].times, [1_000_000]);
/// ```
///
/// # Errors
/// When the bytes are not a valid message; no series is accepted then.
pub fn read(message: &[u8]) -> Result<ParsedBatch, MessageError> {
    let mut parsed = ParsedBatch::default();
    let mut fields = Fields {
        bytes: message,
        start: 0,
    };
    while let Some((number, value)) = fields.next()? {
        // Metadata (3) describe a metric, and do not contain samples.
        if number != 1 {
            continue;
        }
        parsed.line_count += 1;
        let line = parsed.line_count;
        let mut series = Series::default();
        series.read(value.message(&fields)?)?;
        if let Err(fault) = series.add(line, &mut parsed) {
            let name = series.labels.iter().find(|(name, _)| *name == NAME);
            let name = name.map(|(_, value)| value.as_bytes());
            parsed.refuse(line, fault, name.unwrap_or_default());
        }
    }
    Ok(parsed)
}

/// Names of the series of a message, in order; empty for a series without a name.
///
/// ```
/// let body = b"\x0a\x27\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x08\x0a\x03job\x12\x01a\x12\x0b\x09\0\0\0\0\0\0\xf0\x3f\x10\x01\x1a\0";
/// assert_eq!(headwater_wire::prometheus::names(&body[..]).unwrap(), ["up"]);
/// ```
///
/// # Errors
/// As [`read`].
pub fn names(message: &[u8]) -> Result<Vec<&str>, MessageError> {
    let mut fields = Fields {
        bytes: message,
        start: 0,
    };
    let mut names = Vec::new();
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            let mut series = Series::default();
            series.read(value.message(&fields)?)?;
            let name = series.labels.iter().find(|(name, _)| *name == NAME);
            names.push(name.map(|(_, value)| *value).unwrap_or_default());
        }
    }
    Ok(names)
}

/// One series in the encoding of the message.
#[derive(Default)]
struct Series<'a> {
    labels: Vec<(&'a str, &'a str)>,
    too_many_labels: bool,
    times_ms: Vec<i64>,
    values: Vec<f64>,
    histograms: u64,
}

impl<'a> Series<'a> {
    fn read(&mut self, mut fields: Fields<'a>) -> Result<(), MessageError> {
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => {
                    let label = label(value.message(&fields)?)?;
                    if self.labels.len() < LABELS_MAX {
                        self.labels.push(label);
                    } else {
                        self.too_many_labels = true;
                    }
                }
                2 => {
                    let (time_ms, sample) = sample(value.message(&fields)?)?;
                    self.times_ms.push(time_ms);
                    self.values.push(sample);
                }
                // Exemplars (3) point into traces, which are stored elsewhere.
                4 => self.histograms += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the samples to the batch.
    fn add(&mut self, line: u64, parsed: &mut ParsedBatch) -> Result<(), Fault> {
        if self.too_many_labels {
            return Err(parse(format!("a series has at most {LABELS_MAX} labels")));
        }
        let mut table = "";
        let mut tags = Vec::with_capacity(self.labels.len());
        for (name, value) in &self.labels {
            match *name {
                NAME => table = value,
                "" => {
                    return Err(parse(format!(
                        "a label with the value {} has no name",
                        shown(value.as_bytes())
                    )));
                }
                // An empty label counts as absent.
                _ if value.is_empty() => {}
                name => tags.push((name, *value)),
            }
        }
        if table.is_empty() {
            return Err(parse(format!(
                "a series needs the label {NAME}, which names its table"
            )));
        }
        tags.sort_unstable();
        let twice = tags
            .iter()
            .zip(tags.iter().skip(1))
            .find(|(a, b)| a.0 == b.0);
        if let Some(((name, _), _)) = twice {
            return Err(parse(format!("label `{name}` is repeated: give it once")));
        }
        let mut times = Vec::with_capacity(self.times_ms.len());
        let mut out_of_range = None;
        let times_ms = &self.times_ms;
        let mut at = 0;
        self.values.retain(|_| {
            let time_ms = times_ms.get(at).copied().unwrap_or_default();
            at += 1;
            let time = time_ms.checked_mul(NANOS_PER_MILLI);
            times.extend(time);
            if time.is_none() {
                out_of_range.get_or_insert(time_ms);
            }
            time.is_some()
        });
        if !times.is_empty() {
            let mut rows = StreamRows::new(StreamName::new(table, tags));
            let column = samples(std::mem::take(&mut self.values));
            parsed.lines.push(vec![line; times.len()]);
            rows.times = times;
            rows.fields.push((FIELD.to_owned(), column));
            parsed.batch.push(rows);
        }
        if let Some(time_ms) = out_of_range {
            return Err(Fault::new(
                RefusalCode::Time,
                format!(
                    "the time {time_ms} ms lies outside the years 1677 to 2262; the samples within them are stored"
                ),
            ));
        }
        if self.histograms > 0 {
            return Err(Fault::new(
                RefusalCode::Type,
                "native histograms cannot be stored; set send_native_histograms: false, which sends classic ones",
            ));
        }
        Ok(())
    }
}

/// The samples as a column. A staleness marker is not a sample: its row has no value, so that
/// neither stored aggregates nor aggregates computed from rows count it.
fn samples(values: Vec<f64>) -> Column {
    if !values.iter().any(|value| value.to_bits() == STALE) {
        return Column::from_values(Values::F64(values));
    }
    let mut column = Column::with_capacity(FieldType::F64, values.len());
    for value in values {
        match value.to_bits() {
            STALE => column.push_absent(1),
            _ => {
                column.push(ValueRef::F64(value));
            }
        }
    }
    column
}

fn parse(message: String) -> Fault {
    Fault::new(RefusalCode::Parse, message)
}

fn label<'a>(mut fields: Fields<'a>) -> Result<(&'a str, &'a str), MessageError> {
    let mut label = ("", "");
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => label.0 = value.text(&fields)?,
            2 => label.1 = value.text(&fields)?,
            _ => {}
        }
    }
    Ok(label)
}

/// The time in milliseconds and the value.
fn sample(mut fields: Fields<'_>) -> Result<(i64, f64), MessageError> {
    // An omitted field is zero.
    let mut sample = (0, 0.0);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Wire::Eight(bits)) => sample.1 = f64::from_bits(bits),
            (2, Wire::Varint(time)) => sample.0 = time as i64,
            (1 | 2, _) => return Err(fields.malformed("a field of the wrong type")),
            _ => {}
        }
    }
    Ok(sample)
}

/// A value in the encoding of a message.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Eight(u64),
    /// A text or a message, and its offset.
    Bytes(&'a [u8], usize),
    Four,
}

impl<'a> Wire<'a> {
    fn message(self, of: &Fields<'_>) -> Result<Fields<'a>, MessageError> {
        match self {
            Wire::Bytes(bytes, start) => Ok(Fields { bytes, start }),
            _ => Err(of.malformed("a field of the wrong type")),
        }
    }

    fn text(self, of: &Fields<'_>) -> Result<&'a str, MessageError> {
        let text = match self {
            Wire::Bytes(bytes, _) => std::str::from_utf8(bytes).ok(),
            _ => return Err(of.malformed("a field of the wrong type")),
        };
        text.ok_or_else(|| of.malformed("a label that is not UTF-8, just before or"))
    }
}

/// The fields of a message, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` in the whole message.
    start: usize,
}

impl<'a> Fields<'a> {
    fn malformed(&self, what: &'static str) -> MessageError {
        MessageError::Malformed {
            what,
            at: self.start,
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(self.malformed("a field that is longer than what is left,"));
        };
        self.bytes = rest;
        self.start += count;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, MessageError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.bytes.split_first() else {
                return Err(self.malformed("the end in the middle of a number,"));
            };
            let digits = u64::from(byte & 0x7F);
            if shift == 63 && digits > 1 {
                break;
            }
            self.bytes = rest;
            self.start += 1;
            value |= digits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number of more than 64 bits"))
    }

    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, MessageError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 {
            return Err(self.malformed("a field with the number 0"));
        }
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().unwrap_or([0; 8]);
                Wire::Eight(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let start = self.start;
                Wire::Bytes(self.take(length)?, start)
            }
            5 => {
                self.take(4)?;
                Wire::Four
            }
            _ => return Err(self.malformed("a field of an unknown type")),
        };
        Ok(Some((number, value)))
    }
}
