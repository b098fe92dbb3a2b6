//! What a node holds of everything that could grow without end, and the most that it may hold of each (I8, I9).
//!
//! Each is counted where it is kept, by the same sums by which whoever fills it is refused. Memory of which a process
//! has one sum for all its nodes, as memtables and versions, is not among them.

use argosy_base::ServerId;

use super::calls::{CALLS_MAX, KEPT_BYTES_MAX, WAITING_BYTES_MAX};
use super::context::Context;
use super::edit_memory::EDIT_BYTES_MAX;
use super::held::HELD_BYTES_MAX;
use super::link::{self, FETCH_SLOTS};
use super::memory::Memory;
use super::region::{Driver, Region};
use super::sending::UNAPPLIED_BYTES_MAX;
use super::waiting::{ANSWERS_MAX, QUEUED_BYTES_MAX};

/// Edits that wait for a member are bounded by what memory they may take in an engine: so many of the longest.
const EDITS_WAITING_MAX: usize = 4;

/// How much is held of something, in bytes or pieces, and the most that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Of what.
    pub what: &'static str,
    /// How much is held.
    pub held: usize,
    /// The most that may be held at any time.
    pub most: usize,
    /// Nothing of it is left when nothing is under way.
    pub passes: bool,
}

impl Holding {
    /// Of what nothing is left when nothing is under way.
    pub(super) const fn passing(what: &'static str, held: usize, most: usize) -> Self {
        let passes = true;
        Self {
            what,
            held,
            most,
            passes,
        }
    }
}

/// See the module documentation. Adds up over all regions and links.
pub(super) fn holdings(context: &Context<'_>) -> Vec<Holding> {
    let peers: Vec<ServerId> = context.links.peers().collect();
    let (links, regions) = (peers.len(), context.regions.len());
    let (calls, kept_bytes, waiting_bytes) = {
        let calls = context.calls();
        (calls.len(), calls.kept_bytes(), calls.waiting_bytes())
    };
    let mut all = vec![
        Holding::passing(
            "bytes of answers that wait",
            context.requests.answers().taken(),
            context.settings.memory.answers,
        ),
        Holding::passing("calls under way", calls, CALLS_MAX),
        Holding::passing(
            "bytes of calls that may be sent again",
            kept_bytes,
            KEPT_BYTES_MAX,
        ),
        Holding::passing(
            "bytes of calls that wait for a primary",
            waiting_bytes,
            WAITING_BYTES_MAX,
        ),
        Holding::passing(
            "bytes of edits that arrive",
            context.memory.arriving_bytes(),
            EDIT_BYTES_MAX + regions * EDIT_BYTES_MAX,
        ),
        Holding::passing(
            "bytes of checkpoints that are sent",
            context.memory.sending_bytes(),
            2 * EDIT_BYTES_MAX,
        ),
        Holding::passing(
            "fetches that wait",
            context.device_care.fetches().len(),
            links * usize::from(FETCH_SLOTS),
        ),
        cache_holding(context.memory),
    ];
    let mut sums = link::Holdings::default();
    for peer in peers {
        sums.add(context.link(peer).holdings());
    }
    all.extend(sums.of_links(links));
    all.extend(holdings_of_regions(context));
    all
}

fn cache_holding(memory: &Memory) -> Holding {
    let cache = memory.cache_stats();
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Holding {
        what: "bytes of the cache",
        held: size(cache.bytes + cache.pinned_bytes),
        most: size(cache.budget),
        passes: false,
    }
}

fn holdings_of_regions(context: &Context<'_>) -> impl Iterator<Item = Holding> + use<> {
    const COUNT: usize = 5;
    let mut sums = [0; COUNT];
    for region in context.regions.iter() {
        let of_region = held_of(region);
        sums.iter_mut()
            .zip(of_region)
            .for_each(|(sum, held)| *sum += held);
    }
    let backups = context.links.len();
    let edits = EDIT_BYTES_MAX + UNAPPLIED_BYTES_MAX;
    let most: [(&str, usize); COUNT] = [
        ("answers that wait", ANSWERS_MAX),
        ("bytes of requests that wait for room", QUEUED_BYTES_MAX),
        ("bytes that wait for a driver", HELD_BYTES_MAX),
        ("bytes of edits that are not applied", edits),
        (
            "bytes of edits that wait for members",
            EDITS_WAITING_MAX * EDIT_BYTES_MAX * backups.max(1),
        ),
    ];
    let regions = context.regions.len();
    let all = sums.into_iter().zip(most);
    all.map(move |(held, (what, most))| Holding::passing(what, held, regions * most))
}

/// Of one region, in the order of those names.
fn held_of(region: &Region) -> [usize; 5] {
    let (answers, queued) = {
        let waiting = region.waiting();
        (waiting.len() - waiting.queued(), waiting.queued_bytes())
    };
    let (unapplied, waiting) = match &*region.driver() {
        Driver::Primary(driver) => (0, driver.waiting_bytes()),
        Driver::Backup(copy) => (copy.unapplied_bytes(), 0),
        Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => (0, 0),
    };
    let held = region.holding().bytes();
    [answers, queued, held, unapplied, waiting]
}
