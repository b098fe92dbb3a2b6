//! What is not as it should be, and what that keeps the server from: readiness, what is told as
//! degraded, and what the log warns of are made of one list of [`Trouble`]s.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::{Instant, RegionId, ServerId};
use argosy_engine::BusyReason;

use super::gate::{Reveals, Verdict};
use super::link::CannotOpen;
use super::primary::PrimaryDriver;
use super::region::{Driver, Region, copy_of, engine_of};
use super::report::Reports;
use super::views::Part;
use crate::service::Readiness;

/// How long a server that has started is not ready for want of a link to a peer, and warns of nothing.
const PEERS_WITHIN: Duration = Duration::from_secs(2);

/// What a trouble is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// This server's device.
    Device,
    /// Another server.
    Peer(ServerId),
    /// A region, or this server's copy of it.
    Region(RegionId),
}

/// Of what kind a trouble is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A device or a copy takes no more writes, or cannot be used at all.
    Failed,
    /// A server shows no sign of life.
    Lost,
    /// A server is there, and the link to it cannot be opened.
    Unlinked,
    /// A region is not open on its primary.
    Closed,
    /// A device is full.
    Full,
    /// Writes were given up at their deadlines, and none has been acknowledged since.
    Stalled,
    /// Something that is stored is not what was written.
    Damaged,
    /// A member of a region is not attached, or silent; or the region has too few.
    Missing,
}

/// What does not go on because of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stops {
    /// Regions that this server is primary of are read and written.
    Nothing,
    /// Writes are not acknowledged in some of them.
    Writes,
    /// Reads are not answered in some of them, nor are writes.
    Reads,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) subject: Subject,
    pub(super) kind: Kind,
    pub(super) stops: Stops,
    /// What it is, for people.
    pub(super) what: String,
}

