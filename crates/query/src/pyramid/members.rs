//! Streams of a grouped query, and their groups.
//!
//! Invariants: streams are in one group if their tags give the same values of all keys. The groups
//! of streams in memory are computed when the query is planned; other streams are read page by
//! page, and the memory of their groups is reserved. Concurrency: threads take their streams, or
//! pages, and number groups under one lock.

use super::meter::PartMeter;
use super::plan::{Computed, Grouped, Key};
use crate::view::{Choice, Chosen, Pages, Streams, View};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use headwater::Bins;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Memory of a group besides its values, approximately.
const GROUP_BYTES: usize = 128;

/// The keys over tags.
#[derive(Debug)]
struct Keys {
    /// Per key of the query, its expression over tags, if it is one.
    over_tags: Vec<Option<Arc<dyn PhysicalExpr>>>,
}

impl Keys {
    fn new(grouped: &Grouped, props: &ExecutionProps) -> Result<Keys> {
        let schema = DFSchema::try_from(grouped.table.tag_schema())?;
        let keys = grouped.keys.iter().map(|key| match key {
            Key::Bin => Ok(None),
            Key::Tags(expr) => {
                let planning = PhysicalPlanningContext::default();
                create_physical_expr(expr, &schema, props, &planning).map(Some)
            }
        });
        Ok(Keys {
            over_tags: keys.collect::<Result<_>>()?,
        })
    }

    /// The values of the keys over tags, one per selected stream.
    fn values(
        &self,
        grouped: &Grouped,
        streams: &Streams,
        places: &[u32],
    ) -> Result<Vec<Option<ArrayRef>>> {
        if self.over_tags.iter().all(Option::is_none) {
            return Ok(vec![None; self.over_tags.len()]);
        }
        let rows = grouped.table.tag_rows(streams)?;
        let picked = UInt32Array::from(places.to_vec());
        let columns = self.over_tags.iter().map(|key| match key {
            None => Ok(None),
            Some(key) => {
                let values = key.evaluate(&rows)?.into_array(rows.num_rows())?;
                Ok(Some(take(&values, &picked, None)?))
            }
        });
        columns.collect()
    }
}

/// Groups by the values of their keys.
#[derive(Debug, Default)]
struct Table {
    /// `None` before the first stream, and without keys over tags.
    converter: Option<RowConverter>,
    group_numbers: HashMap<OwnedRow, u32>,
    /// Key values by group number.
    rows: Vec<OwnedRow>,
}

impl Table {
    /// The group of each stream, by the values of its keys; reports new groups.
    fn groups(
        &mut self,
        values: &[Option<ArrayRef>],
        count: usize,
        mut on_new: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let by: Vec<ArrayRef> = values.iter().flatten().cloned().collect();
        if by.is_empty() {
            return Ok(vec![0; count]);
        }
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none => {
                let sorts = by.iter().map(|a| SortField::new(a.data_type().clone()));
                none.insert(RowConverter::new(sorts.collect())?)
            }
        };
        let rows = converter.convert_columns(&by)?;
        let mut groups = Vec::with_capacity(count);
        for row in &rows {
            let row = row.owned();
            let next = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
            let group = match self.group_numbers.get(&row) {
                Some(group) => *group,
                None => {
                    on_new(2 * row.as_ref().len() + GROUP_BYTES)?;
                    self.group_numbers.insert(row.clone(), next);
                    self.rows.push(row);
                    next
                }
            };
            groups.push(group);
        }
        Ok(groups)
    }

    /// Values of each key over tags, one per group.
    fn values(&self, over_tags: &[bool]) -> Result<Vec<Option<ArrayRef>>> {
        let mut columns = match &self.converter {
            Some(converter) => converter.convert_rows(self.rows.iter().map(OwnedRow::row))?,
            None => Vec::new(),
        }
        .into_iter();
        let values = over_tags
            .iter()
            .map(|over| if *over { columns.next() } else { None });
        Ok(values.collect())
    }
}

/// The streams, sorted by group.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) streams: Arc<Streams>,
    /// Group and stream of each stream to read, in order.
    pub(super) of: Vec<(u32, u32)>,
    /// Values of each key over tags, one per group.
    values: Vec<Option<ArrayRef>>,
    pub(super) count: usize,
}

impl Groups {
    fn new(
        grouped: &Grouped,
        keys: &Keys,
        streams: Arc<Streams>,
        places: &[u32],
    ) -> Result<Groups> {
        let columns = keys.values(grouped, &streams, places)?;
        let mut table = Table::default();
        let groups = table.groups(&columns, places.len(), |_| Ok(()))?;
        let has_keys = columns.iter().any(Option::is_some);
        let count = match has_keys {
            true => table.rows.len(),
            false => usize::from(!places.is_empty()),
        };
        // The first stream of each group has its values.
        let mut first: Vec<u32> = Vec::with_capacity(count);
        for (at, group) in (0u32..).zip(&groups) {
            if u32::try_from(first.len()) == Ok(*group) {
                first.push(at);
            }
        }
        let first = UInt32Array::from(first);
        let values = columns.into_iter().map(|column| match column {
            Some(column) => Ok(Some(take(&column, &first, None)?)),
            None => Ok(None),
        });
        Ok(Groups {
            values: values.collect::<Result<_>>()?,
            of: places.iter().copied().zip(groups).collect(),
            streams,
            count,
        })
    }
}

