//! `USING` of right and full joins. A column that is named there is one column of both inputs, and
//! has a value if either of them has one. The SQL library uses the left one, which is NULL in rows
//! that only the right input has: such joins are rewritten with `ON`, and the column with an
//! expression.
//!
//! Invariants: columns, their names and their order are PostgreSQL's, the joined columns first;
//! statements without such a join are unchanged. Failure: joins that depend on the columns of
//! tables are refused: `NATURAL`, and a column of one of several tables.

use crate::error::{Error, Result};
use crate::rewrites::{binary, call, folded};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExceptSelectItem, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator,
    ObjectName, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableFactor, TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;

/// Rewrites such joins in all queries of a statement.
pub(super) fn columns_of_both_sides(statement: &mut Parse) -> Result<()> {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return columns_of_both_sides(&mut explain.statement),
        _ => return Ok(()),
    };
    match parsed.visit(&mut Queries) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Queries;

impl VisitorMut for Queries {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        match of_query(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// A table of a `FROM`, and its columns that are merged with another table's.
struct JoinedTable {
    name: Ident,
    hidden: Vec<Ident>,
}

/// The joined columns of both inputs, and the tables.
#[derive(Default)]
struct Joined {
    merged: Vec<(Ident, Expr)>,
    tables: Vec<JoinedTable>,
}

fn of_query(query: &mut Query) -> Result<()> {
    let order = match &mut query.order_by {
        Some(order) => match &mut order.kind {
            OrderByKind::Expressions(keys) => keys.as_mut_slice(),
            OrderByKind::All(_) => &mut [],
        },
        None => &mut [],
    };
    let SetExpr::Select(select) = &mut *query.body else {
        return selects_of(&mut query.body);
    };
    let Some(joined) = of_select(select)? else {
        return Ok(());
    };
    for key in order {
        // The name of an output column refers to that column.
        let answers = |item: &SelectItem| match (item, &key.expr) {
            (SelectItem::ExprWithAlias { alias, .. }, Expr::Identifier(name)) => same(alias, name),
            _ => false,
        };
        if !select.projection.iter().any(answers) {
            write(&mut key.expr, &joined);
        }
    }
    Ok(())
}

/// The selects of a union.
fn selects_of(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => of_select(select).map(drop),
        SetExpr::SetOperation { left, right, .. } => {
            selects_of(left)?;
            selects_of(right)
        }
        // Queries in brackets are visited separately.
        _ => Ok(()),
    }
}

fn of_select(select: &mut Select) -> Result<Option<Joined>> {
    if !select.from.iter().any(has_rewritten_join) {
        return Ok(None);
    }
    let mut joined = Joined::default();
    for from in &mut select.from {
        let of = of_joins(from)?;
        joined.merged.extend(of.merged);
        joined.tables.extend(of.tables);
    }
    let mut items = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) => items.extend(all_columns(&options, &joined)?),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                items.push(match merged(&joined, &name) {
                    Some(expr) => SelectItem::ExprWithAlias { expr, alias: name },
                    None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
                });
            }
            mut item => {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } =
                    &mut item
                {
                    write(expr, &joined);
                }
                items.push(item);
            }
        }
    }
    select.projection = items;
    let parts = [
        &mut select.selection,
        &mut select.having,
        &mut select.qualify,
    ];
    for expr in parts.into_iter().flatten() {
        write(expr, &joined);
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        for key in keys {
            write(key, &joined);
        }
    }
    write(&mut select.distinct, &joined);
    write(&mut select.named_window, &joined);
    Ok(Some(joined))
}

