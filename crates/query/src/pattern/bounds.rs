//! Bounds on the locations of a pattern's matches, for a scan that skips the rest.
//!
//! Invariants: every match contains the anchor, or one of several anchors; the anchor row itself
//! satisfies its conditions, wherever it is in the match. Patterns whose answers depend on rows
//! without a match, or on the ends of a partition, do not have bounds. Failure: does not fail;
//! unsupported parts have no bounds.

use super::node::{Pattern, PatternSpec, Slot};
use super::regex::Regex;
use super::rows::is_own;
use super::slots;
use crate::functions::numbers::CANONICAL;
use crate::table::{Anchor, Bounds, Near, Reach, ScanExec, Skipping};
use crate::view::Role;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column as Named, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use std::sync::Arc;

/// Matches with more rows than this are not searched row by row around their anchors.
const ROWS_MAX: usize = 1_000;

/// An input that reads only the rows that a pattern needs.
pub(super) struct Narrowed {
    pub(super) input: Arc<dyn ExecutionPlan>,
    pub(super) scan: Arc<ScanExec>,
    pub(super) skipping: Arc<Skipping>,
}

/// Inputs of the computation of a pattern.
pub(super) struct Computation<'a> {
    pub(super) input: &'a Arc<dyn ExecutionPlan>,
    pub(super) partition: &'a [Arc<dyn PhysicalExpr>],
    /// The first sort key of the rows.
    pub(super) time: Option<&'a Arc<dyn PhysicalExpr>>,
    pub(super) rows: &'a [Arc<dyn PhysicalExpr>],
    /// Conditions of symbols, over slots.
    pub(super) conditions: &'a [Option<Expr>],
}

/// The input without rows that a match cannot reach; `None` when this is unknown.
pub(super) fn narrowed(node: &Pattern, of: &Computation<'_>) -> Result<Option<Narrowed>> {
    let spec = &node.spec;
    let is_plain = node.tracked.is_none()
        && !spec.answers.unmatched
        && !spec.program.may_be_empty()
        && !spec.regex.refers_to_ends()
        && node.order.first().is_some_and(|sort| sort.asc);
    let Some(source) = Source::of(of.input).filter(|_| is_plain) else {
        return Ok(None);
    };
    let role = |expr: &Arc<dyn PhysicalExpr>| source.role(expr);
    let by = of.partition.iter().map(|expr| match role(expr) {
        Some(Role::Tag(key)) => Some(key),
        _ => None,
    });
    let Some(by) = by.collect::<Option<Vec<usize>>>() else {
        return Ok(None);
    };
    if of.time.and_then(role) != Some(Role::Time) {
        return Ok(None);
    }
    let rows = spec.regex.longest().map(|rows| rows.saturating_sub(1));
    let reach = match (spec.within, rows.filter(|rows| *rows <= ROWS_MAX)) {
        (Some(within), _) => Reach::Nanoseconds(within),
        (None, Some(rows)) => Reach::Rows(rows),
        (None, None) => return Ok(None),
    };
    let anchors = Anchors::of(&source, spec, of);
    let near = anchors.near(&spec.regex, false, false);
    let (before, behind) = spec.rows_around();
    let bounds = Bounds {
        anchors: anchors.of,
        near,
        reach,
        before,
        behind,
    };
    let Some((scan, skipping)) = source.scan.skipping(bounds, &by, source.is_filtered)? else {
        return Ok(None);
    };
    let scan = Arc::new(scan);
    Ok(Some(Narrowed {
        input: with_scan(of.input, &scan)?,
        scan,
        skipping,
    }))
}

/// Symbols that can be looked up.
struct Anchors {
    of: Vec<Anchor>,
    /// Index of each symbol's anchor.
    anchor_of_symbol: Vec<Option<usize>>,
}

impl Anchors {
    fn of(source: &Source<'_>, spec: &PatternSpec, of: &Computation<'_>) -> Anchors {
        let mut anchors = Anchors {
            of: Vec::new(),
            anchor_of_symbol: Vec::new(),
        };
        for (symbol, condition) in of.conditions.iter().enumerate() {
            let conditions = condition.as_ref().map(|condition| {
                let all = split_conjunction(condition).into_iter();
                let all = all.filter_map(|part| source.of_row(spec, of.rows, symbol, part));
                all.collect::<Vec<Expr>>()
            });
            let name = spec.symbols.get(symbol).map_or("", String::as_str);
            let table = source.scan.table();
            let anchor = conditions.and_then(|all| Anchor::of(name, &all, table));
            let place = anchor.as_ref().map(|_| anchors.of.len());
            anchors.anchor_of_symbol.push(place);
            anchors.of.extend(anchor);
        }
        anchors
    }

