//! `headwater import`.

use crate::serve::Served;
use crate::support::{Bench, program, text};
use std::io::Write;

const WEATHER: &str = "\
time,station,temp,wind,note
2013-01-01T06:00:00Z,EWR,39.02,10,clear
2013-01-01T07:00:00Z,EWR,39.9,NA,
2013-01-01T06:00:00Z,JFK,40.1,12,\"rain, light\"
";

#[test]
fn csv_is_stored_by_device_and_time() {
    let bench = Bench::new();
    let ran = bench
        .import_csv(WEATHER, &["--tag", "station", "--null", "NA"])
        .ok();
    assert!(ran.stdout.is_empty());
    assert!(
        ran.stderr.contains("stored 3 rows from 4 lines"),
        "{}",
        ran.stderr
    );
    assert_eq!(
        bench.run("export", &["--table", "t"]).ok().stdout,
        "\
time,station,temp,wind,note
2013-01-01T06:00:00Z,EWR,39.02,10,clear
2013-01-01T07:00:00Z,EWR,39.9,,
2013-01-01T06:00:00Z,JFK,40.1,12,\"rain, light\"
"
    );
}

#[test]
fn a_mark_for_absent_values_is_pointed_out() {
    let ran = Bench::new().import_csv(WEATHER, &["--tag", "station"]).ok();
    assert!(
        ran.stderr.contains("`NA` among numbers: wind") && ran.stderr.contains("--null 'NA'"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_spreadsheets_days_that_land_in_1970_are_pointed_out() {
    let bench = Bench::new();
    let file = bench.file("days.csv", "time,v\n45300.4375,1\n45301.4375,2\n");
    let ran = bench.run("import", &["--table", "t", "--time", "time:s", text(&file)]);
    let ran = ran.ok();
    assert!(
        ran.stderr.contains("all times lie in 1970") && ran.stderr.contains("spreadsheet"),
        "{}",
        ran.stderr
    );
    // One row of now, and nothing is pointed out.
    let file = bench.file("now.csv", "time,v\n45300.4375,1\n1700000000,2\n");
    let ran = bench.run("import", &["--table", "t", "--time", "time:s", text(&file)]);
    assert!(!ran.ok().stderr.contains("1970"));
}

#[test]
fn a_loggers_file_with_commas_in_numbers_and_lines_in_front_is_stored() {
    let bench = Bench::new();
    // As a German logger writes it, in Windows-1252.
    let german = "Gerät 7; Halle Süd\n\nZeit;Ort;Temperatur °C;Menge;Notiz\n\
                05.03.2024 06:00;Süd;12,5;3;1,5 bar\n\
                05.03.2024 07:00;Süd;-0,25;4;x\n\
                05.03.2024 08:00;Süd;1.234;5;y\n\
                05.03.2024 09:00;Süd;1e3;6;z\n";
    let bytes: Vec<u8> = german
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    let file = bench.file("logger.csv", &bytes);
    let arguments = [
        "--table",
        "t",
        "--time",
        "Zeit:%d.%m.%Y %H:%M",
        "--tag",
        "Ort",
        "--type",
        "Temperatur °C:f64",
        "--delimiter",
        ";",
        "--decimal-comma",
        "--encoding",
        "windows-1252",
        "--skip",
        "2",
        text(&file),
    ];
    let ran = bench.run("import", &arguments).ok();
    assert!(
        ran.stderr.contains("stored 3 rows from 7 lines"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("line 6: E_TYPE: column `Temperatur °C` has `1.234`, with a point"),
        "{}",
        ran.stderr
    );
    assert_eq!(
        bench.run("export", &["--table", "t"]).ok().stdout,
        "\
time,Ort,Temperatur °C,Menge,Notiz
2024-03-05T06:00:00Z,Süd,12.5,3,\"1,5 bar\"
2024-03-05T07:00:00Z,Süd,-0.25,4,x
2024-03-05T09:00:00Z,Süd,1000.0,6,z
"
    );
    // The types are told from numbers with commas too, and a point makes text.
    let file = bench.file("guessed.csv", "time;a;b\n1;1,5;1,5\n2;2;1.5\n");
    let arguments = [
        "--table",
        "guessed",
        "--time",
        "time:s",
        "--delimiter",
        ";",
        "--decimal-comma",
        text(&file),
    ];
    bench.run("import", &arguments).ok();
    assert_eq!(
        bench.exported("guessed"),
        "time,a,b\n1000000000,1.5,\"1,5\"\n2000000000,2.0,1.5\n"
    );
    let ran = bench.run(
        "import",
        &["--table", "t", "--time", "Zeit", "--decimal-comma", "x.csv"],
    );
    assert_eq!(ran.code, 1);
}

#[test]
fn a_file_without_a_header_gets_names_and_a_header_others() {
    let bench = Bench::new();
    let bare = bench.file("bare.csv", "1,a,0.5\n2,b,1.5\n");
    let arguments = [
        "--table", "t", "--time", "at:s", "--tag", "id", "--names", "at,id,v",
    ];
    bench
        .run("import", &[&arguments[..], &[text(&bare)]].concat())
        .ok();
    let named = bench.file("named.csv", "zeit,gerät,wert\n3,a,2.5\n");
    let more = ["--skip", "1", text(&named)];
    bench
        .run("import", &[&arguments[..], &more[..]].concat())
        .ok();
    assert_eq!(
        bench.exported("t"),
        "time,id,v\n1000000000,a,0.5\n3000000000,a,2.5\n2000000000,b,1.5\n"
    );
    for (format, flag) in [
        ("lp", "--decimal-comma"),
        ("parquet", "--encoding=utf-16le"),
    ] {
        let mut all = vec!["--format", format, flag, text(&named)];
        if format == "parquet" {
            all.extend(["--table", "t", "--time", "at"]);
        }
        let ran = bench.run("import", &all);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("has no effect for"), "{}", ran.stderr);
    }
}

#[test]
fn compressed_files_are_told_by_their_first_bytes() {
    let bench = Bench::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"time,v\n1000000000,1\n").unwrap();
    let gzip = bench.file("a", gzip.finish().unwrap());
    let zstd = bench.file(
        "b",
        zstd::encode_all(&b"time,v\n1000000001,2\n"[..], 1).unwrap(),
    );
    let plain = bench.file("c.gz", "time,v\n1000000002,3\n");
    let files = [text(&gzip), text(&zstd), text(&plain)];
    bench
        .run(
            "import",
            &[&["--table", "t", "--time", "time:s"], &files[..]].concat(),
        )
        .ok();
    assert_eq!(
        bench.exported("t"),
        "time,v\n1000000000000000000,1\n1000000001000000000,2\n1000000002000000000,3\n"
    );
}

#[test]
fn a_truncated_gzip_file_fails_and_keeps_what_was_read() {
    let bench = Bench::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut state = 1u64;
    gzip.write_all(b"time,v\n").unwrap();
    for i in 0..200_000u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        gzip.write_all(format!("{},{}\n", 1_000_000_000 + i, state >> 40).as_bytes())
            .unwrap();
    }
    let bytes = gzip.finish().unwrap();
    let file = bench.file("cut.gz", &bytes[..bytes.len() / 2]);
    let ran = bench.run("import", &["--table", "t", "--time", "time:s", text(&file)]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("cut.gz") && ran.stderr.contains("rows were stored before the failure"),
        "{}",
        ran.stderr
    );
    assert!(bench.exported("t").lines().count() > 10_000);
}

#[test]
fn refused_lines_are_counted_and_shown_with_their_numbers() {
    let bench = Bench::new();
    let ran = bench.import_csv(
        "time,v\n1000000000,1\nnoon,2\n1000000001,x\n1000000002,3,4\n1000000003,5\n",
        &["--field", "v:i64"],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in [
        "stored 2 rows",
        "3 lines were refused",
        "E_FIELDS",
        "line 3: E_TIME: expected the time in seconds since 1970, found `noon`",
        "line 4: E_TYPE: column `v` is declared i64",
        "line 5: E_FIELDS: expected 2 cells as in the header, found 3",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
}

#[test]
fn strict_imports_fail_on_refused_lines_and_so_do_those_without_any_row() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .import_csv("time,v\n1000000000,1\nnoon,2\n", &["--strict"])
            .code,
        1
    );
    assert_eq!(bench.exported("t"), "time,v\n1000000000000000000,1\n");
    let file = bench.file("bad.csv", "time,v\nnoon,2\n");
    assert_eq!(
        bench
            .run("import", &["--table", "t", "--time", "time:s", text(&file)])
            .code,
        1
    );
}

#[test]
fn lines_the_engine_refuses_have_their_numbers_too() {
    let bench = Bench::new();
    bench.run("table create", &["t", "--field", "v:i64"]).ok();
    let ran = bench.import_lines("t v=1i 1\n\nt v=\"text\" 2\nt w=1 3\n");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("line 3: E_TYPE"), "{}", ran.stderr);
    assert_eq!(bench.exported("t"), "time,v,w\n1,1,\n3,,1.0\n");
}

