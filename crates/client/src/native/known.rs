//! What a client knows of its cluster, and what it has learnt about the lengths of values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::range::Starts;
use argosy_base::{Epoch, RegionId, ServerId};
use argosy_wire::native::{MapRegion, RegionMap};

use super::link::Link;

/// The region map, and the way to each server of it.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) map: RegionMap,
    starts: Starts,
    fingerprint: u32,
    /// The cluster's name.
    cluster: u128,
    pub(super) links: BTreeMap<ServerId, Arc<Link>>,
}

/// The place of a region in the map, and the epoch under which it has its primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat {
    index: usize,
    pub(super) region: RegionId,
    pub(super) epoch: Epoch,
}

impl Known {
    /// Nothing yet but the way to one server, whose name is not known.
    pub(super) fn at_first(link: Link) -> Self {
        Self {
            links: BTreeMap::from([(ServerId(0), Arc::new(link))]),
            ..Self::default()
        }
    }

    /// Whether what is known of `cluster` is newer than `map`, which a server has told that has not heard of a change:
    /// epochs only rise. A cluster that was made anew has another name.
    pub(super) fn is_newer_than(&self, map: &RegionMap, cluster: u128) -> bool {
        let mut both = self.map.regions.iter().zip(&map.regions);
        cluster == self.cluster
            && both.any(|(known, told)| known.id == told.id && told.epoch < known.epoch)
    }

    /// The same with another map; the way to a server that is met where it was is kept.
    pub(super) fn replaced_by(
        &self,
        map: &RegionMap,
        fingerprint: u32,
        cluster: u128,
    ) -> Arc<Self> {
        let links = map.servers.iter().map(|server| {
            let socket = PathBuf::from(&server.native);
            let mut old = self.links.values();
            let kept = old.find(|link| link.socket() == socket);
            let link = kept.map_or_else(|| Arc::new(Link::new(socket)), Arc::clone);
            (server.id, link)
        });
        Arc::new(Self {
            links: links.collect(),
            starts: map.starts(),
            map: map.clone(),
            fingerprint,
            cluster,
        })
    }

    /// The way to the server that is believed to serve `key`.
    pub(super) fn link_of(&self, key: &[u8]) -> &Arc<Link> {
        &self.links[&self.region_of(key).primary]
    }

    /// The region that `key` lies in.
    pub(super) fn region_of(&self, key: &[u8]) -> &MapRegion {
        &self.map.regions[self.index_of(key)]
    }

    /// Its place in the map.
    pub(super) fn index_of(&self, key: &[u8]) -> usize {
        self.map.index_of(&self.starts, key)
    }

    /// The seat of the region that `key` lies in.
    pub(super) fn seat_of(&self, key: &[u8]) -> Seat {
        let index = self.index_of(key);
        let region = &self.map.regions[index];
        Seat {
            index,
            region: region.id,
            epoch: region.epoch,
        }
    }

    /// Whether the region at `seat`, which an earlier map had there, has another epoch by this one. Maps of one cluster
    /// keep its regions in their places; another cluster has none of them.
    pub(super) fn has_moved(&self, seat: Seat) -> bool {
        let here = self.map.regions.get(seat.index);
        here.is_none_or(|of| (of.id, of.epoch) != (seat.region, seat.epoch))
    }

    /// Wakes all servers that sleep over requests.
    pub(super) fn ring(&self) {
        for link in self.links.values() {
            link.ring();
        }
    }

    /// The fingerprint of the map.
    pub(super) const fn fingerprint(&self) -> u32 {
        self.fingerprint
    }
}

/// How many bytes of slot a value may need: what values have needed of late.
#[derive(Debug)]
pub(super) struct Guess {
    bytes: AtomicUsize,
    /// Values in a row that needed less than half.
    small: AtomicUsize,
}

impl Default for Guess {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(1024),
            small: AtomicUsize::new(0),
        }
    }
}

impl Guess {
    /// So many small values in a row halve it.
    const PATIENCE: usize = 256;
    const BYTES_MIN: usize = 128;
    const BYTES_MAX: usize = 16 << 10;

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A value needed so many bytes. Relaxed: a guess.
    pub(super) fn learn(&self, needed: usize) {
        let bytes = self.bytes();
        if needed > bytes {
            let grown = needed.next_power_of_two().min(Self::BYTES_MAX);
            self.bytes.store(grown.max(bytes), Ordering::Relaxed);
            self.small.store(0, Ordering::Relaxed);
        } else if needed > bytes / 2 {
            if self.small.load(Ordering::Relaxed) > 0 {
                self.small.store(0, Ordering::Relaxed);
            }
        } else if self.small.fetch_add(1, Ordering::Relaxed) >= Self::PATIENCE {
            self.bytes
                .store((bytes / 2).max(Self::BYTES_MIN), Ordering::Relaxed);
            self.small.store(0, Ordering::Relaxed);
        }
    }
}
