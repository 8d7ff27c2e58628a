//! Inserts missing buckets among the rows of each group.
//!
//! Invariants: input and output rows are sorted by group, then by bucket; at most one batch of a
//! group's missing buckets is built at a time. Groups without rows do not have buckets, unless time
//! is the only key.

use super::GapFill;
use super::node::Fill;
use super::steps::{Step, Steps};
use crate::error::Error;
use crate::runs::Runs;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, RecordBatch, TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::{DataType, Float64Type, SchemaRef, TimestampNanosecondType};
use datafusion::common::tree_node::{TreeNodeIterator as _, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    InputDistributionRequirements, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::stream;
use headwater_wire::zone::Zone;
use std::collections::VecDeque;
use std::fmt;
use std::iter::Peekable;
use std::sync::Arc;

/// The bounds of the range, as constants.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) begins: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) ends: Vec<Arc<dyn PhysicalExpr>>,
}

/// The physical operator.
#[derive(Debug)]
pub(super) struct GapFillExec {
    input: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    fills: Vec<Fill>,
    keys: Vec<usize>,
    bucket: usize,
    bounds: Bounds,
    step: Step,
    order: LexOrdering,
    properties: Arc<PlanProperties>,
}

impl GapFillExec {
    pub(super) fn new(
        node: &GapFill,
        input: Arc<dyn ExecutionPlan>,
        bounds: Bounds,
        zone: Option<Zone>,
    ) -> Result<GapFillExec> {
        let Some(step) = Step::new(node.width, zone) else {
            let what = "time_bucket_gapfill: the width must be greater than zero";
            return Err(Error::invalid_value(what).into());
        };
        let Some(bucket) = node.bucket() else {
            return internal_err!("gaps are filled without buckets");
        };
        let keys = node.keys();
        let fields = input.schema();
        let places = keys.iter().chain(std::iter::once(&bucket));
        let sorts = places.filter_map(|place| {
            let column = Column::new(fields.fields().get(*place)?.name(), *place);
            Some(PhysicalSortExpr::new(
                Arc::new(column),
                SortOptions::new(false, false),
            ))
        });
        let Some(order) = LexOrdering::new(sorts) else {
            return internal_err!("gaps are filled in no order");
        };
        let schema: SchemaRef = Arc::clone(node.schema.inner());
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&schema));
        equivalence.add_ordering(order.clone());
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(GapFillExec {
            input,
            schema,
            fills: node.fills.clone(),
            keys,
            bucket,
            bounds,
            step,
            order,
            properties: Arc::new(properties),
        })
    }

    /// The beginnings of the buckets of the range.
    fn range(&self) -> Result<Steps> {
        let all = |exprs: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<i64>> {
            exprs.iter().map(value).collect()
        };
        let begin = all(&self.bounds.begins)?.into_iter().max();
        let end = all(&self.bounds.ends)?.into_iter().min();
        match (begin, end) {
            (Some(begin), Some(end)) => Ok(Steps::new(&self.step, begin, end)),
            _ => internal_err!("gaps are filled without bounds"),
        }
    }
}

/// The instant of a constant.
fn value(expr: &Arc<dyn PhysicalExpr>) -> Result<i64> {
    let schema = Arc::new(arrow::datatypes::Schema::empty());
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
    let value = match expr.evaluate(&row)? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0)?,
    };
    match value {
        ScalarValue::TimestampNanosecond(Some(ns), _) => Ok(ns),
        found => Err(Error::invalid_value(format!(
            "time_bucket_gapfill: a bound of the range is not an instant, found {found}"
        ))
        .with_hint("WHERE time >= … AND time < … with instants, or start => and finish =>")
        .into()),
    }
}

impl DisplayAs for GapFillExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GapFillExec: order=[{}]", self.order)
    }
}

