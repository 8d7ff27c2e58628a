//! Entries of `[[mqtt.subscription]]`: the meaning of messages by topic.
//!
//! Invariants: an entry is checked as a whole when it is read; an unknown key is an error that
//! names the nearest one; a shown entry is as written in the file.

use super::refusal::{SettingError, Source, nearest};
use headwater::FieldType;
use headwater_wire::csv::TimeFormat;
use headwater_wire::message::{MessageRules, PayloadForm, TimeReading, TopicPattern};
use toml::Value;

/// The name of the list in the file.
pub(super) const LIST: &str = "mqtt.subscription";

/// Subscription at the broker, and the meaning of its messages.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// Meaning of messages.
    pub rules: MessageRules,
    /// Leave out messages that the broker retained from before.
    pub skip_retained: bool,
    shown: Vec<(&'static str, String)>,
}

impl Subscription {
    /// Creates a subscription from rules, which must have been checked.
    #[must_use]
    pub fn new(rules: MessageRules) -> Subscription {
        Subscription {
            rules,
            skip_retained: false,
            shown: Vec::new(),
        }
    }

    /// Keys and values as written in the file.
    #[must_use]
    pub fn shown(&self) -> &[(&'static str, String)] {
        &self.shown
    }
}

/// A key of an entry.
#[derive(Debug)]
pub(super) struct EntryKey {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) allowed: &'static str,
    pub(super) about: &'static str,
    set: fn(&mut Draft, &Value) -> Result<(), String>,
}

/// An entry being read.
#[derive(Default)]
struct Draft {
    topic: Option<TopicPattern>,
    payload: Option<PayloadForm>,
    table: Option<String>,
    field: Option<String>,
    tags: Vec<(String, String)>,
    time: Option<String>,
    time_format: TimeReading,
    value: Option<String>,
    tag_members: Vec<String>,
    types: Vec<(String, FieldType)>,
    skip_retained: bool,
}

pub(super) static KEYS: &[EntryKey] = &[
    EntryKey {
        name: "topic",
        kind: "PATTERN",
        allowed: "levels between slashes: words, +, {name}; the last may be # or {name#}",
        about: "Topics to subscribe to, and the meaning of their levels: {table} and {field} name the table and the field, other names are tags. {name#} takes all levels that follow.",
        set: |draft, value| {
            let pattern = TopicPattern::parse(text(value)?).map_err(|error| error.to_string())?;
            draft.topic = Some(pattern);
            Ok(())
        },
    },
    EntryKey {
        name: "payload",
        kind: "FORM",
        allowed: "line-protocol, json or value",
        about: "How the payload is written; value is a bare number, true, false or text.",
        set: |draft, value| {
            let form = PayloadForm::from_name(text(value)?);
            draft.payload = Some(form.ok_or_else(|| "not one of the three".to_owned())?);
            Ok(())
        },
    },
    EntryKey {
        name: "table",
        kind: "NAME",
        allowed: "a name",
        about: "The table, if no level of the topic is {table}.",
        set: |draft, value| {
            draft.table = Some(text(value)?.to_owned());
            Ok(())
        },
    },
    EntryKey {
        name: "field",
        kind: "NAME",
        allowed: "a name",
        about: "The field of a single value, if no level of the topic is {field}.",
        set: |draft, value| {
            draft.field = Some(text(value)?.to_owned());
            Ok(())
        },
    },
    EntryKey {
        name: "tags",
        kind: "{ NAME = TEXT }",
        allowed: "names and texts",
        about: "Tags that all rows get, besides those from the topic.",
        set: |draft, value| {
            for (name, value) in table(value)? {
                draft.tags.push((name.clone(), text(value)?.to_owned()));
            }
            Ok(())
        },
    },
    EntryKey {
        name: "value",
        kind: "MEMBER",
        allowed: "the path of a member, such as reading.v",
        about: "JSON: the member with the value of the field that the topic names. Without it all members are fields, named by their paths.",
        set: |draft, value| {
            draft.value = Some(text(value)?.to_owned());
            Ok(())
        },
    },
    EntryKey {
        name: "time",
        kind: "MEMBER",
        allowed: "the path of a member",
        about: "JSON: the member that holds the time. Without it messages get the time of their arrival.",
        set: |draft, value| {
            draft.time = Some(text(value)?.to_owned());
            Ok(())
        },
    },
    EntryKey {
        name: "time_format",
        kind: "FORMAT",
        allowed: "auto, s, ms, us, ns, rfc3339, or a pattern such as %Y-%m-%d %H:%M:%S@Europe/Berlin",
        about: "How times are written, in JSON and in line protocol; auto infers the unit from the size of the number, and accepts RFC 3339 in JSON.",
        set: |draft, value| {
            draft.time_format = match text(value)? {
                "auto" => TimeReading::Auto,
                format => {
                    TimeReading::As(TimeFormat::parse(format).map_err(|error| error.to_string())?)
                }
            };
            Ok(())
        },
    },
    EntryKey {
        name: "tag_members",
        kind: "[MEMBER]",
        allowed: "paths of members",
        about: "JSON: members that are tags, not fields.",
        set: |draft, value| {
            let members = value
                .as_array()
                .ok_or_else(|| wrong("a list of texts", value))?;
            for member in members {
                draft.tag_members.push(text(member)?.to_owned());
            }
            Ok(())
        },
    },
    EntryKey {
        name: "types",
        kind: "{ FIELD = TYPE }",
        allowed: "f64, i64, u64, bool, string or bytes for each field",
        about: "Types of fields that cannot be inferred from their values: numbers are f64 unless listed here, and bytes are written in base 16.",
        set: |draft, value| {
            for (field, value) in table(value)? {
                let name = text(value)?;
                let field_type = FieldType::from_name(name);
                let field_type = field_type.ok_or_else(|| format!("`{name}` is not a type"))?;
                draft.types.push((field.clone(), field_type));
            }
            Ok(())
        },
    },
    EntryKey {
        name: "retained",
        kind: "WHAT",
        allowed: "take or skip",
        about: "What to do with retained messages of the broker; those without a time of their own get the time of their arrival.",
        set: |draft, value| {
            draft.skip_retained = match text(value)? {
                "take" => false,
                "skip" => true,
                _ => return Err("not one of the two".to_owned()),
            };
            Ok(())
        },
    },
];

