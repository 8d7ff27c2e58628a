//! A cloud whose edges come, go, and take the place of one another, and its peer, which is told the
//! state now and then: answers are lost, and both end at any time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::super::{Edges, Secret, hexed};
use super::*;
use headwater_io::{Chance, SeededChance};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const NODE: u64 = 77;
const PEER: u64 = 78;

/// A copy as it is in a list: its name, rank, edge, reason, and identity.
type Copy = (String, u64, Option<String>, Option<&'static str>, u64);

struct World {
    chance: SeededChance,
    dirs: [PathBuf; 2],
    owner: Edges,
    peer: Edges,
    /// Identities of the databases of the owner's copies, by folders.
    data: BTreeMap<String, u64>,
    /// Keys that the owner has for its copies.
    keys: BTreeMap<String, String>,
    /// Folders of the peer, by identities.
    seen: BTreeMap<u64, String>,
    now: i64,
}

impl World {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.chance.next_u64()).unwrap_or(usize::MAX / 2) % bound.max(1)
    }

    fn now(&mut self) -> Timestamp {
        self.now += 1_000;
        Timestamp::from_nanos(self.now)
    }

    fn edge(&self) -> String {
        let all = self.owner.all();
        let edge = all.get(self.below(all.len()));
        edge.map_or_else(|| "none".to_owned(), |edge| edge.name.clone())
    }

    fn has_copy(&self, name: &str) -> bool {
        let edge = self.owner.get(name);
        edge.is_ok_and(|edge| self.data.contains_key(edge.folder()))
    }

    /// Deletes the folders that the list says, as a node does.
    fn delete(&mut self) {
        let dropped = self.owner.list().dropped.clone();
        for folder in &dropped {
            self.data.remove(folder);
            self.keys.remove(folder);
        }
        self.owner.set_deleted(&dropped).unwrap();
    }

    /// One change at the owner; those that are refused change nothing.
    fn change(&mut self) {
        let (name, other) = (self.edge(), format!("e{}", self.below(6)));
        let (now, has_copy) = (self.now(), self.has_copy(&name));
        match self.below(10) {
            0 | 1 => drop(self.owner.invite(&other, None, now, HOUR, false)),
            2 | 3 if !has_copy && self.owner.get(&name).is_ok() => {
                let identity = self.chance.next_u64();
                let folder = self.owner.get(&name).unwrap().folder().to_owned();
                self.data.insert(folder, identity);
                let known = |edge: &mut Edge| edge.identity = Some(identity);
                self.owner.update(&name, known).unwrap();
            }
            4 => drop(self.owner.start_over(&name, now, has_copy)),
            5 if self.below(3) == 0 => {
                let (pattern, at) = ("cpu".parse().unwrap(), self.now());
                drop(self.owner.move_streams(pattern, (&name, &other), at, now));
            }
            5 => drop(self.owner.rename(&name, &other, now)),
            6 => match self.owner.get(&other).is_ok() && name != other {
                true => drop(self.owner.replace_by_edge(&name, &other, now, has_copy)),
                false => drop(
                    self.owner
                        .replace_by_new(&name, &other, now, HOUR, has_copy),
                ),
            },
            7 => drop(self.owner.remove(&name, now, has_copy)),
            8 => {
                let last = self.owner.list().records.len().max(1);
                let at = self.below(last);
                let record = self.owner.list().records.get(at).map(|r| r.number);
                drop(self.owner.undo(record.unwrap_or_default(), now));
            }
            _ => {
                let parts = &self.owner.list().parts;
                let part = parts.get(self.below(parts.len())).map(ClosedPart::label);
                match part.filter(|_| self.below(2) == 0) {
                    Some(part) => drop(self.owner.remove_part(&part, now)),
                    None if self.below(3) == 0 => {
                        drop(self.owner.remove_with_history(&name, now));
                    }
                    None => {}
                }
                self.delete();
            }
        }
    }

    fn roster(&self) -> Roster {
        let list = self.owner.list();
        let data = |folder: &str| self.data.get(folder).copied();
        let edges = list.edges.iter();
        let edges = edges.filter_map(|e| Some(RosterCopy::of_edge(e, data(e.folder())?)));
        let parts = list.parts.iter();
        let parts = parts.filter_map(|p| Some(RosterCopy::of_part(p, data(&p.folder)?)));
        let copies = edges.chain(parts).map(|copy| RosterCopy {
            path: vec![hexed(NODE)],
            needs_key: !self.keys.contains_key(&copy.copy),
            ..copy.named_at_peer("north")
        });
        Roster {
            node: hexed(NODE),
            want: Default::default(),
            copies: copies.collect(),
            removed: list.removed(),
            moves: list.moves_for_peer(NODE, PEER),
        }
    }

    /// Sends the roster; the answer, or one of the two, may be lost.
    fn send(&mut self, loses: bool) -> RosterAnswer {
        let (roster, now) = (self.roster(), self.now());
        let answer = self.peer.mirror(&roster, PEER, now).unwrap();
        let version = self.peer.version();
        if roster.copies.iter().all(|copy| !copy.needs_key) {
            self.peer.mirror(&roster, PEER, now).unwrap();
            assert_eq!(
                self.peer.version(),
                version,
                "the second time changes nothing"
            );
        }
        match loses && self.below(3) == 0 {
            true => {}
            false => self.keys.extend(answer.keys.clone()),
        }
        for at in 0..2 {
            if loses && self.below(4) == 0 {
                let opened = Edges::open(&self.dirs[at]).unwrap();
                match at {
                    0 => self.owner = opened,
                    _ => self.peer = opened,
                }
            }
        }
        self.check_folders();
        answer
    }

    /// A copy stays in its folder, and is deleted only where the owner has deleted it.
    fn check_folders(&mut self) {
        let list = self.peer.list();
        let edges = list.edges.iter().map(|e| (e.identity, e.folder()));
        let parts = list.parts.iter();
        let here: BTreeMap<u64, String> = edges
            .chain(parts.map(|p| (p.identity, p.folder.as_str())))
            .filter_map(|(identity, folder)| Some((identity?, folder.to_owned())))
            .collect();
        for (identity, folder) in &self.seen {
            match here.get(identity) {
                Some(at) => assert_eq!(at, folder, "a copy was moved"),
                None => assert!(
                    !self.data.values().any(|id| id == identity),
                    "a copy is gone"
                ),
            }
        }
        self.seen = here;
    }
}

