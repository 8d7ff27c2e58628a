//! What routes read out of a path and a query string.
#![no_main]

use headwater_fuzz as _;
use headwater_types::{Level, Timestamp};
use headwater_wire::channel::{Channel, TileName};
use headwater_wire::query::{PAIRS_MAX, Query, parse_instant_at, percent_decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (path, raw) = text.split_once('?').unwrap_or((text, ""));
    let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
    // The path of a tile: CHANNEL/LEVEL.OFFSET.json.
    let (channel, tile) = path.split_once('/').unwrap_or((path, ""));
    if let Some(channel) = percent_decode(channel, false) {
        check_channel(&channel);
    }
    if let Some(name) = percent_decode(tile, false).and_then(|t| TileName::parse(&t)) {
        assert!(Level::new(name.level.get()).is_some());
        let again = format!("{}.{}.json", name.level.get(), name.offset);
        assert_eq!(TileName::parse(&again), Some(name));
        if let Some(buckets) = name.level.tile_buckets(name.offset) {
            assert!(!name.level.span(*buckets.start(), *buckets.end()).is_empty());
        }
    }
    let Ok(query) = Query::parse(raw) else {
        return;
    };
    assert!(raw.split('&').filter(|p| !p.is_empty()).count() <= PAIRS_MAX);
    for name in ["channel", "from", "stream"] {
        for value in query.all(name) {
            check_channel(value);
            let _ = parse_instant_at(value, now);
        }
    }
    if let Ok(range) = query.range(now) {
        // `to` is not included.
        let to = query.instant("to", now).ok().flatten();
        assert!(range.is_empty() || to.is_none_or(|to| range.last < to));
    }
    let _ = query.list("fields");
    let _ = query.number::<i64>("limit");
});

fn check_channel(text: &str) {
    if let Some(channel) = Channel::parse(text) {
        assert_eq!(Channel::parse(&channel.to_string()), Some(channel));
    }
}
