//! Puts a node above groups by `time_bucket_gapfill`, and adds columns for the arguments of `locf`
//! and `interpolate` below it.
//!
//! Invariants: columns keep their names; a function in an invalid position is refused by name.
//! Bounds are the arguments of `time_bucket_gapfill`, else the bounds of its time in the conditions
//! of the same query.

use super::functions::{GAPFILL, INTERPOLATE, LOCF, misplaced};
use super::node::{Fill, GapFill};
use crate::columns::time_type;
use crate::error::Error;
use crate::functions::bucket_width;
use crate::rules::keep_names::{has_part, map_expressions};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Extension, Filter, LogicalPlan, Operator,
    Projection, ScalarUDF, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use headwater_wire::zone::Zone;
use std::sync::Arc;

/// The rule; runs after type coercion.
#[derive(Debug)]
pub(crate) struct FillGaps {
    /// `time_bucket`, which replaces the function that fills gaps.
    pub(crate) time_bucket: Arc<ScalarUDF>,
}

fn is_ours(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call)
        if [GAPFILL, LOCF, INTERPOLATE].contains(&call.func.name()))
}

impl AnalyzerRule for FillGaps {
    fn name(&self) -> &str {
        "fill_gaps"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= has_part(node, is_ours)?;
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(plan);
        }
        plan.transform_up_with_subqueries(|node| self.rewrite(node))
            .data()
    }
}

impl FillGaps {
    fn rewrite(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        // The columns of the input may have become nullable.
        let node = node.recompute_schema()?;
        let made = match node {
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate)?,
            LogicalPlan::Filter(filter) => having(filter)?,
            other => other,
        };
        let made = if matches!(made, LogicalPlan::Extension(_)) {
            made
        } else {
            filled(made)?
        };
        Ok(Transformed::yes(made))
    }

    /// Adds missing buckets to groups.
    fn aggregate(&self, aggregate: Aggregate) -> Result<LogicalPlan> {
        let calls = aggregate.group_expr.iter().map(call_of);
        let calls: Vec<Option<&ScalarFunction>> = calls.collect();
        let mut found = calls.iter().enumerate().filter(|(_, call)| call.is_some());
        let Some((place, Some(call))) = found.next() else {
            return Ok(LogicalPlan::Aggregate(aggregate));
        };
        if found.next().is_some() {
            return Err(
                Error::unsupported("time_bucket_gapfill is allowed only once in GROUP BY").into(),
            );
        }
        let request = GapfillRequest::of(call, &aggregate.input)?;
        let mut args = vec![request.width_expr.clone(), request.time.clone()];
        args.extend(request.zone_expr());
        let name = aggregate
            .group_expr
            .get(place)
            .map(|expr| expr.schema_name().to_string());
        let bucket = self
            .time_bucket
            .call(args)
            .alias(name.unwrap_or_else(String::new));
        // Steps on clocks begin at the bucket of an instant, other steps at a bucket.
        let by_clocks = request.zone.is_some() || request.width.months != 0;
        let begins = request.starts.iter().map(|start| match by_clocks {
            true => start.clone(),
            false => {
                let args = vec![request.width_expr.clone(), start.clone()];
                self.time_bucket.call(args)
            }
        });
        let begins = begins.collect();
        let keys = aggregate.group_expr.len();
        let fills = (0..aggregate.schema.fields().len()).map(|at| match at {
            at if at == place => Fill::Bucket,
            at if at < keys => Fill::Key,
            _ => Fill::Absent,
        });
        let fills = fills.collect();
        let mut groups = aggregate.group_expr.clone();
        if let Some(group) = groups.get_mut(place) {
            *group = bucket;
        }
        let input = Aggregate::try_new(aggregate.input, groups, aggregate.aggr_expr)?;
        let input = LogicalPlan::Aggregate(input);
        let node = GapFill {
            schema: Arc::clone(input.schema()),
            input: Arc::new(input.clone()),
            fills: Vec::new(),
            width: request.width,
            zone: request.zone,
            begins,
            ends: request.finishes,
        };
        extension(node.over(input, fills)?)
    }
}

/// The call of a group expression; `None` for several grouping sets.
fn call_of(expr: &Expr) -> Option<&ScalarFunction> {
    match expr {
        Expr::Alias(alias) => call_of(&alias.expr),
        Expr::ScalarFunction(call) if call.func.name() == GAPFILL => Some(call),
        _ => None,
    }
}

fn extension(node: GapFill) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

fn gap_fill(plan: &LogicalPlan) -> Option<&GapFill> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// Applies a condition on groups before gaps are filled.
fn having(filter: Filter) -> Result<LogicalPlan> {
    let Some(node) = gap_fill(&filter.input).filter(|_| !has_ours(&filter.predicate)) else {
        return Ok(LogicalPlan::Filter(filter));
    };
    let below = Filter::try_new(filter.predicate.clone(), Arc::clone(&node.input))?;
    extension(node.over(LogicalPlan::Filter(below), node.fills.clone())?)
}

fn has_ours(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_ours(part))).unwrap_or(false)
}

