//! The one memory budget of a server (I9): what each part may take, and what it takes.
//!
//! Whoever starts a server divides its limit into [`MemoryParts`]; each part keeps to its own. `INFO
//! memory` names all of them, so that anyone can add them up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Instant, ServerId};
use argosy_device::buffer;
use argosy_engine::stats::CacheStats;
use argosy_engine::{Cache, Charge, Engine, Excess, Lent, LogSpec};
use argosy_memory::shared::CONTROL_BYTES;

use super::awake::{Awake, Permits};
use super::context::Context;
use super::edit_memory::{EditMemory, Share};
use super::whole::MARK_BYTES;
use super::{NodeSettings, World};

std::thread_local! {
    /// When what is resident was last looked at, as far as this thread knows.
    static KNOWN_LOOK: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that each part of a server may take; together they are the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryParts {
    /// All memtables: of the regions that the server is primary of, and of those that it builds
    /// levels of as a backup.
    pub memtables: usize,
    /// The log windows of all regions that the server is a member of, and the marks of whole copies.
    pub windows: usize,
    /// Message rings and landing slots of the links to the other servers. Messages that wait, and edits that arrive
    /// or are sent in parts, come on top while there are such: of long edits the cache gives as much.
    pub links: usize,
    /// Input and output of clients.
    pub clients: usize,
    /// Memory that native clients share with the server.
    pub native: usize,
    /// Answers that wait until what they tell of is committed.
    pub answers: usize,
    /// Memory for whole segments, in use or kept for the next.
    pub buffers: usize,
    /// Leaves, values, indexes and filters; and what regions consist of, to which these give way. While clients do not
    /// take their parts, the cache has those, too.
    pub cache: usize,
    /// Regions, of those that the server is primary of, whose windows have memory at one time; 0: any number.
    pub awake: usize,
}

impl MemoryParts {
    /// Bytes of shared memory that the copies of `regions` with these logs take: each its mark, and what is left of
    /// windows that rest; and those that are awake, their windows.
    #[must_use]
    pub fn windows_of(regions: Awake, logs: &[LogSpec]) -> usize {
        let of_logs = logs.iter().map(|log| log.slots * log.window_bytes);
        let resting = logs.iter().map(|log| log.slots * CONTROL_BYTES);
        let each = resting.sum::<usize>() + MARK_BYTES;
        regions.members * each + regions.awake * of_logs.sum::<usize>()
    }

    /// Bytes that answers may take of the `limit` of a server: a 64th, within bounds.
    #[must_use]
    pub fn answers_of(limit: usize) -> usize {
        (limit / 64).clamp(2 << 20, 32 << 20)
    }

    /// All parts together.
    #[must_use]
    pub const fn limit(&self) -> usize {
        let clients = self.clients + self.native + self.answers;
        self.memtables + self.windows + self.links + clients + self.buffers + self.cache
    }
}

impl MemoryParts {
    /// Bytes of the parts that the cache has while nobody takes them, beside its own.
    #[must_use]
    pub const fn lent(&self) -> usize {
        self.clients + self.native
    }

    /// All parts but those that the server shares with other processes, or that outlive it.
    #[must_use]
    pub const fn unshared(&self) -> usize {
        self.limit() - self.windows - self.links - self.native
    }
}

/// Bytes of memory that the process has to itself before regions are opened: the program's own, if `resident` are in
/// memory.
fn own_bytes(resident: Option<u64>, engine: &dyn Engine) -> u64 {
    let parts = engine.memory().memtables + buffer::allocated_bytes() as u64;
    resident.map_or(0, |resident| resident.saturating_sub(parts))
}

/// Memory that all regions of a server share, and what of it is resident: the engine with its cache, and edits on
/// their way.
pub(super) struct Memory {
    /// What opens and keeps this server's copies.
    engine: Arc<dyn Engine>,
    /// The engine's cache, of all regions.
    cache: Arc<dyn Cache>,
    /// Memory of edits and checkpoints that arrive in parts, and are not applied.
    edits_arriving: Arc<EditMemory>,
    /// Memory of checkpoints that are sent.
    edits_sending: Arc<EditMemory>,
    /// By what is resident beyond the budget that cache is smaller.
    excess: Excess,
    /// When it was last looked what is resident.
    looked: AtomicU64,
    /// Bytes of memory that the process had to itself before regions were opened.
    own: u64,
    /// Which regions' windows have memory.
    permits: Arc<Permits>,
    /// What windows take beyond their share.
    windows: Charge,
    lent: LentParts,
}

/// What the cache has while clients do not take it.
struct LentParts {
    clients: Arc<Lent>,
    native: Arc<Lent>,
}

impl Memory {
    /// That of `engine`, for a process that has so much `resident`, before regions are opened.
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        resident: Option<u64>,
        settings: &NodeSettings,
    ) -> Self {
        let parts = &settings.memory;
        let kept = settings.mutants.keep_permit();
        let cache = engine.cache();
        let cache_of_windows = Arc::clone(&cache);
        let lent = |share| Arc::new(Lent::new(Arc::clone(&cache), share));
        let lent = LentParts {
            clients: lent(parts.clients),
            native: lent(parts.native),
        };
        Self {
            lent,
            own: own_bytes(resident, &*engine),
            excess: Excess::new(Arc::clone(&cache), parts.unshared()),
            engine,
            cache,
            edits_arriving: Arc::default(),
            edits_sending: Arc::default(),
            looked: AtomicU64::new(0),
            permits: Arc::new(Permits::new(parts.awake, kept)),
            windows: Charge::of(cache_of_windows),
        }
    }

    /// What opens and keeps this server's copies.
    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The part of Redis clients, as far as they do not take it.
    pub(super) const fn lent_by_clients(&self) -> &Arc<Lent> {
        &self.lent.clients
    }

    /// The part of native clients, as far as they do not take it.
    pub(super) const fn lent_by_native(&self) -> &Arc<Lent> {
        &self.lent.native
    }

    /// How the limit is divided now: what clients do not take is the cache's.
    pub(super) fn division(&self, parts: &MemoryParts) -> MemoryParts {
        let (clients, native) = (self.lent.clients.bytes(), self.lent.native.bytes());
        MemoryParts {
            clients: parts.clients - clients,
            native: parts.native - native,
            cache: parts.cache + clients + native,
            ..*parts
        }
    }

    /// Which regions' windows have memory.
    pub(super) const fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    /// What the cache holds and has done.
    pub(super) fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Memory for an edit or a checkpoint of `bytes` that arrives; `None` while too much arrives already.
    pub(super) fn take_to_receive(&self, bytes: usize) -> Option<Share> {
        self.edits_arriving.try_take(bytes, &self.cache)
    }

    /// Whether no memory for another checkpoint is given out that is to be sent.
    pub(super) fn sends_enough(&self) -> bool {
        self.edits_sending.is_full()
    }

    /// Memory for a checkpoint of `bytes` that is to be sent.
    pub(super) fn take_to_send(&self, bytes: usize) -> Share {
        self.edits_sending.take(bytes, &self.cache)
    }

    /// Bytes of edits and checkpoints that have arrived in parts, and are not applied.
    pub(super) fn arriving_bytes(&self) -> usize {
        self.edits_arriving.held_bytes()
    }

    /// Bytes of checkpoints that are sent.
    pub(super) fn sending_bytes(&self) -> usize {
        self.edits_sending.held_bytes()
    }

    /// Now and then looks whether the device is still where it was opened, and what is resident, and has the
    /// cache give way to what is beyond the limit, both without the parts that are shared; and to what windows take
    /// beyond their share.
    pub(super) fn look(&self, now: Instant, context: &Context<'_>) {
        let world = context.world;
        let last = Instant::from_nanos(self.looked.load(Ordering::Relaxed));
        if now >= last + Excess::EVERY {
            self.looked.store(now.as_nanos(), Ordering::Relaxed);
            world.store.look_for_place();
            let share = context.settings.memory.windows;
            if share > 0 {
                let taken = MemoryParts::windows_of(context.awake(), self.engine().logs());
                self.windows.set(taken.saturating_sub(share));
            }
            self.trim_allocator(world);
            if let Some(resident) = (world.resident)() {
                // What the part of native clients lends is not shared, as that part otherwise is.
                let lent = self.lent.native.bytes() as u64;
                self.excess.look(resident.saturating_sub(lent));
            }
        }
    }

    /// Has the allocator look for what others have freed of this thread's memory, once for each look at what is
    /// resident. Threads that sleep do so when they are woken.
    pub(super) fn trim_allocator(&self, world: &World) {
        let look = self.looked.load(Ordering::Relaxed);
        if KNOWN_LOOK.replace(look) != look {
            (world.trim_allocator)();
        }
    }
}

