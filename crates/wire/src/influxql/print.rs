//! Statements as text.
//!
//! Invariant: printed text reads back to the same statement. Names are quoted. Parentheses are
//! printed only where the parser would group differently without them: then the source text also
//! had parentheses, or a sign that counts like them. So a printed text does not nest deeper than
//! its source, does not have more operators, and does not exceed the limits of the parser.

use super::ast::{
    Cast, CreateDatabase, Dimension, Expression, Fill, IntoTarget, KeyFilter, Literal,
    MeasurementName, Operator, Policy, Removal, Select, SelectSource, Show, ShowKind, Source,
    Statement, WildcardKind,
};
use super::expression::strength;
use std::fmt::{self, Display, Formatter};

/// In quotes, with a backslash before quotes and backslashes.
struct Quoted<'a>(char, &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Quoted(quote, text) = self;
        write!(f, "{quote}")?;
        for c in text.chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                c if c == '\\' || c == *quote => write!(f, "\\{c}")?,
                c => write!(f, "{c}")?,
            }
        }
        write!(f, "{quote}")
    }
}

fn name(text: &str) -> Quoted<'_> {
    Quoted('"', text)
}

struct Pattern<'a>(&'a str);

impl Display for Pattern<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0.replace('/', "\\/"))
    }
}

fn list<T: Display>(f: &mut Formatter<'_>, items: &[T], between: &str) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

fn float(number: f64) -> String {
    let text = number.to_string();
    if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Integer(number) => write!(f, "{number}"),
            Literal::Unsigned(number) => write!(f, "{number}"),
            Literal::Float(number) => f.write_str(&float(*number)),
            Literal::Text(text) => write!(f, "{}", Quoted('\'', text)),
            Literal::Boolean(value) => write!(f, "{value}"),
            Literal::Duration(ns) => write!(f, "{ns}ns"),
            Literal::Regex(pattern) => write!(f, "{}", Pattern(pattern)),
        }
    }
}

impl Display for Cast {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let entry = Cast::ALL.iter().find(|(cast, _)| cast == self);
        f.write_str(entry.map_or("", |(_, name)| name))
    }
}

/// Precedence of the weakest operator of an expression outside of parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Any,
    All,
    Operation(u8),
    Operand,
}

/// Precedence of a column and an argument: comparisons need parentheses.
const COMPUTED: Binding = Binding::Operation(strength(Operator::Add));

fn binding(expression: &Expression) -> Binding {
    match expression {
        Expression::Any(_) => Binding::Any,
        Expression::All(_) => Binding::All,
        Expression::Binary { operator, .. } => Binding::Operation(strength(*operator)),
        Expression::Literal(_)
        | Expression::Wildcard(_)
        | Expression::Reference { .. }
        | Expression::Call { .. } => Binding::Operand,
    }
}

/// An expression in a context that requires this binding or a tighter one; otherwise it is
/// parenthesised.
struct Within<'a>(Binding, &'a Expression);

impl Display for Within<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Within(least, expression) = self;
        if binding(expression) < *least {
            write!(f, "({expression})")
        } else {
            write!(f, "{expression}")
        }
    }
}

fn within(least: Binding, parts: &[Expression]) -> Vec<Within<'_>> {
    parts.iter().map(|part| Within(least, part)).collect()
}

/// As a condition: a column or an argument is printed through `Within`.
impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Literal(literal) => write!(f, "{literal}"),
            Expression::Wildcard(WildcardKind::All) => f.write_str("*"),
            Expression::Wildcard(WildcardKind::Fields) => f.write_str("*::field"),
            Expression::Wildcard(WildcardKind::Tags) => f.write_str("*::tag"),
            Expression::Reference { name: text, cast } => {
                write!(f, "{}", name(text))?;
                match cast {
                    Some(cast) => write!(f, "::{cast}"),
                    None => Ok(()),
                }
            }
            Expression::Call { name, arguments } => {
                write!(f, "{name}(")?;
                list(f, &within(COMPUTED, arguments), ", ")?;
                f.write_str(")")
            }
            Expression::Binary {
                operator,
                left,
                right,
            } => {
                // Operators of equal strength associate to the left; comparisons do not chain.
                let own = strength(*operator);
                let before = if operator.is_comparison() {
                    own + 1
                } else {
                    own
                };
                let (left, right) = (
                    Within(Binding::Operation(before), left),
                    Within(Binding::Operation(own + 1), right),
                );
                write!(f, "{left} {} {right}", operator.text())
            }
            Expression::All(parts) => list(f, &within(Binding::Operation(0), parts), " AND "),
            Expression::Any(parts) => list(f, &within(Binding::All, parts), " OR "),
        }
    }
}

