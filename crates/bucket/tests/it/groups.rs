//! Groups, step by step: what a node that sleeps may do, what becomes of a put without an answer,
//! and what a collection takes.

use headwater_bucket::{
    Addition, Answer, BucketError, BucketErrorKind, Change, Collector, Committed, Contents, Head,
    Holder, Member, Memory, Now, ObjectStore, Pack, Range, Request, Restored, StoreFailure,
    carry_out, head_key, packs_prefix, read_group, without_ranges,
};
use headwater_io::SeededChance;
use headwater_types::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LEASE: u64 = 1_000;

fn at(millis: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(millis),
        wall: Timestamp::from_nanos(i64::try_from(millis).unwrap() * 1_000_000),
    }
}

fn holder(node: u64) -> Holder {
    let me = Member {
        node,
        name: format!("node-{node}"),
        lease_millis: u32::try_from(LEASE).unwrap(),
    };
    Holder::new(me, 1, Arc::new(SeededChance::new(node)))
}

/// Lets it ask until it has nothing to ask at this time.
fn run(holder: &mut Holder, store: &dyn ObjectStore, now: Now) {
    loop {
        if let Some(request) = holder.next_pack(now) {
            holder.take_pack(now, &carry_out(store, &request));
        } else if let Some(request) = holder.next(now) {
            holder.take(now, carry_out(store, &request));
        } else {
            return;
        }
    }
}

fn addition(name: &str, bytes: &[u8]) -> Addition {
    let range = Range {
        segment: 1,
        offset: 0,
        bytes: u64::try_from(bytes.len()).unwrap(),
    };
    Addition {
        name: name.to_owned(),
        history: 1,
        state: 1,
        description: b"described".to_vec(),
        present: vec![range],
        pieces: vec![(range, bytes.to_vec())],
    }
}

fn change(name: &str, bytes: &[u8]) -> Change {
    Change {
        packs: vec![Pack::build(vec![addition(name, bytes)])],
        ..Change::default()
    }
}

fn commit(holder: &mut Holder, store: &dyn ObjectStore, now: Now, change: Change) -> Committed {
    assert!(holder.commit(now, change));
    run(holder, store, now);
    holder.take_committed().expect("it was committed")
}

fn read(store: &dyn ObjectStore, name: &str) -> Option<Vec<u8>> {
    let (head, _, contents) = read_group(store, 1).unwrap()?;
    let mut all = Vec::new();
    restore(store, &contents, &head, name, &mut all).unwrap()?;
    Some(all)
}

fn restore(
    store: &dyn ObjectStore,
    contents: &Contents,
    head: &Head,
    name: &str,
    all: &mut Vec<u8>,
) -> Result<Option<Restored>, BucketError> {
    contents.restore(store, head, name, &mut |_, bytes| {
        all.extend_from_slice(bytes);
        Ok(())
    })
}

#[test]
fn a_second_node_waits_for_the_lease_and_then_goes_on_from_what_was_committed() {
    let store = Memory::default();
    let (mut a, mut b) = (holder(1), holder(2));
    run(&mut a, &store, at(0));
    commit(&mut a, &store, at(10), change("edge", b"hello"));
    run(&mut b, &store, at(20));
    assert!(!b.has_lease(at(20)) && a.has_lease(at(20)));
    // Only what it has seen itself lets it take the group, after a whole lease.
    run(&mut b, &store, at(20 + LEASE - 1));
    assert!(!b.has_lease(at(20 + LEASE - 1)));
    run(&mut b, &store, at(20 + LEASE));
    assert!(b.is_ready(at(20 + LEASE)));
    assert_eq!(b.head().unwrap().epoch, 2);
    assert_eq!(read(&store, "edge").unwrap(), b"hello");
}

#[test]
fn who_sleeps_past_the_lease_commits_nothing_even_if_nobody_took_the_group() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"hello")));
    // The pack is there; then it sleeps.
    let request = a.next_pack(at(10)).unwrap();
    a.take_pack(at(10), &carry_out(&store, &request));
    run(&mut a, &store, at(5_000));
    assert!(a.take_lost() && a.take_committed().is_none());
    assert_eq!(read(&store, "edge"), None);
    // It takes the group anew, under the next epoch.
    assert!(a.is_ready(at(5_000)));
    assert_eq!(a.head().unwrap().epoch, 2);
}

#[test]
fn who_was_replaced_while_it_slept_loses_though_its_own_clock_stood_still() {
    let store = Memory::default();
    let (mut a, mut b) = (holder(1), holder(2));
    run(&mut a, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"from a")));
    run(&mut b, &store, at(0));
    run(&mut b, &store, at(LEASE + 500));
    assert!(b.is_ready(at(LEASE + 500)));
    commit(&mut b, &store, at(LEASE + 510), change("edge", b"from b"));
    // By the clock of the first, no time has passed.
    run(&mut a, &store, at(20));
    assert!(a.take_lost() && a.take_committed().is_none());
    assert!(!a.has_lease(at(20)));
    assert_eq!(read(&store, "edge").unwrap(), b"from b");
}

