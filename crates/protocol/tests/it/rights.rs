//! The signed list of rights: its bytes, its bounds, and the chain of its keys.

use headwater_protocol::rights::{
    KeyChain, RIGHTS_BYTES_MAX, ROTATIONS_MAX, RightsError, RightsList, RightsToken,
};
use headwater_protocol::signature::{SIGNATURE_BYTES, SigningKey};
use std::fmt::Write as _;
use std::path::Path;

const CLOUD: u64 = 0x0102_0304_0506_0708;

fn key(seed: u8) -> SigningKey {
    SigningKey::of_seed(&[seed; 32]).unwrap()
}

fn token(id: &str, rules: &[&str]) -> RightsToken {
    RightsToken {
        id: id.to_owned(),
        name: format!("name of {id}"),
        hash: [id.as_bytes()[0]; 32],
        created_ns: 1_700_000_000_000_000_000,
        expires_ns: None,
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
    }
}

/// A list signed by the key with this seed, at this position of the chain.
fn list(number: u64, keys: KeyChain, signer: usize) -> RightsList {
    let mut ends = token("bb", &[]);
    ends.expires_ns = Some(1_800_000_000_000_000_000);
    RightsList {
        number,
        cloud: CLOUD,
        keys,
        signer,
        tokens: vec![token("aa", &["read pumps,site=4", "write *"]), ends],
        removed: vec![("cc".to_owned(), 17)],
    }
}

fn rotated(seeds: &[u8]) -> KeyChain {
    let mut keys = KeyChain::new(key(seeds[0]).public());
    for (number, pair) in seeds.windows(2).enumerate() {
        let number = 20 + u64::try_from(number).unwrap();
        keys.rotate(CLOUD, &key(pair[0]), key(pair[1]).public(), number);
    }
    keys
}

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

#[test]
fn a_list_has_the_bytes_it_always_had() {
    let signed = list(300, rotated(&[1, 2]), 1).sign(&key(2)).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rights.hex");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, hex(&signed)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), hex(&signed));
    let read = RightsList::read(&signed).unwrap();
    assert_eq!(read, list(300, rotated(&[1, 2]), 1));
    assert_eq!(read.signing_key(), &key(2).public());
}

#[test]
fn a_list_that_was_changed_anywhere_is_refused() {
    let signed = list(300, rotated(&[1, 2]), 1).sign(&key(2)).unwrap();
    for at in 0..signed.len() {
        let mut changed = signed.clone();
        changed[at] ^= 1;
        assert!(RightsList::read(&changed).is_err(), "{at}");
        assert!(RightsList::read(&signed[..at]).is_err(), "{at}");
    }
    let mut longer = signed.clone();
    longer.push(0);
    assert!(RightsList::read(&longer).is_err());
    let huge = vec![0; RIGHTS_BYTES_MAX + 1];
    assert_eq!(
        RightsList::read(&huge).unwrap_err(),
        RightsError::Large(huge.len())
    );
    // Another key than the one named.
    let other = list(300, rotated(&[1, 2]), 1).sign(&key(3));
    assert_eq!(other.unwrap_err(), RightsError::Key);
    // A rotation that the key before did not sign, in a list that is signed itself.
    let mut keys = rotated(&[1, 2]);
    keys.rotate(CLOUD, &key(9), key(3).public(), 30);
    let forged = list(300, keys, 2).sign(&key(3)).unwrap();
    assert_eq!(
        RightsList::read(&forged).unwrap_err(),
        RightsError::Signature
    );
    // A rotation of another cloud.
    let mut keys = KeyChain::new(key(1).public());
    keys.rotate(CLOUD + 1, &key(1), key(2).public(), 20);
    let foreign = list(300, keys, 1).sign(&key(2)).unwrap();
    assert!(RightsList::read(&foreign).is_err());
}

#[test]
fn keys_are_trusted_forwards_along_the_chain_and_never_backwards() {
    let seeds = [1, 2, 3, 4];
    let trusts = |signer: usize| {
        let signed = list(300, rotated(&seeds), signer);
        let signed = signed.sign(&key(seeds[signer])).unwrap();
        let read = RightsList::read(&signed).unwrap();
        seeds.map(|seed| read.is_trusted_by(&key(seed).public()))
    };
    assert_eq!(trusts(0), [true, false, false, false]);
    assert_eq!(trusts(2), [true, true, true, false]);
    assert_eq!(trusts(3), [true; 4]);
    let read = list(1, rotated(&[1, 2]), 1);
    assert!(!read.is_trusted_by(&key(3).public()));
}

#[test]
fn the_oldest_rotations_are_left_out() {
    let seeds: Vec<u8> = (1..=u8::try_from(ROTATIONS_MAX + 3).unwrap()).collect();
    let keys = rotated(&seeds);
    assert_eq!(keys.rotations.len(), ROTATIONS_MAX);
    let signed = list(300, keys, ROTATIONS_MAX);
    let signed = signed.sign(&key(*seeds.last().unwrap())).unwrap();
    let read = RightsList::read(&signed).unwrap();
    assert!(!read.is_trusted_by(&key(2).public()) && read.is_trusted_by(&key(3).public()));
}

#[test]
fn what_no_list_may_hold_is_neither_signed_nor_read() {
    let refused = |change: &dyn Fn(&mut RightsList)| {
        let mut wrong = list(7, KeyChain::new(key(1).public()), 0);
        assert!(wrong.sign(&key(1)).is_ok());
        change(&mut wrong);
        assert!(wrong.sign(&key(1)).is_err(), "{wrong:?}");
        let mut bytes = wrong.encode();
        bytes.extend_from_slice(&[0; SIGNATURE_BYTES]);
        assert!(RightsList::read(&bytes).is_err(), "{wrong:?}");
    };
    refused(&|list| list.tokens[1].id = "aa".into());
    refused(&|list| list.tokens[1].id = "cc".into());
    refused(&|list| list.tokens[1].id = String::new());
    refused(&|list| list.tokens[1].id = "a-b".into());
    refused(&|list| list.tokens[1].id = "a".repeat(33));
    refused(&|list| list.tokens[1].hash = list.tokens[0].hash);
    refused(&|list| list.tokens[1].name = "a\nb".into());
    refused(&|list| list.tokens[1].name = "x".repeat(201));
    refused(&|list| list.tokens[1].rules = vec!["x".repeat(4_097)]);
    refused(&|list| list.tokens[1].rules = vec![String::new(); 1_001]);
    refused(&|list| list.removed.push(("cc".into(), 18)));
    refused(&|list| list.removed.push(("d d".into(), 18)));
    let mut many = list(7, KeyChain::new(key(1).public()), 0);
    many.tokens[1].rules = vec!["x".repeat(4_096); 1_000];
    assert!(matches!(
        many.sign(&key(1)),
        Err(RightsError::Large(bytes)) if bytes > RIGHTS_BYTES_MAX
    ));
}
