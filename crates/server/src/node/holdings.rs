//! What a node holds of everything that could grow without end, and the most that it may hold of each (I8, I9).
//!
//! Each is counted where it is kept, by the same sums by which whoever fills it is refused. Memory of which a process
//! has one sum for all its nodes, as memtables and versions, is not among them.

use argosy_base::ServerId;

use super::Node;
use super::calls::{CALLS_MAX, KEPT_BYTES_MAX};
use super::edit_memory::EDIT_BYTES_MAX;
use super::held::HELD_BYTES_MAX;
use super::link::{self, FETCH_SLOTS};
use super::region::{Driver, Region, copy_of};
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

impl Node {
    /// See the module documentation. Adds up over all regions and links.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        let peers: Vec<ServerId> = self.links.peers().collect();
        let (links, regions) = (peers.len(), self.regions.len());
        let (calls, kept_bytes) = {
            let calls = self.calls();
            (calls.len(), calls.kept_bytes())
        };
        let mut all = vec![
            Holding::passing(
                "bytes of answers that wait",
                self.requests.answers().taken(),
                self.settings.memory.answers,
            ),
            Holding::passing("calls under way", calls, CALLS_MAX),
            Holding::passing(
                "bytes of calls that are sent again if their link breaks",
                kept_bytes,
                KEPT_BYTES_MAX,
            ),
            Holding::passing(
                "bytes of edits that arrive",
                self.memory.arriving_bytes(),
                EDIT_BYTES_MAX + regions * EDIT_BYTES_MAX,
            ),
            Holding::passing(
                "bytes of checkpoints that are sent",
                self.memory.sending_bytes(),
                2 * EDIT_BYTES_MAX,
            ),
            Holding::passing(
                "fetches that wait",
                self.fetches_waiting(),
                links * usize::from(FETCH_SLOTS),
            ),
            self.cache_holding(),
        ];
        let mut sums = link::Holdings::default();
        for peer in peers {
            sums.add(self.link(peer).holdings());
        }
        all.extend(sums.of_links(links));
        all.extend(self.holdings_of_regions());
        all
    }

    /// Bytes of memory of the newest versions of all copies here.
    #[must_use]
    pub fn versions_bytes(&self) -> usize {
        let copies = self.regions.iter().filter_map(|region| copy_of(region));
        copies.map(|copy| copy.memory_bytes()).sum()
    }

    /// Bytes that are charged to the cache: of versions, of memtables that only snapshots see, and of what arrives.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.memory.cache_stats().charged_bytes
    }

    fn cache_holding(&self) -> Holding {
        let cache = self.memory.cache_stats();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Holding {
            what: "bytes of the cache",
            held: size(cache.bytes + cache.pinned_bytes),
            most: size(cache.budget),
            passes: false,
        }
    }

    fn holdings_of_regions(&self) -> impl Iterator<Item = Holding> {
        const COUNT: usize = 5;
        let mut sums = [0; COUNT];
        for region in self.regions.iter() {
            let of_region = held_of(region);
            sums.iter_mut()
                .zip(of_region)
                .for_each(|(sum, held)| *sum += held);
        }
        let backups = self.links.len();
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
        let regions = self.regions.len();
        let all = sums.into_iter().zip(most);
        all.map(move |(held, (what, most))| Holding::passing(what, held, regions * most))
    }
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
        Driver::AtDevice(_) | Driver::Failed(_) => (0, 0),
    };
    let held = region.holding().bytes();
    [answers, queued, held, unapplied, waiting]
}
