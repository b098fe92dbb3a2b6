//! Where a primary has what it sends, and rewriting what it sends to where this member has it: what
//! a replica does in [`AddressMode::Rewrite`].
//!
//! Two maps lead from the primary's places to this member's:
//!
//! - The *log map* has, for each segment of the primary's large and medium log, its place there. The
//!   primary tells it as a whole when it begins to speak to this member, and then ahead of each edit that
//!   adds a segment; a medium segment itself says it, too. An entry stays until the edit that removes the
//!   segment is submitted here, and all of them until the windows are taken back
//!   ([`Replica::detach`](super::Replica::detach)): whoever speaks next tells anew.
//! - The *index map* has, for each level segment that arrived ahead of its edit, its place there. It
//!   is the [`Arrival`]s themselves: an entry goes when the edit is submitted or the segment given
//!   up, when the primary says that something else lies there, and when the windows are taken back.
//!
//! A shipped segment is taken in three steps: its bytes are checked
//! ([`Shipment::check`](argosy_engine::shipment::Shipment::check)), its pointers rewritten in these private bytes
//! ([`Replica::rewrite`](super::Replica::rewrite)), and they are written
//! ([`Replica::put`](super::Replica::put)). A pointer that the maps do not know is no mistake of anybody's: this member
//! may be about to learn of that log segment by a checkpoint. The segment is then not stored, and is
//! fetched when its edit is examined.
//!
//! A segment that is *fetched* comes with segment numbers in its pointers; no map is needed.
//!
//! Invariant: the bytes of an arrival hold this member's places as they were when it was rewritten.
//! An arrival counts as held only while all of these are still the places of their numbers: a log
//! segment that a checkpoint was to bring may be given up and come to lie elsewhere. Nor does it count where it
//! leads to a level segment that its edit does not bring: the one that the primary had in that place before.
//! What of the version counts as held says [`held`](super::held).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{AddressMode, DeviceSegment, Epoch, KeyRange, SegmentNumber};
use argosy_device::{Buffer, Purpose};
use argosy_engine::CopyError;
pub use argosy_engine::shipment::{Rewritten, Shipment};

use super::ReplicaError;
use super::edits::Expected;
use super::fill::Fill;
use super::held::covers;
use super::logs::Logs;
use crate::addresses::{Addressing, DEAD, Translation, as_gone, as_high_bits, level_error};
use crate::edit::{Edit, LevelSegment};
use crate::level::pointers::{
    PointerKind, VisitError, Visited, for_each_pointer_mut, lacks_counted,
};
use crate::level::verify::verify_index_segment;
use crate::level::{SegmentReader, form_and_refs};
use crate::names::logs::LOGS;
use crate::names::{Form, LevelError, SegmentName};
use crate::segments::StoredSegment;
use crate::storage::Storage;
use crate::version::Version;

/// Most entries of the log map: a large log of 2 TiB. What is not in it is fetched.
const LOG_MAP_MAX: usize = 1 << 20;
/// The planted mistake `skip_rewrite`: one pointer in so many stays as it came.
const SPARED: u64 = 16;

/// A level segment that arrived ahead of its edit.
pub(super) struct Arrival {
    pub(super) epoch: Epoch,
    pub(super) len: u32,
    pub(super) checksum: u32,
    pub(super) stored: Arc<StoredSegment>,
    /// The end of its write has been told.
    pub(super) told: bool,
    /// A checkpoint decides: if it does not name the segment, it goes.
    pub(super) stale: bool,
    /// It was asked for by its number, so what it leads to is what the segment of that number leads to.
    pub(super) fetched: bool,
    /// The keys whose pointers count, where pointers hold places and others were forgotten.
    pub(super) counted: Option<Vec<KeyRange>>,
    /// Where the primary has it, if the primary shipped it.
    pub(super) theirs: Option<DeviceSegment>,
    /// This member's places of the segments that its pointers lead to; 0 of those that were not here.
    pub(super) uses: Vec<(SegmentNumber, DeviceSegment)>,
}

