//! Changes expressions of a plan while its columns keep their names.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// Whether some part of the plan's own expressions matches: most plans have no match, and need not
/// be rebuilt.
pub(crate) fn has_part(plan: &LogicalPlan, wanted: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found = found || expr.exists(|part| Ok(wanted(part)))?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The columns that the plan's own expressions may name.
pub(crate) fn named_columns(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    Ok(schema)
}

/// The plan with its expressions changed. Each expression within `ROLLUP`, `CUBE` and `GROUPING
/// SETS` is a column, and keeps its name.
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
