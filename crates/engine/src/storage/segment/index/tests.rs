//! Tests of the index of footers.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::super::format::{CheckpointNote, Cover, LeafEntry};
use super::*;
use headwater_types::{ClosedRange, Timestamp};

fn leaf(offset: u64) -> LeafEntry {
    LeafEntry {
        first: Timestamp::from_nanos(offset as i64 * 10),
        last: Timestamp::from_nanos(offset as i64 * 10 + 9),
        count: 4,
        row_start: 0,
        offset,
        bytes: 50,
        leaf_rows: 4,
    }
}

fn footer(streams: &[u32], group_offset: u64, previous: Option<(u64, u32)>) -> Footer {
    let streams = streams.iter().map(|stream| StreamDelta {
        stream: StreamId(*stream),
        key: (stream % 3 == 0).then(|| Box::from([7u8; 9])),
        added: vec![leaf(group_offset + u64::from(*stream))],
        late_runs: vec![vec![leaf(2)]; (stream % 2) as usize],
        covers: vec![Cover {
            sequence: Sequence(4),
            range: ClosedRange::nanos(-5, i64::from(*stream)),
        }],
        ..StreamDelta::default()
    });
    Footer {
        previous,
        group_offset,
        sequence: Sequence(9),
        table: None,
        checkpoint: CheckpointNote::Nothing,
        streams: streams.collect(),
    }
}

#[test]
fn a_section_gives_what_the_footer_gives() {
    for streams in [&[0u32, 1, 7, 8, 9, 63, 64, 5000][..], &[], &[u32::MAX]] {
        let footer = footer(streams, 64, None);
        let (bytes, written) = GroupIndex::encode(&footer, 64, 3).unwrap();
        assert_eq!(bytes, footer.encode());
        let (_, read) = GroupIndex::read(&bytes, 64, 3).unwrap();
        assert_eq!(read, written);
        assert!(index_agrees(&bytes, &footer));
        for page in [1, 4000] {
            assert!(read.location(page).is_none() || streams.contains(&8));
        }
    }
}

fn divided() -> (Footer, Vec<u8>) {
    let streams: Vec<u32> = (0..200).map(|n| n * 5).collect();
    let footer = footer(&streams, 64, Some((10, 40)));
    let bytes = encode_divided(&footer, 3);
    (footer, bytes)
}

#[test]
fn a_directory_gives_what_the_footer_gives() {
    let (whole_footer, bytes) = divided();
    assert!(Footer::has_directory(&bytes));
    assert_eq!(Footer::decode(&bytes), Ok(whole_footer.clone()));
    assert!(index_agrees(&bytes, &whole_footer));
    let (_, whole) = GroupIndex::read(&bytes, 64, 3).unwrap();
    let trailer = Footer::trailer_at(&bytes[bytes.len() - 99..], bytes.len() as u32).unwrap();
    assert_eq!(trailer, 99 - 16);
    let body = &bytes[..bytes.len() - 16];
    let (directory, before) = Directory::at_end(body).unwrap();
    assert_eq!(directory.sections.len(), 125);
    let front = &before[..directory.front_bytes as usize];
    let at = (64, bytes.len() as u32);
    let (front, index) = GroupIndex::of_directory(front, directory.clone(), at, 3)
        .unwrap()
        .unwrap();
    // Only `in_part` differs.
    assert!(index.in_part && !whole.in_part);
    let index = GroupIndex {
        in_part: false,
        ..index
    };
    assert_eq!(index, whole);
    assert_eq!(
        (front.previous, front.sequence),
        (whole_footer.previous, whole_footer.sequence)
    );
    // A reader with pages of another size reads the whole footer; a changed front is refused.
    let front = &before[..directory.front_bytes as usize];
    let other = GroupIndex::of_directory(front, directory.clone(), at, 4);
    assert_eq!(other.map(|found| found.is_none()), Ok(true));
    let mut damaged = front.to_vec();
    damaged[1] ^= 1;
    assert!(GroupIndex::of_directory(&damaged, directory, at, 3).is_err());
    // With one page less, the footer has no directory.
    let few: Vec<u32> = (0..15).map(|n| n * 8).collect();
    let few = encode_divided(&footer(&few, 64, None), 3);
    assert!(!Footer::has_directory(&few));
}

