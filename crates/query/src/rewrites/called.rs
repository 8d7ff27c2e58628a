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
    name_of(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
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
enum NamePrecision {
    Type,
    Column,
}

fn name_of(expr: &Expr) -> Option<(String, NamePrecision)> {
    if let Some((_, name)) = column_of(expr) {
        return Some((name, NamePrecision::Column));
    }
    let much = |name: &str| Some((name.to_owned(), NamePrecision::Column));
    let kind = |name: &str| Some((name.to_owned(), NamePrecision::Type));
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => name_of(expr),
        Expr::Cast {
            expr, data_type, ..
        } => match name_of(expr) {
            Some((name, NamePrecision::Column)) => Some((name, NamePrecision::Column)),
            _ => Some((type_name(data_type), NamePrecision::Type)),
        },
        Expr::TypedString(TypedString { data_type, .. }) => {
            Some((type_name(data_type), NamePrecision::Type))
        }
        Expr::Interval(_) => kind("interval"),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(name_of) {
            Some((name, NamePrecision::Column)) => Some((name, NamePrecision::Column)),
            _ => kind("case"),
        },
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?;
            Some((folded(name), NamePrecision::Column))
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
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some((folded(alias), NamePrecision::Column)),
            _ => None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last()? {
            AccessExpr::Dot(Expr::Identifier(ident)) => {
                Some((folded(ident), NamePrecision::Column))
            }
            _ => name_of(root),
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
#[must_use]
pub fn first_select(query: &Query) -> Option<&Select> {
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
