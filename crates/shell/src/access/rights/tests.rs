//! Tests of a list of rights between a cloud and a node.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use super::keys::RightsKeys;
use super::received::{ReceivedFile, TakeError};
use super::*;
use crate::access::Access;
use crate::access::guard::{Denied, Guard};
use crate::access::rules::Action;
use crate::access::token::Carried;
use crate::access::tokens::{FetchLimit, NewToken, TokenError, TokenFile};
use headwater_io::ManualClock;
use headwater_protocol::rights::RightsError;
use jiff::SignedDuration;
use std::time::Duration;
use tempfile::TempDir;

const CLOUD: u64 = 7;
const DAY: SignedDuration = SignedDuration::from_hours(24);

struct Cloud {
    dir: TempDir,
    clock: Arc<ManualClock>,
    file: TokenFile,
}

fn create(file: &TokenFile, name: &str, rules: &[&str]) -> String {
    file.create(NewToken {
        name: name.to_owned(),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        expires: None,
    })
    .unwrap()
}

impl Cloud {
    fn new() -> Cloud {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(headwater_io::Env::MEMORY_START));
        let file = TokenFile::of_database(dir.path()).with_clock(Arc::clone(&clock) as _);
        Cloud { dir, clock, file }
    }

    fn keys(&self) -> RightsKeys {
        RightsKeys::open(self.dir.path(), CLOUD).unwrap()
    }

    /// The list that is sent now.
    fn list(&self) -> Vec<u8> {
        let tokens = self.file.read().unwrap().unwrap();
        self.keys().sign(&tokens, self.file.now()).unwrap()
    }

    fn signs_with(&self) -> [u8; 32] {
        let tokens = self.file.read().unwrap().unwrap();
        self.keys().signing_key(&tokens, self.file.now())
    }
}

struct Node {
    file: TokenFile,
    received: ReceivedFile,
    guard: Arc<Guard>,
    dir: TempDir,
}

fn guard(file: &TokenFile, list: ListUse, vetoes: &[&str]) -> Arc<Guard> {
    let vetoes: Vec<AccessRule> = vetoes.iter().map(|veto| veto.parse().unwrap()).collect();
    let policy = RightsPolicy {
        list,
        vetoes: vetoes.into(),
        ..RightsPolicy::default()
    };
    Arc::new(Guard::new(file.clone()).unwrap().with_rights(policy))
}

impl Node {
    fn new(list: ListUse, vetoes: &[&str]) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of_database(dir.path());
        Node {
            received: ReceivedFile::of_database(dir.path()),
            guard: guard(&file, list, vetoes),
            file,
            dir,
        }
    }

    fn take(&self, list: &[u8]) -> Result<bool, TakeError> {
        let taken = self.received.take(list, None);
        self.guard.refresh();
        taken
    }

    fn admit(&self, token: &str) -> Result<Access, Denied> {
        self.guard.admit(&Carried::Token(token.to_owned()))
    }
}

