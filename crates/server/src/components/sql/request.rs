//! Parsed request: the statement, its parameters, the form of the answer.

use super::numbers;
use crate::app::App;
use crate::error::ApiError;
use crate::request::drain;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use headwater_columnar::{Format, TimeText};
use headwater_query::arrow::datatypes::DataType;
use headwater_query::datafusion::logical_expr::binary::type_union_coercion;
use headwater_query::datafusion::scalar::ScalarValue;
use headwater_wire::query::{Query, QueryError};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;

/// Longest body: a statement with its parameters.
const BODY_BYTES_MAX: usize = 1 << 20;
const PARAMETERS: [&str; 4] = ["q", "format", "time", "rows_max"];

#[derive(Debug)]
pub(super) struct SqlRequest {
    pub(super) sql: String,
    pub(super) parameters: Vec<ScalarValue>,
    pub(super) format: Format,
    pub(super) time: TimeText,
    /// Maximum rows of the answer, which states whether more rows exist.
    pub(super) rows_max: Option<u64>,
}

/// The body as a JSON object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    sql: String,
    #[serde(default)]
    parameters: Vec<Value>,
    format: Option<String>,
    time: Option<String>,
    rows_max: Option<u64>,
}

impl SqlRequest {
    pub(super) async fn of(app: &App, request: Request) -> Result<SqlRequest, ApiError> {
        let (head, body) = request.into_parts();
        let media = media_type(&head.headers)?;
        let max = BODY_BYTES_MAX.min(app.settings.body_max);
        let body = String::from_utf8(read(body, max).await?)
            .map_err(|_| invalid("the statement is not UTF-8"))?;
        let mut query = Query::parse(head.uri.query().unwrap_or_default())?;
        query.only(&PARAMETERS)?;
        let mut object = Object::default();
        let mut json = String::new();
        let is_form = media == "application/x-www-form-urlencoded"
            && (body.starts_with("q=") || body.contains("&q="));
        if media == "application/json" {
            object = serde_json::from_str(&body).map_err(|error| {
                invalid(format!(
                    "{error}: expected {{\"sql\":\"SELECT …\",\"parameters\":[…],\"format\":\"json\"}}, of which only `sql` is required"
                ))
            })?;
            json = body;
        } else if is_form {
            // As `curl --data-urlencode q=…` sends it.
            query = Query::parse(&body)?;
            query.only(&PARAMETERS)?;
        } else {
            // As `curl --data-binary 'SELECT …'` sends it, whatever its type.
            object.sql = body;
        }
        if object.sql.trim().is_empty() {
            object.sql = query.one("q")?.unwrap_or_default().to_owned();
        }
        let format = object.format.or(query.one("format")?.map(str::to_owned));
        let time = object.time.or(query.one("time")?.map(str::to_owned));
        let rows_max = match query.one("rows_max")? {
            Some(text) => Some(
                text.parse()
                    .map_err(|_| QueryError::value("rows_max", "expected a whole number", text))?,
            ),
            None => object.rows_max,
        };
        let format = match &format {
            Some(name) => Format::from_name(name).ok_or_else(|| {
                QueryError::value("format", "expected json, csv, arrow or parquet", name)
            })?,
            None => accepted(&head.headers),
        };
        if rows_max.is_some() && format != Format::Json {
            return Err(invalid(
                "rows_max is supported for JSON only: use LIMIT in the statement",
            ));
        }
        let time = match &time {
            Some(name) => TimeText::from_name(name)
                .ok_or_else(|| QueryError::value("time", "expected rfc3339 or ns", name))?,
            None => TimeText::default(),
        };
        Ok(SqlRequest {
            sql: object.sql,
            parameters: parameters(object.parameters, &json)?,
            format,
            time,
            rows_max,
        })
    }
}

/// Reads a body up to a limit.
async fn read(mut body: Body, max: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| invalid("the request was interrupted"))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if bytes.len() > max {
            drain(body).await;
            let message = format!("the statement and its parameters have more than {max} bytes");
            return Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "E_LIMIT_BODY",
                message,
            ));
        }
    }
    Ok(bytes)
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", message)
}

/// Media type of the body in lower case, without parameters.
fn media_type(headers: &HeaderMap) -> Result<String, ApiError> {
    if let Some(packed) = headers.get(CONTENT_ENCODING)
        && packed != "identity"
    {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "E_ENCODING",
            "Content-Encoding is not supported for statements",
        ));
    }
    let text = header(headers, &CONTENT_TYPE);
    let media = text.split(';').next().unwrap_or_default();
    Ok(media.trim().to_ascii_lowercase())
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn accepted(headers: &HeaderMap) -> Format {
    Format::accepted(header(headers, &ACCEPT)).unwrap_or(Format::Json)
}

/// The values of parameters; numbers as written in the body.
fn parameters(values: Vec<Value>, body: &str) -> Result<Vec<ScalarValue>, ApiError> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let mut numbers = numbers::within(body, "parameters").into_iter();
    let values = values.into_iter().enumerate();
    values
        .map(|(at, value)| match value {
            Value::Array(elements) => {
                let elements = elements.into_iter();
                let elements: Vec<ScalarValue> = elements
                    .map(|element| parameter(at + 1, element, &mut numbers))
                    .collect::<Result<_, _>>()?;
                list(at + 1, elements)
            }
            value => parameter(at + 1, value, &mut numbers),
        })
        .collect()
}

/// The value of `$number`, or of an element of it.
fn parameter<'t>(
    number: usize,
    value: Value,
    numbers: &mut impl Iterator<Item = &'t str>,
) -> Result<ScalarValue, ApiError> {
    Ok(match value {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(value)),
        Value::String(text) => ScalarValue::Utf8(Some(text)),
        Value::Number(given) => {
            let written = numbers
                .next()
                .map_or_else(|| given.to_string(), str::to_owned);
            numbers::value(&written).ok_or_else(|| {
                invalid(format!(
                    "parameter ${number} has {} digits: expected a number of at most 76, or a text",
                    written.bytes().filter(u8::is_ascii_digit).count()
                ))
            })?
        }
        Value::Array(_) | Value::Object(_) => {
            return Err(invalid(format!(
                "parameter ${number} has a list in a list, or an object: expected a number, a text, true, false, null or a list of them"
            )));
        }
    })
}

/// Values of one type as a list; integers among other numbers are converted to their type.
fn list(number: usize, elements: Vec<ScalarValue>) -> Result<ScalarValue, ApiError> {
    let mixed = || {
        invalid(format!(
            "parameter ${number} is a list of values of several types: expected numbers, texts, or true and false"
        ))
    };
    let mut of = DataType::Null;
    for element in &elements {
        let next = element.data_type();
        of = match (&of, &next) {
            (DataType::Null, _) => next,
            (_, DataType::Null) => of,
            (known, next) if known == next => of,
            (known, next) if known.is_numeric() && next.is_numeric() => {
                type_union_coercion(known, next).ok_or_else(mixed)?
            }
            _ => return Err(mixed()),
        };
    }
    if of == DataType::Null {
        of = DataType::Utf8;
    }
    let cast = elements.iter().map(|element| {
        let made = element.cast_to(&of).map_err(|_| mixed())?;
        // A conversion that changes an integer is refused.
        let same = element.is_null()
            || made
                .cast_to(&element.data_type())
                .is_ok_and(|back| back == *element);
        same.then_some(made).ok_or_else(mixed)
    });
    let elements: Vec<ScalarValue> = cast.collect::<Result<_, ApiError>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(
        &elements, &of,
    )))
}
