//! One pass over both sides of an `ASOF JOIN`.
//!
//! Both sides are sorted by the equality keys and then by the nearness key, so that the nearest row
//! for a row of the left side is the last passed row of the right side, if it is in the same group.
//!
//! Invariants: one row of the right side is in memory besides the current batch and the batches
//! whose rows are in the current output batch.

use super::AsOf;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::{SortOptions, interleave, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::common::tree_node::{TreeNodeIterator as _, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    InputDistributionRequirements, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::{StreamExt, stream};
use std::fmt;
use std::sync::Arc;

/// An input of the join.
#[derive(Clone, Debug)]
pub(super) struct JoinInput {
    pub(super) input: Arc<dyn ExecutionPlan>,
    /// Equality keys; the last key is the nearness key.
    pub(super) by: Vec<Arc<dyn PhysicalExpr>>,
}

impl JoinInput {
    fn order(&self, forward: bool) -> Option<LexOrdering> {
        let last = self.by.len().saturating_sub(1);
        let sorts = self.by.iter().enumerate().map(|(at, by)| {
            let options = SortOptions::new(forward && at == last, false);
            PhysicalSortExpr::new(Arc::clone(by), options)
        });
        LexOrdering::new(sorts)
    }
}

/// The physical operator.
#[derive(Debug)]
pub(super) struct AsOfExec {
    left: JoinInput,
    right: JoinInput,
    orders: [LexOrdering; 2],
    forward: bool,
    strict: bool,
    outer: bool,
    shown: String,
    properties: Arc<PlanProperties>,
}

impl AsOfExec {
    pub(super) fn new(node: &AsOf, left: JoinInput, right: JoinInput) -> Result<AsOfExec> {
        let orders = (left.order(node.forward), right.order(node.forward));
        let (Some(left_order), Some(right_order)) = orders else {
            return internal_err!("an ASOF JOIN without a comparison");
        };
        let schema: SchemaRef = Arc::clone(node.schema.inner());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(AsOfExec {
            left,
            right,
            orders: [left_order, right_order],
            forward: node.forward,
            strict: node.strict,
            outer: node.outer,
            shown: node.comparison(),
            properties: Arc::new(properties),
        })
    }
}

impl DisplayAs for AsOfExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.outer { "left" } else { "inner" };
        write!(f, "AsOfJoinExec: {kind}, {}", self.shown)
    }
}