/// Level segments on their way into the version.
#[derive(Default)]
pub(super) struct Incoming {
    /// Level segments that no edit has named yet.
    pub(super) arrivals: BTreeMap<SegmentNumber, Arrival>,
    /// What the parts that [`Replica::missing`](super::Replica::missing) named belong to.
    pub(super) expected: BTreeMap<SegmentNumber, Expected>,
    /// Where pointers hold places: the keys whose pointers count, of each level segment that the edit adds
    /// which was examined last.
    counted: BTreeMap<SegmentNumber, Vec<KeyRange>>,
    /// The level segments that the edit which was examined last adds.
    pub(super) named: BTreeSet<SegmentNumber>,
    /// Where the primary has the segments of its large and medium log, where pointers hold places.
    pub(super) log_map: LogMap,
    /// What was rewritten and not yet told.
    pub(super) rewritten: Rewritten,
}

impl Incoming {
    /// See [`Replica::learn_places`](super::Replica::learn_places).
    pub(super) fn learn_places(&mut self, places: &[(SegmentNumber, DeviceSegment)]) {
        for (number, place) in places {
            if self.log_map.len() < LOG_MAP_MAX || self.log_map.contains_key(number) {
                self.log_map.insert(*number, *place);
            }
        }
    }

    /// Whoever speaks to this member next tells its places anew: it may be another process, or
    /// another member.
    pub(super) fn forget_places(&mut self) {
        self.log_map.clear();
        self.arrivals
            .values_mut()
            .for_each(|arrival| arrival.theirs = None);
    }

