//! The statements about watches: `CREATE WATCH`, `DROP WATCH` and `SHOW WATCHES`.
//!
//! ```text
//! CREATE WATCH [IF NOT EXISTS] name [WITH (option = 'value', …)] AS
//!   SELECT … MATCH_RECOGNIZE (…)
//!   | ABSENCE OF table [WHERE condition] FOR INTERVAL '…' [PER column, …]
//! ```

use super::words::{self, next_token, skip_keywords, syntax_error};
use crate::error::{Error, Result};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use headwater_wire::durations::parse_duration_ns;
use headwater_wire::instant::parse_instant;

/// Start of a watch's search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Rows after the newest row at the time of the statement.
    Now,
    Beginning,
    At(i64),
}

/// Target of its events besides subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventTarget {
    Hook(String),
    Topic(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) lateness_ns: i64,
    pub(crate) corrections_ns: i64,
    pub(crate) since: Since,
    pub(crate) target: Option<EventTarget>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    /// The matches of a query.
    Pattern(String),
    Absence {
        table: String,
        condition: Option<String>,
        /// Duration without a row, as text.
        length: String,
        per: Option<Vec<String>>,
    },
}

/// A parsed `CREATE WATCH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateWatch {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) options: Options,
    pub(crate) kind: WatchKind,
}

/// Statements about watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AboutWatch {
    Create(Box<CreateWatch>),
    Drop { name: String, if_exists: bool },
    Show,
}

const MINUTE_NS: i64 = 60_000_000_000;

/// Parses a statement about watches; `None` for other statements.
pub(crate) fn about_watch(sql: &str, tokens: &[TokenWithSpan]) -> Result<Option<AboutWatch>> {
    if let Some(at) = skip_keywords(tokens, 0, &["SHOW", "WATCHES"]) {
        at_end(tokens, at)?;
        return Ok(Some(AboutWatch::Show));
    }
    if let Some(at) = skip_keywords(tokens, 0, &["DROP", "WATCH"]) {
        let conditional = skip_keywords(tokens, at, &["IF", "EXISTS"]);
        let (name, at) = name(tokens, conditional.unwrap_or(at), "a watch")?;
        at_end(tokens, at)?;
        return Ok(Some(AboutWatch::Drop {
            name,
            if_exists: conditional.is_some(),
        }));
    }
    let Some(at) = skip_keywords(tokens, 0, &["CREATE", "WATCH"]) else {
        return Ok(None);
    };
    let conditional = skip_keywords(tokens, at, &["IF", "NOT", "EXISTS"]);
    let (name, at) = name(tokens, conditional.unwrap_or(at), "a watch")?;
    let (options, at) = match skip_keywords(tokens, at, &["WITH"]) {
        None => (Options::default(), at),
        Some(at) => options(tokens, at)?,
    };
    let Some(at) = skip_keywords(tokens, at, &["AS"]) else {
        let found = next_token(tokens, at).and_then(|at| tokens.get(at));
        return Err(syntax_error(
            "expected AS and a query, or AS ABSENCE OF a table, after the name of a watch",
            found,
        ));
    };
    let kind = match skip_keywords(tokens, at, &["ABSENCE", "OF"]) {
        Some(at) => absence(sql, tokens, at)?,
        None => WatchKind::Pattern(slice(sql, tokens, at, last(tokens)).to_owned()),
    };
    Ok(Some(AboutWatch::Create(Box::new(CreateWatch {
        name,
        if_not_exists: conditional.is_some(),
        options,
        kind,
    }))))
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lateness_ns: 0,
            corrections_ns: 60 * MINUTE_NS,
            since: Since::Now,
            target: None,
        }
    }
}

/// A name, and the position after it.
fn name(tokens: &[TokenWithSpan], at: usize, what: &str) -> Result<(String, usize)> {
    let place = next_token(tokens, at);
    let token = place.and_then(|at| tokens.get(at));
    match (token.map(|token| &token.token), place) {
        (Some(Token::Word(word)), Some(place)) => {
            let name = match word.quote_style {
                Some(_) => word.value.clone(),
                None => word.value.to_lowercase(),
            };
            if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
                let expected = "expected a name of 1 to 128 bytes without control characters";
                return Err(syntax_error(expected, token));
            }
            Ok((name, place + 1))
        }
        _ => Err(syntax_error(format!("expected the name of {what}"), token)),
    }
}

