//! One region's storage on one member: its manifest, its version, and every segment that it has.
//!
//! What goes on here, on the primary and on backups alike:
//!
//! 1. [`Storage::open`] replays the manifest into a version and claims every device segment that it
//!    names; [`Storage::create`] begins a region that has nothing.
//! 2. Who builds a segment takes a number ([`Storage::allocate_number`], on the primary) and a place
//!    ([`Storage::allocate`]). Until an edit names it the segment is *pending*: it is in memory
//!    only, and a crash forgets it.
//! 3. [`Storage::commit`] takes an edit into the queue, and [`Storage::step`] commits the queue in
//!    order (invariant I3), several edits at a time:
//!
//! ```text
//! writes of all segments that the edits name have ended
//!   → sync of the device → manifest append → sync → the version is current
//!   → the next append, or a witness → sync → what the edits removed can become free
//! ```
//!
//! 4. What an edit removed is free once nobody holds a version with it (I1): versions keep their
//!    segments through [`StoredSegment`]s, and the storage holds the version before the last append.
//!
//! An engine that ends (`Storage::end_queue`) gives up the edits that it has not begun to append, as a crash would.
//!
//! When the manifest has grown too long, a checkpoint of the current version replaces it between
//! two commits.
//!
//! Opening a device takes two steps, because no segment may be handed out before all are claimed:
//! open every region in the catalog, then [`Store::finish_recovery`], then create and allocate.

mod commit;
mod cut;
mod numbers;
mod replay;
mod standing;
mod together;
mod versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::replay::replay_edits;
use argosy_base::codec::Malformed;
use argosy_base::{DeviceSegment, Epoch, RegionId, Remedy, SegmentNumber, Standing};
use argosy_device::{DeviceError, Purpose, RegionEntry, Store};
use argosy_engine::catalog::{discard_cut, id_of_set_aside, standing, with_standing};
use argosy_engine::set_aside::SetAside;
use argosy_engine::{EditNotice, EngineError};

use crate::cache::NodeCache;
use crate::cut_segments::{self, CutSegments};
use crate::damage::Damages;
use crate::edit::{Edit, LogPoint};
use crate::manifest::{Manifest, ManifestError, ManifestRecord};
use crate::segments::StoredSegment;
use crate::settings::Settings;
use crate::shape::{self, Shape, ShapeError};
use crate::version::{EditError, Version};

use commit::{Queued, Work};
use numbers::Numbers;
use standing::CatalogStanding;
pub(crate) use together::Together;
use versions::Versions;

/// Most edits that wait to be committed; more are refused.
pub const QUEUE_MAX: usize = 64;

/// Why a region's storage did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The device failed or is full; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The manifest cannot be used; see the error's own remedy.
    #[error(transparent)]
    Manifest(ManifestError),
    /// The edit does not fit. Ask for a checkpoint.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The region was made otherwise than is asked for.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The bytes are no edit. Whoever sent them is at fault.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// [`QUEUE_MAX`] edits are waiting already. Step, then try again.
    #[error("too many edits are waiting to be committed")]
    QueueFull,
}

impl From<ManifestError> for StorageError {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::Device(error) => Self::Device(error),
            other => Self::Manifest(other),
        }
    }
}

impl From<StorageError> for EngineError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Device(error) => Self::Device(error),
            StorageError::QueueFull => Self::Busy(argosy_engine::BusyReason::CompactionDebt),
            StorageError::Manifest(ManifestError::Corrupt { .. }) => {
                Self::Closed("the manifest is damaged")
            }
            StorageError::Manifest(ManifestError::TooLong { .. }) => Self::Closed(
                "an edit does not fit a record of the manifest: use more regions, or shorter keys",
            ),
            StorageError::Manifest(_) => Self::Closed("the manifest cannot be read"),
            StorageError::Edit(_) | StorageError::Malformed(_) => {
                Self::Closed("an edit does not fit the version")
            }
            StorageError::Shape(ShapeError::OtherAddresses { .. }) => {
                Self::Closed("it has another address mode")
            }
            StorageError::Shape(ShapeError::OtherSize { .. }) => {
                Self::Closed("it has other segments or windows")
            }
        }
    }
}

impl StorageError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Device(error) => error.remedy(),
            Self::Manifest(error) => error.remedy(),
            Self::Shape(_) | Self::Edit(_) | Self::Malformed(_) => Remedy::Correct,
            Self::QueueFull => Remedy::Retry,
        }
    }
}

