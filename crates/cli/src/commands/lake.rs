//! `headwater lake`: the tables of a database as Iceberg tables, which others read.

use crate::failure::Failure;
use crate::store::DbArgs;
use clap::{Args, Subcommand};

/// Publish the tables of a database as Apache Iceberg tables of Parquet files, for DuckDB, Spark
/// and others
#[derive(Debug, Args)]
#[command(after_help = "\
Each table is a folder of its own in LAKE, divided by day. LAKE may be in a bucket; its credentials are
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. All commands work while another process has the database open.
The aggregates that aging leaves of a table are a table of their own, TABLE_rollup. See docs/cloud/lake.md.

Examples:
  headwater lake write  --db ./data ./lake
  headwater lake status --db ./data ./lake
  duckdb -c \"select count(*) from iceberg_scan('./lake/weather')\"")]
pub(crate) struct Lake {
    #[command(subcommand)]
    command: LakeCommand,
}

#[derive(Debug, Subcommand)]
enum LakeCommand {
    Write(Write),
    Status(Status),
    Verify(Verify),
    Rebuild(Rebuild),
}

/// Write days that are missing in the lake or have changed
#[derive(Debug, Args)]
#[command(after_help = "\
Days that have not changed are not touched; the files of a changed day (late rows, deletes, rewritten rows) are
replaced. A write that was interrupted at any point is continued by the next one. Exit code 1 when days could not be
read; the others are written.")]
struct Write {
    #[command(flatten)]
    args: LakeArgs,

    /// Only this table; may be repeated
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,

    /// Do not write days yet that ended less than this ago
    #[arg(long, value_name = "DURATION")]
    closed_for: Option<String>,

    /// Time for which older snapshots of a table are retained for their readers
    #[arg(long, value_name = "DURATION", default_value = "5d")]
    keep_snapshots: String,

    /// Remove unreferenced files older than this; must be longer than a write takes
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    orphan_age: String,
}

/// Write all days of a table again, as the database has them now
#[derive(Debug, Args)]
#[command(after_help = "\
For a table whose files were damaged or lost, as `verify` reports. Readers see each day as it was until it is replaced.
Days whose rows were removed because of their age stay as they are: only the lake has them.")]
struct Rebuild {
    #[command(flatten)]
    args: LakeArgs,

    /// The table; the table of aggregates that aging left of it is written too
    #[arg(value_name = "TABLE")]
    table: String,
}

/// Show what is in the lake, and what is not, and why
#[derive(Debug, Args)]
struct Status {
    #[command(flatten)]
    args: LakeArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compare the lake with the database: the rows of each day
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 1 when a day is wrong: its files are missing or damaged, or have other rows than the database, which has not
changed since. A day that the database has changed since it was written is counted as behind, and is not wrong.")]
struct Verify {
    #[command(flatten)]
    args: LakeArgs,

    /// Compare all values too, not only the numbers of rows
    #[arg(long)]
    deep: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LakeArgs {
    #[command(flatten)]
    db: DbArgs,

    /// Folder of the lake, or s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME where needed
    #[arg(value_name = "LAKE")]
    lake: String,
}

impl Lake {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            LakeCommand::Write(command) => command.run(),
            LakeCommand::Status(command) => command.run(),
            LakeCommand::Verify(command) => command.run(),
            LakeCommand::Rebuild(command) => command.run(),
        }
    }
}

#[cfg(not(feature = "sql"))]
mod without {
    use super::{LakeArgs, Rebuild, Status, Verify, Write};
    use crate::failure::Failure;
    use crate::output::built_without;

    impl LakeArgs {
        fn refuse(&self, command: &str) -> Result<(), Failure> {
            let (db, lake) = (self.db.db.display(), &self.lake);
            Err(built_without(&format!("lake {command} --db {db} {lake}")))
        }
    }

    impl Write {
        pub(super) fn run(self) -> Result<(), Failure> {
            let _ = (
                self.tables,
                self.closed_for,
                self.keep_snapshots,
                self.orphan_age,
            );
            self.args.refuse("write")
        }
    }

    impl Rebuild {
        pub(super) fn run(self) -> Result<(), Failure> {
            let _ = self.table;
            self.args.refuse("rebuild")
        }
    }

    impl Status {
        pub(super) fn run(self) -> Result<(), Failure> {
            let _ = self.json;
            self.args.refuse("status")
        }
    }

    impl Verify {
        pub(super) fn run(self) -> Result<(), Failure> {
            let _ = (self.deep, self.json);
            self.args.refuse("verify")
        }
    }
}

#[cfg(feature = "sql")]
mod with {
    use super::{LakeArgs, Rebuild, Status, Verify, Write};
    use crate::arguments::parse_duration;
    use crate::clock::now;
    use crate::failure::Failure;
    use crate::grid::{Heading, bytes, grouped, render};
    use crate::output::{print, print_json};
    use crate::progress::spinner;
    use headwater::Timestamp;
    use headwater_lake::{Blocked, Missing, TableVerified, TableWritten, WriteOptions};
    use std::time::Duration;

    impl LakeArgs {
        /// Location of the lake; the environment has the credentials of a bucket.
        fn lake(&self) -> Result<headwater_lake::LakeLocation, Failure> {
            let place =
                headwater_lake::LakeLocation::open(&self.lake, &|name| std::env::var(name).ok());
            place.map_err(Failure::failed)
        }
    }

    fn duration(name: &str, text: &str) -> Result<Duration, Failure> {
        let nanos = parse_duration(text).map_err(|e| Failure::usage(format!("--{name}: {e}")))?;
        let nanos = u64::try_from(nanos);
        let nanos = nanos.map_err(|_| Failure::usage(format!("--{name}: expected 0 or more")));
        Ok(Duration::from_nanos(nanos?))
    }

