//! Names of tables in statements.

use crate::catalog::{CATALOG, SCHEMA};
use crate::error::{Error, Result};
use crate::syntax::past_table;
use datafusion::sql::sqlparser::ast;

/// The table of a name: the last part; the parts before must be the existing catalog and schema.
pub(crate) fn table_name(name: &ast::ObjectName) -> Result<String> {
    let mut parts = Vec::new();
    for part in &name.0 {
        match part.as_ident() {
            Some(ident) if ident.quote_style.is_some() => parts.push(ident.value.clone()),
            Some(ident) => parts.push(ident.value.to_lowercase()),
            None => {
                return Err(Error::syntax(format!(
                    "`{name}` is not the name of a table"
                )));
            }
        }
    }
    if let [schema, table] = parts.as_slice() {
        let whole = format!("{schema}.{table}");
        if past_table(&whole).is_some() {
            return Ok(whole);
        }
    }
    let known = [CATALOG, SCHEMA];
    let before = parts.len().saturating_sub(1);
    let right = match before {
        0 => true,
        1 => parts.first().is_some_and(|p| p == SCHEMA),
        2 => parts.iter().take(2).eq(known.iter()),
        _ => false,
    };
    match parts.pop() {
        Some(table) if right => Ok(table),
        _ => Err(unknown_table(&name.to_string())),
    }
}

pub(crate) fn unknown_table(name: &str) -> Error {
    Error::no_table(name)
}
