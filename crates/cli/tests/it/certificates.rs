//! `headwater edges certificates`: which edges have the next certificates of their cloud.

use crate::fleet::{cloud, edge, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, text};
use headwater_testing::until;

const LIST: [&str; 2] = ["edges", "certificates"];

#[test]
fn the_list_says_which_edges_may_refuse_the_next_certificate() {
    let bench = Bench::new();
    let db = bench.path("cloud");
    let center = cloud(&db, "127.0.0.1:0");
    for name in ["gate", "later"] {
        let invited = run_against(&center.addr, &["edges", "add", name]).ok();
        if name == "gate" {
            run(&[
                "join",
                invited.stdout.trim(),
                "--db",
                text(&bench.path("gate")),
            ])
            .ok();
        }
    }
    let none = run_against(&center.addr, &LIST).ok();
    assert!(
        none.stdout.is_empty() && none.stderr.contains("tls.next_ca"),
        "{} {}",
        none.stdout,
        none.stderr
    );
    let addr = center.addr.clone();
    drop(center);

    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let next = bench.file("next.pem", made.cert.pem());
    let flags = ["--role", "cloud", "--tls-next-ca", text(&next)];
    let center = Served::start_at(&db, &addr, &flags);
    let _gate = edge(&bench.path("gate"));
    let json = || {
        let asked = [&LIST[..], &["--format", "json"]].concat();
        run_against(&center.addr, &asked).ok().json()
    };
    // Without TLS there is nothing to verify; who has never come has not answered.
    until("the edge has answered", || {
        json()["edges"][0]["next_ca"] == "plaintext"
    });
    let told = json();
    assert_eq!(told["edges"][0]["edge"], "gate");
    assert_eq!(told["edges"][1]["next_ca"], "unknown", "{told}");
    assert_eq!(told["open"], 1);
    let list = run_against(&center.addr, &LIST).ok();
    assert_eq!(list.stdout.lines().count(), 3, "{}", list.stdout);
    assert!(
        list.stderr.contains("1 of 2 edges may refuse"),
        "{}",
        list.stderr
    );
}