#[test]
fn a_directory_that_says_something_else_is_refused() {
    let (footer, bytes) = divided();
    let (directory, _) = Directory::at_end(&bytes[..bytes.len() - 16]).unwrap();
    let with = |directory: &Directory| {
        let (mut body, _) = footer.encode_body(true, |_, _, _| ());
        directory.append_to(&mut body);
        Footer::decode(&Footer::with_trailer(body))
    };
    assert_eq!(with(&directory), Ok(footer.clone()));
    let mut other = directory.clone();
    other.sections[7].crc ^= 1;
    assert!(with(&other).is_err());
    let mut other = directory.clone();
    other.sections.remove(3);
    assert!(with(&other).is_err());
    let mut other = directory.clone();
    other.front_crc ^= 1;
    assert!(with(&other).is_err());
    let mut other = directory;
    other.shift = 4;
    assert!(with(&other).is_err());
    // A footer whose version promises a directory, without one.
    let (body, _) = footer.encode_body(true, |_, _, _| ());
    assert!(Footer::decode(&Footer::with_trailer(body)).is_err());
}

#[test]
fn many_groups_at_once_are_as_one_after_the_other() {
    let mut one = SegmentState::new(SegmentId(5), 3);
    let mut all = Vec::new();
    let rounds: [&[u32]; 4] = [&[8, 40], &[0, 9, 100], &[41], &[8]];
    for (round, streams) in (1u64..).zip(rounds) {
        let group = footer(streams, round * 1000, None);
        let index = || GroupIndex::encode(&group, round * 1000 + 500, 3).unwrap().1;
        one = one.with_group(index(), None, one.sums);
        all.push((index(), None));
    }
    let last = all.split_off(3);
    let both = SegmentState::new(SegmentId(5), 3)
        .with_groups(all)
        .with_groups(last);
    assert_eq!(both.newest, one.newest);
    assert_eq!(both.sums, one.sums);
    assert_eq!(both.newest_footer(), one.newest_footer());
    assert!(both.indexes().eq(one.indexes()));
}

#[test]
fn a_section_that_changed_is_refused() {
    let footer = footer(&[1, 2, 9], 64, None);
    let (mut bytes, index) = GroupIndex::encode(&footer, 64, 3).unwrap();
    let (at, len) = index.location(0).unwrap();
    let range = (at - 64) as usize..(at - 64) as usize + len as usize;
    assert_eq!(index.changes(0, &bytes[range.clone()]).unwrap().len(), 2);
    bytes[range.start + 3] ^= 1;
    assert!(index.changes(0, &bytes[range.clone()]).is_err());
    assert!(
        index
            .changes(0, &bytes[range.start..range.end - 1])
            .is_err()
    );
    // The whole footer is checked before.
    assert!(GroupIndex::read(&bytes, 64, 3).is_err());
}

#[test]
fn streams_that_do_not_rise_are_refused() {
    let footer = footer(&[9, 1], 64, None);
    assert!(GroupIndex::encode(&footer, 64, 3).is_err());
    assert!(GroupIndex::read(&footer.encode(), 64, 3).is_err());
}

#[test]
fn a_state_knows_the_newest_version_of_each_page() {
    let mut state = SegmentState::new(SegmentId(5), 3);
    let mut pages: Vec<(PageNumber, Arc<Page>)> = Vec::new();
    let mut sums = Sums::default();
    let rounds: [&[u32]; 4] = [&[8, 40], &[0, 9, 100], &[41], &[8]];
    for (round, streams) in (1u64..).zip(rounds) {
        let footer = footer(streams, round * 1000, None);
        let (_, index) = GroupIndex::encode(&footer, round * 1000 + 500, 3).unwrap();
        for stream in streams {
            let page = stream >> 3;
            if !pages.iter().any(|(p, _)| *p == page) {
                pages.push((page, Arc::default()));
            }
        }
        pages.sort_by_key(|(p, _)| *p);
        let (changed, after) = state.changed(&footer.streams, &pages).unwrap();
        let next = state.with_group(index, None, after);
        for (page, content) in &changed.0 {
            let at = pages.iter().position(|(p, _)| p == page).unwrap();
            pages[at].1 = Arc::clone(content);
        }
        sums.events += 4 * streams.iter().map(|s| 1 + u64::from(s % 2)).sum::<u64>();
        assert_eq!(next.sums.events, sums.events);
        state = next;
    }
    assert!(state.pages().eq([0, 1, 5, 12]));
    let versions = [0, 1, 2, 5, 12].map(|p| state.version(p));
    assert_eq!(
        versions,
        [Some(2500), Some(4500), None, Some(3500), Some(2500)]
    );
    let groups = state.groups_of(1).map(|g| g.footer_offset);
    assert!(groups.eq([1500, 2500, 4500]));
    // A job must have looked up the streams that it changes.
    let footer = footer(&[70], 9000, None);
    assert!(state.changed(&footer.streams, &pages).is_err());
}
