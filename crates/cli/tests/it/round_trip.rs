//! What is exported imports again to the same.

use crate::support::Bench;

const LINES: &str = "\
plant,device=a\\ b,site=x f=1.5,i=-7i,u=18446744073709551615u,b=true,s=\"say \\\"hi\\\", \\\\ you\" 1
plant,device=a\\ b,site=x f=-0.0,i=9223372036854775807i,b=false 2
plant,device=c\\,d f=1e300,s=\"two
lines\" -9223372036854775808
plant f=0.1 9223372036854775807
";

const TYPES: [&str; 10] = [
    "--type", "f:f64", "--type", "i:i64", "--type", "u:u64", "--type", "b:bool", "--type",
    "s:string",
];

#[test]
fn line_protocol_to_line_protocol() {
    let first = Bench::new();
    first.import_lines(LINES).ok();
    let exported = first
        .run("export", &["--table", "plant", "--format", "lp"])
        .ok()
        .stdout;
    let second = Bench::new();
    second.import_lines(&exported).ok();
    let again = second
        .run("export", &["--table", "plant", "--format", "lp"])
        .ok()
        .stdout;
    assert_eq!(exported, again);
    assert_eq!(first.exported("plant"), second.exported("plant"));
    for part in [
        "f=-0.0",
        "i=9223372036854775807i",
        "u=18446744073709551615u",
        "s=\"two\nlines\"",
        "f=1e300",
    ] {
        assert!(exported.contains(part), "{exported}");
    }
}

#[test]
fn line_protocol_to_csv_and_back() {
    let first = Bench::new();
    first.import_lines(LINES).ok();
    for time_format in ["rfc3339", "ns", "us", "ms", "s"] {
        let csv = first
            .run(
                "export",
                &[
                    "--table",
                    "plant",
                    "--null",
                    "-",
                    "--time-format",
                    time_format,
                ],
            )
            .ok()
            .stdout;
        let second = Bench::new();
        let time = format!("time:{time_format}");
        let mut arguments = vec![
            "--table", "plant", "--time", &time, "--tag", "device", "--tag", "site", "--null", "-",
        ];
        arguments.extend(TYPES);
        arguments.push("-");
        let ran = second
            .run_with_input("import", &arguments, csv.as_bytes())
            .ok();
        assert!(!ran.stderr.contains("refused"), "{}", ran.stderr);
        let lines = |bench: &Bench| {
            let out = bench
                .run("export", &["--table", "plant", "--format", "lp"])
                .ok()
                .stdout;
            // Fields stand in the order they were added, which may differ.
            let mut rows: Vec<Vec<String>> = out
                .split_terminator('\n')
                .map(|row| row.split([' ', ',']).map(str::to_owned).collect())
                .collect();
            rows.iter_mut().for_each(|row| row.sort());
            rows
        };
        assert_eq!(lines(&first), lines(&second), "{time_format}");
    }
}

#[test]
fn rows_come_by_stream_then_time_and_can_be_narrowed() {
    let bench = Bench::new();
    bench
        .import_lines("t,d=b v=1 5\nt,d=a v=2 9\nt,d=a v=3 1\nt,d=b,e=x v=4 2\nt,d=b w=7 6\n")
        .ok();
    assert_eq!(
        bench.exported("t"),
        "time,d,e,v,w\n1,a,,3.0,\n9,a,,2.0,\n5,b,,1.0,\n6,b,,,7.0\n2,b,x,4.0,\n"
    );
    let narrowed = bench
        .run(
            "export",
            &[
                "--table", "t", "--where", "d=b", "--from", "2", "--to", "6", "--field", "v",
                "--format", "lp",
            ],
        )
        .ok();
    assert_eq!(narrowed.stdout, "t,d=b v=1.0 5\nt,d=b,e=x v=4.0 2\n");
}

#[test]
fn what_line_protocol_cannot_hold_is_counted() {
    let bench = Bench::new();
    let csv = "time,f,raw\n1000000000,NaN,0x00ff\n1000000001,1.5,\n";
    bench
        .import_csv(csv, &["--field", "f:f64", "--field", "raw:bytes"])
        .ok();
    let ran = bench
        .run("export", &["--table", "t", "--format", "lp"])
        .ok();
    assert_eq!(ran.stdout, "t f=1.5 1000000001000000000\n");
    for part in [
        "1 values that are NaN or infinite",
        "1 values of type bytes",
        "1 rows",
    ] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let ran = bench
        .run("export", &["--table", "t", "--time-format", "s"])
        .ok();
    assert_eq!(ran.stdout, csv);
}