impl Memory {
    /// What each part takes, of memtables and buffers all that the process has; what clients do is known to the
    /// front end.
    pub(super) fn taken(&self, context: &Context<'_>) -> MemoryParts {
        let memory = self.engine().memory();
        let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let messages = |peer: ServerId| context.link(peer).held_bytes();
        let edits = self.arriving_bytes() + self.sending_bytes();
        let held = edits + context.links.peers().map(messages).sum::<usize>();
        MemoryParts {
            memtables: size(memory.memtables),
            windows: MemoryParts::windows_of(context.awake(), self.engine().logs()),
            links: context.links.len() * context.settings.link.memory_bytes() + held,
            clients: 0,
            native: context
                .telling
                .native()
                .map_or(0, |front| front.memory_bytes()),
            answers: context.requests.answers().taken(),
            buffers: size(memory.buffers),
            cache: size(memory.cache + memory.pinned + memory.versions),
            awake: self.permits.held().0,
        }
    }

    /// What is told under `INFO memory`, beside what the front end says of clients.
    pub(super) fn describe(&self, context: &Context<'_>) -> Vec<(String, String)> {
        let own = &context.settings.memory;
        let parts = self.division(own);
        let cache = self.cache_stats();
        let taken = self.taken(context);
        let mut fields = vec![
            ("memory_limit", parts.limit() as u64),
            ("memory_memtables_max", parts.memtables as u64),
            ("memory_windows_max", parts.windows as u64),
            ("memory_links_max", parts.links as u64),
            ("memory_clients_max", parts.clients as u64),
            ("memory_native_max", parts.native as u64),
            ("memory_answers_max", parts.answers as u64),
            ("memory_buffers_max", parts.buffers as u64),
            ("memory_cache_max", parts.cache as u64),
        ];
        fields.extend([
            ("memory_program", self.own),
            ("memory_memtables", taken.memtables as u64),
            ("memory_windows", taken.windows as u64),
            ("memory_links", taken.links as u64),
            ("memory_native", taken.native as u64),
            ("memory_answers", taken.answers as u64),
            ("memory_buffers", taken.buffers as u64),
            ("memory_cache", taken.cache as u64),
            ("memory_cache_flushed", cache.flushed_bytes),
            ("memory_cache_pinned", cache.pinned_bytes),
            ("memory_cache_versions", self.engine().memory().versions),
            ("memory_cache_pins_refused", cache.pins_refused),
            ("memory_cache_lent", (parts.cache - own.cache) as u64),
            ("memory_cache_given", self.excess.charged() as u64),
            ("awake_regions_max", parts.awake as u64),
            ("awake_regions", taken.awake as u64),
            ("awake_regions_most", self.permits.held().1 as u64),
        ]);
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::readers_tests::{Gate, alone_with, trimmed};
    use super::*;
    use crate::service::Service;

    #[test]
    fn the_cache_gives_way_once_a_second_while_too_much_is_resident() {
        const CACHE: u64 = 8 << 20;
        let (node, _) = alone_with(&Gate::new(), 8 << 20, || Some(16 << 20));
        let given = || {
            let said = node.memory.describe(&node.context());
            let field = said.iter().find(|(name, _)| name == "memory_cache_given");
            field.and_then(|(_, bytes)| bytes.parse::<u64>().ok())
        };
        assert_eq!(given(), Some(0));
        let mut before = 0;
        for second in 1..=10 {
            for _ in 0..3 {
                node.step_background(Instant::from_nanos(second * 1_000_000_000));
            }
            let given = given().expect("it is told");
            let most = CACHE / 16 * 15;
            assert!(given > before || given == most, "{given} after {before}");
            before = given;
        }
        assert_eq!(before, CACHE / 16 * 15);
    }

    #[test]
    fn every_thread_that_serves_trims_the_allocator_once_a_second() {
        let (node, _) = alone_with(&Gate::new(), 0, || None);
        let serve = || {
            let flush = || (0..3).for_each(|_| node.flush());
            std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        flush();
                        trimmed()
                    })
                    .join()
            })
            .expect("it ends")
        };
        assert_eq!(serve(), 0, "nobody has looked yet");
        node.step_background(Instant::from_nanos(1_000_000_000));
        assert_eq!(serve(), 1);
        assert_eq!(trimmed(), 1, "the thread that looks does, too");
    }

    #[test]
    fn what_this_process_has_to_itself_is_told() {
        let bytes = crate::report::process::unshared_bytes().expect("Linux tells");
        assert!(bytes > 100 << 10 && bytes < 1 << 40, "{bytes}");
    }
}
