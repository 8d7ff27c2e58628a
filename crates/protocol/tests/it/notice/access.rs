//! Rules for brokers.

use headwater_protocol::notice::{AccessError, Subject, Topics, mosquitto};

fn of(nodes: &[&str]) -> Topics {
    Topics::Of(nodes.iter().map(|node| (*node).to_owned()).collect())
}

fn subject(name: &str, subscribes: Topics, publishes: Topics) -> Subject {
    Subject {
        name: name.to_owned(),
        subscribes,
        publishes,
    }
}

#[test]
fn rules_say_what_the_list_says_and_nothing_more() {
    let subjects = [
        subject("gate", Topics::All, of(&[])),
        subject("north", of(&[]), of(&["north"])),
        subject("outsider", of(&[]), of(&[])),
        subject("both", of(&["a", "b"]), Topics::All),
    ];
    let text = mosquitto("headwater/notices", &subjects).unwrap();
    let rules: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        rules,
        [
            "",
            "user gate",
            "topic read headwater/notices/+",
            "",
            "user north",
            "topic write headwater/notices/north",
            "",
            "user both",
            "topic read headwater/notices/a",
            "topic read headwater/notices/b",
            "topic write headwater/notices/+",
        ]
    );
    assert!(subjects[0].subscribes.contains("x") && !subjects[0].publishes.contains("x"));
    assert!(subjects[3].subscribes.contains("a") && !subjects[3].subscribes.contains("c"));
}

#[test]
fn names_that_would_say_something_else_are_refused() {
    for name in ["", " a", "a ", "#a", "a\ntopic readwrite #", "a\u{7f}"] {
        let subjects = [subject(name, Topics::All, Topics::All)];
        let refused = mosquitto("n", &subjects).unwrap_err();
        assert_eq!(refused, AccessError::Subject(name.to_owned()));
    }
    for prefix in ["", "a b", "a/+", "#", "a\nb"] {
        let refused = mosquitto(prefix, &[]).unwrap_err();
        assert_eq!(refused, AccessError::Topic(prefix.to_owned()));
    }
    let with_blank = [subject("two words", Topics::All, of(&[]))];
    assert!(
        mosquitto("n", &with_blank)
            .unwrap()
            .contains("\nuser two words\n")
    );
}
