//! Bytes that were put once are read for ever: golden bytes, and bytes that are none.

use headwater_bucket::{
    Addition, CopyEntry, Head, Lease, Pack, PackEntry, PackIndex, PackLocation, Range,
};
use headwater_types::Timestamp;
use std::collections::BTreeMap;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn head() -> Head {
    let copy = CopyEntry {
        history: 0x0102_0304_0506_0708,
        state: 300,
        pack: 4,
        bytes: 1000,
    };
    Head {
        group: 3,
        commit: 9,
        nonce: 0xfeed,
        epoch: 5,
        min_epoch: 2,
        lease: Lease {
            node: 0xabcd,
            name: "west".to_owned(),
            millis: 30_000,
            until: Timestamp::from_nanos(1_700_000_000_000_000_000),
        },
        next_pack: 6,
        packs: vec![
            PackEntry {
                number: 2,
                epoch: 1,
                id: 17,
                bytes: 400,
                index_bytes: 90,
            },
            PackEntry {
                number: 4,
                epoch: 5,
                id: 18,
                bytes: 500,
                index_bytes: 70,
            },
        ],
        copies: BTreeMap::from([("pump-7".to_owned(), copy)]),
    }
}

fn addition() -> Addition {
    let range = |segment, offset, bytes| Range {
        segment,
        offset,
        bytes,
    };
    Addition {
        name: "pump-7".to_owned(),
        history: 8,
        state: 300,
        description: b"described".to_vec(),
        present: vec![range(1, 0, 200), range(2, 64, 3)],
        pieces: vec![(range(2, 64, 3), b"abc".to_vec())],
    }
}

#[test]
fn a_head_has_these_bytes() {
    let golden = "48574845414401030000000900000000000000edfe00000000000005000000000000000200000000000000cdab00000000000004776573743075000000002a36fe9c971706020201110000000000000090035a04051200000000000000f40346010670756d702d370807060504030201ac0204e807cbba98b1";
    assert_eq!(hex(&head().encode()), golden);
    assert_eq!(Head::decode(&head().encode()), Ok(head()));
}

#[test]
fn a_pack_has_these_bytes() {
    let pack = Pack::build(vec![addition()]);
    let golden = "48575041434b016465736372696265646162634857494e445801010670756d702d370800000000000000ac020709977afd6b020100c801024003010240031003b73f4b3606b66131";
    assert_eq!(hex(&pack.bytes), golden);
    let at = pack.bytes.len() - usize::try_from(pack.index_bytes).unwrap();
    let index = PackIndex::decode(&pack.bytes[at..]).unwrap();
    assert_eq!(index, pack.index);
    let (_, place) = index.entries[0].pieces[0];
    let place_is = PackLocation {
        at: 16,
        bytes: 3,
        crc: 0x364b_3fb7,
    };
    assert_eq!(place, place_is);
    assert_eq!(&pack.bytes[16..19], b"abc");
}

#[test]
fn no_byte_may_change_and_none_may_be_missing() {
    let head = head().encode();
    let index = Pack::build(vec![addition()]).index.encode();
    for at in 0..head.len() {
        let mut other = head.clone();
        other[at] ^= 4;
        assert!(Head::decode(&other).is_err(), "byte {at}");
        assert!(Head::decode(&head[..at]).is_err(), "{at} bytes");
    }
    for at in 0..index.len() {
        let mut other = index.clone();
        other[at] ^= 4;
        assert!(PackIndex::decode(&other).is_err(), "byte {at}");
        assert!(PackIndex::decode(&index[..at]).is_err(), "{at} bytes");
    }
}

#[test]
fn a_head_follows_another_only_with_the_right_to() {
    let before = head();
    let next = Head {
        commit: 10,
        ..head()
    };
    assert!(next.follows(&before));
    let refused = |change: &dyn Fn(&mut Head)| {
        let mut other = next.clone();
        change(&mut other);
        assert!(!other.follows(&before), "{other:?}");
    };
    refused(&|head| head.commit = 11);
    refused(&|head| head.epoch = 4);
    refused(&|head| head.min_epoch = 1);
    // Another node without another epoch.
    refused(&|head| head.lease.node = 1);
    // A pack that was named before under this number is another one.
    refused(&|head| head.packs[0].id = 99);
    let born = |epoch| PackEntry {
        number: 6,
        epoch,
        id: 1,
        bytes: 100,
        index_bytes: 50,
    };
    let with = |epoch| {
        let mut other = next.clone();
        other.packs.push(born(epoch));
        other.next_pack = 7;
        other
    };
    assert!(with(2).follows(&before) && !with(1).follows(&before));
}

#[test]
fn of_two_additions_of_a_name_the_later_one_counts() {
    let later = Addition {
        state: 301,
        ..addition()
    };
    let pack = Pack::build(vec![addition(), later]);
    let states: Vec<u64> = pack.index.entries.iter().map(|e| e.state).collect();
    assert_eq!(states, [301]);
}
