//! The newest values of a stream, as an element of XML that other programs can read.
//!
//! Invariants: a written item is read back to an equal one, NaN and characters that XML cannot
//! represent included. An item is bounded: fields that exceed [`ITEM_BYTES_MAX`] are left out and
//! counted. Concurrency: plain data. Failure: [`ItemError`] names what was expected. Format:
//! docs/format/values.md.

use crate::xmpp::{Element, is_xml_text};
use headwater_types::{Timestamp, Value};

const VALUES: &str = "urn:headwater:values:1";

/// Most bytes of names and values of an item.
pub const ITEM_BYTES_MAX: usize = 8 << 10;
/// Bytes that a value counts beside its texts.
const VALUE_BYTES: usize = 32;
/// Most bytes of the name of a stream.
pub(crate) const STREAM_BYTES_MAX: usize = 256;

/// The newest value of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldValue {
    /// The field.
    pub field: String,
    /// Instant of the value.
    pub time: Timestamp,
    /// The value.
    pub value: Value,
}

/// The newest values of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct NewestValues {
    /// The stream, as text.
    pub stream: String,
    /// Identity of the publishing database.
    pub source: u64,
    /// Numbers are comparable within an epoch only; each start of the source has another.
    pub epoch: u64,
    /// Counts the changes of the stream that its source has seen in this epoch, from 1 on. A gap
    /// between two items is the number of changes that were not published.
    pub number: u64,
    /// Number of fields that are left out, since the item would be too large.
    pub omitted: u64,
    /// The values, by field.
    pub values: Vec<FieldValue>,
}

/// Reason why an element is not an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// Another element.
    #[error("the element {0:?}: expected newest in urn:headwater:values:1")]
    Element(String),
    /// An attribute is missing or malformed.
    #[error("the attribute {0} of an item: expected {1}")]
    Attribute(&'static str, &'static str),
    /// A value does not have the form of its type.
    #[error("the value of the field {0:?}: expected a value of its type, such as 1.5 of double")]
    Value(String),
    /// The item is too large.
    #[error("an item of {0} bytes: expected at most {ITEM_BYTES_MAX}")]
    Long(usize),
}

/// Size of a field in an item.
fn size(of: &FieldValue) -> usize {
    let value = match &of.value {
        Value::String(text) => text.len(),
        // As base64.
        Value::Bytes(bytes) => bytes.len().div_ceil(3) * 4,
        Value::F64(_) | Value::I64(_) | Value::U64(_) | Value::Bool(_) => 0,
    };
    VALUE_BYTES + of.field.len() + value
}

fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    match value.is_infinite() {
        true if value > 0.0 => "INF".to_owned(),
        true => "-INF".to_owned(),
        false => value.to_string(),
    }
}

fn number<T: std::str::FromStr>(of: &Element, name: &'static str) -> Result<T, ItemError> {
    let text = of.attribute(name).unwrap_or_default();
    // One spelling for each number.
    let is_plain = text
        .strip_prefix('-')
        .unwrap_or(text)
        .bytes()
        .all(|b| b.is_ascii_digit());
    let read = text.parse().ok().filter(|_| is_plain);
    read.ok_or(ItemError::Attribute(name, "an integer"))
}

fn identity(of: &Element, name: &'static str) -> Result<u64, ItemError> {
    let text = of.attribute(name).unwrap_or_default();
    let is_hex = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let read = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    read.ok_or(ItemError::Attribute(name, "16 hexadecimal digits"))
}

impl FieldValue {
    /// ```text
    /// <value field='flow' time='1700000000000000000' type='double'>1.5</value>
    /// ```
    fn element(&self) -> Element {
        let out = Element::new(VALUES, "value");
        let out = match is_xml_text(&self.field) {
            true => out.with("field", &self.field),
            false => {
                let text = data_encoding::BASE64.encode(self.field.as_bytes());
                out.with("field64", &text)
            }
        };
        let out = out.with("time", &self.time.as_nanos().to_string());
        match &self.value {
            Value::F64(value) => out.with("type", "double").saying(&double(*value)),
            Value::I64(value) => out.with("type", "long").saying(&value.to_string()),
            Value::U64(value) => out.with("type", "unsignedLong").saying(&value.to_string()),
            Value::Bool(value) => out.with("type", "boolean").saying(&value.to_string()),
            Value::String(text) if text.is_empty() => out.with("type", "string"),
            Value::String(text) if is_xml_text(text) => out.with("type", "string").saying(text),
            Value::String(text) => out.with("type", "string64").carrying(text.as_bytes()),
            Value::Bytes(bytes) if bytes.is_empty() => out.with("type", "base64Binary"),
            Value::Bytes(bytes) => out.with("type", "base64Binary").carrying(bytes),
        }
    }