impl ExecutionPlan for AsOfExec {
    fn name(&self) -> &str {
        "AsOfJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left.input, &self.right.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let one = Distribution::SinglePartition;
        InputDistributionRequirements::new(vec![one.clone(), one])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let orders = self.orders.iter();
        orders
            .map(|order| Some(OrderingRequirements::from(order.clone())))
            .collect()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let all = self.left.by.iter().chain(&self.right.by);
        all.apply_until_stop(f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(right), Some(left)) = (children.pop(), children.pop()) else {
            return internal_err!("an ASOF JOIN without its sides");
        };
        let side = |input, of: &JoinInput| JoinInput {
            input,
            by: of.by.clone(),
        };
        Ok(Arc::new(AsOfExec {
            left: side(left, &self.left),
            right: side(right, &self.right),
            orders: self.orders.clone(),
            shown: self.shown.clone(),
            properties: Arc::clone(&self.properties),
            ..*self
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let left = self.left.input.execute(partition, Arc::clone(&context))?;
        let right = self.right.input.execute(partition, context)?;
        let right_schema = right.schema();
        let joining = Joining {
            left: Reading::new(left, &self.left, self.forward)?,
            right: Reading::new(right, &self.right, self.forward)?,
            at: None,
            nearest: None,
            strict: self.strict,
            outer: self.outer,
            none: none_of(&right_schema),
            schema: Arc::clone(&schema),
        };
        let rows = stream::try_unfold(joining, |mut joining| async move {
            let batch = joining.next().await?;
            Ok(batch.map(|batch| (batch, joining)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Nulls for the columns of a missing row.
fn none_of(schema: &SchemaRef) -> Vec<ArrayRef> {
    let fields = schema.fields().iter();
    fields
        .map(|field| new_null_array(field.data_type(), 1))
        .collect()
}

/// An input that is being read.
struct Reading {
    input: SendableRecordBatchStream,
    by: Vec<Arc<dyn PhysicalExpr>>,
    /// Converter for all keys, in the order of the rows, and converter for the equality keys.
    row_converter: RowConverter,
    groups: Option<RowConverter>,
    /// Number of batches that were read.
    pages: u64,
}

/// A batch with its comparison keys.
#[derive(Clone)]
struct Page {
    batch: RecordBatch,
    row_keys: Arc<Rows>,
    groups: Option<Arc<Rows>>,
    number: u64,
    /// Whether all keys of a row are present.
    whole: Arc<Vec<bool>>,
}

impl Reading {
    fn new(input: SendableRecordBatchStream, side: &JoinInput, forward: bool) -> Result<Reading> {
        let schema = input.schema();
        let last = side.by.len().saturating_sub(1);
        let fields = side.by.iter().enumerate().map(|(at, by)| {
            let of = by.data_type(&schema)?;
            let options = SortOptions::new(forward && at == last, false);
            Ok(SortField::new_with_options(of, options))
        });
        let fields = fields.collect::<Result<Vec<SortField>>>()?;
        let equal = fields.get(..last).unwrap_or(&[]).to_vec();
        let groups = match equal.is_empty() {
            true => None,
            false => Some(RowConverter::new(equal)?),
        };
        Ok(Reading {
            input,
            by: side.by.clone(),
            row_converter: RowConverter::new(fields)?,
            groups,
            pages: 0,
        })
    }

    /// The next non-empty batch.
    async fn next(&mut self) -> Result<Option<Page>> {
        loop {
            match self.input.next().await.transpose()? {
                None => return Ok(None),
                Some(batch) if batch.num_rows() > 0 => return self.page(batch).map(Some),
                Some(_) => {}
            }
        }
    }

    fn page(&mut self, batch: RecordBatch) -> Result<Page> {
        let values = self
            .by
            .iter()
            .map(|by| by.evaluate(&batch)?.into_array(batch.num_rows()));
        let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
        let nulls: Vec<_> = values.iter().map(|values| values.logical_nulls()).collect();
        let whole = (0..batch.num_rows()).map(|row| {
            let mut nulls = nulls.iter().flatten();
            nulls.all(|nulls| nulls.is_valid(row))
        });
        let whole = Arc::new(whole.collect());
        let equal = values.get(..values.len().saturating_sub(1)).unwrap_or(&[]);
        let groups = match &mut self.groups {
            Some(groups) => Some(Arc::new(groups.convert_columns(equal)?)),
            None => None,
        };
        self.pages += 1;
        Ok(Page {
            number: self.pages,
            row_keys: Arc::new(self.row_converter.convert_columns(&values)?),
            groups,
            whole,
            batch,
        })
    }
}

impl Page {
    fn group(&self, row: usize) -> Option<OwnedRow> {
        self.groups.as_ref().map(|groups| groups.row(row).owned())
    }

    fn is_of(&self, row: usize, group: &Option<OwnedRow>) -> bool {
        match (&self.groups, group) {
            (Some(groups), Some(group)) => groups.row(row) == group.row(),
            _ => true,
        }
    }
}

/// The last passed row of the right side.
struct Nearest {
    group: Option<OwnedRow>,
    batch: RecordBatch,
    /// The number of its batch.
    page: u64,
    row: usize,
    /// Index of its batch among the batches of the output.
    used: Option<usize>,
}

/// State of one execution of the plan.
struct Joining {
    left: Reading,
    right: Reading,
    /// The current batch of the right side, and its next row.
    at: Option<(Page, usize)>,
    nearest: Option<Nearest>,
    strict: bool,
    outer: bool,
    none: Vec<ArrayRef>,
    schema: SchemaRef,
}

impl Joining {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(page) = self.left.next().await? else {
            return Ok(None);
        };
        if let Some(nearest) = &mut self.nearest {
            nearest.used = None;
        }
        let mut used: Vec<RecordBatch> = Vec::new();
        let mut matches: Vec<Option<(usize, usize)>> = Vec::with_capacity(page.batch.num_rows());
        for row in 0..page.batch.num_rows() {
            let whole = page.whole.get(row).copied().unwrap_or(false);
            if whole {
                self.pass(&page, row).await?;
            }
            let found = self
                .nearest
                .as_mut()
                .filter(|near| whole && page.is_of(row, &near.group));
            matches.push(found.map(|near| {
                let place = *near.used.get_or_insert_with(|| {
                    used.push(near.batch.clone());
                    used.len()
                });
                (place, near.row)
            }));
        }
        self.answer(&page.batch, &used, &matches).map(Some)
    }

    /// Passes the rows of the right side that are not after this row.
    async fn pass(&mut self, page: &Page, row: usize) -> Result<()> {
        loop {
            let (right, next) = match &mut self.at {
                Some((right, next)) if *next < right.batch.num_rows() => (right, next),
                _ => match self.right.next().await? {
                    Some(right) => {
                        self.at = Some((right, 0));
                        continue;
                    }
                    None => {
                        self.at = None;
                        return Ok(());
                    }
                },
            };
            let order = right.row_keys.row(*next).cmp(&page.row_keys.row(row));
            if order.is_gt() || (self.strict && order.is_eq()) {
                return Ok(());
            }
            if right.whole.get(*next).copied().unwrap_or(false) {
                let same = self.nearest.take().filter(|near| near.page == right.number);
                self.nearest = Some(Nearest {
                    group: right.group(*next),
                    batch: right.batch.clone(),
                    page: right.number,
                    row: *next,
                    used: same.and_then(|near| near.used),
                });
            }
            *next += 1;
        }
    }

    fn answer(
        &self,
        left: &RecordBatch,
        used: &[RecordBatch],
        matches: &[Option<(usize, usize)>],
    ) -> Result<RecordBatch> {
        let kept = matches
            .iter()
            .enumerate()
            .filter(|(_, found)| self.outer || found.is_some());
        let kept: Vec<(u64, (usize, usize))> = kept
            .filter_map(|(row, found)| Some((u64::try_from(row).ok()?, found.unwrap_or((0, 0)))))
            .collect();
        let left = match kept.len() == left.num_rows() {
            true => left.clone(),
            false => {
                let rows = UInt64Array::from_iter_values(kept.iter().map(|(row, _)| *row));
                take_record_batch(left, &rows)?
            }
        };
        let places: Vec<(usize, usize)> = kept.into_iter().map(|(_, place)| place).collect();
        let mut columns: Vec<ArrayRef> = left.columns().to_vec();
        for (at, none) in self.none.iter().enumerate() {
            let mut sources: Vec<&dyn Array> = vec![none.as_ref()];
            sources.extend(used.iter().map(|batch| batch.column(at).as_ref()));
            columns.push(interleave(&sources, &places)?);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(places.len()));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}
