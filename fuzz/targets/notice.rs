//! Reading a notice never panics, and neither does following a node by whatever comes.
#![no_main]

use headwater_fuzz::split_mode;
use headwater_protocol::notice::{Follower, NodeVersion, Notice, NoticeKey, NoticeOutcome, Sealed};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let Some((is_signed, rest)) = split_mode(data) else {
        return;
    };
    let Some(key) = NoticeKey::of_seed(&[1; 32]) else {
        return;
    };
    let mut bytes = rest.to_vec();
    if let Ok(notice) = Notice::decode(rest) {
        assert_eq!(Notice::decode(&notice.encode()).as_ref(), Ok(&notice));
        if is_signed {
            bytes = key.seal(&notice);
        }
    }
    let Ok(sealed) = Sealed::decode(&bytes) else {
        return;
    };
    let mut follower = Follower::new(Duration::from_secs(60));
    follower.link(true);
    follower.begin_query();
    let told = NodeVersion {
        identity: sealed.claims_identity(),
        incarnation: 1,
        epoch: 1,
        version: 5,
        key: Some(key.public()),
    };
    follower.answered(Duration::from_secs(1), told);
    let heard = follower.receive(&sealed);
    assert_eq!(
        heard == NoticeOutcome::Forged,
        sealed.proven_by(&key.public()).is_none()
    );
    if heard != NoticeOutcome::Forged {
        assert!(matches!(
            follower.receive(&sealed),
            NoticeOutcome::AlreadyKnown | NoticeOutcome::Late
        ));
    }
});
