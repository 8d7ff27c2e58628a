//! Statements of InfluxQL.

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `SELECT …`.
    Select(Box<Select>),
    /// `EXPLAIN [ANALYZE] SELECT …`.
    Explain {
        /// `ANALYZE`: the statement is carried out, and its cost is reported too.
        is_analyzed: bool,
        /// The statement to explain.
        select: Box<Select>,
    },
    /// `SHOW …`.
    Show(Box<Show>),
    /// `CREATE DATABASE …`.
    CreateDatabase(CreateDatabase),
    /// `DROP DATABASE …`, by name.
    DropDatabase(String),
    /// `DELETE …`: rows.
    Delete(Removal),
    /// `DROP SERIES …`: series with all their rows.
    DropSeries(Removal),
    /// `DROP MEASUREMENT …`, by name.
    DropMeasurement(String),
    /// `CREATE RETENTION POLICY …`.
    CreatePolicy(Policy),
    /// `ALTER RETENTION POLICY …`.
    AlterPolicy(Policy),
    /// `DROP RETENTION POLICY …`.
    DropPolicy {
        /// The policy.
        name: String,
        /// Database of the policy.
        database: String,
    },
}

/// Condition of `DELETE` and `DROP SERIES`: `[FROM …] [WHERE …]`; one of the two is required.
#[derive(Clone, Debug, PartialEq)]
pub struct Removal {
    /// Measurements; empty = all.
    pub sources: Vec<Source>,
    /// Condition on series and times.
    pub condition: Option<Expression>,
}

/// `"name" ON "database" [DURATION d] [REPLICATION n] [SHARD DURATION d] [DEFAULT]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The policy.
    pub name: String,
    /// Database of the policy.
    pub database: String,
    /// Retention in ns; 0 = without end (`INF`).
    pub duration_ns: Option<i64>,
    /// The number of copies.
    pub replication: Option<u64>,
    /// The span of time of a shard, in ns; 0 = the default (`INF`).
    pub shard_duration_ns: Option<i64>,
    /// The policy is the default for requests that do not name one.
    pub is_default: bool,
}

/// `CREATE DATABASE "name" [WITH [DURATION d] [REPLICATION n] [SHARD DURATION d] [NAME "policy"]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateDatabase {
    /// The database.
    pub name: String,
    /// Retention of its first policy, in ns; 0 = without end (`INF`).
    pub duration_ns: Option<i64>,
    /// The number of copies.
    pub replication: Option<u64>,
    /// The span of time of a shard, in ns; 0 = the default (`INF`).
    pub shard_duration_ns: Option<i64>,
    /// The name of the policy.
    pub policy: Option<String>,
}

/// A `SELECT` statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The selected fields.
    pub fields: Vec<SelectField>,
    /// Target of the rows, instead of returning them.
    pub into: Option<IntoTarget>,
    /// Measurements or subqueries to read.
    pub sources: Vec<SelectSource>,
    /// Condition on the rows.
    pub condition: Option<Expression>,
    /// Dimensions by which rows are grouped.
    pub group_by: Vec<Dimension>,
    /// Values of intervals without rows.
    pub fill: Fill,
    /// Newest rows first.
    pub descending: bool,
    /// Maximum rows of a series.
    pub limit: Option<u64>,
    /// Rows of a series left out before.
    pub offset: Option<u64>,
    /// Maximum number of series.
    pub slimit: Option<u64>,
    /// Series left out before.
    pub soffset: Option<u64>,
    /// The name of a time zone.
    pub time_zone: Option<String>,
}

/// A column of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectField {
    /// The selected expression.
    pub expression: Expression,
    /// Alias, if present.
    pub alias: Option<String>,
}

/// Source of the rows.
#[derive(Clone, Debug, PartialEq)]
pub enum SelectSource {
    /// A stored measurement.
    Measurement(Source),
    /// The answer of a subquery: `(SELECT …)`.
    Query(Box<Select>),
}

/// A measurement, or all measurements with a matching name, `"db"."policy"."name"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Database, if present.
    pub database: Option<String>,
    /// Retention policy, if present; empty in `db..name`.
    pub policy: Option<String>,
    /// Name of the measurement.
    pub name: MeasurementName,
}

/// Target of `INTO`: `"db"."policy"."name"`, or `"db"."policy".:MEASUREMENT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntoTarget {
    /// Database, if present.
    pub database: Option<String>,
    /// Retention policy, if present; empty in `db..name`.
    pub policy: Option<String>,
    /// The measurement; `None` for `:MEASUREMENT`, the measurement of the source rows.
    pub name: Option<String>,
}