/// Options in the brackets after `WITH`, and the position after them.
fn options(tokens: &[TokenWithSpan], at: usize) -> Result<(Options, usize)> {
    let get = |at: Option<usize>| at.and_then(|at| tokens.get(at));
    let mut options = Options::default();
    let mut at = next_token(tokens, at);
    if get(at).is_none_or(|token| token.token != Token::LParen) {
        return Err(syntax_error("expected ( and options after WITH", get(at)));
    }
    loop {
        let (key, behind) = name(tokens, at.map_or(0, |at| at + 1), "an option")?;
        let equals = next_token(tokens, behind);
        if get(equals).is_none_or(|token| token.token != Token::Eq) {
            return Err(syntax_error(
                format!("expected = and a string after {key}"),
                get(equals),
            ));
        }
        let value = equals.and_then(|at| next_token(tokens, at + 1));
        let Some(Token::SingleQuotedString(text)) = get(value).map(|token| &token.token) else {
            return Err(syntax_error(
                format!("expected a quoted string for {key}"),
                get(value),
            ));
        };
        option(&mut options, &key, text).map_err(|e| e.located(words::position(get(value))))?;
        at = value.and_then(|at| next_token(tokens, at + 1));
        match get(at).map(|token| &token.token) {
            Some(Token::Comma) => {}
            Some(Token::RParen) => return Ok((options, at.map_or(0, |at| at + 1))),
            _ => return Err(syntax_error("expected , or ) after an option", get(at))),
        }
    }
}

fn option(options: &mut Options, key: &str, text: &str) -> Result<()> {
    let length = || {
        // A zero duration is invalid in other options.
        let is_nothing = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0";
        let length = match is_nothing {
            true => Some(0),
            false => parse_duration_ns(text).ok().filter(|ns| *ns >= 0),
        };
        length.ok_or_else(|| {
            let message = format!("{key}: expected a length of time, found '{text}'");
            Error::invalid_value(message).with_hint("for example '10s' or '1h'")
        })
    };
    let mut goes = |target: EventTarget| match options.target.replace(target) {
        None => Ok(()),
        Some(_) => Err(
            Error::unsupported("a watch can have only one of hook and topic")
                .with_hint("create a second watch for the other one"),
        ),
    };
    match key {
        "lateness" => options.lateness_ns = length()?,
        "corrections" => options.corrections_ns = length()?,
        "since" => {
            options.since = match text {
                "now" => Since::Now,
                "beginning" => Since::Beginning,
                instant => Since::At(
                    parse_instant(instant)
                        .map_err(|why| Error::invalid_value(format!("since: {why}")))?
                        .as_nanos(),
                ),
            };
        }
        "hook" if text.starts_with("https://") || text.starts_with("http://") => {
            goes(EventTarget::Hook(text.to_owned()))?;
        }
        "hook" => {
            let message = format!("hook: expected http:// or https://, found '{text}'");
            return Err(Error::invalid_value(message));
        }
        "topic" if !text.is_empty() && !text.contains(['+', '#', '\0']) && text.len() <= 1024 => {
            goes(EventTarget::Topic(text.to_owned()))?;
        }
        "topic" => {
            let message = "topic: expected a topic of 1 to 1024 bytes without + and #";
            return Err(Error::invalid_value(message));
        }
        other => {
            return Err(
                Error::unsupported(format!("a watch has no option `{other}`"))
                    .with_hint("options are lateness, corrections, since, hook and topic"),
            );
        }
    }
    Ok(())
}

/// Parses the tokens after `ABSENCE OF`.
fn absence(sql: &str, tokens: &[TokenWithSpan], at: usize) -> Result<WatchKind> {
    let (table, mut at) = name(tokens, at, "a table")?;
    let mut condition = None;
    if let Some(begin) = skip_keywords(tokens, at, &["WHERE"]) {
        let mut deep = 0;
        let mut end = begin;
        while let Some(token) = tokens.get(end) {
            if deep == 0 && words::is_keyword(token, "FOR") {
                break;
            }
            deep += words::bracket_depth(token);
            end += 1;
        }
        condition = Some(slice(sql, tokens, begin, end).trim().to_owned());
        at = end;
    }
    let interval = skip_keywords(tokens, at, &["FOR", "INTERVAL"]);
    let Some(at) = interval.and_then(|at| next_token(tokens, at)) else {
        let found = next_token(tokens, at).and_then(|at| tokens.get(at));
        return Err(syntax_error(
            "expected FOR INTERVAL '…', the time without a row",
            found,
        ));
    };
    let token = tokens.get(at);
    let Some(Token::SingleQuotedString(length)) = token.map(|token| &token.token) else {
        let expected = "expected a length of time in quotes, such as '5 minutes'";
        return Err(syntax_error(expected, token));
    };
    let mut at = at + 1;
    let mut per = None;
    if let Some(behind) = skip_keywords(tokens, at, &["PER"]) {
        let mut columns = Vec::new();
        let (first, behind) = name(tokens, behind, "a column")?;
        columns.push(first);
        at = behind;
        while let Some(comma) = next_token(tokens, at)
            && tokens.get(comma).is_some_and(|t| t.token == Token::Comma)
        {
            let (column, behind) = name(tokens, comma + 1, "a column")?;
            columns.push(column);
            at = behind;
        }
        per = Some(columns);
    }
    at_end(tokens, at)?;
    Ok(WatchKind::Absence {
        table,
        condition,
        length: length.clone(),
        per,
    })
}

fn at_end(tokens: &[TokenWithSpan], from: usize) -> Result<()> {
    let ends = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
    let rest = tokens.iter().skip(from).filter(|t| !words::is_space(t));
    match rest.into_iter().find(|token| !ends(token)) {
        None => Ok(()),
        more => Err(syntax_error("expected the end of the statement", more)),
    }
}

