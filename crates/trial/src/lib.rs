//! A trial: a real cluster, of the built program, under load and failures. What was asked and answered is checked.
//!
//! 1. `cluster` starts `argosy playground` in a directory of the trial's own, and gives it commands.
//! 2. `keys` chooses keys in each region. `load` has clients of each region ask for them, through the `doors`
//!    of every server, few keys by many clients, so that they are contended. Others have `transactions`. `crowd` is
//!    all of them.
//! 3. Meanwhile `failures` kills, stops and restarts the servers in turn. `status` is what servers say of themselves.
//! 4. `record` has every request with when it began and ended and what came of it. Its memory is bounded by the
//!    clients' pace: see there.
//! 5. At the end each server is asked for each key. `judge` checks the history of each key, these answers
//!    included: so an acknowledged write that is lost, and a value that is older than what was shown before, is
//!    found.
//! 6. `summary` tells how it went; `plot` draws latency over time.
//!
//! Time is the machine's monotonic clock, of one process (`time`), which all clients share: so "before" means
//! before. `trial` is all of it, in order. [`faults`] is another use of the same parts: a short trial for each failure
//! there is, and a table of what it costs.

#![forbid(unsafe_code)]

mod cluster;
mod crowd;
mod doors;
mod error;
mod failures;
pub mod faults;
mod judge;
mod keys;
mod load;
mod plot;
mod record;
mod status;
mod summary;
mod time;
mod transactions;
mod trial;

pub use error::TrialError;
pub use failures::FailureKind;
pub use judge::Unexplained;
pub use summary::{FailureRow, GapRow, LatencyRow, OddRow, OutcomeRow, Second, Summary};
pub use trial::{TrialSettings, TrialVerdict, run};