/// Names of measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasurementName {
    /// The measurement with this name.
    Exact(String),
    /// Measurements whose names match a regular expression.
    Matching(String),
}

/// A part of `GROUP BY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// `time(every[, offset])`.
    Time {
        /// Width in ns, above 0.
        every_ns: i64,
        /// Offset of the beginnings, in ns.
        offset_ns: i64,
        /// True when one of the intervals begins now: `time(15m, now())`.
        from_now: bool,
    },
    /// A tag.
    Tag(String),
    /// Tags whose key matches a regular expression.
    Matching(String),
    /// `*`: all tags.
    All,
}

/// Values of intervals without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    /// Null, where the query groups by intervals at all.
    #[default]
    Null,
    /// The interval is left out.
    None,
    /// The value of the interval before.
    Previous,
    /// The value on the line between the intervals around it.
    Linear,
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
}

/// `SHOW …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Show {
    /// Kind of names or statistics to show.
    pub kind: ShowKind,
    /// `EXACT`: a count for each measurement.
    pub exact: bool,
    /// `ON database`.
    pub database: Option<String>,
    /// `FROM …`, or `WITH MEASUREMENT …`.
    pub sources: Vec<Source>,
    /// `WITH KEY …`.
    pub key: Option<KeyFilter>,
    /// `WHERE …`.
    pub condition: Option<Expression>,
    /// In descending order.
    pub descending: bool,
    /// Maximum rows of a series.
    pub limit: Option<u64>,
    /// Rows left out before.
    pub offset: Option<u64>,
    /// Maximum number of series.
    pub slimit: Option<u64>,
    /// Series left out before.
    pub soffset: Option<u64>,
}

/// Kind of names or statistics of `SHOW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is what it is named for")]
pub enum ShowKind {
    Databases,
    Measurements,
    TagKeys,
    TagValues,
    FieldKeys,
    Series,
    RetentionPolicies,
    ContinuousQueries,
    SeriesCardinality,
    MeasurementCardinality,
    TagKeyCardinality,
    TagValuesCardinality,
    FieldKeyCardinality,
    Users,
    Stats,
    Diagnostics,
    Queries,
    Shards,
    ShardGroups,
}

impl ShowKind {
    /// Subjects with their keywords. A longer keyword sequence precedes its own prefix.
    pub(super) const ALL: [(ShowKind, &'static [&'static str]); 19] = [
        (ShowKind::Databases, &["DATABASES"]),
        (ShowKind::Measurements, &["MEASUREMENTS"]),
        (ShowKind::TagKeys, &["TAG", "KEYS"]),
        (ShowKind::TagKeyCardinality, &["TAG", "KEY", "CARDINALITY"]),
        (
            ShowKind::TagValuesCardinality,
            &["TAG", "VALUES", "CARDINALITY"],
        ),
        (
            ShowKind::FieldKeyCardinality,
            &["FIELD", "KEY", "CARDINALITY"],
        ),
        (ShowKind::TagValues, &["TAG", "VALUES"]),
        (ShowKind::FieldKeys, &["FIELD", "KEYS"]),
        (ShowKind::SeriesCardinality, &["SERIES", "CARDINALITY"]),
        (
            ShowKind::MeasurementCardinality,
            &["MEASUREMENT", "CARDINALITY"],
        ),
        (ShowKind::Series, &["SERIES"]),
        (ShowKind::RetentionPolicies, &["RETENTION", "POLICIES"]),
        (ShowKind::ContinuousQueries, &["CONTINUOUS", "QUERIES"]),
        (ShowKind::Users, &["USERS"]),
        (ShowKind::Stats, &["STATS"]),
        (ShowKind::Diagnostics, &["DIAGNOSTICS"]),
        (ShowKind::Queries, &["QUERIES"]),
        (ShowKind::Shards, &["SHARDS"]),
        (ShowKind::ShardGroups, &["SHARD", "GROUPS"]),
    ];

    /// The words that ask for it.
    #[must_use]
    pub fn words(self) -> String {
        let entry = ShowKind::ALL.iter().find(|(what, _)| *what == self);
        entry.map_or_else(String::new, |(_, words)| words.join(" "))
    }
}

