//! Judging what clients were answered: all histories, and what single copies hold.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::check::order::prove;
use crate::check::register::{AccessKind, RegisterViolation, Saw, check};
use crate::check::{Access, Bound, CLOCK, When, counter, prefix};
use crate::load::{Load, Pairs, Wrong};
use crate::objects::Objects;

/// Accesses that are shown of a history that is not possible.
const SHOWN: usize = 24;

/// How a judgement went that found nothing wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Outcomes that were proven by the order of writes.
    pub proven: usize,
    /// Histories with too much under way at one time to find out.
    pub undecided: usize,
}

/// How the process of a region's only copy ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEnd {
    /// So many of the writes that it was handed have to be there still.
    pub at_least: usize,
    /// When. A read that was forwarded and is answered later may have been answered by the next process.
    pub moment: u64,
}

/// A read that the process which has ended cannot have answered like this.
struct LateRead {
    object: usize,
    access: Access,
    /// Why it cannot.
    wrong: Wrong,
}

impl Load {
    /// Judges all histories.
    ///
    /// # Errors
    /// The first history that is not possible, in words.
    pub(crate) fn judge(&mut self, objects: &Objects) -> Result<Judged, Wrong> {
        let mut accesses: Vec<Vec<Access>> = self
            .histories
            .iter()
            .map(|history| history.accesses.clone())
            .collect();
        let mut judged = Judged::default();
        for session in self.orders.sessions.values() {
            judged.proven += prove(session, &mut accesses);
        }
        for (number, requests) in self.counters.iter().enumerate() {
            counter::check(requests).map_err(|what| format!("counter {number}: {what}"))?;
        }
        for (object, accesses) in accesses.iter().enumerate() {
            judged.undecided += usize::from(!self.judge_one(objects, object, accesses)?);
        }
        Ok(judged)
    }

    /// Whether it could be decided that the history is possible.
    fn judge_one(
        &self,
        objects: &Objects,
        object: usize,
        accesses: &[Access],
    ) -> Result<bool, Wrong> {
        match check(self.histories[object].first, accesses) {
            Ok(_) => Ok(true),
            Err(RegisterViolation::TooWide) => Ok(false),
            Err(RegisterViolation::Impossible { access, possible }) => {
                Err(explain(objects, object, accesses, access, &possible))
            }
        }
    }

    // --- A single copy that may lose what it was handed last ---

    /// Region `region` holds `pairs` after its process ended: judges that, and what came before;
    /// what is held is where the histories begin anew. Returns how many writes were lost.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn recount(
        &mut self,
        objects: &Objects,
        region: usize,
        pairs: Pairs,
        end: ProcessEnd,
    ) -> Result<usize, Wrong> {
        let range = objects.region_ranges()[region].clone();
        let members: Vec<usize> = objects.within(&range).map(|at| at.object).collect();
        let mut late = Vec::new();
        for object in &members {
            late.extend(self.judge_ended(objects, *object, end.moment)?);
        }
        let bind = |object: &usize| (*object, self.histories[*object].first);
        let bound = |(_, bound): &(usize, Bound)| *bound != Bound::Absent;
        let first: BTreeMap<usize, Bound> = members.iter().map(bind).filter(bound).collect();
        let writes: Vec<prefix::Write> = self.orders.handed[region]
            .drain(..)
            .filter(|write| !write.void)
            .map(|write| write.write)
            .collect();
        for object in &members {
            self.histories[*object].accesses.clear();
        }
        let when = self.snapshot_moment();
        self.snapshot(objects, &range, pairs, when)?;
        let mut held = BTreeMap::new();
        for object in &members {
            let history = &mut self.histories[*object];
            let Some(AccessKind::Read(bound)) = history.accesses.pop().map(|access| access.kind)
            else {
                panic!("every object of the region was read");
            };
            history.first = bound;
            if bound != Bound::Absent {
                held.insert(*object, bound);
            }
        }
        for read in late {
            if check(self.histories[read.object].first, &[read.access]).is_err() {
                return Err(read.wrong);
            }
        }
        self.orders.sessions.retain(|(_, of), _| *of != region);
        let kept = prefix::check(&first, &writes, &held, end.at_least);
        let kept = kept.map_err(|what| format!("region {}: {what}", region + 1))?;
        Ok(writes.len() - kept)
    }

    /// Judges the history of `object` up to `moment`, when its process ended. Returns the reads that were answered
    /// later and do not fit this history: the next process has to have answered them.
    fn judge_ended(
        &self,
        objects: &Objects,
        object: usize,
        moment: u64,
    ) -> Result<Vec<LateRead>, Wrong> {
        let accesses = self.histories[object].accesses.iter().copied();
        let is_late = |access: &Access| {
            matches!(access.kind, AccessKind::Read(_) | AccessKind::Exists(_))
                && access.ended.is_some_and(|ended| ended > moment)
        };
        let (late, mut accesses): (Vec<Access>, Vec<Access>) = accesses.partition(is_late);
        self.judge_one(objects, object, &accesses)?;
        let mut unexplained = Vec::new();
        for access in late {
            accesses.push(access);
            if let Err(wrong) = self.judge_one(objects, object, &accesses) {
                accesses.pop();
                unexplained.push(LateRead {
                    object,
                    access,
                    wrong,
                });
            }
        }
        Ok(unexplained)
    }
}

fn explain(
    objects: &Objects,
    object: usize,
    accesses: &[Access],
    access: usize,
    possible: &[Bound],
) -> Wrong {
    let bad = &accesses[access];
    let possible: Vec<String> = possible.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "object {object} of region {}: {} cannot be, since it had {}\n",
        objects.get(object).region + 1,
        describe(bad),
        possible.join(" or "),
    );
    // By when they began: what began later had no part in it.
    let until = bad.ended.unwrap_or(bad.began);
    let mut before: Vec<&Access> = accesses
        .iter()
        .filter(|other| other.began <= until)
        .collect();
    before.sort_by_key(|other| other.began);
    for other in before.iter().skip(before.len().saturating_sub(SHOWN)) {
        let mark = if std::ptr::eq(*other, bad) { ">" } else { " " };
        let _ = writeln!(text, "  {mark} {}", describe(other));
    }
    text
}

fn describe(access: &Access) -> String {
    let what = match access.kind {
        AccessKind::Read(bound) => format!("a read that saw {bound}"),
        AccessKind::Exists(true) => "a read that saw something".to_owned(),
        AccessKind::Exists(false) => "a read that saw nothing".to_owned(),
        AccessKind::Void => "a write that was not applied".to_owned(),
        AccessKind::Write {
            condition: When::Is(value),
            ..
        } if access.op == CLOCK => format!("from now on {value} may be over"),
        AccessKind::Write { to, condition, saw } => {
            let when = match condition {
                When::Always => "",
                When::Absent => ", if there is nothing,",
                When::Present => ", if there is something,",
                When::Is(_) => ", if there is a certain value,",
            };
            let told = match saw {
                None => "of unknown outcome".to_owned(),
                Some(Saw { applied, before }) => {
                    format!("{} {before:?}", if applied { "applied" } else { "refused" })
                }
            };
            format!("a write{when} of {to}, {told}")
        }
    };
    let ended = access
        .ended
        .map_or("…".to_owned(), |ended| ended.to_string());
    format!("op {} ({}–{ended}): {what}", access.op, access.began)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