/// Copies with data in a list.
fn copies(list: &List, data: &dyn Fn(&str, Option<u64>) -> Option<u64>) -> Vec<Copy> {
    let edges = list.edges.iter().filter_map(|edge| {
        let identity = data(edge.folder(), edge.identity)?;
        Some((edge.name.clone(), edge.rank(), None, None, identity))
    });
    let parts = list.parts.iter().filter_map(|part| {
        let identity = data(&part.folder, part.identity)?;
        let why = Some(part.why.text());
        Some((part.label(), part.rank, part.edge.clone(), why, identity))
    });
    let mut all: Vec<Copy> = edges.chain(parts).collect();
    all.sort();
    all
}

/// The name of an edge or closed part of the owner, at the peer.
fn there(name: &str) -> String {
    match name.split_once('@') {
        Some((name, number)) => format!("{name}.north@{number}"),
        None => format!("{name}.north"),
    }
}

fn run(seed: u64) {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = [dirs[0].path().to_owned(), dirs[1].path().to_owned()];
    let mut world = World {
        chance: SeededChance::new(seed),
        owner: Edges::open(&paths[0]).unwrap(),
        peer: Edges::open(&paths[1]).unwrap(),
        dirs: paths,
        data: BTreeMap::new(),
        keys: BTreeMap::new(),
        seen: BTreeMap::new(),
        now: 1_700_000_000_000_000_000,
    };
    // An edge of the peer has the name of one.
    let now = world.now();
    let invited = world.peer.invite("e5.north", None, now, HOUR, false);
    drop(invited.unwrap());
    for _ in 0..120 {
        world.change();
        if world.below(3) == 0 {
            world.send(true);
        }
    }
    let answer = world.send(false);
    let is_alike = |(_, reason): (&String, &String)| reason.contains("e5.north");
    assert!(answer.errors.iter().all(is_alike), "{:?}", answer.errors);
    let now = world.now();
    world.peer.remove("e5.north", now, false).unwrap();
    world.send(false);
    let answer = world.send(false);
    assert!(
        answer.keys.is_empty() && answer.errors.is_empty(),
        "{answer:?}"
    );
    let data = &world.data;
    let mut wanted = copies(world.owner.list(), &|folder, _| data.get(folder).copied());
    for (name, _, edge, ..) in &mut wanted {
        *name = there(name);
        *edge = edge.as_deref().map(there);
    }
    wanted.sort();
    let found = copies(world.peer.list(), &|_, identity| identity);
    assert_eq!(found, wanted, "seed {seed}");
    // Told as the owner tells them: by the identities of databases.
    let told = world.peer.list().moves_for_peer(PEER, 0);
    assert_eq!(told, world.owner.list().moves_for_peer(NODE, PEER));
    for copy in world.roster().copies {
        let key = world.keys.get(&copy.copy).unwrap();
        let name = match copy.closed {
            None => copy.name,
            Some(closed) => format!("{}@{}", copy.name, closed.number),
        };
        let known = world.peer.find(key, Timestamp::from_nanos(world.now));
        assert_eq!(known, Some(Secret::Key(name)), "seed {seed}");
    }
}