    /// The index map: level segments that arrived ahead of their edit, by the sender's place.
    pub(super) fn index_map(&self) -> impl Iterator<Item = (DeviceSegment, SegmentNumber)> + '_ {
        let arrivals = self.arrivals.iter();
        arrivals.filter_map(|(number, arrival)| Some((arrival.theirs?, *number)))
    }

    /// Forgets log segments that are in no version any more. Those that come behind the last of the
    /// head are still to be added.
    pub(super) fn prune_log_map(&mut self, head: &Version) {
        let logs = LOGS.iter().flat_map(|log| head.log(*log));
        let medium = head.medium_log();
        let last = logs.map(|entry| entry.segment.number).max();
        let last = last.unwrap_or_default();
        self.log_map.retain(|number, _| {
            *number > last || head.log_segment(*number).is_some() || medium.contains_key(number)
        });
    }

    /// See [`Replica::rewrite`](super::Replica::rewrite).
    pub(super) fn rewrite(
        &mut self,
        shipment: &mut Shipment,
        storage: &Storage,
    ) -> Result<(), ReplicaError> {
        if !storage.settings().layout.addresses.hold_places() {
            return Ok(());
        }
        // What the primary had there before, it has given up.
        for arrival in self.arrivals.values_mut() {
            arrival.theirs = arrival.theirs.filter(|theirs| *theirs != shipment.place);
        }
        let name = name_of(storage, shipment);
        let found = form_and_refs(name, &shipment.bytes).map_err(|error| damaged(name, &error))?;
        let (form, refs) = found;
        if form.is_index() {
            return self.translate(shipment, Vec::new(), self.index_pairs(), storage);
        }
        let mut places = Vec::with_capacity(refs.len());
        for (number, _) in refs {
            let arrival = self.arrivals.get(&number);
            let theirs = arrival.and_then(|arrival| arrival.theirs);
            let theirs = theirs.or_else(|| self.log_map.get(&number).copied());
            let stored = storage.segment(number).map(|stored| stored.place());
            let (Some(theirs), Some(own)) = (theirs, stored) else {
                return Err(CopyError::Unplaced {
                    number: shipment.number,
                    to: number,
                }
                .into());
            };
            places.push((as_high_bits(theirs), as_high_bits(own)));
            shipment.uses.push((number, own));
        }
        if places.is_empty() {
            return Ok(());
        }
        self.translate(shipment, places, Vec::new(), storage)
    }

    /// The index map, as high bits of pointers: the sender's, and this member's; with the segments'
    /// numbers.
    fn index_pairs(&self) -> Vec<NodePair> {
        let arrivals = self.arrivals.iter();
        let pair = |entry: (&SegmentNumber, &Arrival)| {
            entry.1.theirs.map(|theirs| NodePair {
                theirs: as_high_bits(theirs),
                own: as_high_bits(entry.1.stored.place()),
                stored: (*entry.0, entry.1.stored.place()),
            })
        };
        arrivals.filter_map(pair).collect()
    }

    /// Rewrites the pointers of a fetched segment from numbers to this member's places. Log segments
    /// that are still to be fetched are given theirs. All of its bytes are checked.
    pub(super) fn rewrite_fetched(
        &mut self,
        shipment: &mut Shipment,
        storage: &mut Storage,
        logs: &mut Logs,
    ) -> Result<(), ReplicaError> {
        if !storage.settings().layout.addresses.hold_places() {
            return Ok(());
        }
        let name = name_of(storage, shipment);
        let found = form_and_refs(name, &shipment.bytes).map_err(|error| damaged(name, &error))?;
        let counted = self.counted.get(&name.number);
        let counted = counted.filter(|_| !found.0.is_index() && found.0 != Form::Medium);
        if let Some(counted) = counted {
            let lacks = lacks_counted(name, &shipment.bytes, counted, DEAD);
            if lacks.map_err(|error| damaged(name, &level_error(name, error)))? {
                // Its sender has a newer version, and lacks what it points to.
                let to = u32::try_from(shipment.bytes.len()).unwrap_or(u32::MAX);
                return Err(CopyError::Gone {
                    number: name.number,
                    to,
                }
                .into());
            }
        }
        if let (Form::Index(height), _) = found {
            let nodes = self.fetched_nodes(name, height, &shipment.bytes, storage)?;
            return self.translate(shipment, Vec::new(), nodes, storage);
        }
        let len = u32::try_from(shipment.bytes.len()).unwrap_or(u32::MAX);
        if found.0 == Form::Medium {
            return Ok(shipment.check(storage.region())?);
        }
        let reader = SegmentReader::open(name, len, &shipment.bytes);
        let reader = reader.map_err(|error| damaged(name, &error))?;
        let mut places = Vec::with_capacity(reader.log_refs().len());
        for (number, _) in reader.log_refs() {
            // Where the segment does not stand for all of its keys, what it points to may be gone.
            if let Some(own) = self.place_of_log(*number, shipment.number, storage, logs)? {
                places.push((*number, as_high_bits(own)));
                shipment.uses.push((*number, own));
            }
        }
        if reader.log_refs().is_empty() {
            return Ok(());
        }
        self.translate(shipment, places, Vec::new(), storage)
    }

    /// Takes note of the keys whose pointers count, of what `edit` adds.
    pub(super) fn note_counted(&mut self, edit: &Edit, addresses: AddressMode) {
        self.counted.clear();
        if addresses.hold_places() {
            for (_, _, segment) in &edit.added {
                let ranges = self.counted.entry(segment.number).or_default();
                ranges.push(segment.range.clone());
            }
        }
    }

    /// The keys of segment `number` whose pointers count, where the edit which was examined last adds it.
    pub(super) fn counted_of(&self, number: SegmentNumber) -> Option<Vec<KeyRange>> {
        self.counted.get(&number).cloned()
    }

    /// Whether the pointers of segment `number` that count in the edit which was examined last do so in `here`.
    pub(super) fn counts(&self, number: SegmentNumber, here: &[&KeyRange]) -> bool {
        let mut counted = self.counted.get(&number).into_iter().flatten();
        counted.all(|range| covers(here, range))
    }

    /// Checks a fetched index segment of a tree, and finds the segments that it leads to. They come
    /// before it; one that has not come is fetched first.
    fn fetched_nodes(
        &self,
        name: SegmentName,
        height: u8,
        bytes: &Buffer,
        storage: &Storage,
    ) -> Result<Vec<NodePair>, ReplicaError> {
        // A pointer to what has left the sender's version holds no number.
        let unknown = |_| None;
        if !verify_index_segment(name, height, bytes, unknown).is_empty() {
            return Err(CopyError::Damaged {
                number: name.number,
                what: "the nodes of an index segment",
            }
            .into());
        }
        let mut children = BTreeSet::new();
        let mut looked_at = Buffer::from_slice(bytes);
        let visited = for_each_pointer_mut(name, &mut looked_at, |_, at| {
            children.insert(at.segment());
            Some(at)
        });
        visited.map_err(|error| damaged(name, &level_error(name, error)))?;
        let pair = |number: SegmentNumber| match storage.segment(number) {
            Some(stored) => Ok(NodePair {
                theirs: number,
                own: as_high_bits(stored.place()),
                stored: (number, stored.place()),
            }),
            None if self.named.contains(&number) => Err(CopyError::Unplaced {
                number: name.number,
                to: number,
            }
            .into()),
            // The tree has been consumed in part.
            None => Ok(NodePair {
                theirs: number,
                own: as_gone(number),
                stored: (number, DeviceSegment::default()),
            }),
        };
        children.into_iter().map(pair).collect()
    }

    /// This member's place of log segment `number`, which `segment` lists; `None` where the region does not
    /// have it any more.
    fn place_of_log(
        &self,
        number: SegmentNumber,
        segment: SegmentNumber,
        storage: &mut Storage,
        logs: &mut Logs,
    ) -> Result<Option<DeviceSegment>, ReplicaError> {
        if let Some(stored) = storage.segment(number) {
            return Ok(Some(stored.place()));
        }
        let log = match self.expected.get(&number).copied() {
            Some(Expected::Log(log)) => log,
            Some(Expected::Level { .. }) => {
                return Err(CopyError::Unplaced {
                    number: segment,
                    to: number,
                }
                .into());
            }
            None => return Ok(None),
        };
        let stored = storage.allocate(number, Purpose::Metadata)?;
        let place = stored.place();
        logs.fills.insert(number, Fill::new(log, stored));
        Ok(Some(place))
    }

    fn translate(
        &mut self,
        shipment: &mut Shipment,
        logs: Vec<(SegmentNumber, SegmentNumber)>,
        nodes: Vec<NodePair>,
        storage: &Storage,
    ) -> Result<(), ReplicaError> {
        let name = name_of(storage, shipment);
        let planted = storage.settings().mutants.skip_rewrite();
        let mut seen = self.rewritten.pointers;
        let mut used = BTreeSet::new();
        let turned = nodes.iter().map(|node| (node.theirs, node.own)).collect();
        let translated =
            Translation::new(logs, turned).rewrite(name, &mut shipment.bytes, |kind, at| {
                if kind == PointerKind::Child {
                    used.insert(at.segment());
                }
                seen += 1;
                planted && seen.is_multiple_of(SPARED)
            });
        let Visited { pointers, .. } = translated.map_err(|error| match error {
            VisitError::Damaged(error) => damaged(name, &error),
            VisitError::Unknown {
                kind: PointerKind::Child,
                at,
            } => CopyError::Unplaced {
                number: name.number,
                to: at.segment(),
            }
            .into(),
            VisitError::Unknown { .. } => CopyError::Damaged {
                number: name.number,
                what: "a pointer leads to no log segment that its footer names",
            }
            .into(),
        })?;
        let used = nodes.iter().filter(|node| used.contains(&node.theirs));
        shipment.uses.extend(used.map(|node| node.stored));
        self.rewritten.segments += 1;
        self.rewritten.bytes += shipment.bytes.len() as u64;
        self.rewritten.pointers += pointers;
        Ok(())
    }
}

