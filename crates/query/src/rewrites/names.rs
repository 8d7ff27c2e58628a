//! Names of columns, including several columns with one name.
//!
//! PostgreSQL permits two columns of a query with the same name, and names a cast column like that
//! column. The SQL library refuses both, and invents names for unnamed columns. Here the second
//! column with a name gets a suffix, which is removed when the answer is returned, and an unnamed
//! column is named by its text.
//!
//! Invariants: the first column with a name keeps it, so that references resolve to it; clients
//! never see a suffix.

pub use super::called::{column_name, type_name};
use super::called::{column_of, first_select, folded, name_columns};
use super::casts::{self, each_select};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Column, DataFusionError, Result, SchemaError};
use datafusion::logical_expr::{Expr as Meaning, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, Value, ValueWithSpan, Visit,
    VisitMut, Visitor, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Separates a name from its suffix; a typed name cannot contain it.
const MARK: char = '\u{1}';
/// Longer texts are not used as names.
const LABEL_MAX: usize = 200;

/// The names of an answer's columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels {
    /// Names of the columns before `*`, or of all columns without `*`.
    before: Vec<Option<String>>,
    /// Names of the columns after `*`.
    after: Vec<Option<String>>,
    wildcard: bool,
}

/// Label of an unnamed column: its text, unless the column in it names it.
fn label(expr: &Expr) -> Option<String> {
    if let Some((_, name)) = column_of(expr) {
        // A cast column has the name of the column.
        let plain = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        return (!plain).then_some(name);
    }
    let text = expr.to_string();
    (text.len() <= LABEL_MAX && !text.contains(MARK)).then_some(text)
}

impl Labels {
    /// The names of a query's columns as written.
    pub(crate) fn of(statement: &Statement) -> Labels {
        let mut labels = Labels::default();
        let Statement::Query(query) = statement else {
            return labels;
        };
        let Some(select) = first_select(query) else {
            return labels;
        };
        for item in &select.projection {
            let own = match item {
                SelectItem::UnnamedExpr(expr) => label(expr),
                SelectItem::ExprWithAlias { .. } => None,
                // The number of columns of a second wildcard is unknown here.
                _ if labels.wildcard => return Labels::default(),
                _ => {
                    labels.wildcard = true;
                    continue;
                }
            };
            match labels.wildcard {
                true => labels.after.push(own),
                false => labels.before.push(own),
            }
        }
        labels
    }

    /// The label of each of `count` columns of an answer.
    fn all(&self, count: usize) -> Option<Vec<Option<&str>>> {
        let named = self.before.len() + self.after.len();
        if named > count || (!self.wildcard && named != count) {
            return None;
        }
        let mut all: Vec<Option<&str>> = self.before.iter().map(Option::as_deref).collect();
        all.resize(count - self.after.len(), None);
        all.extend(self.after.iter().map(Option::as_deref));
        Some(all)
    }

    /// The plan with its columns renamed to their labels.
    pub(crate) fn relabel(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let Some(labels) = self.all(plan.schema().fields().len()) else {
            return Ok(plan);
        };
        if labels.iter().all(Option::is_none) {
            return Ok(plan);
        }
        let mut known: HashSet<String> = HashSet::new();
        for (label, field) in labels.iter().zip(plan.schema().fields()) {
            if label.is_none() {
                known.insert(field.name().clone());
            }
        }
        let mut columns = Vec::with_capacity(labels.len());
        let fields = plan.schema().iter();
        for (at, (label, field)) in labels.into_iter().zip(fields).enumerate() {
            let column = Meaning::Column(Column::from(field));
            columns.push(match label {
                None => column,
                Some(label) if known.insert(label.to_owned()) => column.alias(label),
                Some(label) => column.alias(marked(label, at)),
            });
        }
        Ok(LogicalPlan::Projection(Projection::try_new(
            columns,
            Arc::new(plan),
        )?))
    }
}

fn marked(name: &str, at: usize) -> String {
    format!("{name}{MARK}{}", at + 1)
}

