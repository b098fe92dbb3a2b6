//! The master's loop: election, reading, and one transaction after the other.
//!
//! ```text
//! Idle ──open a session──► Opening ──► Standby ──create the key──► Leading
//!   ▲                                                                 │
//!   └────────────────── the session has ended ◄───────────────────────┘
//! ```
//!
//! 1. Whoever creates the ephemeral key `master` leads; the others watch it. While they stand by they look who is
//!    there, so that they know who is lost when they take over.
//! 2. Who leads reads everything ([`Round`]) after each hint, after each change, when the planner asks for it, and from
//!    time to time. Then the [`Planner`] says what the next map is.
//!    Where all is well, and nothing that was read has changed, it is not asked: a cluster at rest costs a few reads
//!    for each server, whatever its regions.
//! 3. What is about to be done is written to the [redo log](crate::redo) first, in a transaction of its own. Then the
//!    shards of the map that it concerns are set, and with them how far the jobs are.
//! 4. Both transactions hold if map and log are still what was read, and while the master holds the election: under its
//!    session, and with the key there. A deposed master changes nothing. After a conflict, or an unknown outcome,
//!    everything is read again.
//!
//! Two masters at a time do no harm (the model has two): the comparison decides between them.
//!
//! The value under `master` is `{"schema":"argosy.master.v1","server":0}`: it tells people who leads. Nothing is done
//! for what it says.

use std::collections::VecDeque;

use argosy_base::{Instant, ServerId};
use argosy_coordinator::reports::{REPORTS_KEY, SERVERS_KEY, server_of};
use argosy_coordinator::{
    CLUSTER_KEY, Coordinator, CoordinatorError, CoordinatorEvent, CoordinatorOp, CoordinatorReply,
    EntryVersion, JOBS_KEY, MASTER_KEY, MapWrite, Request, RequestId, SessionId, SessionState,
};

use crate::phase::{ActBytes, Ask, Asked, ErrandLeft, Known, Pending, Phase, Sent, Work};
use crate::plan::Planner;
use crate::redo::Errand;
use crate::round::{Round, RoundError};
use crate::settings::{MasterTimes, Mutants, PlanSettings};
use crate::steps::GroupStep;

/// Most events that one step takes.
const EVENTS_MAX: usize = 256;

/// Most steps that are kept until somebody asks for them. Older ones go.
const STEPS_KEPT: usize = 1024;

/// What a master is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterRole {
    /// It has no session.
    Outside,
    /// Another one leads, or nobody yet.
    Standby,
    /// It leads.
    Leading,
    /// It has resigned.
    Resigned,
}

/// What a master has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MasterTally {
    /// How often it was elected.
    pub elections: u64,
    /// How often it has read everything.
    pub rounds: u64,
    /// Maps that it has set.
    pub changes: u64,
    /// Times that it has written the redo log by itself.
    pub notes: u64,
    /// Maps and logs that it has not set, because another was there.
    pub conflicts: u64,
    /// Values of servers that it did not understand.
    pub strange: u64,
}

/// See the module documentation.
pub struct Master {
    coordinator: Box<dyn Coordinator>,
    server: ServerId,
    times: MasterTimes,
    mutants: Mutants,
    planner: Planner,
    phase: Phase,
    /// When it does something again, hint or not.
    next: Instant,
    /// Something may have changed since the last reading began.
    hinted: bool,
    /// The coordinator is polled often: what was read last is about to change.
    is_under_way: bool,
    tally: MasterTally,
    steps: VecDeque<GroupStep>,
    trouble: Option<RoundError>,
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Master");
        shown
            .field("server", &self.server)
            .field("phase", &self.phase);
        shown.finish_non_exhaustive()
    }
}

impl Master {
    /// A master on `server`. The `coordinator` is its own handle: it has no session, and nobody else polls it.
    ///
    /// # Panics
    /// When the coordinator does not take four watches.
    #[must_use]
    pub fn new(
        mut coordinator: Box<dyn Coordinator>,
        server: ServerId,
        settings: PlanSettings,
        times: MasterTimes,
        now: Instant,
    ) -> Self {
        for key in [CLUSTER_KEY, SERVERS_KEY, REPORTS_KEY, MASTER_KEY] {
            coordinator
                .watch(key)
                .expect("a handle watches more keys than four");
        }
        Self {
            coordinator,
            server,
            times,
            mutants: Mutants::default(),
            planner: Planner::new(settings, Mutants::default(), now),
            phase: Phase::Idle,
            next: now,
            hinted: false,
            is_under_way: false,
            tally: MasterTally::default(),
            steps: VecDeque::new(),
            trouble: None,
        }
    }

