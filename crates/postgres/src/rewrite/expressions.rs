//! Operators, casts and functions.

use super::{Rewriter, VariableError, catalog_name};
use crate::catalog::PgType;
use crate::catalog::names::quote_literal;
use crate::catalog::variables::SERVER_VERSION;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr, Statement,
    Subscript, TableFactor, Value, ValueWithSpan, visit_expressions, visit_expressions_mut,
    visit_relations,
};
use datafusion::sql::sqlparser::parser::Parser;
use headwater_query::Counted;
use std::ops::ControlFlow;

/// Replacement of a cast.
enum CastReplacement {
    /// The cast is left out.
    None,
    /// Cast to this type.
    To(&'static str),
    /// Text to a number by the first function; a value that is not a text to a name by the second.
    Named(&'static str, &'static str),
    /// Cast to the name of a function, as `pg_type` has them.
    Function,
    /// A text such as `{a,b}` to an array of this type.
    Array(&'static str),
}

/// `'name'::regproc::oid`, the OID of a function.
pub(super) fn function_oid(expr: &Expr) -> Option<Expr> {
    let of_type = |expr: &Expr, wanted: &str| match expr {
        Expr::Cast {
            expr, data_type, ..
        } => {
            let name = data_type.to_string().to_lowercase();
            let found = name.strip_prefix("pg_catalog.").unwrap_or(&name) == wanted;
            found.then(|| expr.as_ref().clone())
        }
        _ => None,
    };
    let inner = of_type(expr, "oid")?;
    let name = of_type(&inner, "regproc").or_else(|| of_type(&inner, "regprocedure"))?;
    string(&name)?;
    super::expression_of(&format!("pg_regproc_oid({name})"))
}

/// Rewrites `x IN (SELECT … FROM functions)` inside `CASE` to `array_has(…)`, which the planner
/// accepts there. Where `IN` is null, `array_has` is false; a condition of `CASE` treats both
/// alike.
pub(super) fn in_subquery_to_array_has(case: &mut Expr) -> bool {
    let mut changed = false;
    let walked: ControlFlow<()> = visit_expressions_mut(case, |expr| {
        if let Expr::InSubquery {
            expr: sought,
            subquery,
            negated: false,
        } = expr
            && reads_functions(subquery)
            && let Some(array) = array_of_query(subquery)
            && let Some(made) = super::expression_of(&format!("array_has({array}, {sought})"))
        {
            *expr = made;
            changed = true;
        }
        ControlFlow::Continue(())
    });
    changed && walked.is_continue()
}

/// True when a query reads only functions.
fn reads_functions(query: &datafusion::sql::sqlparser::ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    !select.from.is_empty()
        && select.from.iter().all(|from| {
            from.joins.is_empty()
                && matches!(
                    from.relation,
                    TableFactor::Table { args: Some(_), .. } | TableFactor::Function { .. }
                )
        })
}

/// Writes an operation with an operator of PostgreSQL in the planner's syntax.
fn custom_operation(left: &Expr, parts: &[String], right: &Expr) -> String {
    let operator = parts.last().cloned().unwrap_or_default();
    let (left, right) = (left.to_string(), right.to_string());
    match operator.as_str() {
        "~~" => format!("({left}) LIKE ({right})"),
        "!~~" => format!("({left}) NOT LIKE ({right})"),
        "~~*" => format!("({left}) ILIKE ({right})"),
        "!~~*" => format!("({left}) NOT ILIKE ({right})"),
        _ => format!("({left}) {operator} ({right})"),
    }
}

impl Rewriter<'_> {
    /// Rewrites an expression whose parts are already rewritten.
    pub(super) fn expression(&mut self, expr: &mut Expr) -> Result<(), VariableError> {
        match expr {
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                self.comparison(left, right);
            }
            Expr::InList { expr, list, .. } if list.iter().all(is_number) => {
                self.routine_oid(expr);
            }
            Expr::Identifier(name) if name.quote_style.is_none() => {
                let name = super::small(name);
                if name == "current_role" {
                    let user = quote_literal(&self.session.user);
                    self.put_text(expr, &user);
                }
            }
            Expr::BinaryOp {
                left,
                op: BinaryOperator::PGCustomBinaryOperator(parts),
                right,
            } => {
                let text = custom_operation(left, parts, right);
                self.put_text(expr, &text);
            }
            Expr::Like {
                pattern,
                escape_char: Some(escape),
                ..
            }
            | Expr::ILike {
                pattern,
                escape_char: Some(escape),
                ..
            } => self.escaped(pattern, escape),
            Expr::Collate { expr: inner, .. } => {
                let inner = inner.as_ref().clone();
                self.put(expr, inner);
            }
            Expr::Cast {
                expr: inner,
                data_type,
                ..
            } => {
                if let Some(text) = self.cast(inner, data_type) {
                    self.put_text(expr, &text);
                }
            }
            Expr::AnyOp { left, right, .. } if reads_memberships(right) => {
                // Roles do not have members: each contains only itself.
                let user = quote_literal(&self.session.user);
                let text = format!("({left}) = {user}");
                self.put_text(expr, &text);
            }
            Expr::AnyOp { right, .. } => self.array_literal(right),
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let Some(text) = self.field(root, access_chain) {
                    self.put_text(expr, &text);
                }
            }
            Expr::Function(_) => self.call(expr)?,
            _ => {}
        }
        Ok(())
    }

    /// In a comparison with a function's OID, converts the name of a function to its OID.
    fn comparison(&mut self, left: &mut Expr, right: &mut Expr) {
        let numbers = (is_number(left), is_number(right));
        for (number, name) in [(numbers.0, right), (numbers.1, left)] {
            if number {
                self.routine_oid(name);
            }
        }
    }

    /// Replaces the escape character of a pattern by the backslash, the only one that the planner
    /// accepts.
    fn escaped(&mut self, pattern: &mut Expr, escape: &mut ValueWithSpan) {
        let ValueWithSpan {
            value: Value::SingleQuotedString(by),
            ..
        } = escape
        else {
            return;
        };
        if by == "\\" || by.chars().count() != 1 {
            return;
        }
        let twice = quote_literal(&by.repeat(2));
        let by = quote_literal(by);
        let text = format!(
            "replace(replace(replace(replace({pattern}, '\\', '\\\\'), {twice}, chr(1)), {by}, '\\'), chr(1), {by})"
        );
        *escape = Value::SingleQuotedString("\\".to_owned()).into();
        self.put_text(pattern, &text);
    }

    /// Returns the replacement of a cast; `None` = unchanged.
    fn cast(&mut self, inner: &mut Expr, data_type: &DataType) -> Option<String> {
        if let Some(told) = parameter(inner, data_type) {
            self.parameters.push(told);
        }
        if is_whole(data_type) {
            self.routine_oid(inner);
        }
        cast(inner, data_type)
    }

    /// Makes a text such as `{a,b}` after `ANY` an array.
    fn array_literal(&mut self, right: &mut Expr) {
        let array = match strip(right) {
            Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(text),
                ..
            }) => array(text, "TEXT"),
            _ => None,
        };
        if let Some(text) = array {
            self.put_text(right, &text);
        }
    }

    /// Returns the replacement of `(expression).field`; `None` = unchanged. Elements of arrays are
    /// the planner's, except the elements of vectors, which begin at 0.
    fn field(&mut self, root: &Expr, access: &mut [AccessExpr]) -> Option<String> {
        if let [AccessExpr::Dot(Expr::Identifier(field))] = &*access
            && matches!(root, Expr::Nested(_))
        {
            return Some(format!(
                "get_field({root}, {})",
                quote_literal(&field.value)
            ));
        }
        if let Some(index) = index_of_vector(root, access)
            && let Some(made) = super::expression_of(&format!("({index}) + 1"))
        {
            *index = made;
            self.changed = true;
        }
        None
    }

    /// Replaces a call, or removes the schema of the catalog before its name.
    fn call(&mut self, expr: &mut Expr) -> Result<(), VariableError> {
        let Expr::Function(function) = expr else {
            return Ok(());
        };
        if let Some(text) = self.function_call(function)? {
            self.put_text(expr, &text);
        } else if function.name.0.len() > 1
            && let Some(name) = catalog_name(&function.name)
        {
            function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]);
            self.changed = true;
        }
        Ok(())
    }

    /// A column that names a function becomes the number of it, where a number is expected.
    fn routine_oid(&mut self, name: &mut Expr) {
        if is_named(name, &ROUTINES)
            && let Some(made) = super::expression_of(&format!("pg_regproc_oid({name})"))
        {
            *name = made;
            self.changed = true;
        }
    }

    /// Replacement of a call; `None` = unchanged.
    fn function_call(&mut self, function: &Function) -> Result<Option<String>, VariableError> {
        let Some(name) = catalog_name(&function.name) else {
            return Ok(None);
        };
        if let (FunctionArguments::Subquery(query), "array") = (&function.args, name.as_str()) {
            return Ok(array_of_query(query));
        }
        let args: Vec<&Expr> = match &function.args {
            FunctionArguments::None => Vec::new(),
            FunctionArguments::List(list) => list
                .args
                .iter()
                .filter_map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                    _ => None,
                })
                .collect(),
            FunctionArguments::Subquery(_) => return Ok(None),
        };
        let text = |text: &str| Ok(Some(quote_literal(text)));
        match (name.as_str(), args.as_slice()) {
            ("current_user" | "session_user" | "user" | "current_role", []) => {
                text(&self.session.user)
            }
            ("current_database" | "current_catalog", []) => text(&self.session.database),
            ("current_schema", []) => text("public"),
            ("version", []) => text(&format!("PostgreSQL {SERVER_VERSION}")),
            ("pg_backend_pid", []) => Ok(Some(self.session.process.to_string())),
            (
                "inet_server_addr" | "inet_client_addr" | "inet_server_port" | "inet_client_port",
                [],
            ) => Ok(Some("NULL".to_owned())),
            ("txid_current" | "txid_current_if_assigned", []) => {
                // Transactions do not exist here.
                Ok(Some("CAST(NULL AS BIGINT)".to_owned()))
            }
            ("pg_my_temp_schema", []) => Ok(Some("0".to_owned())),
            ("current_schemas", [implicit]) => Ok(Some(
                match strip(implicit).to_string().to_lowercase().as_str() {
                    "true" => "make_array('pg_catalog', 'public')".to_owned(),
                    _ => "make_array('public')".to_owned(),
                },
            )),
            ("current_setting", [name, missing @ ..]) => {
                let Some(name) = string(name) else {
                    return Ok(None);
                };
                let lenient = missing
                    .first()
                    .is_some_and(|m| strip(m).to_string().eq_ignore_ascii_case("true"));
                match self.session.variables.get(&name) {
                    Ok(value) => text(value),
                    Err(_) if lenient => Ok(Some("NULL".to_owned())),
                    Err(error) => Err(error),
                }
            }
            ("set_config", [name, value, _]) => {
                let (Some(name), Some(value)) = (string(name), string(value)) else {
                    return Ok(None);
                };
                self.session.variables.set(&name, &value)?;
                let now = self.session.variables.get(&name)?.to_owned();
                self.settings.push((name, value));
                text(&now)
            }
            // Vectors begin at 0.
            ("array_lower", [array, _]) if is_named(array, &VECTORS) => Ok(Some(format!(
                "CASE WHEN array_length({array}) > 0 THEN 0 END"
            ))),
            ("array_upper", [array, _]) if is_named(array, &VECTORS) => {
                Ok(Some(format!("CAST(array_length({array}) AS BIGINT) - 1")))
            }
            ("generate_subscripts", [array, ..]) if is_named(array, &VECTORS) => Ok(Some(format!(
                "unnest(generate_series(0, CAST(array_length({array}) AS BIGINT) - 1))"
            ))),
            // Each element with its index, as a row.
            ("_pg_expandarray", [array]) => Ok(Some(format!("unnest(pg_numbered({array}))"))),
            ("array_lower", [array, _]) => Ok(Some(format!(
                "CASE WHEN array_length({array}) > 0 THEN 1 END"
            ))),
            ("array_upper", [array, _]) => {
                Ok(Some(format!("CAST(array_length({array}) AS BIGINT)")))
            }
            ("generate_subscripts", [array, ..]) => Ok(Some(format!(
                "unnest(generate_series(1, CAST(array_length({array}) AS BIGINT)))"
            ))),
            _ => Ok(None),
        }
    }
}

