//! Rewrites of syntax that the SQL library's parser does not support, before it parses a statement.
//!
//! Invariants: a statement without such syntax is unchanged; a replacement has the position of the
//! tokens that it replaces, so that errors have correct positions.

mod asof;
mod latest;
mod pattern;
mod snapshot;
mod watch;
pub(crate) mod words;

pub(crate) use asof::{INNER, LEFT};
pub(crate) use pattern::{APART, SOURCE};
pub(crate) use snapshot::{About, about, past_table};
pub(crate) use watch::{AboutWatch, CreateWatch, EventTarget, Since, WatchKind, about_watch};

use crate::error::Result;
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;

/// Rewrites the tokens of a statement for the parser.
pub(crate) fn rewrite(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let has = |wanted: &str| tokens.iter().any(|token| words::is_keyword(token, wanted));
    let (asof, latest, snapshots) = (has("ASOF"), has("LATEST"), has("SNAPSHOT"));
    if has("MATCH_RECOGNIZE") {
        tokens = pattern::rewrite(tokens)?;
    }
    if asof {
        tokens = asof::rewrite(tokens)?;
    }
    if latest {
        tokens = latest::rewrite(tokens)?;
    }
    if snapshots {
        tokens = snapshot::rewrite(tokens)?;
    }
    Ok(tokens)
}
