//! Messages of PostgreSQL's clients: any bytes are read, waited for or refused, and what is read
//! took its own bytes only.
#![no_main]

use headwater_fuzz as _;
use headwater_postgres::messages::{first, message, split, words};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some((_, taken))) = first(data) {
        assert!((8..=data.len()).contains(&taken));
        // More bytes after it change nothing.
        assert_eq!(first(&data[..taken]), first(data));
    }
    let mut rest = data;
    while let Ok(Some((read, taken))) = message(rest, 1 << 16) {
        assert!((5..=rest.len()).contains(&taken));
        assert_eq!(message(&rest[..taken], 1 << 16), Ok(Some((read, taken))));
        // Without its last byte it is not there yet.
        assert_eq!(message(&rest[..taken - 1], 1 << 16), Ok(None));
        rest = &rest[taken..];
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let mut after = 0;
        for piece in split(text) {
            assert!(piece.at >= after && !piece.text.is_empty());
            assert_eq!(&text[piece.at..piece.at + piece.text.len()], piece.text);
            after = piece.at + piece.text.len();
            assert!(words(piece.text, 3).len() <= 3);
        }
    }
});
