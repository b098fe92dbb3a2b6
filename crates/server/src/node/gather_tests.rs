//! What the client is told of a write over several regions when parts of it fail.

use std::sync::Arc;

use argosy_base::Outcome;
use parking_lot::Mutex;

use super::WriteParts;
use crate::service::{Failure, ReplySink, ReplyTo, Response};

#[derive(Default)]
struct Kept(Mutex<Option<Response>>);

impl ReplySink for Kept {
    fn deliver(&self, _: u64, response: Response) {
        let before = self.0.lock().replace(response);
        assert!(before.is_none(), "one answer to one request");
    }
}

fn written() -> Response {
    Response::Written {
        applied: true,
        existed: Vec::new(),
        previous: Vec::new(),
        changed: None,
    }
}

fn lost(what: &str, outcome: Outcome) -> Response {
    let what = what.to_owned();
    Response::Failed(Failure::Unavailable { what, outcome })
}

/// The answer to a write of which each region answers one of `parts`.
fn whole(parts: &[Response]) -> Response {
    let kept = Arc::new(Kept::default());
    let sink: Arc<dyn ReplySink> = Arc::clone(&kept) as _;
    let ops = (0..parts.len()).map(|op| vec![op]).collect();
    let write = WriteParts::new(ReplyTo::new(&sink, 0), ops, parts.len());
    for (token, part) in (0..).zip(parts) {
        write.deliver(token, part.clone());
    }
    kept.0.lock().take().expect("every part is there")
}

#[test]
fn a_part_that_may_be_applied_makes_the_whole_unknown() {
    let unknown = lost("server 1 was lost", Outcome::Unknown);
    let refused = lost("server 2 cannot be reached", Outcome::NotApplied);
    for parts in [
        [unknown.clone(), refused.clone()],
        [refused.clone(), unknown.clone()],
    ] {
        assert_eq!(whole(&parts), unknown);
    }
    assert_eq!(whole(&[refused.clone(), refused.clone()]), refused);
}

#[test]
fn a_part_that_is_applied_makes_the_whole_unknown_and_is_told_once() {
    for outcome in [Outcome::NotApplied, Outcome::Unknown] {
        let failed = lost("server 2 cannot be reached", outcome);
        let told = lost(
            "part of the write took effect, but: server 2 cannot be reached",
            Outcome::Unknown,
        );
        assert_eq!(whole(&[written(), failed.clone()]), told);
        assert_eq!(whole(&[failed, written()]), told);
    }
}
