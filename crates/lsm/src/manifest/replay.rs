//! Reads a manifest's chain after a start, and finds its end.
//!
//! Fragments are read in order. The first that is not the one that has to follow ends the manifest,
//! if it can be what a crash left of the last append: nothing, or part of it. It cannot if a valid
//! fragment of a *later* append lies anywhere behind it, because an append begins only when the one
//! before is durable; then a durable fragment is damaged, and the manifest is refused. Records are
//! handed out whole: the beginning of one that was torn counts for nothing, and the next append
//! goes where it began.
//!
//! Damage to the last append looks as if a crash had torn it. So what it took away is kept until a later append or a
//! *witness* is durable. What is cut off as torn was never depended on, and damage to what was is found.
//!
//! A leftover of an append that was torn earlier is never taken for a later append: the next one
//! continues under its number.
//!
//! | the first fragment that is not the one that follows | a later append or a witness says it was there | means |
//! |---|---|---|
//! | none: the chain is read to its end | – | all records |
//! | belongs to the first record, the checkpoint | whether or not | corruption |
//! | belongs to another append | no | the end: the whole records before it; a torn tail |
//! | belongs to another append | yes | corruption |

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{DeviceSegment, RegionId, Remedy};
use argosy_device::{Buffer, DeviceError, RegionEntry, Store};

use super::format::{
    Cursor, FIRST, Fragment, LAST, LAST_OF_APPEND, ManifestRecord, VERSION, WITNESS, WITNESS_BYTES,
    WITNESSES,
};

/// Why a manifest could not be read. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ManifestError {
    /// The device failed; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What was durable is damaged. Give this copy up and fetch the region from another member.
    #[error("manifest of {region}, {segment}, byte {offset}: {what}")]
    Corrupt {
        /// The region.
        region: RegionId,
        /// The segment of the chain.
        segment: DeviceSegment,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// Another version of Argosy wrote it. Use that one, or make the copy anew.
    #[error("the manifest of {region} has format {version}; this version reads format {VERSION}")]
    UnknownVersion {
        /// The region.
        region: RegionId,
        /// Its format.
        version: u16,
    },
    /// The record would be longer than any may be. Nothing was begun.
    #[error(
        "a record of the manifest of {region} would have {bytes} bytes, and {max} is the most: use more regions, or \
         shorter keys"
    )]
    TooLong {
        /// The region.
        region: RegionId,
        /// Bytes that it would have.
        bytes: usize,
        /// Bytes that it may have.
        max: usize,
    },
}

impl ManifestError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Device(error) => error.remedy(),
            Self::Corrupt { .. } => Remedy::Repair,
            Self::UnknownVersion { .. } | Self::TooLong { .. } => Remedy::Correct,
        }
    }
}

/// What a chain holds.
pub struct ReplayedManifest {
    /// The records in order; the first states a whole version.
    pub records: Vec<ManifestRecord>,
    /// Where the next append goes.
    pub(super) cursor: Cursor,
    /// Bytes of the first record.
    pub checkpoint_bytes: u64,
    /// What behind the last record looks as if it had been one. A server cuts it off: a crash may
    /// have torn it.
    pub torn: Option<TornManifest>,
    /// A witness that is damaged. A crash may have torn it; nothing depends on it then.
    pub damaged_witness: Option<TornManifest>,
    /// Whether a witness counts the last record.
    pub(super) is_witnessed: bool,
    /// The block in which the next witness goes.
    pub(super) witness_place: u32,
}

/// The rest of an append that is not whole: torn by a crash, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornManifest {
    /// The segment of the chain.
    pub segment: DeviceSegment,
    /// Where in it.
    pub offset: u32,
    /// What is wrong.
    pub what: &'static str,
}

/// Reads the chain that the catalog names in `entry`, and claims nothing. Blocks.
///
/// # Errors
/// [`ManifestError`]: the device's, or what was durable is damaged.
pub fn replay(
    store: &Store,
    entry: &RegionEntry,
    segment_bytes: u32,
) -> Result<ReplayedManifest, ManifestError> {
    let chain = read_chain(store, entry, segment_bytes)?;
    Reader::new(entry, segment_bytes, &chain).read()
}