#[test]
fn integers_widen_and_later_files_add_fields() {
    let bench = Bench::new();
    bench.import_csv("time,a\n1000000000,1\n", &[]).ok();
    bench.import_csv("time,b,a\n1000000001,x,2.5\n", &[]).ok();
    assert_eq!(
        bench.exported("t"),
        "time,a,b\n1000000000000000000,1.0,\n1000000001000000000,2.5,x\n"
    );
}

#[test]
fn duplicates_are_kept_or_replaced_as_asked() {
    let text = "time,v\n1000000000,1\n1000000000,2\n";
    let bench = Bench::new();
    bench.import_csv(text, &["--duplicates", "keep"]).ok();
    assert_eq!(bench.exported("t").lines().count(), 3);
    let ran = bench.import_csv(text, &["--duplicates", "last"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("duplicates"), "{}", ran.stderr);
    let bench = Bench::new();
    bench.import_csv(text, &[]).ok();
    assert_eq!(bench.exported("t"), "time,v\n1000000000000000000,2\n");
}

#[test]
fn local_times_follow_their_zone() {
    // The night of the change: 01:30 is there twice, 02:30 in spring is not.
    let bench = Bench::new();
    let file = bench.file(
        "a.csv",
        "when: local,v\n2013-11-03 00:30,1\n2013-11-03 01:30,2\n2013-03-10 02:30,3\n",
    );
    let ran = bench.run(
        "import",
        &[
            "--table",
            "t",
            "--time",
            "when: local:%Y-%m-%d %H:%M@America/New_York",
            text(&file),
        ],
    );
    assert!(
        ran.stderr.contains("line 4: E_TIME") && ran.stderr.contains("does not exist"),
        "{}",
        ran.stderr
    );
    let out = bench.run("export", &["--table", "t"]).ok().stdout;
    assert_eq!(
        out,
        "time,v\n2013-11-03T04:30:00Z,1\n2013-11-03T05:30:00Z,2\n"
    );
}

#[test]
fn a_dry_run_shows_columns_and_stores_nothing() {
    let bench = Bench::new();
    let ran = bench
        .import_csv(WEATHER, &["--tag", "station", "--null", "NA", "--dry-run"])
        .ok();
    assert_eq!(
        ran.stdout,
        "column  type\ntemp    f64\nwind    i64\nnote    string\n"
    );
    assert!(ran.stderr.contains("would store 3 rows"), "{}", ran.stderr);
    assert!(!bench.db().exists());
}

#[test]
fn a_wrong_mapping_leaves_no_database_behind() {
    let bench = Bench::new();
    let file = bench.file("a.csv", "time,v\n1000000000,1\n");
    for (arguments, part) in [
        (vec!["--table", "t", "--time", "when"], "no column `when`"),
        (
            vec!["--table", "t", "--time", "time:minutes"],
            "`minutes` is not a time format",
        ),
        (
            vec!["--table", "t", "--time", "time", "--tag", "device"],
            "no column `device`",
        ),
        (
            vec!["--table", "t", "--time", "time", "--field", "v:int"],
            "`int` is not a type",
        ),
        (vec!["--table", "t"], "--time COLUMN[:FORMAT]"),
        (vec!["--time", "time"], "--table NAME"),
        (
            vec!["--format", "lp", "--table", "t"],
            "names its own tables",
        ),
    ] {
        let ran = bench.run("import", &[&arguments[..], &[text(&file)]].concat());
        assert_eq!(ran.code, 2, "{arguments:?} {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{arguments:?} {}", ran.stderr);
    }
    let ran = bench.run(
        "import",
        &[
            "--table",
            "t",
            "--time",
            "time",
            text(&bench.path("nowhere")),
        ],
    );
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("nowhere"));
    assert!(!bench.db().exists());
}

