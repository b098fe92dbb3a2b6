//! Which names a client gives its writes.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use argosy_base::Clock;

use super::*;

/// A clock that stands still.
struct Still(u64);

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn wall(&self) -> Moment {
        Moment(self.0)
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

fn options() -> Options {
    Options {
        clock: Arc::new(Still(5_000)),
        random: Some(Arc::new(|| Some(7))),
        ..Options::default()
    }
}

#[test]
fn numbers_rise_under_one_id() {
    let (names, options) = (Names::default(), options());
    let named: Vec<_> = (0..3).map(|_| names.next(&options).unwrap()).collect();
    let id = ClientId::taken_at(Moment(5_000), 7);
    assert!(named.iter().all(|name| name.client == id));
    let numbers: Vec<_> = named.iter().map(|name| name.seq).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn a_client_that_was_forgotten_takes_another_id() {
    let (names, options) = (Names::default(), options());
    let first = names.next(&options).unwrap();
    names.forgotten(first);
    let second = names.next(&options).unwrap();
    assert_eq!((second.client.moment(), second.seq), (Moment(6_000), 1));
    // One that was forgotten although it had been used is not too low.
    let used = names.next(&options).unwrap();
    names.forgotten(used);
    let third = names.next(&options).unwrap();
    assert_eq!((third.client.moment(), third.seq), (Moment(6_000), 1));
    // What is told late changes nothing.
    names.forgotten(first);
    assert_eq!(names.next(&options).unwrap().seq, 2);
}

#[test]
fn no_id_is_ahead_by_an_hour() {
    let (names, options) = (Names::default(), options());
    for _ in 0..100 {
        let name = names.next(&options).unwrap();
        assert!(name.client.moment().0 <= 5_000 + AHEAD_MILLIS_MAX);
        names.forgotten(name);
    }
}

#[test]
fn without_random_numbers_there_are_no_names() {
    let none = Options {
        random: None,
        ..options()
    };
    assert_eq!(Names::default().next(&none), None);
    let dry = Options {
        random: Some(Arc::new(|| None)),
        ..options()
    };
    assert_eq!(Names::default().next(&dry), None);
}
