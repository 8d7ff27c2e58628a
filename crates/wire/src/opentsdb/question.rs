//! Queries: metrics, their tags, and the aggregation.

use super::times::{length, parse_time};
use crate::query::Query;
use headwater_types::{ClosedRange, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Metrics of a query.
const QUESTIONS_MAX: usize = 256;
/// Filters of a metric, and values of a filter.
const FILTERS_MAX: usize = 256;

/// A query that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuestionError(String);

fn wrong<T>(message: impl Into<String>) -> Result<T, QuestionError> {
    Err(QuestionError(message.into()))
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The instants, both ends included.
    pub range: ClosedRange,
    /// Times in the answer are milliseconds, not seconds.
    pub milliseconds: bool,
    /// Points in the answer are pairs in a list, and not keys and values.
    pub arrays: bool,
    /// Each metric.
    pub queries: Vec<SubQuestion>,
}

/// The query of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQuestion {
    /// The metric.
    pub metric: String,
    /// The function that puts series together.
    pub aggregator: Aggregator,
    /// The function that puts the values of an interval together before.
    pub downsample: Option<Downsample>,
    /// The change instead of the value.
    pub rate: Option<Rate>,
    /// Filters of series.
    pub filters: Vec<TagFilter>,
    /// True when only series with exactly the tags of the filters match.
    pub explicit_tags: bool,
}

/// Function from several values to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is what it is named for")]
pub enum Aggregator {
    Avg,
    Count,
    Dev,
    First,
    Last,
    Max,
    MimMax,
    MimMin,
    Min,
    /// Series are not aggregated.
    None,
    Sum,
    ZimSum,
}

impl Aggregator {
    /// All aggregators, by name.
    pub const ALL: [(Aggregator, &'static str); 12] = [
        (Aggregator::Avg, "avg"),
        (Aggregator::Count, "count"),
        (Aggregator::Dev, "dev"),
        (Aggregator::First, "first"),
        (Aggregator::Last, "last"),
        (Aggregator::Max, "max"),
        (Aggregator::MimMax, "mimmax"),
        (Aggregator::MimMin, "mimmin"),
        (Aggregator::Min, "min"),
        (Aggregator::None, "none"),
        (Aggregator::Sum, "sum"),
        (Aggregator::ZimSum, "zimsum"),
    ];

    fn named(name: &str) -> Result<Aggregator, QuestionError> {
        match Aggregator::ALL.iter().find(|(_, n)| *n == name) {
            Some((aggregator, _)) => Ok(*aggregator),
            None => {
                let names: Vec<&str> = Aggregator::ALL.iter().map(|(_, n)| *n).collect();
                wrong(format!(
                    "No such aggregation function: {name}; there are {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// True where a series without a value at an instant counts with a value interpolated between
    /// its neighbours.
    #[must_use]
    pub fn interpolates(self) -> bool {
        matches!(
            self,
            Aggregator::Avg | Aggregator::Dev | Aggregator::Max | Aggregator::Min | Aggregator::Sum
        )
    }
}

/// Downsampling of a series: `1m-avg-zero`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downsample {
    /// Width of an interval in ns; `None` = the whole range.
    pub every_ns: Option<i64>,
    /// The function over the values of an interval.
    pub function: Aggregator,
    /// Values of intervals without any.
    pub fill: DownsampleFill,
}

/// Values of intervals without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DownsampleFill {
    /// Empty intervals are left out.
    #[default]
    None,
    /// A bin without points is `NaN`.
    Nan,
    /// A bin without points is `null`.
    Null,
    /// A bin without points is 0.
    Zero,
}

/// Changes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// The values belong to a counter, which wraps to 0 after its largest value.
    pub counter: bool,
    /// The largest value of the counter.
    pub counter_max: Option<f64>,
    /// Rates above this value count as 0.
    pub reset_value: Option<f64>,
    /// Decreasing values of a counter produce no rate.
    pub drop_resets: bool,
}

/// Condition on the values of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// The tag.
    pub key: String,
    /// The values.
    pub kind: FilterKind,
    /// Series are grouped by the value of this tag.
    pub group_by: bool,
}

/// Values of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// One of these values; `true`: without regard to case.
    Literal(Vec<String>, bool),
    /// Any value except these.
    NotLiteral(Vec<String>, bool),
    /// `*` matches any text.
    Wildcard(String, bool),
    /// The values that match a regular expression.
    Regexp(String),
    /// The tag is not there.
    NotKey,
}

impl FilterKind {
    fn new(kind: &str, text: &str) -> Result<FilterKind, QuestionError> {
        let values = || {
            let values: Vec<String> = text.split('|').map(|v| v.trim().to_owned()).collect();
            if values.len() > FILTERS_MAX * 16 {
                return wrong(format!("more than {} values in a filter", FILTERS_MAX * 16));
            }
            Ok(values)
        };
        Ok(match kind {
            "literal_or" => FilterKind::Literal(values()?, false),
            "iliteral_or" => FilterKind::Literal(values()?, true),
            "not_literal_or" => FilterKind::NotLiteral(values()?, false),
            "not_iliteral_or" => FilterKind::NotLiteral(values()?, true),
            "wildcard" => FilterKind::Wildcard(text.to_owned(), false),
            "iwildcard" => FilterKind::Wildcard(text.to_owned(), true),
            "regexp" => FilterKind::Regexp(text.to_owned()),
            "not_key" => FilterKind::NotKey,
            _ => {
                return wrong(format!(
                    "unknown filter {kind}: expected literal_or, iliteral_or, not_literal_or, not_iliteral_or, wildcard, iwildcard, regexp or not_key"
                ));
            }
        })
    }

