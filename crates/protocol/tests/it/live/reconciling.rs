//! Access lists that are applied next: revocations first, each topic until the server has its list.

use headwater_protocol::live::{ListReconciler, TopicAccounts};
use headwater_protocol::notice::{Lists, TopicRight};
use headwater_testing::Dice;
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);
const HOUR: Duration = Duration::from_secs(3_600);

fn accounts(names: &[&str]) -> TopicAccounts {
    let all = names.iter().map(|name| {
        let right = match name.starts_with('p') {
            true => TopicRight::Publish,
            false => TopicRight::Subscribe,
        };
        ((*name).to_owned(), right)
    });
    all.collect()
}

fn lists(all: &[(&str, &[&str])]) -> Lists {
    let all = all.iter();
    all.map(|(topic, names)| ((*topic).to_owned(), accounts(names)))
        .collect()
}

fn topic(reconciler: &ListReconciler, now: Duration) -> Option<String> {
    reconciler.next(now).map(|(topic, _)| topic)
}

/// Applies what is due until nothing is.
fn apply_all(reconciler: &mut ListReconciler, now: Duration) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((topic, list)) = reconciler.next(now) {
        reconciler.applied(now, &topic, list);
        all.push(topic);
    }
    all
}

#[test]
fn who_loses_a_right_comes_first() {
    let mut reconciler = ListReconciler::default();
    reconciler.want(
        NOW,
        lists(&[("a", &["x"]), ("b", &["x", "p"]), ("c", &["y"])]),
    );
    assert_eq!(
        reconciler.behind(NOW + Duration::from_secs(3)),
        (3, Duration::from_secs(3))
    );
    assert_eq!(apply_all(&mut reconciler, NOW), ["a", "b", "c"]);
    assert_eq!(reconciler.behind(NOW), (0, Duration::ZERO));
    // `a` gains one, `c` has none any more, `d` is new; a publisher that may only hear has less.
    let mut next = lists(&[("a", &["x", "y"]), ("b", &["x"]), ("d", &["x"])]);
    next.get_mut("b")
        .unwrap()
        .insert("p".to_owned(), TopicRight::Subscribe);
    reconciler.want(NOW, next);
    assert_eq!(reconciler.behind(NOW).0, 4);
    assert_eq!(apply_all(&mut reconciler, NOW), ["b", "c", "d", "a"]);
    assert_eq!((reconciler.len(), reconciler.behind(NOW).0), (3, 0));
}

#[test]
fn a_topic_that_exists_and_that_no_list_names_is_emptied() {
    let mut reconciler = ListReconciler::default();
    reconciler.found(["old".to_owned()]);
    reconciler.want(NOW, Lists::new());
    assert_eq!(
        reconciler.next(NOW),
        Some(("old".to_owned(), TopicAccounts::new()))
    );
    reconciler.applied(NOW, "old", TopicAccounts::new());
    assert!(reconciler.is_empty());
}

#[test]
fn a_refused_topic_is_tried_again_and_stays_behind() {
    let mut reconciler = ListReconciler::default();
    reconciler.want(NOW, lists(&[("a", &["x"]), ("b", &["x"])]));
    reconciler.failed(NOW, "a");
    assert_eq!(topic(&reconciler, NOW).as_deref(), Some("b"));
    reconciler.applied(NOW, "b", accounts(&["x"]));
    assert_eq!(topic(&reconciler, NOW), None);
    let later = NOW + Duration::from_secs(5);
    assert_eq!(topic(&reconciler, later).as_deref(), Some("a"));
    assert_eq!(reconciler.behind(later), (1, Duration::from_secs(5)));
    // The wanted list changes while the one before is applied: that one is not the end.
    reconciler.want(later, lists(&[("a", &["y"]), ("b", &["x"])]));
    reconciler.applied(later, "a", accounts(&["x"]));
    assert_eq!(reconciler.behind(later).0, 1);
    assert_eq!(apply_all(&mut reconciler, later), ["a"]);
    assert_eq!(reconciler.behind(later).0, 0);
    // What others change at the server is found after an hour.
    assert_eq!(
        topic(&reconciler, later + HOUR - Duration::from_secs(1)).as_deref(),
        Some("b")
    );
    assert_eq!(apply_all(&mut reconciler, later + HOUR), ["a", "b"]);
}

/// Lists that change by chance at a server that refuses by chance.
#[test]
fn in_the_end_the_server_has_what_is_wanted() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let (mut reconciler, mut server, mut wanted) =
            (ListReconciler::default(), BTreeMap::new(), Lists::new());
        let mut now = NOW;
        for step in 0..200 {
            let is_over = step >= 150;
            now += Duration::from_secs(if is_over { 6 } else { dice.below(3) });
            if !is_over && dice.chance(30) {
                let topic = format!("t{}", dice.below(4));
                match dice.chance(30) {
                    true => drop(wanted.remove(&topic)),
                    false => {
                        let names = ["p", "x", "y"];
                        let names = names.into_iter().filter(|_| dice.chance(50));
                        let list = accounts(&names.collect::<Vec<_>>());
                        wanted.insert(topic, list);
                    }
                }
                reconciler.want(now, wanted.clone());
            }
            if let Some((topic, list)) = reconciler.next(now) {
                match !is_over && dice.chance(20) {
                    true => reconciler.failed(now, &topic),
                    false => {
                        server.insert(topic.clone(), list.clone());
                        reconciler.applied(now, &topic, list);
                    }
                }
            }
        }
        server.retain(|_, list: &mut TopicAccounts| !list.is_empty());
        wanted.retain(|_, list| !list.is_empty());
        assert_eq!(server, wanted, "{seed}");
        assert_eq!(reconciler.behind(now).0, 0, "{seed}");
    }
}