/// For tools, where [`replay`] says that the last append is damaged: the records before it. What it took away may have
/// been overwritten. `None` where more is damaged. Blocks.
pub fn replay_without_last(
    store: &Store,
    entry: &RegionEntry,
    segment_bytes: u32,
) -> Option<Vec<ManifestRecord>> {
    let chain = read_chain(store, entry, segment_bytes).ok()?;
    let mut reader = Reader::new(entry, segment_bytes, &chain);
    let witnesses = reader.witnesses().ok()?;
    let read = reader.records().ok()?;
    let lacks_last = reader.at.index < witnesses.counted && reader.check_torn().is_ok();
    (lacks_last && !read.records.is_empty()).then_some(read.records)
}

fn read_chain(
    store: &Store,
    entry: &RegionEntry,
    segment_bytes: u32,
) -> Result<Vec<Buffer>, ManifestError> {
    let mut chain = Vec::with_capacity(entry.manifest.len());
    for segment in &entry.manifest {
        // Nothing of the chain lies behind what was written.
        let written = store.written_up_to(*segment).min(segment_bytes);
        let mut bytes = Buffer::zeroed(written as usize);
        if written > 0 {
            store.read(*segment, 0, &mut bytes)?;
        }
        chain.push(bytes);
    }
    Ok(chain)
}

/// The whole records of a chain.
struct Records {
    records: Vec<ManifestRecord>,
    /// Behind the last of them.
    end: Cursor,
    checkpoint_bytes: u64,
    /// Something of an append follows that is not whole.
    open_append: bool,
}

/// What the witnesses of a generation say.
#[derive(Default)]
struct Witnesses {
    /// Fragments that were durable.
    counted: u32,
    /// The block in which the next witness goes.
    next_place: u32,
    /// The last of their blocks that held one and is damaged.
    damaged: Option<TornManifest>,
}

struct Reader<'a> {
    region: RegionId,
    generation: u64,
    segment_bytes: u32,
    chain: &'a [Buffer],
    places: &'a [DeviceSegment],
    /// Where the next fragment is looked for.
    at: Cursor,
}

impl<'a> Reader<'a> {
    const fn new(entry: &'a RegionEntry, segment_bytes: u32, chain: &'a [Buffer]) -> Self {
        let generation = entry.words[0];
        Self {
            region: entry.region,
            generation,
            segment_bytes,
            chain,
            places: entry.manifest.as_slice(),
            at: Cursor::new(generation),
        }
    }
}

