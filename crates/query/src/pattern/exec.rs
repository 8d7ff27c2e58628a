//! Searches partitions for matches.
//!
//! Invariants: one partition is in memory at a time, and if matches are bounded only the rows
//! within reach of the current start; the statement is checked between two starts of a search.

use super::answers::{Answers, Match};
use super::machine::{Label, Machine};
use super::node::{PatternSpec, Skip};
use super::rows::{Conditions, Run};
use super::tracked::Follower;
use super::tracking::Tracked;
use crate::error::Error;
use crate::guards::checkpoint;
use crate::runs::{RunRows, Runs, bytes};
use crate::table::{ScanExec, Skipping};
use crate::view::View;
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, SchemaRef};
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
use headwater::Timestamp;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Physical parts of a node.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) schema: SchemaRef,
    pub(super) partition: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) order: Option<LexOrdering>,
    pub(super) rows: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) output_columns: Vec<Arc<dyn PhysicalExpr>>,
    /// The sort key of rows, if the length of matches is bounded.
    pub(super) times: Option<Arc<dyn PhysicalExpr>>,
    pub(super) measures: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) conditions: Conditions,
    pub(super) spec: Arc<PatternSpec>,
    pub(super) tracked: Option<Tracked>,
    /// Possible locations of matches among the rows of a scan.
    pub(super) skips: Option<(Arc<ScanExec>, Arc<Skipping>)>,
}

impl Parts {
    /// Whether a bounded number of rows decides all matches that begin at a row.
    fn is_bounded(&self) -> bool {
        let spec = &self.spec;
        let has_bound = spec.within.is_some() || spec.regex.longest().is_some();
        has_bound && self.tracked.is_none()
    }

    /// The ranges of rows to search, each with the end of its time.
    fn stretches(
        &self,
        run: &Run<'_>,
        batch: &RecordBatch,
        skipping: &Skipping,
        view: &View,
    ) -> Result<Vec<(usize, usize, Option<Timestamp>)>> {
        let first = batch.slice(0, batch.num_rows().min(1));
        let mut tags = Vec::with_capacity(self.partition.len());
        for by in &self.partition {
            let value = by.evaluate(&first)?.into_array(first.num_rows())?;
            let value = cast(&value, &DataType::Utf8)?;
            let value = value.as_string::<i32>().iter().next().flatten();
            tags.push(value.map(str::to_owned));
        }
        if run.count == 0 {
            return Ok(Vec::new());
        }
        let Some(searched) = skipping.of_tags(view, &tags)? else {
            return Err(Error::internal("rows of a partition that was not looked for").into());
        };
        let stretches = searched.ranges.iter().map(|range| {
            let end = match range.last.next() {
                Some(next) => run.row_of(next),
                None => run.count,
            };
            (run.row_of(range.first), end, Some(range.last))
        });
        Ok(stretches.filter(|(first, end, _)| first < end).collect())
    }
}

/// The physical operator.
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

    /// Indexes of the columns of the partition.
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
        let symbols = self.parts.spec.symbols.join(", ");
        write!(f, "MatchRecognizeExec: symbols=[{symbols}]")?;
        if let Some(order) = &self.parts.order {
            write!(f, ", order=[{order}]")?;
        }
        if self.parts.skips.is_some() {
            write!(f, ", skips what no match reaches")?;
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
        let all = self.parts.rows.iter().chain(&self.parts.output_columns);
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
        let pool = context.memory_pool();
        let kept = MemoryConsumer::new("rows of patterns that are kept").register(pool);
        let skips = match &self.parts.skips {
            None => None,
            Some((scan, skipping)) => Some((Arc::clone(skipping), scan.view(&context)?)),
        };
        let search = Search {
            runs: Runs::new("rows of patterns", input, self.keys()?, &context)?,
            reserved: MemoryConsumer::new("ways through patterns").register(pool),
            window: Window::new(kept),
            skips,
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

/// State of one execution of the plan.
struct Search {
    runs: Runs,
    /// Memory of threads through the pattern.
    reserved: MemoryReservation,
    window: Window,
    parts: Arc<Parts>,
    /// Possible locations of matches.
    skips: Option<(Arc<Skipping>, Arc<View>)>,
    batch_rows: usize,
    ready: VecDeque<RecordBatch>,
}

impl Search {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            match self.runs.next_part(self.rows_needed()).await? {
                Some(part) => self.look_through(part)?,
                None => return Ok(None),
            }
        }
    }

    /// Number of rows to read before a search continues: all of a partition, unless matches are
    /// bounded.
    fn rows_needed(&self) -> usize {
        match self.parts.is_bounded() {
            // Retained rows are searched again, so at least as many new rows must be read.
            true => self.window.rows().max(2 * self.batch_rows),
            false => usize::MAX,
        }
    }

    /// Searches the next rows of a partition, as far as these rows decide the matches.
    fn look_through(&mut self, part: RunRows) -> Result<()> {
        self.reserved.free();
        let ends = part.ends;
        let batch = self.window.with(part.rows)?;
        let parts = Arc::clone(&self.parts);
        let mut run = Run::new(
            &parts.spec,
            &parts.conditions,
            &batch,
            &parts.rows,
            parts.times.as_ref(),
            &self.reserved,
        )?;
        if !self.window.begins {
            run = run.going_on();
        }
        run.number = self.window.number;
        let stretches = match &self.skips {
            None => vec![(0, run.count, None)],
            Some((skipping, view)) => parts.stretches(&run, &batch, skipping, view)?,
        };
        let mut looking = Looking::new(&parts, &run, &batch, &mut self.ready)?;
        looking.batch_rows = self.batch_rows;
        (looking.row, looking.covered) = (looking.row.max(self.window.next), self.window.covered);
        let whole = run.count;
        let mut goes_on = true;
        for (first, end, last) in stretches {
            looking.row = looking.row.max(first);
            run.end = end;
            let decides = Decides::new(&parts, &run, ends, last);
            if !looking.stretch(&mut run, &decides)? {
                goes_on = false;
                break;
            }
        }
        looking.hand_out(&run)?;
        let (row, covered) = (looking.row, looking.covered);
        let next = if goes_on { whole.max(row) } else { row };
        let number = run.number;
        drop(run);
        match ends {
            true => self.window.clear(),
            false => {
                let before = parts.spec.rows_around().0;
                self.window.retain_rows(&batch, next, before)?;
                self.window.covered = covered.saturating_sub(next) + self.window.next;
                self.window.number = number;
            }
        }
        Ok(())
    }
}

