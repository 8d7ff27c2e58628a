//! Repair of named snapshots: damaged ones are dropped, and rebuilt metadata have no snapshots.

use super::plan::Planning;
use crate::admin::check::{CheckReport, check};
use crate::common::ids::SegmentId;
use crate::device::layout::segment_dir;
use crate::metadata::tables::SnapshotChange;
use crate::storage::named_snapshots::SnapshotRecord;
use crate::storage::segment::{marker_name, stub_of};
use crate::{Error, Result};
use std::collections::BTreeSet;

impl Planning<'_> {
    /// The segments with a file, by number.
    pub(super) fn segment_ids(&self) -> Result<Vec<SegmentId>> {
        let dir = segment_dir(self.dir);
        let names = match self.env.segment_files().list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|e| Error::io("list", &dir, e))?,
        };
        let mut ids: Vec<SegmentId> = names
            .iter()
            .filter_map(|n| match stub_of(n) {
                Some(id) => Some(id),
                None => n.strip_suffix(".seg")?.parse().ok().map(SegmentId),
            })
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Segments that are marked as kept only for named snapshots.
    pub(super) fn retained_for_snapshots(&self) -> Result<BTreeSet<SegmentId>> {
        let dir = segment_dir(self.dir);
        let all = self.segment_ids()?.into_iter();
        let files = self.env.segment_files();
        let mut kept = BTreeSet::new();
        for id in all {
            let path = dir.join(marker_name(id));
            if files
                .exists(&path)
                .map_err(|e| Error::io("look for", &path, e))?
            {
                kept.insert(id);
            }
        }
        Ok(kept)
    }

    /// Plans the end of named snapshots with damage.
    pub(super) fn without_broken_snapshots(&mut self, found: CheckReport) -> Result<CheckReport> {
        if found.damaged_snapshots.is_empty() {
            return Ok(found);
        }
        let mut gone = Vec::new();
        {
            let meta = self.open_meta()?;
            for (number, bytes) in meta.snapshots()? {
                let record = SnapshotRecord::decode(&bytes);
                let record = record.map_err(|e| Error::decode(&self.meta_path, 0, e))?;
                if record.ended.is_none() && found.damaged_snapshots.contains(&record.name) {
                    gone.push((number, record.name));
                }
            }
            meta.change_snapshots(&SnapshotChange {
                forgotten: gone.iter().map(|(number, _)| *number).collect(),
                ..SnapshotChange::default()
            })?;
        }
        for (number, name) in gone {
            self.snapshots.push(number);
            self.lost.push(format!("snapshot `{name}`"));
        }
        let after = check(self.overlay(), self.options.clone())?;
        for damage in found.damages {
            if !after.damages.contains(&damage) {
                self.find(damage, "the named snapshots that contain it are dropped");
            }
        }
        Ok(after)
    }
}
