//! Leases between this server and each other one: what it holds, what it has promised, and what it waits for.
//!
//! The machines are those of [`argosy_replication::lease`]. Here they stand beside what a driver has to know, under one
//! lock, and `leasing` feeds them. A server is both to each peer: the *holder* of a lease, which it asks for while
//! it leads a region that the peer is a member of, and the *granter*.
//!
//! 1. Each side names its session when a link is up ([`State::link_up`], [`State::hear`]).
//! 2. When the epochs of regions rise, this server obeys: [`State::obey`]. What it waits for itself, where it is to
//!    serve in place of another server, is a [`Bound`] of the region, until that is over or another promotion comes.
//! 3. What a peer has told of its epochs is kept until the own views are as new ([`Peer::behind`]). Until then none of
//!    its leases counts.
//! 4. Before it stops, a server gives all leases up, and grants none any more ([`State::stop`]).
//!
//! What is kept grows with the peers, and with the regions that they know more of than this server does.
//!
//! Lock order: a region's driver, this, then links and gates. Whoever has it takes no driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Epoch, Incarnation, Instant, RegionId, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_device::Store;
use argosy_replication::lease::{
    self, Granter, HandBack, Holder, LastStop, LeaseAnswer, LeaseRequest, LeaseTerms, LinkSession,
    TermsError, Wait,
};
use parking_lot::{Mutex, MutexGuard};

use super::views::View;
use super::{World, stopped};

/// How leases are asked for and granted; the terms are the same on all servers.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// How long they last.
    pub terms: LeaseTerms,
    /// Planted mistakes.
    pub mutants: lease::Mutants,
}

impl LeaseSettings {
    /// Leases of `term`, on clocks that drift by at most `drift_ppm` millionths.
    ///
    /// # Errors
    /// Where one of them is out of bounds.
    pub fn new(term: Duration, drift_ppm: u32) -> Result<Self, TermsError> {
        Ok(Self {
            terms: LeaseTerms::new(term, drift_ppm)?,
            mutants: lease::Mutants::default(),
        })
    }
}

/// See the module documentation.
pub(crate) struct Leases {
    settings: Option<LeaseSettings>,
    state: Mutex<State>,
    /// When there is something to do, at the latest, in nanoseconds. Relaxed: only when, not what.
    due: AtomicU64,
    /// A peer knows of a higher epoch than the own views have.
    map_wanted: AtomicBool,
}

impl Leases {
    /// Those of server `own` at its start: it holds none. Without `settings` there are none at all, and none is needed.
    pub(super) fn new(
        own: ServerId,
        settings: Option<LeaseSettings>,
        world: &World,
        map: &ClusterMap,
    ) -> Self {
        let last = stopped::take(world);
        let (start, incarnation) = (world.clock.now(), incarnation(&world.store));
        let mut state = State {
            incarnation,
            held: lease::Leases::new(own),
            peers: BTreeMap::new(),
            bounds: BTreeMap::new(),
            taken: Arc::new(map.clone()),
            is_stopping: false,
        };
        let servers = map.servers().iter().map(|server| server.id);
        for peer in servers.filter(|peer| *peer != own) {
            let Some(LeaseSettings { terms, mutants }) = settings else {
                break;
            };
            let granter = Granter::restarted(terms, last, start, mutants);
            state.peers.insert(peer, Peer::new(granter));
            let holder = Holder::new(terms, incarnation, mutants);
            state.held.add(peer, holder);
        }
        Self {
            settings,
            state: Mutex::new(state),
            due: AtomicU64::new(0),
            map_wanted: AtomicBool::new(false),
        }
    }

    /// How they are asked for; `None`: there are none, and nobody needs one.
    pub(super) const fn settings(&self) -> Option<&LeaseSettings> {
        self.settings.as_ref()
    }

    /// All of it; `None` where there are no leases.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.settings?;
        Some(self.state.lock())
    }

    /// Whether `region` is not to be served yet.
    pub(super) fn binds(&self, region: RegionId) -> bool {
        self.lock().is_some_and(|state| state.binds(region))
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }

    /// There is nothing to do before `at`.
    pub(super) fn rest_until(&self, at: Instant) {
        self.due.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// There may be something to do now.
    pub(super) fn wake(&self) {
        self.rest_until(Instant::default());
    }

    /// Has the region map be read.
    pub(super) fn want_map(&self) {
        self.map_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the region map is to be read, asked once.
    pub(super) fn take_map_wanted(&self) -> bool {
        self.map_wanted.swap(false, Ordering::Relaxed)
    }
}

/// The start of a server, as peers know it. The device's number is in it: that of one which took the place of another
/// begins anew.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
fn incarnation(store: &Store) -> Incarnation {
    let superblock = store.superblock();
    let device = superblock.device_id as u32;
    let start = superblock.incarnation.get() as u32;
    Incarnation(u64::from(device) << 32 | u64::from(start))
}

/// What is waited for because of one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWait {
    pub(super) peer: ServerId,
    pub(super) wait: Wait,
}

