//! Columns of a `SELECT`: expanded wildcards, and column names.
//!
//! Invariants: wildcards are expanded to the fields and tags of all measurements of the statement,
//! so that each of its series has the same columns; an alias is used as it is, even if another
//! column has the same name, and every other name is unique; only the column of times is called
//! `time`.

use super::condition::compile_regex;
use super::functions::Function;
use super::measurements::{GroupKeys, Measurement};
use super::sources::{queries, stored};
use super::times::is_time;
use super::{Evaluator, invalid};
use crate::error::Error;
use crate::streams;
use headwater::FieldType;
use headwater_wire::influxql::{
    Cast, Dimension, Expression, Literal, Operator, Select, SelectField, WildcardKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The columns of a wildcard.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Fields with their types; if types differ, the numeric one.
    fields: BTreeMap<String, FieldType>,
    pub(super) tag_keys: BTreeSet<String>,
}

/// A column of a statement's field, after wildcards are expanded.
pub(super) struct Written {
    /// The alias, if any.
    pub(super) alias: Option<String>,
    /// The name without an alias.
    pub(super) name: String,
    pub(super) expression: Expression,
}

impl Columns {
    /// The columns of one measurement.
    pub(super) fn of(measurement: &Measurement) -> Columns {
        Columns {
            fields: measurement.fields.iter().cloned().collect(),
            tag_keys: measurement.tag_keys.clone(),
        }
    }

    fn add(&mut self, name: String, field_type: FieldType) {
        let known = self.fields.entry(name).or_insert(field_type);
        if !is_number(*known) && is_number(field_type) {
            *known = field_type;
        }
    }

    /// The columns of a field of the statement.
    pub(super) fn written_out(
        &self,
        field: &SelectField,
        keys: &GroupKeys,
    ) -> Result<Vec<Written>, Error> {
        let plain = |columns: Vec<(String, Expression)>| {
            let columns = columns.into_iter().map(|(name, expression)| Written {
                // One alias does not fit several columns.
                alias: None,
                name,
                expression,
            });
            Ok(columns.collect())
        };
        let one = || Written {
            alias: field.alias.clone(),
            name: name_of(&field.expression),
            expression: field.expression.clone(),
        };
        match &field.expression {
            Expression::Wildcard(kind) => plain(self.matching(*kind, None, keys)?),
            Expression::Literal(Literal::Regex(pattern)) => {
                plain(self.matching(WildcardKind::All, Some(pattern), keys)?)
            }
            expression @ Expression::Call { .. } => match self.in_call(expression, keys)? {
                None => Ok(vec![one()]),
                Some(calls) => {
                    let outer = field.alias.clone().unwrap_or_else(|| name_of(expression));
                    let named = calls.into_iter();
                    plain(
                        named
                            .map(|(of, call)| (format!("{outer}_{of}"), call))
                            .collect(),
                    )
                }
            },
            Expression::Binary { .. } if has_wildcard(&field.expression) => Err(invalid(format!(
                "unsupported expression with wildcard: {}; a wildcard is allowed alone or as the first argument of a function; an expression must name its columns",
                field.expression
            ))),
            _ => Ok(vec![one()]),
        }
    }

    /// Fields and tags whose name matches.
    fn matching(
        &self,
        kind: WildcardKind,
        pattern: Option<&str>,
        keys: &GroupKeys,
    ) -> Result<Vec<(String, Expression)>, Error> {
        let regex = pattern.map(compile_regex).transpose()?;
        let wanted = |name: &str| regex.as_ref().is_none_or(|r| r.is_match(name));
        let column = |name: &String, cast| {
            let name = name.clone();
            (name.clone(), Expression::Reference { name, cast })
        };
        let mut out = Vec::new();
        if kind != WildcardKind::Tags {
            let fields = self.fields.keys().filter(|n| wanted(n));
            out.extend(fields.map(|name| column(name, Some(Cast::Field))));
        }
        if kind != WildcardKind::Fields {
            let tags = self.tag_keys.iter();
            let tags = tags.filter(|t| wanted(t) && !keys.0.contains(t));
            out.extend(tags.map(|name| column(name, Some(Cast::Tag))));
        }
        out.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(out)
    }

