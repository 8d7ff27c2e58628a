//! Plans that are kept for statements that come again.
//!
//! Invariants: a plan is used again only for the same text, settings and access, while tables and streams are the same; it reads the
//! snapshot of the statement that runs it. What would give something else the next time (`now()`, `random()`, tables of the
//! session) is planned anew.

use crate::settings::Settings;
use crate::table::Table;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Texts longer than this are not kept.
const TEXT_MAX: usize = 16 << 10;

/// What a plan depends on beside the database's rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    text: String,
    access: String,
    settings: Settings,
    definitions: u64,
}

impl PlanKey {
    /// `None` when a plan must not be kept.
    pub(crate) fn new(
        text: &str,
        access: Option<String>,
        settings: &Settings,
        definitions: Option<u64>,
    ) -> Option<PlanKey> {
        if text.len() > TEXT_MAX {
            return None;
        }
        Some(PlanKey {
            text: text.to_owned(),
            access: access?,
            settings: settings.clone(),
            definitions: definitions?,
        })
    }
}

/// Plans by what they depend on.
pub(crate) struct Plans {
    kept: Cache<PlanKey, Arc<dyn ExecutionPlan>>,
}

impl std::fmt::Debug for Plans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plans")
            .field("kept", &self.kept.len())
            .finish()
    }
}

impl Plans {
    pub(crate) fn new(most: usize) -> Plans {
        Plans {
            kept: Cache::new(most),
        }
    }

    /// A plan, ready to be run once more.
    pub(crate) fn get(&self, key: &PlanKey) -> Option<Arc<dyn ExecutionPlan>> {
        let kept = self.kept.get(key)?;
        datafusion::physical_plan::execution_plan::reset_plan_states(kept).ok()
    }

    pub(crate) fn put(&self, key: PlanKey, plan: &Arc<dyn ExecutionPlan>) {
        // What is kept must never be run itself: it would collect what it measures, and what it joined.
        if let Ok(plan) =
            datafusion::physical_plan::execution_plan::reset_plan_states(Arc::clone(plan))
        {
            self.kept.insert(key, plan);
        }
    }
}

/// True when the plan, as it was written, gives the same for the same rows, and reads nothing but tables.
pub(crate) fn is_lasting(plan: &LogicalPlan) -> bool {
    let mut lasting = true;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source);
            lasting &= provider.is_ok_and(|provider| {
                let any: &dyn std::any::Any = provider.as_ref();
                any.is::<Table>()
            });
        }
        for expr in node.expressions() {
            let seen = expr.apply(|part| {
                match part {
                    Expr::ScalarFunction(function) => {
                        lasting &= function.func.signature().volatility == Volatility::Immutable;
                    }
                    // They are computed while the outer plan is set up.
                    Expr::ScalarSubquery(_) | Expr::Placeholder(_) | Expr::ScalarVariable(..) => {
                        lasting = false;
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            });
            lasting &= seen.is_ok();
        }
        Ok(if lasting {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    walked.is_ok() && lasting
}