/// What a region waits for before it is served here.
#[derive(Clone, Debug, Default)]
struct Bound {
    waits: Vec<PeerWait>,
    /// It is not over before that has passed.
    least: Option<Instant>,
}

/// What is between this server and another one.
struct Peer {
    granter: Granter,
    /// The session in which this server asks.
    ours: Option<LinkSession>,
    /// That in which the other one asks.
    theirs: Option<LinkSession>,
    /// The last rise that it has told all of in the present session.
    told: u64,
    /// The last rise that it knows to be taken here.
    said: u64,
    /// Epochs that it has told of, and the own views have not reached.
    behind: BTreeMap<RegionId, Epoch>,
    /// A lease is wanted of it.
    is_wanted: bool,
}

impl Peer {
    const fn new(granter: Granter) -> Self {
        Self {
            granter,
            ours: None,
            theirs: None,
            told: 0,
            said: 0,
            behind: BTreeMap::new(),
            is_wanted: false,
        }
    }
}

/// What is under the lock.
pub(super) struct State {
    incarnation: Incarnation,
    held: lease::Leases,
    peers: BTreeMap<ServerId, Peer>,
    bounds: BTreeMap<RegionId, Bound>,
    /// The map whose views this server has taken: no gate answers under an older one.
    taken: Arc<ClusterMap>,
    is_stopping: bool,
}

impl State {
    // --- Sessions ---

