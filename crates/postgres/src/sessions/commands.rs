//! Statements that the session itself answers: settings, transactions, cursors, copies.

use super::copy::Copy;
use super::errors::error;
use super::tokens::{Token, tokens, wrong};
use crate::messages::{Notice, words};

/// A statement that the session answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// `BEGIN`, `START TRANSACTION`
    Begin,
    /// `COMMIT`, `END`
    Commit,
    /// `ROLLBACK`, `ABORT`
    Rollback,
    /// The command `SAVEPOINT`.
    Savepoint,
    /// The command `RELEASE`.
    Release,
    /// `ROLLBACK TO`
    RollbackTo,
    /// `SET`; without a value, back to the default.
    Set(String, Option<String>),
    /// An accepted command without effect; with its tag.
    NoEffect(&'static str),
    /// `RESET`; without a name, all.
    Reset(Option<String>),
    /// `SHOW`; without a name, all.
    Show(Option<String>),
    /// `DISCARD ALL`
    DiscardAll,
    /// `DEALLOCATE`; without a name, all.
    Deallocate(Option<String>),
    /// `DECLARE … CURSOR FOR …`; with where the query begins, in bytes.
    Declare {
        /// Name of the cursor.
        name: String,
        /// True when the cursor outlives its transaction.
        hold: bool,
        /// Offset of the query in the statement, in bytes.
        query_at: usize,
    },
    /// `FETCH` or `MOVE`; 0 rows = all.
    Fetch {
        /// Name of the cursor.
        name: String,
        /// The number of rows; `u64::MAX` = all.
        rows: u64,
        /// True when the rows are only skipped.
        silent: bool,
    },
    /// `CLOSE`; without a name, all.
    Close(Option<String>),
    /// The command `COPY`.
    Copy(Box<Copy>),
    /// `CREATE DATABASE`, of a name that is served anyway.
    CreateDatabase(String),
}

impl Command {
    /// True when the command is allowed after a failed statement: it ends the transaction, or rolls
    /// back to before the failure.
    pub(super) fn ends_transaction(&self) -> bool {
        matches!(
            self,
            Command::Commit | Command::Rollback | Command::RollbackTo
        )
    }

    /// Parses a command; `None` = not a command of this module, so the planner may accept it.
    ///
    /// # Errors
    /// When the command is malformed.
    pub(super) fn read(text: &str) -> Result<Option<Command>, Notice> {
        let first = words(text, 3);
        let Some(verb) = first.first().map(String::as_str) else {
            return Ok(None);
        };
        let second = first.get(1).map_or("", String::as_str);
        Ok(Some(match (verb, second) {
            ("BEGIN", _) | ("START", "TRANSACTION") => Command::Begin,
            ("COMMIT" | "END", _) => Command::Commit,
            ("ROLLBACK" | "ABORT", _) => {
                let tokens = tokens(text);
                match tokens.iter().any(|(token, _)| token.is("to")) {
                    true => Command::RollbackTo,
                    false => Command::Rollback,
                }
            }
            ("SAVEPOINT", _) => Command::Savepoint,
            ("RELEASE", _) => Command::Release,
            ("SET", "TABLE")
            | (
                "SHOW",
                "TABLES" | "COLUMNS" | "FUNCTIONS" | "CREATE" | "VIEWS" | "INDEXES" | "INDEX"
                | "INDICES" | "SNAPSHOTS" | "WATCHES",
            ) => return Ok(None),
            ("SET", _) => set(text)?,
            ("RESET", _) => return reset(text),
            ("SHOW", _) => return Ok(show(text)),
            ("CREATE", "DATABASE") => match name_after(text, 2).0 {
                Some(name) => Command::CreateDatabase(name),
                None => return Err(wrong("CREATE DATABASE", "CREATE DATABASE name")),
            },
            ("DROP", "DATABASE") => return Err(not_dropped()),
            ("DISCARD", "ALL") => Command::DiscardAll,
            ("DISCARD", "PLANS" | "TEMP" | "TEMPORARY" | "SEQUENCES") => {
                Command::NoEffect("DISCARD")
            }
            ("UNLISTEN", _) => Command::NoEffect("UNLISTEN"),
            ("DEALLOCATE", "PREPARE") => deallocate(text, 2)?,
            ("DEALLOCATE", _) => deallocate(text, 1)?,
            ("DECLARE", _) => declare(text)?,
            ("COPY", _) => Command::Copy(Box::new(Copy::read(text)?)),
            ("FETCH" | "MOVE", _) => fetch(text, verb == "MOVE")?,
            ("CLOSE", _) => close(text)?,
            _ => return Ok(None),
        }))
    }
}

/// The name at the token `at`, and the name after it.
fn name_after(text: &str, at: usize) -> (Option<String>, Option<String>) {
    let tokens = tokens(text);
    let name = |at: usize| tokens.get(at).and_then(|(token, _)| token.name());
    (name(at), name(at + 1))
}

