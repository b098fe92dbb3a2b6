//! Groups that change at random, while members come, go, and lag behind.
//!
//! The driver and the other servers are played by a [`World`], which knows the truth: what each copy was sent and has
//! done under its present attempt. After each step it looks at what the primary says.

extern crate std;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use argosy_base::{
    EditSeq, FlushRange, LogId, Lsn, PerLog, Position, SegmentNumber, ServerId, Standing,
};

use crate::mode::Mutants;
use crate::primary::{Action, Event, Group, OwnCopy, Primary};

/// The other servers.
const SERVERS: [ServerId; 4] = [ServerId(1), ServerId(2), ServerId(3), ServerId(4)];
/// Steps of a run.
const STEPS: usize = 400;
/// Bytes of a flush.
const FLUSH_BYTES: u32 = 4096;

/// Numbers that look random, and are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn server(&mut self) -> ServerId {
        let end = SERVERS.len() as u64;
        SERVERS[usize::try_from(self.below(end)).expect("it is below that")]
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The truth about one other copy.
#[derive(Default)]
struct Truth {
    attempt: u64,
    /// It was asked to report.
    is_asked: bool,
    /// It was offered a checkpoint of this edit.
    offered: Option<EditSeq>,
    is_attached: bool,
    held: u64,
    applied: EditSeq,
    /// Ships on their way to it: number and highest LSN.
    ships: Vec<(u64, u64)>,
    /// Flushes that it was asked for.
    asked: Vec<FlushRange>,
    done: BTreeSet<u32>,
    /// It was told that it is whole.
    is_whole: bool,
}

impl Truth {
    /// What is on its device stays.
    fn lose_link(&mut self) {
        *self = Self {
            attempt: self.attempt,
            applied: self.applied,
            done: std::mem::take(&mut self.done),
            ..Self::default()
        };
    }
}

struct World {
    random: Random,
    primary: Primary,
    group: Group,
    copies: BTreeMap<ServerId, Truth>,
    appended: u64,
    opened: u64,
    committed: EditSeq,
    serves: bool,
    flushed: u32,
    /// Flushes below are done everywhere.
    everywhere: u32,
    ship: u64,
    commit: u64,
}

fn position(edit: EditSeq, lsn: u64) -> Position {
    Position {
        edit,
        lsn: Lsn(lsn),
        logs: PerLog::default(),
    }
}

