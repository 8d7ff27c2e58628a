//! Rewrites of `FROM`: tables of the catalog without their schema, and functions.

use super::{Rewriter, catalog_name, small};
use crate::catalog::columns;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, SetExpr, Statement,
    TableAlias, TableAliasColumnDef, TableFactor,
};
use datafusion::sql::sqlparser::parser::Parser;
use headwater_query::Counted;

/// Functions of PostgreSQL that return rows, and the corresponding tables.
const TABLES: [(&str, &str); 2] = [
    ("pg_get_keywords", "pg_get_keywords"),
    ("pg_show_all_settings", "pg_settings"),
];

/// The table that a function is.
fn table_of(called: &str) -> Option<&'static str> {
    let known = TABLES.iter().find(|(function, _)| *function == called);
    known.map(|(_, table)| *table)
}

impl Rewriter<'_> {
    pub(super) fn relation(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => self.table(name),
            TableFactor::Table {
                name,
                args: args @ Some(_),
                alias,
                ..
            } => {
                let Some(called) = catalog_name(name) else {
                    return;
                };
                if let Some(table) = table_of(&called) {
                    *args = None;
                    *name = qualified(table);
                    if alias.is_none() {
                        *alias = Some(called_so(Ident::new(called)));
                    }
                    self.changed = true;
                    return;
                }
                let list = args.as_ref().map(|args| args.args.clone());
                let alias = alias.clone();
                if let Some(derived) = self.function(&called, &list.unwrap_or_default(), alias) {
                    *factor = derived;
                    self.changed = true;
                }
            }
            TableFactor::UNNEST {
                alias: Some(alias),
                array_exprs,
                ..
            } if alias.columns.is_empty() && array_exprs.len() == 1 => {
                // The only column of a function has the name of the function's alias.
                alias.columns.push(TableAliasColumnDef {
                    name: alias.name.clone(),
                    data_type: None,
                });
                self.changed = true;
            }
            TableFactor::Function {
                name, args, alias, ..
            } => {
                let Some(called) = catalog_name(name) else {
                    return;
                };
                if let Some(derived) = self.function(&called, args, alias.clone()) {
                    *factor = derived;
                    self.changed = true;
                }
            }
            _ => {}
        }
    }

    /// Adds the schema to a table of the catalog that is named without it.
    fn table(&mut self, name: &mut ObjectName) {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return;
        };
        let called = small(ident);
        if self.named.contains(&called) || columns::find(None, &called).is_none() {
            return;
        }
        // A table of the user precedes a table of the catalog. If the tables cannot be listed, the
        // planner reports the error.
        let tables = self.listing.tables();
        let shown = tables.is_ok_and(|tables| tables.iter().any(|table| table.name == called));
        if !shown {
            *name = qualified(&called);
            self.changed = true;
        }
    }

    /// A function in `FROM` as a subquery that has its values as a column.
    fn function(
        &self,
        called: &str,
        args: &[FunctionArg],
        alias: Option<TableAlias>,
    ) -> Option<TableFactor> {
        let literal = |arg: &FunctionArg| {
            matches!(
                arg,
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(_) | Expr::UnaryOp { .. }))
            )
        };
        let series = ["generate_series", "range"].contains(&called);
        if series && args.iter().all(literal) && alias.is_none() {
            // The planner has this function.
            return None;
        }
        let column = match &alias {
            Some(alias) => alias
                .columns
                .first()
                .map_or(&alias.name, |c| &c.name)
                .clone(),
            None => Ident::new(called),
        };
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let call = format!("{called}({})", args.join(", "));
        let sql = match series {
            true => format!("SELECT unnest({call}) AS {column}"),
            false => format!("SELECT {call} AS {column}"),
        };
        let mut statements = Parser::parse_sql(&Counted, &sql).ok()?;
        let Statement::Query(subquery) = statements.pop()? else {
            return None;
        };
        let SetExpr::Select(_) = subquery.body.as_ref() else {
            return None;
        };
        let name = alias.map_or_else(|| Ident::new(called), |alias| alias.name);
        Some(TableFactor::Derived {
            lateral: false,
            subquery,
            alias: Some(called_so(name)),
            sample: None,
        })
    }
}

fn called_so(name: Ident) -> TableAlias {
    TableAlias {
        explicit: true,
        name,
        columns: Vec::new(),
        at: None,
    }
}

fn qualified(name: &str) -> ObjectName {
    ObjectName(vec![
        ObjectNamePart::Identifier(Ident::new("pg_catalog")),
        ObjectNamePart::Identifier(Ident::new(name)),
    ])
}
