//! `headwater sync status --why`: the reasons of a cloud for what is here, and what is not.

use super::{ListFormat, edges_of};
use crate::arguments::parse_time;
use crate::failure::Failure;
use crate::grid::{Heading, bytes, printable, render};
use crate::output::{print, print_json};
use crate::server::Server;
use headwater::Timestamp;
use headwater_cluster::{LagStatus, RangeWhy, StreamWhy};
use headwater_wire::instant::Rfc3339;
use serde_json::json;

/// Prints the reasons for a stream, a first and a last instant.
pub(super) fn print_why(
    server: &Server,
    edge: Option<&str>,
    of: &[String],
    format: ListFormat,
) -> Result<(), Failure> {
    let [stream, from, to] = of else {
        return Err(Failure::usage("`--why`: expected STREAM FROM TO"));
    };
    let instant = |text: &str| parse_time(text).map_err(Failure::usage);
    let (from, to) = (instant(from)?, instant(to)?);
    let edge = match edge {
        Some(edge) => edge.to_owned(),
        None => match edges_of(server)?.as_slice() {
            [one] => one.name.clone(),
            _ => {
                return Err(Failure::usage(
                    "name the edge: `headwater sync status EDGE --why STREAM FROM TO`",
                ));
            }
        },
    };
    let answered = server.sync(&json!({
        "op": "why", "edge": edge, "stream": stream,
        "from_ns": from.as_nanos(), "to_ns": to.as_nanos(),
    }))?;
    if format == ListFormat::Json {
        return print_json(&answered.body);
    }
    let found: StreamWhy = serde_json::from_value(answered.body).map_err(Failure::failed)?;
    print(&format!("{}\n", lag_text(&found.lag)))?;
    let headings = [
        Heading::number("segment"),
        Heading::number("offset"),
        Heading::number("bytes"),
        Heading::text("state"),
        Heading::text("holds"),
        Heading::text("reason"),
        Heading::text("share"),
        Heading::number("priority"),
        Heading::number("pin"),
        Heading::text("score"),
    ];
    let rows: Vec<Vec<String>> = found.ranges.iter().map(cells).collect();
    print(&render(&headings, &rows))
}

fn cells(range: &RangeWhy) -> Vec<String> {
    let text = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    let is_known = range.reason.is_some();
    let if_known = |text: String| if is_known { text } else { String::new() };
    vec![
        range.segment.to_string(),
        if_known(range.offset.to_string()),
        if_known(bytes(range.bytes)),
        printable(&range.state.replace('_', " ")),
        text(&range.needed_for),
        text(&range.reason),
        text(&range.share),
        if_known(range.priority.to_string()),
        range.pin.map_or_else(String::new, |pin| pin.to_string()),
        text(&range.score),
    ]
}

/// Lag, its reason and its end in words.
pub(crate) fn lag_text(lag: &LagStatus) -> String {
    let mut text = match lag.seconds {
        Some(0) if lag.cause.is_none() => "nothing is missing".to_owned(),
        Some(seconds) => duration(seconds),
        None => "unknown".to_owned(),
    };
    if let Some(cause) = lag.cause {
        text.push_str(&format!(": {}", cause.text()));
    }
    if let Some(until) = lag.until_ns {
        let until = Rfc3339(Timestamp::from_nanos(until));
        text.push_str(&format!(", until {until}"));
    }
    if let Some(left) = lag.seconds_left {
        text.push_str(&format!(", {} left", duration(left)));
    }
    if let Some(millis) = lag.live_ms {
        let seconds = millis / 1_000;
        let shown = match millis {
            0..10_000 => format!("{seconds}.{} s", millis % 1_000 / 100),
            _ => duration(seconds),
        };
        text.push_str(&format!("; newest values came after {shown}"));
    }
    // A second is within what the way may explain.
    if let Some(clock) = lag.clock_ms.filter(|clock| clock.unsigned_abs() > 2_000) {
        let side = if clock > 0 { "ahead" } else { "behind" };
        let by = duration(clock.unsigned_abs() / 1_000);
        text.push_str(&format!("; its clock is {by} {side}"));
    }
    text
}

/// A whole number of seconds in the largest unit that shows it well.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_cluster::LagCause;

    #[test]
    fn a_lag_says_why_and_until_when() {
        let lag = LagStatus {
            seconds: Some(7_000),
            cause: Some(LagCause::QuietHours),
            until_ns: Some(1_796_083_200_000_000_000),
            seconds_left: Some(90),
            ..LagStatus::default()
        };
        assert_eq!(
            lag_text(&lag),
            "116 min: it has quiet hours, until 2026-12-01T00:00:00Z, 90 s left"
        );
        let none = LagStatus {
            seconds: Some(0),
            ..LagStatus::default()
        };
        assert_eq!(lag_text(&none), "nothing is missing");
        let unknown = LagStatus {
            cause: Some(LagCause::NotConnected),
            ..LagStatus::default()
        };
        assert_eq!(lag_text(&unknown), "unknown: it is not connected");
        let live = LagStatus {
            live_ms: Some(1_460),
            clock_ms: Some(-3_600_000),
            ..none
        };
        assert_eq!(
            lag_text(&live),
            "nothing is missing; newest values came after 1.4 s; its clock is 60 min behind"
        );
        let late = LagStatus {
            live_ms: Some(130_000),
            clock_ms: Some(900),
            ..none
        };
        assert_eq!(
            lag_text(&late),
            "nothing is missing; newest values came after 2 min"
        );
    }
}