/// Writes the database and the retention policy before a measurement.
fn put_qualifier(
    f: &mut Formatter<'_>,
    database: Option<&str>,
    policy: Option<&str>,
) -> fmt::Result {
    if let Some(database) = database {
        write!(f, "{}.", name(database))?;
    }
    match policy {
        None => Ok(()),
        Some("") if database.is_some() => f.write_str("."),
        Some(policy) => write!(f, "{}.", name(policy)),
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        put_qualifier(f, self.database.as_deref(), self.policy.as_deref())?;
        match &self.name {
            MeasurementName::Exact(text) => write!(f, "{}", name(text)),
            MeasurementName::Matching(pattern) => write!(f, "{}", Pattern(pattern)),
        }
    }
}

impl Display for IntoTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        put_qualifier(f, self.database.as_deref(), self.policy.as_deref())?;
        match &self.name {
            Some(text) => write!(f, "{}", name(text)),
            None => f.write_str(":MEASUREMENT"),
        }
    }
}

impl Display for SelectSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SelectSource::Measurement(source) => write!(f, "{source}"),
            SelectSource::Query(select) => write!(f, "({select})"),
        }
    }
}

impl Display for Dimension {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Dimension::Time {
                every_ns,
                from_now: true,
                ..
            } => write!(f, "time({every_ns}ns, now())"),
            Dimension::Time {
                every_ns,
                offset_ns: 0,
                ..
            } => write!(f, "time({every_ns}ns)"),
            Dimension::Time {
                every_ns,
                offset_ns,
                ..
            } => write!(f, "time({every_ns}ns, {offset_ns}ns)"),
            Dimension::Tag(tag) => write!(f, "{}", name(tag)),
            Dimension::Matching(pattern) => write!(f, "{}", Pattern(pattern)),
            Dimension::All => f.write_str("*"),
        }
    }
}

fn counts(f: &mut Formatter<'_>, counts: [(&str, Option<u64>); 4]) -> fmt::Result {
    for (word, count) in counts {
        if let Some(count) = count {
            write!(f, " {word} {count}")?;
        }
    }
    Ok(())
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}", Within(COMPUTED, &field.expression))?;
            if let Some(alias) = &field.alias {
                write!(f, " AS {}", name(alias))?;
            }
        }
        if let Some(into) = &self.into {
            write!(f, " INTO {into}")?;
        }
        f.write_str(" FROM ")?;
        list(f, &self.sources, ", ")?;
        if let Some(condition) = &self.condition {
            write!(f, " WHERE {condition}")?;
        }
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group_by, ", ")?;
        }
        match self.fill {
            Fill::Null => {}
            Fill::None => f.write_str(" fill(none)")?,
            Fill::Previous => f.write_str(" fill(previous)")?,
            Fill::Linear => f.write_str(" fill(linear)")?,
            Fill::Integer(number) => write!(f, " fill({number})")?,
            Fill::Float(number) => write!(f, " fill({})", float(number))?,
        }
        if self.descending {
            f.write_str(" ORDER BY time DESC")?;
        }
        let (limit, offset) = (("LIMIT", self.limit), ("OFFSET", self.offset));
        let (slimit, soffset) = (("SLIMIT", self.slimit), ("SOFFSET", self.soffset));
        counts(f, [limit, offset, slimit, soffset])?;
        match &self.time_zone {
            Some(zone) => write!(f, " tz({})", Quoted('\'', zone)),
            None => Ok(()),
        }
    }
}