/// Rows of a partition that were read and are still needed.
struct Window {
    rest: Option<RecordBatch>,
    reserved: MemoryReservation,
    /// True if no row of the partition was dropped.
    begins: bool,
    /// Row at which the search continues.
    next: usize,
    /// Rows before this one are in a match.
    covered: usize,
    /// Number of matches so far.
    number: i64,
}

impl Window {
    fn new(reserved: MemoryReservation) -> Window {
        Window {
            rest: None,
            reserved,
            begins: true,
            next: 0,
            covered: 0,
            number: 0,
        }
    }

    fn rows(&self) -> usize {
        self.rest.as_ref().map_or(0, RecordBatch::num_rows)
    }

    /// The retained rows, followed by further rows.
    fn with(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let Some(rest) = self.rest.take() else {
            return Ok(rows);
        };
        let all = bytes(&rest).saturating_add(bytes(&rows));
        // The memory of the new rows was reserved when they were read.
        self.reserved.try_resize(all)?;
        Ok(concat_batches(&rest.schema(), [&rest, &rows])?)
    }

    /// Retains the rows from one row on, and `before` rows before it.
    fn retain_rows(&mut self, batch: &RecordBatch, next: usize, before: usize) -> Result<()> {
        let from = next.saturating_sub(before);
        let rest = batch.slice(from, batch.num_rows().saturating_sub(from));
        // A slice of the batch until it is concatenated with others.
        self.reserved.try_resize(bytes(batch))?;
        self.begins &= from == 0;
        self.next = next - from;
        self.rest = Some(rest);
        Ok(())
    }

    fn clear(&mut self) {
        self.reserved.free();
        (self.rest, self.begins, self.next) = (None, true, 0);
        (self.covered, self.number) = (0, 0);
    }
}

/// Whether the available rows decide all matches that begin at a row.
struct Decides {
    all: bool,
    /// A time among the rows, followed by as many rows as the pattern needs.
    known_ns: Option<i64>,
    /// True if the part ends before that time.
    has_end: bool,
    within_ns: Option<i64>,
    longest: Option<usize>,
    behind: usize,
}

impl Decides {
    fn new(parts: &Parts, run: &Run<'_>, all: bool, last: Option<Timestamp>) -> Decides {
        let behind = parts.spec.rows_around().1;
        let known = run.count.checked_sub(behind.saturating_add(1));
        let known_ns = known.and_then(|row| run.time_ns(row));
        let ended = last.zip(known_ns);
        Decides {
            all,
            known_ns,
            has_end: ended.is_some_and(|(last, known)| last.as_nanos() < known),
            within_ns: parts.spec.within,
            longest: parts.spec.regex.longest(),
            behind,
        }
    }

    /// The end of the rows whose conditions have all required rows of the part.
    fn known_end(&self, run: &Run<'_>) -> usize {
        let known = match self.all {
            true => run.count,
            false => run.count.saturating_sub(self.behind),
        };
        known.min(run.end)
    }

