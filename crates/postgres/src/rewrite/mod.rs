//! Turns statements of PostgreSQL's clients into statements that the planner accepts.
//!
//! Only differing syntax is changed: qualified functions and operators of `pg_catalog`, casts to
//! types of the catalog, `ARRAY(…)`, functions in `FROM`, queries of the session itself, and
//! subqueries over tables that are always empty. A statement without any of these is returned
//! unchanged, byte for byte, so that positions in errors stay correct.

mod empty;
mod expressions;
mod labels;
mod relations;
#[cfg(test)]
mod tests;

use crate::catalog::{Listing, VariableError, Variables};
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use headwater_query::Counted;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// An analysed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The statement to run; `None` = the original statement.
    pub sql: Option<String>,
    /// Names of the result's columns, where PostgreSQL's names differ; `None` = the statement has a
    /// `*`, or is not a query.
    pub labels: Option<Vec<Option<String>>>,
    /// Settings that the statement changes by `set_config`.
    pub settings: Vec<(String, String)>,
    /// Parameters, from 1, that are cast to PostgreSQL types with another representation here, with
    /// the OIDs of these types.
    pub parameters: Vec<(usize, u32)>,
    /// Parameters, from 1, that are cast in the original statement, with the OIDs of the types:
    /// some may be in parts that are left out.
    pub casts: Vec<(usize, u32)>,
}

/// The statement of a text, if it can be parsed and is a single statement.
fn read(sql: &str) -> Option<Statement> {
    let mut statements = Parser::parse_sql(&Counted, sql).ok()?;
    match statements.len() {
        1 => statements.pop(),
        _ => None,
    }
}

/// Analyses a statement. A statement that cannot be parsed is left to the planner, which reports
/// the error.
///
/// # Errors
/// When the statement reads a setting that does not exist.
fn rewrite_read(
    statement: Option<Statement>,
    listing: &dyn Listing,
    process: u32,
) -> Result<Rewritten, VariableError> {
    let Some(mut statement) = statement else {
        return Ok(Rewritten {
            sql: None,
            labels: None,
            settings: Vec::new(),
            parameters: Vec::new(),
            casts: Vec::new(),
        });
    };
    let casts = expressions::cast_parameters(&statement);
    let labels = labels::of(&statement);
    let mut rewriter = Rewriter {
        session: Session {
            user: listing.user(),
            database: listing.database(),
            variables: listing.variables(),
            process,
        },
        listing,
        named: BTreeSet::new(),
        settings: Vec::new(),
        parameters: Vec::new(),
        changed: false,
    };
    rewriter.changed |= labels::distinguish(&mut statement);
    if let ControlFlow::Break(error) = statement.visit(&mut rewriter) {
        return Err(error);
    }
    Ok(Rewritten {
        sql: rewriter.changed.then(|| statement.to_string()),
        labels,
        settings: rewriter.settings,
        parameters: rewriter.parameters,
        casts,
    })
}

/// Looks at the statement of a text.
#[cfg(test)]
fn rewritten(sql: &str, listing: &dyn Listing, process: u32) -> Result<Rewritten, VariableError> {
    rewrite_read(read(sql), listing, process)
}

/// Looks at a statement of a client of PostgreSQL, within the limits of every statement. The inner
/// error names a setting that does not exist.
///
/// # Errors
/// When the statement exceeds the limits of length, size or depth, or parsing takes too long.
pub async fn rewrite(
    session: &headwater_query::Session,
    sql: &str,
    listing: Arc<dyn Listing>,
    process: u32,
) -> headwater_query::Result<Result<Rewritten, VariableError>> {
    let most = session.text_bytes_max();
    let look = move |text: &str| {
        let statement = read(text);
        // The limits apply to the original statement, not to the rewritten one.
        if let Some(statement) = &statement {
            headwater_query::measure_least(statement)?;
        }
        let looked = rewrite_read(statement, listing.as_ref(), process);
        if let Ok(Rewritten {
            sql: Some(made), ..
        }) = &looked
        {
            check_length(text.len(), made.len(), most)?;
        }
        Ok(looked)
    };
    session.look_at(sql, look).await
}

