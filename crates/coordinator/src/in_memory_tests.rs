//! Tests of the coordinator in memory: see [`super`]. What it shares with others is in
//! [`crate::conformance`].

use super::*;
use crate::conformance::{self, CoordinatorHarness};
use crate::contract::{Entry, EntryVersion};

/// Handles to one world.
#[derive(Default)]
struct Handles {
    first: InMemory,
    open: Vec<InMemory>,
}

impl CoordinatorHarness for Handles {
    fn open(&mut self) {
        self.open.push(self.first.clone());
    }

    fn handle(&mut self, index: usize) -> &mut dyn Coordinator {
        &mut self.open[index]
    }

    fn cut_off(&mut self, index: usize, cut_off: bool) {
        self.open[index].cut_off(cut_off);
    }
}

#[test]
fn it_conforms() {
    conformance::run(&mut || Box::new(Handles::default()));
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn set(key: &str, expected: u64, value: &str) -> Request {
    Request::CompareAndSet {
        key: key.to_owned(),
        expected: EntryVersion(expected),
        value: value.into(),
    }
}

fn ended(handle: &mut InMemory, now: Instant) -> Option<CoordinatorAnswer> {
    match handle.poll(now)? {
        CoordinatorEvent::Ended { answer, .. } => Some(answer),
        CoordinatorEvent::MayHaveChanged { key } => panic!("{key} is not watched"),
    }
}

fn entry(handle: &mut InMemory, now: Instant) -> Entry {
    handle.submit(Request::Read { key: "k".into() });
    let answer = ended(handle, now).expect("it is connected");
    answer.unwrap().into_entry().unwrap()
}

#[test]
fn requests_of_a_handle_that_is_cut_off_wait() {
    let mut handle = InMemory::new();
    let mut other = handle.clone();
    handle.cut_off(true);
    handle.submit(set("k", 0, "late"));
    assert!(handle.poll(at(1)).is_none());
    assert_eq!(entry(&mut other, at(2)), Entry::default());
    handle.cut_off(false);
    assert!(ended(&mut handle, at(3)).unwrap().is_ok());
    assert_eq!(entry(&mut other, at(3)).value, b"late");
}

#[test]
fn a_request_whose_reply_is_lost_has_taken_effect() {
    let mut handle = InMemory::new();
    handle.lose_replies(1);
    handle.submit(set("k", 0, "v"));
    let lost = ended(&mut handle, at(1)).unwrap();
    assert!(matches!(lost, Err(CoordinatorError::ConnectionLost)));
    assert_eq!(entry(&mut handle, at(1)).value, b"v");
}

#[test]
fn a_request_that_is_lost_has_not_taken_effect() {
    let mut handle = InMemory::new();
    handle.lose_requests(1);
    handle.submit(set("k", 0, "v"));
    let lost = ended(&mut handle, at(1)).unwrap();
    assert!(matches!(lost, Err(CoordinatorError::ConnectionLost)));
    assert_eq!(entry(&mut handle, at(1)), Entry::default());
}

#[test]
fn a_session_whose_opening_was_lost_is_nobodys_and_ends() {
    let mut handle = InMemory::new();
    handle.lose_replies(1);
    let timeout = Duration::from_millis(100);
    handle.submit(Request::OpenSession { timeout });
    assert!(ended(&mut handle, at(1)).unwrap().is_err());
    assert_eq!(handle.session(), SessionState::None);
    assert_eq!(handle.world().state.sessions().len(), 1);
    handle.poll(at(101));
    assert_eq!(handle.world().state.sessions().len(), 1);
    handle.poll(at(102));
    assert_eq!(handle.world().state.sessions().len(), 0);
}

#[test]
fn a_delayed_request_takes_effect_late() {
    let mut handle = InMemory::new();
    let mut other = handle.clone();
    handle.delay(Duration::from_millis(10));
    handle.submit(set("k", 0, "slow"));
    handle.submit(set("k", 1, "slower"));
    assert!(handle.poll(at(1)).is_none());
    assert!(handle.poll(at(10)).is_none());
    assert_eq!(entry(&mut other, at(10)), Entry::default());
    assert!(ended(&mut handle, at(11)).unwrap().is_ok());
    assert!(
        ended(&mut handle, at(11)).unwrap().is_ok(),
        "both were sent at once"
    );
}

#[test]
fn a_handle_that_missed_much_is_told_that_all_may_have_changed() {
    let mut handle = InMemory::new();
    let mut other = handle.clone();
    handle.watch("quiet").unwrap();
    for n in 0..=REMEMBERED as u64 {
        other.submit(set("k", n, ""));
        assert!(ended(&mut other, at(1)).unwrap().is_ok());
    }
    let Some(CoordinatorEvent::MayHaveChanged { key }) = handle.poll(at(2)) else {
        panic!("no hint");
    };
    assert_eq!(key, "quiet");
    assert!(handle.poll(at(3)).is_none());
}