/// An edit that has become durable and current.
#[derive(Clone, Debug)]
pub struct Committed {
    /// What the other members are told.
    pub notice: EditNotice,
    /// The version after it.
    pub version: Arc<Version>,
}

/// One region's storage on one member. See the module documentation.
pub struct Storage {
    store: Arc<Store>,
    region: RegionId,
    settings: Settings,
    manifest: Manifest,
    standing: CatalogStanding,
    versions: Versions,
    /// Segments that no edit names yet.
    pending: BTreeMap<SegmentNumber, Arc<StoredSegment>>,
    queue: VecDeque<Queued>,
    work: Work,
    numbers: Numbers,
    damages: Arc<Damages>,
    cut: CutSegments,
}

impl Storage {
    /// Begins a region with the empty version. What the catalog knew of the region is given up:
    /// for a copy that is damaged. Blocks until it is durable.
    ///
    /// # Errors
    /// As the device's.
    pub fn create(
        store: &Arc<Store>,
        region: RegionId,
        settings: &Settings,
    ) -> Result<Self, StorageError> {
        let mut storage = Self::begin(store, region, settings)?;
        storage.settle()?;
        Ok(storage)
    }

    /// [`create`](Self::create), without waiting: the region is there once the storage [is idle](Self::is_idle), which
    /// [steps](Self::step) bring about.
    ///
    /// # Errors
    /// As the device's.
    pub fn begin(
        store: &Arc<Store>,
        region: RegionId,
        settings: &Settings,
    ) -> Result<Self, StorageError> {
        discard_cut(store, region)?;
        let version = Version::empty(region, settings.layout.addresses);
        let record = checkpoint_record(&version);
        let standing = match store.region(id_of_set_aside(region)) {
            Some(_) => Standing::BegunAnew,
            None => Standing::Ordinary,
        };
        let word = with_standing(Shape::of(settings).to_word(), standing);
        let manifest = Manifest::begin(store, region, segment_bytes(settings), word, &record)?;
        let mut storage = Self::new(store, settings, manifest, version);
        storage.work = Work::Checkpointing;
        storage.standing = CatalogStanding::of(standing);
        Ok(storage)
    }

    /// Opens a region that the catalog knows. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Manifest`] when the manifest is damaged; the device's;
    /// [`StorageError::Shape`].
    pub fn open(
        store: &Arc<Store>,
        entry: &RegionEntry,
        settings: &Settings,
    ) -> Result<Self, StorageError> {
        shape::check(entry, settings)?;
        let standing = standing(entry.words[1]).unwrap_or_default();
        let (mut manifest, records) = Manifest::open(store, entry, segment_bytes(settings))?;
        manifest.set_shape(with_standing(Shape::of(settings).to_word(), standing));
        let empty = Version::empty(entry.region, settings.layout.addresses);
        let version = replay_edits(store, empty, &manifest, &records)?;
        if !manifest.is_witnessed() && !settings.mutants.forget_witness() {
            // What the last edit took away can be given away from now on.
            manifest.begin_witness();
            manifest.wait()?;
        }
        // The last append may have been read from the device's cache, and edits and segments will
        // depend on it: it is durable, because the store synced the device when it was opened.
        let mut storage = Self::new(store, settings, manifest, version);
        storage.standing = CatalogStanding::of(standing);
        Ok(storage)
    }

    fn new(store: &Arc<Store>, settings: &Settings, manifest: Manifest, version: Version) -> Self {
        let mut manifest = manifest;
        if settings.mutants.commit_before_durable() {
            manifest.plant_skip_sync();
        }
        Self {
            store: Arc::clone(store),
            region: version.region(),
            settings: settings.clone(),
            manifest,
            standing: CatalogStanding::of(Standing::Ordinary),
            numbers: Numbers::from(version.mark()),
            damages: Arc::default(),
            cut: CutSegments::of(store, version.region()),
            versions: Versions::new(version),
            pending: BTreeMap::new(),
            queue: VecDeque::new(),
            work: Work::Nothing,
        }
    }

    /// Has `cache` give way to what the versions take of memory.
    pub(crate) fn charge_to(&mut self, cache: &Arc<NodeCache>) {
        self.versions.charge_to(cache);
    }