/// `WITH KEY …` of `SHOW TAG VALUES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFilter {
    /// `= key`.
    Equal(String),
    /// `!= key`.
    NotEqual(String),
    /// `IN (key, …)`.
    In(Vec<String>),
    /// `=~ /…/`.
    Matching(String),
    /// `!~ /…/`.
    NotMatching(String),
}

/// A value written in the text.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An integer such as `42`.
    Integer(i64),
    /// A whole number beyond the largest i64.
    Unsigned(u64),
    /// A decimal number such as `4.2`.
    Float(f64),
    /// A string such as `'text'`.
    Text(String),
    /// A boolean: `true` or `false`.
    Boolean(bool),
    /// `10s`, in ns.
    Duration(i64),
    /// A regular expression, as `/…/`.
    Regex(String),
}

/// Kinds of columns that `*` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is what it is named for")]
pub enum WildcardKind {
    All,
    Fields,
    Tags,
}

/// Kind of a column after `::`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is what it is named for")]
pub enum Cast {
    Field,
    Tag,
    Float,
    Integer,
    Unsigned,
    Text,
    Boolean,
}

impl Cast {
    pub(super) const ALL: [(Cast, &'static str); 7] = [
        (Cast::Field, "field"),
        (Cast::Tag, "tag"),
        (Cast::Float, "float"),
        (Cast::Integer, "integer"),
        (Cast::Unsigned, "unsigned"),
        (Cast::Text, "string"),
        (Cast::Boolean, "boolean"),
    ];
}

/// Operator between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is what it is named for")]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
    NotMatches,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
    BitOr,
    BitXor,
}

impl Operator {
    pub(super) const ALL: [(Operator, &'static str); 16] = [
        (Operator::Equal, "="),
        (Operator::NotEqual, "!="),
        (Operator::Less, "<"),
        (Operator::LessOrEqual, "<="),
        (Operator::Greater, ">"),
        (Operator::GreaterOrEqual, ">="),
        (Operator::Matches, "=~"),
        (Operator::NotMatches, "!~"),
        (Operator::Add, "+"),
        (Operator::Subtract, "-"),
        (Operator::Multiply, "*"),
        (Operator::Divide, "/"),
        (Operator::Modulo, "%"),
        (Operator::BitAnd, "&"),
        (Operator::BitOr, "|"),
        (Operator::BitXor, "^"),
    ];

    /// The text of the operator.
    #[must_use]
    pub fn text(self) -> &'static str {
        let entry = Operator::ALL.iter().find(|(operator, _)| *operator == self);
        entry.map_or("", |(_, text)| text)
    }

    /// True for comparisons.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        !matches!(
            self,
            Operator::Add
                | Operator::Subtract
                | Operator::Multiply
                | Operator::Divide
                | Operator::Modulo
        ) && !self.is_bitwise()
    }

    /// True for operators on bits.
    #[must_use]
    pub fn is_bitwise(self) -> bool {
        matches!(self, Operator::BitAnd | Operator::BitOr | Operator::BitXor)
    }

    /// The comparison with its sides exchanged.
    #[must_use]
    pub fn mirrored(self) -> Operator {
        match self {
            Operator::Less => Operator::Greater,
            Operator::LessOrEqual => Operator::GreaterOrEqual,
            Operator::Greater => Operator::Less,
            Operator::GreaterOrEqual => Operator::LessOrEqual,
            other => other,
        }
    }
}

/// Expression: a computation or a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A value.
    Literal(Literal),
    /// `*`: all fields or tags.
    Wildcard(WildcardKind),
    /// A field or a tag, or `time`.
    Reference {
        /// Name of the field or tag.
        name: String,
        /// Kind after `::`.
        cast: Option<Cast>,
    },
    /// A function, its name in small letters.
    Call {
        /// Name of the function in the statement.
        name: String,
        /// Arguments of the call.
        arguments: Vec<Expression>,
    },
    /// Two expressions and the operator between them.
    Binary {
        /// The operator.
        operator: Operator,
        /// Before it.
        left: Box<Expression>,
        /// Behind it.
        right: Box<Expression>,
    },
    /// True when all of two or more operands are: `… AND …`.
    All(Vec<Expression>),
    /// True when one of two or more operands is: `… OR …`.
    Any(Vec<Expression>),
}

impl Expression {
    /// A field or tag by its name.
    pub fn reference(name: impl Into<String>) -> Expression {
        Expression::Reference {
            name: name.into(),
            cast: None,
        }
    }
}
