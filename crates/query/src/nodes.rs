//! Physical planning of this crate's logical nodes.

use crate::asof::{self, AsOf};
use crate::error::Error;
use crate::gapfill::{self, GapFill};
use crate::pattern::{self, Pattern};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use std::sync::Arc;

/// The planner of a state.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Nodes)]);
        let planned = planner.create_physical_plan(plan, session).await;
        match (&planned, session.as_any().downcast_ref::<SessionState>()) {
            (Err(refused), Some(state)) if is_refused_by_check(refused) => {
                let mut state = state.clone();
                let options = state.config_mut().options_mut();
                options.optimizer.repartition_sorts = false;
                planner.create_physical_plan(plan, &state).await
            }
            _ => planned,
        }
    }
}

/// Whether the planner's last check refused the plan. The check loses track of a key that a
/// condition makes constant when it sorts parts and merges them, and refuses its own plan; it does
/// not when rows are sorted in one step.
fn is_refused_by_check(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::Context(step, of) => {
            step == SanityCheckPlan::new().name() || is_refused_by_check(of)
        }
        _ => false,
    }
}

/// The planner of our own nodes.
struct Nodes;

/// The planner of the crate's nodes, as the planner's trait requires it.
macro_rules! planner_of_nodes {
    () => {
        #[async_trait]
        impl ExtensionPlanner for Nodes {
            async fn plan_extension(
                &self,
                planner: &dyn PhysicalPlanner,
                node: &dyn UserDefinedLogicalNode,
                _: &[&LogicalPlan],
                inputs: &[Arc<dyn ExecutionPlan>],
                session: &dyn Session,
                context: &PhysicalPlanningContext,
            ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
                let expression =
                    |expr: &Expr, schema: &DFSchema| -> Result<Arc<dyn PhysicalExpr>> {
                        planner.create_physical_expr(expr, schema, session, context)
                    };
                let any = node.as_any();
                if let (Some(gaps), [input]) = (any.downcast_ref::<GapFill>(), inputs) {
                    return gapfill::plan(gaps, input, &expression).map(Some);
                }
                if let (Some(join), [left, right]) = (any.downcast_ref::<AsOf>(), inputs) {
                    return asof::plan(join, left, right, &expression).map(Some);
                }
                if let (Some(pattern), [input]) = (any.downcast_ref::<Pattern>(), inputs) {
                    let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
                        return Err(Error::internal("a plan without a state").into());
                    };
                    return pattern::plan(pattern, input, state, &expression).map(Some);
                }
                Ok(None)
            }
        }
    };
}

planner_of_nodes!();