/// However slow the link is, a node that uploads keeps its group.
#[test]
fn a_pack_that_is_on_its_way_for_many_leases_costs_no_group() {
    let store = Memory::default();
    let (mut a, mut b) = (holder(1), holder(2));
    run(&mut a, &store, at(0));
    run(&mut b, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"hello")));
    let pack = a.next_pack(at(10)).unwrap();
    for millis in (20..20 * LEASE).step_by(usize::try_from(LEASE / 10).unwrap()) {
        assert!(a.next_pack(at(millis)).is_none(), "one pack at a time");
        while let Some(request) = a.next(at(millis)) {
            a.take(at(millis), carry_out(&store, &request));
        }
        run(&mut b, &store, at(millis));
        assert!(a.has_lease(at(millis)) && !b.has_lease(at(millis)));
    }
    assert!(!a.take_lost() && a.take_committed().is_none());
    a.take_pack(at(20 * LEASE), &carry_out(&store, &pack));
    run(&mut a, &store, at(20 * LEASE));
    assert_eq!(a.take_committed().unwrap().packs.len(), 1);
    assert_eq!(read(&store, "edge").unwrap(), b"hello");
}

/// The answer to a pack that was asked for under a lease that has passed changes nothing of the
/// next one.
#[test]
fn the_answer_to_a_pack_of_a_lost_group_is_dropped() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"before")));
    let pack = a.next_pack(at(10)).unwrap();
    while let Some(request) = a.next(at(5 * LEASE)) {
        a.take(at(5 * LEASE), carry_out(&store, &request));
    }
    assert!(a.take_lost() && a.is_ready(at(5 * LEASE)));
    assert!(a.commit(at(5 * LEASE), change("edge", b"after")));
    assert!(a.next_pack(at(5 * LEASE)).is_none(), "one pack at a time");
    a.take_pack(at(5 * LEASE), &carry_out(&store, &pack));
    assert_eq!(read(&store, "edge"), None);
    run(&mut a, &store, at(5 * LEASE));
    assert!(a.take_committed().is_some());
    assert_eq!(read(&store, "edge").unwrap(), b"after");
}

#[test]
fn a_commit_whose_answer_was_lost_is_known_by_reading_the_head() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"hello")));
    let pack = a.next_pack(at(10)).unwrap();
    a.take_pack(at(10), &carry_out(&store, &pack));
    let put = a.next(at(10)).unwrap();
    assert!(matches!(&put, Request::Replace { key, .. } if *key == head_key(1)));
    carry_out(&store, &put);
    a.take(at(10), Answer::Failed(StoreFailure::passing("lost")));
    assert!(a.take_committed().is_none() && a.trouble().is_some());
    run(&mut a, &store, at(300));
    assert_eq!(a.take_committed().unwrap().packs.len(), 1);
    assert_eq!(read(&store, "edge").unwrap(), b"hello");
}

#[test]
fn a_put_that_comes_late_after_it_was_put_again_does_no_harm() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    assert!(a.commit(at(10), change("edge", b"hello")));
    let pack = a.next_pack(at(10)).unwrap();
    a.take_pack(at(10), &carry_out(&store, &pack));
    let late = a.next(at(10)).unwrap();
    a.take(at(10), Answer::Failed(StoreFailure::passing("no answer")));
    // It is put again, and another commit comes; then the first put arrives.
    run(&mut a, &store, at(300));
    assert!(a.take_committed().is_some());
    commit(&mut a, &store, at(310), change("edge", b"hello and more"));
    carry_out(&store, &late);
    assert_eq!(read(&store, "edge").unwrap(), b"hello and more");
}

#[test]
fn a_collection_takes_what_no_head_names_and_what_is_on_its_way_is_uploaded_again() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    commit(&mut a, &store, at(10), change("edge", b"first"));
    // A pack is there that no head names yet.
    assert!(a.commit(at(20), change("edge", b"second")));
    let pack = a.next_pack(at(20)).unwrap();
    a.take_pack(at(20), &carry_out(&store, &pack));
    let before = store.list(&packs_prefix(1), "").unwrap().objects.len();
    assert_eq!(before, 2);
    let mut collector = Collector::new(1, Arc::new(SeededChance::new(3)));
    while let Some(request) = collector.next_request() {
        collector.take(carry_out(&store, &request));
    }
    let found = collector.outcome().unwrap().unwrap();
    assert_eq!((found.packs, found.deleted), (2, 1));
    assert_eq!(read(&store, "edge").unwrap(), b"first");
    run(&mut a, &store, at(30));
    assert!(a.take_committed().is_some());
    assert_eq!(read(&store, "edge").unwrap(), b"second");
}

