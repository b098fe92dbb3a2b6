//! Whether the accesses of one object are those of a register.
//!
//! The accesses are followed in the order of their times, with the set of all *configurations* that
//! are possible so far: what the object is bound to, and which accesses under way have already
//! taken effect.
//!
//! 1. When an access begins it joins those under way.
//! 2. When one is answered it must have taken effect. Configurations in which it has not are led
//!    on: accesses under way take effect, in any order, until this one does, with the result that
//!    was reported. What leads nowhere is dropped; if nothing is left, the history is impossible.
//! 3. An access that can only observe takes effect as soon as what it saw is there: it changes
//!    nothing for the others, so nothing is lost by not waiting.
//! 4. A write of unknown outcome stays under way for ever. Of two configurations that differ only
//!    in which of these have taken effect, one with fewer can do all that the other can.
//! 5. Writes of unknown outcome whose values nobody saw, and deletes of unknown outcome, can stand
//!    for each other (`alike`): of those under way, the one that began first takes effect first.
//! 6. A value that expires is written once, so it is over once. That it is over by some clock is
//!    therefore no access that takes effect or has not: from then on, whoever is bound to that value
//!    may be led on to nothing.
//!
//! Taking effect as late as possible loses no history either: whatever order explains the answers
//! can be had by letting each access wait until the next answer needs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// What an object is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Nothing.
    Absent,
    /// The empty value, which writes share.
    Empty,
    /// The value of this operation.
    To(u32),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Empty => f.write_str("an empty value"),
            Self::To(op) => write!(f, "the value of op {op}"),
        }
    }
}

/// When a write takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Always.
    Always,
    /// If the object is bound to nothing.
    Absent,
    /// If it is bound to something.
    Present,
    /// If it is bound to this.
    Is(Bound),
}

impl When {
    /// Whether a write takes effect on what is bound to `bound`.
    #[must_use]
    pub fn holds(self, bound: Bound) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => bound == Bound::Absent,
            Self::Present => bound != Bound::Absent,
            Self::Is(wanted) => bound == wanted,
        }
    }
}

/// What a write told of the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Untold,
    /// Whether the object was bound.
    Existed(bool),
    /// What it was bound to.
    Was(Bound),
}

/// What a write reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saw {
    /// Whether its condition held.
    pub applied: bool,
    /// What was there before.
    pub before: Before,
}

/// What an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// It saw this.
    Read(Bound),
    /// It saw whether the object was bound.
    Exists(bool),
    /// It was reported as not applied: it never may be.
    Void,
    /// It wanted to bind the object.
    Write {
        /// To what.
        to: Bound,
        /// When only.
        condition: When,
        /// What it reported; `None` where the outcome is unknown.
        saw: Option<Saw>,
    },
}

/// What one operation did to, or saw of, one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The operation.
    pub op: u32,
    /// What it did.
    pub kind: AccessKind,
    /// When it began.
    pub began: u64,
    /// By when it had taken effect; `None` where that is unknown.
    pub ended: Option<u64>,
}

/// The operation of a clock: a delete that takes effect, if at all, once the access has begun, and if the
/// object is bound to the value that expires. Its condition is [`When::Is`], its outcome unknown.
pub const CLOCK: u32 = u32::MAX;

/// Configurations that are looked at for one answer, at most.
const WIDTH_MAX: usize = 50_000;

/// Why a history was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterViolation {
    /// No register has it.
    Impossible {
        /// The index of the access whose answer cannot be explained.
        access: usize,
        /// What the object could have been bound to at that moment.
        possible: Vec<Bound>,
    },
    /// Too much was under way at one time to find out.
    TooWide,
}

/// Accesses under way, and those of them that have taken effect, by index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    bound: Bound,
    /// With an end: what has taken effect of these matters exactly.
    certain: BTreeSet<usize>,
    /// Without.
    uncertain: BTreeSet<usize>,
}

/// Configurations without those that another one covers.
#[derive(Default)]
struct Possible(BTreeMap<(Bound, BTreeSet<usize>), Vec<BTreeSet<usize>>>);

impl Possible {
    /// Adds one. False where it was covered.
    fn add(&mut self, new: Configuration) -> bool {
        let known = self.0.entry((new.bound, new.certain)).or_default();
        if known.iter().any(|old| old.is_subset(&new.uncertain)) {
            return false;
        }
        known.retain(|old| !new.uncertain.is_subset(old));
        known.push(new.uncertain);
        true
    }

    fn into_all(self) -> Vec<Configuration> {
        let mut all = Vec::new();
        for ((bound, certain), sets) in self.0 {
            for uncertain in sets {
                all.push(Configuration {
                    bound,
                    certain: certain.clone(),
                    uncertain,
                });
            }
        }
        all
    }
}