/// The parameters that a statement casts, with the numbers of the types.
pub(super) fn cast_parameters(statement: &Statement) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    let walked: ControlFlow<()> = visit_expressions(statement, |expr| {
        if let Expr::Cast {
            expr, data_type, ..
        } = expr
            && let Expr::Value(value) = strip(expr)
            && let Value::Placeholder(name) = &value.value
            && let Some(number) = name.strip_prefix('$').and_then(|n| n.parse().ok())
            && let Some(of) = PgType::named(&headwater_query::type_name(data_type))
        {
            let list = matches!(data_type, DataType::Array(_));
            found.push((number, if list { of.array } else { of.oid }));
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_continue());
    found
}

/// Number of a parameter, from 1, that is cast to a type with another representation here, and the
/// OID of that type: drivers send parameters in the type that the server reports.
fn parameter(inner: &Expr, data_type: &DataType) -> Option<(usize, u32)> {
    let Expr::Value(ValueWithSpan {
        value: Value::Placeholder(name),
        ..
    }) = strip(inner)
    else {
        return None;
    };
    let number = name.strip_prefix('$')?.parse().ok()?;
    let of = data_type.to_string().to_lowercase();
    let (of, list) = match of.strip_suffix("[]") {
        Some(element) => (element, true),
        None => (of.as_str(), false),
    };
    if !["oid", "uuid", "json", "jsonb"].contains(&of) {
        return None;
    }
    let of = PgType::named(of)?;
    Some((number, if list { of.array } else { of.oid }))
}

/// Columns of the catalog that name functions: PostgreSQL's `regproc`, which is a number that is
/// shown as a name.
const ROUTINES: [&str; 12] = [
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typmodin",
    "typmodout",
    "typanalyze",
    "typsubscript",
    "amhandler",
    "conproc",
    "oprcode",
    "prosupport",
];

/// Columns of the catalog that are vectors: arrays whose first element has number 0.
const VECTORS: [&str; 5] = [
    "indkey",
    "indoption",
    "indclass",
    "indcollation",
    "proargtypes",
];

/// The index of an element of a vector: `i.indkey[0]`.
fn index_of_vector<'a>(root: &Expr, access: &'a mut [AccessExpr]) -> Option<&'a mut Expr> {
    let (last, before) = access.split_last_mut()?;
    let is_vector = match before {
        [] => is_named(root, &VECTORS),
        [.., AccessExpr::Dot(field)] => is_named(field, &VECTORS),
        _ => false,
    };
    match last {
        AccessExpr::Subscript(Subscript::Index { index }) if is_vector => Some(index),
        _ => None,
    }
}

fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// True when a type is an integer type, as OIDs of functions are.
fn is_whole(data_type: &DataType) -> bool {
    let name = data_type.to_string().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    ["oid", "int", "integer", "int4", "bigint", "int8"].contains(&name)
}

/// True when an expression is a whole number by its form: a literal, a cast, the OID of a row of
/// the catalog.
fn is_number(expr: &Expr) -> bool {
    match strip(expr) {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::Cast { data_type, .. } => is_whole(data_type),
        Expr::Function(function) => catalog_name(&function.name)
            .is_some_and(|name| ["pg_regproc_oid", "pg_regtype_oid"].contains(&name.as_str())),
        other => is_named(other, &["oid"]),
    }
}

/// True when an expression, ignoring casts, is a column with one of these names.
fn is_named(expr: &Expr, names: &[&str]) -> bool {
    let name = match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return is_named(inner, names),
        Expr::Identifier(name) => super::small(name),
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(name) => super::small(name),
            None => return false,
        },
        _ => return false,
    };
    names.contains(&name.as_str())
}

/// True when an array contains the roles with a given member.
fn reads_memberships(array: &Expr) -> bool {
    let Expr::Subquery(query) = strip(array) else {
        return false;
    };
    let found = visit_relations(query.as_ref(), |name| {
        match catalog_name(name).as_deref() == Some("pg_auth_members") {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

/// Returns an expression without surrounding parentheses.
fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => strip(inner),
        expr => expr,
    }
}

/// The text of a literal, with or without a cast.
fn string(expr: &Expr) -> Option<String> {
    match strip(expr) {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text),
            ..
        }) => Some(text.clone()),
        Expr::Cast { expr, .. } => string(expr),
        _ => None,
    }
}