/// Replaces calls of `locf` and `interpolate` by columns of the input.
fn filled(node: LogicalPlan) -> Result<LogicalPlan> {
    if !has_part(&node, is_ours)? {
        return Ok(node);
    }
    let mut calls: Vec<ScalarFunction> = Vec::new();
    for expr in node.expressions() {
        expr.apply(|part| {
            if let Expr::ScalarFunction(call) = part
                && is_ours(part)
                && !calls.contains(call)
            {
                calls.push(call.clone());
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
    }
    let mut input = match node.inputs().as_slice() {
        [input] => LogicalPlan::clone(input),
        _ => return Err(misplaced(calls.first().map_or(LOCF, |call| call.func.name())).into()),
    };
    let mut columns = Vec::with_capacity(calls.len());
    for call in &calls {
        // Other nodes may have added such columns before.
        let name = format!("{} {}", call.func.name(), input.schema().fields().len());
        let fill = fill_of(call)?;
        let Some(value) = call.args.first() else {
            return Err(misplaced(call.func.name()).into());
        };
        input = with_column(input, value, &name, fill, call.func.name())?;
        columns.push(Expr::Column(Column::new_unqualified(name)));
    }
    let change = &mut |expr: Expr| {
        expr.transform(|part| match &part {
            Expr::ScalarFunction(call) => match calls.iter().position(|known| known == call) {
                Some(at) => match columns.get(at) {
                    Some(column) => Ok(Transformed::yes(column.clone())),
                    None => Ok(Transformed::no(part)),
                },
                None => Ok(Transformed::no(part)),
            },
            _ => Ok(Transformed::no(part)),
        })
    };
    let changed = map_expressions(node, change)?.data;
    changed.with_new_exprs(changed.expressions(), vec![input])
}

fn fill_of(call: &ScalarFunction) -> Result<Fill> {
    let extra = |at: usize| call.args.get(at).filter(|arg| !is_null(arg));
    if call.func.name() == GAPFILL {
        return Err(misplaced(GAPFILL).into());
    }
    if extra(1).is_some() {
        let name = call.func.name();
        return Err(Error::unsupported(format!(
            "{name} does not accept values from before or after the range"
        ))
        .with_hint("begin the range earlier, and filter the first buckets out in an outer query")
        .into());
    }
    Ok(match call.func.name() {
        LOCF => Fill::Last {
            over: match extra(2) {
                None => false,
                Some(Expr::Literal(ScalarValue::Boolean(Some(over)), _)) => *over,
                Some(_) => {
                    let what = "locf: treat_null_as_missing must be true or false";
                    return Err(Error::invalid_value(what).into());
                }
            },
        },
        _ => Fill::Line,
    })
}

/// Whether an argument is omitted. A typed NULL is a parameter without a value yet.
fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Null, _))
}

/// Adds a column to the groups of a plan, with this fill.
fn with_column(
    plan: LogicalPlan,
    value: &Expr,
    name: &str,
    fill: Fill,
    function: &str,
) -> Result<LogicalPlan> {
    if let Some(node) = gap_fill(&plan) {
        let known = node.input.schema().iter();
        let mut columns: Vec<Expr> = known
            .map(|column| Expr::Column(Column::from(column)))
            .collect();
        columns.push(value.clone().alias(name));
        let input = Projection::try_new(columns, Arc::clone(&node.input))?;
        let mut fills = node.fills.clone();
        fills.push(fill);
        return extension(node.over(LogicalPlan::Projection(input), fills)?);
    }
    match plan {
        // These nodes pass on all columns of their input.
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_) => {
            let inputs = plan.inputs();
            let Some(input) = inputs.first() else {
                return Err(misplaced(function).into());
            };
            let input = with_column(LogicalPlan::clone(input), value, name, fill, function)?;
            plan.with_new_exprs(plan.expressions(), vec![input])
        }
        _ => Err(misplaced(function).into()),
    }
}

/// Arguments of a call of `time_bucket_gapfill`.
struct GapfillRequest {
    width: IntervalMonthDayNano,
    width_expr: Expr,
    time: Expr,
    zone: Option<String>,
    starts: Vec<Expr>,
    finishes: Vec<Expr>,
}

