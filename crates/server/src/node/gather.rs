//! Requests that concern several regions: split, asked of each region, and put together again.
//!
//! A write is split by region and written in all of them at once; it is not atomic across them,
//! and if one part fails the answer says that the rest may have been applied. A scan goes from
//! region to region, in key order or against it, until it has enough. A count adds up. What is done with regions
//! as a whole is done with all of them at once.

use std::sync::{Arc, Weak};

use argosy_base::{KeyRange, Lsn, Outcome};
use parking_lot::Mutex;

use super::Node;
use crate::service::{Begun, Failure, Paging, ReplySink, ReplyTo, Response};

/// The parts of a write over several regions.
pub(crate) struct WriteParts {
    reply: ReplyTo,
    state: Mutex<WriteState>,
}

struct WriteState {
    missing: usize,
    /// Per part, which operations of the whole it carries, and its answer.
    parts: Vec<(Vec<usize>, Option<Response>)>,
    ops: usize,
}

impl WriteParts {
    /// Expects an answer for each of `parts`, under the part's index as token.
    pub(crate) fn new(reply: ReplyTo, parts: Vec<Vec<usize>>, ops: usize) -> Arc<Self> {
        let missing = parts.len();
        let parts = parts.into_iter().map(|ops| (ops, None)).collect();
        Arc::new(Self {
            reply,
            state: Mutex::new(WriteState {
                missing,
                parts,
                ops,
            }),
        })
    }
}

impl WriteState {
    /// The answer to the whole.
    fn combine(&mut self) -> Response {
        let mut applied = true;
        let mut existed = vec![false; self.ops];
        let mut previous = vec![None; self.ops];
        let (mut any_existed, mut any_previous) = (false, false);
        let mut failure: Option<Failure> = None;
        let mut written = 0;
        let mut before = false;
        for (ops, response) in &mut self.parts {
            match response.take() {
                Some(Response::Written {
                    applied: part,
                    existed: e,
                    previous: p,
                    ..
                }) => {
                    written += usize::from(part);
                    applied &= part;
                    any_existed |= !e.is_empty();
                    any_previous |= !p.is_empty();
                    ops.iter().zip(e).for_each(|(op, e)| existed[*op] = e);
                    ops.iter().zip(p).for_each(|(op, p)| previous[*op] = p);
                }
                // What its operations found is not known any more, so nothing is told of the others', either.
                Some(Response::WrittenBefore { .. }) => {
                    written += 1;
                    before = true;
                }
                Some(Response::Failed(error)) => failure = Some(worse(failure, error)),
                _ => {
                    let odd = Failure::Invalid("a write was answered oddly".into());
                    failure = Some(worse(failure, odd));
                }
            }
        }
        match failure {
            Some(error) if written == 0 => Response::Failed(error),
            Some(error) => {
                let (why, _) = parts_of(&error);
                let what = format!("part of the write took effect, but: {why}");
                let outcome = Outcome::Unknown;
                Response::Failed(Failure::Unavailable { what, outcome })
            }
            None if before && applied => Response::WrittenBefore { version: Lsn(0) },
            None => {
                if !any_existed {
                    existed.clear();
                }
                if !any_previous {
                    previous.clear();
                }
                Response::Written {
                    applied,
                    existed,
                    previous,
                    changed: None,
                }
            }
        }
    }
}

/// The one of two failures that says more of what may have happened: one part that may have been
/// applied makes the outcome of the whole unknown.
fn worse(first: Option<Failure>, second: Failure) -> Failure {
    match first {
        Some(first) if parts_of(&first).1 != Outcome::NotApplied => first,
        _ => second,
    }
}

/// What failed, without what became of the write; and what became of it.
fn parts_of(error: &Failure) -> (&str, Outcome) {
    match error {
        Failure::Invalid(what) | Failure::WrongType(what) => (what, Outcome::NotApplied),
        Failure::Forgotten(what) => (what, Outcome::Unknown),
        Failure::Unavailable { what, outcome }
        | Failure::Busy { what, outcome }
        | Failure::Storage { what, outcome } => (what, *outcome),
    }
}

impl ReplySink for WriteParts {
    fn deliver(&self, token: u64, response: Response) {
        let mut state = self.state.lock();
        let part = usize::try_from(token).expect("a part's index");
        state.parts[part].1 = Some(response);
        state.missing -= 1;
        if state.missing == 0 {
            let response = state.combine();
            drop(state);
            self.reply.clone().send(response);
        }
    }
}

