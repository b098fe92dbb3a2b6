//! A device that counts how often somebody waits for a read, and fails one of those read together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use argosy_base::DeviceSegment;
use argosy_device::io::Read;
use argosy_device::{
    Counters, Device, DeviceError, Io, OpKind, Store, StoreSettings, Ticket, Waker,
};
use argosy_lsm::{Lsm, Settings};

use super::{Machine, REGION};

/// See the module documentation.
pub(crate) struct Counting {
    inner: Arc<dyn Device>,
    alone: AtomicU64,
    together: AtomicU64,
    fails_after: Mutex<Option<usize>>,
    on_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Counting {
    /// Opens the engine of `machine`, which is closed, on such a device.
    pub(crate) fn open(machine: &mut Machine, settings: &Settings) -> (Arc<Self>, Lsm) {
        let device = Arc::new(Self {
            inner: machine.device.clone(),
            alone: AtomicU64::new(0),
            together: AtomicU64::new(0),
            fails_after: Mutex::new(None),
            on_read: Mutex::new(None),
        });
        let store = Store::open(device.clone(), &StoreSettings::default()).unwrap();
        let engine = Lsm::open(&store, REGION, &machine.windows, settings, None).unwrap();
        machine.store = Some(store);
        (device, engine)
    }

    /// Reads that somebody waited for alone.
    pub(crate) fn alone(&self) -> u64 {
        self.alone.load(Ordering::Relaxed)
    }

    /// Requests for several reads.
    pub(crate) fn together(&self) -> u64 {
        self.together.load(Ordering::Relaxed)
    }

    /// What happens in the middle of the next read.
    pub(crate) fn on_read(&self, what: impl FnOnce() + Send + 'static) {
        *self.on_read.lock().unwrap() = Some(Box::new(what));
    }

    fn happen(&self) {
        let what = self.on_read.lock().unwrap().take();
        if let Some(what) = what {
            what();
        }
    }

    /// Of those that are read together, from now on, so many are well.
    pub(crate) fn fail_after(&self, count: usize) {
        *self.fails_after.lock().unwrap() = Some(count);
    }
}

impl Device for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.alone.fetch_add(1, Ordering::Relaxed);
        let read = self.inner.read(at, buffer);
        self.happen();
        read
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        self.together.fetch_add(1, Ordering::Relaxed);
        self.happen();
        let mut left = self.fails_after.lock().unwrap();
        for read in reads {
            read.result = match &mut *left {
                Some(0) => Err(DeviceError::Io {
                    op: OpKind::Read,
                    at: read.at,
                    len: read.buffer.len(),
                    source: Arc::new(std::io::Error::other("planted")),
                }),
                left => {
                    *left = left.map(|left| left - 1);
                    self.inner.read(read.at, read.buffer)
                }
            };
        }
    }

    fn submit(&self, io: Io) -> Ticket {
        self.inner.submit(io)
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        self.inner.wait(ticket)
    }

    fn discard(&self, segment: DeviceSegment) {
        self.inner.discard(segment);
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
