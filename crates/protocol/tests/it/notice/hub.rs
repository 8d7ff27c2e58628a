//! The bus inside a process.

use headwater_protocol::notice::{Event, Hub, NOTICE_BYTES_MAX, Subscription, TOPICS_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn all(from: &mut Subscription) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(event) = from.next_now() {
        all.push(match event {
            Event::Link(is) => format!("link {is}"),
            Event::Notice { topic, bytes } => {
                format!("{topic} {}", String::from_utf8_lossy(&bytes))
            }
        });
    }
    all
}

#[test]
fn who_comes_later_hears_the_newest_of_each_topic_in_order() {
    let hub = Hub::new(true);
    for (topic, text) in [("b", "1"), ("a", "1"), ("b", "2")] {
        hub.publish(topic, text.as_bytes());
    }
    let (mut one, mut two) = (hub.subscribe(), hub.clone().subscribe());
    assert_eq!(all(&mut one), ["link true", "a 1", "b 2"]);
    assert!(all(&mut one).is_empty());
    hub.publish("a", b"2");
    hub.publish("a", b"3");
    assert_eq!(all(&mut one), ["a 3"]);
    assert_eq!(all(&mut two), ["link true", "b 2", "a 3"]);
}

#[test]
fn a_link_that_was_lost_is_told_also_when_it_is_there_again() {
    let hub = Hub::new(false);
    let mut one = hub.subscribe();
    assert_eq!(all(&mut one), ["link false"]);
    hub.set_linked(false);
    assert!(all(&mut one).is_empty());
    hub.set_linked(true);
    assert_eq!(all(&mut one), ["link true"]);
    hub.set_linked(false);
    hub.set_linked(true);
    hub.publish("a", b"1");
    assert_eq!(all(&mut one), ["link false", "link true", "a 1"]);
    hub.set_linked(false);
    assert_eq!(all(&mut one), ["link false"]);
    hub.set_linked(true);
    hub.set_linked(false);
    assert!(all(&mut one).is_empty(), "it was told as lost already");
    assert!(!hub.is_linked());
}

#[test]
fn who_waits_is_woken_once_by_what_comes() {
    let hub = Hub::new(true);
    let mut one = hub.subscribe();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert_eq!(one.poll_next(&mut context), Poll::Ready(Event::Link(true)));
    assert_eq!(one.poll_next(&mut context), Poll::Pending);
    assert_eq!(one.poll_next(&mut context), Poll::Pending);
    hub.publish("a", b"1");
    hub.publish("a", b"2");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let came = one.poll_next(&mut context);
    assert!(
        matches!(came, Poll::Ready(Event::Notice { .. })),
        "{came:?}"
    );
    assert_eq!(one.poll_next(&mut context), Poll::Pending);
    hub.set_linked(false);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
}

#[test]
fn what_is_held_is_bounded() {
    let hub = Hub::new(true);
    hub.publish("long", &vec![0; NOTICE_BYTES_MAX + 1]);
    for number in 0..TOPICS_MAX + 10 {
        hub.publish(&format!("t{number}"), b"x");
    }
    hub.publish("t0", b"y");
    let told = all(&mut hub.subscribe());
    assert_eq!(told.len(), TOPICS_MAX + 1);
    assert_eq!(told.last().unwrap(), "t0 y");
}