/// Parses `RESET name`; `None` = left to the planner.
fn reset(text: &str) -> Result<Option<Command>, Notice> {
    match name_after(text, 1).0 {
        None => Err(wrong(
            "RESET",
            "RESET ALL, or RESET and the name of a setting",
        )),
        Some(name) if name == "all" => Ok(Some(Command::Reset(None))),
        Some(name) => Ok(Some(Command::Reset(Some(name)))),
    }
}

/// Parses `SHOW name`, and the names of several words; `None` = left to the planner.
fn show(text: &str) -> Option<Command> {
    let name = match name_after(text, 1) {
        (None, _) => return None,
        (Some(name), _) if name == "all" => return Some(Command::Show(None)),
        (Some(name), Some(zone)) if name == "time" && zone == "zone" => "timezone".to_owned(),
        (Some(name), Some(_)) if name == "transaction" => "transaction_isolation".to_owned(),
        (Some(name), Some(_)) if name == "session" => "session_authorization".to_owned(),
        (Some(name), _) => name,
    };
    Some(Command::Show(Some(name)))
}

/// Refuses `DROP DATABASE`.
fn not_dropped() -> Notice {
    Notice {
        hint: Some(
            "use DROP TABLE to drop tables; remove the directory to drop the database".to_owned(),
        ),
        ..error(
            "0A000",
            "DROP DATABASE: every name refers to the only database of this server, which cannot be dropped by a statement",
        )
    }
}

/// Reads `DEALLOCATE [PREPARE] name`, whose name is the token at `at`.
fn deallocate(text: &str, at: usize) -> Result<Command, Notice> {
    match name_after(text, at).0 {
        None => Err(wrong(
            "DEALLOCATE",
            "DEALLOCATE ALL, or DEALLOCATE and the name of a statement",
        )),
        Some(name) if name == "all" => Ok(Command::Deallocate(None)),
        Some(name) => Ok(Command::Deallocate(Some(name))),
    }
}

/// Reads `CLOSE name`.
fn close(text: &str) -> Result<Command, Notice> {
    match name_after(text, 1).0 {
        None => Err(wrong(
            "CLOSE",
            "CLOSE ALL, or CLOSE and the name of a cursor",
        )),
        Some(name) if name == "all" => Ok(Command::Close(None)),
        Some(name) => Ok(Command::Close(Some(name))),
    }
}

/// `SET [SESSION | LOCAL] name = value`, and the forms without a name.
fn set(text: &str) -> Result<Command, Notice> {
    const HOW: &str = "SET name = value, or SET name TO DEFAULT";
    let tokens: Vec<Token> = tokens(text).into_iter().map(|(token, _)| token).collect();
    let mut rest = &tokens[1..];
    if let [first, second, ..] = rest
        && (first.is("session") || first.is("local"))
        && !matches!(second, Token::Symbol(_))
        && !second.is("to")
    {
        rest = &rest[1..];
    }
    let values = |tokens: &[Token]| {
        let words: Vec<String> = tokens
            .iter()
            .filter(|token| **token != Token::Symbol(','))
            .map(Token::value)
            .collect();
        words.join(if tokens.contains(&Token::Symbol(',')) {
            ", "
        } else {
            ""
        })
    };
    let default = |tokens: &[Token]| matches!(tokens, [token] if token.is("default"));
    Ok(match rest {
        [first, ..]
            if first.is("transaction")
                || first.is("characteristics")
                || first.is("constraints") =>
        {
            Command::NoEffect("SET")
        }
        [first, ..] if first.is("role") || first.is("authorization") => {
            return Err(error(
                "0A000",
                "roles are not supported: rights come from the token of the session",
            ));
        }
        [time, zone, value @ ..] if time.is("time") && zone.is("zone") && !value.is_empty() => {
            Command::Set(
                "timezone".to_owned(),
                (!default(value)).then(|| values(value)),
            )
        }
        [names, value] if names.is("names") => Command::Set(
            "client_encoding".to_owned(),
            (!value.is("default")).then(|| value.value()),
        ),
        [name, equals, value @ ..]
            if (equals.is("to") || *equals == Token::Symbol('=')) && !value.is_empty() =>
        {
            let name = name.name().ok_or_else(|| wrong("SET", HOW))?;
            Command::Set(name, (!default(value)).then(|| values(value)))
        }
        _ => return Err(wrong("SET", HOW)),
    })
}

/// `DECLARE name [BINARY] [INSENSITIVE] [NO SCROLL] CURSOR [WITH HOLD] FOR query`
fn declare(text: &str) -> Result<Command, Notice> {
    const HOW: &str = "DECLARE name CURSOR [WITH HOLD] FOR query";
    let tokens = tokens(text);
    let name = tokens.get(1).and_then(|(token, _)| token.name());
    let head = tokens.iter().take(14);
    let until = head.clone().position(|(token, _)| token.is("for"));
    let (Some(name), Some(until)) = (name, until) else {
        return Err(wrong("DECLARE", HOW));
    };
    let options = &tokens[2..until.max(2)];
    if !options.iter().any(|(token, _)| token.is("cursor")) {
        return Err(wrong("DECLARE", HOW));
    }
    let scrolls = options
        .windows(2)
        .any(|pair| pair[1].0.is("scroll") && !pair[0].0.is("no"))
        || options.first().is_some_and(|(token, _)| token.is("scroll"));
    if scrolls || options.iter().any(|(token, _)| token.is("binary")) {
        return Err(error(
            "0A000",
            "cursors go forward only, and take the format from the client",
        ));
    }
    let hold = options
        .windows(2)
        .any(|pair| pair[0].0.is("with") && pair[1].0.is("hold"));
    Ok(Command::Declare {
        name,
        hold,
        query_at: tokens[until].1,
    })
}

