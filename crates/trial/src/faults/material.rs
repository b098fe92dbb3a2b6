//! What is known of a failure whose load is over, and the row that is made of it: by nothing else, so that a test can
//! plant what is to be found.

use crate::error::TrialError;
use crate::faults::deeds::Deed;
use crate::faults::fault::FaultKind;
use crate::faults::row::{AfterwardsRow, FaultRow, RequestsRow, ServedRow};
use crate::faults::said::{Offset, Said};
use crate::faults::silence::{Silence, Times, silences, steps};
use crate::judge::judge;
use crate::record::{Parts, Sample};

/// See the module documentation.
pub(crate) struct Material {
    /// All requests.
    pub samples: Vec<Sample>,
    /// When it was.
    pub times: Times,
    /// What was done.
    pub deed: Deed,
    /// The number of each region.
    pub regions: Vec<u64>,
    /// What servers said.
    pub said: Vec<Said>,
    /// Their clock.
    pub offset: Offset,
    /// What the cluster looked like afterwards.
    pub afterwards: AfterwardsRow,
}

/// The row of a failure; `parts` is what was recorded.
#[must_use]
pub(crate) fn row_of(kind: FaultKind, of: &Material, parts: &Parts) -> FaultRow {
    let mut led = None;
    let mut others = None;
    let mut on_return = 0.0_f64;
    for (place, id) in of.regions.iter().enumerate() {
        let found = silences(&of.samples, place, of.times);
        if let Some(mending) = found.mending {
            on_return = on_return.max(mending.span().as_secs_f64());
        }
        let primary = of.deed.primaries.get(place).copied().flatten();
        let is_led = primary.is_some_and(|primary| of.deed.servers.contains(&primary));
        let last = match is_led {
            true => &mut led,
            false => &mut others,
        };
        if let Some(silence) = found.failure {
            let served = of.served(*id, silence);
            if last.is_none_or(|last: ServedRow| last.again < served.again) {
                *last = Some(served);
            }
        }
    }
    let judged = judged(kind, parts);
    FaultRow {
        led,
        others,
        on_return,
        requests: RequestsRow {
            lost: judged.requests.lost,
            ..RequestsRow::of(&of.samples, &of.deed.servers)
        },
        afterwards: of.afterwards.clone(),
        ..judged
    }
}

/// The row of a failure that could not be done.
#[must_use]
pub(crate) fn not_done(kind: FaultKind, error: &TrialError, parts: &Parts) -> FaultRow {
    let mut row = judged(kind, parts);
    row.wrong.push(error.to_string());
    row
}

/// A row that knows of nothing but what is wrong. Histories that are not possible count as lost.
fn judged(kind: FaultKind, parts: &Parts) -> FaultRow {
    let mut wrong = parts.wrong.clone();
    let faults = judge(&parts.histories);
    let lost = u64::try_from(faults.len()).expect("a count");
    for fault in faults {
        wrong.push(format!("key {}: {}", fault.key, fault.words));
        wrong.extend(fault.around.iter().map(|line| format!("  {line}")));
    }
    FaultRow {
        kind,
        led: None,
        others: None,
        on_return: 0.0,
        requests: RequestsRow {
            lost,
            ..RequestsRow::default()
        },
        afterwards: AfterwardsRow::default(),
        wrong,
    }
}

impl Material {
    /// When region `id` was served again, after this silence.
    fn served(&self, id: u64, silence: Silence) -> ServedRow {
        let failed = self.times.failed;
        let steps = steps(&self.said, id, failed, silence, self.offset);
        ServedRow::of(silence.to.since(failed), silence.span(), steps)
    }
}

#[cfg(test)]
#[path = "material_tests.rs"]
mod tests;