fn range(number: u32) -> FlushRange {
    FlushRange {
        log: LogId::FIRST,
        ordinal: 0,
        segment: SegmentNumber(1),
        from: number * FLUSH_BYTES,
        to: (number + 1) * FLUSH_BYTES,
    }
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> Result<Self, String> {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let group = some_group(&mut random);
        let mut actions = Vec::new();
        let own = OwnCopy::Opened {
            position: position(EditSeq(5), 10),
            standing: Standing::Whole,
        };
        let mut world = Self {
            random,
            primary: Primary::new(&group, own, mutants, &mut actions),
            group,
            copies: BTreeMap::new(),
            appended: 10,
            opened: 10,
            committed: EditSeq(5),
            serves: false,
            flushed: 0,
            everywhere: 0,
            ship: 0,
            commit: 0,
        };
        world.look_at(actions)?;
        Ok(world)
    }

    /// Has the primary step, and looks at what it says.
    fn tell(&mut self, event: Event) -> Result<(), String> {
        let mut actions = Vec::new();
        self.primary.step(event, &mut actions);
        self.look_at(actions)
    }

    fn counted(&self) -> impl Iterator<Item = (ServerId, Option<&Truth>)> {
        let members = self.group.members.iter();
        members.map(|id| (*id, self.copies.get(id)))
    }

    /// Whether all members that count are such that `is_so`.
    fn all(&self, what: &Action, is_so: impl Fn(&Truth) -> bool) -> Result<(), String> {
        let mut members = self.counted();
        match members.find(|(_, copy)| !copy.is_some_and(&is_so)) {
            Some((id, _)) => Err(format!("{what:?}, and {id} is not so far")),
            None => Ok(()),
        }
    }

    fn look_at(&mut self, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            self.check(&action)?;
            let promoted = action == Action::Promote;
            self.carry_out(action);
            if promoted {
                self.committed = self.committed.next();
                self.tell(Event::Opened {
                    position: position(self.committed, self.appended),
                })?;
            }
        }
        Ok(())
    }

    fn check(&self, action: &Action) -> Result<(), String> {
        match *action {
            Action::Commit { lsn } => {
                self.all(action, |copy| copy.is_attached && copy.held >= lsn.0)?;
                match lsn.0 <= self.appended && lsn.0 > self.commit {
                    true => Ok(()),
                    false => Err(format!("{action:?} of {}", self.appended)),
                }
            }
            Action::Serve => {
                let opened = self.opened;
                self.all(action, |copy| copy.is_attached && copy.held >= opened)
            }
            Action::FlushedEverywhere { to, .. } => {
                let number = to / FLUSH_BYTES - 1;
                self.all(action, |copy| copy.done.contains(&number))
            }
            Action::SendFlush { member, range, .. } => {
                // Of a copy that is whole, and of no other, marks are believed that speak of such a flush.
                let is_late = range.from / FLUSH_BYTES < self.everywhere;
                let is_whole = self.copies[&member].is_whole;
                match is_late && is_whole {
                    true => Err(format!("{action:?}, and it was told that it is whole")),
                    false => Ok(()),
                }
            }
            Action::AppliedEverywhere { seq } => self.all(action, |copy| copy.applied >= seq),
            Action::Prepare { member, .. } => {
                let may = self.serves || self.group.members.contains(&member);
                may.then_some(())
                    .ok_or_else(|| format!("{member} is prepared"))
            }
            Action::TellWhole { member, .. } | Action::Filled { member } => {
                let whole = matches!(action, Action::TellWhole { .. });
                let copy = &self.copies[&member];
                // One that was filled holds what was committed when it went live.
                let least = if whole {
                    self.commit.max(self.opened)
                } else {
                    self.opened
                };
                let is_member = self.group.members.contains(&member);
                let number = |range: &FlushRange| range.from / FLUSH_BYTES;
                let owes = copy.asked.iter().any(|of| number(of) < self.everywhere);
                let right = copy.is_attached && copy.held >= least && is_member == whole;
                let right = right && !(whole && owes);
                match right && self.serves {
                    true => Ok(()),
                    false => Err(format!("{action:?}, and it holds {}", copy.held)),
                }
            }
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Commit { lsn } => self.commit = lsn.0,
            Action::Serve => self.serves = true,
            Action::Prepare {
                member, attempt, ..
            } => {
                let before = self.copies.entry(member).or_default();
                assert!(attempt > before.attempt, "an attempt comes once");
                before.lose_link();
                (before.attempt, before.is_asked) = (attempt, true);
            }
            Action::Offer { member, .. } => {
                let committed = self.committed;
                self.copies.entry(member).or_default().offered = Some(committed);
            }
            Action::Attach {
                member, position, ..
            } => {
                let copy = self.copies.entry(member).or_default();
                copy.is_attached = true;
                copy.held = position.lsn.0;
                copy.applied = copy.applied.max(position.edit);
            }
            Action::Detach { member } => {
                self.copies.entry(member).or_default().lose_link();
            }
            Action::SendFlush { member, range, .. } => {
                self.copies.entry(member).or_default().asked.push(range);
            }
            Action::FlushedEverywhere { to, .. } => self.everywhere = to / FLUSH_BYTES,
            Action::TellWhole { member, .. } => {
                self.copies.entry(member).or_default().is_whole = true;
            }
            _ => {}
        }
    }

    /// Something happens.
    fn step(&mut self) -> Result<(), String> {
        if self.random.is(3) {
            self.group = some_group(&mut self.random);
            let group = self.group.clone();
            self.tell(Event::Group { group })?;
        }
        if self.primary.is_serving() != self.serves {
            return Err("it serves, and has not said so".into());
        }
        if self.committed > EditSeq(5) && self.random.is(30) {
            self.go_on()?;
        }
        let id = self.random.server();
        match self.random.below(40) {
            0 => return self.tell(Event::LinkDown { member: id }),
            1 => return self.tell(Event::LinkUp { member: id }),
            _ => {}
        }
        match self.copies.get(&id) {
            Some(copy) if copy.is_asked => self.report(id),
            Some(copy) if copy.offered.is_some() => self.catch_up(id),
            Some(copy) if copy.is_attached => self.follow(id),
            _ => Ok(()),
        }
    }

    /// The primary appends, flushes, or commits an edit.
    fn go_on(&mut self) -> Result<(), String> {
        match self.random.below(4) {
            0 => {
                self.committed = self.committed.next();
                let seq = self.committed;
                self.tell(Event::EditCommitted { seq })
            }
            1 => {
                let range = range(self.flushed);
                self.flushed += 1;
                self.tell(Event::Flush { range })
            }
            _ => {
                self.appended += 1 + self.random.below(5);
                let last = Lsn(self.appended);
                self.tell(Event::Appended { last })
            }
        }
    }

    fn report(&mut self, member: ServerId) -> Result<(), String> {
        let edit = EditSeq(self.committed.0 - self.random.below(3));
        let lsn = self.opened.min(self.appended) - self.random.below(5);
        let copy = self.copies.get_mut(&member).expect("it was asked");
        copy.is_asked = false;
        // Its log ends in front of all flushes.
        copy.done.clear();
        let attempt = copy.attempt;
        self.tell(Event::Report {
            member,
            attempt,
            position: position(edit, lsn),
            standing: Standing::Ordinary,
        })
    }

    fn catch_up(&mut self, member: ServerId) -> Result<(), String> {
        let lsn = self.appended - self.random.below(8).min(self.appended);
        let copy = self.copies.get_mut(&member).expect("it was offered one");
        let edit = copy.offered.take().expect("the caller has seen it");
        copy.applied = edit;
        let attempt = copy.attempt;
        self.tell(Event::EditApplied {
            member,
            attempt,
            seq: edit,
        })?;
        self.tell(Event::CaughtUp {
            member,
            attempt,
            position: position(edit, lsn),
        })
    }

    /// An attached copy is sent something, or does something.
    fn follow(&mut self, member: ServerId) -> Result<(), String> {
        let (last, committed, what) = (self.appended, self.committed, self.random.below(4));
        let copy = self.copies.get_mut(&member).expect("it is attached");
        let attempt = copy.attempt;
        match what {
            0 => {
                self.ship += 1;
                let ship = self.ship;
                copy.ships.push((ship, last));
                self.tell(Event::Shipped {
                    member,
                    ship,
                    last: Lsn(last),
                })
            }
            1 if !copy.ships.is_empty() => {
                let (ship, last) = copy.ships.remove(0);
                copy.held = copy.held.max(last);
                self.tell(Event::Written { member, ship })
            }
            2 if !copy.asked.is_empty() => {
                let range = copy.asked.remove(0);
                copy.done.insert(range.from / FLUSH_BYTES);
                self.tell(Event::Flushed {
                    member,
                    attempt,
                    range,
                })
            }
            3 => {
                copy.applied = committed;
                self.tell(Event::EditApplied {
                    member,
                    attempt,
                    seq: committed,
                })
            }
            _ => Ok(()),
        }
    }
}