#[test]
fn the_budget_of_a_token_travels_with_the_list() {
    let cloud = Cloud::new();
    let token = NewToken {
        name: "board".to_owned(),
        rules: vec!["read pumps".parse().unwrap()],
        expires: None,
    };
    let limit = Some(FetchLimit::Bytes(10 << 20));
    let board = cloud.file.create_with_budget(token, limit).unwrap();
    let plain = create(&cloud.file, "plain", &["read pumps"]);
    let node = Node::new(ListUse::Require, &[]);
    assert!(node.take(&cloud.list()).unwrap());
    let budget = |token: &str| match node.admit(token).unwrap() {
        Access::Token { grant, .. } => (grant.fetch_per_day, grant.rules.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(budget(&board), (limit, 1));
    assert_eq!(budget(&plain), (None, 1));
}

#[test]
fn a_list_above_its_age_is_told_and_refused_where_the_policy_says_so() {
    let cloud = Cloud::new();
    let reader = create(&cloud.file, "reader", &["read *"]);
    let clock = Arc::new(ManualClock::new(headwater_io::Env::MEMORY_START));
    for refuses_stale in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of_database(dir.path()).with_clock(Arc::clone(&clock) as _);
        let own = create(&file, "own", &["read *"]);
        let received = ReceivedFile::of_database(dir.path());
        let open = || {
            let policy = RightsPolicy {
                list: ListUse::Accept,
                max_age: Some(Duration::from_secs(3_600)),
                refuses_stale,
                ..RightsPolicy::default()
            };
            Arc::new(Guard::new(file.clone()).unwrap().with_rights(policy))
        };
        let guard = open();
        assert_eq!((guard.received_age(), guard.is_stale()), (None, false));
        assert!(received.take(&cloud.list(), None).unwrap());
        guard.confirm_received();
        guard.refresh();
        let admits = |guard: &Arc<Guard>, token: &str| {
            guard.admit(&Carried::Token(token.to_owned())).is_ok()
        };
        let access = guard.admit(&Carried::Token(reader.clone())).unwrap();
        for (seconds, is_stale) in [(3_600, false), (1, true), (86_400, true)] {
            clock.advance(Duration::from_secs(seconds));
            assert_eq!(guard.is_stale(), is_stale);
            let is_valid = !(is_stale && refuses_stale);
            assert_eq!(admits(&guard, &reader), is_valid);
            assert_eq!(access.is_current(), is_valid);
            assert!(admits(&guard, &own));
            // After a restart it is as old.
            assert_eq!(open().is_stale(), is_stale);
            assert_eq!(admits(&open(), &reader), is_valid);
        }
        guard.confirm_received();
        assert!(!guard.is_stale() && admits(&guard, &reader) && access.is_current());
        assert!(!open().is_stale());
    }
}

fn tags(site: &str) -> Vec<(String, String)> {
    vec![("site".to_owned(), site.to_owned())]
}

#[test]
fn a_token_of_the_cloud_is_valid_at_a_node_within_its_rules_until_it_is_revoked() {
    let cloud = Cloud::new();
    let reader = create(&cloud.file, "reader", &["read pumps,site=4"]);
    let other = create(&cloud.file, "other", &["read *", "write pumps"]);
    let node = Node::new(ListUse::Accept, &[]);
    let own = create(&node.file, "own", &["read fans"]);
    node.guard.refresh();
    assert_eq!(node.admit(&reader).unwrap_err(), Denied::Wrong);
    assert!(node.take(&cloud.list()).unwrap());
    let access = node.admit(&reader).unwrap();
    assert!(access.may_read("pumps", &tags("4")) && !access.may_read("pumps", &tags("5")));
    assert!(!access.may_write("pumps", &tags("4")) && access.is_current());
    assert!(node.admit(&other).unwrap().reads_all());
    assert!(node.admit(&own).unwrap().may_read("fans", &[]));
    cloud.file.revoke("reader").unwrap();
    assert!(node.take(&cloud.list()).unwrap());
    assert!(!access.is_current());
    assert_eq!(node.admit(&reader).unwrap_err(), Denied::Wrong);
    assert!(node.admit(&other).unwrap().is_current());
    // The list is in force after a restart, and ends with its file.
    let again = guard(&node.file, ListUse::Accept, &[]);
    assert!(again.admit(&Carried::Token(other.clone())).is_ok());
    let without = guard(&node.file, ListUse::Ignore, &[]);
    assert!(without.admit(&Carried::Token(other.clone())).is_err());
    node.received.remove().unwrap();
    node.guard.refresh();
    assert_eq!(node.admit(&other).unwrap_err(), Denied::Wrong);
    assert!(node.admit(&own).is_ok());
}

#[test]
fn an_expiry_of_the_cloud_counts_at_the_node() {
    let cloud = Cloud::new();
    let ended = cloud.file.create(NewToken {
        name: "ended".to_owned(),
        rules: vec!["read *".parse().unwrap()],
        expires: Some("2024-01-01T00:00:10Z".parse().unwrap()),
    });
    let lasts = cloud.file.create(NewToken {
        name: "lasts".to_owned(),
        rules: vec!["read *".parse().unwrap()],
        expires: Some(Timestamp::MAX),
    });
    let node = Node::new(ListUse::Require, &[]);
    node.take(&cloud.list()).unwrap();
    assert!(node.admit(&ended.unwrap()).is_err());
    assert!(node.admit(&lasts.unwrap()).is_ok());
}

#[test]
fn the_list_of_the_node_comes_first() {
    let cloud = Cloud::new();
    let token = create(&cloud.file, "a", &["read *"]);
    let node = Node::new(ListUse::Accept, &[]);
    // The same token in a list of the node, as it was copied by hand, with other rules.
    let text = std::fs::read_to_string(cloud.file.path()).unwrap();
    std::fs::write(node.file.path(), text.replace("read *", "read fans")).unwrap();
    node.guard.refresh();
    node.take(&cloud.list()).unwrap();
    let access = node.admit(&token).unwrap();
    assert!(access.may_read("fans", &[]) && !access.may_read("pumps", &[]));
    // What the node has revoked is not valid by the other list.
    node.file.revoke("a").unwrap();
    node.guard.refresh();
    assert!(!access.is_current() && node.admit(&token).is_err());
}

#[test]
fn a_veto_removes_rights_of_the_list_and_of_nothing_else() {
    let cloud = Cloud::new();
    let admin = create(&cloud.file, "admin", &["read *", "write *", "manage *"]);
    let vetoes = [
        "write *",
        "read payroll",
        "read cars,site=4",
        "manage cars,site=4",
    ];
    let node = Node::new(ListUse::Accept, &vetoes);
    let own = create(&node.file, "own", &["read *", "write *", "manage *"]);
    node.guard.refresh();
    node.take(&cloud.list()).unwrap();
    let access = node.admit(&admin).unwrap();
    assert!(!access.any(Action::Write) && !access.may_write("cars", &tags("5")));
    assert!(!access.any_with_prefix(Action::Write, "c"));
    assert!(!access.reads_all() && !access.may_read("payroll", &[]));
    assert!(!access.may_read_some_of("payroll") && access.may_read_some_of("cars"));
    assert!(access.may_read("cars", &tags("5")) && !access.may_read("cars", &tags("4")));
    // Fields of the table belong to streams of both kinds, and so does its removal.
    assert!(!access.shows_all_fields("cars") && access.shows_all_fields("boats"));
    assert!(!access.may(Action::Manage, "cars", &[]));
    assert!(access.may(Action::Manage, "boats", &[]));
    let access = node.admit(&own).unwrap();
    assert!(access.reads_all() && access.writes_all() && access.all(Action::Manage));
}

#[test]
fn a_node_without_tokens_of_its_own_is_open_or_locked_as_its_policy_says() {
    let cloud = Cloud::new();
    let token = create(&cloud.file, "a", &["read pumps"]);
    let open = Node::new(ListUse::Accept, &[]);
    open.take(&cloud.list()).unwrap();
    assert!(open.guard.is_open() && open.admit(&token).unwrap().writes_all());
    let locked = Node::new(ListUse::Require, &[]);
    assert!(!locked.guard.is_open());
    let missing = locked.guard.admit(&Carried::Missing);
    assert_eq!(missing.unwrap_err(), Denied::Missing);
    assert!(locked.admit(&token).is_err());
    locked.take(&cloud.list()).unwrap();
    assert!(locked.admit(&token).unwrap().may_read("pumps", &[]));
}

#[test]
fn a_list_never_goes_back_and_belongs_to_one_cloud() {
    let cloud = Cloud::new();
    create(&cloud.file, "a", &["read *"]);
    let first = cloud.list();
    create(&cloud.file, "b", &["read *"]);
    let second = cloud.list();
    let node = Node::new(ListUse::Accept, &[]);
    assert!(node.take(&second).unwrap());
    assert!(!node.take(&second).unwrap(), "the same list");
    let older = node.take(&first).unwrap_err();
    assert!(
        matches!(older, TakeError::Older { have: 2, got: 1 }),
        "{older}"
    );
    // Another list of the same number, of the same key.
    let text = std::fs::read_to_string(cloud.file.path()).unwrap();
    std::fs::write(cloud.file.path(), text.replace("read *", "write *")).unwrap();
    let other = node.take(&cloud.list()).unwrap_err();
    assert!(matches!(other, TakeError::Conflict(2)), "{other}");
    // Another key, and another cloud.
    let stranger = Cloud::new();
    for name in ["a", "b", "c"] {
        create(&stranger.file, name, &["read *"]);
    }
    let foreign = node.take(&stranger.list()).unwrap_err();
    assert!(
        matches!(foreign, TakeError::Rights(RightsError::Key)),
        "{foreign}"
    );
    let keys = RightsKeys::read(stranger.dir.path()).unwrap().unwrap();
    drop(keys);
    let path = RightsKeys::path_in(stranger.dir.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let renamed = text.replace(&format!("{CLOUD:016x}"), &format!("{:016x}", CLOUD + 1));
    std::fs::write(&path, renamed).unwrap();
    let wrong = RightsKeys::open(stranger.dir.path(), CLOUD).unwrap_err();
    assert!(wrong.to_string().contains("rights.keys"), "{wrong}");
    let tokens = stranger.file.read().unwrap().unwrap();
    let keys = RightsKeys::open(stranger.dir.path(), CLOUD + 1).unwrap();
    let foreign = keys.sign(&tokens, stranger.file.now()).unwrap();
    let foreign = node.take(&foreign).unwrap_err();
    assert!(matches!(foreign, TakeError::Cloud { .. }), "{foreign}");
    assert_eq!(node.received.read().unwrap().unwrap().bytes, second);
    // A damaged file is neither read nor overwritten.
    std::fs::write(node.received.path(), b"HWRIGHTS\x01damage").unwrap();
    let damaged = node.take(&second).unwrap_err();
    assert!(damaged.to_string().contains("rights.list"), "{damaged}");
    assert!(node.guard.with_received(|list| list.number) == Some(2));
    assert!(node.dir.path().join("rights.list").exists());
}

#[test]
fn the_key_that_came_with_joining_is_trusted_and_no_other() {
    let (cloud, stranger) = (Cloud::new(), Cloud::new());
    create(&cloud.file, "a", &["read *"]);
    create(&stranger.file, "a", &["read *"]);
    let node = Node::new(ListUse::Accept, &[]);
    let pin = cloud.signs_with();
    let foreign = node
        .received
        .take(&stranger.list(), Some(&pin))
        .unwrap_err();
    assert!(
        matches!(foreign, TakeError::Rights(RightsError::Key)),
        "{foreign}"
    );
    assert!(node.received.take(&cloud.list(), Some(&pin)).unwrap());
}

#[test]
fn a_rotation_is_followed_in_its_overlap_and_long_after_it() {
    let cloud = Cloud::new();
    create(&cloud.file, "a", &["read *"]);
    let no_keys = RightsKeys::rotate(&cloud.file, DAY).unwrap_err();
    assert!(matches!(no_keys, TokenError::NoKeys), "{no_keys}");
    let first = cloud.signs_with();
    let (present, away) = (
        Node::new(ListUse::Accept, &[]),
        Node::new(ListUse::Accept, &[]),
    );
    for node in [&present, &away] {
        assert!(node.take(&cloud.list()).unwrap());
    }
    let before = cloud.list();
    let second = RightsKeys::rotate(&cloud.file, DAY).unwrap();
    // The key before signs until the end of the overlap, and names the next one.
    assert_eq!(cloud.signs_with(), first);
    let status = cloud
        .keys()
        .status(&cloud.file.read().unwrap().unwrap(), cloud.file.now());
    assert_eq!(status.next.unwrap().0, second);
    let again = RightsKeys::rotate(&cloud.file, DAY).unwrap_err();
    assert!(matches!(again, TokenError::Rotating(_)), "{again}");
    assert!(present.take(&cloud.list()).unwrap());
    // In the overlap, both are accepted: a list that another machine of the cloud, which is not
    // restarted yet, signs with the key before, and one with the new key.
    let in_overlap = cloud.list();
    cloud.clock.advance(Duration::from_secs(86_401));
    assert_eq!(cloud.signs_with(), second);
    assert!(
        present.take(&cloud.list()).unwrap(),
        "the same number, a later key"
    );
    // The key before has ended with that.
    assert!(present.take(&in_overlap).is_err() && present.take(&before).is_err());
    let secrets = std::fs::read_to_string(RightsKeys::path_in(cloud.dir.path())).unwrap();
    assert!(secrets.contains("\"seed\""));
    // Two more, one of them at once, while a node is away.
    let third = RightsKeys::rotate(&cloud.file, DAY).unwrap();
    let fourth = RightsKeys::rotate(&cloud.file, SignedDuration::ZERO).unwrap();
    assert_eq!(cloud.signs_with(), fourth);
    assert_ne!(third, fourth);
    create(&cloud.file, "b", &["read *"]);
    for node in [&present, &away] {
        assert!(node.take(&cloud.list()).unwrap());
        let known = node.received.read().unwrap().unwrap().list;
        assert_eq!(known.signing_key(), &fourth);
    }
    // Secrets of keys that do not sign any more are gone: the next rotation removes them.
    RightsKeys::rotate(&cloud.file, DAY).unwrap();
    let stored = std::fs::read_to_string(RightsKeys::path_in(cloud.dir.path())).unwrap();
    assert_eq!(stored.matches("\"seed\"").count(), 2, "{stored}");
}

#[test]
fn a_rotation_that_was_interrupted_is_named_by_no_list_of_an_earlier_number() {
    let cloud = Cloud::new();
    create(&cloud.file, "a", &["read *"]);
    let node = Node::new(ListUse::Accept, &[]);
    node.take(&cloud.list()).unwrap();
    let tokens = std::fs::read(cloud.file.path()).unwrap();
    RightsKeys::rotate(&cloud.file, DAY).unwrap();
    // The keys were written, and the list was not.
    std::fs::write(cloud.file.path(), tokens).unwrap();
    assert!(
        !node.take(&cloud.list()).unwrap(),
        "the same list as before"
    );
    create(&cloud.file, "b", &["read *"]);
    assert!(node.take(&cloud.list()).unwrap());
    assert_eq!(
        node.received
            .read()
            .unwrap()
            .unwrap()
            .list
            .keys
            .rotations
            .len(),
        1
    );
}
