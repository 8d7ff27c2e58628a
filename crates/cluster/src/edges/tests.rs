//! Tests of the registry of edges.

#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn many_edges_are_added_in_one_write_with_ranks_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    let names: Vec<String> = (0..1_000).map(|n| format!("gw-{n}")).collect();
    let of = |names: &[String]| -> Vec<NewEdge> {
        let names = names.iter().map(|name| NewEdge {
            edge: name.clone(),
            ..NewEdge::default()
        });
        names.collect()
    };
    let before = edges.version();
    let secrets = edges.invite_new(&of(&names), None, NOW, HOUR).unwrap();
    assert_eq!(edges.version(), before + 1);
    for (name, secret) in names.iter().zip(&secrets) {
        let owner = Secret::Invite(name.clone());
        assert_eq!(edges.find(secret, NOW), Some(owner));
    }
    assert!(edges.all().is_sorted_by(|a, b| a.rank() < b.rank()));
    // All or none, also in the file.
    let bad = ["new", "gw-7"].map(str::to_owned);
    assert!(edges.invite_new(&of(&bad), None, NOW, HOUR).is_err());
    assert!(edges.get("new").is_err());
    let read = Edges::open(dir.path()).unwrap();
    assert_eq!(read.all(), edges.all());
}

#[test]
fn an_invitation_is_worth_one_edge_and_a_key_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    let invite = edges.invite("pump-7", None, NOW, HOUR, false).unwrap();
    assert_eq!(
        edges.find(&invite, NOW),
        Some(Secret::Invite("pump-7".into()))
    );
    let lost = edges.redeem("pump-7").unwrap();
    // The answer was lost: the edge repeats the request, and the first key is invalid.
    let key = edges.redeem("pump-7").unwrap();
    assert_eq!(edges.find(&lost, NOW), None);
    assert_eq!(edges.find(&key, NOW), Some(Secret::Key("pump-7".into())));
    edges.set_connected("pump-7").unwrap();
    assert_eq!(edges.find(&invite, NOW), None);
    // The old machine connects once more, after the next one was invited.
    let next = edges.invite("pump-7", None, NOW, HOUR, true).unwrap();
    edges.set_connected("pump-7").unwrap();
    assert_eq!(
        edges.find(&next, NOW),
        Some(Secret::Invite("pump-7".into()))
    );
    let edges = Edges::open(dir.path()).unwrap();
    assert_eq!(edges.find(&key, NOW), Some(Secret::Key("pump-7".into())));
    let text = std::fs::read_to_string(dir.path().join("edges.json")).unwrap();
    assert!(!text.contains(&key) && !text.contains(&invite));
}

#[test]
fn a_key_ends_when_the_next_one_is_shown_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    edges.invite("a", None, NOW, HOUR, false).unwrap();
    assert_eq!(edges.rotate_keys(None).unwrap(), 0, "it has no key yet");
    let first = edges.redeem("a").unwrap();
    assert_eq!(edges.rotate_keys(None).unwrap(), 1);
    assert!(edges.get("a").unwrap().is_key_due);
    let of_a = Some(Secret::Key("a".into()));
    // A key that never arrived, and the one after it: the first one is valid all the time.
    let lost = edges.issue_key("a").unwrap();
    let next = edges.issue_key("a").unwrap();
    // The cloud restarts.
    let mut edges = Edges::open(dir.path()).unwrap();
    let found = |edges: &Edges, key: &str| edges.find(key, NOW);
    assert_eq!(
        [&first, &next].map(|key| found(&edges, key)),
        [of_a.clone(), of_a.clone()]
    );
    assert_eq!(found(&edges, &lost), None);
    assert!(!edges.confirm_key("a", &first).unwrap());
    assert!(!edges.confirm_key("a", &lost).unwrap());
    assert!(edges.confirm_key("a", &next).unwrap());
    assert!(!edges.confirm_key("a", &next).unwrap());
    let edges = Edges::open(dir.path()).unwrap();
    assert_eq!((found(&edges, &first), found(&edges, &next)), (None, of_a));
    assert!(!edges.get("a").unwrap().is_key_due);
    let text = std::fs::read_to_string(dir.path().join("edges.json")).unwrap();
    assert!(!text.contains(&next) && !text.contains("next_key"));
}

#[test]
fn a_list_of_an_earlier_version_is_read_and_the_next_one_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edges.json");
    let first = r#"{"version": 1, "edges": [
        {"name": "a", "created_ns": 7, "want": "full", "is_paused": false, "identity": 9}]}"#;
    std::fs::write(&path, first).unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    let edge = edges.get("a").unwrap();
    assert_eq!(
        (edge.folder(), edge.rank(), edge.identity),
        ("a", 7, Some(9))
    );
    edges.start_over("a", NOW, true).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let expected = include_str!("../../tests/golden/edges_v2.json");
    assert_eq!(written, expected, "{written}");
    let edges = Edges::open(dir.path()).unwrap();
    let (edge, part) = (edges.get("a").unwrap(), &edges.list().parts[0]);
    assert_eq!((edge.folder(), edge.rank()), ("a+1", 8));
    assert_eq!((part.label().as_str(), part.folder.as_str()), ("a@1", "a"));
    assert_eq!((part.rank, part.edge.as_deref()), (7, Some("a")));
}

#[test]
fn an_invitation_ends_by_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    let invite = edges.invite("a", None, NOW, HOUR, false).unwrap();
    let late = Timestamp::from_nanos(NOW.as_nanos() + 3_600_000_000_000);
    assert_eq!(edges.find(&invite, late), None);
}

#[test]
fn names_are_unique_and_may_be_folders() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    edges.invite("a", None, NOW, HOUR, false).unwrap();
    let again = edges.invite("a", None, NOW, HOUR, false).unwrap_err();
    assert_eq!(again.kind(), ClusterErrorKind::NameExists);
    edges.invite("a", None, NOW, HOUR, true).unwrap();
    let absent = edges.invite("b", None, NOW, HOUR, true).unwrap_err();
    assert_eq!(absent.kind(), ClusterErrorKind::NotFound);
    for wrong in ["", ".", "..", ".a", "a/b", "a b", "ü", &"x".repeat(65)] {
        let error = edges.invite(wrong, None, NOW, HOUR, false).unwrap_err();
        assert_eq!(error.kind(), ClusterErrorKind::Invalid, "{wrong}");
    }
}

#[test]
fn a_file_that_is_none_stops_the_start_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edges.json");
    let mut edges = Edges::open(dir.path()).unwrap();
    edges.invite("a", None, NOW, HOUR, false).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    for wrong in [
        &good[..good.len() / 2],
        &good.replace("\"version\": 2", "\"version\": 3"),
        &good.replace("\"a\"", "\"../a\""),
    ] {
        std::fs::write(&path, wrong).unwrap();
        let error = Edges::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("edges.json"), "{error}");
    }
}
