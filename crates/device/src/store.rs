//! What lies on a device: superblocks and catalog in device segment 0, and everybody's segments,
//! counted.
//!
//! How a region finds and keeps its segments:
//!
//! 1. [`Store::open`] reads superblock and catalog, and makes the incarnation durable.
//! 2. For each of [`Store::regions`], the region reads its manifest chain and calls
//!    [`Store::claim`] for every device segment that the manifest names.
//! 3. [`Store::finish_recovery`]: what nobody claimed is free, and [`Store::allocate`] works. Before, somebody
//!    claims the known segments of a region that could not be read ([`claim_unclaimed`](Store::claim_unclaimed)). Its
//!    unknown segments are protected by a [quarantine](Store::quarantine).
//! 4. A [`SegmentHandle`] is one reference to a segment. When the last one is dropped the segment is free; its space
//!    goes back to the file system later ([`background`]). The catalog holds references of its own to the manifest
//!    chains that it names: an owner may drop its handles of the old chain as soon as the catalog has changed.
//! 5. A write that is under way is a reference too: a segment that is dropped in the middle of it
//!    becomes free when it has ended.
//!
//! An allocation is in memory only: what no durable manifest names is free after a restart. So a handle of a segment
//! that a durable manifest names is dropped only after the edit that removes it is durable (I1, I3).

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{DeviceSegment, Incarnation, RegionId, ServerId};

use crate::allocator::{Allocator, Purpose};
use crate::buffer::Buffer;
use crate::catalog::{RegionChange, RegionEntry};
use crate::io::{Device, DeviceError, Io, Read, Ticket, Waker};
use crate::opening::{self, HeadBlock, Opened};
use crate::superblock::Superblock;
use crate::switch::CatalogSwitch;

pub mod background;
mod change;
mod dump;

pub use change::CatalogChange;
pub use dump::Dump;

/// What a new store is told about itself.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Random; names this device in the region map.
    pub device_id: u128,
    /// Of the cluster that the server belongs to.
    pub cluster_id: u128,
    /// The server.
    pub server: ServerId,
    /// The program and its version; at most 64 bytes are kept.
    pub created_by: String,
}

/// Numbers that a user may set.
#[derive(Clone, Debug, Default)]
pub struct StoreSettings {
    /// Segments that writes leave free, so that deletes, compactions and manifests can empty a
    /// device that is full. Who may take how many of them: [`Purpose`].
    pub reserve_segments: u32,
}

/// How much room a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Segments that nobody uses, the reserve included.
    pub free: u32,
    /// How many of them are kept from writers.
    pub reserve: u32,
}

impl Room {
    /// Whether there is none for new data.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.free <= self.reserve
    }

    /// Segments that may be taken for `purpose`.
    #[must_use]
    pub const fn for_purpose(&self, purpose: Purpose) -> u32 {
        self.free.saturating_sub(purpose.keeps(self.reserve))
    }
}

/// See the module documentation. All methods may be called from any thread.
pub struct Store {
    device: Arc<dyn Device>,
    superblock: Superblock,
    findings: Vec<String>,
    // Locked in this order where more than one is held: catalog, in_flight, allocator.
    catalog: Mutex<CatalogSwitch>,
    in_flight: Mutex<Vec<(Ticket, DeviceSegment)>>,
    allocator: Mutex<Allocator>,
    quiet: Mutex<background::Quiet>,
}

impl Store {
    /// Makes a store of a device that holds none. Blocks.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] where the device holds a store, of whatever version, or anything else, or is too
    /// small; or the device's.
    pub fn format(device: &dyn Device, options: &FormatOptions) -> Result<(), DeviceError> {
        opening::format(device, options)
    }

