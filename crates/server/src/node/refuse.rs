//! What a request is told that is not carried out: why, what became of it, and what next.

use argosy_base::Outcome;
use argosy_engine::{BusyReason, EngineError};

use super::Node;
use super::context::Context;
use super::primary::PrimaryDriver;
use super::region::{Closed, Region};
use super::serving::Serving;
use crate::service::{Failure, Response};

impl Node {
    /// The answer while there is no engine. Takes no lock.
    pub(super) fn not_open(&self, region: &Region) -> Response {
        let why = match &*region.closed() {
            Closed::Yet(why) => why.clone(),
            Closed::ForGood(why) => return self.failed_for_good(region, why),
        };
        let what = format!("{} is not open: {why}; retry", region.id());
        Response::Failed(Failure::Unavailable {
            what,
            outcome: Outcome::NotApplied,
        })
    }

    /// Tells readers why `driver` has not opened its region.
    pub(super) fn publish(&self, region: &Region, driver: &PrimaryDriver) {
        if region.is_open() {
            return;
        }
        let failed = driver.failed().map(|why| Closed::ForGood(why.to_owned()));
        region.set_closed(failed.unwrap_or_else(|| {
            let lacks = driver.lacks(&Context { node: self });
            Closed::Yet(lacks.unwrap_or_else(|| "opening".into()))
        }));
    }

    /// The answer for a copy that can never open.
    fn failed_for_good(&self, region: &Region, why: &str) -> Response {
        let what = format!(
            "{} has failed on {}: {why}; the log of that server says more, INFO regions shows the \
             state of its copies",
            region.id(),
            self.id
        );
        Response::Failed(Failure::Storage {
            what,
            outcome: Outcome::NotApplied,
        })
    }

    /// The answer to a write of new data while the device is full.
    pub(super) fn refuse_full(&self, region: &Region, engine: &Serving) -> Response {
        let what = self.busy_text(region, engine, BusyReason::DeviceFull);
        let outcome = Outcome::NotApplied;
        Response::Failed(Failure::Busy { what, outcome })
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
    let outcome = match response {
        Response::Written { applied: true, .. } => Outcome::Unknown,
        _ => Outcome::NotApplied,
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
        _ => Failure::Storage { what, outcome },
    })
}
