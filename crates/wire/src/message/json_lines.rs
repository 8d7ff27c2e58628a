//! JSON lines from a reader, batch by batch.
//!
//! Invariants: a line is read as a JSON message is, and refused by itself; memory is bounded by the
//! batch size and the longest line; line numbers count from the start of the input. Failure: a bad
//! line is data: it is returned as a [`crate::RefusedLine`]. Only the reader's own errors end it.
//! Format: docs/format/jsonlines.md.

use super::parser::MessageParser;
use super::rules::{MessageRules, PayloadForm, RulesError};
use super::topic::TopicPattern;
use crate::lineprotocol::{ParserOptions, line_too_long};
use crate::parsed_batch::ParsedBatch;
use std::io::{self, BufRead, BufReader, Read};

/// The only topic of the rules.
const TOPIC: &str = "lines";
/// The byte order mark that some programs write in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads lines of JSON from any reader: each an object, which is a row, or an array of objects.
///
/// ```
/// use headwater_types::Timestamp;
/// use headwater_wire::lineprotocol::ParserOptions;
/// use headwater_wire::message::JsonLines;
/// let mut rules = JsonLines::<&[u8]>::rules("cpu");
/// rules.time = Some("at".to_owned());
/// rules.tag_members = vec!["host".to_owned()];
/// let input = &b"{\"at\":1700000000,\"host\":\"a\",\"load\":1.5}\n"[..];
/// let options = ParserOptions::new(Timestamp::from_nanos(0));
/// let mut lines = JsonLines::new(input, rules, options)?;
/// let parsed = lines.next_batch(1 << 20).unwrap().unwrap();
/// assert_eq!(parsed.batch.entries()[0].name.to_string(), "cpu,host=a");
/// # Ok::<(), headwater_wire::message::RulesError>(())
/// ```
#[derive(Debug)]
pub struct JsonLines<R> {
    reader: BufReader<R>,
    parser: MessageParser,
    line: Vec<u8>,
    line_bytes_max: usize,
    lines_read: u64,
}

impl<R: Read> JsonLines<R> {
    /// Rules for lines whose rows belong to a table, with defaults for all options. A line without
    /// a tag, or with `null` for it, leaves the tag out.
    #[must_use]
    pub fn rules(table: &str) -> MessageRules {
        let mut rules = MessageRules::new(TopicPattern::exactly(TOPIC), PayloadForm::Json);
        rules.table = Some(table.to_owned());
        rules.lacks_tags = true;
        rules
    }

    /// Creates a stream, without reading yet. Rows without a time get instants from
    /// [`ParserOptions::now`] on.
    ///
    /// # Errors
    /// When the rules are inconsistent.
    pub fn new(
        reader: R,
        rules: MessageRules,
        options: ParserOptions,
    ) -> Result<JsonLines<R>, RulesError> {
        rules.check()?;
        Ok(JsonLines {
            reader: BufReader::new(reader),
            line_bytes_max: options.line_bytes_max,
            parser: MessageParser::new(vec![rules], options),
            line: Vec::new(),
            lines_read: 0,
        })
    }

    /// Parses the next piece of about `bytes` bytes; `None` at the end of the input.
    ///
    /// # Errors
    /// When the reader fails.
    pub fn next_batch(&mut self, bytes: usize) -> io::Result<Option<ParsedBatch>> {
        let now = self.parser.now();
        let mut taken = 0;
        let before = self.lines_read;
        while taken < bytes.max(1) {
            self.line.clear();
            // One more byte than allowed, to distinguish a line that is too long from one of the
            // maximum length.
            let most = u64::try_from(self.line_bytes_max).unwrap_or(u64::MAX);
            let mut limited = self.reader.by_ref().take(most.saturating_add(2));
            let read = limited.read_until(b'\n', &mut self.line)?;
            if read == 0 {
                break;
            }
            taken += read;
            self.lines_read += 1;
            let is_whole = self.line.ends_with(b"\n");
            let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            if text.len() > self.line_bytes_max {
                let fault = line_too_long(self.line_bytes_max);
                self.parser.refuse(self.lines_read, fault, text);
                if !is_whole {
                    taken += self.reader.skip_until(b'\n')?;
                }
                continue;
            }
            let text = match self.lines_read {
                1 => text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text),
                _ => text,
            };
            self.parser.add(TOPIC, text, now, self.lines_read);
        }
        Ok((self.lines_read > before).then(|| self.parser.take()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::Timestamp;

    fn parsed(text: &str, rules: MessageRules, bytes: usize, longest: usize) -> Vec<ParsedBatch> {
        let mut options = ParserOptions::new(Timestamp::from_nanos(7));
        options.line_bytes_max = longest;
        let mut lines = JsonLines::new(text.as_bytes(), rules, options).unwrap();
        let mut all = Vec::new();
        while let Some(parsed) = lines.next_batch(bytes).unwrap() {
            all.push(parsed);
        }
        all
    }

    fn rules() -> MessageRules {
        let mut rules = JsonLines::<&[u8]>::rules("t");
        rules.time = Some("time".to_owned());
        rules.tag_members = vec!["dev".to_owned()];
        rules
    }

    #[test]
    fn a_line_is_a_row_and_a_bad_one_is_refused_alone() {
        let text = "\u{feff}{\"time\":1,\"dev\":\"a\",\"v\":1}\n\nnonsense\n[{\"time\":2,\"v\":2},{\"time\":3,\"dev\":null,\"v\":3}]\r\n{\"time\":4,\"dev\":7,\"v\":4}";
        for bytes in [1, 1 << 20] {
            let all = parsed(text, rules(), bytes, 1 << 20);
            let rows: usize = all.iter().map(|p| p.batch.row_count()).sum();
            let lines: u64 = all.iter().map(|p| p.line_count).sum();
            assert_eq!((rows, lines), (4, 5));
            let refused: Vec<u64> = all
                .iter()
                .flat_map(|p| &p.refused)
                .map(|r| r.line)
                .collect();
            assert_eq!(refused, [3]);
            let mut names: Vec<String> = all
                .iter()
                .flat_map(|p| p.batch.entries())
                .map(|entry| entry.name.to_string())
                .collect();
            names.dedup();
            assert_eq!(names, ["t,dev=a", "t", "t,dev=7"]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_whatever_is_in_it() {
        let good = "{\"time\":1,\"v\":1}";
        let long = format!("{{\"time\":2,\"v\":\"{}\"}}", "x".repeat(200));
        for text in [
            format!("{long}\n{good}\n"),
            format!("{good}\n{long}"),
            format!("{good}\n{long}\n"),
        ] {
            let all = parsed(&text, rules(), 1 << 20, good.len());
            assert_eq!(all.iter().map(|p| p.batch.row_count()).sum::<usize>(), 1);
            assert_eq!(all.iter().map(|p| p.refused.len()).sum::<usize>(), 1);
            assert_eq!(all.iter().map(|p| p.line_count).sum::<u64>(), 2);
        }
    }

    #[test]
    fn chosen_members_are_stored_and_no_others() {
        let mut rules = rules();
        rules.only = Some(vec!["a.b".to_owned()]);
        let all = parsed(
            "{\"time\":1,\"a\":{\"b\":1,\"c\":2},\"d\":3}\n{\"time\":2,\"d\":3}\n",
            rules,
            1 << 20,
            1 << 20,
        );
        let entry = &all[0].batch.entries()[0];
        assert_eq!(entry.fields.len(), 1);
        assert_eq!((entry.fields[0].0.as_str(), entry.times.len()), ("a.b", 1));
        assert_eq!(all[0].empty_rows, 1);
    }
}