    /// The device beneath.
    #[must_use]
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.region
    }

    /// What the copy is certain to hold, as its entry in the catalog says. Never [`Standing::Whole`], of which only
    /// memory can tell.
    pub(crate) const fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// Says that the copy holds everything that was acknowledged. Later steps make that durable.
    pub(crate) fn become_ordinary(&mut self) {
        self.standing.change_to(Standing::Ordinary);
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The catalog may name other cut segments than before.
    pub(crate) fn note_cut_segments(&mut self) {
        self.cut = CutSegments::of(&self.store, self.region);
    }

    /// Those of the region.
    pub(crate) const fn kept_cut(&mut self) -> &mut CutSegments {
        &mut self.cut
    }

    /// What of the region was found damaged here.
    #[must_use]
    pub const fn damages(&self) -> &Arc<Damages> {
        &self.damages
    }

    /// Sorted runs of L1, without those that merges pass over.
    pub(crate) fn l1_runs(&self) -> usize {
        self.damages.l1_runs(self.head())
    }

    /// A number for a run of L1 that is newer than all that are there.
    pub(crate) fn next_run(&self) -> u64 {
        let level = self.head().level(1);
        let runs = level.map_or(&[][..], |level| &level.runs);
        runs.iter().map(|run| run.id.0 + 1).max().unwrap_or(1)
    }

    /// The version after the last durable edit.
    #[must_use]
    pub const fn current(&self) -> &Arc<Version> {
        self.versions.current()
    }

    /// The version after the last edit that was handed to [`commit`](Self::commit): the one that
    /// the next edit changes.
    #[must_use]
    pub const fn head(&self) -> &Arc<Version> {
        self.versions.head()
    }

    /// Whether less than half of the queue of edits is taken.
    #[must_use]
    pub(crate) fn takes_edits(&self) -> bool {
        self.queue.len() < QUEUE_MAX / 2
    }

    /// An empty edit that would come next.
    #[must_use]
    pub fn next_edit(&self, epoch: Epoch) -> Edit {
        Edit::new(self.head().seq().next(), epoch)
    }

    /// The log points of `version`, for recovery.
    pub(crate) fn log_points(&self, version: &Version) -> Vec<LogPoint> {
        match self.settings.mutants.forget_points() {
            true => Vec::new(),
            false => version.log_points().collect(),
        }
    }

    // --- Numbers ---

    /// A segment number that was never used, if one is left below the mark that every member has
    /// recorded. `None`: an edit that raises the mark ([`raise_mark`](Self::raise_mark)) has to be
    /// committed first.
    pub fn allocate_number(&mut self) -> Option<SegmentNumber> {
        self.numbers.allocate()
    }

    /// Gives out no number below the current mark any more: for a storage that another member's
    /// edits have filled, and that is to make edits of its own.
    pub(crate) fn restart_numbers(&mut self) {
        let mark = self.head().mark();
        self.numbers.restart(mark);
    }

    /// The first number of the range from which the member has numbered for itself, if it ever has.
    pub(crate) const fn own_range(&self) -> Option<SegmentNumber> {
        self.numbers.range()
    }

    /// Gives out numbers from the range that begins at `first` from now on, which belongs to this
    /// member alone: as many as its version has reserved.
    pub(crate) fn number_for_itself(&mut self, first: SegmentNumber) {
        self.numbers = Numbers::of_own(first, self.head().own_mark());
    }

    /// Has `edit` reserve one more block of the member's own numbers.
    pub(crate) fn raise_own_mark(&self, edit: &mut Edit) {
        let mark =
            self.numbers.next().max(self.head().own_mark()).0 + self.settings.levels.number_block;
        edit.numbers.own_mark = Some(SegmentNumber(mark));
    }

    /// Behind the last number of the member's own range that `edit` adds, if it adds one: another member
    /// has it from this one's copy, which may have been another copy.
    pub(crate) fn behind_own(&self, edit: &Edit) -> Option<SegmentNumber> {
        let own = self.numbers.own()?;
        let added = edit.added.iter().map(|(_, _, segment)| segment.number);
        let last = added.filter(|number| number.shares_range(own)).max()?;
        Some(last.next())
    }

    /// Gives out no own number below `number` any more.
    pub(crate) fn skip_own_numbers(&mut self, number: SegmentNumber) {
        self.numbers.skip(number);
    }

    /// The member's own numbers below `mark` are recorded as in use.
    pub(crate) fn own_mark_recorded(&mut self, mark: SegmentNumber) {
        self.numbers.recorded(mark);
    }

    /// How many numbers are left to give out.
    #[must_use]
    pub const fn numbers_left(&self) -> u64 {
        self.numbers.left()
    }

    /// Has `edit` reserve one more block of numbers.
    pub fn raise_mark(&self, edit: &mut Edit) {
        let mark = self.head().mark().0 + self.settings.levels.number_block;
        edit.numbers.mark = Some(SegmentNumber(mark));
    }

    /// Every member has recorded that numbers below `mark` may be in use. Without other members:
    /// call it with each committed version's mark.
    pub fn mark_recorded(&mut self, mark: SegmentNumber) {
        assert!(
            mark <= self.current().mark(),
            "this member records it first"
        );
        self.numbers.recorded(mark);
    }

    // --- Segments ---

    /// A place on the device for segment `number`, which is pending from now on. A segment of that
    /// number that was pending before is given up.
    ///
    /// # Errors
    /// [`DeviceError::Full`] when there is no room for `purpose`.
    pub fn allocate(
        &mut self,
        number: SegmentNumber,
        purpose: Purpose,
    ) -> Result<Arc<StoredSegment>, DeviceError> {
        let handle = self.store.allocate(purpose)?;
        Ok(self.adopt(number, handle))
    }

    fn adopt(
        &mut self,
        number: SegmentNumber,
        handle: argosy_device::SegmentHandle,
    ) -> Arc<StoredSegment> {
        let stored = StoredSegment::new(number, Arc::clone(&self.store), handle);
        self.pending.insert(number, Arc::clone(&stored));
        stored
    }

    /// Segment `number`, if it belongs to the head version or is pending.
    #[must_use]
    pub fn segment(&self, number: SegmentNumber) -> Option<&Arc<StoredSegment>> {
        let pending = self.pending.get(&number);
        pending.or_else(|| self.head().stored(number))
    }

    /// Pending segments.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<StoredSegment>> {
        self.pending.values()
    }

    /// Gives a pending segment up. Its number is not used again.
    pub fn abandon(&mut self, number: SegmentNumber) {
        self.pending.remove(&number);
    }

    /// Gives all pending segments up.
    pub(crate) fn abandon_all(&mut self) {
        self.pending.clear();
    }

    /// Device segments that this region has: its manifest's, its version's, pending ones, cut segments. For
    /// tests and tools that look for leaks.
    #[must_use]
    pub fn device_segments(&self) -> usize {
        let versions = self.versions.durable().chain([self.head()]);
        let named: BTreeMap<_, _> = versions
            .flat_map(|version| version.table().iter())
            .map(|(number, stored)| (number, stored.place()))
            .collect();
        let places: BTreeSet<_> = named.values().copied().collect();
        let cut = cut_segments::places(&self.store, self.region);
        let cut = cut.filter(|place| !places.contains(place));
        self.manifest.chain().count() + named.len() + self.pending.len() + cut.count()
    }
}

