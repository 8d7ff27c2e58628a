//! Reading a ticket never panics.
#![no_main]

use headwater_protocol::dispatch::Ticket;
use headwater_types::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(ticket) = Ticket::decode(data) {
        assert_eq!(Ticket::decode(&ticket.encode()).as_ref(), Ok(&ticket));
        let _ = ticket.is_valid_at(Timestamp::MAX);
        let _ = ticket.is_valid_at(Timestamp::MIN);
    }
});