    /// A call with a wildcard argument, also nested: the same call for each field of a suitable
    /// type.
    fn in_call(
        &self,
        expression: &Expression,
        keys: &GroupKeys,
    ) -> Result<Option<Vec<(String, Expression)>>, Error> {
        let Expression::Call { name, arguments } = expression else {
            return Ok(None);
        };
        let Some((first, rest)) = arguments.split_first() else {
            return Ok(None);
        };
        let inner = match first {
            Expression::Wildcard(WildcardKind::Tags) => {
                return Err(invalid(format!("unable to use tag wildcard in {name}()")));
            }
            Expression::Wildcard(WildcardKind::All | WildcardKind::Fields) => {
                Some(self.matching(WildcardKind::Fields, None, keys)?)
            }
            Expression::Literal(Literal::Regex(pattern)) => {
                Some(self.matching(WildcardKind::Fields, Some(pattern), keys)?)
            }
            call @ Expression::Call { .. } => self.in_call(call, keys)?,
            _ => None,
        };
        let takes_any =
            name == "sample" || Function::named(name).is_some_and(Function::accepts_any_type);
        Ok(inner.map(|fields| {
            fields
                .into_iter()
                .filter(|(field, inner)| {
                    let known = self.fields.get(field);
                    takes_any
                        || matches!(inner, Expression::Call { .. })
                        || known.is_some_and(|t| is_number(*t))
                })
                .map(|(field, inner)| {
                    let arguments = std::iter::once(inner).chain(rest.iter().cloned()).collect();
                    let name = name.clone();
                    (field, Expression::Call { name, arguments })
                })
                .collect()
        }))
    }

    /// Approximate result type of an expression, for wildcards of an outer query.
    fn type_of(&self, expression: &Expression) -> Option<FieldType> {
        match expression {
            Expression::Reference { name, cast } => match (cast, self.fields.get(name)) {
                (Some(Cast::Float), Some(_)) => Some(FieldType::F64),
                (Some(Cast::Integer), Some(_)) => Some(FieldType::I64),
                (Some(Cast::Unsigned), Some(_)) => Some(FieldType::U64),
                (Some(Cast::Text), Some(_)) => Some(FieldType::String),
                (Some(Cast::Boolean), Some(_)) => Some(FieldType::Bool),
                (Some(Cast::Tag), _) | (_, None) => {
                    self.tag_keys.contains(name).then_some(FieldType::String)
                }
                (_, known) => known.copied(),
            },
            Expression::Call { name, arguments } => {
                let of = arguments.first().and_then(|of| self.type_of(of))?;
                let function = Function::named(name);
                function.map_or(Some(of), |f| f.result_type(of).or(Some(FieldType::F64)))
            }
            Expression::Binary {
                operator,
                left,
                right,
            } => {
                let (left, right) = (self.type_of(left), self.type_of(right));
                match operator {
                    operator if operator.is_bitwise() => left.or(right),
                    Operator::Divide => left.or(right).map(|_| FieldType::F64),
                    _ => left.or(right).map(|_| FieldType::F64),
                }
            }
            Expression::Literal(Literal::Integer(_)) => Some(FieldType::I64),
            Expression::Literal(Literal::Float(_)) => Some(FieldType::F64),
            _ => None,
        }
    }
}

fn is_number(field_type: FieldType) -> bool {
    matches!(field_type, FieldType::F64 | FieldType::I64 | FieldType::U64)
}