    /// Possible locations of a match, given this part of the pattern. `before` = rows of the match
    /// may precede the part, `behind` = rows may follow it.
    fn near(&self, part: &Regex, before: bool, behind: bool) -> Near {
        match part {
            Regex::Symbol(symbol) => match self.anchor_of_symbol.get(*symbol).copied().flatten() {
                Some(anchor) => Near::Anchor {
                    anchor,
                    before,
                    behind,
                },
                None => Near::Anywhere,
            },
            Regex::Sequence(parts) => {
                let last = parts.len().saturating_sub(1);
                let parts = parts.iter().enumerate();
                let near =
                    parts.map(|(at, part)| self.near(part, before || at > 0, behind || at < last));
                Near::All(near.collect())
            }
            Regex::Either(ways) => {
                let near = ways.iter().map(|way| self.near(way, before, behind));
                Near::Any(near.collect())
            }
            Regex::Repeat { least: 0, .. } | Regex::Start | Regex::End => Near::Anywhere,
            Regex::Repeat {
                of, most: Some(1), ..
            } => self.near(of, before, behind),
            // The first and the last row are the symbol.
            Regex::Repeat { of, .. } if matches!(**of, Regex::Symbol(_)) => Near::All(vec![
                self.near(of, before, true),
                self.near(of, true, behind),
            ]),
            Regex::Repeat { of, .. } => self.near(of, true, true),
            Regex::Excluded(of) => self.near(of, before, behind),
        }
    }
}

/// A scan, and the plan's columns that are read from it.
struct Source<'a> {
    scan: &'a ScanExec,
    columns: Vec<Option<usize>>,
    /// True if the plan excludes some of the scanned rows.
    is_filtered: bool,
}

impl<'a> Source<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Source<'a>> {
        if let Some(scan) = plan.downcast_ref::<ScanExec>() {
            return Some(Source {
                scan,
                columns: (0..scan.schema().fields().len()).map(Some).collect(),
                is_filtered: false,
            });
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let below = Source::of(projection.input())?;
            let columns = projection.expr().iter();
            let columns = columns.map(|computed| below.column(&computed.expr));
            return Some(Source {
                columns: columns.collect(),
                ..below
            });
        }
        let filter = plan.downcast_ref::<FilterExec>()?;
        let below = Source::of(filter.input())?;
        let columns = match filter.projection() {
            None => below.columns.clone(),
            Some(places) => {
                let columns = places.iter().map(|at| below.columns.get(*at).copied());
                columns.collect::<Option<_>>()?
            }
        };
        Some(Source {
            columns,
            is_filtered: true,
            ..below
        })
    }

    /// The scan column of an expression; `None` for other expressions.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let column = expr.downcast_ref::<Column>()?;
        self.columns.get(column.index()).copied().flatten()
    }

    fn role(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Role> {
        self.scan.role(self.column(expr)?)
    }

    /// A condition of a symbol as a condition on the table's rows, if it concerns only the row
    /// itself.
    fn of_row(
        &self,
        spec: &PatternSpec,
        rows: &[Arc<dyn PhysicalExpr>],
        symbol: usize,
        condition: &Expr,
    ) -> Option<Expr> {
        let schema = self.scan.schema();
        let own = |column: &Named| {
            let at = (0..spec.slots.len()).find(|at| column.name == slots::slot_name(*at))?;
            let slot = spec.slots.get(at)?;
            let Slot::Value {
                column, shift: 0, ..
            } = slot
            else {
                return None;
            };
            let place = self.column(rows.get(*column).filter(|_| is_own(slot, symbol))?)?;
            Some(schema.fields().get(place)?.name().clone())
        };
        let mut known = true;
        let of_row = condition.clone().transform_up(|part| {
            Ok(match part {
                Expr::Column(column) => match own(&column) {
                    Some(name) => Transformed::yes(Expr::Column(Named::new_unqualified(name))),
                    None => {
                        known = false;
                        Transformed::no(Expr::Column(column))
                    }
                },
                // The engine's comparisons treat both zeros, and all NaN, as equal.
                Expr::ScalarFunction(mut call) if call.func.name() == CANONICAL => {
                    match (call.args.pop(), call.args.is_empty()) {
                        (Some(of), true) => Transformed::yes(of),
                        (of, _) => {
                            call.args.extend(of);
                            Transformed::no(Expr::ScalarFunction(call))
                        }
                    }
                }
                part => Transformed::no(part),
            })
        });
        of_row.ok().map(|found| found.data).filter(|_| known)
    }
}

/// The plan with another scan at its bottom.
fn with_scan(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &Arc<ScanExec>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children();
    let Some(child) = children.first() else {
        let scan: Arc<dyn ExecutionPlan> = Arc::<ScanExec>::clone(scan);
        return Ok(scan);
    };
    let child = with_scan(child, scan)?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(vec![child], options)
}
