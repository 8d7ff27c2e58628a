//! Cache of plans for repeated statements.
//!
//! Invariants: a plan is reused only for the same text, values of parameters, settings, access and
//! kind of session, while tables and streams are the same; it reads the snapshot of the statement
//! that runs it. Statements whose results change by themselves (`now()`, `random()`, tables of the
//! session) are planned each time. If only values of parameters differ, the logical plan of the
//! text is reused.

use crate::answer::Outcome;
use crate::parsed::Parsed;
use crate::rewrites::times;
use crate::settings::Settings;
use crate::table::Table;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longer texts are not cached.
const TEXT_MAX: usize = 16 << 10;
/// Memory of the cache per plan of its maximum number: the size of ordinary plans.
const BYTES: u64 = 64 << 10;
/// Approximate memory of an operator, a column and a byte of text: a byte of text becomes some
/// hundred bytes of expressions.
const OPERATOR_BYTES: u64 = 2 << 10;
const COLUMN_BYTES: u64 = 128;
const TEXT_BYTES: u64 = 128;

/// Memory of a cached plan, approximately.
fn plan_bytes(text: &str, plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let mut bytes = TEXT_BYTES * text.len() as u64;
    // The closure never fails.
    let _ = plan.apply(|node| {
        bytes += OPERATOR_BYTES + COLUMN_BYTES * node.schema().fields().len() as u64;
        Ok(TreeNodeRecursion::Continue)
    });
    bytes
}

/// Memory of a cached logical plan, approximately.
fn statement_bytes(described: &DescribedStatement) -> u64 {
    let mut bytes = 2 * TEXT_BYTES * described.statement.text().len() as u64;
    if let Some((_, plan)) = &described.generic_plan {
        let _ = plan.apply_with_subqueries(|node| {
            bytes += OPERATOR_BYTES + COLUMN_BYTES * node.schema().fields().len() as u64;
            Ok(TreeNodeRecursion::Continue)
        });
    }
    bytes
}

/// A parsed statement with the types of its parameters and of its answer.
#[derive(Debug)]
pub(crate) struct DescribedStatement {
    pub(crate) statement: Parsed,
    pub(crate) parameters: Vec<DataType>,
    pub(crate) schema: SchemaRef,
    pub(crate) outcome: Outcome,
    /// For a query of tables only: its logical plan, parameters included, and the key for which it
    /// is valid.
    pub(crate) generic_plan: Option<(PlanKey, LogicalPlan)>,
}

impl DescribedStatement {
    /// True when it is valid for every statement with this key.
    pub(crate) fn is_valid_for(&self, key: &PlanKey) -> bool {
        self.generic_plan
            .as_ref()
            .is_some_and(|(own, _)| own == key)
    }
}

/// A cached value and its memory.
#[derive(Clone)]
struct CacheEntry<T> {
    value: T,
    bytes: u64,
}

#[derive(Clone)]
struct EntryBytes;

impl<K, T> Weighter<K, CacheEntry<T>> for EntryBytes {
    fn weight(&self, _: &K, entry: &CacheEntry<T>) -> u64 {
        entry.bytes.max(1)
    }
}

/// All inputs of a plan besides the database's rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    text: String,
    parameters: Vec<ScalarValue>,
    access: String,
    /// The kind of the session's extension.
    extension: Option<&'static str>,
    settings: Settings,
    definitions: u64,
}

impl PlanKey {
    /// The key of a plan; `None` when the plan must not be cached.
    pub(crate) fn new(
        text: &str,
        access: Option<String>,
        extension: Option<&'static str>,
        settings: &Settings,
        definitions: Option<u64>,
    ) -> Option<PlanKey> {
        if text.len() > TEXT_MAX {
            return None;
        }
        Some(PlanKey {
            text: text.to_owned(),
            parameters: Vec::new(),
            access: access?,
            extension,
            settings: settings.clone(),
            definitions: definitions?,
        })
    }

    /// The same key with these values as parameters.
    pub(crate) fn with_parameters(mut self, parameters: &[ScalarValue]) -> Option<PlanKey> {
        let bytes: usize = parameters.iter().map(ScalarValue::size).sum();
        if self.text.len() + bytes > TEXT_MAX {
            return None;
        }
        self.parameters = parameters.to_vec();
        Some(self)
    }
}

/// All inputs of a parsed statement, including the declared types of its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatementKey {
    pub(crate) plan: PlanKey,
    pub(crate) types: Vec<Option<DataType>>,
}

/// Cached plans, by their keys.
pub(crate) struct PlanCache {
    plans: Cache<PlanKey, CacheEntry<Arc<dyn ExecutionPlan>>, EntryBytes>,
    statements: Cache<StatementKey, CacheEntry<Arc<DescribedStatement>>, EntryBytes>,
    /// The newest definitions with cached plans. Plans for older definitions are never looked
    /// up again, and would keep the streams of their tables in memory.
    definitions: AtomicU64,
}