#[test]
fn many_rows_go_through_a_small_memory() {
    let bench = Bench::new();
    let mut text = String::from("time,device,a,b\n");
    for i in 0..60_000u64 {
        text.push_str(&format!(
            "{},d{},{}.5,{}\n",
            1_000_000_000 + i,
            i % 50,
            i,
            i * 7
        ));
    }
    bench.import_csv(&text, &["--tag", "device"]).ok();
    let json = bench.run("stat", &["--format", "json"]).ok().json();
    assert_eq!(json["events"], 60_000);
    assert_eq!(json["streams"], 50);
    bench.run("check", &[]).ok();
}

/// The table's types count for a file that names none, whoever has the database open.
#[test]
fn a_table_that_is_there_says_the_types_of_columns() {
    let bench = Bench::new();
    bench
        .import_csv(
            "time,v,n,s,b\n1700000001,1.5,7,12,true\n",
            &["--type", "s:string"],
        )
        .ok();
    let mixed = "time,v,n,s,b\n1700000002,2,8,0x,false\n1700000003,NA,9,13,maybe\n1700000004,4,NA,14,\n1700000005,,,15,true\n";
    let shown = bench.import_csv(mixed, &["--dry-run"]).ok();
    assert_eq!(
        shown.stdout,
        "column  type\nv       f64\nn       i64\ns       string\nb       bool\n"
    );
    let ran = bench.import_csv(mixed, &[]);
    assert!(
        ran.stderr.contains("stored 2 rows") && ran.stderr.contains("E_TYPE"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("column `v` is f64 in the table, found `NA`"),
        "{}",
        ran.stderr
    );
    let rows = "time,v,n,s,b\n1700000001000000000,1.5,7,12,true\n1700000002000000000,2.0,8,0x,false\n1700000005000000000,,,15,true\n";
    assert_eq!(bench.exported("t"), rows);

    let server = Served::start(&bench.db(), &[]);
    let file = bench.file(
        "more.csv",
        "time,v,s\n1700000006,6,16\n1700000007,none,17\n",
    );
    let url = format!("http://{}", server.addr);
    let ran = program()
        .args([
            "import",
            "--url",
            &url,
            "--table",
            "t",
            "--time",
            "time",
            text(&file),
        ])
        .output()
        .unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(
        told.contains("stored 1 row") && told.contains("found `none`"),
        "{told}"
    );
    drop(server);
    assert_eq!(
        bench.exported("t"),
        format!("{rows}1700000006000000000,6.0,,16,\n")
    );
}

#[test]
fn json_lines_are_stored_and_bad_ones_refused_alone() {
    let bench = Bench::new();
    let lines = "\
{\"at\":\"2024-01-01T00:00:00Z\",\"dev\":\"p1\",\"motor\":{\"temp\":41.5},\"n\":7,\"note\":\"new\"}
{\"at\":1704067201,\"dev\":null,\"motor\":{\"temp\":42},\"n\":9007199254740993}

{\"at\":1704067202,\"n\":1.5}
{\"at\":1704067203
{\"n\":4}
{\"at\":\"yesterday\",\"n\":4}
";
    let mapping = [
        "--format", "jsonl", "--table", "t", "--time", "at", "--tag", "dev",
    ];
    let run = |more: &[&str], input: &str| {
        let all = [&mapping[..], more, &["-"]].concat();
        bench.run_with_input("import", &all, input.as_bytes())
    };
    let ran = run(&["--type", "n:i64"], lines).ok();
    for part in [
        "stored 2 rows",
        "E_TYPE",
        "E_PARSE",
        "line 5",
        "E_TIME",
        "`at`",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    // What the table knows by now need not be said again; members that are not chosen stay out.
    run(
        &["--field", "n"],
        "{\"at\":1704067204,\"n\":-9007199254740993,\"x\":1}\n",
    )
    .ok();
    assert_eq!(
        bench.run("export", &["--table", "t"]).ok().stdout,
        "\
time,dev,motor.temp,n,note
2024-01-01T00:00:01Z,,42.0,9007199254740993,
2024-01-01T00:00:04Z,,,-9007199254740993,
2024-01-01T00:00:00Z,p1,41.5,7,new
"
    );
    for (arguments, part) in [
        (&["--type", "n"][..], "expected COLUMN:TYPE"),
        (&["--type", "n:int"], "`int` is not a type"),
        (&["--null", "NA"], "leave out --null"),
        (&["--skip", "1"], "--skip has no effect for JSON"),
        (&["--time", "at:minutes"], "`minutes` is not a time format"),
    ] {
        let all = [&["--format", "jsonl", "--table", "t"], arguments, &["-"]].concat();
        let all = match arguments[0] {
            "--time" => all,
            _ => [&all[..], &["--time", "at"]].concat(),
        };
        let ran = bench.run_with_input("import", &all, b"");
        assert!(
            ran.code != 0 && ran.stderr.contains(part),
            "{part}: {}",
            ran.stderr
        );
    }
}