/// Reads the list.
pub(super) fn read(
    entries: &[toml::Table],
    source: &Source,
) -> Result<Vec<Subscription>, SettingError> {
    let numbered = (1..).zip(entries);
    numbered
        .map(|(number, entry)| read_entry(number, entry, source))
        .collect()
}

fn read_entry(
    number: usize,
    entry: &toml::Table,
    source: &Source,
) -> Result<Subscription, SettingError> {
    let mut draft = Draft::default();
    let mut shown = Vec::new();
    for (name, value) in entry {
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| SettingError::Unknown {
            source_of: source.clone(),
            key: format!("{LIST}[{number}].{name}"),
            nearest: nearest(name, KEYS.iter().map(|key| key.name.to_owned())),
        })?;
        (key.set)(&mut draft, value).map_err(|reason| SettingError::Value {
            source_of: source.clone(),
            key: format!("{LIST}[{number}].{name}"),
            value: as_written(value),
            reason,
            allowed: key.allowed,
        })?;
        shown.push((key.name, as_written(value)));
    }
    let place = |key: &str| format!("{source}: {LIST}[{number}].{key}");
    let missing = |key: &str, what: &str| {
        SettingError::Together(format!("{}: missing; expected {what}", place(key)))
    };
    let topic = draft
        .topic
        .ok_or_else(|| missing("topic", "the topics to subscribe to"))?;
    let payload = draft.payload.ok_or_else(|| {
        missing(
            "payload",
            "the format of the messages: line-protocol, json or value",
        )
    })?;
    let rules = MessageRules {
        table: draft.table,
        field: draft.field,
        tags: draft.tags,
        time: draft.time,
        time_format: draft.time_format,
        value: draft.value,
        tag_members: draft.tag_members,
        types: draft.types,
        ..MessageRules::new(topic, payload)
    };
    rules.check().map_err(|error| {
        SettingError::Together(format!("{}: {}", place(error.key), error.reason))
    })?;
    Ok(Subscription {
        rules,
        skip_retained: draft.skip_retained,
        shown,
    })
}

fn wrong(expected: &str, value: &Value) -> String {
    format!("expected {expected}, found {}", value.type_str())
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| wrong("a text", value))
}

fn table(value: &Value) -> Result<&toml::Table, String> {
    value
        .as_table()
        .ok_or_else(|| wrong("{ name = \"text\" }", value))
}

/// A value as written in the file.
fn as_written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(quoted).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            let members = table.iter();
            let members: Vec<String> = members
                .map(|(name, value)| format!("{name} = {}", quoted(value)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        other => quoted(other),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(on) => on.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) | Value::Table(_) => as_written(value),
    }
}