#[test]
fn a_reader_that_fell_behind_is_told_that_it_is_gone_and_reads_again() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    let first = commit(&mut a, &store, at(10), change("edge", b"first")).head;
    let contents = Contents::load(&store, &first).unwrap();
    let mut second = change("edge", b"second");
    second.dropped = BTreeSet::from([first.packs[0].number]);
    commit(&mut a, &store, at(20), second);
    let mut collector = Collector::new(1, Arc::new(SeededChance::new(3)));
    while let Some(request) = collector.next_request() {
        collector.take(carry_out(&store, &request));
    }
    let gone = restore(&store, &contents, &first, "edge", &mut Vec::new()).unwrap_err();
    assert_eq!(gone.kind(), BucketErrorKind::Superseded);
    assert_eq!(read(&store, "edge").unwrap(), b"second");
}

#[test]
fn damaged_bytes_are_an_error_and_never_an_answer() {
    let store = Memory::default();
    let mut a = holder(1);
    run(&mut a, &store, at(0));
    let head = commit(&mut a, &store, at(10), change("edge", b"hello")).head;
    let contents = Contents::load(&store, &head).unwrap();
    let key = store.list(&packs_prefix(1), "").unwrap().objects[0]
        .key
        .clone();
    let whole = store.get(&key).unwrap().unwrap();
    let at_hello = whole.bytes.windows(5).position(|w| w == b"hello").unwrap();
    let mut bad = whole.bytes.clone();
    bad[at_hello] ^= 1;
    store.replace(&key, &bad, &whole.etag).unwrap();
    let error = restore(&store, &contents, &head, "edge", &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), BucketErrorKind::Damaged);
    assert!(error.to_string().contains(&key), "{error}");
}

#[test]
fn what_came_again_goes_before_what_was_there_and_only_what_lacks_is_put() {
    let mut contents = Contents::default();
    let range = |offset, bytes| Range {
        segment: 1,
        offset,
        bytes,
    };
    let first = Pack::build(vec![addition("edge", b"0123456789")]);
    contents.apply(1, &first.index);
    let present = [range(0, 14)];
    assert_eq!(contents.missing_ranges("edge", 1, &present), [range(10, 4)]);
    assert_eq!(contents.missing_ranges("edge", 2, &present), present);
    let again = Addition {
        present: present.to_vec(),
        pieces: vec![
            (range(10, 4), b"abcd".to_vec()),
            (range(2, 3), b"XYZ".to_vec()),
        ],
        ..addition("edge", b"")
    };
    let second = Pack::build(vec![again]);
    contents.apply(2, &second.index);
    assert!(contents.missing_ranges("edge", 1, &present).is_empty());
    assert_eq!(contents.used(), BTreeSet::from([1, 2]));
    let of_first = contents.in_packs("edge", &BTreeSet::from([1])).unwrap();
    assert_eq!(of_first, [range(0, 2), range(5, 5)]);
    assert_eq!(contents.in_packs("edge", &BTreeSet::from([3])), None);
    assert!(contents.includes("edge", 1, b"described", &present));
    assert!(!contents.includes("edge", 1, b"otherwise", &present));
    let left = without_ranges(&present, &[range(0, 1), range(9, 2)]);
    assert_eq!(left, [range(1, 8), range(11, 3)]);
}

#[test]
fn what_was_not_present_for_a_while_is_put_again() {
    let mut contents = Contents::default();
    let range = |offset, bytes| Range {
        segment: 1,
        offset,
        bytes,
    };
    let first = Pack::build(vec![addition("edge", b"0123456789")]);
    contents.apply(1, &first.index);
    // The middle was found to be wrong, and is forgotten.
    let without = Addition {
        present: vec![range(0, 4), range(6, 4)],
        pieces: Vec::new(),
        ..addition("edge", b"")
    };
    contents.apply(2, &Pack::build(vec![without]).index);
    assert_eq!(
        contents.missing_ranges("edge", 1, &[range(0, 10)]),
        [range(4, 2)]
    );
    let again = Addition {
        present: vec![range(0, 10)],
        pieces: vec![(range(4, 2), b"ab".to_vec())],
        ..addition("edge", b"")
    };
    contents.apply(3, &Pack::build(vec![again]).index);
    assert!(
        contents
            .missing_ranges("edge", 1, &[range(0, 10)])
            .is_empty()
    );
    assert_eq!(contents.used(), BTreeSet::from([1, 3]));
}
