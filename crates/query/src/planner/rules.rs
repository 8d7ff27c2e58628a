//! The rules of the planner, each of which checks its statement's budget before and after its work.

use super::{check, expressions_of_plan};
use crate::error::Error;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Maximum operators of a plan that is about to run.
const OPERATORS_MAX: usize = 20_000;

type Analyzes = Arc<dyn AnalyzerRule + Send + Sync>;
type Optimizes = Arc<dyn OptimizerRule + Send + Sync>;
type Physical = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

pub(crate) fn analyzer_rules(rules: Vec<Analyzes>) -> Vec<Analyzes> {
    let watched = |rule| Arc::new(WatchedAnalyzer(rule)) as Analyzes;
    rules.into_iter().map(watched).collect()
}

pub(crate) fn optimizer_rules(rules: Vec<Optimizes>) -> Vec<Optimizes> {
    let watched = |rule| Arc::new(WatchedOptimizer(rule)) as Optimizes;
    rules.into_iter().map(watched).collect()
}

pub(crate) fn physical_rules(rules: Vec<Physical>) -> Vec<Physical> {
    let watched = |rule| Arc::new(WatchedPhysical(rule)) as Physical;
    rules.into_iter().map(watched).collect()
}

#[derive(Debug)]
struct WatchedAnalyzer(Analyzes);

impl AnalyzerRule for WatchedAnalyzer {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check()?;
        let plan = self.0.analyze(plan, config)?;
        expressions_of_plan(&plan, true)?;
        Ok(plan)
    }
}

#[derive(Debug)]
struct WatchedOptimizer(Optimizes);

impl OptimizerRule for WatchedOptimizer {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        check()?;
        // A rule with an order is called for each node, and may have added growth one level below
        // it.
        let whole = self.0.apply_order().is_none();
        expressions_of_plan(&plan, whole)?;
        let rewritten = self.0.rewrite(plan, config)?;
        if rewritten.transformed {
            expressions_of_plan(&rewritten.data, whole)?;
        }
        Ok(rewritten)
    }
}

#[derive(Debug)]
struct WatchedPhysical(Physical);

fn after(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut left = OPERATORS_MAX;
    if !fits(&plan, &mut left) {
        let error = Error::too_large(format!(
            "the plan of the statement has more than {OPERATORS_MAX} operators"
        ));
        return Err(error.with_hint("split the statement").into());
    }
    Ok(plan)
}

fn fits(plan: &Arc<dyn ExecutionPlan>, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else {
        return false;
    };
    *left = rest;
    plan.children().into_iter().all(|child| fits(child, left))
}

impl PhysicalOptimizerRule for WatchedPhysical {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        after(self.0.optimize(plan, config)?)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        after(self.0.optimize_with_context(plan, context)?)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