impl Reports<'_> {
    /// Servers that have shown a sign of life after `at`.
    pub(crate) fn heard_after(&self, at: Instant) -> BTreeSet<ServerId> {
        let peers = self.context.links.peers();
        peers
            .filter(|peer| self.context.link(*peer).is_heard_after(at))
            .collect()
    }

    /// Whether the server does what it is there for, and what is wrong in any case.
    #[must_use]
    pub fn ready(&self) -> Readiness {
        let troubles = self.troubles();
        let first = |from: Stops| {
            let mut grave = troubles.iter().filter(|trouble| trouble.stops >= from);
            grave.next().map(|trouble| trouble.what.clone())
        };
        let opening = self.opens_links();
        let reads = first(Stops::Reads).or_else(|| opening.clone());
        Readiness {
            writes: reads.clone().or_else(|| first(Stops::Writes)),
            reads,
            lacks: self.lacks().or(opening),
            degraded: troubles.into_iter().map(|trouble| trouble.what).collect(),
        }
    }

    /// Which member some region lacks that this server is primary of.
    fn lacks(&self) -> Option<String> {
        self.context.regions.iter().find_map(|region| {
            let lacks = match &*region.driver() {
                Driver::Primary(driver) => driver
                    .lacks(&self.context)
                    .or_else(|| driver.lacks_copies(&self.context)),
                Driver::Backup(_) => None,
                Driver::AtDevice(what) => self.is_primary_of(region).then(|| (*what).into()),
                Driver::Failed(copy) => Some(copy.why.clone()),
                Driver::Absent => None,
            };
            lacks.map(|lacks| format!("{}: {lacks}", region.id()))
        })
    }

    fn is_primary_of(&self, region: &Region) -> bool {
        region.view().part_of(self.context.id) == Part::Primary
    }

    /// Requests for other servers' regions are forwarded. A server that starts gives its peers some
    /// time to be there; one that is gone is no reason not to serve.
    fn opens_links(&self) -> Option<String> {
        if !self.has_just_started(self.context.now()) {
            return None;
        }
        let mut peers = self.context.links.peers();
        let closed = peers.find(|peer| !self.context.link(*peer).is_open())?;
        Some(format!("the link to {closed} is being opened"))
    }

    /// Whether what is missing may just not be there yet.
    pub(super) fn has_just_started(&self, now: Instant) -> bool {
        now.since(self.context.telling.opened()) < PEERS_WITHIN
    }

    /// Everything that is not as it should be, the gravest of each region first.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let mut add = |subject, kind, stops, what| {
            troubles.push(Trouble {
                subject,
                kind,
                stops,
                what,
            });
        };
        let store = &self.context.world.store;
        if let Some(error) = store.failure() {
            let what = format!("the device of this server takes no more writes: {error}");
            add(Subject::Device, Kind::Failed, Stops::Writes, what);
        }
        if store.room().is_full() {
            let what = "the device of this server is full: delete keys".to_owned();
            add(Subject::Device, Kind::Full, Stops::Nothing, what);
        }
        let now = self.context.now();
        for peer in self.context.links.peers() {
            let (is_silent, cannot_open) = {
                let link = self.context.link(peer);
                (link.is_silent(now), link.cannot_open(now))
            };
            match cannot_open {
                CannotOpen::Unknown if is_silent => {
                    let what = format!("{peer} shows no sign of life");
                    add(Subject::Peer(peer), Kind::Lost, Stops::Nothing, what);
                }
                CannotOpen::Because(why) => {
                    let what = format!("the link to {peer} cannot be opened: {why}");
                    add(Subject::Peer(peer), Kind::Unlinked, Stops::Nothing, what);
                }
                CannotOpen::Unknown | CannotOpen::ForNow => {}
            }
        }
        for peer in self.context.device_care.full_peers() {
            let what = format!("the device of {peer} is full");
            add(Subject::Peer(peer), Kind::Full, Stops::Nothing, what);
        }
        for region in self.context.regions.iter() {
            self.troubles_of(region, &mut |kind, stops, what| {
                let what = format!("{}: {what}", region.id());
                add(Subject::Region(region.id()), kind, stops, what);
            });
        }
        troubles
    }

    fn troubles_of(&self, region: &Region, add: &mut impl FnMut(Kind, Stops, String)) {
        match &*region.driver() {
            Driver::Primary(driver) => self.troubles_of_primary(region, driver, add),
            Driver::Backup(copy) => {
                if let Some(why) = copy.failed() {
                    let what = format!("this server's copy has failed: {why}");
                    add(Kind::Failed, Stops::Nothing, what);
                }
            }
            Driver::AtDevice(what) => {
                if self.is_primary_of(region) {
                    add(Kind::Closed, Stops::Reads, format!("not open: {what}"));
                }
            }
            Driver::Failed(copy) if self.is_primary_of(region) => {
                add(Kind::Failed, Stops::Reads, copy.why.clone());
            }
            Driver::Failed(copy) => add(Kind::Failed, Stops::Nothing, copy.why.clone()),
            Driver::Absent => {}
        }
        let Some(copy) = copy_of(region) else {
            return;
        };
        let places = region.scrubber().damages_in(&*copy).count();
        let segments = copy.damage_stats().damaged;
        if places > 0 {
            let what = format!("{places} damaged places; scrub.damages of /status names them");
            add(Kind::Damaged, Stops::Nothing, what);
        } else if segments > 0 {
            let what = format!("{segments} damaged segments; the log names them");
            add(Kind::Damaged, Stops::Nothing, what);
        }
    }

    fn troubles_of_primary(
        &self,
        region: &Region,
        driver: &PrimaryDriver,
        add: &mut impl FnMut(Kind, Stops, String),
    ) {
        let context = &self.context;
        if let Some(why) = driver.failed() {
            return add(Kind::Failed, Stops::Reads, why.to_owned());
        }
        let lacks = driver.lacks(&self.context);
        let Some(engine) = engine_of(region) else {
            let why = lacks.unwrap_or_else(|| "it is being opened".to_owned());
            return add(Kind::Closed, Stops::Reads, format!("not open: {why}"));
        };
        if let Some(error) = region.failure() {
            let what = format!("its engine takes no more writes: {error}");
            add(Kind::Failed, Stops::Writes, what);
        }
        if region.gate().show_committed(&engine, Reveals::Page) == Verdict::Later {
            let why = lacks.clone();
            let why = why.unwrap_or_else(|| "members have just been attached".to_owned());
            let what = format!("not everything that was acknowledged is shown yet: {why}");
            add(Kind::Closed, Stops::Reads, what);
        }
        if engine.is_full()
            && let Some(who) = context.device_care.who_is_full(region.id(), context)
        {
            add(Kind::Full, Stops::Writes, who);
        }
        if region
            .health()
            .is_stalled(self.context.now(), 2 * self.context.settings.deadline)
        {
            let reason = region.waiting().busy;
            let why = lacks.clone();
            let why = why.unwrap_or_else(|| reason.unwrap_or(BusyReason::LogWindows).to_string());
            let what = format!("writes were given up at their deadline: {why}");
            add(Kind::Stalled, Stops::Writes, what);
        }
        if let Some(lacks) = lacks {
            // What a silent member's memory takes is acknowledged, as long as there is room.
            let stops = match driver.machine().absent().next() {
                Some(_) => Stops::Writes,
                None => Stops::Nothing,
            };
            add(Kind::Missing, stops, lacks);
        } else if let Some(lacks) = driver.lacks_copies(context) {
            add(Kind::Missing, Stops::Nothing, lacks);
        }
    }
}
