//! `MATCH_RECOGNIZE`: patterns of rows (SQL:2016, R010).
//!
//! [`clause`] plans the clause: [`regex`] takes the pattern apart, [`program`] makes steps of it,
//! [`slots`] takes what is asked of matches out of conditions and measures; the [`node`] stands in
//! the plan. When it runs, [`exec`] reads the rows of one partition after the other, [`machine`]
//! finds matches, [`rows`] says what is true of a row, and [`answers`] collects what is answered.
//!
//! Invariants: matches are those that trying all ways of the pattern in their order of preference
//! would find first, at the first row that one begins at. A partition is held in memory while it is
//! looked through, with the columns that are asked for.
//! Failure: `memory_limit` when a partition, or what conditions can tell of the pasts of threads,
//! is larger than the statement may hold.

mod answers;
mod clause;
mod exec;
mod machine;
mod node;
mod program;
mod regex;
mod rows;
mod slots;
mod tally;
mod tracked;
mod tracking;

pub(crate) use clause::Clauses;
pub(crate) use node::Pattern;
pub(crate) use tracked::watchable;
pub(crate) use tracking::{TRACK, Tracking, read_track};

use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, LogicalPlan, Projection, SortExpr,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use node::Computed;
use rows::Conditions;
use std::sync::Arc;

/// Makes an expression of a plan one that is computed.
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
    let ordered = |sort: &SortExpr| -> Result<PhysicalSortExpr> {
        let options = arrow::compute::SortOptions::new(!sort.asc, sort.nulls_first);
        Ok(PhysicalSortExpr::new(
            physical(&sort.expr, schema)?,
            options,
        ))
    };
    let partition = all(&node.partition)?;
    let plain = arrow::compute::SortOptions::new(false, false);
    let mut sorts: Vec<PhysicalSortExpr> = partition
        .iter()
        .map(|by| PhysicalSortExpr::new(Arc::clone(by), plain))
        .collect();
    for sort in &node.order {
        sorts.push(ordered(sort)?);
    }
    let asked = Arc::clone(&node.asked);
    let slots = &asked.slot_schema;
    let mut conditions = Vec::with_capacity(asked.conditions.len());
    for condition in &asked.conditions {
        conditions.push(match condition {
            None => None,
            Some(condition) => Some(computed(condition, slots, state, physical)?),
        });
    }
    let measures = asked.measures.iter();
    let measures = measures.map(|measure| computed(measure, slots, state, physical));
    let measures: Vec<_> = measures.collect::<Result<_>>()?;
    let times = node
        .order
        .first()
        .map(|sort| physical(&sort.expr, schema))
        .transpose()?;
    let parts = exec::Parts {
        schema: Arc::clone(node.schema.inner()),
        partition,
        order: LexOrdering::new(sorts),
        rows: all(&node.rows)?,
        kept: all(&node.kept)?,
        times: times.filter(|_| asked.within.is_some()),
        measures,
        conditions: Conditions::new(&asked, conditions),
        asked,
        tracked: node.tracked.clone(),
    };
    Ok(Arc::new(exec::PatternExec::new(Arc::clone(input), parts)?))
}

/// An expression over slots as it is computed: all rules of a statement hold for it.
fn computed(
    of: &Computed,
    slots: &DFSchemaRef,
    state: &SessionState,
    physical: Physical<'_>,
) -> Result<Arc<dyn PhysicalExpr>> {
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
    let expr = ExprSimplifier::new(context).simplify(expr)?;
    physical(&expr, slots)
}
