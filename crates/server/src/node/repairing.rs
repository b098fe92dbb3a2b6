//! Damage to this copy that another member can repair: the segment is fetched from there by its number, checked, and
//! written again ([`repair`](argosy_engine::repair)).
//!
//! 1. Reads, merges and scrubs note what is damaged, on a primary and on backups alike.
//! 2. One segment of a region at a time is asked for, of one member, over one slot of the link to it. Where that
//!    fails, the next member is asked for it. What all of them have failed to give is tried again after [`WAIT_MIN`],
//!    then twice as long each time, up to [`WAIT_MAX`]. What every other member has answered that it does not have is
//!    only here: where members build levels themselves, the copy is filled anew.
//! 3. What comes is copied out of the slot on the thread of the fabric, and checked, written and read again by the
//!    background, which holds no lock meanwhile.
//!
//! Once it is repaired, a read that failed succeeds, and merges read it again. What is found damaged and what is
//! repaired is a line of the log each, as far as [`LineRate`] has it. Bounded: one fetch of a region is under
//! way, and as many segments wait as the copy knows damage of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argosy_base::{Instant, RegionId, SegmentNumber, SegmentPart, ServerId};
use argosy_device::Buffer;
use argosy_engine::repair::{Repair, RepairError};
use argosy_engine::{Progress, Stored};
use argosy_wire::message::{FetchStatus, Message};

use super::context::Context;
use super::convert;
use super::counters::Counted;
use super::link::SHIP_SLOTS;
use super::local::LocalRegion;
use super::region::copy_of;
use crate::line_rate::LineRate;

/// Something was done.
const MADE: Progress = Progress {
    made: true,
    idle_for: None,
    device: false,
};
/// How long a segment waits that no member has helped to repair, at first and at most.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A segment that another member was asked for.
struct Asked {
    part: SegmentPart,
    from: ServerId,
    /// The number of the link's session: the slot is given back with that.
    session: u32,
    slot: u8,
}

/// When a segment is tried again.
struct Wait {
    until: Instant,
    next: Duration,
    /// How often a member was asked for it, in vain.
    asked: usize,
    /// Who does not have it.
    gone_at: BTreeSet<ServerId>,
}

/// How far repairing is.
enum Stage {
    Asked(Asked),
    /// It came, and has yet to be checked.
    Came(SegmentNumber, ServerId, Buffer),
    Writing(ServerId, Repair),
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Repairing {
    stage: Option<Stage>,
    waits: BTreeMap<SegmentNumber, Wait>,
    /// How many members can be asked.
    others: usize,
    /// Lines of the log: about what was found damaged, what was repaired, and what could not be.
    found_lines: LineRate,
    repaired_lines: LineRate,
    failed_lines: LineRate,
}

impl Repairing {
    /// Segment `number` could not be repaired with what one member has. It waits once all have been asked.
    fn wait(&mut self, number: SegmentNumber, now: Instant) {
        let wait = self.waits.entry(number).or_insert(Wait {
            until: now,
            next: WAIT_MIN,
            asked: 0,
            gone_at: BTreeSet::new(),
        });
        wait.asked += 1;
        if wait.asked.is_multiple_of(self.others.max(1)) {
            wait.until = now + wait.next;
            wait.next = (wait.next * 2).min(WAIT_MAX);
        }
        self.stage = None;
    }

    /// Member `from` does not have segment `number`, which waits.
    fn gone(&mut self, number: SegmentNumber, from: ServerId) {
        if let Some(wait) = self.waits.get_mut(&number) {
            wait.gone_at.insert(from);
        }
    }

    /// Notes which of the segments that wait none of `others` has.
    fn note_only_here(&self, others: &[ServerId], copy: &dyn Stored) {
        for (number, wait) in &self.waits {
            if others.iter().all(|other| wait.gone_at.contains(other)) {
                copy.note_only_here(*number);
            }
        }
    }