/// `ARRAY(SELECT x …)` as a subquery that aggregates.
fn array_of_query(query: &datafusion::sql::sqlparser::ast::Query) -> Option<String> {
    let mut inner = query.clone();
    let SetExpr::Select(select) = inner.body.as_mut() else {
        return None;
    };
    let [item] = select.projection.as_mut_slice() else {
        return None;
    };
    let value = match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr.clone(),
        _ => return None,
    };
    if query.order_by.is_none() && query.limit_clause.is_none() && select.distinct.is_none() {
        *item = SelectItem::UnnamedExpr(super::expression_of(&format!("array_agg({value})"))?);
        return Some(format!("({inner})"));
    }
    *item = SelectItem::ExprWithAlias {
        expr: value,
        alias: Ident::new("element"),
    };
    Some(format!(
        "(SELECT array_agg(element) FROM ({inner}) AS elements)"
    ))
}

/// A text such as `{a,b}` as an array; `None` = the text is not an array, or contains quotes or
/// inner arrays.
fn array(text: &str, data_type: &str) -> Option<String> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inner.contains(['"', '{', '\\']) {
        return None;
    }
    let elements: Vec<String> = inner
        .split(',')
        .map(str::trim)
        .filter(|_| !inner.trim().is_empty())
        .map(|element| match element.eq_ignore_ascii_case("null") {
            true => "NULL".to_owned(),
            false => format!("CAST({} AS {data_type})", quote_literal(element)),
        })
        .collect();
    Some(match elements.is_empty() {
        true => format!("CAST(make_array() AS {data_type}[])"),
        false => format!("make_array({})", elements.join(", ")),
    })
}

