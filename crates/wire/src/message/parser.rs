//! Parser of many messages into one batch.
//!
//! Invariants: the meaning of a topic is computed once and cached, within the bound for names; the
//! rows of a stream are in the order of the messages.

use super::json::{self, Members, Scalar};
use super::rules::{MessageRules, Names, PayloadForm};
use super::value;
use crate::column_builder::ParsedValue;
use crate::lineprotocol::{LineParser, ParserOptions, Precision, next_instant};
use crate::parsed_batch::ParsedBatch;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::{StreamName, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

/// Approximate bytes of a cached topic in addition to its names.
const TOPIC_BYTES: usize = 250;

/// Turns messages into rows by rules; the first that match a topic count.
///
/// ```
/// use headwater_types::Timestamp;
/// use headwater_wire::lineprotocol::ParserOptions;
/// use headwater_wire::message::{MessageParser, MessageRules, PayloadForm, TopicPattern};
/// let mut rules = MessageRules::new(TopicPattern::parse("plant/{site}/{field}")?, PayloadForm::Value);
/// rules.table = Some("machines".to_owned());
/// let now = Timestamp::from_nanos(5);
/// let mut parser = MessageParser::new(vec![rules], ParserOptions::new(now));
/// parser.add("plant/oslo/temp", b"21.5", now, 1);
/// parser.add("plant/oslo/temp", b"NaN", now, 2);
/// let parsed = parser.take();
/// assert_eq!(parsed.batch.entries()[0].name.to_string(), "machines,site=oslo");
/// assert_eq!(parsed.refused[0].line, 2);
/// # Ok::<(), headwater_wire::message::PatternError>(())
/// ```
#[derive(Debug)]
pub struct MessageParser {
    rules: Arc<[MessageRules]>,
    lines: LineParser,
    topics: HashMap<Box<str>, Arc<Topic>>,
    topic_bytes: usize,
    parsed: ParsedBatch,
    /// First and last instant that the previous message assigned to rows without a time.
    assigned_times: (i64, i64),
}

/// Meaning of a topic.
#[derive(Debug)]
struct Topic {
    rules: usize,
    names: Names,
    /// The stream, as line protocol spells it; empty when members of the payload are tags too.
    stream: Vec<u8>,
    /// The field, as line protocol spells it.
    field: Vec<u8>,
}

impl MessageParser {
    /// A parser with an empty cache. Of the options, only limits are used; times and precision
    /// belong to messages and rules.
    #[must_use]
    pub fn new(rules: Vec<MessageRules>, options: ParserOptions) -> MessageParser {
        MessageParser {
            rules: rules.into(),
            lines: LineParser::new(options),
            topics: HashMap::new(),
            topic_bytes: 0,
            parsed: ParsedBatch::default(),
            assigned_times: (i64::MIN, i64::MIN),
        }
    }

    /// Reads a message that arrived at an instant, which is the time of rows without a time;
    /// further rows, of this message or of messages at the same instant, each get a time one
    /// nanosecond later. `number` identifies the message in refusals, and its rows in
    /// [`ParsedBatch::lines`].
    pub fn add(&mut self, topic: &str, payload: &[u8], arrived: Timestamp, number: u64) {
        self.parsed.line_count += 1;
        let mut arrived = arrived.as_nanos();
        let (first, last) = self.assigned_times;
        if (first..=last).contains(&arrived) {
            arrived = last.saturating_add(1);
        }
        let options = self.lines.options_mut();
        options.now = Timestamp::from_nanos(arrived);
        if let Err(fault) = self.message(topic, payload, number) {
            self.parsed.refuse(number, fault, payload);
        }
        let next = self.lines.options_mut().now.as_nanos();
        if next > arrived {
            self.assigned_times = (arrived, next.saturating_sub(1));
        }
    }

    /// Counts input that is refused before it is parsed as a message.
    pub(super) fn refuse(&mut self, number: u64, fault: Fault, original: &[u8]) {
        self.parsed.line_count += 1;
        self.parsed.refuse(number, fault, original);
    }

    /// Current instant according to the options.
    pub(super) fn now(&mut self) -> Timestamp {
        self.lines.options_mut().now
    }

    /// Time of a row without a time.
    fn next_instant(&mut self) -> Timestamp {
        let options = self.lines.options_mut();
        Timestamp::from_nanos(next_instant(options))
    }

    /// All rows and refusals since the last call.
    pub fn take(&mut self) -> ParsedBatch {
        let mut parsed = std::mem::take(&mut self.parsed);
        self.lines.take_into(&mut parsed);
        parsed
    }

    fn message(&mut self, topic: &str, payload: &[u8], number: u64) -> Result<(), Fault> {
        let topic = self.topic(topic)?;
        let rules = Arc::clone(&self.rules);
        let Some(rules) = rules.get(topic.rules) else {
            return Ok(());
        };
        match rules.payload {
            PayloadForm::LineProtocol => {
                let options = self.lines.options_mut();
                options.precision = rules.precision().unwrap_or(Precision::Auto);
                self.lines.add_lines(payload, number, &mut self.parsed);
                Ok(())
            }
            PayloadForm::Value => {
                let Some(scalar) = value::bare(payload)? else {
                    self.parsed.empty_rows += 1;
                    return Ok(());
                };
                let field = topic.names.field.as_deref().unwrap_or_default();
                let text_max = self.lines.options_mut().string_bytes_max;
                let found = value::value_for_field(field, &scalar, rules.type_of(field), text_max)?;
                let staged = found.map(|found| (topic.field.as_slice(), found));
                let staged: Vec<(&[u8], ParsedValue<'_>)> = staged.into_iter().collect();
                let time = self.next_instant();
                self.lines.add_row(&topic.stream, &staged, time, number)
            }
            PayloadForm::Json => self.json(rules, &topic, payload, number),
        }
    }

    fn json(
        &mut self,
        rules: &MessageRules,
        topic: &Topic,
        payload: &[u8],
        number: u64,
    ) -> Result<(), Fault> {
        let Ok(text) = std::str::from_utf8(payload) else {
            return Err(Fault::new(
                RefusalCode::Utf8,
                format!("the payload is not UTF-8: {}; JSON is", shown(payload)),
            ));
        };
        if text.trim_ascii().is_empty() {
            self.parsed.empty_rows += 1;
            return Ok(());
        }
        let rows = json::rows(text, self.lines.options_mut().fields_max)?;
        let is_one = rows.len() == 1;
        for members in rows {
            let added = self.json_row(rules, topic, &members, number);
            match added {
                Err(fault) if is_one => return Err(fault),
                // The other rows of an array are stored independently.
                Err(fault) => self.parsed.refuse(number, fault, payload),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn json_row(
        &mut self,
        rules: &MessageRules,
        topic: &Topic,
        members: &Members<'_>,
        number: u64,
    ) -> Result<(), Fault> {
        let time = match &rules.time {
            None => None,
            Some(path) => Some(value::time(members.get(path), path, &rules.time_format)?),
        };
        let with_tags;
        let stream = if rules.tag_members.is_empty() {
            &topic.stream
        } else {
            let mut tags = topic.names.tags.clone();
            for path in &rules.tag_members {
                let member = members.get(path);
                if rules.lacks_tags && matches!(member, None | Some(Scalar::Null)) {
                    continue;
                }
                tags.push((path.clone(), value::tag(member, path)?.to_owned()));
            }
            with_tags = stream_key(&topic.names.table, tags);
            &with_tags
        };
        let text_max = self.lines.options_mut().string_bytes_max;
        let mut staged: Vec<(Vec<u8>, ParsedValue<'_>)> = Vec::new();
        if let Some(path) = &rules.value {
            let Some(scalar) = members.get(path) else {
                return Err(Fault::new(
                    RefusalCode::Parse,
                    format!("the member `{path}`, which should have the value, is missing"),
                ));
            };
            let field = topic.names.field.as_deref().unwrap_or_default();
            let found = value::value_for_field(field, scalar, rules.type_of(field), text_max)?;
            staged.extend(found.map(|found| (topic.field.clone(), found)));
        } else {
            for (path, scalar) in members.iter() {
                let chosen = rules.only.as_ref();
                let is_other = rules.time.as_deref() == Some(path)
                    || rules.tag_members.iter().any(|member| member == path)
                    || chosen.is_some_and(|only| !only.iter().any(|member| member == path));
                if is_other {
                    continue;
                }
                let found = value::value_for_field(path, scalar, rules.type_of(path), text_max)?;
                staged.extend(found.map(|found| (field_key(path), found)));
            }
        }
        if staged.is_empty() {
            self.parsed.empty_rows += 1;
            return Ok(());
        }
        let time = time.unwrap_or_else(|| self.next_instant());
        self.lines.add_row(stream, &staged, time, number)
    }

    /// Meaning of a topic, from the cache if present.
    fn topic(&mut self, topic: &str) -> Result<Arc<Topic>, Fault> {
        if let Some(known) = self.topics.get(topic) {
            return Ok(Arc::clone(known));
        }
        let found = self
            .rules
            .iter()
            .enumerate()
            .find_map(|(at, rules)| Some((at, rules, rules.names_of(topic)?)));
        let Some((at, rules, names)) = found else {
            return Err(Fault::new(
                RefusalCode::Topic,
                format!(
                    "no subscription matches topic {}; it may be left over from one that was removed from the settings",
                    shown(topic.as_bytes())
                ),
            ));
        };
        let meaning = Topic {
            rules: at,
            stream: match rules.payload {
                PayloadForm::LineProtocol => Vec::new(),
                _ => stream_key(&names.table, names.tags.clone()),
            },
            field: field_key(names.field.as_deref().unwrap_or_default()),
            names,
        };
        let meaning = Arc::new(meaning);
        let bytes = TOPIC_BYTES + topic.len() * 3 + meaning.stream.len() * 2;
        if self.topic_bytes + bytes > self.lines.options_mut().cached_name_bytes_max {
            self.topics.clear();
            self.topic_bytes = 0;
        }
        self.topic_bytes += bytes;
        self.topics.insert(topic.into(), Arc::clone(&meaning));
        Ok(meaning)
    }
}

/// A stream spelled as at the front of a line, with the space after it.
fn stream_key(table: &str, tags: Vec<(String, String)>) -> Vec<u8> {
    let mut key = Vec::new();
    crate::lineprotocol::push_stream(&mut key, &StreamName::new(table, tags));
    key.push(b' ');
    key
}

/// A field as a line spells it.
fn field_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    crate::lineprotocol::push_field(&mut key, name);
    key
}