/// Whether `FROM` has a join that the library interprets differently.
fn has_rewritten_join(from: &TableWithJoins) -> bool {
    let nested = match &from.relation {
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => has_rewritten_join(table_with_joins),
        _ => false,
    };
    nested
        || from.joins.iter().any(|join| {
            let (kind, constraint) = parts(&join.join_operator);
            let of_both = matches!(
                constraint,
                Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
            );
            let inner = match &join.relation {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => has_rewritten_join(table_with_joins),
                _ => false,
            };
            inner || (of_both && matches!(kind, JoinKind::Right | JoinKind::Full))
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinKind {
    /// The merged columns are the left ones; an inner join, too.
    Left,
    Right,
    Full,
    /// The right input is only looked up.
    LeftAlone,
    RightAlone,
}

fn parts(operator: &JoinOperator) -> (JoinKind, Option<&JoinConstraint>) {
    use JoinOperator as J;
    match operator {
        J::Join(on) | J::Inner(on) | J::Left(on) | J::LeftOuter(on) => (JoinKind::Left, Some(on)),
        J::Right(on) | J::RightOuter(on) => (JoinKind::Right, Some(on)),
        J::FullOuter(on) => (JoinKind::Full, Some(on)),
        J::CrossJoin(on) | J::StraightJoin(on) => (JoinKind::Left, Some(on)),
        J::Semi(on) | J::LeftSemi(on) | J::Anti(on) | J::LeftAnti(on) => {
            (JoinKind::LeftAlone, Some(on))
        }
        J::RightSemi(on) | J::RightAnti(on) => (JoinKind::RightAlone, Some(on)),
        J::AsOf { constraint, .. } => (JoinKind::Left, Some(constraint)),
        _ => (JoinKind::Left, None),
    }
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator as J;
    match operator {
        J::Join(on)
        | J::Inner(on)
        | J::Left(on)
        | J::LeftOuter(on)
        | J::Right(on)
        | J::RightOuter(on)
        | J::FullOuter(on)
        | J::CrossJoin(on)
        | J::StraightJoin(on)
        | J::Semi(on)
        | J::LeftSemi(on)
        | J::Anti(on)
        | J::LeftAnti(on)
        | J::RightSemi(on)
        | J::RightAnti(on)
        | J::AsOf { constraint: on, .. } => Some(on),
        _ => None,
    }
}

fn of_joins(from: &mut TableWithJoins) -> Result<Joined> {
    let mut left = of_table(&mut from.relation)?;
    for join in &mut from.joins {
        let right = of_table(&mut join.relation)?;
        let (kind, _) = parts(&join.join_operator);
        left = together(left, right, kind, constraint_mut(&mut join.join_operator))?;
    }
    Ok(left)
}

fn of_table(table: &mut TableFactor) -> Result<Joined> {
    let name = match table {
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => return of_joins(table_with_joins),
        TableFactor::NestedJoin { .. } => {
            return Err(Error::unsupported(
                "an alias of a join in parentheses together with RIGHT or FULL JOIN … USING",
            )
            .with_hint("give aliases to the tables inside"));
        }
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => name.0.last().and_then(|part| part.as_ident()).cloned(),
        },
        TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::MatchRecognize { alias, .. } => alias.as_ref().map(|a| a.name.clone()),
        _ => None,
    };
    let name = name.ok_or_else(|| {
        Error::unsupported("RIGHT or FULL JOIN … USING together with a relation without a name")
            .with_hint("give it a name: … AS a")
    })?;
    let hidden = Vec::new();
    let tables = vec![JoinedTable { name, hidden }];
    Ok(Joined {
        merged: Vec::new(),
        tables,
    })
}

fn together(
    mut left: Joined,
    mut right: Joined,
    kind: JoinKind,
    constraint: Option<&mut JoinConstraint>,
) -> Result<Joined> {
    let mut columns = Vec::new();
    match constraint {
        Some(JoinConstraint::Natural) => {
            return Err(Error::unsupported(
                "NATURAL together with RIGHT or FULL JOIN of columns of both sides",
            )
            .with_hint("name the columns: … JOIN … USING (a, b)"));
        }
        Some(constraint @ JoinConstraint::Using(_)) => {
            columns = by_columns(&mut left, &mut right, kind, constraint)?;
        }
        Some(JoinConstraint::On(on)) => {
            write(on, &left);
            write(on, &right);
        }
        Some(JoinConstraint::None) | None => {}
    }
    let (merged, tables) = match kind {
        JoinKind::LeftAlone => (left.merged, left.tables),
        JoinKind::RightAlone => (right.merged, right.tables),
        _ => {
            left.tables.extend(right.tables);
            left.merged.extend(right.merged);
            (left.merged, left.tables)
        }
    };
    columns.extend(merged);
    Ok(Joined {
        merged: columns,
        tables,
    })
}

/// Replaces `USING` by `ON`; returns the columns of both inputs.
fn by_columns(
    left: &mut Joined,
    right: &mut Joined,
    kind: JoinKind,
    constraint: &mut JoinConstraint,
) -> Result<Vec<(Ident, Expr)>> {
    let JoinConstraint::Using(names) = constraint else {
        return Ok(Vec::new());
    };
    let mut columns = Vec::new();
    let mut conditions = Vec::new();
    for name in names.iter() {
        let column = column_of(name)?;
        let (l, r) = (take(left, &column)?, take(right, &column)?);
        conditions.push(binary(l.clone(), BinaryOperator::Eq, r.clone()));
        let one = match kind {
            JoinKind::Left | JoinKind::LeftAlone => l,
            JoinKind::Right | JoinKind::RightAlone => r,
            JoinKind::Full => either(l, r),
        };
        columns.push((column, one));
    }
    let all = |a, b| binary(a, BinaryOperator::And, b);
    if let Some(on) = conditions.into_iter().reduce(all) {
        *constraint = JoinConstraint::On(on);
    }
    Ok(columns)
}

/// Takes the column of one input, which is then hidden there.
fn take(side: &mut Joined, column: &Ident) -> Result<Expr> {
    if let Some(at) = side.merged.iter().position(|(name, _)| same(name, column)) {
        return Ok(side.merged.remove(at).1);
    }
    let [table] = side.tables.as_mut_slice() else {
        return Err(Error::unsupported(format!(
            "USING ({column}) of one of several tables together with RIGHT or FULL JOIN"
        ))
        .with_hint("write ON with the tables before their columns"));
    };
    table.hidden.push(column.clone());
    let parts = vec![table.name.clone(), column.clone()];
    Ok(Expr::CompoundIdentifier(parts))
}

fn column_of(name: &ObjectName) -> Result<Ident> {
    match name.0.as_slice() {
        [column] if column.as_ident().is_some() => {
            Ok(column.as_ident().cloned().unwrap_or_else(|| Ident::new("")))
        }
        _ => Err(Error::invalid(format!(
            "USING ({name}): expected a column name without its table"
        ))),
    }
}

fn either(left: Expr, right: Expr) -> Expr {
    call("coalesce", vec![left, right])
}

/// Whether two names refer to the same column.
fn same(a: &Ident, b: &Ident) -> bool {
    folded(a) == folded(b)
}

fn merged(joined: &Joined, name: &Ident) -> Option<Expr> {
    let found = joined.merged.iter().find(|(known, _)| same(known, name));
    found.map(|(_, expr)| expr.clone())
}

/// The merged columns first, then the other columns of the tables.
fn all_columns(options: &WildcardAdditionalOptions, joined: &Joined) -> Result<Vec<SelectItem>> {
    let is_plain = options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none();
    if !is_plain {
        return Err(Error::unsupported(
            "* with some of its columns left out or changed, together with RIGHT or FULL JOIN … USING",
        )
        .with_hint("write the columns"));
    }
    let merged = joined.merged.iter();
    let mut items: Vec<SelectItem> = merged
        .map(|(name, expr)| SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: name.clone(),
        })
        .collect();
    for table in &joined.tables {
        let mut options = WildcardAdditionalOptions::default();
        if let [first, rest @ ..] = table.hidden.as_slice() {
            options.opt_except = Some(ExceptSelectItem {
                first_element: first.clone(),
                additional_elements: rest.to_vec(),
            });
        }
        let name = ObjectName::from(vec![table.name.clone()]);
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        items.push(SelectItem::QualifiedWildcard(kind, options));
    }
    Ok(items)
}

/// Replaces the merged columns by their expressions; subqueries have columns of their own.
fn write(part: &mut impl VisitMut, joined: &Joined) {
    let mut writer = Writer { joined, within: 0 };
    // The visitor never stops early.
    let _ = part.visit(&mut writer);
}

struct Writer<'a> {
    joined: &'a Joined,
    within: u32,
}

impl VisitorMut for Writer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.within == 0
            && let Expr::Identifier(name) = expr
            && let Some(merged) = merged(self.joined, name)
        {
            *expr = merged;
        }
        ControlFlow::Continue(())
    }
}