/// What is under way at one moment of a history.
struct Now<'a> {
    accesses: &'a [Access],
    /// For each access the one before it that is like it.
    earlier: Vec<Option<usize>>,
    under_way: BTreeSet<usize>,
    /// What may be over by now.
    over: BTreeSet<Bound>,
}

/// Checks the history of an object that was bound to `first`.
///
/// # Errors
/// The first answer that cannot be explained.
pub fn check(first: Bound, accesses: &[Access]) -> Result<(), RegisterViolation> {
    follow(first, accesses, |_, _| ())
}

/// As [`check`]; tells what `finally` makes of what is possible at the end.
fn follow<T>(
    first: Bound,
    accesses: &[Access],
    finally: impl FnOnce(&Now<'_>, &[Configuration]) -> T,
) -> Result<T, RegisterViolation> {
    let mut accesses = accesses.to_vec();
    let mut now = Now {
        earlier: alike(&mut accesses),
        accesses: &accesses,
        under_way: BTreeSet::new(),
        over: BTreeSet::new(),
    };
    let mut possible = vec![Configuration {
        bound: first,
        certain: BTreeSet::new(),
        uncertain: BTreeSet::new(),
    }];
    for (_, ends, index) in moments(now.accesses) {
        if !ends {
            if let Some(value) = expiring(&now.accesses[index]) {
                now.over.insert(value);
                continue;
            }
            now.under_way.insert(index);
            let of_it = BTreeSet::from([index]);
            possible
                .iter_mut()
                .for_each(|one| observe(one, &of_it, now.accesses));
            continue;
        }
        let led = lead(&possible, index, &now).ok_or(RegisterViolation::TooWide)?;
        if led.is_empty() {
            let bounds: BTreeSet<Bound> = possible.iter().map(|one| one.bound).collect();
            let possible = bounds.into_iter().collect();
            let access = index;
            return Err(RegisterViolation::Impossible { access, possible });
        }
        now.under_way.remove(&index);
        possible = led;
    }
    Ok(finally(&now, &possible))
}

/// When accesses begin (`false`) and end, in the order of time.
fn moments(accesses: &[Access]) -> Vec<(u64, bool, usize)> {
    let mut moments = Vec::new();
    let counts = |access: &Access| access.kind != AccessKind::Void;
    for (index, access) in accesses
        .iter()
        .enumerate()
        .filter(|(_, access)| counts(access))
    {
        moments.push((access.began, false, index));
        moments.extend(access.ended.map(|ended| (ended, true, index)));
    }
    moments.sort_unstable();
    moments
}

/// The value that may be over when this begins.
fn expiring(access: &Access) -> Option<Bound> {
    match access.kind {
        AccessKind::Write {
            condition: When::Is(value),
            ..
        } if access.op == CLOCK => Some(value),
        _ => None,
    }
}

/// Finds writes of unknown outcome that can stand for each other: they have the same condition, and
/// delete, or write a value that nobody saw, and that expires or not; such values become one, which may be
/// over when the first of them is. Returns for each access the one before it that is like it.
fn alike(accesses: &mut [Access]) -> Vec<Option<usize>> {
    let (mut seen, mut expires) = (BTreeSet::new(), BTreeSet::new());
    for access in &*accesses {
        if let AccessKind::Write {
            condition: When::Is(bound),
            ..
        } = access.kind
        {
            match access.op {
                CLOCK => expires.insert(bound),
                _ => seen.insert(bound),
            };
        }
        match access.kind {
            AccessKind::Read(bound) => seen.insert(bound),
            AccessKind::Write { saw: Some(saw), .. } => match saw.before {
                Before::Was(bound) => seen.insert(bound),
                Before::Untold | Before::Existed(_) => continue,
            },
            AccessKind::Exists(_) | AccessKind::Void | AccessKind::Write { saw: None, .. } => {
                continue;
            }
        };
    }
    let mut renamed: BTreeMap<Bound, Bound> = BTreeMap::new();
    let mut last: BTreeMap<(bool, When, bool), (usize, Bound)> = BTreeMap::new();
    let mut earlier = vec![None; accesses.len()];
    let mut order: Vec<usize> = (0..accesses.len()).collect();
    order.sort_by_key(|index| accesses[*index].began);
    for index in order {
        let access = &mut accesses[index];
        let AccessKind::Write {
            to,
            condition,
            saw: None,
        } = &mut access.kind
        else {
            continue;
        };
        if access.ended.is_some() || (*to != Bound::Absent && seen.contains(to)) {
            continue;
        }
        if let When::Is(bound) = condition {
            *bound = *renamed.get(bound).unwrap_or(bound);
        }
        if access.op == CLOCK {
            continue;
        }
        let class = (*to == Bound::Absent, *condition, expires.contains(to));
        if let Some((before, bound)) = last.get(&class) {
            earlier[index] = Some(*before);
            renamed.insert(*to, *bound);
            *to = *bound;
        }
        last.insert(class, (index, *to));
    }
    earlier
}

/// All configurations in which access `index`, which ends now, has taken effect; it is forgotten in
/// them. `None`: there are too many.
fn lead(possible: &[Configuration], index: usize, now: &Now<'_>) -> Option<Vec<Configuration>> {
    let mut reached = Possible::default();
    let mut seen = Possible::default();
    // The fewest steps first, so that what is covered by others is found to be so at once.
    let mut work: VecDeque<Configuration> = VecDeque::new();
    let mut found = |mut one: Configuration, work: &mut VecDeque<Configuration>| {
        if one.certain.remove(&index) {
            reached.add(one);
        } else if seen.add(one.clone()) {
            work.push_back(one);
        }
    };
    possible
        .iter()
        .for_each(|one| found(one.clone(), &mut work));
    let mut looked_at = 0;
    while let Some(one) = work.pop_front() {
        looked_at += 1;
        if looked_at > WIDTH_MAX {
            return None;
        }
        for mut led in next(&one, now) {
            observe(&mut led, &now.under_way, now.accesses);
            found(led, &mut work);
        }
    }
    Some(reached.into_all())
}

/// What a configuration may be led on to in one step.
fn next<'a>(one: &'a Configuration, now: &'a Now<'_>) -> impl Iterator<Item = Configuration> + 'a {
    let over = now.over.contains(&one.bound).then(|| Configuration {
        bound: Bound::Absent,
        ..one.clone()
    });
    let steps = now.under_way.iter().filter_map(|index| {
        let access = &now.accesses[*index];
        let done = one.certain.contains(index) || one.uncertain.contains(index);
        let too_early = now.earlier[*index].is_some_and(|first| !one.uncertain.contains(&first));
        if done || too_early {
            return None;
        }
        let bound = effect(&access.kind, one.bound)?;
        if bound == one.bound && changes_nothing(access) {
            return None;
        }
        let mut led = one.clone();
        led.bound = bound;
        match access.ended {
            Some(_) => led.certain.insert(*index),
            None => led.uncertain.insert(*index),
        };
        Some(led)
    });
    over.into_iter().chain(steps)
}