impl ExecutionPlan for GapFillExec {
    fn name(&self) -> &str {
        "GapFillExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::from(self.order.clone()))]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let all = self.bounds.begins.iter().chain(&self.bounds.ends);
        all.apply_until_stop(f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else {
            return internal_err!("gaps are filled in nothing");
        };
        Ok(Arc::new(GapFillExec {
            input,
            schema: Arc::clone(&self.schema),
            fills: self.fills.clone(),
            keys: self.keys.clone(),
            bucket: self.bucket,
            bounds: self.bounds.clone(),
            step: self.step.clone(),
            order: self.order.clone(),
            properties: Arc::clone(&self.properties),
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
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let filling = Filling {
            runs: Runs::new("gaps of time", input, self.keys.clone(), &context)?,
            range: self.range()?,
            batch_rows: context.session_config().batch_size().max(1),
            schema: Arc::clone(&self.schema),
            fills: self.fills.clone(),
            bucket: self.bucket,
            group: None,
            any: !self.keys.is_empty(),
        };
        let rows = stream::try_unfold(filling, |mut filling| async move {
            let batch = filling.next().await?;
            Ok(batch.map(|batch| (batch, filling)))
        });
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// State of one execution of the plan.
struct Filling {
    runs: Runs,
    range: Steps,
    batch_rows: usize,
    schema: SchemaRef,
    fills: Vec<Fill>,
    bucket: usize,
    group: Option<Group>,
    /// True if there was a group, or a group is not required.
    any: bool,
}

/// The group that is being filled.
struct Group {
    rows: RecordBatch,
    /// The buckets of the rows.
    row_buckets: VecDeque<i64>,
    passed: usize,
    range: Peekable<Steps>,
    columns: Vec<Source>,
}

/// Source of the values of a column.
enum Source {
    Absent,
    Key,
    Bucket,
    /// The row whose value fills a row and its successors.
    Last(Vec<Option<u64>>),
    /// The instants and values of the rows with a value.
    Line(Vec<(i64, f64)>),
}

/// A bucket of the output.
struct Slot {
    ns: i64,
    /// Index of its row, if it has one.
    row: Option<usize>,
    /// Number of rows up to and including its own.
    passed: usize,
}

impl Filling {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(group) = &mut self.group {
                let slots = group.slots(self.batch_rows);
                if !slots.is_empty() {
                    return group.batch(&slots, &self.schema).map(Some);
                }
                self.group = None;
            }
            let rows = match self.runs.next().await? {
                Some(rows) => rows,
                None if self.any => return Ok(None),
                // Time is the only key: its buckets exist without any rows.
                None => RecordBatch::new_empty(Arc::clone(&self.schema)),
            };
            self.any = true;
            self.group = Some(self.begin(rows)?);
        }
    }

    fn begin(&self, rows: RecordBatch) -> Result<Group> {
        let buckets = rows.column(self.bucket);
        let buckets = cast(buckets, &self.schema.field(self.bucket).data_type().clone())?;
        let buckets = buckets.as_primitive::<TimestampNanosecondType>();
        let row_buckets: VecDeque<i64> = buckets.values().iter().copied().collect();
        let columns = self.fills.iter().zip(rows.columns());
        let columns = columns.map(|(fill, column)| source(*fill, column, &row_buckets));
        Ok(Group {
            columns: columns.collect::<Result<_>>()?,
            rows,
            row_buckets,
            passed: 0,
            range: self.range.clone().peekable(),
        })
    }
}

fn source(fill: Fill, column: &ArrayRef, buckets: &VecDeque<i64>) -> Result<Source> {
    Ok(match fill {
        Fill::Absent => Source::Absent,
        Fill::Key => Source::Key,
        Fill::Bucket => Source::Bucket,
        Fill::Last { over } => {
            let nulls = column.logical_nulls();
            let mut last = None;
            let rows = (0..column.len()).map(|row| {
                let absent = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                if !(over && absent) {
                    last = u64::try_from(row).ok();
                }
                last
            });
            Source::Last(rows.collect())
        }
        Fill::Line => {
            let values = cast(column, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>().iter();
            let points = buckets.iter().zip(values);
            Source::Line(
                points
                    .filter_map(|(ns, value)| Some((*ns, value?)))
                    .collect(),
            )
        }
    })
}

impl Group {
    /// The next buckets, at most `most`.
    fn slots(&mut self, most: usize) -> Vec<Slot> {
        let mut slots = Vec::new();
        while slots.len() < most {
            let (row, ns) = match (self.row_buckets.front(), self.range.peek()) {
                (None, None) => break,
                (Some(known), Some(made)) if made < known => (None, *made),
                (None, Some(made)) => (None, *made),
                (Some(known), _) => (Some(self.passed), *known),
            };
            if row.is_some() {
                self.row_buckets.pop_front();
                self.passed += 1;
            }
            // Skips the generated bucket of an existing row.
            while self.range.next_if(|made| *made <= ns).is_some() {}
            slots.push(Slot {
                ns,
                row,
                passed: self.passed,
            });
        }
        slots
    }

    fn batch(&self, slots: &[Slot], schema: &SchemaRef) -> Result<RecordBatch> {
        let columns = self
            .columns
            .iter()
            .zip(self.rows.columns())
            .zip(schema.fields());
        let columns = columns.map(|((source, column), field)| {
            let own = slots
                .iter()
                .map(|slot| slot.row.and_then(|row| u64::try_from(row).ok()));
            Ok(match source {
                Source::Absent => take(column, &own.collect::<UInt64Array>(), None)?,
                Source::Key => take(column, &UInt64Array::from(vec![0; slots.len()]), None)?,
                Source::Bucket => {
                    let buckets = slots.iter().map(|slot| slot.ns);
                    let buckets = TimestampNanosecondArray::from_iter_values(buckets);
                    Arc::new(buckets.with_data_type(field.data_type().clone()))
                }
                Source::Last(last) => {
                    let rows = slots.iter().map(|slot| {
                        let before = slot.passed.checked_sub(1)?;
                        last.get(before).copied().flatten()
                    });
                    take(column, &rows.collect::<UInt64Array>(), None)?
                }
                Source::Line(points) => line(points, slots, column, field.data_type())?,
            })
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// Fills values by linear interpolation; rows with values keep them.
fn line(
    points: &[(i64, f64)],
    slots: &[Slot],
    column: &ArrayRef,
    of: &DataType,
) -> Result<ArrayRef> {
    let own = cast(column, &DataType::Float64)?;
    let own = own.as_primitive::<Float64Type>();
    let values = slots.iter().map(|slot| {
        if let Some(row) = slot.row {
            return own.is_valid(row).then(|| own.value(row));
        }
        let behind = points.partition_point(|(ns, _)| *ns < slot.ns);
        let (begin_ns, begin) = points.get(behind.checked_sub(1)?)?;
        let (end_ns, end) = points.get(behind)?;
        let share = crate::functions::seconds(*begin_ns, slot.ns)
            / crate::functions::seconds(*begin_ns, *end_ns);
        let value = begin + (end - begin) * share;
        Some(if of.is_floating() {
            value
        } else {
            value.round()
        })
    });
    let values: ArrayRef = Arc::new(values.collect::<Float64Array>());
    if of.is_floating() {
        return Ok(cast(&values, of)?);
    }
    // Existing values are not converted to floats.
    let made = cast(&values, of)?;
    let mask = slots.iter().map(|slot| Some(slot.row.is_some()));
    let mask: arrow::array::BooleanArray = mask.collect();
    let rows = slots
        .iter()
        .map(|slot| slot.row.and_then(|row| u64::try_from(row).ok()));
    let kept = take(column, &rows.collect::<UInt64Array>(), None)?;
    Ok(arrow::compute::kernels::zip::zip(&mask, &kept, &made)?)
}
