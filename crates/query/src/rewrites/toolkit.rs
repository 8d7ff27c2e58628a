//! Functions of TimescaleDB and its toolkit with named arguments, or with one name for two
//! functions.

use super::{call, constant, value};
use crate::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

/// The name under which `integral` of values is planned; `integral` itself takes a time weight.
pub(crate) const INTEGRAL: &str = "integral_over";

/// Argument names of `time_bucket`, in order.
const BUCKET: [&str; 5] = ["bucket_width", "ts", "timezone", "origin", "offset"];
/// Argument names of `time_bucket_gapfill`.
const GAPFILL: [&str; 5] = ["bucket_width", "ts", "timezone", "start", "finish"];
/// Argument names of `locf` and `interpolate`.
const FILL: [&str; 3] = ["value", "prev", "treat_null_as_missing"];

/// The replacement of a call; `None` = unchanged.
pub(super) fn changed(function: &Function) -> Result<Option<Expr>> {
    let [name] = function.name.0.as_slice() else {
        return Ok(None);
    };
    let Some(name) = name.as_ident().map(|name| name.value.to_lowercase()) else {
        return Ok(None);
    };
    Ok(match name.as_str() {
        "time_bucket" => in_order(function, &BUCKET)?,
        "time_bucket_gapfill" => in_order(function, &GAPFILL)?,
        "locf" => in_order(function, &FILL)?,
        "integral" => integral(function),
        "approx_percentile" => Some(approx_percentile(function)?),
        _ => None,
    })
}

fn arguments(function: &Function) -> Option<&[FunctionArg]> {
    match &function.args {
        FunctionArguments::List(list) => Some(&list.args),
        _ => None,
    }
}

/// An unnamed argument.
fn plain(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// The call with its named arguments in their positions, and `NULL` for omitted ones.
fn in_order(function: &Function, names: &[&str]) -> Result<Option<Expr>> {
    let args = arguments(function).unwrap_or(&[]);
    if args.iter().all(|arg| plain(arg).is_some()) {
        return Ok(None);
    }
    let null = || value(Value::Null);
    let mut placed: Vec<Option<Expr>> = vec![None; names.len()];
    for (place, arg) in args.iter().enumerate() {
        let (place, given) = match arg {
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(given),
                ..
            } => {
                let wanted = name.value.to_lowercase();
                let Some(place) = names.iter().position(|name| **name == *wanted) else {
                    let all = names.join(", ");
                    return Err(Error::invalid_value(format!(
                        "{}: there is no argument named `{wanted}`",
                        function.name
                    ))
                    .with_hint(format!("the arguments are {all}")));
                };
                (place, given)
            }
            other => match plain(other) {
                Some(given) => (place, given),
                None => return Ok(None),
            },
        };
        match placed.get_mut(place) {
            Some(known @ None) => *known = Some(given.clone()),
            _ => {
                return Err(Error::invalid_value(format!(
                    "{}: an argument is given twice, or there are too many",
                    function.name
                )));
            }
        }
    }
    let placed = placed.into_iter().map(|given| given.unwrap_or_else(null));
    let mut made = function.clone();
    if let FunctionArguments::List(list) = &mut made.args {
        let args = placed.map(|given| FunctionArg::Unnamed(FunctionArgExpr::Expr(given)));
        list.args = args.collect();
    }
    Ok(Some(Expr::Function(made)))
}

/// `integral(value, time [, unit])` is an aggregate, `integral(weight [, 'unit'])` an accessor of a
/// weight.
fn integral(function: &Function) -> Option<Expr> {
    let args: Option<Vec<&Expr>> = arguments(function)?.iter().map(plain).collect();
    let of_weight = match args?.as_slice() {
        [_] => true,
        [_, unit] => constant(unit).is_some() || matches!(unit, Expr::Interval(_)),
        _ => false,
    };
    if of_weight {
        return None;
    }
    let Expr::Function(named) = call(INTEGRAL, Vec::new()) else {
        return None;
    };
    let mut made = function.clone();
    made.name = named.name;
    Some(Expr::Function(made))
}

/// Rewrites `approx_percentile(p, percentile_agg(x))` to the estimate of the SQL library.
fn approx_percentile(function: &Function) -> Result<Expr> {
    let found = || {
        let [
            share,
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(of))),
        ] = arguments(function)?
        else {
            return None;
        };
        let is_sketch = ["percentile_agg", "uddsketch", "tdigest"]
            .iter()
            .any(|name| of.name.to_string().eq_ignore_ascii_case(name));
        let own = arguments(of)?.last().filter(|_| is_sketch)?;
        Some((plain(share)?, plain(own)?, of))
    };
    let Some((share, own, of)) = found() else {
        return Err(Error::type_mismatch(
            "approx_percentile: expected a fraction and percentile_agg of a column",
        )
        .with_hint("for example: approx_percentile(0.95, percentile_agg(temp))"));
    };
    let Expr::Function(mut made) = call("approx_percentile_cont", vec![own.clone(), share.clone()])
    else {
        return Err(Error::internal("a call that is none"));
    };
    made.filter = of.filter.clone().or_else(|| function.filter.clone());
    made.over = function.over.clone();
    Ok(Expr::Function(made))
}