/// A segment with nodes of a tree that pointers lead to.
struct NodePair {
    /// The high bits of these pointers as they come.
    theirs: SegmentNumber,
    /// As this member holds them.
    own: SegmentNumber,
    /// Its number, and its place here; 0 where it is not here.
    stored: (SegmentNumber, DeviceSegment),
}

impl Arrival {
    /// Whether it is what an edit calls `segment`.
    pub(super) fn is_of(&self, segment: &LevelSegment) -> bool {
        let here = (self.epoch, self.len, self.checksum);
        here == (segment.epoch, segment.len, segment.checksum)
    }

    /// The segments that its pointers lead to.
    pub(super) fn leads_to(&self) -> impl Iterator<Item = &SegmentNumber> {
        self.uses.iter().map(|(number, _)| number)
    }

    /// Whether the places in its bytes are still those of `place_of`.
    pub(super) fn is_placed(&self, place_of: impl Fn(SegmentNumber) -> DeviceSegment) -> bool {
        let mut uses = self.uses.iter();
        uses.all(|(number, place)| place_of(*number) == *place)
    }
}

/// What a level segment that arrives is wanted for. Whoever ships one has looked whether there is room for it here,
/// in that of merges or of packing.
pub(super) const fn purpose_of(fetched: bool) -> Purpose {
    match fetched {
        true => Purpose::Merge,
        false => Purpose::Pack,
    }
}

fn name_of(storage: &Storage, shipment: &Shipment) -> SegmentName {
    SegmentName {
        region: storage.region(),
        number: shipment.number,
        epoch: shipment.epoch,
    }
}

fn damaged(name: SegmentName, error: &LevelError) -> ReplicaError {
    let what = match error {
        LevelError::Corrupt { what, .. } => what,
        _ => "it cannot be read",
    };
    let number = name.number;
    CopyError::Damaged { number, what }.into()
}

/// The log map of a replica.
pub(super) type LogMap = BTreeMap<SegmentNumber, DeviceSegment>;