impl Storage {
    /// The versions that an opening may find: any edit of the queue may be the last that reached the device, and of the
    /// last append none may count.
    fn perhaps_durable(&self) -> impl Iterator<Item = &Arc<Version>> {
        let queued = self.queue.iter().map(|queued| &queued.version);
        queued.chain(self.versions.durable())
    }

    /// Closes the storage of a damaged copy and returns what is kept of it; `None` if the catalog does not name the
    /// region.
    pub(crate) fn set_aside(self) -> Option<SetAside> {
        let (store, region) = (Arc::clone(&self.store), self.region);
        let stored = self
            .perhaps_durable()
            .flat_map(|version| version.table().values());
        let places: BTreeSet<DeviceSegment> = stored.map(|stored| stored.place()).collect();
        drop(self);
        SetAside::of_kept(&store, region, places)
    }
}

/// What the region consists of stays on the device when its storage ends: only an edit frees a
/// segment. A copy that could not be opened claims nothing: see [`set_aside`](crate::set_aside).
impl Drop for Storage {
    fn drop(&mut self) {
        if self.store.is_recovering() {
            return;
        }
        for version in self.perhaps_durable() {
            version.table().values().for_each(|stored| stored.keep());
        }
    }
}

fn segment_bytes(settings: &Settings) -> u32 {
    u32::try_from(settings.layout.segment_bytes).expect("settings are validated")
}

/// What a manifest begins with to stand for `version`.
fn checkpoint_record(version: &Version) -> ManifestRecord {
    let mut edit = version.checkpoint();
    edit.logs.points = version.log_points().collect();
    let places = version.table().values();
    ManifestRecord {
        edit: edit.encode(),
        places: places
            .map(|stored| (stored.number(), stored.place()))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