impl GapfillRequest {
    fn of(call: &ScalarFunction, input: &LogicalPlan) -> Result<GapfillRequest> {
        let (Some(width_expr), Some(time)) = (call.args.first(), call.args.get(1)) else {
            return Err(misplaced(GAPFILL).into());
        };
        let Expr::Literal(width, _) = width_expr else {
            return Err(
                Error::invalid_value("time_bucket_gapfill: the width must be a constant").into(),
            );
        };
        // NULL is a parameter without a value yet; a NULL width is refused when the statement runs.
        let width = match bucket_width(width)? {
            ScalarValue::IntervalMonthDayNano(Some(width)) => width,
            _ => IntervalMonthDayNano::new(0, 0, 0),
        };
        let (zone, start, finish) = rest(call.args.get(2..).unwrap_or(&[]));
        let zone = zone.map(|name| Zone::read(&name)).transpose();
        let zone = zone.map_err(|why| Error::unknown_zone(&why))?;
        let given =
            |bound: Option<Expr>| -> Result<Vec<Expr>> { bound.into_iter().map(instant).collect() };
        let (mut starts, mut finishes) = (given(start)?, given(finish)?);
        let mut inferred = Inferred::default();
        if starts.is_empty() || finishes.is_empty() {
            infer(input, time, &mut inferred)?;
        }
        if starts.is_empty() {
            starts = inferred.starts;
        }
        if finishes.is_empty() {
            finishes = inferred.finishes;
        }
        for (what, condition, bounds) in [("start", ">=", &starts), ("finish", "<", &finishes)] {
            if bounds.is_empty() {
                return Err(Error::invalid(format!(
                    "time_bucket_gapfill: the {what} of the range is not given"
                ))
                .with_hint(format!(
                    "write WHERE time {condition} …, or name it: time_bucket_gapfill('1h', time, {what} => …)"
                ))
                .into());
            }
        }
        Ok(GapfillRequest {
            width,
            width_expr: width_expr.clone(),
            time: time.clone(),
            zone: zone
                .filter(|zone| !zone.is_utc())
                .map(|zone| zone.name().to_owned()),
            starts,
            finishes,
        })
    }

    fn zone_expr(&self) -> Option<Expr> {
        self.zone.as_ref().map(|zone| lit(zone.clone()))
    }
}

/// The zone, the start and the finish among the arguments after the instant.
fn rest(args: &[Expr]) -> (Option<String>, Option<Expr>, Option<Expr>) {
    let text = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    };
    let zone_first = args.len() == 3
        || (args.len() == 1
            && args
                .first()
                .and_then(text)
                .is_some_and(|name| Zone::read(&name).is_ok()));
    let (zone, bounds) = match (zone_first, args) {
        (true, [zone, bounds @ ..]) => (text(zone), bounds),
        (_, bounds) => (None, bounds),
    };
    let bound = |at: usize| bounds.get(at).filter(|bound| !is_null(bound)).cloned();
    (zone, bound(0), bound(1))
}

/// A bound, cast to the type of the time column.
fn instant(expr: Expr) -> Result<Expr> {
    if !expr.column_refs().is_empty() {
        let what = "time_bucket_gapfill: start and finish must be constants";
        return Err(Error::invalid_value(what).into());
    }
    let of = expr.get_type(&DFSchema::empty())?;
    Ok(match of == time_type() {
        true => expr,
        false => cast(expr, time_type()),
    })
}

/// Bounds that are derived from conditions.
#[derive(Default)]
struct Inferred {
    starts: Vec<Expr>,
    finishes: Vec<Expr>,
}

/// Collects conditions on a time in the query that reads it.
fn infer(plan: &LogicalPlan, time: &Expr, inferred: &mut Inferred) -> Result<()> {
    match plan {
        LogicalPlan::Filter(filter) => {
            for part in split_conjunction(&filter.predicate) {
                inferred.condition(part, time)?;
            }
            infer(&filter.input, time, inferred)
        }
        // A join passes on the columns of both sides with their names.
        LogicalPlan::Join(join) => {
            infer(&join.left, time, inferred)?;
            infer(&join.right, time, inferred)
        }
        _ => Ok(()),
    }
}

/// An expression without a cast between types of instants.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(Cast { expr, field })
            if matches!(field.data_type(), DataType::Timestamp(..)) =>
        {
            bare(expr)
        }
        other => other,
    }
}

/// The next instant after one.
fn after(bound: Expr) -> Expr {
    let step = IntervalMonthDayNano::new(0, 0, 1);
    let step = ScalarValue::IntervalMonthDayNano(Some(step));
    Expr::BinaryExpr(BinaryExpr::new(
        Box::new(bound),
        Operator::Plus,
        Box::new(Expr::Literal(step, None)),
    ))
}

impl Inferred {
    fn condition(&mut self, part: &Expr, time: &Expr) -> Result<()> {
        let constant = |expr: &Expr| expr.column_refs().is_empty() && !expr.is_volatile();
        match part {
            Expr::Between(between)
                if !between.negated
                    && bare(&between.expr) == time
                    && constant(&between.low)
                    && constant(&between.high) =>
            {
                self.starts.push(instant((*between.low).clone())?);
                self.finishes.push(after(instant((*between.high).clone())?));
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (op, bound) = if bare(left) == time && constant(right) {
                    (*op, right)
                } else if bare(right) == time && constant(left) {
                    (op.swap().unwrap_or(Operator::NotEq), left)
                } else {
                    return Ok(());
                };
                let bound = instant((**bound).clone())?;
                match op {
                    Operator::Gt => self.starts.push(after(bound)),
                    Operator::GtEq => self.starts.push(bound),
                    Operator::Lt => self.finishes.push(bound),
                    Operator::LtEq => self.finishes.push(after(bound)),
                    Operator::Eq => {
                        self.starts.push(bound.clone());
                        self.finishes.push(after(bound));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}
