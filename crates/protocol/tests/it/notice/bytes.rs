//! Notices as bytes, and their signatures.

use headwater_protocol::notice::{
    NOTICE_BYTES_MAX, Notice, NoticeError, NoticeKey, NoticeKind, Sealed,
};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn notice(kind: NoticeKind) -> Notice {
    Notice {
        kind,
        identity: 0x0102_0304_0506_0708,
        incarnation: 9,
        epoch: 10,
        number: 300,
        version: 70_000,
    }
}

fn key(seed: u8) -> NoticeKey {
    NoticeKey::of_seed(&[seed; 32]).unwrap()
}

#[test]
fn a_notice_has_the_bytes_it_always_had() {
    let sealed =
        [NoticeKind::Changed, NoticeKind::Disconnected].map(|kind| key(1).seal(&notice(kind)));
    let text: Vec<String> = sealed.iter().map(|bytes| hex(bytes)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/notice.hex");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text.join("\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text.join("\n"));
    for (bytes, kind) in sealed
        .iter()
        .zip([NoticeKind::Changed, NoticeKind::Disconnected])
    {
        let read = Sealed::decode(bytes).unwrap();
        assert_eq!(read.proven_by(&key(1).public()), Some(&notice(kind)));
    }
}

#[test]
fn a_notice_of_another_key_or_that_was_changed_proves_nothing() {
    let bytes = key(1).seal(&notice(NoticeKind::Changed));
    let by = key(1).public();
    let read = Sealed::decode(&bytes).unwrap();
    assert_eq!(read.proven_by(&key(2).public()), None);
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            if let Ok(read) = Sealed::decode(&changed) {
                assert_eq!(read.proven_by(&by), None, "byte {at}");
            }
        }
        let cut = Sealed::decode(&bytes[..at]);
        assert!(
            cut.is_err() || cut.unwrap().proven_by(&by).is_none(),
            "{at}"
        );
    }
    assert_eq!(Sealed::decode(&[0; 63]), Err(NoticeError::Short(63)));
    let long = NOTICE_BYTES_MAX + 1;
    assert_eq!(Sealed::decode(&vec![0; long]), Err(NoticeError::Long(long)));
    let garbled = Sealed::decode(&[0; 100]);
    assert!(
        matches!(garbled, Err(NoticeError::Garbled(_))),
        "{garbled:?}"
    );
}

fn any_notice() -> impl Strategy<Value = Notice> {
    let kind = prop_oneof![Just(NoticeKind::Changed), Just(NoticeKind::Disconnected)];
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    (kind, numbers, any::<u64>(), any::<u64>()).prop_map(
        |(kind, (identity, incarnation, epoch), number, version)| Notice {
            kind,
            identity,
            incarnation,
            epoch,
            number,
            version,
        },
    )
}

proptest! {
    #[test]
    fn every_notice_is_read_back_and_is_small(notice in any_notice()) {
        prop_assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
        let sealed = key(3).seal(&notice);
        prop_assert!(sealed.len() < 160);
        let read = Sealed::decode(&sealed).unwrap();
        prop_assert_eq!(read.claims_identity(), notice.identity);
        prop_assert_eq!(read.proven_by(&key(3).public()), Some(&notice));
    }

    #[test]
    fn other_bytes_are_no_notice(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(read) = Notice::decode(&bytes) {
            // Only in one way of writing numbers.
            prop_assert_eq!(Notice::decode(&read.encode()), Ok(read));
        }
    }
}
