//! Repair of lost or damaged metadata: the plan contains new ones, built from segments and log.

use super::log::LogScan;
use super::plan::{Planning, damage};
use super::rebuild::{Rebuilt, rebuild};
use super::save_log::Covers;
use super::scan::ScannedSegment;
use crate::common::ids::SegmentId;
use crate::device::layout::log_dir;
use crate::metadata::tables::MetaChange;
use crate::{Error, ErrorKind, Result};
use std::path::Path;

impl Planning<'_> {
    /// Builds the metadata from segments and log.
    pub(super) fn rebuild_meta(&mut self, error: &Error) -> Result<()> {
        self.give_up_meta(error)?;
        self.freed = self.freed_by_files()?;
        let mut segments = self.scan_segments()?;
        self.next_segment = segments.iter().map(|s| s.id.0 + 1).max().unwrap_or(1);
        self.without_unfinished(&mut segments)?;
        self.without_unreadable(&segments);
        let log = LogScan::read(
            &**self.env.log_files(),
            &log_dir(self.env, self.dir),
            (0, 0),
        )?;
        let Rebuilt {
            file,
            floor,
            step_sequence,
            superseded,
            in_force,
        } = rebuild(&self.meta_path, &segments, &log, self.env)?;
        self.file = file;
        self.without_superseded(superseded);
        self.mend_in_force(&segments, &in_force)?;
        self.save_log(floor, step_sequence, (0, 0), &covers_in(&segments))
    }

    /// Reports the damage of the present metadata, which are moved to quarantine.
    fn give_up_meta(&mut self, error: &Error) -> Result<()> {
        let found = error
            .damaged()
            .cloned()
            .unwrap_or_else(|| damage(&self.meta_path, 0, "valid metadata", error.to_string()));
        self.find(
            found,
            "rebuilt from segments and log, without named snapshots, which only the metadata contains; the present files are moved to quarantine",
        );
        let there = |path: &Path| {
            self.env
                .index_files()
                .exists(path)
                .map_err(|e| Error::io("look for", path, e))
        };
        if there(&self.meta_path)? {
            self.quarantined.insert(self.meta_path.clone());
        }
        Ok(())
    }

    /// Reads the files of all segments except those kept only for named snapshots.
    fn scan_segments(&mut self) -> Result<Vec<ScannedSegment>> {
        let files = self.segment_files();
        let mut segments = Vec::new();
        let kept = self.retained_for_snapshots()?;
        if !kept.is_empty() {
            self.lost.push(format!(
                "named snapshots, with the {} segments retained only for them",
                kept.len()
            ));
        }
        let ids = self.segment_ids()?.into_iter();
        for id in ids.filter(|id| !kept.contains(id)) {
            match ScannedSegment::open(&files, self.dir, id, u64::MAX) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let held = "an unknown number of events".to_owned();
                    self.lose_stub(id, &error, held, &mut MetaChange::default());
                }
                found => segments.extend(found?),
            }
        }
        Ok(segments)
    }

    /// Plans the quarantine of segments without a header or a footer.
    fn without_unreadable(&mut self, segments: &[ScannedSegment]) {
        for segment in segments {
            if self.quarantined.contains(&segment.path) {
                continue;
            }
            if segment.header.is_none() || segment.readable.is_none() {
                let what = if segment.header.is_none() {
                    "header"
                } else {
                    "footer"
                };
                self.find(
                    damage(
                        &segment.path,
                        0,
                        format!("a segment with a {what}"),
                        "no readable one",
                    ),
                    "the file is moved to quarantine",
                );
                self.quarantined.insert(segment.path.clone());
                self.lost
                    .push(format!("the contents of segment {}", segment.id.0));
            }
        }
    }

    /// Plans the quarantine of segments that are not in force, with the reasons.
    fn without_superseded(&mut self, superseded: Vec<(SegmentId, String)>) {
        for (id, why) in superseded {
            let path = self.dir.join("segment").join(format!("{}.seg", id.0));
            self.find(
                damage(&path, 0, "a current segment", why),
                "the file is moved to quarantine",
            );
            self.quarantined.insert(path);
        }
    }

    /// Reads the segments in force, and adds their readable parts to the new metadata.
    fn mend_in_force(&mut self, segments: &[ScannedSegment], in_force: &[SegmentId]) -> Result<()> {
        let (tables, named) = {
            let meta = self.open_meta()?;
            (meta.tables()?, meta.partitions()?)
        };
        self.name_freed(&named)?;
        let store = self.store();
        let mut change = MetaChange::default();
        for segment in segments.iter().filter(|s| in_force.contains(&s.id)) {
            let (Some(header), Some(whole)) = (&segment.header, &segment.readable) else {
                continue;
            };
            if let Some(table) = tables.get(header.table.0 as usize) {
                let (id, end) = (segment.id, whole.end());
                let mended = self.mended(&store, (id, header), whole, table, false)?;
                self.apply(&segment.path, id, end, mended, table, &mut change)?;
            }
        }
        change.next_segment = self.next_segment;
        self.commit(change)
    }
}

/// Gathers the covers of all readable footers.
fn covers_in(segments: &[ScannedSegment]) -> Covers {
    let mut covers = Covers::new();
    for footer in segments
        .iter()
        .filter_map(|s| s.readable.as_ref())
        .flat_map(|w| &w.footers)
    {
        for delta in &footer.streams {
            covers
                .entry(delta.stream)
                .or_default()
                .extend(delta.covers.iter().copied());
        }
    }
    covers
}
