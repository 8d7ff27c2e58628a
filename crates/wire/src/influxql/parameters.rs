//! Values for the `$names` of a text, from a JSON object.
//!
//! Invariant: a value replaces only a literal, so that no value changes the structure of a
//! statement.

use super::ast::Literal;
use crate::durations::parse_duration_ns;
use serde_json::Value;
use std::collections::BTreeMap;

/// A text that is not a JSON object of literals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// Not an object.
    #[error(
        "error parsing query parameters: expected a JSON object such as {{\"host\":\"a\"}}: {0}"
    )]
    Shape(String),
    /// A value that is not a literal.
    #[error(
        "error parsing query parameters: `{0}`: expected a text, a number, a boolean, or an object with one of the keys string, integer, float, boolean, duration, regex"
    )]
    Value(String),
}

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    values: BTreeMap<String, Literal>,
}

impl Parameters {
    /// Reads the parameter `params` of a request. An empty text and `null` have no values.
    ///
    /// ```
    /// use headwater_wire::influxql::{Parameters, parse};
    /// let parameters = Parameters::parse(r#"{"host":"a","since":{"duration":"1h"}}"#).unwrap();
    /// parse("SELECT v FROM m WHERE host = $host AND time > now() - $since", &parameters).unwrap();
    /// ```
    ///
    /// # Errors
    /// When the text is not a JSON object, or a value is not a literal.
    pub fn parse(json: &str) -> Result<Parameters, ParameterError> {
        // Programs without values send an empty text, or `null`.
        if json.trim().is_empty() {
            return Ok(Parameters::default());
        }
        let object: Option<BTreeMap<String, Value>> =
            serde_json::from_str(json).map_err(|e| ParameterError::Shape(e.to_string()))?;
        let object = object.unwrap_or_default();
        let mut values = BTreeMap::new();
        for (name, value) in object {
            let literal = literal(&value).ok_or_else(|| ParameterError::Value(name.clone()))?;
            values.insert(name, literal);
        }
        Ok(Parameters { values })
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Literal> {
        self.values.get(name)
    }
}

fn literal(value: &Value) -> Option<Literal> {
    match value {
        Value::String(text) => Some(Literal::Text(text.clone())),
        Value::Bool(value) => Some(Literal::Boolean(*value)),
        Value::Number(number) => number
            .as_i64()
            .map(Literal::Integer)
            .or_else(|| number.as_u64().map(Literal::Unsigned))
            .or_else(|| number.as_f64().map(Literal::Float)),
        Value::Object(object) => {
            let mut entries = object.iter();
            let (Some((kind, value)), None) = (entries.next(), entries.next()) else {
                return None;
            };
            match (kind.as_str(), value) {
                ("string", Value::String(text)) => Some(Literal::Text(text.clone())),
                ("regex", Value::String(text)) => Some(Literal::Regex(text.clone())),
                ("duration", Value::String(text)) => {
                    parse_duration_ns(text).ok().map(Literal::Duration)
                }
                ("duration", Value::Number(ns)) => ns.as_i64().map(Literal::Duration),
                ("boolean", Value::Bool(value)) => Some(Literal::Boolean(*value)),
                ("integer", Value::Number(number)) => number.as_i64().map(Literal::Integer),
                ("float", Value::Number(number)) => number.as_f64().map(Literal::Float),
                _ => None,
            }
        }
        Value::Null | Value::Array(_) => None,
    }
}