impl std::fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanCache")
            .field("plans", &self.plans.len())
            .field("read", &self.statements.len())
            .finish()
    }
}

impl PlanCache {
    pub(crate) fn new(most: usize) -> PlanCache {
        let bytes = BYTES.saturating_mul(most as u64);
        PlanCache {
            plans: Cache::with_weighter(most, bytes, EntryBytes),
            statements: Cache::with_weighter(most, bytes, EntryBytes),
            definitions: AtomicU64::new(0),
        }
    }

    /// Drops the plans for older definitions; false when `definitions` is itself older.
    fn advance_to(&self, definitions: u64) -> bool {
        let known = self.definitions.fetch_max(definitions, Ordering::Relaxed);
        if known < definitions {
            self.plans.clear();
            self.statements.clear();
        }
        known <= definitions
    }

    /// Number of cached plans.
    pub(crate) fn len(&self) -> usize {
        self.plans.len()
    }

    /// A cached parsed statement.
    pub(crate) fn statement(&self, key: &StatementKey) -> Option<Arc<DescribedStatement>> {
        self.statements.get(key).map(|entry| entry.value)
    }

    pub(crate) fn put_statement(&self, key: StatementKey, described: &Arc<DescribedStatement>) {
        if self.advance_to(key.plan.definitions) {
            let entry = CacheEntry {
                bytes: statement_bytes(described),
                value: Arc::clone(described),
            };
            self.statements.insert(key, entry);
        }
    }

    /// A plan, ready to be run again.
    pub(crate) fn get(&self, key: &PlanKey) -> Option<Arc<dyn ExecutionPlan>> {
        let plan = self.plans.get(key)?.value;
        datafusion::physical_plan::execution_plan::reset_plan_states(plan).ok()
    }

    pub(crate) fn put(&self, key: PlanKey, plan: &Arc<dyn ExecutionPlan>) {
        // A cached plan must never run itself: it would collect metrics and joined rows.
        if let Ok(plan) =
            datafusion::physical_plan::execution_plan::reset_plan_states(Arc::clone(plan))
            && self.advance_to(key.definitions)
        {
            let entry = CacheEntry {
                bytes: plan_bytes(&key.text, &plan),
                value: plan,
            };
            self.plans.insert(key, entry);
        }
    }
}

/// True when the original plan has the same meaning in every session of its kind: it reads only
/// tables, and calls only functions that a session cannot redefine.
pub(crate) fn is_same_in_every_session(plan: &LogicalPlan) -> bool {
    reads_tables(plan)
        && no_expression(plan, &|part| match part {
            Expr::ScalarFunction(function) => {
                let func = &function.func;
                func.signature().volatility != Volatility::Immutable
                    && !START_TIME_FUNCTIONS.contains(&func.name())
            }
            Expr::ScalarVariable(..) => true,
            _ => false,
        })
}

/// Functions of the start time of a statement: they are computed when it is planned.
const START_TIME_FUNCTIONS: [&str; 3] = ["now", "current_date", "current_time"];

/// True when the original plan gives the same result for the same rows, and reads only tables.
pub(crate) fn is_cacheable(plan: &LogicalPlan) -> bool {
    reads_tables(plan)
        && no_expression(plan, &|part| match part {
            Expr::ScalarFunction(function) => {
                function.func.signature().volatility != Volatility::Immutable
            }
            // These are computed while the outer plan is set up.
            Expr::ScalarSubquery(_) | Expr::Placeholder(_) | Expr::ScalarVariable(..) => true,
            // The meaning of `today` changes tomorrow.
            Expr::Literal(value, _) => value
                .try_as_str()
                .flatten()
                .is_some_and(|text| times::word(text).is_some()),
            _ => false,
        })
}

fn reads_tables(plan: &LogicalPlan) -> bool {
    all_nodes(plan, &|node| match node {
        LogicalPlan::TableScan(scan) => source_as_provider(&scan.source).is_ok_and(|provider| {
            let any: &dyn std::any::Any = provider.as_ref();
            any.is::<Table>()
        }),
        // Its computation is not among the expressions of the plan.
        LogicalPlan::Extension(_) => false,
        _ => true,
    })
}

fn no_expression(plan: &LogicalPlan, is: &impl Fn(&Expr) -> bool) -> bool {
    all_nodes(plan, &|node| {
        let mut expressions = node.expressions().into_iter();
        expressions.all(|expr| expr.exists(|part| Ok(is(part))).is_ok_and(|found| !found))
    })
}

fn all_nodes(plan: &LogicalPlan, holds: &impl Fn(&LogicalPlan) -> bool) -> bool {
    let mut all = true;
    let walked = plan.apply_with_subqueries(|node| {
        all = all && holds(node);
        Ok(if all {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    walked.is_ok() && all
}