/// The streams to read, as planned.
#[derive(Clone, Debug)]
pub(super) enum Members {
    Loaded(Arc<Groups>),
    Many(Arc<ManyMembers>),
}

/// Streams that are read page by page.
#[derive(Debug)]
pub(super) struct ManyMembers {
    choice: Arc<Choice>,
    keys: Keys,
}

impl Members {
    pub(super) fn new(
        grouped: &Grouped,
        chosen: Chosen,
        props: &ExecutionProps,
    ) -> Result<Members> {
        let keys = Keys::new(grouped, props)?;
        Ok(match chosen {
            Chosen::Loaded(streams, places) => {
                Members::Loaded(Arc::new(Groups::new(grouped, &keys, streams, &places)?))
            }
            Chosen::Many(choice) => Members::Many(Arc::new(ManyMembers { choice, keys })),
        })
    }

    pub(super) fn has_one_group(&self) -> bool {
        match self {
            Members::Loaded(groups) => groups.count <= 1,
            Members::Many(many) => many.keys.over_tags.iter().all(Option::is_none),
        }
    }

    /// The source of streams for one execution of the query.
    pub(super) fn source(
        &self,
        view: &Arc<View>,
        grouped: &Arc<Grouped>,
        meter: PartMeter,
    ) -> Source {
        match self {
            Members::Loaded(groups) => Source::Loaded {
                groups: Arc::clone(groups),
                started_threads: Mutex::default(),
            },
            Members::Many(many) => Source::Many(ManySource {
                pages: Pages::new(
                    Arc::clone(view),
                    Arc::clone(&grouped.table),
                    Arc::clone(&many.choice),
                ),
                grouped: Arc::clone(grouped),
                many: Arc::clone(many),
                table: Mutex::default(),
                meter,
            }),
        }
    }
}

/// Source of the streams for the threads of an execution.
pub(super) enum Source {
    Loaded {
        groups: Arc<Groups>,
        /// Threads that have taken their streams.
        started_threads: Mutex<Vec<usize>>,
    },
    Many(ManySource),
}

/// Pages of streams, and the groups so far.
pub(super) struct ManySource {
    pages: Pages,
    grouped: Arc<Grouped>,
    many: Arc<ManyMembers>,
    table: Mutex<Table>,
    meter: PartMeter,
}

/// Some streams with their groups.
pub(super) struct SourcePage<'a> {
    pub(super) streams: Arc<Streams>,
    members: std::borrow::Cow<'a, [(u32, u32)]>,
}

impl SourcePage<'_> {
    pub(super) fn members(&self) -> &[(u32, u32)] {
        &self.members
    }
}

impl ManySource {
    /// True when the query only counts all rows, and the session may know that number.
    pub(super) fn counts_all(&self, view: &View, grouped: &Grouped) -> bool {
        view.reads_all() && self.is_count(grouped)
    }

    fn is_count(&self, grouped: &Grouped) -> bool {
        self.many.choice.conditions.is_empty()
            && grouped.keys.is_empty()
            && grouped.bins == Bins::Whole
            && grouped.computed.iter().all(|c| *c == Computed::Rows)
    }
}

impl Source {
    /// Number of threads that work in parallel.
    pub(super) fn parts(&self, parallel: usize, grouped: &Grouped) -> usize {
        match self {
            Source::Loaded { groups, .. } => parallel.min(groups.of.len()),
            // Among ends of one instant the first stream's is used, so pages must arrive in order.
            Source::Many(_) if !grouped.ends.is_empty() => 1,
            // If rows are counted without their streams, one thread suffices.
            Source::Many(many) if many.is_count(grouped) => 1,
            Source::Many(_) => parallel,
        }
    }

    /// The next streams for a thread; `None` at the end.
    pub(super) fn next(&self, part: usize, parts: usize) -> Result<Option<SourcePage<'_>>> {
        match self {
            Source::Loaded {
                groups,
                started_threads,
            } => {
                let mut taken = started_threads.lock();
                if taken.contains(&part) {
                    return Ok(None);
                }
                taken.push(part);
                let count = groups.of.len();
                let own = count * part / parts..count * (part + 1) / parts;
                Ok(Some(SourcePage {
                    streams: Arc::clone(&groups.streams),
                    members: groups.of.get(own).unwrap_or_default().into(),
                }))
            }
            Source::Many(many) => {
                let Some((streams, places)) = many.pages.next()? else {
                    return Ok(None);
                };
                let values = many.many.keys.values(&many.grouped, &streams, &places)?;
                let groups = many.table.lock().groups(&values, places.len(), |bytes| {
                    many.meter.reserved.try_grow(bytes)
                })?;
                Ok(Some(SourcePage {
                    streams: Arc::new(streams),
                    members: places.into_iter().zip(groups).collect(),
                }))
            }
        }
    }

    /// Values of each key over tags, one per group so far.
    pub(super) fn values(&self) -> Result<Vec<Option<ArrayRef>>> {
        match self {
            Source::Loaded { groups, .. } => Ok(groups.values.clone()),
            Source::Many(many) => {
                let over = many.many.keys.over_tags.iter().map(Option::is_some);
                many.table.lock().values(&over.collect::<Vec<_>>())
            }
        }
    }
}