    /// Whether the available rows decide the matches that begin at a row.
    fn row(&self, run: &Run<'_>, row: usize) -> bool {
        if self.all || self.has_end {
            return true;
        }
        let by_rows = self.longest.is_some_and(|longest| {
            let needed = row.saturating_add(longest).saturating_add(self.behind);
            needed < run.count
        });
        let times = self.known_ns.zip(run.time_ns(row)).zip(self.within_ns);
        by_rows
            || times.is_some_and(|((known, own), within)| {
                (i128::from(known) - i128::from(own)).abs() > i128::from(within)
            })
    }
}

/// A search through rows of a partition.
struct Looking<'a> {
    machine: Machine<'a>,
    answers: Answers,
    follower: Option<Follower<'a>>,
    output_columns: Vec<ArrayRef>,
    /// Row at which the search continues.
    row: usize,
    covered: usize,
    batch_rows: usize,
    ready: &'a mut VecDeque<RecordBatch>,
    parts: &'a Parts,
}

impl<'a> Looking<'a> {
    /// A search from the first row, or from the position of a watch.
    fn new(
        parts: &'a Parts,
        run: &Run<'_>,
        batch: &RecordBatch,
        ready: &'a mut VecDeque<RecordBatch>,
    ) -> Result<Looking<'a>> {
        let kept = parts.output_columns.iter();
        let kept = kept.map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()));
        let output_columns = kept.collect::<Result<_>>()?;
        let follower = match &parts.tracked {
            None => None,
            Some(tracked) => {
                let by = &parts.partition;
                Some(Follower::new(tracked, &parts.spec, batch, by)?)
            }
        };
        Ok(Looking {
            machine: Machine::new(&parts.spec.program),
            answers: Answers::new(parts.spec.slots.len()),
            row: match &follower {
                None => 0,
                Some(follower) => follower.begin(run)?,
            },
            follower,
            output_columns,
            covered: 0,
            batch_rows: usize::MAX,
            ready,
            parts,
        })
    }

    /// Searches to the end of a part; false when missing rows decide the matches that begin at the
    /// next row.
    fn stretch(&mut self, run: &mut Run<'_>, decides: &Decides) -> Result<bool> {
        let spec = &*self.parts.spec;
        let passes = self.follower.is_none() && !spec.answers.unmatched;
        while self.row < run.end {
            if passes {
                // Rows at which no match begins are skipped.
                self.row = run.next_beginning(self.row, decides.known_end(run));
                if self.row >= run.end {
                    break;
                }
            }
            if !decides.row(run, self.row) {
                return Ok(false);
            }
            checkpoint()?;
            run.number += 1;
            let search = self.machine.find(run, self.row)?;
            if let Some(follower) = &mut self.follower {
                follower.looked(run, self.row, &self.machine)?;
            }
            match search {
                None => {
                    run.number -= 1;
                    if spec.answers.unmatched && self.row >= self.covered {
                        self.answers.unmatched(self.row);
                    }
                    self.row += 1;
                }
                Some(labels) => self.matched(run, &labels)?,
            }
            if self.answers.count() >= self.batch_rows {
                self.hand_out(run)?;
            }
        }
        Ok(true)
    }

    fn matched(&mut self, run: &Run<'_>, labels: &[Label]) -> Result<()> {
        let spec = &*self.parts.spec;
        let found = Match {
            start: self.row,
            labels,
            number: run.number,
        };
        if !labels.is_empty() || spec.answers.empty {
            self.answers.matched(run, &found)?;
        }
        self.covered = self.covered.max(self.row + labels.len());
        let next = behind(&spec.skip, self.row, labels)?;
        if let Some(follower) = &self.follower {
            let track = follower.matched(run, self.row, labels.len(), next)?;
            self.answers.track(track);
        }
        self.row = next;
        Ok(())
    }

    fn hand_out(&mut self, run: &Run<'_>) -> Result<()> {
        if self.answers.count() > 0 {
            let (kept, parts) = (&self.output_columns, self.parts);
            let made = self
                .answers
                .batch(run, kept, &parts.measures, &parts.schema)?;
            self.ready.push_back(made);
        }
        Ok(())
    }
}

/// Row at which the search continues after a match.
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
    let hint = "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW, always advances";
    match place {
        None => Err(Error::invalid(format!(
            "AFTER MATCH SKIP TO {name}: a match has no such row"
        ))
        .with_hint(hint)
        .into()),
        Some(0) => Err(Error::invalid(format!(
            "AFTER MATCH SKIP TO {name}: this is the first row of the match, so that the search would not end"
        ))
        .with_hint(hint)
        .into()),
        Some(place) => Ok(start + place),
    }
}
