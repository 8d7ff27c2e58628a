//! Reading a list of rights never panics.
#![no_main]

use headwater_protocol::rights::RightsList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = RightsList::read(data);
    if let Ok(list) = RightsList::decode(data) {
        assert_eq!(RightsList::decode(&list.encode()).as_ref(), Ok(&list));
        assert!(list.is_trusted_by(list.signing_key()));
    }
});