/// The position of the end of the statement.
fn last(tokens: &[TokenWithSpan]) -> usize {
    let ends = |token: &&TokenWithSpan| {
        matches!(token.token, Token::SemiColon | Token::EOF) || words::is_space(token)
    };
    tokens.len() - tokens.iter().rev().take_while(ends).count()
}

/// The text from one word to before another.
fn slice<'a>(sql: &'a str, tokens: &[TokenWithSpan], from: usize, to: usize) -> &'a str {
    let begin = next_token(tokens, from).and_then(|at| tokens.get(at));
    let offset = |token: Option<&TokenWithSpan>| {
        let place = token.map(|token| token.span.start).filter(|s| s.line > 0);
        place.map_or(sql.len(), |place| offset(sql, place.line, place.column))
    };
    sql.get(offset(begin)..offset(tokens.get(to))).unwrap_or("")
}

/// Byte offset of a line and column of a text.
fn offset(sql: &str, line: u64, column: u64) -> usize {
    let mut at = (1, 1);
    for (offset, char) in sql.char_indices() {
        if at >= (line, column) {
            return offset;
        }
        at = match char {
            '\n' => (at.0 + 1, 1),
            _ => (at.0, at.1 + 1),
        };
    }
    sql.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::complexity;

    fn read(sql: &str) -> Result<Option<AboutWatch>> {
        about_watch(sql, &complexity::tokens(sql).unwrap())
    }

    fn parse_create(sql: &str) -> CreateWatch {
        match read(sql).unwrap() {
            Some(AboutWatch::Create(made)) => *made,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn watches_are_read() {
        let sql = "CREATE WATCH Ä1 WITH (lateness = '10s', hook='https://h.example/x',\n since = 'beginning') AS\n  SELECT 'ä;' FROM t ; ";
        let watch = parse_create(sql);
        assert_eq!(watch.name, "ä1");
        assert_eq!(watch.kind, WatchKind::Pattern("SELECT 'ä;' FROM t".into()));
        assert_eq!(watch.options.lateness_ns, 10_000_000_000);
        assert_eq!(watch.options.since, Since::Beginning);
        let hook = EventTarget::Hook("https://h.example/x".into());
        assert_eq!(watch.options.target, Some(hook));
        let sql = "create watch if not exists w as absence of Pumps where id in ('a', 'for') and (x = 'y') for interval '5 minutes' per site, \"Line\";";
        let watch = parse_create(sql);
        assert!(watch.if_not_exists);
        assert_eq!(
            watch.kind,
            WatchKind::Absence {
                table: "pumps".into(),
                condition: Some("id in ('a', 'for') and (x = 'y')".into()),
                length: "5 minutes".into(),
                per: Some(vec!["site".into(), "Line".into()]),
            }
        );
        let drop = AboutWatch::Drop {
            name: "a b".into(),
            if_exists: true,
        };
        assert_eq!(read("DROP WATCH IF EXISTS \"a b\"").unwrap(), Some(drop));
        assert_eq!(read("SHOW WATCHES;").unwrap(), Some(AboutWatch::Show));
        assert_eq!(read("SELECT 1").unwrap(), None);
    }

    #[test]
    fn what_is_wrong_with_a_watch_is_told() {
        for (sql, code) in [
            ("CREATE WATCH", "syntax_error"),
            ("CREATE WATCH w SELECT 1", "syntax_error"),
            (
                "CREATE WATCH w WITH lateness = '1s' AS SELECT 1",
                "syntax_error",
            ),
            (
                "CREATE WATCH w WITH (lateness = 1) AS SELECT 1",
                "syntax_error",
            ),
            (
                "CREATE WATCH w WITH (lateness = 'x') AS SELECT 1",
                "invalid_value",
            ),
            (
                "CREATE WATCH w WITH (since = 'x') AS SELECT 1",
                "invalid_value",
            ),
            (
                "CREATE WATCH w WITH (hook = 'ftp://x') AS SELECT 1",
                "invalid_value",
            ),
            (
                "CREATE WATCH w WITH (topic = 'a/#') AS SELECT 1",
                "invalid_value",
            ),
            (
                "CREATE WATCH w WITH (topic = 'a', hook = 'http://x') AS SELECT 1",
                "unsupported",
            ),
            (
                "CREATE WATCH w WITH (mail = 'a') AS SELECT 1",
                "unsupported",
            ),
            ("CREATE WATCH w AS ABSENCE OF t", "syntax_error"),
            (
                "CREATE WATCH w AS ABSENCE OF t FOR INTERVAL 5",
                "syntax_error",
            ),
            (
                "CREATE WATCH w AS ABSENCE OF t FOR INTERVAL '5 min' x",
                "syntax_error",
            ),
            ("DROP WATCH a b", "syntax_error"),
            ("SHOW WATCHES x", "syntax_error"),
        ] {
            assert_eq!(read(sql).unwrap_err().code, code, "{sql}");
        }
    }
}
