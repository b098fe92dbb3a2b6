//! What clients have asked and been answered.
//!
//! A write stands in the history of its objects from the moment it is asked, as one of unknown
//! outcome; its answer, if one comes, fills in the rest. A read enters it with its answer. What is
//! wrong with an answer by itself is told at once; whether all answers together are possible is
//! for the [checkers](crate::check), at the end.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::Moment;

use crate::asks::{Ask, COUNTERS};
use crate::check::counter::Increment;
use crate::check::order::Handed;
use crate::check::register::AccessKind;
use crate::check::{Access, Bound, CLOCK, When, prefix};
use crate::objects::Objects;

mod answers;
mod expiring;
mod looks;
mod parts;
mod request;

use expiring::Expiries;
use looks::BUSY_MAX;
pub(crate) use looks::{Fate, no_space};
pub(crate) use parts::HandedWrite;
use parts::{WriteOrders, has_parts};
pub(crate) use request::{Answer, Asking, Expect, Pending};

/// One object's history.
pub(crate) struct History {
    pub(crate) first: Bound,
    pub(crate) accesses: Vec<Access>,
}

/// See the module documentation.
pub(crate) struct Load {
    pub(crate) histories: Vec<History>,
    pending: BTreeMap<u32, Pending>,
    pub(crate) orders: WriteOrders,
    /// What was asked of the numbers that are only incremented.
    pub(crate) counters: [Vec<Increment>; COUNTERS],
    pub(crate) expiries: Expiries,
    /// Operations that remove ranges, and do not tell what was there.
    pub(crate) erasures: BTreeSet<u32>,
    /// Writes under way of each object.
    busy: Vec<usize>,
    /// The last write that was answered as applied.
    last_applied: Option<u32>,
    /// Bytes of the values of each operation.
    pub(crate) lens: Vec<usize>,
    pub(crate) devices: DeviceTroubles,
    pub(crate) failures: Failures,
    moment: u64,
}

/// What devices may do to requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct DeviceTroubles {
    /// They may be full: then deletes overtake writes that wait for room.
    may_fill: bool,
    /// They may fail.
    may_fail: bool,
    /// One is damaged, or was since every region was whole.
    pub(crate) damaged: bool,
}

/// What requests were told that failed.
#[derive(Default)]
pub(crate) struct Failures {
    /// The last one.
    pub(crate) last: String,
    /// Of each region, the moment at which a request was last sent away from there.
    sent_away: BTreeMap<usize, u64>,
}

/// An answer that is wrong, in words.
pub(crate) type Wrong = String;

impl Load {
    /// Nothing has been asked of these objects.
    #[must_use]
    pub(crate) fn new(objects: usize, regions: usize, deletes_overtake: bool) -> Self {
        let history = || History {
            first: Bound::Absent,
            accesses: Vec::new(),
        };
        Self {
            histories: std::iter::repeat_with(history).take(objects).collect(),
            pending: BTreeMap::new(),
            orders: WriteOrders::new(regions),
            counters: <[Vec<Increment>; COUNTERS]>::default(),
            expiries: Expiries::default(),
            erasures: BTreeSet::new(),
            busy: vec![0; objects],
            last_applied: None,
            lens: Vec::new(),
            devices: DeviceTroubles {
                may_fill: deletes_overtake,
                ..DeviceTroubles::default()
            },
            failures: Failures::default(),
            moment: 0,
        }
    }

    /// The same, on devices that may fail if `fails`.
    #[must_use]
    pub(crate) const fn on_devices_that_fail(mut self, fails: bool) -> Self {
        self.devices.may_fail = fails;
        self
    }

    fn take(&mut self, op: u32) -> Option<Pending> {
        let pending = self.pending.remove(&op)?;
        for (object, _) in &pending.accesses {
            self.busy[*object] -= 1;
        }
        Some(pending)
    }

    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    // --- Asking ---