    /// The link to `peer` is up, as number `number` of this start. Returns the session.
    pub(super) fn link_up(&mut self, peer: ServerId, number: u64) -> LinkSession {
        let session = LinkSession {
            incarnation: self.incarnation,
            number,
        };
        self.link_down(peer);
        self.held.link_up(peer, number);
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.ours = Some(session);
        }
        session
    }

    /// The link to `peer` is gone.
    pub(super) fn link_down(&mut self, peer: ServerId) {
        self.held.link_down(peer);
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.granter.link_down();
            (peer.ours, peer.theirs) = (None, None);
            (peer.told, peer.said) = (0, 0);
            peer.behind.clear();
        }
    }

    /// `peer` has named its session. Returns whether it begins: then it is to be told of all epochs, as
    /// [`FIRST_RISE`](lease::granter::FIRST_RISE).
    pub(super) fn hear(&mut self, peer: ServerId, session: LinkSession) -> bool {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return false;
        };
        let begins = peer.theirs != Some(session);
        if begins {
            peer.theirs = Some(session);
            peer.granter.link_up(session);
        }
        begins
    }

    // --- As the granter ---

    /// See [`Granter::answer`].
    pub(super) fn answer(
        &mut self,
        peer: ServerId,
        request: &LeaseRequest,
        now: Instant,
    ) -> Option<LeaseAnswer> {
        self.peers.get_mut(&peer)?.granter.answer(request, now)
    }

    /// See [`Granter::handed_back`].
    pub(super) fn handed_back(&mut self, peer: ServerId, back: HandBack) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.granter.handed_back(back);
        }
    }

    /// See [`Granter::confirmed`].
    pub(super) fn confirmed(&mut self, peer: ServerId, session: LinkSession, rise: u64) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.granter.confirmed(session, rise);
        }
    }

    /// Epochs have risen. Returns what a region that this server is to serve has to wait for, by peer: see
    /// [`Granter::obeyed`]. Any of them may have served it, as far as this server knows.
    pub(super) fn obey(&mut self) -> Vec<PeerWait> {
        let peers = self.peers.iter_mut();
        peers
            .map(|(id, peer)| PeerWait {
                peer: *id,
                wait: peer.granter.obeyed(),
            })
            .collect()
    }

    /// `region` is not to be served here before `waits` are over. Where `view` says that this server was no member of
    /// the last epoch that served, they may be too short: then not before the longest of all leases has run out.
    pub(super) fn bind(
        &mut self,
        region: RegionId,
        view: &View,
        waits: &[PeerWait],
        longest: Instant,
    ) {
        let was_member = view.claim.is_none_or(|claim| claim.member);
        let waits = waits.iter().copied();
        let bound = Bound {
            waits: waits.filter(|it| it.wait.until().is_some()).collect(),
            least: (!was_member).then_some(longest),
        };
        self.bounds.insert(region, bound);
    }

    /// `region` is not served here, or nobody served it before.
    pub(super) fn unbind(&mut self, region: RegionId) {
        self.bounds.remove(&region);
    }

    /// Whether `region` is not to be served yet.
    pub(super) fn binds(&self, region: RegionId) -> bool {
        self.bounds.contains_key(&region)
    }

    /// Regions that may be served by now. They are bound no more.
    pub(super) fn free(&mut self, now: Instant) -> Vec<RegionId> {
        let peers = &self.peers;
        let is_over = |of: &PeerWait| {
            let peer = peers.get(&of.peer);
            peer.is_none_or(|peer| peer.granter.is_over(&of.wait, now))
        };
        let free = self.bounds.extract_if(.., |_, bound| {
            bound.least.is_none_or(|least| least < now) && bound.waits.iter().all(is_over)
        });
        free.map(|(region, _)| region).collect()
    }

    // --- As the holder ---

    /// Leases are wanted of `peers`, and of no others.
    pub(super) fn want(&mut self, peers: &BTreeSet<ServerId>) {
        for (id, peer) in &mut self.peers {
            peer.is_wanted = peers.contains(id);
        }
    }

    /// The requests that are due. See [`Holder::ask`].
    pub(super) fn ask(&mut self, now: Instant) -> Vec<(ServerId, LeaseRequest)> {
        if self.is_stopping {
            return Vec::new();
        }
        let (held, peers) = (&mut self.held, self.peers.iter());
        let wanted = peers.filter(|(_, peer)| peer.is_wanted);
        wanted
            .filter_map(|(id, _)| Some((*id, held.ask(*id, now)?)))
            .collect()
    }

    /// See [`Holder::answered`].
    pub(super) fn answered(&mut self, peer: ServerId, answer: &LeaseAnswer, now: Instant) {
        self.held.answered(peer, answer, now);
    }

    /// See [`Holder::completed`].
    pub(super) fn completed(&mut self, peer: ServerId, now: Instant) {
        self.held.completed(peer, now);
    }

    /// `peer` has obeyed `epoch` of `region`.
    pub(super) fn risen(&mut self, peer: ServerId, region: RegionId, epoch: Epoch) {
        let Some(known) = self.taken.region(region) else {
            // Nobody leads here what the map does not have.
            return;
        };
        if let Some(peer) = self.peers.get_mut(&peer)
            && known.epoch < epoch
        {
            let behind = peer.behind.entry(region).or_default();
            *behind = epoch.max(*behind);
        }
    }

    /// `peer` has told all that belongs to `rise`, and to those before.
    pub(super) fn told(&mut self, peer: ServerId, rise: u64) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.told = peer.told.max(rise);
        }
    }

    /// Where the own views are as new as `peer` has told: has its leases count, and returns what it is to be told, if
    /// it does not know.
    pub(super) fn caught_up(&mut self, peer: ServerId) -> Option<(LinkSession, u64)> {
        let of = self.peers.get_mut(&peer)?;
        let (session, rise) = (of.ours?, of.told);
        if !of.behind.is_empty() || rise <= of.said {
            return None;
        }
        of.said = rise;
        self.held.took(peer, session, rise);
        Some((session, rise))
    }

    /// The views of `map` are taken: no gate answers under an older one.
    pub(super) fn taken(&mut self, map: Arc<ClusterMap>) {
        for peer in self.peers.values_mut() {
            peer.behind.retain(|region, epoch| {
                let known = map.region(*region);
                known.is_some_and(|known| known.epoch < *epoch)
            });
        }
        self.taken = map;
    }

    /// Whether a peer has told of a view that is not taken yet.
    pub(super) fn is_behind(&self) -> bool {
        self.peers.values().any(|peer| !peer.behind.is_empty())
    }

    /// Leases from all `members` but the own server are held *before* this moment.
    pub(super) fn until(&self, members: &[ServerId]) -> Option<Instant> {
        self.held.until(members)
    }

    /// Those of `members` of whom no lease is held.
    pub(super) fn missing(&self, members: &[ServerId], now: Instant) -> Vec<ServerId> {
        let missing = |id: &&ServerId| self.held.holder(**id).is_some_and(|it| !it.holds(now));
        members.iter().filter(missing).copied().collect()
    }

    /// Gives up all leases. They are over; what is returned is to be sent, once every gate knows that.
    pub(super) fn give_up(&mut self) -> Vec<(ServerId, HandBack)> {
        let (held, peers) = (&mut self.held, self.peers.keys());
        peers
            .filter_map(|peer| Some((*peer, held.give_up(*peer)?)))
            .collect()
    }

    // --- Both ---

    /// Asks for no leases, and grants none, any more. See [`Granter::stop`].
    pub(super) fn stop(&mut self, now: Instant) -> LastStop {
        self.is_stopping = true;
        let granters = self.peers.values_mut().map(|peer| &mut peer.granter);
        let owing = granters.fold(0, |owing, granter| {
            owing + usize::from(granter.stop(now) == LastStop::Other)
        });
        match owing {
            0 => LastStop::Clean,
            _ => LastStop::Other,
        }
    }

    /// When there is something to ask, or a region may be served. `None`: not before something happens.
    pub(super) fn next(&self) -> Option<Instant> {
        let asks = self.peers.iter().filter_map(|(id, peer)| {
            let holder = self.held.holder(*id)?;
            let is_due = peer.is_wanted && peer.ours.is_some() && !self.is_stopping;
            is_due.then(|| holder.ask_at().unwrap_or_default())
        });
        let nanosecond = Duration::from_nanos(1);
        let bounds = self.bounds.values().flat_map(|bound| {
            let waits = bound.waits.iter().map(|of| of.wait.until());
            waits
                .chain([bound.least])
                .flatten()
                .map(|until| until + nanosecond)
        });
        asks.chain(bounds).min()
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
