//! Parses conditions as people write them: `temp >= 90`.

use super::filter::{Comparison, Filter};
use crate::{Error, Result};
use headwater_types::{FieldType, Value};

/// Longer operators first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Comparison); 6] = [
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Filter {
    /// Parses `FIELD OP VALUE`, with OP one of `=`, `!=`, `<`, `<=`, `>`, `>=`, for one of these
    /// fields. The value has the type of the field; text is taken literally, without quotes.
    ///
    /// ```
    /// use headwater_engine::{Comparison, Filter};
    /// use headwater_types::{FieldType, Value};
    /// let fields = [("temp".to_owned(), FieldType::F64)];
    /// let filter = Filter::parse("temp >= 90", &fields)?;
    /// assert_eq!(filter.comparison, Comparison::GreaterOrEqual);
    /// assert_eq!(filter.value, Value::F64(90.0));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` for texts of another form, unknown fields, values of another type, and fields of
    /// bytes.
    pub fn parse(text: &str, fields: &[(String, FieldType)]) -> Result<Filter> {
        let text = text.trim();
        let found = fields
            .iter()
            .filter_map(|(name, field_type)| {
                let rest = text.strip_prefix(name.as_str())?.trim_start();
                let (comparison, value) = OPERATORS
                    .iter()
                    .find_map(|(operator, c)| Some((*c, rest.strip_prefix(operator)?)))?;
                Some((name, *field_type, comparison, value.trim()))
            })
            .max_by_key(|(name, ..)| name.len());
        let Some((name, field_type, comparison, value)) = found else {
            return Err(Error::invalid(format!(
                "filter `{text}`: expected FIELD OP VALUE with OP one of = != < <= > >=, and a field of the table"
            )));
        };
        let parsed = match field_type {
            FieldType::F64 => value.parse().map(Value::F64).ok(),
            FieldType::I64 => value.parse().map(Value::I64).ok(),
            FieldType::U64 => value.parse().map(Value::U64).ok(),
            FieldType::Bool => value.parse().map(Value::Bool).ok(),
            FieldType::String => Some(Value::String(value.to_owned())),
            FieldType::Bytes => None,
        };
        let Some(value) = parsed else {
            return Err(Error::invalid(format!(
                "filter `{text}`: `{value}` is not a value of field `{name}`, which is {field_type}"
            )));
        };
        Ok(Filter {
            field: name.clone(),
            comparison,
            value,
        })
    }
}