    fn read(from: &Element) -> Result<FieldValue, ItemError> {
        if !from.is(VALUES, "value") {
            return Err(ItemError::Element(from.name.clone()));
        }
        let field = match (from.attribute("field"), from.attribute("field64")) {
            (Some(field), None) => field.to_owned(),
            (None, Some(text)) => text64(text).ok_or(ItemError::Attribute("field64", "base64"))?,
            _ => return Err(ItemError::Attribute("field", "the name of a field")),
        };
        let wrong = || ItemError::Value(field.clone());
        if from.elements().next().is_some() {
            return Err(wrong());
        }
        let text = from.text();
        let value = match from.attribute("type").unwrap_or_default() {
            "double" => Value::F64(read_double(&text).ok_or_else(wrong)?),
            "long" => Value::I64(text.parse().map_err(|_| wrong())?),
            "unsignedLong" => Value::U64(text.parse().map_err(|_| wrong())?),
            "boolean" => Value::Bool(text.parse().map_err(|_| wrong())?),
            "string" => Value::String(text),
            "string64" => Value::String(text64(&text).ok_or_else(wrong)?),
            "base64Binary" => Value::Bytes(from.carried().ok_or_else(wrong)?),
            _ => {
                return Err(ItemError::Attribute(
                    "type",
                    "double, long, unsignedLong, boolean, string, string64 or base64Binary",
                ));
            }
        };
        Ok(FieldValue {
            time: Timestamp::from_nanos(number(from, "time")?),
            field,
            value,
        })
    }
}

fn text64(text: &str) -> Option<String> {
    let bytes = data_encoding::BASE64.decode(text.as_bytes()).ok()?;
    String::from_utf8(bytes).ok()
}

fn read_double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "INF" => Some(f64::INFINITY),
        "-INF" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

impl NewestValues {
    /// Leaves out the last fields that would make the item too large.
    #[must_use]
    pub fn bounded(mut self) -> NewestValues {
        let mut room = ITEM_BYTES_MAX;
        let before = self.values.len();
        self.values
            .retain(|value| match room.checked_sub(size(value)) {
                Some(left) => {
                    room = left;
                    true
                }
                None => false,
            });
        let omitted = before - self.values.len();
        self.omitted += u64::try_from(omitted).unwrap_or(u64::MAX);
        self
    }

    /// Bytes of names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.stream.len() + self.values.iter().map(size).sum::<usize>()
    }

    /// The item as an element.
    #[must_use]
    pub fn element(&self) -> Element {
        let mut out = Element::new(VALUES, "newest")
            .with("stream", &self.stream)
            .with("source", &format!("{:016x}", self.source))
            .with("epoch", &format!("{:016x}", self.epoch))
            .with("number", &self.number.to_string());
        if self.omitted > 0 {
            out = out.with("omitted", &self.omitted.to_string());
        }
        for value in &self.values {
            out = out.with_child(value.element());
        }
        out
    }

    /// Reads the element of [`NewestValues::element`].
    ///
    /// # Errors
    /// If the element is not a valid item.
    pub fn read(from: &Element) -> Result<NewestValues, ItemError> {
        if !from.is(VALUES, "newest") {
            return Err(ItemError::Element(from.name.clone()));
        }
        let stream = from.attribute("stream").unwrap_or_default();
        if !(1..=STREAM_BYTES_MAX).contains(&stream.len()) {
            let wanted = "the name of a stream of at most 256 bytes";
            return Err(ItemError::Attribute("stream", wanted));
        }
        let omitted = match from.attribute("omitted") {
            None => 0,
            Some(_) => number(from, "omitted")?,
        };
        let item = NewestValues {
            stream: stream.to_owned(),
            source: identity(from, "source")?,
            epoch: identity(from, "epoch")?,
            number: number(from, "number")?,
            omitted,
            values: from
                .elements()
                .map(FieldValue::read)
                .collect::<Result<_, _>>()?,
        };
        let size = item.size() - item.stream.len();
        match size > ITEM_BYTES_MAX {
            true => Err(ItemError::Long(size)),
            false => Ok(item),
        }
    }
}