    impl Write {
        pub(super) fn run(self) -> Result<(), Failure> {
            let mut options = WriteOptions::default();
            options.keep_snapshots = duration("keep-snapshots", &self.keep_snapshots)?;
            options.orphan_age = duration("orphan-age", &self.orphan_age)?;
            options.tables = self.tables;
            if let Some(text) = &self.closed_for {
                let ago = i64::try_from(duration("closed-for", text)?.as_nanos());
                let ago = ago.unwrap_or(i64::MAX);
                let until = now().as_nanos().saturating_sub(ago);
                options.until = Some(Timestamp::from_nanos(until));
            }
            self.args.write(&options)
        }
    }

    impl Rebuild {
        pub(super) fn run(self) -> Result<(), Failure> {
            let mut options = WriteOptions::default();
            options.tables = vec![self.table];
            options.rebuild = true;
            self.args.write(&options)
        }
    }

    impl LakeArgs {
        fn write(&self, options: &WriteOptions) -> Result<(), Failure> {
            let lake = self.lake()?;
            let reader = self.db.open_to_read()?;
            let look = || {
                reader.refresh()?;
                Ok(reader.snapshot())
            };
            let working = spinner("writing");
            let written = headwater_lake::write(&look, &lake, options);
            working.finish_and_clear();
            let written = written.map_err(Failure::failed)?;
            let mut blocked = 0;
            for table in &written.tables {
                print(&line(table))?;
                blocked += print_blocked(&table.table, &table.blocked);
            }
            match blocked {
                0 => Ok(()),
                _ => Err(Failure::Reported),
            }
        }
    }

    /// Line about a table that was written.
    fn line(table: &TableWritten) -> String {
        let mut parts = vec![format!(
            "{} days written ({} rows, {})",
            grouped(table.days_written),
            grouped(table.rows),
            bytes(table.bytes)
        )];
        for (days, what) in [
            (table.days_removed, "removed"),
            (table.days_unchanged + table.days_equal, "unchanged"),
            (table.days_kept, "kept"),
            (table.days_open, "left for later"),
        ] {
            if days > 0 {
                parts.push(format!("{} {what}", grouped(days)));
            }
        }
        if table.swept.files > 0 {
            parts.push(format!("{} old files removed", grouped(table.swept.files)));
        }
        format!("{}: {}\n", table.table, parts.join(", "))
    }

    /// Reports on stderr the days that could not be read, and returns their number.
    fn print_blocked(table: &str, blocked: &[Blocked]) -> usize {
        for Blocked { day, why } in blocked {
            eprintln!("headwater: {table}, {day}: {why}");
        }
        blocked.len()
    }

    fn days(missing: &Missing) -> String {
        match missing.first == missing.last {
            true => missing.first.to_string(),
            false => format!("{} to {}", missing.first, missing.last),
        }
    }

    impl Status {
        pub(super) fn run(self) -> Result<(), Failure> {
            let lake = self.args.lake()?;
            let snapshot = self.args.db.open_to_read()?.snapshot();
            let status = headwater_lake::status(&snapshot, &lake).map_err(Failure::failed)?;
            if self.json {
                return print_json(&status);
            }
            let headings = [
                Heading::text("table"),
                Heading::text("folder"),
                Heading::number("days"),
                Heading::number("rows"),
                Heading::number("files"),
                Heading::number("size"),
                Heading::number("commits"),
            ];
            let rows: Vec<Vec<String>> = status
                .tables
                .iter()
                .map(|table| {
                    vec![
                        table.table.clone(),
                        table.folder.clone(),
                        grouped(table.days),
                        grouped(table.rows),
                        grouped(table.files),
                        bytes(table.bytes),
                        grouped(table.version),
                    ]
                })
                .collect();
            print(&render(&headings, &rows))?;
            for table in &status.tables {
                for missing in &table.missing {
                    let why = &missing.why;
                    print(&format!("{}, {}: {why}\n", table.table, days(missing)))?;
                }
            }
            for folder in &status.others {
                print(&format!(
                    "{folder}: does not belong to a table of this database\n"
                ))?;
            }
            Ok(())
        }
    }

    impl Verify {
        pub(super) fn run(self) -> Result<(), Failure> {
            let lake = self.args.lake()?;
            let snapshot = self.args.db.open_to_read()?.snapshot();
            let working = spinner("comparing");
            let verified = headwater_lake::verify(&snapshot, &lake, self.deep);
            working.finish_and_clear();
            let verified = verified.map_err(Failure::failed)?;
            if self.json {
                print_json(&verified)?;
            } else {
                for table in &verified.tables {
                    print(&compared(table))?;
                }
            }
            let blocked: usize = verified
                .tables
                .iter()
                .map(|t| print_blocked(&t.table, &t.blocked))
                .sum();
            match verified.is_sound() && blocked == 0 {
                true => Ok(()),
                false => Err(Failure::Reported),
            }
        }
    }

    /// Line about a table that was verified.
    fn compared(table: &TableVerified) -> String {
        let name = &table.table;
        let mut text = format!(
            "{name}: {} days equal ({} rows)",
            grouped(table.days),
            grouped(table.rows)
        );
        for (days, what) in [(table.days_behind, "behind"), (table.days_kept, "kept")] {
            if days > 0 {
                text.push_str(&format!(", {} {what}", grouped(days)));
            }
        }
        text.push('\n');
        for difference in &table.differences {
            text.push_str(&format!(
                "{name}, {}: {}\n",
                difference.day, difference.what
            ));
        }
        text
    }
}