impl Display for Show {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words = self.kind.words();
        match words.strip_suffix("CARDINALITY") {
            Some(first) if self.exact => write!(f, "SHOW {first}EXACT CARDINALITY")?,
            _ => write!(f, "SHOW {words}")?,
        }
        if let Some(database) = &self.database {
            write!(f, " ON {}", name(database))?;
        }
        match self.sources.as_slice() {
            [] => {}
            [source, ..] if self.kind == ShowKind::Measurements => match &source.name {
                MeasurementName::Exact(text) => write!(f, " WITH MEASUREMENT = {}", name(text))?,
                MeasurementName::Matching(pattern) => {
                    write!(f, " WITH MEASUREMENT =~ {}", Pattern(pattern))?;
                }
            },
            sources => {
                f.write_str(" FROM ")?;
                list(f, sources, ", ")?;
            }
        }
        match &self.key {
            None => {}
            Some(KeyFilter::Equal(key)) => write!(f, " WITH KEY = {}", name(key))?,
            Some(KeyFilter::NotEqual(key)) => write!(f, " WITH KEY != {}", name(key))?,
            Some(KeyFilter::Matching(p)) => write!(f, " WITH KEY =~ {}", Pattern(p))?,
            Some(KeyFilter::NotMatching(p)) => write!(f, " WITH KEY !~ {}", Pattern(p))?,
            Some(KeyFilter::In(keys)) => {
                f.write_str(" WITH KEY IN (")?;
                let keys: Vec<Quoted<'_>> = keys.iter().map(|k| name(k)).collect();
                list(f, &keys, ", ")?;
                f.write_str(")")?;
            }
        }
        if let Some(condition) = &self.condition {
            write!(f, " WHERE {condition}")?;
        }
        if self.descending {
            f.write_str(" ORDER BY time DESC")?;
        }
        let (limit, offset) = (("LIMIT", self.limit), ("OFFSET", self.offset));
        let (slimit, soffset) = (("SLIMIT", self.slimit), ("SOFFSET", self.soffset));
        counts(f, [limit, offset, slimit, soffset])
    }
}

impl Display for CreateDatabase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE DATABASE {}", name(&self.name))?;
        let with = [
            self.duration_ns.map(|ns| format!(" DURATION {ns}ns")),
            self.replication.map(|n| format!(" REPLICATION {n}")),
            self.shard_duration_ns
                .map(|ns| format!(" SHARD DURATION {ns}ns")),
            self.policy.as_ref().map(|p| format!(" NAME {}", name(p))),
        ];
        if with.iter().any(Option::is_some) {
            f.write_str(" WITH")?;
        }
        with.iter().flatten().try_for_each(|part| f.write_str(part))
    }
}

impl Display for Removal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.sources.is_empty() {
            f.write_str(" FROM ")?;
            list(f, &self.sources, ", ")?;
        }
        match &self.condition {
            Some(condition) => write!(f, " WHERE {condition}"),
            None => Ok(()),
        }
    }
}

impl Display for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ON {}", name(&self.name), name(&self.database))?;
        let parts = [
            self.duration_ns.map(|ns| format!(" DURATION {ns}ns")),
            self.replication.map(|n| format!(" REPLICATION {n}")),
            self.shard_duration_ns
                .map(|ns| format!(" SHARD DURATION {ns}ns")),
            self.is_default.then(|| " DEFAULT".to_owned()),
        ];
        parts
            .iter()
            .flatten()
            .try_for_each(|part| f.write_str(part))
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Select(select) => write!(f, "{select}"),
            Statement::Explain {
                is_analyzed,
                select,
            } => match is_analyzed {
                true => write!(f, "EXPLAIN ANALYZE {select}"),
                false => write!(f, "EXPLAIN {select}"),
            },
            Statement::Show(show) => write!(f, "{show}"),
            Statement::CreateDatabase(create) => write!(f, "{create}"),
            Statement::DropDatabase(database) => write!(f, "DROP DATABASE {}", name(database)),
            Statement::Delete(removal) => write!(f, "DELETE{removal}"),
            Statement::DropSeries(removal) => write!(f, "DROP SERIES{removal}"),
            Statement::DropMeasurement(text) => write!(f, "DROP MEASUREMENT {}", name(text)),
            Statement::CreatePolicy(policy) => write!(f, "CREATE RETENTION POLICY {policy}"),
            Statement::AlterPolicy(policy) => write!(f, "ALTER RETENTION POLICY {policy}"),
            Statement::DropPolicy {
                name: policy,
                database,
            } => {
                let (policy, database) = (name(policy), name(database));
                write!(f, "DROP RETENTION POLICY {policy} ON {database}")
            }
        }
    }
}
