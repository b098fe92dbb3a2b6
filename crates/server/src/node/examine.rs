//! What a transaction reads: keys of one region, with versions and expiries, as an engine has them.
//!
//! It answers as a look at several keys does ([`many`](super::many)), but for two things. Keys of several regions are
//! refused, since their versions are of different histories. And the answer waits until the versions, too, are
//! committed: one that is compared later was then known to every primary that may be asked.

use std::collections::BTreeSet;

use argosy_engine::{EngineError, Found, Reach, WaitFor, Wanted};
use argosy_wire::api::Examined;

use super::look::reveals;
use super::many::{bounded, check};
use super::open::OpenRegion;
use super::refuse::failed;
use super::router::Router;
use super::waiting::{Queued, Shown};
use crate::service::{Begun, Failure, KeyList, ReplyTo, Request, Response};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examination<'a> {
    pub(super) keys: &'a KeyList,
    pub(super) wanted: Wanted,
    pub(super) reach: Reach,
}

impl Examination<'_> {
    /// Asks the region of the keys, if it is one.
    pub(super) fn ask(self, router: &Router<'_>, reply: ReplyTo) -> Begun {
        let Self {
            keys,
            wanted,
            reach,
        } = self;
        if let Err(invalid) = check(keys) {
            return Begun::Answered(invalid);
        }
        let places: BTreeSet<usize> = keys.iter().map(|key| router.route(key)).collect();
        match places.len() {
            0 => {}
            1 => {
                let place = places.first().copied().unwrap_or_default();
                let request = Request::Examine { keys, wanted };
                return router.call_region(place, request, reach, reply);
            }
            _ => {
                let what = "the keys lie in several regions".to_owned();
                return Begun::Answered(Response::Failed(Failure::Invalid(what)));
            }
        }
        let what = "there are no keys to examine".to_owned();
        Begun::Answered(Response::Failed(Failure::Invalid(what)))
    }

    /// Looks the keys up in `open`, in which they lie.
    pub(super) fn answer(self, open: &OpenRegion<'_>, reply: ReplyTo) -> Begun {
        let Self {
            keys,
            wanted,
            reach,
        } = self;
        let queued = || Queued::of_peer(Request::Examine { keys, wanted });
        if let Some(waits) = open.wait_behind_writes(keys.iter(), queued, &reply) {
            return waits.into();
        }
        let page: Vec<&[u8]> = keys.iter().take(keys.page(0)).collect();
        // The time before what is read: nothing is taken for expired that is not found to be.
        let now = open.engine.time();
        match open.engine.get_some(&page, bounded(wanted), reach) {
            Ok(found) => {
                let shown = Shown {
                    reveals: reveals(reach),
                    wait: wait_of(&found),
                    response: Response::Examined {
                        now,
                        found: found.into_iter().map(examined).collect(),
                    },
                };
                open.show(shown, reply).into()
            }
            Err(EngineError::NotInMemory) => Begun::NeedsDevice,
            Err(error) => Begun::Answered(failed(&error)),
        }
    }
}

/// What an answer about `found` waits for: all that it says is committed.
fn wait_of(found: &[Found]) -> WaitFor {
    let waits = found.iter();
    let waits = waits.map(|found| found.wait.and(WaitFor::committed(found.version)));
    waits.fold(WaitFor::Nothing, WaitFor::and)
}

fn examined(found: Found) -> Examined {
    let Found {
        value,
        version,
        expiry,
        ..
    } = found;
    Examined {
        value,
        expiry,
        version,
    }
}

#[cfg(test)]
#[path = "transactions_tests.rs"]
mod tests;
