//! `MATCH_RECOGNIZE`: patterns of rows (SQL:2016, R010).
//!
//! [`clause`] plans the clause: [`regex`] parses the pattern, [`program`] compiles it, [`slots`]
//! extracts the parts of conditions and measures that depend on a match; the [`node`] is part of
//! the logical plan. When the plan runs, [`exec`] reads one partition after another, [`machine`]
//! finds matches, [`rows`] evaluates the conditions of a row with the rows that [`lookback`]
//! retains, and [`answers`] collects the output. [`bounds`] derives possible locations of matches,
//! so that a scan skips the rest, and skips the partitions that a [`partition_filter`] excludes.
//!
//! Invariants: the matches equal those that backtracking over all paths in their order of
//! preference would find first, at the first row at which one begins. If the time or rows of
//! matches are bounded, only the rows within reach of one match are in memory; else the whole
//! partition is, with the columns that the answer needs. Failure: `memory_limit` when these rows,
//! or the distinct pasts of threads, exceed the statement's memory.

mod answers;
mod bounds;
mod clause;
mod exec;
mod lookback;
mod machine;
mod node;
mod partition_filter;
mod program;
mod regex;
mod rows;
mod slots;
mod tally;
mod tracked;
mod tracking;

pub(crate) use clause::Clauses;
pub(crate) use node::Pattern;
pub(crate) use partition_filter::FilterPartitions;
pub(crate) use tracked::watchable;
pub(crate) use tracking::{TRACK, Tracking, read_track};

use crate::rules::lists::lists_apart;
use crate::settings::Switches;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{EmptyRelation, Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use node::Computed;
use rows::Conditions;
use std::sync::Arc;

/// Converts a logical expression into a physical one.
type Physical<'a> = &'a dyn Fn(&Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>;

/// The operator of a node.
pub(crate) fn plan(
    node: &Pattern,
    input: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
    physical: Physical<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = node.input.schema();
    let all = |exprs: &[Expr]| -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        exprs.iter().map(|expr| physical(expr, schema)).collect()
    };
    let partition = all(&node.partition)?;
    let sorts = sorted_by(node, &partition, physical)?;
    let spec = Arc::clone(&node.spec);
    let slots = &spec.slot_schema;
    let simple = spec.conditions.iter().map(|condition| {
        let condition = condition.as_ref();
        condition.map(|c| simplified(c, slots, state)).transpose()
    });
    let simple: Vec<Option<Expr>> = simple.collect::<Result<_>>()?;
    let conditions = simple.iter().map(|condition| {
        let condition = condition.as_ref();
        condition.map(|c| physical(c, slots)).transpose()
    });
    let conditions: Vec<_> = conditions.collect::<Result<_>>()?;
    let measures = spec.measures.iter();
    let measures = measures.map(|measure| physical(&simplified(measure, slots, state)?, slots));
    let measures: Vec<_> = measures.collect::<Result<_>>()?;
    let times = node
        .order
        .first()
        .map(|sort| physical(&sort.expr, schema))
        .transpose()?;
    let rows = all(&node.rows)?;
    let computation = bounds::Computation {
        input,
        partition: &partition,
        time: times.as_ref(),
        rows: &rows,
        conditions: &simple,
    };
    let narrowed = match leaves_out(state) {
        true => bounds::narrowed(node, &computation)?,
        false => None,
    };
    let (input, skips) = match narrowed {
        None => (Arc::clone(input), None),
        Some(narrowed) => (narrowed.input, Some((narrowed.scan, narrowed.skipping))),
    };
    let parts = exec::Parts {
        schema: Arc::clone(node.schema.inner()),
        partition,
        order: LexOrdering::new(sorts),
        rows,
        output_columns: all(&node.output_columns)?,
        times: times.filter(|_| spec.within.is_some() || skips.is_some()),
        measures,
        conditions: Conditions::new(&spec, conditions)?,
        spec,
        tracked: node.tracked.clone(),
        skips,
    };
    Ok(Arc::new(exec::PatternExec::new(input, parts)?))
}

/// The required input order: by partition, then as the statement orders.
fn sorted_by(
    node: &Pattern,
    partition: &[Arc<dyn PhysicalExpr>],
    physical: Physical<'_>,
) -> Result<Vec<PhysicalSortExpr>> {
    let plain = arrow::compute::SortOptions::new(false, false);
    let partition = partition
        .iter()
        .map(|by| Ok(PhysicalSortExpr::new(Arc::clone(by), plain)));
    let order = node.order.iter().map(|sort| {
        let options = arrow::compute::SortOptions::new(!sort.asc, sort.nulls_first);
        let expr = physical(&sort.expr, node.input.schema())?;
        Ok(PhysicalSortExpr::new(expr, options))
    });
    partition.chain(order).collect()
}

/// Whether the pyramid may be used to skip rows.
fn leaves_out(state: &SessionState) -> bool {
    let switches = state.config_options().extensions.get::<Switches>();
    switches.is_none_or(|switches| switches.use_pyramid)
}

/// A simplified expression over slots; all planner rules apply to it.
fn simplified(of: &Computed, slots: &DFSchemaRef, state: &SessionState) -> Result<Expr> {
    let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::clone(slots),
    });
    let plan = Projection::try_new(vec![of.expr.clone().alias("computed")], Arc::new(nothing))?;
    let plan = LogicalPlan::Projection(plan);
    let options = state.config_options();
    let plan = state
        .analyzer()
        .execute_and_check(plan, options, |_, _| {})?;
    let mut exprs = plan.expressions();
    let expr = exprs
        .pop()
        .unwrap_or_else(|| of.expr.clone())
        .unalias_nested()
        .data;
    let expr = expr.cast_to(&of.of, slots)?;
    let start = state.execution_props().query_execution_start_time;
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(slots))
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(start)
        .build();
    ExprSimplifier::new(context).simplify(lists_apart(expr, false)?.data)
}