    /// Whether the device holds a store, of whatever version. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn is_formatted(device: &dyn Device) -> Result<bool, DeviceError> {
        opening::is_formatted(device)
    }

    /// Opens the store under a new, durable incarnation, and repairs what a crash or one damaged
    /// copy left in device segment 0. Blocks.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] where the device holds no store, or one that this program does not
    /// understand; [`DeviceError::Corrupt`] where no copy is good; or the device's.
    pub fn open(
        device: Arc<dyn Device>,
        settings: &StoreSettings,
    ) -> Result<Arc<Self>, DeviceError> {
        let opened = opening::open(&*device)?;
        Ok(Self::of(device, opened, settings))
    }

    /// Opens the store to be looked at: nothing is written or repaired, and this counts as no
    /// opening. Recovery never ends, so nothing can be allocated either. Blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(device: Arc<dyn Device>) -> Result<Arc<Self>, DeviceError> {
        let opened = opening::inspect(&*device)?;
        Ok(Self::of(device, opened, &StoreSettings::default()))
    }

    fn of(device: Arc<dyn Device>, opened: Opened, settings: &StoreSettings) -> Arc<Self> {
        let segments = opened.superblock.segments;
        let mut allocator = Allocator::recovering(segments, settings.reserve_segments);
        let manifests = opened.catalog.regions.values().flat_map(|e| &e.manifest);
        for segment in manifests {
            assert!(allocator.claim(*segment), "opening has checked the catalog");
        }
        Arc::new(Self {
            device,
            superblock: opened.superblock,
            findings: opened.findings,
            catalog: Mutex::new(CatalogSwitch::new(opened.catalog)),
            in_flight: Mutex::default(),
            allocator: Mutex::new(allocator),
            quiet: Mutex::default(),
        })
    }

    /// What stands in device segment 0: each copy of the superblock and of the catalog, good or
    /// not. Changes nothing. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn survey(device: &dyn Device) -> Result<Vec<HeadBlock>, DeviceError> {
        opening::survey(device)
    }

    /// What the store on `device` says of itself, without opening it. Blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn inspect(device: &dyn Device) -> Result<Dump, DeviceError> {
        let opened = opening::inspect(device)?;
        Ok(Dump {
            superblock: opened.superblock,
            generation: opened.catalog.generation,
            regions: opened.catalog.regions.into_values().collect(),
            used: None,
            findings: opened.findings,
        })
    }

    /// What this store says of itself, for people.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let catalog = self.lock_catalog();
        Dump {
            superblock: self.superblock.clone(),
            generation: catalog.wanted().generation,
            regions: catalog.wanted().regions.values().cloned().collect(),
            used: Some(self.used()),
            findings: self.findings.clone(),
        }
    }

    /// The number of this opening; durable before anyone sees it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.superblock.incarnation
    }

    /// What the device is.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// What opening found damaged or cut short, and repaired: a line each, for the log.
    #[must_use]
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The device beneath.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whom to wake when a request has ended.
    pub fn set_waker(&self, waker: Waker) {
        self.device.set_waker(waker);
    }

    // --- The catalog ---

    /// All regions, by rising id; as of the last change, durable or not.
    #[must_use]
    pub fn regions(&self) -> Vec<RegionEntry> {
        let catalog = self.lock_catalog();
        catalog.wanted().regions.values().cloned().collect()
    }

    /// How often the catalog has changed, with the changes that are under way. Never falls.
    #[must_use]
    pub fn catalog_generation(&self) -> u64 {
        self.lock_catalog().generation()
    }

    /// One region, as of the last change, durable or not.
    #[must_use]
    pub fn region(&self, region: RegionId) -> Option<RegionEntry> {
        self.lock_catalog().wanted().regions.get(&region).cloned()
    }

    /// Begins to make `entry` durable, in place of the region's earlier entry. The segments of its
    /// manifest are in use, and what was written to them is durable already: so an owner may
    /// switch to a new chain. Changes become durable in the order in which they were begun.
    ///
    /// # Panics
    /// When the manifest names a segment that is not in use.
    #[must_use]
    pub fn set_region(self: &Arc<Self>, entry: RegionEntry) -> CatalogChange {
        self.change_regions(vec![RegionChange::Set(entry)])
    }

    /// Begins to remove `region`. Its segments are its owner's to drop, once this has ended.
    #[must_use]
    pub fn remove_region(self: &Arc<Self>, region: RegionId) -> CatalogChange {
        self.change_regions(vec![RegionChange::Remove(region)])
    }

    /// Begins to change the entries of several regions, all of them or none.
    ///
    /// # Panics
    /// When a manifest names a segment that is not in use.
    #[must_use]
    pub fn change_regions(self: &Arc<Self>, changes: Vec<RegionChange>) -> CatalogChange {
        let new = changes.iter().filter_map(RegionChange::entry);
        let manifests: Vec<_> = new.flat_map(|entry| entry.manifest.clone()).collect();
        let number = {
            let mut catalog = self.lock_catalog();
            let mut allocator = self.lock_allocator();
            manifests.iter().for_each(|s| allocator.retain(*s));
            drop(allocator);
            catalog.change(changes)
        };
        if number.is_some() {
            self.advance_catalog();
        } else {
            manifests.iter().for_each(|s| self.release(*s));
        }
        CatalogChange {
            store: self.clone(),
            number,
        }
    }

    /// Blocks until every change that was asked for has ended, also those that nobody polls any more. For closing:
    /// otherwise the second copy of the catalog may stay behind the first.
    ///
    /// # Errors
    /// As [`CatalogChange::wait`].
    pub fn finish_changes(self: &Arc<Self>) -> Result<(), DeviceError> {
        let last = self.lock_catalog().last();
        let change = CatalogChange {
            store: self.clone(),
            number: Some(last),
        };
        change.wait()
    }

    /// Lets changes of the catalog go on.
    fn advance_catalog(&self) {
        let left = self.lock_catalog().advance(&*self.device);
        left.into_iter().for_each(|segment| self.release(segment));
    }

    // --- Segments ---

    /// One more reference to a segment that a manifest names. During recovery only.
    ///
    /// # Errors
    /// [`DeviceError::Corrupt`] where the device has no such segment for anyone.
    pub fn claim(self: &Arc<Self>, segment: DeviceSegment) -> Result<SegmentHandle, DeviceError> {
        if self.lock_allocator().claim(segment) {
            Ok(self.handle(segment))
        } else {
            Err(DeviceError::Corrupt {
                segment,
                offset: 0,
                what: "a manifest names this segment, which no region can have",
            })
        }
    }

    /// [`claim`](Self::claim), unless somebody has claimed it before, or the device has no such segment.
    #[must_use]
    pub fn claim_unclaimed(self: &Arc<Self>, segment: DeviceSegment) -> Option<SegmentHandle> {
        let mut allocator = self.lock_allocator();
        let free = segment.0 < allocator.total() && allocator.references(segment) == 0;
        (free && allocator.claim(segment)).then(|| self.handle(segment))
    }

    /// The reference that an owner has left behind: see [`SegmentHandle::keep`]. It is the caller's now.
    ///
    /// # Panics
    /// When nobody refers to the segment.
    #[must_use]
    pub fn take_kept(self: &Arc<Self>, segment: DeviceSegment) -> SegmentHandle {
        let references = self.lock_allocator().references(segment);
        assert!(references > 0, "{segment} was kept");
        self.handle(segment)
    }

    /// Whether recovery has yet to end.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.lock_allocator().is_recovering()
    }

    /// Ends recovery: what nobody has claimed is free.
    pub fn finish_recovery(&self) {
        self.lock_allocator().finish_recovery();
        self.find_freed();
    }

    /// Allocates a free segment. It reads as zeros if the file system or device supports discarding blocks.
    ///
    /// # Errors
    /// [`DeviceError::Full`] where there is none that may be used for `purpose`.
    pub fn allocate(self: &Arc<Self>, purpose: Purpose) -> Result<SegmentHandle, DeviceError> {
        self.release_written();
        let beneath = self.segments_beneath();
        loop {
            let mut allocator = self.lock_allocator();
            if let Some(segment) = allocator.allocate(purpose, beneath) {
                return Ok(self.handle(segment));
            }
            let lacks_free = allocator.lacks_free();
            let full = DeviceError::Full {
                used: allocator.used(),
                total: allocator.total(),
            };
            drop(allocator);
            if !lacks_free || !self.give_back_one(true) {
                return Err(full);
            }
        }
    }

    /// The write or sync that failed and ended all writing on the device.
    #[must_use]
    pub fn failure(&self) -> Option<DeviceError> {
        self.device.failure()
    }

    /// How much room there is: on the device, or on the file system beneath where that is less.
    #[must_use]
    pub fn room(&self) -> Room {
        self.release_written();
        let beneath = self.segments_beneath();
        let allocator = self.lock_allocator();
        Room {
            free: allocator.free().min(beneath),
            reserve: allocator.reserve(),
        }
    }

    /// Segments in use, device segment 0 and those of writes under way included.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.release_written();
        self.lock_allocator().used()
    }

    /// Segments of the device.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.superblock.segments
    }

    /// References to `segment`: handles, writes under way, the catalog's. For tests and tools.
    #[must_use]
    pub fn references(&self, segment: DeviceSegment) -> u32 {
        self.lock_allocator().references(segment)
    }

    fn handle(self: &Arc<Self>, segment: DeviceSegment) -> SegmentHandle {
        SegmentHandle {
            store: self.clone(),
            segment,
            kept: false,
        }
    }

    /// One reference less; the last one frees the segment.
    fn release(&self, segment: DeviceSegment) {
        self.lock_allocator().release(segment);
    }

    // --- Bytes ---

    /// Reads whole blocks at `offset` of `segment`. Blocks the calling thread.
    ///
    /// # Errors
    /// The device's. What was read is not checked.
    ///
    /// # Panics
    /// When the range is not whole blocks inside a segment of this device; so do the others.
    pub fn read(
        &self,
        segment: DeviceSegment,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        let at = self.position(segment, offset, out.len());
        self.device.read(at, out)
    }

    /// Reads whole blocks of several segments, each at an offset, in one submission where the device is
    /// able to. Tells of each how it ended.
    pub fn read_together<'a>(
        &self,
        reads: impl Iterator<Item = (DeviceSegment, u32, &'a mut [u8])>,
    ) -> Vec<Result<(), DeviceError>> {
        let mut reads: Vec<_> = reads
            .map(|(segment, at, out)| Read::new(self.position(segment, at, out.len()), out))
            .collect();
        self.device.read_together(&mut reads);
        reads.into_iter().map(|read| read.result).collect()
    }

    /// Bytes of `segment`, from its beginning, that may be other than zero: whole blocks. Behind them nothing was
    /// written since its space was last given back. All of the segment where the file system does not tell.
    #[must_use]
    pub fn written_up_to(&self, segment: DeviceSegment) -> u32 {
        let start = self.position(segment, 0, SEGMENT_SIZE);
        let end = self
            .device
            .written_up_to(start..start + SEGMENT_SIZE as u64);
        let bytes = (end - start).next_multiple_of(BLOCK_SIZE as u64);
        u32::try_from(bytes).expect("a segment's")
    }

    /// Begins to write `range` of `data` (whole blocks) at `offset` of `segment`, which is in use
    /// and stays so until the write has ended, whatever becomes of its handles.
    #[must_use]
    pub fn submit_write(
        &self,
        segment: DeviceSegment,
        offset: u32,
        data: Arc<Buffer>,
        range: Range<usize>,
    ) -> Ticket {
        let at = self.position(segment, offset, range.len());
        self.release_written();
        self.lock_allocator().retain(segment);
        let ticket = self.device.submit(Io::Write { at, data, range });
        self.lock_in_flight().push((ticket.clone(), segment));
        ticket
    }

    /// Begins to make durable every write whose ticket has ended by now.
    #[must_use]
    pub fn sync(&self) -> Ticket {
        self.device.submit(Io::Sync)
    }

    /// Blocks until `ticket` has ended. For opening, closing and tools.
    ///
    /// # Errors
    /// The request's.
    pub fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        self.device.wait(ticket)
    }

    pub(crate) fn position(&self, segment: DeviceSegment, offset: u32, len: usize) -> u64 {
        assert!(segment.0 < self.total(), "{segment} is not on this device");
        assert!(
            offset as usize + len <= SEGMENT_SIZE,
            "bytes {offset}+{len} are outside a segment"
        );
        segment.start() + u64::from(offset)
    }

    /// Drops the references of writes that have ended.
    fn release_written(&self) {
        let mut written = Vec::new();
        self.lock_in_flight().retain(|(ticket, segment)| {
            let ended = ticket.poll().is_some();
            if ended {
                written.push(*segment);
            }
            !ended
        });
        written
            .into_iter()
            .for_each(|segment| self.release(segment));
    }

    fn lock_catalog(&self) -> MutexGuard<'_, CatalogSwitch> {
        self.catalog.lock().expect("no holder of the lock panics")
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, Vec<(Ticket, DeviceSegment)>> {
        self.in_flight.lock().expect("no holder of the lock panics")
    }

    fn lock_allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().expect("no holder of the lock panics")
    }
}

/// One reference to a device segment: it stays in use while this exists. A clone is another one.
pub struct SegmentHandle {
    store: Arc<Store>,
    segment: DeviceSegment,
    kept: bool,
}

impl SegmentHandle {
    /// The segment.
    #[must_use]
    pub const fn segment(&self) -> DeviceSegment {
        self.segment
    }

    /// Gives the handle up and leaves its reference behind: for an owner that ends while what is
    /// stored stays, to be claimed when the store is opened the next time.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Clone for SegmentHandle {
    fn clone(&self) -> Self {
        self.store.lock_allocator().retain(self.segment);
        self.store.handle(self.segment)
    }
}

impl Drop for SegmentHandle {
    fn drop(&mut self) {
        if !self.kept {
            self.store.release(self.segment);
        }
    }
}

impl fmt::Debug for SegmentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentHandle({})", self.segment)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
