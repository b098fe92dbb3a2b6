//! What an engine under test has beside its copy: a device in memory, and the memory of its windows.

use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{RegionId, ServerId};
use argosy_device::{Crash, Device, FormatOptions, MemoryDevice, OpKind, Store, StoreSettings};
use argosy_memory::SharedMemory;

use crate::{CopyOf, Engine, Follower, LogSlots, LogSurvivors, Settings, Survivors, Windows};

/// The region.
const REGION: RegionId = RegionId(5);

/// Segments of a device: enough that none is ever full.
const SEGMENTS: u64 = 1024;

/// See the module documentation.
pub struct Machine {
    engine: Arc<dyn Engine>,
    device: Arc<MemoryDevice>,
    /// What lies on the device, while the process lives.
    store: Option<Arc<Store>>,
    windows: Windows,
    /// Its copy builds levels of its own, as this server.
    own_levels: Option<ServerId>,
}

impl Machine {
    /// A machine with an empty device, on which an engine of `settings` is started.
    ///
    /// # Panics
    /// When the device cannot be formatted.
    #[must_use]
    pub fn new(settings: &dyn Settings, seed: u64) -> Self {
        let device = MemoryDevice::eager(SEGMENTS * SEGMENT_SIZE as u64, seed);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(1),
            created_by: "conformance".to_owned(),
        };
        Store::format(&device, &options).expect("an empty device is formatted");
        Self {
            engine: settings.start(),
            device: Arc::new(device),
            store: None,
            windows: Windows::new(),
            own_levels: None,
        }
    }

    /// From now on its copy builds levels of its own, as `server`, if the engine has levels.
    #[must_use]
    pub const fn with_own_levels(mut self, server: ServerId) -> Self {
        self.own_levels = Some(server);
        self
    }

    /// The memory of the windows, in which a primary writes.
    #[must_use]
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// New windows in place of the old ones.
    pub fn renew_windows(&mut self) -> Windows {
        let slots = |spec: &crate::LogSpec| LogSlots {
            log: spec.id,
            slots: (0..spec.slots)
                .map(|_| Arc::new(SharedMemory::anonymous(spec.slot_bytes)))
                .collect(),
        };
        self.windows = self.engine.logs().iter().map(slots).collect();
        self.windows.clone()
    }

    /// Opens the copy on what the process before left.
    ///
    /// # Panics
    /// When it does not open.
    #[must_use]
    pub fn open(&mut self) -> Box<dyn Follower> {
        let old = std::mem::take(&mut self.windows);
        let survivors = |spec: &crate::LogSpec| LogSurvivors {
            log: spec.id,
            slots: match old.iter().find(|left| left.log == spec.id) {
                Some(left) => left.slots.iter().cloned().map(Some).collect(),
                None => vec![None; spec.slots],
            },
        };
        let left: Survivors = self.engine.logs().iter().map(survivors).collect();
        let fresh = self.renew_windows();
        let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&self.device);
        let store = Store::open(device, &StoreSettings::default()).expect("the device opens");
        let known = store.region(REGION).is_some();
        if !known {
            store.finish_recovery();
        }
        let copy = CopyOf {
            store: &store,
            region: REGION,
            own_levels: self.own_levels,
        };
        let opened = self.engine.open(&copy, fresh, left);
        if known {
            store.finish_recovery();
        }
        self.store = Some(store);
        opened.unwrap_or_else(|error| panic!("the copy does not open: {error}"))
    }

    /// Segments of the device that are in use.
    ///
    /// # Panics
    /// When no copy was opened since the last end.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.store.as_ref().expect("a copy was opened").used()
    }

    /// Has the device fail after so many more writes, and after so many syncs.
    pub fn fail_after(&self, count: u64) {
        for op in [OpKind::Write, OpKind::Sync] {
            self.device.fail_after(op, count);
        }
    }

    /// Ends the process. Where it is killed, windows survive, and what the device was told.
    pub fn end(&mut self, crash: Crash) {
        self.device = Arc::new(self.device.crash(crash));
        self.store = None;
        if crash == Crash::PowerLoss {
            self.windows.clear();
        }
    }
}
