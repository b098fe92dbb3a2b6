//! Feeds the machines of leases: what peers say, what this server asks and tells, and what follows for gates and
//! regions.
//!
//! - A request is answered in the step in which it was read, by the thread of the fabric, without the device. The clock
//!   is read *behind* its receipt; the holder reads it *before* it writes a request. Neither uses the time of the step.
//! - A gate is set whenever a lease is renewed or ends, and when the view of its region changes. Of what ends, gates
//!   know before a peer does.
//! - What a session is told comes in order: it is sent with the lock held.
//! - A view is *taken* once it is that of the region and its gate knows. That is told to peers after it.

use std::collections::BTreeSet;

use argosy_base::{Epoch, Instant, RegionId, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_replication::lease::granter::FIRST_RISE;
use argosy_replication::lease::leases::FOR_EVER;
use argosy_replication::lease::{HandBack, LastStop, LeaseAnswer, LeaseRequest, LinkSession};
use argosy_wire::message::{
    EPOCH_BYTES_MAX, EPOCHS_MAX, HolderSession, LeaseAsked, LeaseMessage, Message, ObeyedEpoch,
};

use super::context::Context;
use super::leases::{Leases, PeerWait, State};
use super::region::{Driver, Region};
use super::stopped;
use super::views::{Part, View};

/// Where messages belong that concern no region.
const NONE: RegionId = RegionId(0);

impl<'a> Context<'a> {
    /// Leases from the other servers, and to them.
    pub(super) const fn leases(&self) -> &'a Leases {
        self.links.leases()
    }

    // --- Links ---

    /// The link to `peer` is up, or down.
    pub(super) fn lease_link(&self, peer: ServerId, is_up: bool) {
        let Some(mut leases) = self.leases().lock() else {
            return;
        };
        if is_up {
            let number = self.link(peer).session();
            let session = leases.link_up(peer, number.into());
            self.say_taken(peer, session, 0);
        } else {
            leases.link_down(peer);
        }
        drop(leases);
        self.set_gates_of(peer);
        self.leases().wake();
    }

    /// `peer` names its session. Where that begins, it is told which epochs this server has obeyed.
    fn hear_session(&self, leases: &mut State, peer: ServerId, session: HolderSession) {
        if u64::from(self.link(peer).peer_session()) != session.number {
            return;
        }
        if leases.hear(peer, session_of(session)) {
            let map = self.views.map();
            let risen = map.regions().iter().filter(|of| of.epoch > Epoch(1));
            let risen: Vec<_> = risen.map(obeyed).collect();
            self.tell_risen(peer, FIRST_RISE, &risen);
        }
    }

    /// Tells `peer` that these epochs are obeyed, in as many messages as it takes.
    fn tell_risen(&self, peer: ServerId, rise: u64, epochs: &[ObeyedEpoch]) {
        let most = self.part_bytes(peer) / EPOCH_BYTES_MAX;
        let mut rest = epochs;
        loop {
            let (part, more) = rest.split_at(rest.len().min(most.clamp(1, EPOCHS_MAX)));
            let message = LeaseMessage::EpochsRisen {
                rise,
                goes_on: !more.is_empty(),
                epochs: part.to_vec(),
            };
            self.say(peer, message);
            rest = more;
            if rest.is_empty() {
                return;
            }
        }
    }

    fn say_taken(&self, peer: ServerId, session: LinkSession, rise: u64) {
        let session = HolderSession {
            incarnation: session.incarnation,
            number: session.number,
        };
        self.say(peer, LeaseMessage::ViewsTaken { session, rise });
    }

    /// Has the leases of `peer` count, and tells it, if the own views are as new as it has told. Otherwise the map is
    /// to be read.
    fn catch_up(&self, leases: &mut State, peer: ServerId) {
        if let Some((session, rise)) = leases.caught_up(peer) {
            self.say_taken(peer, session, rise);
        }
        if leases.is_behind() {
            self.leases().want_map();
        }
    }

    fn say(&self, peer: ServerId, message: LeaseMessage) {
        self.send(peer, NONE, &Message::Lease(message));
    }

    // --- Messages ---

    /// A message of `peer` about leases.
    pub(super) fn hear_of_lease(&self, peer: ServerId, message: &LeaseMessage) {
        let Some(mut leases) = self.leases().lock() else {
            return;
        };
        let leases = &mut *leases;
        match message {
            LeaseMessage::ViewsTaken { session, rise } => {
                self.hear_session(leases, peer, *session);
                leases.confirmed(peer, session_of(*session), *rise);
            }
            LeaseMessage::Wanted(asked) => {
                self.hear_session(leases, peer, asked.session);
                let request = LeaseRequest {
                    session: session_of(asked.session),
                    number: asked.number,
                    term: asked.term,
                };
                // The request has been received.
                let now = self.world.clock.now();
                if let Some(answer) = leases.answer(peer, &request, now) {
                    let (asked, rise) = (*asked, answer.rise);
                    self.say(peer, LeaseMessage::Granted { asked, rise });
                }
            }
            LeaseMessage::HandedBack {
                incarnation,
                through,
            } => {
                let (incarnation, through) = (*incarnation, *through);
                let back = HandBack {
                    incarnation,
                    through,
                };
                leases.handed_back(peer, back);
            }
            LeaseMessage::EpochsRisen {
                rise,
                goes_on,
                epochs,
            } => {
                for of in epochs {
                    leases.risen(peer, of.region, of.epoch);
                }
                if !goes_on {
                    leases.told(peer, *rise);
                    self.catch_up(leases, peer);
                }
            }
            LeaseMessage::Granted { asked, rise } => {
                let answer = LeaseAnswer {
                    session: session_of(asked.session),
                    number: asked.number,
                    term: asked.term,
                    rise: *rise,
                };
                leases.answered(peer, &answer, self.world.clock.now());
            }
        }
        self.leases().wake();
    }

    /// The same, and what follows for gates.
    pub(super) fn take_lease_message(&self, peer: ServerId, message: &LeaseMessage) {
        self.hear_of_lease(peer, message);
        if let LeaseMessage::Granted { .. } | LeaseMessage::EpochsRisen { .. } = message {
            self.set_gates_of(peer);
        }
    }

    /// A one-sided write to `peer` is complete. That renews nothing: it is told for the sake of a planted mistake.
    pub(super) fn lease_completion(&self, peer: ServerId) {
        let leases = self.leases();
        if leases
            .settings()
            .is_some_and(|of| of.mutants.renew_by_completion())
        {
            if let Some(mut leases) = leases.lock() {
                leases.completed(peer, self.world.clock.now());
            }
            self.set_gates_of(peer);
        }
    }

    // --- Steps ---

    /// Asks for the leases that are due, and has regions be served that have waited. Returns when it is to be called
    /// again; `now` is near enough for that.
    pub(super) fn step_leases(&self, now: Instant) -> Option<Instant> {
        self.leases().settings()?;
        let due = self.leases().due();
        if now < due {
            return (due < FOR_EVER).then_some(due);
        }
        let mut leases = self.leases().lock()?;
        // Before any request is written.
        let asked_at = self.world.clock.now();
        for (peer, request) in leases.ask(asked_at) {
            let session = request.session;
            let asked = LeaseAsked {
                session: HolderSession {
                    incarnation: session.incarnation,
                    number: session.number,
                },
                number: request.number,
                term: request.term,
            };
            self.say(peer, LeaseMessage::Wanted(asked));
            if leases.is_behind() {
                self.leases().want_map();
            }
        }
        for region in leases.free(self.world.clock.now()) {
            tracing::info!(region = region.0, "no earlier primary can answer any more");
            if let Some(region) = self.region(region) {
                region.active().raise();
            }
            self.wake(region);
        }
        let next = leases.next();
        self.leases().rest_until(next.unwrap_or(FOR_EVER));
        next
    }

    // --- Gates ---

    /// Has the gates know by which leases their regions may answer, where that depends on `peer`.
    fn set_gates_of(&self, peer: ServerId) {
        for region in self.regions.iter() {
            let view = region.view();
            let leads = view.part_of(self.id) == Part::Primary;
            if leads && view.has_member(peer) {
                self.set_gate(region);
            }
        }
    }

    /// Has the gate of `region` know by its present view whether, and by which leases, it may answer.
    pub(super) fn set_gate(&self, region: &Region) {
        let leases = self.leases().lock();
        let view = region.view();
        let leads = view.part_of(self.id) == Part::Primary;
        let until = match &leases {
            Some(leases) => leases.until(view.members()),
            None => Some(FOR_EVER),
        };
        // With the lock held: nothing older comes behind it.
        if region
            .gate()
            .set(leads.then_some(view.since), until.filter(|_| leads))
        {
            region.active().raise();
        }
    }

    /// Those of the other members of `region` of whom a lease is missed.
    pub(super) fn missed_leases(&self, region: RegionId) -> Vec<ServerId> {
        let members = self.view(region).members().to_vec();
        let leases = self.leases().lock();
        leases.map_or_else(Vec::new, |leases| {
            leases.missing(&members, self.world.clock.now())
        })
    }

    // --- Views ---

    /// The node begins with its views.
    pub(super) fn begin_leases(&self) {
        let map = self.views.to_map();
        if let Some(mut leases) = self.leases().lock() {
            self.want_leases(&mut leases, &map);
            let waits = leases.obey();
            for of in map.regions() {
                self.bind(&mut leases, &View::of(of), of.id, &waits);
            }
        }
        for region in self.regions.iter() {
            self.set_gate(region);
            if let Driver::Primary(driver) = &mut *region.driver()
                && self.leases().binds(region.id())
            {
                driver.wait_for_lease();
            }
        }
    }

    /// The views are replaced: those of `before` are over. Before any region has its new one.
    pub(super) fn obey(&self, before: &ClusterMap) {
        let Some(mut leases) = self.leases().lock() else {
            return;
        };
        let leases = &mut *leases;
        let map = self.views.to_map();
        let both = before.regions().iter().zip(map.regions());
        let risen: Vec<_> = both
            .filter(|(before, of)| before.epoch < of.epoch)
            .collect();
        if risen.is_empty() {
            return;
        }
        let waits = leases.obey();
        for (before, of) in &risen {
            let (before, view) = (View::of(before), View::of(of));
            if !before.goes_on_in(&view) {
                self.bind(leases, &view, of.id, &waits);
            }
        }
        let risen: Vec<_> = risen.iter().map(|(_, of)| obeyed(of)).collect();
        for PeerWait { peer, wait } in &waits {
            if wait.rise() > 0 {
                self.tell_risen(*peer, wait.rise(), &risen);
            }
        }
        self.want_leases(leases, &map);
        self.leases().wake();
    }

    /// All regions have the views that [`obey`](Self::obey) was told of, and their gates know.
    pub(super) fn views_taken(&self) {
        let Some(mut leases) = self.leases().lock() else {
            return;
        };
        leases.taken(self.views.to_map());
        for peer in self.links.peers() {
            self.catch_up(&mut leases, peer);
        }
        drop(leases);
        for peer in self.links.peers() {
            self.set_gates_of(peer);
        }
    }

    /// Where this server is to serve the region of `view` in place of another one, it waits for these.
    fn bind(&self, leases: &mut State, view: &View, region: RegionId, waits: &[PeerWait]) {
        let takes_over = view.part_of(self.id) == Part::Primary && view.claim.is_some();
        let Some(settings) = self.leases().settings().filter(|_| takes_over) else {
            return leases.unbind(region);
        };
        if !self.settings.mutants.serve_before_lease() {
            let longest = self.world.clock.now() + settings.terms.promise();
            leases.bind(region, view, waits, longest);
        }
    }

    fn want_leases(&self, leases: &mut State, map: &ClusterMap) {
        let mut wanted = BTreeSet::new();
        for of in map.regions() {
            if View::of(of).part_of(self.id) == Part::Primary {
                wanted.extend(of.members.iter().copied().filter(|it| *it != self.id));
            }
        }
        leases.want(&wanted);
    }

    // --- The end ---

    /// Gives up all leases, and grants none any more. Returns whether this server owes nothing: ask again until then.
    pub(super) fn end_leases(&self) -> LastStop {
        let Some(mut leases) = self.leases().lock() else {
            return LastStop::Clean;
        };
        let backs = leases.give_up();
        let stop = leases.stop(self.world.clock.now());
        drop(leases);
        for region in self.regions.iter() {
            self.set_gate(region);
        }
        // Every gate is shut by now.
        for (peer, back) in backs {
            let back = LeaseMessage::HandedBack {
                incarnation: back.incarnation,
                through: back.through,
            };
            self.say(peer, back);
        }
        self.world.fabric.notify(self.id);
        stop
    }

    /// The server ends: where it owes nothing, its next start need not wait.
    pub(super) fn record_stop(&self) {
        if self.leases().settings().is_none() || self.end_leases() != LastStop::Clean {
            return;
        }
        if let Err(error) = stopped::record(self.world) {
            tracing::warn!(%error, "it cannot be recorded that nothing is owed: the next start waits for leases");
        }
    }
}

fn session_of(session: HolderSession) -> LinkSession {
    LinkSession {
        incarnation: session.incarnation,
        number: session.number,
    }
}

const fn obeyed(of: &argosy_coordinator::Region) -> ObeyedEpoch {
    ObeyedEpoch {
        region: of.id,
        epoch: of.epoch,
    }
}
