//! Somebody who has everything of a database, as far as he was told of it.

use super::World;
use headwater_engine::{Database, ErrorKind, Reader, RemoteCopy, State};
use headwater_io::Env;
use headwater_types::Level;
use std::path::Path;

pub(super) struct FarCopy {
    copy: RemoteCopy,
}

/// A copy of a database, with all of its rows.
pub(super) fn far(db: &Database) -> FarCopy {
    let held = db.hold_state(None).unwrap();
    let dir = Path::new("/copies/1");
    let copy = RemoteCopy::begin(Env::memory(), dir, held.state(), Level::MIN).unwrap();
    drop(held);
    let far = FarCopy { copy };
    far.follow(db);
    far
}

impl FarCopy {
    /// Takes the newest state, and all that is missing of it.
    pub(super) fn follow(&self, db: &Database) {
        let held = db.hold_state(None).unwrap();
        let bytes = held.state().encode();
        self.copy
            .take_state(State::decode(&bytes, None).unwrap())
            .unwrap();
        loop {
            let missing = self.copy.missing(u64::MAX);
            if missing.is_empty() {
                break;
            }
            for one in missing {
                let bytes = u32::try_from(one.range.bytes).unwrap();
                match held.read(one.segment, one.range.offset, bytes) {
                    Ok(found) => self
                        .copy
                        .put(one.segment, one.range.offset, &found)
                        .unwrap(),
                    Err(error) => {
                        // Nothing is freed that it has not.
                        assert_ne!(error.kind(), ErrorKind::Elsewhere, "{error}");
                        panic!("{error}");
                    }
                }
            }
            self.copy.commit().unwrap();
        }
    }

    /// Segments of which all is here that is wanted, and how long they are.
    pub(super) fn complete(&self) -> Vec<(u64, u64)> {
        let complete = self.copy.progress().complete;
        let state = self.copy.state();
        let all = state.segments().map(|s| (s.id, s.bytes));
        all.filter(|(id, _)| complete.contains(id) && self.copy.is_complete(*id))
            .collect()
    }

    pub(super) fn reader(&self) -> Reader {
        self.copy.reader(World::new(0).options).unwrap()
    }
}
