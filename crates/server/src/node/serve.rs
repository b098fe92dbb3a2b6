//! A node as the front ends see it.

use argosy_base::RegionId;
use argosy_base::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX};
use argosy_engine::{Reach, long};

use super::Node;
use crate::activity::Activity;
use crate::service::{Begun, InfoSection, KeyList, Readiness, ReplyTo, Request, Service};

/// Bytes of keys and values in one page of a scan, or of values of several keys, at most; a single pair may
/// be longer.
pub(super) const PAGE_BYTES_MAX: usize = 512 << 10;

impl Service for Node {
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        self.router().call(request, reach, reply)
    }

    fn get_each(&self, keys: &KeyList, replies: &[ReplyTo]) {
        if !keys.is_empty() {
            self.router().get_together(keys, replies);
        }
    }

    fn flush(&self) {
        let context = self.context();
        let now = self.world.clock.now();
        context.set_now(now);
        self.world.ledger.turn_to(Activity::Request);
        context.pump_dirty();
        self.links.flush();
        self.world.ledger.settle(now);
        self.memory.trim_allocator(&self.world);
    }

    fn region_of(&self, key: &[u8]) -> RegionId {
        let context = self.context();
        let map = context.views.map();
        map.regions()[map.index_of(long::routing_key(key))].id
    }

    fn info(&self) -> Vec<InfoSection> {
        self.reports().info()
    }

    fn ready(&self) -> Readiness {
        self.reports().ready()
    }
}

const _: () = assert!(PAGE_BYTES_MAX + BATCH_BYTES_MAX + KEY_BYTES_MAX < 2 << 20);
