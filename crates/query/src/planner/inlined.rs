//! Size of a plan's conditions after column names are replaced by the expressions that compute
//! them.
//!
//! The planner moves conditions below the expressions of their columns, to the bottom in one step.
//! If a column is used twice in each of thirty nested queries, its condition doubles thirty times,
//! without a check in between.
//!
//! Invariant: expressions are not replaced here: sizes are added up, and do not overflow.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::collections::HashMap;

/// The size of the largest condition of a plan, in parts.
pub(super) fn largest_condition(plan: &LogicalPlan) -> Result<u64> {
    let mut largest = 0;
    sizes(plan, &mut largest)?;
    Ok(largest)
}

/// The sizes of a node's columns; `None` = each column is passed from the input, or was computed
/// there.
type Sizes = Option<Vec<u64>>;

fn sizes(plan: &LogicalPlan, largest: &mut u64) -> Result<Sizes> {
    let mut inputs = Vec::new();
    for input in plan.inputs() {
        inputs.push((input.schema().as_ref(), sizes(input, largest)?));
    }
    plan.apply_subqueries(|subquery| {
        sizes(subquery, largest)?;
        // This call has visited the inputs.
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(match plan {
        LogicalPlan::Projection(projection) => {
            let known = ColumnSizes::of(&inputs);
            let sizes = projection.expr.iter().map(|expr| known.size(expr));
            let sizes = sizes.collect::<Result<Vec<u64>>>()?;
            sizes.iter().any(|size| *size > 1).then_some(sizes)
        }
        LogicalPlan::Filter(filter) => {
            let size = ColumnSizes::of(&inputs).size(&filter.predicate)?;
            *largest = size.max(*largest);
            inputs.pop().and_then(|(_, sizes)| sizes)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let known = ColumnSizes::of(&inputs);
            let mut sizes = vec![1; aggregate.schema.fields().len()];
            // Conditions on groups are pushed down, conditions on aggregates are not.
            for (size, group) in sizes.iter_mut().zip(&aggregate.group_expr) {
                *size = known.size(group)?;
            }
            sizes.iter().any(|size| *size > 1).then_some(sizes)
        }
        LogicalPlan::Join(join) => {
            let known = ColumnSizes::of(&inputs);
            for (left, right) in &join.on {
                *largest = (*largest).max(known.size(left)?).max(known.size(right)?);
            }
            if let Some(filter) = &join.filter {
                *largest = (*largest).max(known.size(filter)?);
            }
            joined(&inputs, plan.schema().fields().len())
        }
        LogicalPlan::Union(union) => {
            let mut most: Option<Vec<u64>> = None;
            for sizes in inputs.into_iter().filter_map(|(_, sizes)| sizes) {
                let most = most.get_or_insert_with(|| vec![1; union.schema.fields().len()]);
                for (most, size) in most.iter_mut().zip(sizes) {
                    *most = size.max(*most);
                }
            }
            most
        }
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Repartition(_) => inputs.pop().and_then(|(_, sizes)| sizes),
        LogicalPlan::Window(_) => joined(&inputs, plan.schema().fields().len()),
        _ => None,
    })
}

/// The columns of all inputs, concatenated, followed by computed ones.
fn joined(inputs: &[(&DFSchema, Sizes)], columns: usize) -> Sizes {
    inputs.iter().any(|(_, sizes)| sizes.is_some()).then(|| {
        let mut all = Vec::with_capacity(columns);
        for (schema, sizes) in inputs {
            match sizes {
                Some(sizes) => all.extend(sizes),
                None => all.resize(all.len() + schema.fields().len(), 1),
            }
        }
        all.resize(columns, 1);
        all
    })
}

/// The sizes of columns by name; columns of size 1 are omitted.
struct ColumnSizes(HashMap<Column, u64>);

impl ColumnSizes {
    fn of(inputs: &[(&DFSchema, Sizes)]) -> ColumnSizes {
        let mut known = HashMap::new();
        for (schema, sizes) in inputs {
            let Some(sizes) = sizes else {
                continue;
            };
            for (column, size) in schema.columns().into_iter().zip(sizes) {
                if *size > 1 {
                    known.insert(column, *size);
                }
            }
        }
        ColumnSizes(known)
    }

    fn size(&self, expr: &Expr) -> Result<u64> {
        let mut size = 0u64;
        expr.apply(|part| {
            let own = match part {
                Expr::Column(column) => self.0.get(column).copied().unwrap_or(1),
                Expr::Alias(_) => 0,
                _ => 1,
            };
            size = size.saturating_add(own);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(size.max(1))
    }
}