/// `FETCH [NEXT | [FORWARD] count | [FORWARD] ALL] [FROM | IN] name`
fn fetch(text: &str, silent: bool) -> Result<Command, Notice> {
    let tokens: Vec<Token> = tokens(text).into_iter().map(|(token, _)| token).collect();
    let how = || {
        wrong(
            "FETCH",
            "FETCH count FROM cursor, or FETCH ALL FROM cursor; cursors go forward only",
        )
    };
    let (last, before) = tokens[1..].split_last().ok_or_else(how)?;
    let name = last.name().ok_or_else(how)?;
    let before = match before {
        [rest @ .., from] if from.is("from") || from.is("in") => rest,
        all => all,
    };
    let before = match before {
        [forward, rest @ ..] if forward.is("forward") => rest,
        all => all,
    };
    let rows = match before {
        [] => 1,
        [next] if next.is("next") => 1,
        [all] if all.is("all") => u64::MAX,
        [Token::Word(count)] => count.parse().map_err(|_| how())?,
        _ => return Err(how()),
    };
    Ok(Command::Fetch { name, rows, silent })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn commands_of_drivers_are_read() {
        let set = |name: &str, value: Option<&str>| {
            Command::Set(name.to_owned(), value.map(str::to_owned))
        };
        for (text, wanted) in [
            ("BEGIN READ ONLY", Command::Begin),
            (
                "start transaction isolation level serializable",
                Command::Begin,
            ),
            ("COMMIT", Command::Commit),
            ("rollback", Command::Rollback),
            ("ROLLBACK TO SAVEPOINT x", Command::RollbackTo),
            (
                "SET extra_float_digits = 3",
                set("extra_float_digits", Some("3")),
            ),
            (
                "set session datestyle to 'ISO, MDY'",
                set("datestyle", Some("ISO, MDY")),
            ),
            (
                "SET search_path = a, \"B\"",
                set("search_path", Some("a, B")),
            ),
            (
                "SET LOCAL statement_timeout = '5s'",
                set("statement_timeout", Some("5s")),
            ),
            ("SET TIME ZONE 'UTC'", set("timezone", Some("UTC"))),
            ("set names 'utf8'", set("client_encoding", Some("utf8"))),
            ("SET work_mem TO DEFAULT", set("work_mem", None)),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                Command::NoEffect("SET"),
            ),
            (
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                Command::NoEffect("SET"),
            ),
            (
                "SHOW TRANSACTION ISOLATION LEVEL",
                Command::Show(Some("transaction_isolation".to_owned())),
            ),
            ("show all", Command::Show(None)),
            (
                "SHOW Server_Version",
                Command::Show(Some("server_version".to_owned())),
            ),
            (
                "DEALLOCATE PREPARE \"Q\"",
                Command::Deallocate(Some("Q".to_owned())),
            ),
            ("RESET ALL", Command::Reset(None)),
            (
                "create database \"Bench\" OWNER ann",
                Command::CreateDatabase("Bench".to_owned()),
            ),
            ("CLOSE \"c\"", Command::Close(Some("c".to_owned()))),
            (
                "DECLARE \"c 1\" NO SCROLL CURSOR WITH HOLD FOR SELECT 1",
                Command::Declare {
                    name: "c 1".to_owned(),
                    hold: true,
                    query_at: 44,
                },
            ),
            (
                "FETCH FORWARD 100 FROM \"c\"",
                Command::Fetch {
                    name: "c".to_owned(),
                    rows: 100,
                    silent: false,
                },
            ),
            (
                "fetch c",
                Command::Fetch {
                    name: "c".to_owned(),
                    rows: 1,
                    silent: false,
                },
            ),
            (
                "MOVE ALL IN c",
                Command::Fetch {
                    name: "c".to_owned(),
                    rows: u64::MAX,
                    silent: true,
                },
            ),
        ] {
            assert_eq!(Command::read(text), Ok(Some(wanted)), "{text}");
        }
        for text in [
            "SELECT 1",
            "SHOW TABLES",
            "show views",
            "SHOW INDEXES FROM t",
            "SHOW SNAPSHOTS",
            "",
            "(select 1)",
            "EXPLAIN SELECT 1",
        ] {
            assert_eq!(Command::read(text), Ok(None), "{text}");
        }
        for text in [
            "SET",
            "SET x",
            "DECLARE c FOR SELECT 1",
            "FETCH BACKWARD 1 FROM c",
            "FETCH",
            "CLOSE",
            "RESET",
            "SET ROLE x",
        ] {
            assert!(Command::read(text).is_err(), "{text}");
        }
        assert_eq!(&"DECLARE c CURSOR FOR SELECT 'ä'"[20..], " SELECT 'ä'");
    }
}
