//! Looks through partitions for matches.
//!
//! Invariants: one partition is held at a time; between two starts of a search it is asked whether
//! the statement may go on.

use super::answers::{Answers, Match};
use super::machine::{Label, Machine};
use super::node::{Asked, Skip};
use super::rows::{Conditions, Run};
use super::tracked::Follower;
use super::tracking::Tracked;
use crate::error::Error;
use crate::fences::checkpoint;
use crate::runs::Runs;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNodeIterator as _, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    InputDistributionRequirements, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::stream;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What a node is made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) schema: SchemaRef,
    pub(super) partition: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) order: Option<LexOrdering>,
    pub(super) rows: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) kept: Vec<Arc<dyn PhysicalExpr>>,
    /// What rows are ordered by, where the length of matches is bounded.
    pub(super) times: Option<Arc<dyn PhysicalExpr>>,
    pub(super) measures: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) conditions: Conditions,
    pub(super) asked: Arc<Asked>,
    pub(super) tracked: Option<Tracked>,
}

/// The node of a plan that runs.
#[derive(Debug)]
pub(super) struct PatternExec {
    input: Arc<dyn ExecutionPlan>,
    parts: Arc<Parts>,
    properties: Arc<PlanProperties>,
}

impl PatternExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, parts: Parts) -> Result<PatternExec> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&parts.schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(PatternExec {
            input,
            parts: Arc::new(parts),
            properties: Arc::new(properties),
        })
    }

    /// The places of the columns of the partition.
    fn keys(&self) -> Result<Vec<usize>> {
        let columns = self
            .parts
            .partition
            .iter()
            .map(|by| by.downcast_ref::<Column>());
        let places: Option<Vec<usize>> = columns.map(|column| Some(column?.index())).collect();
        match places {
            Some(places) => Ok(places),
            None => internal_err!("a partition by something else than columns"),
        }
    }
}

impl DisplayAs for PatternExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbols = self.parts.asked.symbols.join(", ");
        write!(f, "MatchRecognizeExec: symbols=[{symbols}]")?;
        if let Some(order) = &self.parts.order {
            write!(f, ", order=[{order}]")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for PatternExec {
    fn name(&self) -> &str {
        "MatchRecognizeExec"
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
        vec![self.parts.order.clone().map(OrderingRequirements::from)]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let all = self.parts.rows.iter().chain(&self.parts.kept);
        all.apply_until_stop(f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else {
            return internal_err!("a pattern is looked for in nothing");
        };
        Ok(Arc::new(PatternExec {
            input,
            parts: Arc::clone(&self.parts),
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
        let search = Search {
            runs: Runs::new("rows of patterns", input, self.keys()?, &context)?,
            reserved: MemoryConsumer::new("ways through patterns").register(context.memory_pool()),
            parts: Arc::clone(&self.parts),
            batch_rows: context.session_config().batch_size().max(1),
            ready: VecDeque::new(),
        };
        let rows = stream::try_unfold(search, |mut search| async move {
            let batch = search.next().await?;
            Ok(batch.map(|batch| (batch, search)))
        });
        let schema = Arc::clone(&self.parts.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The work of a run of the plan.
struct Search {
    runs: Runs,
    reserved: MemoryReservation,
    parts: Arc<Parts>,
    batch_rows: usize,
    ready: VecDeque<RecordBatch>,
}

impl Search {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            match self.runs.next().await? {
                Some(rows) => self.partition(&rows)?,
                None => return Ok(None),
            }
        }
    }

    /// Looks through a partition.
    fn partition(&mut self, batch: &RecordBatch) -> Result<()> {
        self.reserved.free();
        let parts = Arc::clone(&self.parts);
        let asked = &*parts.asked;
        let mut run = Run::new(
            asked,
            &parts.conditions,
            batch,
            &parts.rows,
            parts.times.as_ref(),
            &self.reserved,
        )?;
        let kept = parts
            .kept
            .iter()
            .map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()));
        let kept: Vec<ArrayRef> = kept.collect::<Result<_>>()?;
        let mut machine = Machine::new(&asked.program);
        let mut answers = Answers::new(asked.slots.len());
        let (mut row, mut covered) = (0, 0);
        let mut follower = match &parts.tracked {
            None => None,
            Some(tracked) => Some(Follower::new(tracked, asked, batch, &parts.partition)?),
        };
        if let Some(follower) = &follower {
            row = follower.begin(&run)?;
        }
        while row < run.count {
            checkpoint()?;
            run.number += 1;
            let search = machine.find(&mut run, row)?;
            if let Some(follower) = &mut follower {
                follower.looked(&run, row, &machine)?;
            }
            match search {
                None => {
                    run.number -= 1;
                    if asked.answers.unmatched && row >= covered {
                        answers.unmatched(row);
                    }
                    row += 1;
                }
                Some(labels) => {
                    let found = Match {
                        start: row,
                        labels: &labels,
                        number: run.number,
                    };
                    if !labels.is_empty() || asked.answers.empty {
                        answers.matched(&run, &found)?;
                    }
                    covered = covered.max(row + labels.len());
                    let next = behind(&asked.skip, row, &labels)?;
                    if let Some(follower) = &follower {
                        answers.track(follower.matched(&run, row, labels.len(), next)?);
                    }
                    row = next;
                }
            }
            if answers.count() >= self.batch_rows {
                let made = answers.batch(&run, &kept, &parts.measures, &parts.schema)?;
                self.ready.push_back(made);
            }
        }
        if answers.count() > 0 {
            let made = answers.batch(&run, &kept, &parts.measures, &parts.schema)?;
            self.ready.push_back(made);
        }
        Ok(())
    }
}

/// Where the search goes on behind a match.
fn behind(skip: &Skip, start: usize, labels: &[Label]) -> Result<usize> {
    if labels.is_empty() {
        return Ok(start + 1);
    }
    let (place, name) = match skip {
        Skip::PastLastRow => return Ok(start + labels.len()),
        Skip::ToNextRow => return Ok(start + 1),
        Skip::ToFirst(of, name) => (labels.iter().position(|l| of.contains(&l.symbol)), name),
        Skip::ToLast(of, name) => (labels.iter().rposition(|l| of.contains(&l.symbol)), name),
    };
    let hint = "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW, always goes on";
    match place {
        None => Err(Error::invalid(format!(
            "AFTER MATCH SKIP TO {name}: a match has no such row"
        ))
        .with_hint(hint)
        .into()),
        Some(0) => Err(Error::invalid(format!(
            "AFTER MATCH SKIP TO {name}: that is the first row of the match, so that it would be found for ever"
        ))
        .with_hint(hint)
        .into()),
        Some(place) => Ok(start + place),
    }
}
