//! How a read comes by bytes of stored segments that are not in memory: at once, never, or together with others.
//!
//! One read path serves all three. Where bytes are not to be had it ends with [`LevelError::NotInMemory`]. A thread
//! that must not wait for the device then gives the request to one that may. A read of several keys goes on to the next
//! key, has the bytes of all of them read as one request ([`Gathering`]), and looks again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::DeviceSegment;
use argosy_device::{BegunRead, Buffer, DeviceError};
use argosy_engine::Reach;

use super::StoredSegment;
use crate::level::ReadAt;
use crate::names::LevelError;

/// Most bytes of a request; one read may go beyond.
const REQUEST_BYTES: usize = 2 << 20;

/// How bytes are come by. See the module documentation.
#[derive(Clone, Copy)]
pub enum Fetch<'g> {
    /// They are read from the device.
    Device,
    /// Not at all.
    Memory,
    /// They were read by an earlier request, or are noted for the next one.
    Together(&'g Gathering),
}

impl Fetch<'_> {
    /// What `reach` allows.
    #[must_use]
    pub const fn within(reach: Reach) -> Self {
        match reach {
            Reach::Memory => Self::Memory,
            Reach::Device => Self::Device,
        }
    }

    /// Whether it goes to the device: what is not in a cache was missed there.
    #[must_use]
    pub(crate) const fn may_read(self) -> bool {
        !matches!(self, Self::Memory)
    }
}

/// A stored segment, and how its bytes are come by.
#[derive(Clone, Copy)]
pub(crate) struct Fetched<'a> {
    /// The segment.
    pub stored: &'a Arc<StoredSegment>,
    /// How its bytes are come by.
    pub fetch: Fetch<'a>,
}

impl ReadAt for Fetched<'_> {
    fn may_read(&self) -> bool {
        self.fetch.may_read()
    }

    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        match self.fetch {
            Fetch::Device => self.stored.read_at(offset, out),
            Fetch::Memory => Err(LevelError::NotInMemory),
            Fetch::Together(gathering) => gathering.fill(self.stored, offset, out),
        }
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        match self.fetch {
            Fetch::Device => self.stored.begin_read(offset, bytes),
            Fetch::Memory | Fetch::Together(_) => BegunRead::later(bytes),
        }
    }
}

/// A stored segment that a walk keeps, and how far it reaches.
pub(crate) struct Reached {
    /// The segment.
    pub stored: Arc<StoredSegment>,
    /// Within [`Reach::Memory`] nothing is read.
    pub reach: Reach,
}

impl Reached {
    const fn fetched(&self) -> Fetched<'_> {
        Fetched {
            stored: &self.stored,
            fetch: Fetch::within(self.reach),
        }
    }
}

impl ReadAt for Reached {
    fn may_read(&self) -> bool {
        self.fetched().may_read()
    }

    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        self.fetched().read_at(offset, out)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        self.fetched().begin_read(offset, bytes)
    }
}

/// Where a read begins, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    place: DeviceSegment,
    offset: u32,
    len: usize,
}

#[derive(Default)]
struct Gathered {
    /// What earlier requests have read.
    read: BTreeMap<Span, Buffer>,
    /// What the next one reads.
    wanted: BTreeMap<Span, Arc<StoredSegment>>,
    wanted_bytes: usize,
}

/// What was read for several lookups, and what is to be read next. A request is bounded in bytes; what does not fit
/// waits for the one after.
#[derive(Default)]
pub struct Gathering(RefCell<Gathered>);

impl Gathering {
    /// Fills `out` if that was read; otherwise notes that it has to be.
    fn fill(
        &self,
        stored: &Arc<StoredSegment>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), LevelError> {
        let mut gathered = self.0.borrow_mut();
        let span = Span {
            place: stored.place(),
            offset,
            len: out.len(),
        };
        if let Some(bytes) = gathered.read.get(&span) {
            out.copy_from_slice(&bytes[..out.len()]);
            return Ok(());
        }
        let fits = gathered.wanted.is_empty() || gathered.wanted_bytes + out.len() <= REQUEST_BYTES;
        if fits && gathered.wanted.insert(span, Arc::clone(stored)).is_none() {
            gathered.wanted_bytes += out.len();
        }
        Err(LevelError::NotInMemory)
    }

    /// Reads all that is wanted, as one request. Returns whether anything was.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn read(&self) -> Result<bool, DeviceError> {
        let mut gathered = self.0.borrow_mut();
        let wanted = std::mem::take(&mut gathered.wanted);
        gathered.wanted_bytes = 0;
        let Some(first) = wanted.values().next() else {
            return Ok(false);
        };
        let mut buffers: Vec<_> = wanted
            .keys()
            .map(|span| Buffer::for_reading(span.len))
            .collect();
        let spans = wanted.keys().zip(&mut buffers);
        let reads = spans.map(|(span, buffer)| (span.place, span.offset, &mut buffer[..span.len]));
        let results = first.store().read_together(reads);
        results.into_iter().collect::<Result<(), _>>()?;
        gathered.read.extend(wanted.into_keys().zip(buffers));
        Ok(true)
    }
}