    /// `ask` is being asked, as the next operation.
    pub(crate) fn ask(&mut self, objects: &Objects, ask: Ask, asking: Asking) {
        let op = self.next_op();
        let began = self.moment();
        let mut pending = Pending {
            ask,
            asking,
            damaged: self.devices.damaged,
            began,
            several_regions: false,
            accesses: Vec::new(),
            handed: Vec::new(),
        };
        if let Ask::Add { counter } = pending.ask {
            let told = None;
            self.counters[counter].push(Increment { op, began, told });
        }
        let mut len = 0;
        if let Ask::Write {
            targets, condition, ..
        } = &pending.ask
        {
            len = targets.iter().map(|target| target.len).max().unwrap_or(0);
            pending.several_regions = has_parts(objects, targets, self.erasures.contains(&op));
            for target in targets {
                let kind = AccessKind::Write {
                    to: target.to,
                    condition: *condition,
                    saw: None,
                };
                let accesses = &mut self.histories[target.object].accesses;
                pending.accesses.push((target.object, accesses.len()));
                self.busy[target.object] += 1;
                accesses.push(Access {
                    op,
                    kind,
                    began,
                    ended: None,
                });
                if target.to == Bound::To(op) {
                    self.expiries.bind(target.object, op);
                }
            }
            if asking.direct {
                pending.handed = self.hand(objects, &pending);
            }
        }
        self.lens.push(len);
        self.pending.insert(op, pending);
        self.time_reached(self.expiries.reached());
    }

    /// Hands a write to its regions. Returns its places in what they were handed.
    fn hand(&mut self, objects: &Objects, pending: &Pending) -> Vec<(usize, usize)> {
        let Ask::Write {
            targets, condition, ..
        } = &pending.ask
        else {
            panic!("the caller has looked");
        };
        let (condition, session) = (*condition, pending.asking.session);
        let mut by_region: BTreeMap<usize, Vec<(usize, Bound)>> = BTreeMap::new();
        for target in targets {
            let region = objects.get(target.object).region;
            by_region
                .entry(region)
                .or_default()
                .push((target.object, target.to));
        }
        for (region, to) in &by_region {
            let deletes = to.iter().all(|(_, bound)| *bound == Bound::Absent);
            if deletes && self.devices.may_fill {
                continue;
            }
            let session = self.orders.sessions.entry((session, *region)).or_default();
            session.extend(to.iter().map(|(object, _)| Handed {
                object: *object,
                access: self.histories[*object].accesses.len() - 1,
            }));
        }
        let mut places = Vec::new();
        for (region, to) in by_region {
            places.push((region, self.orders.handed[region].len()));
            let write = prefix::Write {
                to,
                condition,
                taken: prefix::Taken::Certainly,
            };
            self.orders.handed[region].push(HandedWrite {
                write,
                applied: None,
                void: false,
            });
        }
        places
    }

    // --- What is under way, and how writes went ---

    /// A device is damaged now: what is under way may be told, even when all is mended.
    pub(crate) fn damage(&mut self) {
        self.devices.damaged = true;
        for pending in self.pending.values_mut() {
            pending.damaged = true;
        }
    }

    /// The time of the last request or answer, as histories count it.
    pub(crate) const fn last_moment(&self) -> u64 {
        self.moment
    }

    /// The number of the next operation.
    #[must_use]
    pub(crate) fn next_op(&self) -> u32 {
        u32::try_from(self.lens.len()).expect("a few thousand operations")
    }

    /// The last write that was answered as applied.
    #[must_use]
    pub(crate) const fn last_applied(&self) -> Option<u32> {
        self.last_applied
    }

    /// Requests under way, by operation.
    #[must_use]
    pub(crate) const fn pending(&self) -> &BTreeMap<u32, Pending> {
        &self.pending
    }

    /// Whether so many writes of one of these objects are under way that their orders could not be
    /// looked at any more.
    #[must_use]
    pub(crate) fn is_crowded(&self, ask: &Ask) -> bool {
        let Ask::Write { targets, .. } = ask else {
            return false;
        };
        targets
            .iter()
            .any(|target| self.busy[target.object] >= BUSY_MAX)
    }

    /// How the write of `object` by operation `op` went.
    #[must_use]
    pub(crate) fn fate(&self, op: u32, object: usize) -> Fate {
        if self.pending.contains_key(&op) {
            return Fate::Pending;
        }
        let mut accesses = self.histories[object].accesses.iter().rev();
        match accesses.find(|access| access.op == op) {
            Some(Access {
                kind: AccessKind::Void,
                ..
            }) => Fate::NotApplied,
            Some(Access { ended: Some(_), .. }) => Fate::Applied,
            Some(_) | None => Fate::Unknown,
        }
    }

    /// A clock has shown this.
    pub(crate) fn time_reached(&mut self, moment: Moment) {
        self.expiries.reach(moment);
        while let Some((object, op)) = self.expiries.take_due() {
            let began = self.moment();
            self.histories[object].accesses.push(Access {
                op: CLOCK,
                kind: AccessKind::Write {
                    to: Bound::Absent,
                    condition: When::Is(Bound::To(op)),
                    saw: None,
                },
                began,
                ended: None,
            });
        }
    }
}

/// Keys and values.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
