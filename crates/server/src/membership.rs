//! A server's part in its cluster: it says that it is there, follows the region map, and reports to the master.
//!
//! ```text
//!   coordinator            this                          node
//!   servers/<id>     ◄──   that it is there,       ◄──   whom it does not reach
//!   region map       ──►   each version            ──►   views
//!   reports/<id>     ◄──   where copies stand, …   ◄──   what it reports
//! ```
//!
//! Both values are ephemeral: they vanish with the server's session, which ends when the server does. One that starts
//! again before that takes the place of what it said before.
//!
//! A server that is about to stop says so ([`Leaver`]), and the master has others lead its regions, and groups go on
//! without it. It goes on until they do. Where nobody else stays, which it looks for then, there is nothing to wait
//! for.
//!
//! It is moved by steps, and never waits: requests to the coordinator are begun, and their answers come with a later
//! step. Without a coordinator nothing changes: the node goes on with the views that it has.

mod said;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{Incarnation, Instant, ServerId};
use argosy_coordinator::reports::{Presence, ServerReport, presence_key, report_key};
use argosy_coordinator::{
    CLUSTER_KEY, Coordinator, CoordinatorError, CoordinatorEvent, CoordinatorReply, Entry,
    EntryVersion, MapMutants, MapPart, MapProgress, MapReader, MapShards, Region, Request,
    RequestId, SessionId, SessionState, StoredMap,
};

use crate::node::Node;
use said::Said;

/// Most events that one step takes.
const EVENTS_MAX: usize = 256;

/// Most shards of the map that are asked for at one time.
const PARTS_MAX: usize = 64;

/// For so long after the map has changed the server looks more often for what there is to say: copies take their places
/// then, and the master waits to hear where they stand.
const SETTLING: Duration = Duration::from_secs(1);
/// Where regions rest and all servers are heard, they are looked at so often: what is to be said of them changes with
/// what they do, or slowly.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(2);
/// While copies take their places after a change of the map, the server says nothing of them for so long at most. The
/// master acts at once on what it hears at once, and each change of the map has all leases checked.
const GATHERING: Duration = Duration::from_millis(100);
/// The time grows by this much for each region of the map, since the report grows with each.
const GATHERING_EACH: Duration = Duration::from_micros(500);
/// The longest that it says nothing new, however often the map changes.
const GATHERING_MOST: Duration = Duration::from_secs(1);
/// What comes from another server later than this was written later than it was asked for.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// A server that leaves keeps its copies from taking their places for so long after a change of the map. By then others
/// lead its regions, unless they need one of its copies.
const YIELDING: Duration = Duration::from_millis(300);

/// When something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipTimes {
    /// Others take the server for lost when it has not been heard from for so long.
    pub session_timeout: Duration,
    /// The region map is read again after this time, hint or not.
    pub read_every: Duration,
    /// What there is to say is looked at so often.
    pub look_every: Duration,
    /// While an answer is outstanding, the coordinator is polled so often; and for a second after the map has
    /// changed, or while the server leaves, what there is to say is looked at so often, too.
    pub poll_every: Duration,
}

impl Default for MembershipTimes {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(2),
            read_every: Duration::from_secs(1),
            look_every: Duration::from_millis(25),
            poll_every: Duration::from_millis(5),
        }
    }
}

/// The session under which the server says things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    None,
    Opening(RequestId),
    Open(SessionId),
}

/// The region map, as it was read last.
#[derive(Debug, Default)]
struct Watched {
    version: EntryVersion,
    /// How it is cut, where the node has it.
    shards: MapShards,
    reading: Option<MapReader>,
    /// What is asked for.
    asked: BTreeMap<RequestId, MapPart>,
    is_wanted: bool,
    /// When it is read although nothing is heard of it.
    at: Instant,
}

/// Looks at what there is to say.
#[derive(Debug, Default)]
struct Looks {
    /// When the next one is.
    at: Instant,
    /// What regions had done by the last.
    moves: u64,
    /// When all regions are looked at although none has done anything.
    all_at: Instant,
    /// When something was said of them last.
    said_at: Instant,
}