    /// Writes to the log which segments of the copy were found damaged: each once, and not too many at a time.
    fn warn_of(&mut self, region: RegionId, copy: &dyn Stored, now: Instant) {
        for damaged in copy.take_new_damaged() {
            if let Some(left_out) = self.found_lines.line(now) {
                tracing::warn!(
                    region = region.0,
                    left_out,
                    "{damaged}; merges pass over it, and what else can be read is not concerned"
                );
            }
        }
    }

    /// Whether what was `asked` for may still come.
    fn is_asked(&mut self, asked: Asked, now: Instant, context: &Context<'_>) -> Progress {
        let lives = {
            let link = context.link(asked.from);
            link.session() == asked.session && !link.is_silent(now)
        };
        match lives {
            true => self.stage = Some(Stage::Asked(asked)),
            false => self.wait(asked.part.number, now),
        }
        Progress {
            made: !lives,
            idle_for: Some(WAIT_MIN),
            device: false,
        }
    }

    /// Asks another member for the next segment that is due.
    fn ask(&mut self, local: &LocalRegion<'_>, copy: &dyn Stored, now: Instant) -> Progress {
        let LocalRegion { context, region } = *local;
        let mut damaged = copy.damaged();
        damaged.retain(|damaged| {
            let is_here = copy.holds(damaged.number);
            if !is_here {
                copy.note_repaired(damaged.number);
            }
            is_here
        });
        self.waits
            .retain(|number, _| damaged.iter().any(|damaged| damaged.number == *number));
        let mut others = region.view().members().to_vec();
        others.retain(|member| *member != context.id);
        if others.is_empty() {
            return Progress::default();
        }
        self.others = others.len();
        self.note_only_here(&others, copy);
        let waits = &self.waits;
        let left = |number: &SegmentNumber| {
            let wait = waits.get(number);
            wait.map_or(Duration::ZERO, |wait| wait.until.since(now))
        };
        let parts = damaged.iter().filter_map(|d| copy.wanted(d.number));
        let Some(part) = parts.min_by_key(|part| left(&part.number)) else {
            return Progress::default();
        };
        let left = left(&part.number);
        if !left.is_zero() {
            return Progress {
                idle_for: Some(left),
                ..Progress::default()
            };
        }
        let asked = waits.get(&part.number).map_or(0, |wait| wait.asked);
        let from = others[asked % others.len()];
        let (slot, session) = {
            let mut link = context.link(from);
            let slot = match link.is_silent(now) {
                true => None,
                false => link.take_fetch_slot(),
            };
            (slot, link.session())
        };
        let Some(slot) = slot else {
            self.wait(part.number, now);
            return MADE;
        };
        self.stage = Some(Stage::Asked(Asked {
            part,
            from,
            session,
            slot,
        }));
        let message = Message::Fetch {
            segment: part.number,
            from: part.from,
            to: part.to,
            slot,
        };
        context.send(from, region.id(), &message);
        MADE
    }
}

/// The repair of a segment with what a member has sent is done, or was given up.
struct Ended {
    number: SegmentNumber,
    from: ServerId,
    done: Result<(), RepairError>,
}

/// Moves the repair of the copy of a region on, which is `local`. In the background.
pub(super) fn step(local: &LocalRegion<'_>, now: Instant) -> Progress {
    let LocalRegion { context, region } = *local;
    let Some(copy) = copy_of(region) else {
        return Progress::default();
    };
    let stage = {
        let mut repairing = region.repairing();
        if copy.damage_stats().damaged == 0 && repairing.stage.is_none() {
            repairing.waits.clear();
            return Progress::default();
        }
        repairing.warn_of(region.id(), &*copy, now);
        match repairing.stage.take() {
            None => return repairing.ask(local, &*copy, now),
            Some(Stage::Asked(asked)) => return repairing.is_asked(asked, now, context),
            // What follows reads the device. Nothing is asked for meanwhile, and nothing comes.
            Some(stage) => stage,
        }
    };
    let ended = match stage {
        Stage::Asked(_) => return Progress::default(),
        Stage::Came(number, from, bytes) if !context.settings.mutants.claim_repair() => {
            match copy.begin_repair(number, bytes) {
                Ok(repair) => {
                    region.repairing().stage = Some(Stage::Writing(from, repair));
                    return MADE;
                }
                Err(error) => Ended {
                    number,
                    from,
                    done: Err(error),
                },
            }
        }
        Stage::Came(number, from, _) => {
            copy.note_repaired(number);
            Ended {
                number,
                from,
                done: Ok(()),
            }
        }
        Stage::Writing(from, repair) => match repair.poll(&*copy) {
            Some(done) => {
                let number = repair.number();
                Ended { number, from, done }
            }
            None => {
                region.repairing().stage = Some(Stage::Writing(from, repair));
                return Progress {
                    device: true,
                    ..Progress::default()
                };
            }
        },
    };
    end(local, ended, now);
    MADE
}

/// The repair of a segment with what a member has sent is done, or was given up. The log is told, and not too
/// often.
fn end(local: &LocalRegion<'_>, Ended { number, from, done }: Ended, now: Instant) {
    let LocalRegion { context, region } = *local;
    let (region_id, from) = (region.id().0, from.0);
    let mut repairing = region.repairing();
    match done {
        Ok(()) => {
            repairing.waits.remove(&number);
            if let Some(left_out) = repairing.repaired_lines.line(now) {
                tracing::warn!(
                    region = region_id,
                    from,
                    left_out,
                    "{number} was damaged and is repaired: it is whole again"
                );
            }
            drop(repairing);
            region.scrubber().repaired(number);
            context.count(Counted::RepairedSegments);
        }
        Err(error) => {
            repairing.wait(number, now);
            if let Some(left_out) = repairing.failed_lines.line(now) {
                tracing::warn!(region = region_id, from, left_out, %error, "not repaired");
            }
        }
    }
}

/// Whether `message` of `from` brings what was asked for here; it is taken then.
pub(super) fn take(local: &LocalRegion<'_>, from: ServerId, message: &Message<'_>) -> bool {
    let LocalRegion { context, region } = *local;
    let Message::Fetched {
        slot,
        status,
        len,
        checksum,
    } = *message
    else {
        return false;
    };
    let mut repairing = region.repairing();
    let is_it = |stage: &mut Stage| match stage {
        Stage::Asked(asked) => (asked.from, asked.slot) == (from, slot),
        Stage::Came(..) | Stage::Writing(..) => false,
    };
    let Some(Stage::Asked(asked)) = repairing.stage.take_if(is_it) else {
        return false;
    };
    let part = asked.part;
    let bytes = {
        let mut link = context.link(from);
        let whole = status == FetchStatus::Ok && len == part.to - part.from;
        let bytes = whole.then(|| {
            let bytes = link.read_slot(SHIP_SLOTS + slot, len as usize);
            let sum = convert::fetched_checksum(region.id(), part.number, part.from, bytes);
            (sum == checksum).then(|| Buffer::from_slice(bytes))
        });
        link.free_fetch_slot(slot);
        bytes.flatten()
    };
    match bytes {
        Some(bytes) => repairing.stage = Some(Stage::Came(part.number, from, bytes)),
        None => repairing.wait(part.number, context.now()),
    }
    if status == FetchStatus::Gone {
        repairing.gone(part.number, from);
    }
    context.wake(region.id());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member asks both others in turn without waiting. It waits after both have failed, and longer each time.
    #[test]
    fn a_segment_waits_once_all_have_been_asked() {
        let mut repairing = Repairing {
            others: 2,
            ..Repairing::default()
        };
        let (number, now) = (SegmentNumber(7), Instant::from_nanos(1));
        let mut waits = Vec::new();
        for _ in 0..6 {
            repairing.wait(number, now);
            let wait = &repairing.waits[&number];
            waits.push((wait.asked, wait.until.since(now).as_secs()));
        }
        // The clock stands still, so the wait of the round before is left while the first one is asked.
        assert_eq!(waits, [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 4)]);
    }
}
