//! Help with a text that is being typed at the prompt: whether it is whole, and completions of its
//! words.

use headwater_query::Session;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

/// Words that statements are made of.
const WORDS: &str = "ALTER AND AS ASC BETWEEN BY CASE COPY CREATE DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXPLAIN ANALYZE FROM GROUP \
    HAVING ILIKE IN INNER INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER OVER PARTITION SELECT SHOW \
    TABLE TABLES COLUMNS THEN TO UNION VALUES WHEN WHERE WITH avg( count( date_bin( first( last( max( min( now() stddev( \
    sum( time_bucket(";

/// The names of tables and columns, as they are written in statements.
#[derive(Default)]
pub(super) struct SqlHelper {
    pub(super) tables: Vec<String>,
    pub(super) columns: Vec<String>,
}

/// A name as it must be written: in quotes unless it is a plain lower-case word.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_word = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    let is_keyword = name != "time" && WORDS.split(' ').any(|w| w.eq_ignore_ascii_case(name));
    if is_word && !is_keyword && !name.is_empty() {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// True when a text can be run: a command of the prompt, or statements that have ended.
pub(super) fn is_whole(text: &str) -> bool {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with('\\') {
        return true;
    }
    // A text or comment that does not end swallows the semicolon.
    trimmed.ends_with(';') && Session::split(trimmed).is_ok()
}

impl Validator for SqlHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_whole(context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Completer for SqlHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(self.offers(line, position))
    }
}

impl SqlHelper {
    fn offers(&self, line: &str, position: usize) -> (usize, Vec<Pair>) {
        let before = line.get(..position).unwrap_or_default();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let word_start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_part(*c))
            .last()
            .map_or(before.len(), |(at, _)| at);
        // A quote in front belongs to the name.
        let quote = before.get(..word_start).unwrap_or_default();
        let start = if quote.ends_with('"') {
            word_start - 1
        } else {
            word_start
        };
        let typed = before.get(word_start..).unwrap_or_default().to_lowercase();
        let head = before.get(..start).unwrap_or_default().trim_end();
        let previous = head
            .rsplit(|c: char| !is_part(c))
            .next()
            .unwrap_or_default();
        let wants_table = ["from", "join", "into", "table", "describe", "copy"]
            .iter()
            .any(|word| previous.eq_ignore_ascii_case(word) && !head.ends_with(','))
            || head.trim_start() == "\\d";
        let names: Vec<&str> = if wants_table {
            self.tables.iter().map(String::as_str).collect()
        } else if head.ends_with('.') {
            self.columns.iter().map(String::as_str).collect()
        } else {
            let names = self.columns.iter().chain(&self.tables).map(String::as_str);
            names
                .chain(WORDS.split(' ').filter(|w| !w.is_empty()))
                .collect()
        };
        let mut offers: Vec<Pair> = Vec::new();
        for name in names {
            let plain = name.trim_start_matches('"').to_lowercase();
            if plain.starts_with(&typed) && !offers.iter().any(|o| o.replacement == name) {
                offers.push(Pair {
                    display: name.to_owned(),
                    replacement: name.to_owned(),
                });
            }
        }
        (start, offers)
    }
}

impl Hinter for SqlHelper {
    type Hint = String;
}

impl Highlighter for SqlHelper {}

impl Helper for SqlHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(marked: &str) -> Vec<String> {
        let helper = SqlHelper {
            tables: vec!["weather".to_owned(), quoted("Odd one")],
            columns: vec!["temp".to_owned(), quoted("group")],
        };
        let position = marked.find('|').unwrap_or(marked.len());
        let (start, offers) = helper.offers(&marked.replace('|', ""), position);
        assert!(start <= position);
        offers.into_iter().map(|o| o.replacement).collect()
    }

    #[test]
    fn tables_columns_and_words_are_offered_where_they_belong() {
        assert_eq!(offered("SELECT * FROM |"), ["weather", "\"Odd one\""]);
        assert_eq!(offered("SELECT * FROM \"od|"), ["\"Odd one\""]);
        assert_eq!(offered("\\d wea|"), ["weather"]);
        assert_eq!(offered("SELECT te|"), ["temp"]);
        assert_eq!(offered("SELECT w.gr|"), ["\"group\""]);
        assert_eq!(offered("sel|"), ["SELECT"]);
        assert_eq!(offered("SELECT zzz|"), Vec::<String>::new());
    }

    #[test]
    fn statements_go_on_until_a_semicolon_outside_of_texts() {
        for whole in [
            "",
            "\\dt",
            "SELECT 1;",
            "SELECT ';' ;\n",
            "SELECT 1; SELECT 2;",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for part in ["SELECT 1", "SELECT ';", "/* ;", "SELECT 1;\nSELECT 2"] {
            assert!(!is_whole(part), "{part}");
        }
    }
}
