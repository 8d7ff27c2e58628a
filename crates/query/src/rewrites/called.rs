//! PostgreSQL's names of unnamed columns, where the SQL library's differ.
//!
//! Invariants: names are PostgreSQL's, however the SQL library names a column, so that references
//! to a column of a nested query resolve; a named column keeps its name.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, DataType, Expr, Ident, Query, Select, SelectItem, SetExpr, TrimWhereField,
    TypedString, UnaryOperator,
};

/// PostgreSQL's name of an unnamed column: the name of its function, or of the column in it.
#[must_use]
pub fn column_name(expr: &Expr) -> String {
    found(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// Names the unnamed columns of a nested query as PostgreSQL does.
pub(super) fn name_columns(query: &mut Query) {
    let mut body = query.body.as_mut();
    let select = loop {
        body = match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(query) => query.body.as_mut(),
            SetExpr::SetOperation { left, .. } => left,
            _ => return,
        };
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            *item = SelectItem::ExprWithAlias {
                alias: Ident::with_quote('"', column_name(expr)),
                expr: expr.clone(),
            };
        }
    }
}

/// Precision of a name: the name of the cast expression has precedence over a type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    Type,
    Much,
}

fn found(expr: &Expr) -> Option<(String, Tells)> {
    if let Some((_, name)) = column_of(expr) {
        return Some((name, Tells::Much));
    }
    let much = |name: &str| Some((name.to_owned(), Tells::Much));
    let kind = |name: &str| Some((name.to_owned(), Tells::Type));
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => found(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => found(expr),
        Expr::Cast {
            expr, data_type, ..
        } => match found(expr) {
            Some((name, Tells::Much)) => Some((name, Tells::Much)),
            _ => Some((type_name(data_type), Tells::Type)),
        },
        Expr::TypedString(TypedString { data_type, .. }) => {
            Some((type_name(data_type), Tells::Type))
        }
        Expr::Interval(_) => kind("interval"),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(found) {
            Some((name, Tells::Much)) => Some((name, Tells::Much)),
            _ => kind("case"),
        },
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?;
            Some((folded(name), Tells::Much))
        }
        Expr::Extract { .. } => much("extract"),
        Expr::AtTimeZone { .. } => much("timezone"),
        Expr::Exists { .. } => much("exists"),
        Expr::Array(_) => much("array"),
        Expr::Tuple(_) => much("row"),
        Expr::Ceil { .. } => much("ceil"),
        Expr::Floor { .. } => much("floor"),
        Expr::Substring { .. } => much("substring"),
        Expr::Position { .. } => much("position"),
        Expr::Overlay { .. } => much("overlay"),
        Expr::Trim { trim_where, .. } => much(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        Expr::Subquery(query) => match first_select(query)?.projection.first()? {
            SelectItem::UnnamedExpr(expr) => found(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some((folded(alias), Tells::Much)),
            _ => None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last()? {
            AccessExpr::Dot(Expr::Identifier(ident)) => Some((folded(ident), Tells::Much)),
            _ => found(root),
        },
        _ => None,
    }
}

/// Name of a type in `pg_type`; for an array, the name of its element type.
#[must_use]
pub fn type_name(data_type: &DataType) -> String {
    let text = data_type.to_string().to_lowercase();
    let element = text.strip_suffix("[]").unwrap_or(&text);
    let last = element.rsplit('.').next().unwrap_or_default();
    let zoned = last.ends_with("with time zone");
    let plain = last.split('(').next().unwrap_or_default().trim();
    match plain {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "double precision" | "double" | "float" => "float8",
        "real" => "float4",
        "decimal" | "dec" => "numeric",
        "char" | "character" => "bpchar",
        "character varying" | "char varying" => "varchar",
        "timestamp with time zone" => "timestamptz",
        "timestamp" if zoned => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "time with time zone" => "timetz",
        "time without time zone" => "time",
        other => other.trim_matches('"'),
    }
    .to_owned()
}

/// The select whose columns are the query's columns.
pub(super) fn first_select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(query) => query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => left,
            _ => return None,
        };
    }
}

/// A name as used for look-ups.
pub(crate) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// The column of an expression, ignoring casts: its qualifier and its name.
pub(super) fn column_of(expr: &Expr) -> Option<(Option<String>, String)> {
    match expr {
        Expr::Identifier(ident) => Some((None, folded(ident))),
        Expr::CompoundIdentifier(parts) => {
            let (last, of) = parts.split_last()?;
            let of: Vec<String> = of.iter().map(folded).collect();
            Some((Some(of.join(".")), folded(last)))
        }
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => column_of(inner),
        _ => None,
    }
}
