//! Rules for the messages of some topics.

use super::topic::TopicPattern;
use crate::csv::TimeFormat;
use crate::lineprotocol::Precision;
use headwater_types::FieldType;

/// The name of a level that is the field.
const FIELD: &str = "field";
/// The name of a level that is the table.
const TABLE: &str = "table";

/// Form of the payload of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadForm {
    /// Lines of line protocol, which name tables, tags and fields themselves.
    LineProtocol,
    /// An object whose members are fields, or an array of objects.
    Json,
    /// A bare number, boolean or text: the value of one field.
    Value,
}

impl PayloadForm {
    /// Reads `line-protocol`, `json` or `value`.
    ///
    /// ```
    /// use headwater_wire::message::PayloadForm;
    /// assert_eq!(PayloadForm::from_name("json"), Some(PayloadForm::Json));
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<PayloadForm> {
        match name {
            "line-protocol" => Some(PayloadForm::LineProtocol),
            "json" => Some(PayloadForm::Json),
            "value" => Some(PayloadForm::Value),
            _ => None,
        }
    }

    /// The name that [`PayloadForm::from_name`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PayloadForm::LineProtocol => "line-protocol",
            PayloadForm::Json => "json",
            PayloadForm::Value => "value",
        }
    }
}

/// Form of times.
#[derive(Clone, Debug, Default)]
pub enum TimeReading {
    /// A number in the unit that its size shows, or RFC 3339.
    #[default]
    Auto,
    /// In this format.
    As(TimeFormat),
}

/// Rules for messages whose topics match a pattern. Plain data; [`MessageRules::check`] validates
/// them.
#[derive(Clone, Debug)]
pub struct MessageRules {
    /// Matching topics, and the names of their levels. Levels called `table` and `field` name the
    /// table and the field; the others are tags.
    pub topic: TopicPattern,
    /// The form of the payload.
    pub payload: PayloadForm,
    /// The table, if no level of the topic names it.
    pub table: Option<String>,
    /// The field of a single value, if no level of the topic names it.
    pub field: Option<String>,
    /// Tags added to all streams.
    pub tags: Vec<(String, String)>,
    /// JSON: the path of the member with the time. Without a path the time of arrival is used.
    pub time: Option<String>,
    /// The form of the time.
    pub time_format: TimeReading,
    /// JSON: path of the only member that is the value of the field which the topic names.
    pub value: Option<String>,
    /// JSON: paths of members that are tags.
    pub tag_members: Vec<String>,
    /// JSON: a row without a member for a tag, or with `null` for it, leaves the tag out; otherwise
    /// such a row is refused.
    pub lacks_tags: bool,
    /// JSON: paths of the members that are fields; `None` = all that are not time or tags.
    pub only: Option<Vec<String>>,
    /// Types of fields whose numbers are not `f64`, or whose values are written in another type.
    pub types: Vec<(String, FieldType)>,
}

/// Rules that are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct RulesError {
    /// The wrong or missing setting.
    pub key: &'static str,
    /// Reason, and remedy.
    pub reason: String,
}

impl MessageRules {
    /// Rules for a pattern, with defaults for all options.
    #[must_use]
    pub fn new(topic: TopicPattern, payload: PayloadForm) -> MessageRules {
        MessageRules {
            topic,
            payload,
            table: None,
            field: None,
            tags: Vec::new(),
            time: None,
            time_format: TimeReading::Auto,
            value: None,
            tag_members: Vec::new(),
            lacks_tags: false,
            only: None,
            types: Vec::new(),
        }
    }

    /// Checks that the parts are consistent.
    ///
    /// ```
    /// use headwater_wire::message::{MessageRules, PayloadForm, TopicPattern};
    /// let mut rules = MessageRules::new(TopicPattern::parse("a/{field}")?, PayloadForm::Value);
    /// assert_eq!(rules.check().unwrap_err().key, "table");
    /// rules.table = Some("machines".to_owned());
    /// assert!(rules.check().is_ok());
    /// # Ok::<(), headwater_wire::message::PatternError>(())
    /// ```
    ///
    /// # Errors
    /// Names the key that is missing, or that has no meaning with this payload.
    pub fn check(&self) -> Result<(), RulesError> {
        match self.payload {
            PayloadForm::LineProtocol => self.check_line_protocol(),
            PayloadForm::Json => self.check_json(),
            PayloadForm::Value => self.check_value(),
        }
    }

    fn captures(&self, name: &str) -> bool {
        self.topic.names().any(|kept| kept == name)
    }

