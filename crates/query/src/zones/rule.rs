//! Finds conversions between instants and local time, after type coercion.

use super::functions::{begin, convert, first, read, write};
use super::of_session;
use super::read::{As, WALL, is_text, is_wall};
use crate::columns::time_type;
use crate::rewrites::times;
use crate::rules::keep_names::{map_expressions, named_columns};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime::now::NowFunc;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use headwater_wire::zone::Zone;

/// The rule; runs last of the type rules, so that it visits every cast.
#[derive(Debug)]
pub(crate) struct InZone;

impl AnalyzerRule for InZone {
    fn name(&self) -> &str {
        "in_time_zone"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let Some(zone) = of_session(options)? else {
            return Ok(plan);
        };
        let mut changed = false;
        let plan = plan.transform_up_with_subqueries(|plan| {
            let schema = named_columns(&plan)?;
            let plan = map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| rewrite(part, &schema, &zone, options))
            })?;
            changed |= plan.transformed;
            match changed {
                true => plan.map_data(LogicalPlan::recompute_schema),
                false => Ok(plan),
            }
        })?;
        Ok(plan.data)
    }
}

fn to(of: &DataType, expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), of.clone()))
}

fn is_instant(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, Some(_)))
}

/// The local time of an instant.
fn wall(zone: &Zone, instant: Expr) -> Expr {
    convert(zone, to(&time_type(), instant))
}

/// A cast that depends on the zone; `None` = it does not.
fn cast(
    expr: &Expr,
    from: &DataType,
    wanted: &DataType,
    zone: &Zone,
    lenient: bool,
) -> Option<Expr> {
    let value = || expr.clone();
    let made = match wanted {
        DataType::Timestamp(_, Some(_)) if is_text(from) => {
            read(zone, value(), As::Instant, lenient)
        }
        DataType::Timestamp(_, None) if is_text(from) => read(zone, value(), As::Wall, lenient),
        DataType::Timestamp(_, Some(_)) if is_wall(from) => convert(zone, to(&WALL, value())),
        DataType::Timestamp(_, None)
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
            if is_instant(from) =>
        {
            wall(zone, value())
        }
        of if is_text(of) && is_instant(from) => write(zone, to(&time_type(), value())),
        _ => return None,
    };
    Some(to(wanted, made))
}

fn rewrite(
    expr: Expr,
    schema: &DFSchema,
    zone: &Zone,
    options: &ConfigOptions,
) -> Result<Transformed<Expr>> {
    let made = match &expr {
        Expr::Cast(Cast { expr: inner, field }) => {
            let from = inner.get_type(schema)?;
            cast(inner, &from, field.data_type(), zone, false)
        }
        Expr::TryCast(TryCast { expr: inner, field }) => {
            let from = inner.get_type(schema)?;
            cast(inner, &from, field.data_type(), zone, true)
        }
        Expr::ScalarFunction(function) => call(function, schema, zone, options)?,
        _ => None,
    };
    Ok(match made {
        Some(made) => Transformed::yes(made),
        None => Transformed::no(expr),
    })
}

/// Whether an argument of `time_bucket` is an instant: a text may also be a zone or a duration.
fn is_origin(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value
            .try_as_str()
            .flatten()
            .is_none_or(|written| Zone::read(written).is_err() && times::read(written).is_some()),
        _ => true,
    }
}

/// A call that depends on the zone.
fn call(
    function: &ScalarFunction,
    schema: &DFSchema,
    zone: &Zone,
    options: &ConfigOptions,
) -> Result<Option<Expr>> {
    let again = |args: Vec<Expr>| function.func.call(args);
    let instant = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| is_instant(&of));
    let word = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_lowercase),
        _ => None,
    };
    Ok(match (function.func.name(), &*function.args) {
        ("date_part", [part, time])
            if instant(time) && word(part).is_none_or(|part| part != "epoch") =>
        {
            Some(again(vec![part.clone(), wall(zone, time.clone())]))
        }
        ("to_char", [time, format]) if instant(time) => {
            Some(again(vec![wall(zone, time.clone()), format.clone()]))
        }
        ("to_local_time", [time]) if instant(time) => Some(wall(zone, time.clone())),
        ("date_trunc", [unit, time]) if instant(time) => {
            let of = time.get_type(schema)?;
            let seconds = match word(unit).as_deref() {
                Some("nanosecond" | "microsecond" | "millisecond" | "second") => return Ok(None),
                Some("minute") => Some(60u32),
                Some("hour") => Some(3_600),
                _ => None,
            };
            match seconds {
                // These begin at the same instants as in UTC, which the pyramid supports.
                Some(seconds) if zone.is_whole(seconds) => None,
                Some(seconds) => {
                    let time = to(&time_type(), time.clone());
                    let width = i64::from(seconds) * 1_000_000_000;
                    Some(to(&of, begin(zone, width, 0, time)))
                }
                None => {
                    let shown = again(vec![unit.clone(), wall(zone, time.clone())]);
                    Some(to(&of, first(zone, to(&WALL, shown))))
                }
            }
        }
        // The SQL library coerces the origin of `date_bin`; this function accepts any type.
        ("time_bucket", [width, time, origin]) if instant(time) && is_origin(origin) => {
            let from = origin.get_type(schema)?;
            let origin = cast(origin, &from, &time_type(), zone, false);
            origin.map(|origin| again(vec![width.clone(), time.clone(), origin]))
        }
        // With an explicit zone the session's zone is ignored.
        ("time_bucket", [width, time, Expr::Literal(own, _), origin, offset])
            if instant(time) && own.is_null() && is_origin(origin) =>
        {
            let from = origin.get_type(schema)?;
            let origin = cast(origin, &from, &time_type(), zone, false);
            origin.map(|origin| {
                let own = Expr::Literal(own.clone(), None);
                again(vec![
                    width.clone(),
                    time.clone(),
                    own,
                    origin,
                    offset.clone(),
                ])
            })
        }
        ("current_date" | "current_time", []) => {
            let field = Expr::ScalarFunction(function.clone()).get_type(schema)?;
            let now = ScalarUDF::from(NowFunc::new_with_config(options)).call(Vec::new());
            Some(to(&field, wall(zone, now)))
        }
        _ => None,
    })
}
