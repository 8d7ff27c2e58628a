//! Repairs of what has decayed: afterwards the database is sound, nothing is less than could be
//! read before, and where the report tells of no loss, everything is there.

use super::compare::{each_stream, ensure, quick, rows_of};
use super::decay::Damage;
use super::view::{Presence, View, straddling};
use super::world::World;
use crate::support::{Fields, collect};
use headwater_engine::{Database, Reader, RepairMode, ScanSpec, repair};
use headwater_io::FaultyFiles;
use headwater_types::StreamName;
use std::collections::BTreeMap;

/// Rows by stream, as far as they could be read.
type Readable = BTreeMap<StreamName, Vec<(i64, Fields)>>;

impl World {
    /// What can be read of a damaged database.
    fn readable(&self, disk: &FaultyFiles) -> Readable {
        let mut out = Readable::new();
        let Ok(reader) = Reader::open_in(self.env_on(disk), self.options.clone()) else {
            return out;
        };
        let snapshot = reader.snapshot();
        for table in reader.tables() {
            for name in snapshot.streams(&table.name, &[]).unwrap_or_default() {
                if let Ok(scan) = snapshot.scan(&name, &ScanSpec::default()) {
                    out.insert(name, collect(scan).0);
                }
            }
        }
        out
    }

    /// Repairs a damaged disk and looks at what is there then. `tail`: what is damaged may be taken
    /// for the end of the log.
    pub(super) fn mend(&mut self, disk: &FaultyFiles, damage: &Damage, tail: bool) {
        let path = damage.path.display();
        let before = self.readable(disk);
        let report = repair(&self.env_on(disk), &self.options, RepairMode::Act)
            .unwrap_or_else(|error| panic!("{path} cannot be repaired: {error}"));
        self.transcript.count("repairs");
        assert!(report.after.is_sound(), "{path}: {report:#?}");
        let again = repair(&self.env_on(disk), &self.options, RepairMode::DryRun).unwrap();
        assert!(again.findings.is_empty(), "{path}: {again:#?}");
        let db = Database::open_in(self.env_on(disk), self.options.clone())
            .unwrap_or_else(|error| panic!("{path}: repaired, and does not open: {error}"));
        let infos = db.tables();
        let snapshot = db.snapshot().unwrap();
        for (name, rows) in &before {
            let after = rows_of(&snapshot, name, &ScanSpec::default()).unwrap_or_default();
            for (time, fields) in rows {
                let mut there = after.iter().filter(|(t, _)| t == time);
                // What damage hid can come to light: another value of the same field and time.
                let has = |found: &Fields| fields.keys().all(|field| found.contains_key(field));
                assert!(
                    there.any(|(_, found)| has(found)),
                    "{path}: {name} had {fields:?} at {time} before the repair: {report:#?}"
                );
            }
        }
        // What the metadata alone knew may be lost with them, or come back.
        let of_meta = damage.path.starts_with("/db/meta.redb");
        if report.lost.is_empty() && !of_meta {
            let mut view = View {
                plain: self.base.clone(),
                now: self.now_bounds(),
                straddling: BTreeMap::new(),
            };
            let (mut found, mut differences) = (false, Vec::new());
            for count in 0..=self.ops.len() {
                view.plain.see(&infos);
                view.plain.remember(&self.now);
                view.straddling = straddling(&view.plain, &db.partitions());
                match quick(&snapshot, &infos, &view) {
                    Ok(()) => found = true,
                    Err(difference) => differences.push(difference),
                }
                if let Some(op) = self.ops.get(count) {
                    view.plain.apply(op);
                }
            }
            assert!(
                found || tail,
                "{path}: a repair lost something without a word: {differences:?} {report:#?}"
            );
            self.transcript.count("repairs that lost nothing");
        } else if of_meta {
            let view = View {
                plain: self.base.clone(),
                now: self.now_bounds(),
                straddling: BTreeMap::new(),
            };
            // Everything that was stored for certain is there; what was deleted may be there again.
            let listed = each_stream(&snapshot, &view, |stream| {
                let found = rows_of(&snapshot, stream.name, &ScanSpec::default())?;
                for row in &stream.rows {
                    let values = row.values.iter();
                    let certain = values.filter(|(_, (_, scan, _))| *scan == Presence::Must);
                    let fields: Vec<&String> = certain.map(|(field, _)| field).collect();
                    let mut there = found.iter().filter(|(time, _)| *time == row.time);
                    let has = |found: &Fields| fields.iter().all(|f| found.contains_key(*f));
                    ensure!(
                        fields.is_empty() || there.any(|(_, found)| has(found)),
                        "{}: {row:?} is missing",
                        stream.name
                    );
                }
                Ok(())
            });
            assert!(
                listed.is_ok() || !report.lost.is_empty() || !self.ops.is_empty(),
                "{path}: {listed:?} {report:#?}"
            );
            self.transcript.count("repairs of metadata");
        }
        drop(snapshot);
        db.close().unwrap();
    }
}