/// A group of some of the servers.
fn some_group(random: &mut Random) -> Group {
    let mut group = Group::default();
    for id in SERVERS {
        match random.below(4) {
            0 | 1 => group.members.push(id),
            2 => group.filling.push(id),
            _ => {}
        }
    }
    group
}

/// What is found in a run, and how much was committed in it.
fn run(seed: u64, mutants: Mutants) -> Result<u64, String> {
    let mut world = World::new(seed, mutants)?;
    for _ in 0..STEPS {
        world.step()?;
    }
    Ok(world.commit)
}

#[test]
fn what_is_said_is_so_whatever_becomes_of_the_group() {
    let committed = (1..=400).map(|seed| match run(seed, Mutants::default()) {
        Ok(commit) => commit,
        Err(wrong) => panic!("seed {seed}: {wrong}"),
    });
    let runs = committed.filter(|commit| *commit > 20).count();
    assert!(runs > 200, "{runs} runs have come far");
}

#[test]
fn mistakes_about_groups_are_found() {
    for name in [
        "acknowledge_early",
        "commit_live_only",
        "trust_report",
        "count_early",
        "fill_before_serving",
        "serve_before_equal",
    ] {
        let mut mutants = Mutants::default();
        assert!(mutants.plant(name), "{name}");
        let found = (1..=400).any(|seed| run(seed, mutants).is_err());
        assert!(found, "{name} is not found");
    }
}