/// Whether an access that leaves an object as it is may as well not have taken effect: that it did is
/// of use to nobody. (Of accesses that are alike the first goes first, whatever it does.)
fn changes_nothing(access: &Access) -> bool {
    let depends = |condition| matches!(condition, When::Is(_));
    access.ended.is_none()
        && matches!(access.kind, AccessKind::Write { condition, saw: None, .. } if depends(condition))
}

/// Lets those of `candidates` take effect that only observe, and see what is there.
fn observe(one: &mut Configuration, candidates: &BTreeSet<usize>, accesses: &[Access]) {
    for index in candidates {
        let access = &accesses[*index];
        let observes = only_observes(&access.kind) && access.ended.is_some();
        if observes && effect(&access.kind, one.bound).is_some() {
            one.certain.insert(*index);
        }
    }
}

/// Whether the access cannot have changed anything, given what it reported.
fn only_observes(kind: &AccessKind) -> bool {
    match kind {
        AccessKind::Read(_) | AccessKind::Exists(_) => true,
        AccessKind::Void | AccessKind::Write { saw: None, .. } => false,
        AccessKind::Write {
            to, saw: Some(saw), ..
        } => {
            let was_absent = matches!(
                saw.before,
                Before::Existed(false) | Before::Was(Bound::Absent)
            );
            !saw.applied || (*to == Bound::Absent && was_absent)
        }
    }
}

/// What the object is bound to after the access took effect on `bound`; `None` where its result
/// would have been another.
fn effect(kind: &AccessKind, bound: Bound) -> Option<Bound> {
    match *kind {
        AccessKind::Void => None,
        AccessKind::Read(saw) => (saw == bound).then_some(bound),
        AccessKind::Exists(saw) => (saw == (bound != Bound::Absent)).then_some(bound),
        AccessKind::Write { to, condition, saw } => {
            let applied = condition.holds(bound);
            let fits = saw.is_none_or(|saw| {
                let before = match saw.before {
                    Before::Untold => true,
                    Before::Existed(existed) => existed == (bound != Bound::Absent),
                    Before::Was(was) => was == bound,
                };
                before && saw.applied == applied
            });
            fits.then_some(if applied { to } else { bound })
        }
    }
}

/// What the object may be bound to once everything under way has, or has not, taken effect.
#[cfg(test)]
fn ends_of(now: &Now<'_>, possible: &[Configuration]) -> BTreeSet<Bound> {
    let mut ends = BTreeSet::new();
    let mut seen = Possible::default();
    let mut work: VecDeque<Configuration> = possible.iter().cloned().collect();
    while let Some(one) = work.pop_front() {
        if seen.add(one.clone()) {
            ends.insert(one.bound);
            work.extend(next(&one, now));
        }
    }
    ends
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