    fn check_line_protocol(&self) -> Result<(), RulesError> {
        let given = [
            ("table", self.table.is_some()),
            ("field", self.field.is_some()),
            ("tags", !self.tags.is_empty()),
            ("time", self.time.is_some()),
            ("value", self.value.is_some()),
            ("tag_members", !self.tag_members.is_empty()),
            ("types", !self.types.is_empty()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            return error(
                key,
                "has no effect with payload = \"line-protocol\", whose lines specify it themselves",
            );
        }
        if let Some(name) = self.topic.names().next() {
            return error(
                "topic",
                format!(
                    "{{{name}}} has no effect with payload = \"line-protocol\", whose lines name tables, tags and fields themselves: write + instead"
                ),
            );
        }
        match self.precision() {
            Some(_) => Ok(()),
            None => error(
                "time_format",
                "line protocol has times in s, ms, us or ns; auto infers the unit from their size",
            ),
        }
    }

    fn check_json(&self) -> Result<(), RulesError> {
        self.check_names()?;
        let names_field = self.field.is_some() || self.captures(FIELD);
        match (names_field, &self.value) {
            (true, None) => error(
                "value",
                "the topic names a field, so `value` must name the member of the JSON with its value; without {field} every member is a field",
            ),
            (false, Some(_)) => error(
                "field",
                "`value` takes one member, so the field must be named: by `field`, or by a level {field} of the topic",
            ),
            _ => Ok(()),
        }
    }

    fn check_value(&self) -> Result<(), RulesError> {
        self.check_names()?;
        let given = [
            ("time", self.time.is_some()),
            ("value", self.value.is_some()),
            ("tag_members", !self.tag_members.is_empty()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            return error(
                key,
                "has no effect with payload = \"value\", which has no members",
            );
        }
        if self.field.is_none() && !self.captures(FIELD) {
            return error(
                "field",
                "a bare value needs a field: name it by `field`, or by a level {field} of the topic",
            );
        }
        Ok(())
    }

    /// Checks that table, field and tags are each named once.
    fn check_names(&self) -> Result<(), RulesError> {
        match (&self.table, self.captures(TABLE)) {
            (Some(_), true) => {
                return error(
                    "table",
                    "a level {table} of the topic names the table already",
                );
            }
            (None, false) => {
                return error(
                    "table",
                    "the table is not named: set `table`, or make a level of the topic {table}",
                );
            }
            _ => {}
        }
        if self.field.is_some() && self.captures(FIELD) {
            return error(
                "field",
                "a level {field} of the topic names the field already",
            );
        }
        let empty = [("table", &self.table), ("field", &self.field)];
        if let Some((key, _)) = empty
            .into_iter()
            .find(|(_, name)| name.as_ref().is_some_and(String::is_empty))
        {
            return error(key, "the name is empty");
        }
        let mut names: Vec<(&str, &'static str)> =
            self.levels_as_tags().map(|n| (n, "topic")).collect();
        let given = self.tags.iter().map(|(name, _)| (name.as_str(), "tags"));
        let members = self.tag_members.iter().map(|m| (m.as_str(), "tag_members"));
        for (name, key) in given.chain(members) {
            if name.is_empty() {
                return error(key, "a name is empty");
            }
            if names.iter().any(|(other, _)| *other == name) {
                return error(key, format!("tag `{name}` is named twice"));
            }
            names.push((name, key));
        }
        if let Some((name, _)) = self.tags.iter().find(|(_, value)| value.is_empty()) {
            return error(
                "tags",
                format!("tag `{name}` is empty: leave it out instead"),
            );
        }
        Ok(())
    }

    /// Levels of the topic that are tags.
    fn levels_as_tags(&self) -> impl Iterator<Item = &str> {
        self.topic
            .names()
            .filter(|name| *name != FIELD && *name != TABLE)
    }

    /// The unit of the stamps of line protocol.
    pub(super) fn precision(&self) -> Option<Precision> {
        use crate::csv::TimeUnit;
        match &self.time_format {
            TimeReading::Auto => Some(Precision::Auto),
            TimeReading::As(TimeFormat::Unit(unit)) => Some(match unit {
                TimeUnit::Seconds => Precision::Seconds,
                TimeUnit::Milliseconds => Precision::Milliseconds,
                TimeUnit::Microseconds => Precision::Microseconds,
                TimeUnit::Nanoseconds => Precision::Nanoseconds,
            }),
            TimeReading::As(_) => None,
        }
    }

    /// Declared type of a field.
    pub(super) fn type_of(&self, field: &str) -> Option<FieldType> {
        let found = self.types.iter().find(|(name, _)| name == field);
        found.map(|(_, field_type)| *field_type)
    }

    /// Table, field and tags of a topic that matches.
    pub(super) fn names_of(&self, topic: &str) -> Option<Names> {
        let mut names = Names {
            table: self.table.clone().unwrap_or_default(),
            field: self.field.clone(),
            tags: self.tags.clone(),
        };
        for (name, word) in self.topic.matches(topic)? {
            match name {
                TABLE => names.table = word.to_owned(),
                FIELD => names.field = Some(word.to_owned()),
                _ => names.tags.push((name.to_owned(), word.to_owned())),
            }
        }
        Some(names)
    }
}

/// Names from a topic.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) table: String,
    pub(super) field: Option<String>,
    pub(super) tags: Vec<(String, String)>,
}

fn error(key: &'static str, reason: impl Into<String>) -> Result<(), RulesError> {
    Err(RulesError {
        key,
        reason: reason.into(),
    })
}
