//! Six who put one object at once: one wins, each time. The same race is seen to have several
//! winners with a store that does not keep its conditions.

use headwater_bucket::{
    Answer, Careless, Directory, Etag, Memory, ObjectStore, Put, Request, carry_out,
};
use std::process::{Command, Stdio};
use std::sync::Barrier;

pub(crate) const RACERS: usize = 6;
const OPEN: &str = "the store is there";

/// What each of six gets when all replace one version at once, so often; and create, likewise.
pub(crate) fn race(stores: &[&dyn ObjectStore], base: &str, rounds: usize) -> Vec<usize> {
    let mut winners = Vec::new();
    for round in 0..rounds {
        let created = format!("{base}/create-{round}");
        let replaced = format!("{base}/replace-{round}");
        let etag = match stores[0].create(&replaced, b"before").expect(OPEN) {
            Put::Stored(etag) => etag,
            Put::Refused => panic!("{replaced} was there"),
        };
        winners.push(at_once(stores, &|number| Request::Create {
            key: created.clone(),
            bytes: number.to_string().into_bytes().into(),
        }));
        winners.push(at_once(stores, &|number| Request::Replace {
            key: replaced.clone(),
            bytes: number.to_string().into_bytes().into(),
            expected: etag.clone(),
        }));
    }
    winners
}

fn at_once(stores: &[&dyn ObjectStore], request: &(dyn Fn(usize) -> Request + Sync)) -> usize {
    let barrier = Barrier::new(RACERS);
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|number| {
                let store = stores[number % stores.len()];
                let barrier = &barrier;
                scope.spawn(move || {
                    let request = request(number);
                    barrier.wait();
                    let mut answer = carry_out(store, &request);
                    // A server may say that two came at once; then it is tried again.
                    while let Answer::Failed(failure) = &answer {
                        assert!(!failure.is_final, "{failure}");
                        answer = carry_out(store, &request);
                    }
                    matches!(answer, Answer::Put(Put::Stored(_)))
                })
            })
            .collect();
        let won = racers.into_iter().map(|racer| racer.join().unwrap());
        won.filter(|won| *won).count()
    })
}

#[test]
fn of_six_threads_one_wins_each_time() {
    let store = Memory::default();
    assert_eq!(race(&[&store], "race", 50), vec![1; 100]);
}

#[test]
fn of_six_who_have_the_directory_open_one_wins_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let stores: Vec<Directory> = (0..RACERS)
        .map(|_| Directory::new(dir.path()).unwrap())
        .collect();
    let stores: Vec<&dyn ObjectStore> = stores.iter().map(|s| s as &dyn ObjectStore).collect();
    assert_eq!(race(&stores, "race", 10), vec![1; 20]);
}

#[test]
fn the_race_finds_out_a_store_without_conditions() {
    let store = Careless::new(Memory::default());
    let winners = race(&[&store], "race", 20);
    assert!(winners.iter().any(|n| *n > 1), "{winners:?}");
}

/// Where a racer of its own process finds the directory, and which version it is to replace.
const DIRECTORY: &str = "HEADWATER_TEST_RACE";

#[test]
fn of_six_processes_one_wins_each_time() {
    if let Ok(said) = std::env::var(DIRECTORY) {
        return race_as_a_process(&said);
    }
    let dir = tempfile::tempdir().unwrap();
    let store = Directory::new(dir.path()).unwrap();
    for round in 0..5 {
        let key = format!("round-{round}");
        let Put::Stored(etag) = store.create(&key, b"before").unwrap() else {
            panic!("{key} was there");
        };
        let racers: Vec<_> = (0..RACERS)
            .map(|number| {
                let said = format!("{}|{key}|{}|{number}", dir.path().display(), etag.0);
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "race::of_six_processes_one_wins_each_time"])
                    .env(DIRECTORY, said)
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut racer in racers {
            assert!(racer.wait().unwrap().success());
        }
        let won = store.list(&format!("won/{key}/"), "").unwrap().objects;
        assert_eq!(won.len(), 1, "{won:?}");
        let object = store.get(&key).unwrap().unwrap();
        let winner = won[0].key.rsplit_once('/').unwrap().1;
        assert_eq!(object.bytes, winner.as_bytes());
    }
}

/// Waits for the others at files, puts, and leaves an object if it won.
fn race_as_a_process(said: &str) {
    let parts: Vec<&str> = said.split('|').collect();
    let [dir, key, etag, number] = parts[..] else {
        panic!("{said}");
    };
    let store = Directory::new(dir.as_ref()).unwrap();
    store.create(&format!("ready/{key}/{number}"), b"").unwrap();
    while store
        .list(&format!("ready/{key}/"), "")
        .unwrap()
        .objects
        .len()
        < RACERS
    {
        std::thread::yield_now();
    }
    let put = store.replace(key, number.as_bytes(), &Etag(etag.to_owned()));
    if let Put::Stored(_) = put.unwrap() {
        store.create(&format!("won/{key}/{number}"), b"").unwrap();
    }
}