    /// A value of the older form: `*`, `a|b`, `wildcard(a*)`.
    fn short(text: &str) -> Result<FilterKind, QuestionError> {
        if let Some((kind, rest)) = text.split_once('(')
            && let Some(value) = rest.strip_suffix(')')
        {
            return FilterKind::new(kind, value);
        }
        if text.contains('*') {
            return FilterKind::new("iwildcard", text);
        }
        FilterKind::new("literal_or", text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenQuestion {
    start: Value,
    end: Option<Value>,
    #[serde(default)]
    ms_resolution: bool,
    #[serde(default)]
    queries: Vec<WrittenMetric>,
    #[serde(default)]
    delete: bool,
    timezone: Option<String>,
    #[serde(default)]
    use_calendar: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetric {
    aggregator: Option<String>,
    metric: Option<String>,
    downsample: Option<String>,
    #[serde(default)]
    rate: bool,
    rate_options: Option<WrittenRate>,
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    filters: Option<Vec<WrittenFilter>>,
    #[serde(default)]
    explicit_tags: bool,
    tsuids: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRate {
    #[serde(default)]
    counter: bool,
    counter_max: Option<f64>,
    reset_value: Option<f64>,
    #[serde(default)]
    drop_resets: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenFilter {
    #[serde(rename = "type")]
    kind: String,
    tagk: String,
    #[serde(default)]
    filter: String,
    #[serde(default)]
    group_by: bool,
}

/// Reads a query in JSON, as sent to `POST /api/query`.
///
/// # Errors
/// When the body is not JSON of this form, or uses functions that do not exist.
pub fn parse_question(body: &[u8], now: Timestamp) -> Result<Question, QuestionError> {
    let written: WrittenQuestion = serde_json::from_slice(body).map_err(|error| {
        QuestionError(format!(
            "expected {{\"start\":…,\"queries\":[{{\"metric\":…,\"aggregator\":…}}]}}: {error}"
        ))
    })?;
    if written.delete {
        return wrong("deleting by a query is not supported");
    }
    if written.use_calendar || written.timezone.is_some() {
        return wrong("calendar intervals and time zones are not supported");
    }
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let end = written.end.as_ref().filter(|v| !v.is_null()).map(text);
    let queries = written.queries.into_iter().map(metric);
    let queries = queries.collect::<Result<Vec<_>, _>>()?;
    Ok(Question {
        range: range(&text(&written.start), end.as_deref(), now)?,
        milliseconds: written.ms_resolution,
        arrays: false,
        queries: counted(queries)?,
    })
}

fn counted(queries: Vec<SubQuestion>) -> Result<Vec<SubQuestion>, QuestionError> {
    match queries.len() {
        0 => wrong("Missing queries: give at least one metric"),
        1..=QUESTIONS_MAX => Ok(queries),
        _ => wrong(format!("more than {QUESTIONS_MAX} metrics")),
    }
}

fn range(start: &str, end: Option<&str>, now: Timestamp) -> Result<ClosedRange, QuestionError> {
    let at = |text: &str| parse_time(text, now).map_err(|e| QuestionError(e.to_string()));
    let first = at(start)?;
    let last = match end {
        Some(end) => at(end)?,
        None => now,
    };
    if last < first {
        return wrong("the end lies before the start");
    }
    Ok(ClosedRange::new(first, last))
}

fn metric(written: WrittenMetric) -> Result<SubQuestion, QuestionError> {
    if written.tsuids.is_some_and(|t| !t.is_empty()) {
        return wrong("queries by TSUID are not supported: query by metric and tags");
    }
    let Some(name) = written.metric.filter(|m| !m.is_empty()) else {
        return wrong("Missing the metric");
    };
    let Some(aggregator) = written.aggregator else {
        return wrong(format!("Missing the aggregator of {name}"));
    };
    let mut filters = Vec::new();
    for (key, value) in written.tags.unwrap_or_default() {
        filters.push(TagFilter {
            key,
            kind: FilterKind::short(&value)?,
            group_by: true,
        });
    }
    for filter in written.filters.unwrap_or_default() {
        filters.push(TagFilter {
            key: filter.tagk,
            kind: FilterKind::new(&filter.kind, &filter.filter)?,
            group_by: filter.group_by,
        });
    }
    if filters.len() > FILTERS_MAX {
        return wrong(format!("more than {FILTERS_MAX} filters"));
    }
    let rate = written.rate.then(|| {
        let options = written.rate_options;
        options.map_or_else(Rate::default, |o| Rate {
            counter: o.counter,
            counter_max: o.counter_max,
            reset_value: o.reset_value,
            drop_resets: o.drop_resets,
        })
    });
    Ok(SubQuestion {
        metric: name,
        aggregator: Aggregator::named(&aggregator)?,
        downsample: written
            .downsample
            .filter(|d| !d.is_empty())
            .map(|d| downsample(&d))
            .transpose()?,
        rate,
        filters,
        explicit_tags: written.explicit_tags,
    })
}

/// `1m-avg`, `1m-avg-zero`, `0all-sum`.
fn downsample(text: &str) -> Result<Downsample, QuestionError> {
    let expected = || {
        QuestionError(format!(
            "downsample `{text}`: expected an interval and a function, such as 1m-avg or 1m-avg-nan, or 0all-sum for the whole range; units are ms s m h d w n y"
        ))
    };
    let mut parts = text.split('-');
    let (interval, function) = (
        parts.next().unwrap_or_default(),
        parts.next().ok_or_else(expected)?,
    );
    let fill = match parts.next() {
        None | Some("none") => DownsampleFill::None,
        Some("nan") => DownsampleFill::Nan,
        Some("null") => DownsampleFill::Null,
        Some("zero") => DownsampleFill::Zero,
        Some(_) => return Err(expected()),
    };
    if parts.next().is_some() {
        return Err(expected());
    }
    let every_ns = match interval {
        "0all" | "all" => None,
        _ => Some(length(interval).ok_or_else(expected)?),
    };
    let function = Aggregator::named(function)?;
    if function == Aggregator::None {
        return wrong("cannot use the NONE aggregator for downsampling");
    }
    Ok(Downsample {
        every_ns,
        function,
        fill,
    })
}

impl Question {
    /// Parses the parameters `start`, `end`, `m`, `ms` and `arrays` of an address.
    ///
    /// # Errors
    /// As [`parse_question`].
    pub fn of_address(query: &Query, now: Timestamp) -> Result<Question, QuestionError> {
        let one = |name| {
            query
                .one(name)
                .map_err(|error| QuestionError(error.to_string()))
        };
        let Some(start) = one("start")? else {
            return wrong("Missing the start time: start=1h-ago, for example");
        };
        if query.all("tsuid").next().is_some() {
            return wrong("queries by TSUID are not supported: query by metric and tags");
        }
        if one("tz")?.is_some() {
            return wrong("time zones are not supported");
        }
        let is = |name| one(name).map(|v| v.is_some_and(|v| v != "false"));
        let queries = query.all("m").map(parse_metric);
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        Ok(Question {
            range: range(start, one("end")?, now)?,
            milliseconds: is("ms")?,
            arrays: is("arrays")?,
            queries: counted(queries)?,
        })
    }
}

/// Reads `AGGREGATOR:[rate[{counter[,MAX[,RESET]]}]:][DOWNSAMPLE:][explicit_tags:]METRIC[{tags by
/// which to group}][{other tags}]`.
///
/// ```
/// let query = headwater_wire::opentsdb::parse_metric("sum:rate:1m-avg:sys.load{host=*}").unwrap();
/// assert_eq!(query.metric, "sys.load");
/// assert!(query.filters[0].group_by);
/// ```
///
/// # Errors
/// When a part is not of this form.
pub fn parse_metric(text: &str) -> Result<SubQuestion, QuestionError> {
    let (head, braces) = match metric_end(text) {
        Some(at) => text.split_at_checked(at).unwrap_or((text, "")),
        None => (text, ""),
    };
    let mut parts = split_outside(head, ':').into_iter();
    let aggregator = Aggregator::named(parts.next().unwrap_or_default())?;
    let mut rest: Vec<&str> = parts.collect();
    let Some(metric) = rest.pop().filter(|m| !m.is_empty()) else {
        return wrong(format!(
            "m={text}: expected AGGREGATOR:METRIC, such as sum:1m-avg:sys.load{{host=*}}"
        ));
    };
    let mut out = SubQuestion {
        metric: metric.to_owned(),
        aggregator,
        downsample: None,
        rate: None,
        filters: Vec::new(),
        explicit_tags: false,
    };
    for part in rest {
        if part == "explicit_tags" {
            out.explicit_tags = true;
        } else if let Some(options) = part.strip_prefix("rate") {
            out.rate = Some(rate(options)?);
        } else {
            out.downsample = Some(downsample(part)?);
        }
    }
    let mut left = braces;
    let mut group_by = true;
    while !left.is_empty() {
        let inner = left.strip_prefix('{').and_then(|l| l.split_once('}'));
        let Some((inner, behind)) = inner else {
            return wrong(format!("m={text}: expected tags in braces, found {left}"));
        };
        for tag in split_outside(inner, ',')
            .into_iter()
            .filter(|t| !t.is_empty())
        {
            let Some((key, value)) = tag.split_once('=') else {
                return wrong(format!("m={text}: expected tag=value, found {tag}"));
            };
            out.filters.push(TagFilter {
                key: key.trim().to_owned(),
                kind: FilterKind::short(value.trim())?,
                group_by,
            });
        }
        if out.filters.len() > FILTERS_MAX {
            return wrong(format!("more than {FILTERS_MAX} filters"));
        }
        left = behind.trim();
        group_by = false;
    }
    Ok(out)
}

/// Offset at which the braces of the tags begin: not the braces of `rate{…}`, which a colon
/// follows.
fn metric_end(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find('{')?;
        let Some(length) = text.get(at..)?.find('}') else {
            // The braces are not closed, which the parser of the tags reports.
            return Some(at);
        };
        let close = at + length;
        if !text.get(close + 1..)?.starts_with(':') {
            return Some(at);
        }
        from = close + 1;
    }
}

/// Splits at a character outside of braces and parentheses.
fn split_outside(text: &str, at: char) -> Vec<&str> {
    let mut depth = 0i32;
    text.split(|c: char| {
        match c {
            '{' | '(' => depth = depth.saturating_add(1),
            '}' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == at && depth <= 0
    })
    .collect()
}

/// `{counter,MAX,RESET}` or an empty text.
fn rate(options: &str) -> Result<Rate, QuestionError> {
    if options.is_empty() {
        return Ok(Rate::default());
    }
    let expected = || {
        QuestionError(format!(
            "rate{options}: expected rate, rate{{counter}}, rate{{dropcounter}} or rate{{counter,MAX,RESET}}"
        ))
    };
    let inner = options.strip_prefix('{').and_then(|o| o.strip_suffix('}'));
    let mut parts = inner.ok_or_else(expected)?.split(',');
    let drop_resets = match parts.next() {
        Some("counter") => false,
        Some("dropcounter") => true,
        _ => return Err(expected()),
    };
    let mut number = || match parts.next().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) => text.parse::<f64>().map(Some).map_err(|_| expected()),
    };
    Ok(Rate {
        counter: true,
        counter_max: number()?,
        reset_value: number()?,
        drop_resets,
    })
}
