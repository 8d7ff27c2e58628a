//! Who may publish and hear the topic of a stream.

use headwater_protocol::live::{
    StreamReaders, is_publishable, is_value_topic, topic_of, value_lists,
};
use headwater_protocol::notice::TopicRight;

/// Everybody may read `open`, nobody else anything; `north` writes all.
struct Rights;

impl StreamReaders for Rights {
    fn rights_of(&self, stream: &str) -> (Vec<String>, Vec<String>) {
        let readers = match stream {
            "open" => vec!["gate", "north", "Upper", "a b"],
            _ => Vec::new(),
        };
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        (owned(readers), owned(vec!["north"]))
    }
}

#[test]
fn a_topic_has_the_accounts_that_may_use_its_stream() {
    let streams = ["open", "closed", "a\u{7}b", ""].map(str::to_owned);
    let lists = value_lists("v", "b.example", &streams, &Rights);
    let of = |stream: &str| {
        let who = lists[&topic_of("v", stream)].iter();
        let who = who.map(|(account, right)| (account.as_str(), *right));
        who.collect::<Vec<_>>()
    };
    assert_eq!(lists.len(), 2);
    // A publisher is no member too, and names that are no accounts are left out.
    assert_eq!(
        of("open"),
        [
            ("gate@b.example", TopicRight::Subscribe),
            ("north@b.example", TopicRight::Publish)
        ]
    );
    assert_eq!(of("closed"), [("north@b.example", TopicRight::Publish)]);
}

#[test]
fn a_stream_whose_name_no_bus_carries_has_no_topic() {
    for (stream, wanted) in [
        ("pump,id=a", true),
        ("pump,id=a/b c", true),
        ("", false),
        ("a\u{7}", false),
        ("a\tb", true),
        (&"x".repeat(257), false),
    ] {
        assert_eq!(is_publishable(stream), wanted, "{stream:?}");
    }
}

#[test]
fn a_topic_tells_nobody_the_name_of_its_stream() {
    let topic = topic_of("headwater/values", "pump,id=a");
    // `printf 'headwater topic 1\npump,id=a' | sha256sum | cut -c1-32`
    assert_eq!(topic, "headwater/values/520c104a91132d70619562a3296be48d");
    for (other, wanted) in [
        (topic.clone(), true),
        (topic.to_uppercase(), false),
        (format!("{topic}0"), false),
        ("headwater/values".to_owned(), false),
        ("headwater/notices/north".to_owned(), false),
    ] {
        assert_eq!(
            is_value_topic("headwater/values", &other),
            wanted,
            "{other}"
        );
    }
}
