//! Real data goes in, comes out and is the same; what its authors warn of has a test each.
//!
//! Oracle: the source files as text, read by a small reader of their own (`source`), arranged as
//! the table's rules ask (`oracle`). Nothing of the parser under test takes part. The files lie in
//! `shared/data` beside the repository; tests of files that are not there say so and pass. The
//! weather file is in the repository and is always tested.

mod generated;
mod oracle;
mod source;
mod traps;
mod zoom;

use crate::support::{Bench, Ran, program, text};
use oracle::{Duplicates, Expected};
pub(crate) use source::rfc3339;
use source::{ABSENT, Source, Stamp};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// How a file is imported, and what must come of it.
pub(crate) struct Mapping {
    /// The file's name without its ending.
    pub(crate) file: &'static str,
    pub(crate) rows: usize,
    pub(crate) time: &'static str,
    pub(crate) stamp: Stamp,
    pub(crate) tags: &'static [&'static str],
    pub(crate) null: Option<&'static str>,
    pub(crate) streams: usize,
    /// Columns whose type is not to be mistaken.
    pub(crate) types: &'static [(&'static str, &'static str)],
    /// Columns without any value: they never become fields.
    pub(crate) empty: &'static [&'static str],
}

pub(crate) const WEATHER: Mapping = Mapping {
    file: "weather_nyc_2013",
    rows: 26_115,
    time: "epoch_ms",
    stamp: Stamp::Millis,
    tags: &["origin"],
    null: Some("NA"),
    streams: 3,
    types: &[
        ("temp", "f64"),
        ("wind_dir", "i64"),
        ("pressure", "f64"),
        ("time_hour", "string"),
    ],
    empty: &[],
};

const OBD_2017: Mapping = Mapping {
    file: "obd_seat_leon_2017",
    rows: 1_189_224,
    time: "epoch_ms",
    stamp: Stamp::Millis,
    tags: &["drive"],
    null: None,
    streams: 38,
    types: &[
        ("Engine Coolant Temperature [°C]", "i64"),
        ("Engine RPM [RPM]", "f64"),
        ("Time", "string"),
    ],
    empty: &[],
};

const OBD_2018: Mapping = Mapping {
    file: "obd_seat_leon_2018",
    rows: 1_197_761,
    streams: 39,
    // Integers for months, then floats: the column is widened on the way.
    types: &[
        ("Engine Coolant Temperature [°C]", "f64"),
        ("Engine RPM [RPM]", "f64"),
        ("Time", "string"),
    ],
    ..OBD_2017
};

const PHONES: Mapping = Mapping {
    file: "phones_umts_d1_d5",
    rows: 46_800,
    time: "S.Client.Detection.Time",
    stamp: Stamp::Millis,
    tags: &["S.Session.Name", "S.Device.ID"],
    null: Some("NA"),
    streams: 39,
    types: &[
        ("A.Time.to.previous.Client.sequence.detection.time", "i64"),
        ("C.NTP.offset", "i64"),
        ("S.Client.IP", "string"),
    ],
    empty: &[],
};

const LORAWAN_EMS: Mapping = Mapping {
    file: "lorawan_helium_ems",
    rows: 8_110,
    time: "hotspot.reported_at",
    stamp: Stamp::Millis,
    tags: &["dev_eui"],
    null: None,
    streams: 1,
    types: &[
        ("devaddr", "string"),
        ("app_eui", "string"),
        ("hotspot.snr", "f64"),
        ("hotspot.rssi", "i64"),
    ],
    empty: &["type"],
};

const LORAWAN_FTD: Mapping = Mapping {
    file: "lorawan_helium_ftd",
    rows: 17_075,
    streams: 3,
    types: &[
        ("devaddr", "string"),
        ("app_eui", "string"),
        ("hotspot.name", "string"),
        ("decoded.payload.button1Trigger", "string"),
    ],
    empty: &["type", "_devLocation"],
    ..LORAWAN_EMS
};

const LORAWAN_IMST: Mapping = Mapping {
    file: "lorawan_helium_imst",
    rows: 13_352,
    types: &[("devaddr", "string"), ("app_eui", "string")],
    ..LORAWAN_EMS
};

const BALLOON: Mapping = Mapping {
    file: "balloon_loggers",
    rows: 79_761,
    time: "epoch_ms_logger",
    stamp: Stamp::Millis,
    tags: &["logger"],
    null: None,
    streams: 3,
    types: &[
        ("V_nicr", "f64"),
        ("longitude", "f64"),
        ("nb_sat", "i64"),
        ("heure_GPS", "string"),
    ],
    empty: &[],
};

const NAB: Mapping = Mapping {
    file: "nab_real",
    rows: 314_009,
    time: "epoch_ms",
    stamp: Stamp::Millis,
    tags: &["series"],
    null: None,
    streams: 45,
    types: &[("value", "f64"), ("timestamp", "string")],
    empty: &[],
};