#[test]
fn a_peer_has_the_same_edges_and_closed_parts_whatever_is_lost_in_between() {
    for seed in 0..40 {
        run(seed);
    }
}

#[test]
fn an_edge_of_the_peer_itself_is_never_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = Edges::open(dir.path()).unwrap();
    let now = Timestamp::from_nanos(5);
    drop(edges.invite("own", None, now, HOUR, false).unwrap());
    let copy = |name: &str| RosterCopy {
        copy: "own".to_owned(),
        name: name.to_owned(),
        identity: hexed(9),
        tags: Default::default(),
        path: vec![hexed(NODE)],
        created_ns: Some(3),
        closed_before: 0,
        closed: None,
        needs_key: true,
    };
    let roster = |copies: Vec<RosterCopy>, removed: &[u64]| Roster {
        node: hexed(NODE),
        want: Default::default(),
        copies,
        removed: removed
            .iter()
            .map(|identity| super::super::list::RosterRemoved {
                copy: "own".to_owned(),
                identity: hexed(*identity),
            })
            .collect(),
        moves: Vec::new(),
    };
    let answer = edges
        .mirror(&roster(vec![copy("own")], &[]), PEER, now)
        .unwrap();
    assert!(answer.keys.is_empty() && answer.errors.contains_key("own"));
    assert_eq!(edges.get("own").unwrap().identity, None);
    edges
        .mirror(&roster(vec![copy("a")], &[8]), PEER, now)
        .unwrap();
    assert_eq!(edges.get("a").unwrap().identity, Some(9));
    assert_eq!(edges.path_of(edges.get("a").unwrap().folder()), [NODE]);
    // A roster of another node, and one that does not name it, change nothing.
    let other = Roster {
        node: hexed(1),
        ..roster(Vec::new(), &[9])
    };
    edges.mirror(&other, PEER, now).unwrap();
    edges.mirror(&roster(Vec::new(), &[8]), PEER, now).unwrap();
    assert!(edges.get("a").is_ok());
    edges.mirror(&roster(Vec::new(), &[9]), PEER, now).unwrap();
    assert!(edges.get("a").is_err() && edges.get("own").is_ok());
    assert_eq!(edges.list().dropped.len(), 1);
}

#[test]
fn the_file_and_the_roster_have_the_form_of_their_pages() {
    let dir = tempfile::tempdir().unwrap();
    let golden = include_str!("../../../tests/golden/edges_v2_peer.json");
    std::fs::write(dir.path().join("edges.json"), golden).unwrap();
    let edges = Edges::open(dir.path()).unwrap();
    let (_, written) = edges.file_to_persist().unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), golden);
    assert_eq!(edges.path_of("pump.north"), [NODE]);
    let copies = vec![
        RosterCopy {
            path: vec![hexed(NODE)],
            ..RosterCopy::of_edge(&edges.all()[0], 10)
        },
        RosterCopy::of_part(&edges.list().parts[0], 9),
    ];
    let roster = Roster {
        node: hexed(NODE),
        want: Default::default(),
        copies,
        removed: edges.list().removed(),
        moves: Vec::new(),
    };
    let expected = concat!(
        r#"{"node":"000000000000004d","want":"full","copies":["#,
        r#"{"copy":"pump.north+2","name":"pump.north","identity":"000000000000000a","#,
        r#""path":["000000000000004d"],"created_ns":7,"closed_before":1,"needs_key":false},"#,
        r#"{"copy":"pump.north","name":"pump.north","identity":"0000000000000009","path":[],"#,
        r#""closed_before":0,"closed":{"number":1,"rank":7,"edge":"pump.north","closed_ns":8,"#,
        r#""why":"replaced"},"needs_key":false}],"#,
        r#""removed":[{"copy":"fan.north","identity":"000000000000000c"}],"moves":[]}"#
    );
    let text = serde_json::to_string(&roster).unwrap();
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Roster>(&text).unwrap(), roster);
}
