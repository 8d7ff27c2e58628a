//! `headwater snapshot` and `headwater diff`.

use crate::support::Bench;

const FIRST: &str = "time,id,v\n1,a,1.5\n2,a,2.5\n3,a,3.5\n";
const SECOND: &str = "time,id,v\n2,a,9.5\n4,a,4.5\n";

#[test]
fn a_snapshot_is_made_listed_compared_and_dropped() {
    let bench = Bench::new();
    bench.import_csv(FIRST, &["--tag", "id"]).ok();
    bench.run("snapshot create", &["before"]).ok();
    assert_eq!(bench.run("snapshot create", &["before"]).code, 1);
    bench.import_csv(SECOND, &["--tag", "id"]).ok();
    let told = bench.run("snapshot list", &["--json"]).ok().json();
    assert_eq!(told["snapshots"][0]["name"], "before");
    assert_eq!(told["snapshots"][0]["events"], 3);
    let listed = bench.run("snapshot list", &[]).ok().stdout;
    assert!(listed.contains("before"), "{listed}");
    let differs = bench.run("diff", &["before", "now"]).ok();
    assert_eq!(
        differs.stdout,
        "t,id=a 1970-01-01T00:00:02Z 1970-01-01T00:00:02Z removed=0 added=0 changed=1\n\
         t,id=a 1970-01-01T00:00:04Z 1970-01-01T00:00:04Z removed=0 added=1 changed=0\n"
    );
    assert!(
        differs
            .stderr
            .contains("1 streams differ: 0 rows removed, 1 added, 1 changed")
    );
    let json = bench.run("diff", &["now", "before", "--json"]).ok().stdout;
    assert!(json.contains("\"removed\":1"), "{json}");
    let same = bench.run("diff", &["before", "before"]).ok();
    assert_eq!(same.stdout, "");
    assert_eq!(bench.run("diff", &["before", "nobody"]).code, 1);
    bench.run("snapshot drop", &["before"]).ok();
    assert_eq!(bench.run("snapshot drop", &["before"]).code, 1);
    assert_eq!(bench.run("diff", &["before", "now"]).code, 1);
}