/// A cast in the planner's syntax; `None` = unchanged.
fn cast(inner: &Expr, data_type: &DataType) -> Option<String> {
    let full = data_type.to_string().to_lowercase();
    let name = full
        .strip_prefix("pg_catalog.")
        .or_else(|| full.strip_prefix("information_schema."))
        .unwrap_or(&full);
    let target = match name {
        "regclass" => CastReplacement::Named("pg_regclass_oid", "pg_regclass_name"),
        "regtype" => CastReplacement::Named("pg_regtype_oid", "format_type"),
        "regnamespace" => CastReplacement::Named("pg_regnamespace_oid", "pg_regnamespace_name"),
        "regrole" => CastReplacement::Named("", "pg_get_userbyid"),
        "regproc" | "regprocedure" => CastReplacement::Function,
        "regoper" | "regoperator" | "name" | "\"name\"" | "\"char\"" | "bpchar" | "cstring"
        | "unknown" | "aclitem" | "pg_node_tree" | "sql_identifier" | "character_data"
        | "yes_or_no" | "uuid" | "json" | "jsonb" => CastReplacement::To("TEXT"),
        "oid" | "xid" | "cid" | "cardinal_number" => CastReplacement::To("BIGINT"),
        "int2vector" | "oidvector" | "anyarray" => CastReplacement::None,
        "name[]" | "\"char\"[]" | "char[]" | "_text" | "_name" | "text[]" | "varchar[]"
        | "uuid[]" | "_uuid" | "json[]" | "jsonb[]" => CastReplacement::Array("TEXT"),
        "oid[]" | "_int8" | "bigint[]" | "int8[]" => CastReplacement::Array("BIGINT"),
        "_int4" | "int[]" | "integer[]" | "int4[]" => CastReplacement::Array("INT"),
        "_int2" | "int2[]" | "smallint[]" => CastReplacement::Array("SMALLINT"),
        "_float8" | "float8[]" | "double precision[]" => CastReplacement::Array("DOUBLE"),
        "_bool" | "bool[]" | "boolean[]" => CastReplacement::Array("BOOLEAN"),
        _ if name.len() < full.len() => {
            // A Headwater type under its schema.
            let parsed = Parser::new(&Counted)
                .try_with_sql(name)
                .and_then(|mut parser| parser.parse_data_type())
                .ok()?;
            return Some(format!("CAST({inner} AS {parsed})"));
        }
        _ => return None,
    };
    let text = string(inner);
    let known = matches!(strip(inner), Expr::Value(_)) || text.is_some();
    Some(match target {
        CastReplacement::None => format!("({inner})"),
        CastReplacement::Function => match text {
            Some(text) => quote_literal(text.strip_prefix("pg_catalog.").unwrap_or(&text)),
            None => format!("CAST({inner} AS TEXT)"),
        },
        CastReplacement::To(to) => format!("CAST({inner} AS {to})"),
        CastReplacement::Named(oid, _) if known && !oid.is_empty() => format!("{oid}({inner})"),
        CastReplacement::Named(_, _) if known => format!("CAST({inner} AS TEXT)"),
        CastReplacement::Named(_, name) => format!("{name}({inner})"),
        CastReplacement::Array(element) => match text {
            Some(text) => array(&text, element)?,
            None if [
                "name[]",
                "\"char\"[]",
                "char[]",
                "oid[]",
                "uuid[]",
                "json[]",
                "jsonb[]",
            ]
            .contains(&name)
                || name.starts_with('_')
                || name.len() < full.len() =>
            {
                format!("CAST({inner} AS {element}[])")
            }
            None => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_arrays_become_arrays() {
        assert_eq!(
            array("{r, p}", "TEXT").as_deref(),
            Some("make_array(CAST('r' AS TEXT), CAST('p' AS TEXT))")
        );
        assert_eq!(
            array("{}", "INT").as_deref(),
            Some("CAST(make_array() AS INT[])")
        );
        assert_eq!(array("{\"a,b\"}", "TEXT"), None);
        assert_eq!(array("r", "TEXT"), None);
    }
}