fn has_wildcard(expression: &Expression) -> bool {
    match expression {
        Expression::Wildcard(_) | Expression::Literal(Literal::Regex(_)) => true,
        Expression::Call { arguments, .. } => arguments.iter().any(has_wildcard),
        Expression::Binary { left, right, .. } => has_wildcard(left) || has_wildcard(right),
        _ => false,
    }
}

/// Whether the answer of a statement depends on which columns exist.
fn uses_wildcards(select: &Select) -> bool {
    let is_many = |d: &Dimension| matches!(d, Dimension::All | Dimension::Matching(_));
    select.group_by.iter().any(is_many) || select.fields.iter().any(|f| has_wildcard(&f.expression))
}

impl Evaluator<'_> {
    /// The columns of the wildcards of a statement about several measurements; `None` for one
    /// measurement, or without wildcards.
    pub(super) fn united(
        &self,
        select: &Select,
        names: &BTreeSet<String>,
    ) -> Result<Option<Rc<Columns>>, Error> {
        match names.len() > 1 && uses_wildcards(select) {
            true => self.columns_of(select).map(Some),
            false => Ok(None),
        }
    }

    /// The columns of all measurements of a statement, and of its subqueries.
    fn columns_of(&self, select: &Select) -> Result<Rc<Columns>, Error> {
        let place = std::ptr::from_ref(select).addr();
        if let Some(known) = self.columns.borrow().get(&place) {
            return Ok(Rc::clone(known));
        }
        let mut out = Columns::default();
        let sources = stored(select);
        let names = match sources.is_empty() {
            true => Vec::new(),
            false => self.measurement_names(sources)?,
        };
        for name in names {
            self.budget.check()?;
            let fields = self.access.typed_fields(self.snapshot, &name)?;
            let fields = fields.unwrap_or_default().into_iter();
            fields.for_each(|(name, field_type)| out.add(name, field_type));
            let keys = &mut out.tag_keys;
            streams::walk(
                self.snapshot,
                self.access,
                &name,
                self.budget,
                &mut |stream| {
                    for (key, _) in stream.tags() {
                        if !keys.contains(key) {
                            keys.insert(key.clone());
                        }
                    }
                    Ok(true)
                },
            )?;
        }
        for query in queries(select) {
            let inner = self.columns_of(query)?;
            let keys = GroupKeys::new(&query.group_by, &inner.tag_keys)?;
            for field in &query.fields {
                if is_time(&field.expression) {
                    continue;
                }
                for written in inner.written_out(field, &keys)? {
                    let field_type = inner.type_of(&written.expression);
                    if let Some(field_type) = field_type {
                        out.add(written.alias.unwrap_or(written.name), field_type);
                    }
                }
            }
            out.tag_keys.extend(keys.0);
        }
        let out = Rc::new(out);
        self.columns.borrow_mut().insert(place, Rc::clone(&out));
        Ok(out)
    }
}

/// The names of the columns; a repeated name that is not an alias gets a numeric suffix.
pub(super) fn names(columns: &[(Option<String>, String)]) -> Vec<String> {
    let mut taken: std::collections::HashSet<String> = std::collections::HashSet::new();
    taken.insert("time".to_owned());
    let given = columns.iter().filter_map(|(alias, _)| alias.clone());
    taken.extend(given);
    let mut out = Vec::with_capacity(columns.len());
    for (alias, name) in columns {
        if let Some(alias) = alias {
            out.push(alias.clone());
            continue;
        }
        let wanted = name;
        let mut name = wanted.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        out.push(name);
    }
    out
}

/// The name of a column: the names of its parts.
pub(super) fn name_of(expression: &Expression) -> String {
    match expression {
        Expression::Reference { name, .. } | Expression::Call { name, .. } => name.clone(),
        Expression::Binary { left, right, .. } => {
            let names = [name_of(left), name_of(right)];
            let names: Vec<String> = names.into_iter().filter(|n| !n.is_empty()).collect();
            names.join("_")
        }
        _ => String::new(),
    }
}