/// Has a server say that it is about to stop, from any thread.
#[derive(Clone)]
pub struct Leaver {
    node: Arc<Node>,
    shared: Arc<Leaving>,
}

impl std::fmt::Debug for Leaver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaver")
            .field("server", &self.node.id())
            .field("shared", &self.shared)
            .finish()
    }
}

/// What a membership and its leavers share.
#[derive(Debug, Default)]
struct Leaving {
    /// The server is about to stop.
    is_asked: AtomicBool,
    /// No other server of the map is there that does not stop, too.
    is_last: AtomicBool,
}

impl Leaver {
    /// The server is about to stop: others are to lead its regions.
    pub fn leave(&self) {
        self.shared.is_asked.store(true, Ordering::Release);
    }

    /// Whether it leaves, and there is nothing to wait for any more: it is a member of no group that has others, by the
    /// map that it has, or nobody stays.
    #[must_use]
    pub fn has_left(&self) -> bool {
        if !self.shared.is_asked.load(Ordering::Acquire) {
            return false;
        }
        let id = self.node.id();
        let map = self.node.map();
        let counts = |region: &Region| region.members.len() > 1 && region.members.contains(&id);
        self.shared.is_last.load(Ordering::Acquire) || !map.regions().iter().any(counts)
    }
}

/// The other servers, as a server that leaves sees them.
#[derive(Debug, Default)]
struct Others {
    /// Of whom it is asked whether they are there.
    asked: BTreeMap<RequestId, ServerId>,
    /// Whether they stay, as far as that is known.
    stay: BTreeMap<ServerId, bool>,
    /// When this server began to leave.
    left_at: Option<Instant>,
}

/// See the module documentation.
pub struct Membership {
    coordinator: Box<dyn Coordinator>,
    node: Arc<Node>,
    incarnation: Incarnation,
    times: MembershipTimes,
    session: Session,
    presence: Said,
    report: Said,
    map: Watched,
    looks: Looks,
    /// When the map changed last.
    changed_at: Instant,
    leaving: Arc<Leaving>,
    others: Others,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership")
            .field("server", &self.node.id())
            .field("session", &self.session)
            .field("map", &self.map)
            .finish_non_exhaustive()
    }
}

impl Membership {
    /// That of `node`, in this `incarnation` of its server.
    ///
    /// # Errors
    /// The coordinator watches nothing more.
    pub fn new(
        mut coordinator: Box<dyn Coordinator>,
        node: Arc<Node>,
        incarnation: Incarnation,
        times: MembershipTimes,
    ) -> Result<Self, CoordinatorError> {
        coordinator.watch(CLUSTER_KEY)?;
        let id = node.id();
        Ok(Self {
            coordinator,
            node,
            incarnation,
            times,
            session: Session::None,
            presence: Said::new(presence_key(id)),
            report: Said::new(report_key(id)),
            map: Watched {
                is_wanted: true,
                ..Watched::default()
            },
            looks: Looks::default(),
            changed_at: Instant::default(),
            leaving: Arc::default(),
            others: Others::default(),
        })
    }

    /// Whoever has the server leave.
    #[must_use]
    pub fn leaver(&self) -> Leaver {
        Leaver {
            node: Arc::clone(&self.node),
            shared: Arc::clone(&self.leaving),
        }
    }

    /// The version of the region map whose views the node has.
    #[must_use]
    pub const fn map_version(&self) -> EntryVersion {
        self.map.version
    }