/// The columns of an answer without suffixes; `None` if there are no suffixes.
pub(crate) fn without_marks(schema: &SchemaRef) -> Option<SchemaRef> {
    if !schema.fields().iter().any(|f| f.name().contains(MARK)) {
        return None;
    }
    let fields = schema
        .fields()
        .iter()
        .map(|field| match field.name().split_once(MARK) {
            None => Arc::clone(field),
            Some((name, _)) => Arc::new(field.as_ref().clone().with_name(name)),
        });
    let fields: Vec<_> = fields.collect();
    Some(Arc::new(Schema::new_with_metadata(
        fields,
        schema.metadata().clone(),
    )))
}

/// Keys by which two columns are compared.
enum Key {
    Column(Option<String>, String),
    Text(String),
}

impl Key {
    fn of(item: &SelectItem) -> Option<Key> {
        Some(match item {
            SelectItem::ExprWithAlias { alias, .. } => Key::Column(None, folded(alias)),
            SelectItem::UnnamedExpr(expr) => match column_of(expr) {
                Some((of, name)) => Key::Column(of, name),
                None => Key::Text(casts::bare(expr)),
            },
            _ => return None,
        })
    }
}

/// The names of a query so far.
#[derive(Default)]
struct QueryNames {
    columns: Vec<(Option<String>, String)>,
    /// Texts without casts.
    texts: HashSet<String>,
    /// Names only, which decide most look-ups.
    names: HashSet<String>,
}

impl QueryNames {
    /// Adds a column; true if its name exists already. Within another query two columns of
    /// different tables may share a name too.
    fn insert(&mut self, key: Key, within: bool) -> bool {
        match key {
            Key::Text(text) => !self.texts.insert(text),
            Key::Column(of, name) => {
                let met = !self.names.insert(name.clone())
                    && self.columns.iter().any(|(other, known)| {
                        *known == name && (within || may_be_one(of.as_deref(), other.as_deref()))
                    });
                self.columns.push((of, name));
                met
            }
        }
    }
}

/// Whether two names of tables, one of which may be qualified with its schema, may mean the same
/// table.
fn may_be_one(one: Option<&str>, other: Option<&str>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return true;
    };
    let ends_with = |long: &str, short: &str| {
        let before = long.strip_suffix(short);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    ends_with(one, other) || ends_with(other, one)
}

/// The wildcards of a select.
#[derive(Default)]
struct Wildcards {
    all: bool,
    of: Vec<String>,
}

impl Wildcards {
    fn of(select: &Select) -> Wildcards {
        let mut out = Wildcards::default();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => out.all = true,
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let parts = name.0.iter().filter_map(|part| part.as_ident());
                    let parts: Vec<String> = parts.map(folded).collect();
                    out.of.push(parts.join("."));
                }
                _ => {}
            }
        }
        out
    }

    /// Whether a wildcard includes a column, or may include it if `lenient`.
    fn has(&self, of: Option<&str>, lenient: bool) -> bool {
        self.all
            || match of {
                Some(of) => self.of.iter().any(|known| known == of),
                None => lenient && !self.of.is_empty(),
            }
    }
}

/// Adds suffixes to columns whose name another column of the same query has.
pub(super) fn distinguish(statement: &mut Statement) {
    let mut visitor = Distinguish { depth: 0 };
    if let Statement::CreateView(view) = statement {
        // A view is used within other queries, like a nested query.
        name_columns(&mut view.query);
        visitor.depth = 1;
    }
    // The visitor never stops early.
    let _ = VisitMut::visit(statement, &mut visitor);
}

struct Distinguish {
    depth: usize,
}

impl VisitorMut for Distinguish {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut order: HashSet<String> = HashSet::new();
        if let Some(by) = &query.order_by
            && let OrderByKind::Expressions(keys) = &by.kind
        {
            for key in keys {
                if let Expr::Identifier(ident) = &key.expr {
                    order.insert(folded(ident));
                }
            }
        }
        let within = self.depth > 0;
        if let Some(with) = &mut query.with {
            for common in &mut with.cte_tables {
                name_columns(&mut common.query);
            }
        }
        casts::keep_apart(query);
        order_by_places(query);
        each_select(&mut query.body, &mut |select| {
            distinguish_in(select, within, &order);
        });
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor {
            name_columns(subquery);
        }
        ControlFlow::Continue(())
    }
}