/// Refuses a text that has become too long by insertions.
fn check_length(written: usize, made: usize, most: usize) -> headwater_query::Result<()> {
    if made <= most {
        return Ok(());
    }
    let told = format!(
        "the statement has {written} bytes, and {made} in the form that is planned, at most {most} are allowed"
    );
    Err(headwater_query::Error {
        hint: Some("give long expressions that are used repeatedly a name with AS, or select fewer columns".to_owned()),
        ..headwater_query::Error::new("too_large", "54000", told)
    })
}

/// Answers to queries about the session itself.
struct Session {
    user: String,
    database: String,
    variables: Variables,
    process: u32,
}

struct Rewriter<'a> {
    session: Session,
    listing: &'a dyn Listing,
    /// Names defined by `WITH`.
    named: BTreeSet<String>,
    settings: Vec<(String, String)>,
    parameters: Vec<(usize, u32)>,
    changed: bool,
}

impl VisitorMut for Rewriter<'_> {
    type Break = VariableError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<VariableError> {
        for Cte { alias, .. } in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.named.insert(alias.name.value.to_lowercase());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<VariableError> {
        // Names that are not existing relations to the visitor, since the statement creates or
        // drops them.
        match statement {
            Statement::CreateView(view) => self.changed |= self.without_database(&mut view.name),
            Statement::Drop { names, .. } => {
                for name in names {
                    self.changed |= self.without_database(name);
                }
            }
            Statement::CreateIndex(index) => {
                if let Some(name) = &mut index.name {
                    self.changed |= self.without_database(name);
                }
            }
            Statement::AlterIndex { name, .. } => self.changed |= self.without_database(name),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<VariableError> {
        self.changed |= self.without_database(name);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<VariableError> {
        self.relation(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<VariableError> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                self.changed |= self.without_database(name);
            }
        }
        self.changed |= empty::simplify(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<VariableError> {
        // `database.schema.table.column`
        if let Expr::CompoundIdentifier(parts) = expr
            && let [database, _, _, _] = parts.as_slice()
            && small(database) == self.session.database
        {
            parts.remove(0);
            self.changed = true;
        }
        if let Some(number) = expressions::function_oid(expr) {
            self.put(expr, number);
        }
        if let Expr::Case { .. } = expr {
            self.changed |= empty::without_rare_types(expr);
            self.changed |= expressions::in_subquery_to_array_has(expr);
        }
        if let Some(nothing) = empty::instead_of(expr) {
            self.put(expr, nothing);
        }
        if let Expr::Subquery(query) = expr
            && empty::may_be_aggregated(query)
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(inner)
                | SelectItem::ExprWithAlias { expr: inner, .. } = item
                    && let Some(most) = expression_of(&format!("max({inner})"))
                {
                    *inner = most;
                    self.changed = true;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<VariableError> {
        match self.expression(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Rewriter<'_> {
    /// Removes the session's own database before a table's schema, where SQL allows it; true if it
    /// was removed.
    fn without_database(&self, name: &mut ObjectName) -> bool {
        let is_own = match name.0.as_slice() {
            [ObjectNamePart::Identifier(database), _, _] => {
                small(database) == self.session.database
            }
            _ => false,
        };
        if is_own {
            name.0.remove(0);
        }
        is_own
    }

    fn put(&mut self, expr: &mut Expr, new: Expr) {
        *expr = new;
        self.changed = true;
    }

    /// Replaces an expression by a parsed text. The text is made here, of expressions that were
    /// parsed before.
    fn put_text(&mut self, expr: &mut Expr, text: &str) {
        if let Some(new) = expression_of(text) {
            self.put(expr, new);
        }
    }
}

/// An expression from its text.
fn expression_of(text: &str) -> Option<Expr> {
    Parser::new(&Counted)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .ok()
}

/// The last part of a name in small letters, if the other parts are schemas of PostgreSQL.
fn catalog_name(name: &ObjectName) -> Option<String> {
    let parts: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
    match parts?.as_slice() {
        [name] => Some(small(name)),
        [schema, name]
            if ["pg_catalog", "information_schema"].contains(&small(schema).as_str()) =>
        {
            Some(small(name))
        }
        _ => None,
    }
}

/// The effective name: in lower case unless quoted.
fn small(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}
