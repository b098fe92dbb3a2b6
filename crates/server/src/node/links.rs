//! The links to the other servers, who takes the answers to the calls that came by them, and the leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::ServerId;
use argosy_coordinator::ClusterMap;
use argosy_memory::MemoryError;
use parking_lot::{Mutex, MutexGuard};

use super::beginning::start_number;
use super::leases::Leases;
use super::link::{Ends, Link};
use super::{NodeSettings, World};
use crate::service::ReplySink;

/// See the module documentation.
pub(crate) struct Links {
    of_peers: BTreeMap<ServerId, Mutex<Link>>,
    /// Where the answers to a peer's calls go, while its link lives.
    answerers: Mutex<BTreeMap<ServerId, Arc<dyn ReplySink>>>,
    leases: Leases,
}

impl Links {
    /// A link to every other server of `map`.
    pub(super) fn open(
        id: ServerId,
        settings: &NodeSettings,
        world: &World,
        map: &ClusterMap,
    ) -> Result<Self, MemoryError> {
        // Another one at each start; only neighbouring sessions are ever compared.
        let session = u32::from(start_number(&world.store)) << 16;
        let servers = map.servers().iter().map(|server| server.id);
        let mut of_peers = BTreeMap::new();
        for peer in servers.filter(|peer| *peer != id) {
            let (fabric, windows) = (Arc::clone(&world.fabric), Arc::clone(&world.windows));
            let mut link = Link::new(
                Ends { me: id, peer },
                settings.link,
                fabric,
                windows,
                session + 1,
            )?;
            link.plant(settings.mutants);
            of_peers.insert(peer, Mutex::new(link));
        }
        Ok(Self {
            of_peers,
            answerers: Mutex::default(),
            leases: Leases::new(id, settings.leases, world, map),
        })
    }

    /// Leases from the other servers, and to them.
    pub(crate) const fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The other servers.
    pub(crate) fn peers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.of_peers.keys().copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.of_peers.len()
    }

    /// The link to `peer`, which the region map names.
    pub(crate) fn to(&self, peer: ServerId) -> MutexGuard<'_, Link> {
        let link = self
            .of_peers
            .get(&peer)
            .expect("the region map names every peer");
        link.lock()
    }

    /// Sends what is queued for the other servers.
    pub(crate) fn flush(&self) {
        for peer in self.peers() {
            self.to(peer).flush();
        }
    }

    /// Where the answers to the calls of `peer` go.
    pub(super) fn answerer(&self, peer: ServerId) -> Option<Arc<dyn ReplySink>> {
        self.answerers().get(&peer).cloned()
    }

    /// From now on they go to `sink`.
    pub(super) fn set_answerer(&self, peer: ServerId, sink: Arc<dyn ReplySink>) {
        self.answerers().insert(peer, sink);
    }

    /// From now on they go nowhere.
    pub(super) fn forget_answerer(&self, peer: ServerId) {
        self.answerers().remove(&peer);
    }

    /// Taken alone.
    fn answerers(&self) -> MutexGuard<'_, BTreeMap<ServerId, Arc<dyn ReplySink>>> {
        self.answerers.lock()
    }
}