/// A request about every region: a count, which adds up, or something to be done.
pub(crate) struct CountParts {
    reply: ReplyTo,
    /// The answer, of the sum.
    whole: fn(u64) -> Response,
    state: Mutex<(usize, Result<u64, Failure>)>,
}

impl CountParts {
    /// Expects `parts` answers, none of them a failure, for that to the `whole`.
    pub(crate) fn new(reply: ReplyTo, parts: usize, whole: fn(u64) -> Response) -> Arc<Self> {
        Arc::new(Self {
            reply,
            whole,
            state: Mutex::new((parts, Ok(0))),
        })
    }
}

impl ReplySink for CountParts {
    fn deliver(&self, _: u64, response: Response) {
        let mut state = self.state.lock();
        match (&mut state.1, response) {
            (Ok(sum), Response::Count(count)) => *sum += count,
            (Ok(_), Response::Failed(error)) => state.1 = Err(error),
            _ => {}
        }
        state.0 -= 1;
        if state.0 == 0 {
            let whole = state.1.clone();
            drop(state);
            self.reply
                .clone()
                .send(whole.map_or_else(Response::Failed, self.whole));
        }
    }
}

/// A scan that goes from region to region.
pub(crate) struct ScanParts {
    me: Weak<Self>,
    node: Weak<Node>,
    reply: ReplyTo,
    paging: Paging,
    state: Mutex<ScanState>,
}

struct ScanState {
    /// What is left of the range.
    rest: KeyRange,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl ScanParts {
    /// A scan of `range`, which is not empty.
    pub(crate) fn new(
        node: Weak<Node>,
        reply: ReplyTo,
        range: KeyRange,
        paging: Paging,
    ) -> Arc<Self> {
        let rest = range;
        let state = Mutex::new(ScanState {
            rest,
            pairs: Vec::new(),
            bytes: 0,
        });
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            node,
            reply,
            paging,
            state,
        })
    }

    /// Asks region after region for as long as they answer at once.
    pub(crate) fn go_on(&self) {
        let (Some(me), Some(node)) = (self.me.upgrade(), self.node.upgrade()) else {
            return;
        };
        loop {
            let (range, paging) = {
                let state = self.state.lock();
                let left = Paging {
                    pairs_max: self.paging.pairs_max - state.pairs.len(),
                    bytes_max: self.paging.bytes_max.saturating_sub(state.bytes),
                    ..self.paging
                };
                (state.rest.clone(), left)
            };
            let sink: Arc<dyn ReplySink> = Arc::clone(&me) as Arc<dyn ReplySink>;
            let reply = ReplyTo::new(&sink, 0);
            match node.router().call_first_region(&range, paging, reply) {
                Begun::Answered(response) => {
                    if !self.add(response) {
                        return;
                    }
                }
                Begun::Waits | Begun::Sent | Begun::NeedsDevice => {
                    node.links.flush();
                    return;
                }
            }
        }
    }

    /// Takes one region's page. Returns whether there is more to ask for; otherwise the whole has
    /// been answered.
    fn add(&self, response: Response) -> bool {
        let mut state = self.state.lock();
        let answer = match response {
            Response::Page { pairs, next } => {
                state.bytes += pairs
                    .iter()
                    .map(|(key, value)| key.len() + value.len())
                    .sum::<usize>();
                state.pairs.extend(pairs);
                let full = state.pairs.len() >= self.paging.pairs_max
                    || state.bytes >= self.paging.bytes_max;
                match next {
                    Some(next) => {
                        let direction = self.paging.direction;
                        state.rest.go_on_at(direction, next.clone());
                        if state.rest.is_empty() {
                            state.page(None)
                        } else if full {
                            state.page(Some(next))
                        } else {
                            return true;
                        }
                    }
                    None => state.page(None),
                }
            }
            Response::Failed(error) => Response::Failed(error),
            _ => Response::Failed(Failure::Invalid("a scan was answered oddly".into())),
        };
        drop(state);
        self.reply.clone().send(answer);
        false
    }
}

impl ScanState {
    fn page(&mut self, next: Option<Vec<u8>>) -> Response {
        Response::Page {
            pairs: std::mem::take(&mut self.pairs),
            next,
        }
    }
}

impl ReplySink for ScanParts {
    /// A page that was not there at once.
    fn deliver(&self, _: u64, response: Response) {
        if self.add(response) {
            self.go_on();
        }
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
