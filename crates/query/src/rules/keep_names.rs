//! Changing expressions of a plan while its columns keep their names.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// The plan with its expressions changed. Those within `ROLLUP`, `CUBE` and `GROUPING SETS` are
/// columns each, and keep their names each.
pub(crate) fn map_expressions(
    plan: LogicalPlan,
    change: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mut named = |expr: Expr| {
        let name = names.save(&expr);
        Ok(change(expr)?.update_data(|expr| name.restore(expr)))
    };
    plan.map_expressions(|expr| {
        let Expr::GroupingSet(set) = expr else {
            return named(expr);
        };
        let mut changed = false;
        let mut all = |list: Vec<Expr>| -> Result<Vec<Expr>> {
            let list = list.into_iter().map(|expr| {
                let made = named(expr)?;
                changed |= made.transformed;
                Ok(made.data)
            });
            list.collect()
        };
        let set = match set {
            GroupingSet::Rollup(list) => GroupingSet::Rollup(all(list)?),
            GroupingSet::Cube(list) => GroupingSet::Cube(all(list)?),
            GroupingSet::GroupingSets(lists) => {
                let lists = lists.into_iter().map(all);
                GroupingSet::GroupingSets(lists.collect::<Result<_>>()?)
            }
        };
        let set = Expr::GroupingSet(set);
        Ok(Transformed::new(set, changed, TreeNodeRecursion::Continue))
    })
}
