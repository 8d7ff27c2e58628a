//! Laws of stores, which each of them obeys.

use headwater_bucket::{
    Counted, Directory, Etag, Faults, Faulty, Memory, ObjectStore, Put, head_key, packs_prefix,
};
use headwater_io::ManualClock;
use headwater_types::Timestamp;
use std::sync::Arc;
use std::time::Duration;

fn stored(put: Put) -> Etag {
    match put {
        Put::Stored(etag) => etag,
        Put::Refused => panic!("it was refused"),
    }
}

/// What each store does. Its keys begin with `base`, below which nothing is.
pub(crate) fn check_conformance(store: &dyn ObjectStore, base: &str) {
    let key = format!("{base}/head");
    assert_eq!(store.get(&key).unwrap(), None);
    assert_eq!(store.get_range(&key, 0, 1).unwrap(), None);
    let none = Etag("\"0123456789abcdef0123456789abcdef\"".to_owned());
    assert_eq!(store.replace(&key, b"x", &none).unwrap(), Put::Refused);
    let first = stored(store.create(&key, b"first").unwrap());
    assert_eq!(store.create(&key, b"other").unwrap(), Put::Refused);
    let found = store.get(&key).unwrap().unwrap();
    assert_eq!(
        (found.bytes.as_slice(), &found.etag),
        (&b"first"[..], &first)
    );
    assert_eq!(store.replace(&key, b"other", &none).unwrap(), Put::Refused);
    let second = stored(store.replace(&key, b"second, longer", &first).unwrap());
    assert_eq!(store.replace(&key, b"other", &first).unwrap(), Put::Refused);
    let range = store.get_range(&key, 8, 6).unwrap().unwrap();
    assert_eq!(range, b"longer");
    assert!(
        store.get_range(&key, 8, 7).is_err(),
        "it has not so many bytes"
    );
    assert_eq!(store.get(&key).unwrap().unwrap().etag, second);
    let keys: Vec<String> = (0..25).map(|n| format!("{base}/pack/{n:04}")).collect();
    for key in &keys {
        stored(store.create(key, key.as_bytes()).unwrap());
    }
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let page = store.list(&format!("{base}/pack/"), &after).unwrap();
        let found = page.objects.iter().map(|o| (o.key.clone(), o.bytes));
        listed.extend(found);
        match page.objects.last() {
            Some(last) if page.more => after = last.key.clone(),
            _ => break,
        }
    }
    let expected = keys
        .iter()
        .map(|k| (k.clone(), u64::try_from(k.len()).unwrap()));
    assert_eq!(listed, expected.collect::<Vec<_>>());
    let behind = store.list(&format!("{base}/pack/"), &keys[22]).unwrap();
    assert_eq!(behind.objects.len(), 2);
    store.delete(&keys[3]).unwrap();
    store.delete(&keys[3]).unwrap();
    assert_eq!(store.get(&keys[3]).unwrap(), None);
}

#[test]
fn a_store_in_memory_passes_the_conformance_tests() {
    check_conformance(&Memory::default(), "a");
}

#[test]
fn a_store_in_a_directory_passes_the_conformance_tests() {
    let dir = tempfile::tempdir().unwrap();
    let store = Directory::new(&dir.path().join("deep/bucket")).unwrap();
    check_conformance(&store, "a/b");
    let refused = store.get("../outside").unwrap_err();
    assert!(refused.is_final && refused.text.contains("expected a key"));
}

#[test]
fn a_store_with_faults_that_never_happen_passes_the_conformance_tests() {
    check_conformance(&Faulty::new(Memory::default(), 1, Faults::default()), "a");
}

#[test]
fn what_is_asked_is_counted_by_kind_and_day() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(0)));
    let store = Counted::new(Memory::default(), clock.clone());
    stored(store.create(&head_key(1), b"12345").unwrap());
    assert_eq!(store.create(&head_key(1), b"12345").unwrap(), Put::Refused);
    store.get(&head_key(1)).unwrap();
    assert!(store.get_range(&head_key(1), 3, 9).is_err());
    clock.advance(Duration::from_secs(86_400));
    store.list(&packs_prefix(1), "").unwrap();
    store.delete(&head_key(1)).unwrap();
    let days = store.days();
    assert_eq!(days.iter().map(|(day, _)| *day).collect::<Vec<_>>(), [0, 1]);
    let (first, second) = (days[0].1, days[1].1);
    assert_eq!((first.put.requests, first.put.bytes), (2, 10));
    assert_eq!(
        (first.get.requests, first.get.failures, first.get.bytes),
        (2, 1, 5)
    );
    assert_eq!((second.list.requests, second.delete.requests), (1, 1));
    let total = store.total();
    assert_eq!((total.put.requests, total.list.requests), (2, 1));
    // Days are forgotten; what was counted in all never falls.
    for _ in 0..40 {
        clock.advance(Duration::from_secs(86_400));
        store.list(&packs_prefix(1), "").unwrap();
    }
    assert_eq!(store.days().len(), 31);
    let total = store.total();
    assert_eq!((total.put.requests, total.list.requests), (2, 41));
}

#[test]
fn a_put_whose_answer_was_late_is_carried_out_later() {
    let faults = Faults {
        done_late: 1000,
        ..Faults::default()
    };
    let store = Faulty::new(Memory::default(), 5, faults);
    assert!(store.create("head", b"late").is_err());
    assert_eq!(store.store().get("head").unwrap(), None);
    store.set_faults(Faults::default());
    store.settle();
    assert_eq!(store.get("head").unwrap().unwrap().bytes, b"late");
}
