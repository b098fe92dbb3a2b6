//! What a request is told that is not carried out: why, what became of it, and what next.

use argosy_base::Outcome;
use argosy_engine::{BusyReason, EngineError};

use super::local::LocalRegion;
use super::primary::PrimaryDriver;
use super::region::{Closed, Region};
use super::serving::Serving;
use crate::service::{Failure, Response};

impl LocalRegion<'_> {
    /// The answer while there is no engine. Takes no lock.
    pub(super) fn not_open(&self) -> Response {
        let why = match &*self.region.closed() {
            Closed::Yet(why) => why.clone(),
            Closed::ForGood(why) => return self.failed_for_good(why),
        };
        let what = format!("{} is not open: {why}; retry", self.region.id());
        Response::Failed(Failure::Unavailable {
            what,
            outcome: Outcome::NotApplied,
        })
    }

    /// Tells readers why `driver` has not opened the region.
    pub(super) fn publish(&self, driver: &PrimaryDriver) {
        if self.region.is_open() {
            return;
        }
        let failed = driver.failed().map(|why| Closed::ForGood(why.to_owned()));
        self.region.set_closed(failed.unwrap_or_else(|| {
            let lacks = driver.lacks(self.context);
            Closed::Yet(lacks.unwrap_or_else(|| "opening".into()))
        }));
    }

    /// The answer for a copy that can never open.
    fn failed_for_good(&self, why: &str) -> Response {
        let what = format!(
            "{} has failed on {}: {why}; the log of that server says more, INFO regions shows the \
             state of its copies",
            self.region.id(),
            self.context.id
        );
        Response::Failed(Failure::Storage {
            what,
            outcome: Outcome::NotApplied,
        })
    }

    /// The answer to a write of new data while the device is full.
    pub(super) fn refuse_full(&self, engine: &Serving) -> Response {
        let what = self.busy_text(engine, BusyReason::DeviceFull);
        let outcome = Outcome::NotApplied;
        Response::Failed(Failure::Busy { what, outcome })
    }

    /// Why the region has no room for a write, and what next.
    pub(super) fn busy_text(&self, engine: &Serving, reason: BusyReason) -> String {
        let id = self.region.id();
        if engine.is_full() || reason == BusyReason::DeviceFull {
            let who = self.context.device_care.who_is_full(id, self.context);
            let who = who.unwrap_or_else(|| "a device was full until a moment ago".to_owned());
            return format!("{id}: {who}; reads and deletes go on; delete keys, then retry");
        }
        let lacks = self.lacks();
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        format!("{id}: {reason}{lacks}; retry")
    }

    /// Whether the region has been full for so long that waiting is of no use.
    pub(super) fn full_for_long(&self, engine: &Serving) -> bool {
        let now = self.context.now();
        let full_for = self.region.health().note_full(engine.is_full(), now);
        full_for.is_some_and(|span| span >= self.context.settings.deadline)
    }
}

/// Too much waits already.
pub(super) fn overloaded(region: &Region) -> Response {
    let what = format!("too much waits for {}; retry", region.id());
    Response::Failed(Failure::Busy {
        what,
        outcome: Outcome::NotApplied,
    })
}

/// In place of `response`, which would have to wait with too many others.
pub(super) fn too_many_answers(region: &Region, response: &Response) -> Response {
    let outcome = match response.tells_of_effect() {
        true => Outcome::Unknown,
        false => Outcome::NotApplied,
    };
    let what = format!(
        "{}: answers that wait until what they tell of is committed hold all the memory that they may \
         (memory_answers_max), or are too many; retry",
        region.id()
    );
    Response::Failed(Failure::Unavailable { what, outcome })
}

/// What the engine refused.
pub(super) fn failed(error: &EngineError) -> Response {
    refused(error, error.outcome())
}

/// What the engine did not write: whatever the error, it is met before anything is.
pub(super) fn not_written(error: &EngineError) -> Response {
    refused(error, Outcome::NotApplied)
}

fn refused(error: &EngineError, outcome: Outcome) -> Response {
    let what = error.to_string();
    Response::Failed(match error {
        EngineError::Limit(_) | EngineError::Unsupported(_) => Failure::Invalid(what),
        EngineError::Busy(_) => Failure::Busy { what, outcome },
        EngineError::Forgotten(_) => Failure::Forgotten(what),
        _ => Failure::Storage { what, outcome },
    })
}