/// Gives every unnamed column, except columns of tables, a unique name with a suffix: the SQL
/// library gives equal names to expressions such as `1.5` and `1.50`.
pub(crate) fn keep_apart(statement: &mut Statement) {
    // The visitor never stops early.
    let _ = VisitMut::visit(statement, &mut Apart);
}

/// Whether a select of a statement has two unnamed columns that are not columns of tables, so that
/// the SQL library may give them equal names.
pub(crate) fn may_clash(statement: &Statement) -> bool {
    let nameless = |item: &&SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => column_of(expr).is_none(),
        _ => false,
    };
    let mut looks =
        Nameless(|select: &Select| select.projection.iter().filter(nameless).count() > 1);
    Visit::visit(statement, &mut looks).is_break()
}

/// Finds such a select.
struct Nameless<F>(F);

impl<F: FnMut(&Select) -> bool> Visitor for Nameless<F> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        match (self.0)(select) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

struct Apart;

impl VisitorMut for Apart {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        each_select(&mut query.body, &mut |select| {
            for (at, item) in select.projection.iter_mut().enumerate() {
                if let SelectItem::UnnamedExpr(expr) = item
                    && column_of(expr).is_none()
                {
                    *item = SelectItem::ExprWithAlias {
                        alias: Ident::with_quote('"', marked(&column_name(expr), at)),
                        expr: expr.clone(),
                    };
                }
            }
        });
        ControlFlow::Continue(())
    }
}

/// Whether the SQL library has refused two columns with one name.
pub(crate) fn is_clash(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Plan(text) => text.contains("require unique expression names"),
        DataFusionError::SchemaError(why, _) => {
            matches!(**why, SchemaError::DuplicateUnqualifiedField { .. })
        }
        _ => false,
    }
}

/// Orders distinct rows by column numbers if a key has the same text as a column: the SQL library
/// finds computed keys only by number.
fn order_by_places(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    if !matches!(select.distinct, Some(Distinct::Distinct)) {
        return;
    }
    let Some(by) = &mut query.order_by else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut by.kind else {
        return;
    };
    for key in keys {
        if matches!(
            key.expr,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
        ) {
            continue;
        }
        let place = select.projection.iter().position(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                *expr == key.expr
            }
            _ => false,
        });
        let wildcard = select.projection.iter().any(|item| {
            !matches!(
                item,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
            )
        });
        if let (Some(place), false) = (place, wildcard) {
            let number = Value::Number((place + 1).to_string(), false);
            key.expr = Expr::Value(ValueWithSpan::from(number));
        }
    }
}

fn distinguish_in(select: &mut Select, within: bool, order: &HashSet<String>) {
    let wildcards = Wildcards::of(select);
    let lenient = !within && select.distinct.is_none();
    let single = select.projection.len() == 1;
    // Groups may use names of output columns, too.
    let mut named = order.clone();
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        named.extend(keys.iter().filter_map(|key| match key {
            Expr::Identifier(ident) => Some(folded(ident)),
            _ => None,
        }));
    }
    let order = &named;
    let mut known = QueryNames::default();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let own = match item {
            SelectItem::UnnamedExpr(expr) => column_of(expr),
            _ => None,
        };
        let Some(key) = (if single { None } else { Key::of(item) }) else {
            if single {
                name_ordered(item, order);
            }
            continue;
        };
        let beside = own
            .as_ref()
            .is_some_and(|(of, _)| wildcards.has(of.as_deref(), lenient));
        if !known.insert(key, within) && !beside {
            name_ordered(item, order);
            continue;
        }
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), folded(alias)),
            SelectItem::UnnamedExpr(expr) => {
                let name = own.map_or_else(|| expr.to_string(), |(_, name)| name);
                (expr.clone(), name)
            }
            _ => continue,
        };
        *item = SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', marked(&name, at)),
        };
    }
}

/// Gives an unnamed column PostgreSQL's name, if the rows are ordered by that name: the sort key
/// then refers to this column.
fn name_ordered(item: &mut SelectItem, order: &HashSet<String>) {
    if let SelectItem::UnnamedExpr(expr) = item
        && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        && let name = column_name(expr)
        && order.contains(&name)
    {
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', name),
        };
    }
}