    /// Whether the server has a session.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        matches!(self.session, Session::Open(_))
    }

    /// Moves on what there is. Returns when it wants its next step.
    pub fn step(&mut self, now: Instant) -> Instant {
        for _ in 0..EVENTS_MAX {
            match self.coordinator.poll(now) {
                Some(CoordinatorEvent::Ended { id, answer }) => self.ended(id, answer, now),
                Some(CoordinatorEvent::MayHaveChanged { .. }) => self.map.is_wanted = true,
                None => break,
            }
        }
        self.keep_session();
        // Its leases do not count before the node knows what others have told it of.
        self.map.is_wanted |= self.node.take_map_wanted();
        if self.map.reading.is_none() && (self.map.is_wanted || now >= self.map.at) {
            self.map.reading = Some(MapReader::new(self.stored_map(), MapMutants::default()));
            self.map.is_wanted = false;
            self.ask_for_map();
        }
        let settles = now.since(self.changed_at) < SETTLING || self.is_leaving();
        if now >= self.looks.at {
            self.looks.at = match settles {
                true => now + self.times.poll_every,
                false => now + self.times.look_every,
            };
            if settles || self.has_news(now) {
                self.say(now);
            }
            self.ask_who_stays();
        }
        let waits = self.map.reading.is_some()
            || !self.others.asked.is_empty()
            || self.presence.is_asked()
            || self.report.is_asked()
            || matches!(self.session, Session::Opening(_));
        match waits {
            true => now + self.times.poll_every,
            false => self.looks.at.min(self.map.at),
        }
    }

    fn keep_session(&mut self) {
        match (self.session, self.coordinator.session()) {
            (Session::Opening(_), _) => return,
            (Session::Open(_), SessionState::Alive(_) | SessionState::InDoubt(_)) => return,
            (Session::Open(ended), _) => {
                tracing::warn!(server = self.node.id().0, %ended, "the session with the coordinator has ended");
            }
            (Session::None, _) => {}
        }
        let timeout = self.times.session_timeout;
        let id = self.coordinator.submit(Request::OpenSession { timeout });
        self.session = Session::Opening(id);
        self.presence.begin();
        self.report.begin();
    }

    fn ended(
        &mut self,
        id: RequestId,
        answer: Result<CoordinatorReply, CoordinatorError>,
        now: Instant,
    ) {
        if self.session == Session::Opening(id) {
            self.session = match answer {
                Ok(CoordinatorReply::Opened { session, .. }) => Session::Open(session),
                _ => Session::None,
            };
            return;
        }
        if let Some(part) = self.map.asked.remove(&id) {
            return self.read_map(part, answer, now);
        }
        if let Some(other) = self.others.asked.remove(&id) {
            if let Ok(CoordinatorReply::Entry(entry)) = answer {
                self.hear_of(other, &entry);
            }
            return;
        }
        let (session, coordinator) = (self.session, &mut *self.coordinator);
        if !self.presence.take(id, &answer, session, coordinator) {
            self.report.take(id, &answer, session, coordinator);
        }
    }

    /// The map that the node has, if it came from the coordinator.
    fn stored_map(&self) -> Option<StoredMap> {
        let version = self.map.version;
        (version > EntryVersion(0)).then(|| StoredMap {
            version,
            map: self.node.map(),
            shards: self.map.shards.clone(),
        })
    }

    /// Asks for what is missing of the map.
    fn ask_for_map(&mut self) {
        while self.map.asked.len() < PARTS_MAX
            && let Some(reading) = &mut self.map.reading
            && let Some(part) = reading.ask()
        {
            let id = self.coordinator.submit(Request::Read { key: part.key() });
            self.map.asked.insert(id, part);
        }
    }

    /// Takes a part of the map.
    fn read_map(
        &mut self,
        part: MapPart,
        answer: Result<CoordinatorReply, CoordinatorError>,
        now: Instant,
    ) {
        let Some(reading) = &mut self.map.reading else {
            return;
        };
        let progress = match answer {
            Ok(CoordinatorReply::Entry(entry)) => reading.take(part, &entry),
            _ => Ok(MapProgress::Absent),
        };
        match progress {
            Ok(MapProgress::More) => return self.ask_for_map(),
            Ok(MapProgress::Absent) => {}
            Ok(MapProgress::Whole(stored)) => self.take_map(stored, now),
            Err(error) => {
                let server = self.node.id().0;
                tracing::error!(server, %error, "the region map of the coordinator is of no use");
            }
        }
        // What is still under way is not waited for.
        self.map.reading = None;
        self.map.asked.clear();
        self.map.at = now + self.times.read_every;
    }

    fn take_map(&mut self, stored: StoredMap, now: Instant) {
        if stored.version <= self.map.version {
            return;
        }
        let server = self.node.id().0;
        match self.node.set_map(stored.map) {
            Ok(()) => {
                self.map.version = stored.version;
                self.map.shards = stored.shards;
                self.looks.at = Instant::default();
                self.changed_at = now;
                if self.is_leaving() {
                    self.node.put_off_places(now + YIELDING);
                }
            }
            Err(error) => {
                tracing::error!(server, %error, "the region map of the coordinator is not taken");
            }
        }
    }

    /// Whether there may be something to say: to find out what it is takes a look at each region.
    fn has_news(&self, now: Instant) -> bool {
        let is_said = self.presence.there.is_some() && self.report.there.is_some();
        let is_known = self.node.moves() == self.looks.moves && now < self.looks.all_at;
        !(is_said && is_known && self.node.hears_all(now))
    }

    /// Says what there is to say, where it is not what was said last.
    fn say(&mut self, now: Instant) {
        let Session::Open(session) = self.session else {
            return;
        };
        let leaves = self.is_leaving();
        let presence = Presence {
            incarnation: self.incarnation,
            leaving: leaves,
            heard: match leaves {
                true => self.heard(now),
                false => BTreeSet::new(),
            },
            unreachable: self.unreachable(now),
        };
        let gathers = self.gathers(now);
        let coordinator = &mut *self.coordinator;
        self.presence.say(presence.to_json(), session, coordinator);
        // It counts from what map it was made.
        if self.map.version == EntryVersion(0) || gathers {
            return;
        }
        // What they do meanwhile is for the next look.
        self.looks.moves = self.node.moves();
        self.looks.all_at = now + LOOK_AT_ALL_EVERY;
        self.looks.said_at = now;
        let report = ServerReport {
            incarnation: self.incarnation,
            map: self.map.version,
            ..self.node.report_to_master(now)
        };
        self.report.say(report.to_json(), session, coordinator);
    }

    /// Whether there will be more to say soon. Each thing that is said may change the map, and that is work for
    /// everybody.
    fn gathers(&self, now: Instant) -> bool {
        let regions = u32::try_from(self.node.map().regions().len()).unwrap_or(u32::MAX);
        let rest = (GATHERING_EACH * regions).min(GATHERING_MOST);
        let is_new = now.since(self.changed_at) < GATHERING || now.since(self.looks.said_at) < rest;
        let is_due = now.since(self.looks.said_at) >= GATHERING_MOST;
        is_new && !is_due && !self.is_leaving() && !self.node.is_settled()
    }

    fn is_leaving(&self) -> bool {
        self.leaving.is_asked.load(Ordering::Acquire)
    }

    /// Asks who of the others stays, if the server leaves and no answer is outstanding.
    fn ask_who_stays(&mut self) {
        if !self.is_leaving() || !self.others.asked.is_empty() {
            return;
        }
        let (own, map) = (self.node.id(), self.node.map());
        let ids = map.servers().iter().map(|server| server.id);
        let others: Vec<_> = ids.filter(|id| *id != own).collect();
        self.others.stay.retain(|id, _| others.contains(id));
        for other in others {
            let key = presence_key(other);
            let id = self.coordinator.submit(Request::Read { key });
            self.others.asked.insert(id, other);
        }
        if self.others.asked.is_empty() {
            self.leaving.is_last.store(true, Ordering::Release);
        }
    }

    /// What `other` says of itself.
    fn hear_of(&mut self, other: ServerId, entry: &Entry) {
        let presence = (entry.version > EntryVersion(0)).then(|| Presence::parse(&entry.value));
        let stays = presence.is_some_and(|said| !said.is_ok_and(|said| said.leaving));
        self.others.stay.insert(other, stays);
        if self.others.asked.is_empty() {
            let is_last = !self.others.stay.values().any(|stays| *stays);
            self.leaving.is_last.store(is_last, Ordering::Release);
        }
    }

    /// Whom this server, which leaves, has heard of since: not by what was on its way before.
    fn heard(&mut self, now: Instant) -> BTreeSet<ServerId> {
        let since = *self.others.left_at.get_or_insert(now);
        self.node.reports().heard_after(since + UNDER_WAY)
    }

    fn unreachable(&self, now: Instant) -> BTreeSet<ServerId> {
        self.node.unreachable(now)
    }
}