const QUAKES_2020: Mapping = Mapping {
    file: "usgs_quakes_2020_snapshots",
    rows: 46_287,
    time: "time",
    stamp: Stamp::Rfc3339,
    tags: &["net"],
    null: None,
    streams: 14,
    types: &[("mag", "f64"), ("nst", "i64"), ("place", "string")],
    empty: &[],
};

const QUAKES_2025: Mapping = Mapping {
    file: "usgs_quakes_2025_snapshots",
    rows: 18_828,
    streams: 15,
    ..QUAKES_2020
};

impl Mapping {
    /// The format of the time column on the command line.
    fn time_argument(&self) -> String {
        match self.stamp {
            Stamp::Millis => format!("{}:ms", self.time),
            Stamp::Nanos => format!("{}:ns", self.time),
            Stamp::Rfc3339 => format!("{}:rfc3339", self.time),
        }
    }

    /// Imports into table `t` from a file, or from `-`.
    pub(crate) fn import(&self, bench: &Bench, more: &[&str], file: &str, input: &[u8]) -> Ran {
        let time = self.time_argument();
        let mut arguments = vec!["--table", "t", "--time", &time];
        for tag in self.tags {
            arguments.extend(["--tag", tag]);
        }
        if let Some(null) = self.null {
            arguments.extend(["--null", null]);
        }
        arguments.extend(more);
        arguments.push(file);
        let ran = bench.run_with_input("import", &arguments, input).ok();
        assert!(!ran.stderr.contains("refused"), "{}", ran.stderr);
        ran
    }
}

/// The types of the fields of table `t`, in their order.
pub(crate) fn field_types(bench: &Bench) -> Vec<(String, String)> {
    let shown = bench
        .run("table show", &["t", "--format", "json"])
        .ok()
        .json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let fields = shown[0]["fields"].as_array().unwrap();
    fields
        .iter()
        .map(|field| (text(&field["name"]), text(&field["type"])))
        .collect()
}

/// Exports table `t` and compares it with what is expected, row by row. Returns the rows.
pub(crate) fn compare(bench: &Bench, expected: &Expected<'_>) -> usize {
    let types = field_types(bench);
    let mut child = program()
        .args(["export", "--table", "t", "--time-format", "ns"])
        .args(["--null", ABSENT, "--db"])
        .arg(bench.db())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::with_capacity(1 << 18, child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut comparison = expected.start(line.trim_end_matches('\n'), &types);
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            break;
        }
        comparison.row(line.trim_end_matches('\n'));
    }
    let ran = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && stderr.is_empty(), "{stderr}");
    comparison.finish()
}

/// `check` finds a sound database with these rows.
pub(crate) fn check(bench: &Bench, rows: usize) {
    let ran = bench.run("check", &[]).ok();
    assert!(ran.stdout.starts_with("sound: "), "{}", ran.stdout);
    let stat = bench.run("stat", &["--format", "json"]).ok().json();
    assert_eq!(stat["events"], rows);
}

/// Imports a file with every row kept, checks, exports, compares.
fn check_round_trip(mapping: &Mapping) {
    let Some(source) = Source::load(mapping) else {
        return;
    };
    assert_eq!(source.row_count(), mapping.rows, "rows of the source");
    let bench = Bench::new();
    let keep = ["--duplicates", "keep"];
    let path = source.path();
    mapping.import(&bench, &keep, text(&path), b"");
    check(&bench, mapping.rows);
    let types = field_types(&bench);
    for (column, wanted) in mapping.types {
        let found = types.iter().find(|(name, _)| name == column);
        assert_eq!(found.map(|(_, t)| t.as_str()), Some(*wanted), "{column}");
    }
    for column in mapping.empty {
        assert!(types.iter().all(|(name, _)| name != column), "{column}");
        assert!(source.column(column).all(|cell| cell.is_empty()));
    }
    let expected = Expected::new(&source, mapping, Duplicates::Keep);
    assert_eq!(expected.stream_count(), mapping.streams);
    assert_eq!(compare(&bench, &expected), mapping.rows);
}

#[test]
fn weather_comes_back() {
    check_round_trip(&WEATHER);
}

#[test]
fn obd_2017_comes_back() {
    check_round_trip(&OBD_2017);
}

#[test]
fn obd_2018_comes_back() {
    check_round_trip(&OBD_2018);
}

#[test]
fn phones_come_back() {
    check_round_trip(&PHONES);
}

#[test]
fn lorawan_ems_comes_back() {
    check_round_trip(&LORAWAN_EMS);
}

#[test]
fn lorawan_ftd_comes_back() {
    check_round_trip(&LORAWAN_FTD);
}

#[test]
fn lorawan_imst_comes_back() {
    check_round_trip(&LORAWAN_IMST);
}

#[test]
fn balloons_come_back() {
    check_round_trip(&BALLOON);
}

#[test]
fn nab_comes_back() {
    check_round_trip(&NAB);
}

#[test]
fn quakes_2020_come_back() {
    check_round_trip(&QUAKES_2020);
}

#[test]
fn quakes_2025_come_back() {
    check_round_trip(&QUAKES_2025);
}