    /// The same master with planted mistakes, which forgets what it has seen.
    #[must_use]
    pub fn with_mutants(mut self, settings: PlanSettings, mutants: Mutants, now: Instant) -> Self {
        self.mutants = mutants;
        self.planner = Planner::new(settings, mutants, now);
        self
    }

    /// What it is at the moment.
    #[must_use]
    pub const fn role(&self) -> MasterRole {
        match self.phase {
            Phase::Idle | Phase::Opening(_) => MasterRole::Outside,
            Phase::Standby { .. } => MasterRole::Standby,
            Phase::Leading { .. } => MasterRole::Leading,
            Phase::Resigning(_) | Phase::Resigned => MasterRole::Resigned,
        }
    }

    /// What it has done.
    #[must_use]
    pub const fn tally(&self) -> MasterTally {
        self.tally
    }

    /// Why it could not read everything the last time that it tried.
    #[must_use]
    pub const fn trouble(&self) -> Option<&RoundError> {
        self.trouble.as_ref()
    }

    /// The steps that it has done since the last call. The latest 1024 are kept.
    pub fn take_steps(&mut self) -> impl Iterator<Item = GroupStep> + '_ {
        self.steps.drain(..)
    }

    /// Gives the office up, so that another takes it at once. Whatever is on its way may still take effect.
    pub fn resign(&mut self) {
        let session = match self.phase {
            Phase::Standby { session, .. } | Phase::Leading { session, .. } => session,
            Phase::Resigning(_) | Phase::Resigned => return,
            Phase::Idle | Phase::Opening(_) => {
                self.phase = Phase::Resigned;
                return;
            }
        };
        let id = self.coordinator.submit(Request::CloseSession { session });
        self.phase = Phase::Resigning(id);
    }

    /// Does what there is to do, and says when it wants to be called again; `None` when it has resigned.
    pub fn step(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..EVENTS_MAX {
            match self.coordinator.poll(now) {
                Some(event) => self.take(event, now),
                None => break,
            }
        }
        if let SessionState::Expired(ended) = self.coordinator.session()
            && self.session() == Some(ended)
        {
            self.start_over(now);
        }
        self.begin(now);
        match self.phase {
            Phase::Resigned => None,
            _ if self.is_waiting() || self.is_under_way => Some(now + self.times.poll_every),
            // A handle that is not polled loses its session.
            _ => Some(self.next.min(now + self.times.session_timeout / 4)),
        }
    }

    const fn session(&self) -> Option<SessionId> {
        match self.phase {
            Phase::Standby { session, .. } | Phase::Leading { session, .. } => Some(session),
            _ => None,
        }
    }

    const fn is_waiting(&self) -> bool {
        match &self.phase {
            Phase::Opening(_) | Phase::Resigning(_) => true,
            Phase::Standby { asked, .. } => asked.is_some(),
            Phase::Leading { work, .. } => !matches!(work, Work::Rest),
            Phase::Idle | Phase::Resigned => false,
        }
    }

    fn start_over(&mut self, now: Instant) {
        self.phase = Phase::Idle;
        self.is_under_way = false;
        self.next = now;
    }

    /// Nothing more is to be done before the time of the next reading.
    fn rest(&mut self, now: Instant) {
        self.next = now + self.times.read_every;
    }

    /// It has not succeeded. After a lost connection nothing is known, and to read again is all that there is to do.
    fn fail(&mut self, error: RoundError, now: Instant) {
        self.rest(now);
        if let RoundError::Coordinator(CoordinatorError::ConnectionLost) = error {
            self.next = now + self.times.poll_every;
        }
        self.trouble = Some(error);
    }

    fn take(&mut self, event: CoordinatorEvent, now: Instant) {
        let (id, answer) = match event {
            CoordinatorEvent::MayHaveChanged { .. } => {
                self.hinted = true;
                return;
            }
            CoordinatorEvent::Ended { id, answer } => (id, answer),
        };
        if let Err(CoordinatorError::SessionExpired { session }) = &answer
            && self.session() == Some(*session)
        {
            return self.start_over(now);
        }
        match &mut self.phase {
            Phase::Opening(asked) if *asked == id => match answer {
                Ok(CoordinatorReply::Opened { session, .. }) => {
                    self.phase = Phase::Standby {
                        session,
                        asked: None,
                    };
                    self.next = now;
                }
                _ => {
                    self.phase = Phase::Idle;
                    self.rest(now);
                }
            },
            Phase::Resigning(asked) if *asked == id => self.phase = Phase::Resigned,
            Phase::Standby { session, asked } if asked.is_some_and(|asked| asked.id == id) => {
                let session = *session;
                if let Some(asked) = asked.take() {
                    self.stand_by(session, asked.what, answer, now);
                }
            }
            Phase::Leading { work, .. } => match std::mem::replace(work, Work::Rest) {
                Work::Reading(round) if round.is_waiting_for(id) => {
                    self.read(round, id, answer, now);
                }
                Work::Changing(pending) if pending.id == id => {
                    self.changed(*pending, answer, now);
                }
                other => *work = other,
            },
            _ => {}
        }
    }

    /// What comes after an answer while it stands by.
    fn stand_by(
        &mut self,
        session: SessionId,
        what: Ask,
        answer: Result<CoordinatorReply, CoordinatorError>,
        now: Instant,
    ) {
        let mine = match (what, &answer) {
            (Ask::Create, Ok(_)) => true,
            (Ask::Owner, Ok(CoordinatorReply::Entry(entry))) => entry.owner == Some(session),
            _ => false,
        };
        if mine {
            self.tally.elections += 1;
            self.next = now;
            self.phase = Phase::Leading {
                session,
                work: Work::Rest,
                known: Known::default(),
            };
            return;
        }
        let next = match (what, answer) {
            (Ask::Create, Err(CoordinatorError::Conflict { .. })) => Some(Ask::Owner),
            (Ask::Owner, Ok(_)) => Some(Ask::Servers),
            (Ask::Servers, Ok(CoordinatorReply::Children(names))) => {
                self.planner
                    .see(names.iter().filter_map(|name| server_of(name)));
                None
            }
            _ => None,
        };
        match next {
            Some(what) => self.ask(session, what),
            None => self.rest(now),
        }
    }

    fn ask(&mut self, session: SessionId, what: Ask) {
        let key = MASTER_KEY.to_owned();
        let request = match what {
            Ask::Create => Request::Multi {
                ops: vec![CoordinatorOp::CreateEphemeral {
                    key,
                    value: self.office(),
                }],
                under: Some(session),
            },
            Ask::Owner => Request::Read { key },
            Ask::Servers => Request::Children {
                key: SERVERS_KEY.to_owned(),
            },
        };
        let id = self.coordinator.submit(request);
        let asked = Some(Asked { id, what });
        self.phase = Phase::Standby { session, asked };
    }

    /// The value under the key of the master.
    fn office(&self) -> Vec<u8> {
        format!(
            "{{\"schema\":\"argosy.master.v1\",\"server\":{}}}",
            self.server.0
        )
        .into_bytes()
    }

    fn read(
        &mut self,
        mut round: Box<Round>,
        id: RequestId,
        answer: Result<CoordinatorReply, CoordinatorError>,
        now: Instant,
    ) {
        if let Err(error) = round.take(id, answer) {
            return self.fail(error, now);
        }
        round.ask(&mut *self.coordinator);
        if !round.is_over() {
            self.work_at(Work::Reading(round));
            return;
        }
        self.tally.rounds += 1;
        self.tally.strange += round.strange();
        let mark = round.mark();
        self.trouble = None;
        self.rest(now);
        let Some(cluster) = round.into_cluster() else {
            return;
        };
        let Phase::Leading { known, .. } = &mut self.phase else {
            return;
        };
        known.map = Some(cluster.stored());
        if known.at_rest.as_ref() == Some(&mark) {
            return;
        }
        let plan = self.planner.step(&cluster, now);
        known.at_rest = Some(mark).filter(|_| plan.is_at_rest);
        self.is_under_way = plan.is_under_way || plan.map.is_some();
        if let Some(again) = plan.again {
            self.next = self.next.min(again);
        }
        let Some(session) = self.session() else {
            return;
        };
        let bounds = self.planner.bounds();
        let Errand { note, act } = Errand::of(&cluster, plan, bounds, session);
        let stored = cluster.stored();
        let act = act.map(|act| {
            Ok(ActBytes {
                map: MapWrite::change(&stored, act.map, bounds.shard_bytes)?,
                log: act.log.encode(),
                steps: act.steps,
            })
        });
        match act.transpose() {
            Ok(act) => self.send(
                ErrandLeft {
                    jobs_version: cluster.jobs_version,
                    note: note.map(|log| log.encode()),
                    act,
                },
                now,
            ),
            Err(error) => self.fail(RoundError::Map(error), now),
        }
    }

    fn work_at(&mut self, to_do: Work) {
        if let Phase::Leading { work, .. } = &mut self.phase {
            *work = to_do;
        }
    }

    /// Begins what is left of an errand: the note comes first.
    fn send(&mut self, left: ErrandLeft, now: Instant) {
        let set = |key: &str, expected, value: &Vec<u8>| CoordinatorOp::Set {
            key: key.to_owned(),
            expected,
            value: value.clone(),
        };
        let act_first = self.mutants.note_after_act() && left.act.is_some();
        let (sent, mut ops) = match (&left.note, &left.act) {
            (Some(note), _) if !act_first => {
                (Sent::Note, vec![set(JOBS_KEY, left.jobs_version, note)])
            }
            (_, Some(act)) => {
                let mut ops = match act.map.ops() {
                    Ok(ops) => ops,
                    Err(error) => return self.fail(RoundError::Map(error), now),
                };
                if !act_first {
                    ops.push(set(JOBS_KEY, left.jobs_version, &act.log));
                }
                (Sent::Act, ops)
            }
            (_, None) => return,
        };
        let mut under = None;
        if !self.mutants.act_unelected() {
            under = self.session();
            // Under the session that has made it nothing else can be there.
            ops.push(CoordinatorOp::Check {
                key: MASTER_KEY.to_owned(),
                expected: EntryVersion(1),
            });
        }
        let id = self.coordinator.submit(Request::Multi { ops, under });
        self.work_at(Work::Changing(Box::new(Pending { id, sent, left })));
    }

    fn changed(
        &mut self,
        pending: Pending,
        answer: Result<CoordinatorReply, CoordinatorError>,
        now: Instant,
    ) {
        let Pending { sent, mut left, .. } = pending;
        match answer {
            Ok(CoordinatorReply::Done(versions)) => {
                self.next = now;
                match sent {
                    Sent::Note => {
                        self.tally.notes += 1;
                        left.note = None;
                        left.jobs_version = versions.first().copied().unwrap_or_default();
                    }
                    Sent::Act => {
                        self.tally.changes += 1;
                        self.steps
                            .extend(left.act.take().map(|act| act.steps).unwrap_or_default());
                        let surplus = self.steps.len().saturating_sub(STEPS_KEPT);
                        self.steps.drain(..surplus);
                    }
                }
                self.send(left, now);
            }
            Err(CoordinatorError::Conflict { found, key, .. }) if self.mutants.no_compare() => {
                match key.as_str() {
                    CLUSTER_KEY => {
                        if let Some(act) = &mut left.act {
                            act.map = act.map.clone().over(found);
                        }
                    }
                    _ => left.jobs_version = found,
                }
                self.send(left, now);
            }
            Err(CoordinatorError::Conflict { key, .. }) if key == MASTER_KEY => {
                self.start_over(now);
            }
            Err(CoordinatorError::Conflict { .. }) => {
                self.tally.conflicts += 1;
                self.next = now;
            }
            Ok(_) => self.next = now,
            Err(error) => self.fail(error.into(), now),
        }
    }

    /// Begins what is due.
    fn begin(&mut self, now: Instant) {
        if now < self.next && !self.hinted || self.is_waiting() {
            return;
        }
        match self.phase {
            Phase::Idle if self.next <= now => {
                let timeout = self.times.session_timeout;
                let id = self.coordinator.submit(Request::OpenSession { timeout });
                self.phase = Phase::Opening(id);
            }
            Phase::Standby { session, .. } => {
                self.hinted = false;
                self.ask(session, Ask::Create);
            }
            Phase::Leading { ref known, .. } => {
                self.hinted = false;
                let mut round = Box::new(Round::new(known.map.clone()));
                round.ask(&mut *self.coordinator);
                self.work_at(Work::Reading(round));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "killed_tests.rs"]
mod killed;
