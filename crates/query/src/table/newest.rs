//! The newest, or the oldest, rows of a table whose streams are not in memory: a sort by time that
//! returns a few rows passes their number on to the scan.
//!
//! Invariants: applied only if every row of the scan is an unchanged input of the sort.

use super::ScanExec;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use std::sync::Arc;

/// The rule; runs after the one that pushes sort orders down to scans.
#[derive(Debug)]
pub(crate) struct NewestOfMany;

impl PhysicalOptimizerRule for NewestOfMany {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(node));
            };
            let input = sort.fetch().and_then(|rows| fetching(sort.input(), rows));
            match input {
                Some(input) => Ok(Transformed::yes(with_input(node, input)?)),
                None => Ok(Transformed::no(node)),
            }
        });
        changed.data()
    }

    fn name(&self) -> &str {
        "newest_of_many"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The scan below a sort, limited to the rows that the sort returns.
fn fetching(node: &Arc<dyn ExecutionPlan>, rows: usize) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = node.downcast_ref::<ScanExec>() {
        return Some(Arc::new(scan.first_by_time(rows)?));
    }
    let projection = node.downcast_ref::<ProjectionExec>()?;
    let input = fetching(projection.input(), rows)?;
    with_input(Arc::clone(node), input).ok()
}

fn with_input(
    node: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(vec![input], options)
}