impl Reader<'_> {
    fn read(mut self) -> Result<ReplayedManifest, ManifestError> {
        let witnesses = self.witnesses()?;
        let read = self.records()?;
        self.check_torn()?;
        if read.records.is_empty() {
            return Err(self.corrupt(read.end, "the checkpoint is damaged"));
        }
        if self.at.index < witnesses.counted {
            let what = "the last append was whole, as its witness says: a record is damaged";
            return Err(self.corrupt(self.at, what));
        }
        let torn = self.find_torn(read.open_append);
        let has_checkpoint_alone = read.records.len() == 1;
        Ok(ReplayedManifest {
            records: read.records,
            cursor: read.end,
            checkpoint_bytes: read.checkpoint_bytes,
            torn,
            damaged_witness: witnesses.damaged,
            // The checkpoint needs none: damage to it is no torn tail. A damaged witness is written anew.
            is_witnessed: witnesses.damaged.is_none()
                && (has_checkpoint_alone || read.end.index <= witnesses.counted),
            witness_place: witnesses.next_place,
        })
    }

    /// The whole records, up to the first fragment that does not follow.
    fn records(&mut self) -> Result<Records, ManifestError> {
        let mut read = Records {
            records: Vec::new(),
            end: self.at,
            checkpoint_bytes: 0,
            open_append: false,
        };
        let mut payload: Option<Vec<u8>> = None;
        while let Some(fragment) = self.next()? {
            read.open_append = fragment.flags & LAST_OF_APPEND == 0;
            if fragment.flags & FIRST != 0 {
                payload = Some(Vec::new());
            }
            let Some(bytes) = &mut payload else {
                return Err(self.corrupt(read.end, "a record goes on that never began"));
            };
            bytes.extend_from_slice(fragment.payload);
            if fragment.flags & LAST == 0 {
                continue;
            }
            let record = ManifestRecord::decode(bytes);
            let record = record.map_err(|_| self.corrupt(read.end, "not a record"))?;
            payload = None;
            read.records.push(record);
            read.end = self.at;
            if read.records.len() == 1 {
                read.checkpoint_bytes = read.end.bytes(self.segment_bytes);
            }
        }
        Ok(read)
    }

    fn witnesses(&self) -> Result<Witnesses, ManifestError> {
        let (mut found, mut damaged_place) = (Witnesses::default(), None);
        let first = self.chain.first().map_or(&[][..], |segment| segment);
        for place in 0..WITNESSES {
            let offset = place * WITNESS_BYTES;
            let Some(fragment) = Fragment::parse(self.region, self.generation, first, offset)
            else {
                let block = first.iter().skip(offset as usize).take(BLOCK_SIZE);
                if block.copied().any(|byte| byte != 0) {
                    damaged_place = Some(place);
                    found.damaged = self.places.first().map(|segment| TornManifest {
                        segment: *segment,
                        offset,
                        what: "a witness is damaged",
                    });
                }
                continue;
            };
            self.check_version(&fragment)?;
            // A fragment of an append that was written here by mistake says nothing of those in front of it.
            if fragment.flags & WITNESS != 0 && fragment.index > found.counted {
                found.counted = fragment.index;
                found.next_place = (place + 1) % WITNESSES;
            }
        }
        found.next_place = damaged_place.unwrap_or(found.next_place);
        Ok(found)
    }

    const fn check_version(&self, fragment: &Fragment<'_>) -> Result<(), ManifestError> {
        match fragment.version {
            VERSION => Ok(()),
            version => Err(ManifestError::UnknownVersion {
                region: self.region,
                version,
            }),
        }
    }

    /// Whether something behind the last fragment was to be the next one.
    fn find_torn(&self, open_append: bool) -> Option<TornManifest> {
        let mut at = self.at;
        if at.offset >= self.segment_bytes {
            at.segment += 1;
            at.offset = 0;
        }
        let segment = self.chain.get(at.segment);
        let meant = segment.is_some_and(|bytes| {
            Fragment::was_meant(self.region, self.generation, bytes, at.offset, &at)
        });
        let what = match (open_append, meant) {
            (true, _) => "the last append is not whole",
            (false, true) => "the last append is damaged",
            (false, false) => return None,
        };
        let last = self.places.len().saturating_sub(1);
        Some(TornManifest {
            segment: self.places.get(at.segment.min(last)).copied()?,
            offset: at.offset,
            what,
        })
    }

    /// The fragment that has to follow, if it is there.
    fn next(&mut self) -> Result<Option<Fragment<'_>>, ManifestError> {
        let mut at = self.at;
        if at.offset >= self.segment_bytes {
            at.segment += 1;
            at.offset = 0;
        }
        let Some(segment) = self.chain.get(at.segment) else {
            return Ok(None);
        };
        let found = Fragment::parse(self.region, self.generation, segment, at.offset);
        let follows = |fragment: &Fragment<'_>| {
            fragment.index == at.index && fragment.previous == at.previous
        };
        let Some(fragment) = found.filter(follows) else {
            return Ok(None);
        };
        self.check_version(&fragment)?;
        at.offset += fragment.blocks;
        at.index += 1;
        at.previous = fragment.crc;
        // An append that was torn behind a whole record is continued under its number: what is
        // left of it must not look like a later one.
        let ended = fragment.flags & LAST_OF_APPEND != 0;
        at.append = fragment.append.saturating_add(u32::from(ended));
        self.at = at;
        Ok(Some(fragment))
    }

    /// Makes sure that nothing of a later append lies behind the end.
    fn check_torn(&self) -> Result<(), ManifestError> {
        for (index, segment) in self.chain.iter().enumerate().skip(self.at.segment) {
            let first = if index == self.at.segment {
                self.at.offset
            } else {
                0
            };
            let end = u32::try_from(segment.len()).unwrap_or(self.segment_bytes);
            for offset in (first..end).step_by(BLOCK_SIZE) {
                let later = Fragment::parse(self.region, self.generation, segment, offset)
                    .is_some_and(|fragment| fragment.append > self.at.append);
                if later {
                    return Err(self.corrupt(self.at, "a record is damaged"));
                }
            }
        }
        Ok(())
    }

    fn corrupt(&self, at: Cursor, what: &'static str) -> ManifestError {
        let last = self.places.len().saturating_sub(1);
        let segment = self.places.get(at.segment.min(last)).copied();
        ManifestError::Corrupt {
            region: self.region,
            segment: segment.unwrap_or_default(),
            offset: at.offset,
            what,
        }
    }
}
