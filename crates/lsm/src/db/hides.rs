//! Estimates how much of what levels point to is shadowed: overwritten by newer entries that no merge has met yet.
//!
//! A merge counts the pointers that it drops ([`Reference`](crate::edit::Reference)). A pointer that a newer entry
//! shadows still counts until then. An entry shadows one older entry at most, and new keys shadow none. So of every
//! segment above the lowest run some keys, of four places, are asked for in the runs below, once, by their filters
//! alone. A segment that was not looked at counts as if every entry shadowed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{EditSeq, KeyRange, SegmentNumber};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::compaction::sources::{RunReading, RunSource};
use crate::filter::KeyHash;
use crate::level::{LevelError, ReadAhead};
use crate::merge::Source;
use crate::read::{Reading, reader};
use crate::scan::Begun;
use crate::version::{LevelEntry, Run, Version};

/// Keys of a segment that are asked for.
const KEYS: usize = 64;
/// Places in which they lie.
const PLACES: usize = 4;

/// What is known of a segment.
#[derive(Debug)]
struct Known {
    /// For which keys it stood.
    pieces: Pieces,
    /// The share of its entries for which it stood, in parts of [`Hides::ALL`].
    stands: u64,
    /// The share of those that hide an older one.
    hides: u64,
}

/// For which keys the pieces of a segment stand: a checksum of their ranges.
type Pieces = u64;

/// What is hidden in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// Bytes of values that levels point to.
    pub(crate) bytes: u64,
    /// The share of entries of the newest run that hide an older one, in parts of [`Hides::ALL`].
    pub(crate) newest: u64,
    /// What a merge into the last level would do.
    pub(crate) merge: Lowering,
}

/// A part of the level above the last, merged into that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lowering {
    /// Bytes that it reads and writes.
    pub(crate) costs: u64,
    /// Bytes that nothing points to then: what its entries hide in the last level, and its share of the
    /// medium log's garbage.
    pub(crate) frees: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Hides {
    known: BTreeMap<SegmentNumber, Known>,
    /// Segments that are to be looked at: in which run, and where in it.
    unknown: Vec<(usize, Span)>,
    /// In which version.
    listed: Option<EditSeq>,
}

impl Hides {
    /// All entries, as a share.
    pub(crate) const ALL: u64 = 1024;

    /// Looks at a segment of `version` that was not looked at, if there is one. Where something cannot be read
    /// it counts as if everything were hidden: whoever has to read there will report it.
    pub(crate) fn look(&mut self, version: &Arc<Version>, reading: &Reading) -> bool {
        if self.listed != Some(version.seq()) {
            self.list(version);
        }
        let Some((place, span)) = self.unknown.pop() else {
            return false;
        };
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        let number = runs[place].segments[span.first].segment.number;
        let looked = look_at(version, &runs, (place, span.first), &span.keys, reading);
        let (stands, hides) = looked.unwrap_or((Self::ALL, Self::ALL));
        let known = Known {
            pieces: span.pieces,
            stands,
            hides,
        };
        self.known.insert(number, known);
        true
    }

    /// Finds out which segments of `version` are to be looked at, and forgets those that are gone.
    fn list(&mut self, version: &Version) {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        self.unknown.clear();
        let mut here = BTreeSet::new();
        for (place, run) in runs[..runs.len().saturating_sub(1)].iter().enumerate() {
            for span in spans(run) {
                let number = run.segments[span.first].segment.number;
                here.insert(number);
                let known = self.known.get(&number);
                if known.is_none_or(|known| known.pieces != span.pieces) {
                    self.unknown.push((place, span));
                }
            }
        }
        self.known.retain(|number, _| here.contains(number));
        self.listed = Some(version.seq());
    }

    /// What is hidden in `version`: of a value as long as those of the entry that hides it, mostly; a tombstone
    /// hides one as long as values above the last run are. What is in segments that are gone is hidden for
    /// certain, and does not count.
    pub(crate) fn hidden(&self, version: &Version) -> Hidden {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        let all = u128::from(Self::ALL);
        let (mut refs, mut entries, mut tombstones) = (0, 0, 0);
        let (mut hidden, mut newest) = (0, (0, 0));
        for (place, run) in runs[..runs.len().saturating_sub(1)].iter().enumerate() {
            for entry in run.whole_segments() {
                let (stands, hides) = self.known(entry);
                let hides = u128::from(stands * hides / Self::ALL);
                let own = u128::from(entry.segment.entries);
                refs += u128::from(entry.segment.large_bytes);
                entries += own;
                tombstones += u128::from(entry.segment.tombstones) * hides;
                hidden += u128::from(entry.segment.large_bytes) * hides;
                if place == 0 {
                    newest = (newest.0 + hides * own, newest.1 + own);
                }
            }
        }
        let hidden = (hidden + tombstones * (refs / entries.max(1))) / all;
        let hidden = u64::try_from(hidden).unwrap_or(u64::MAX);
        Hidden {
            merge: self.lowering(version),
            bytes: hidden.saturating_sub(version.evacuated_refs()),
            newest: u64::try_from(newest.0 / newest.1.max(1)).unwrap_or(Self::ALL),
        }
    }

    /// See [`Lowering`]: of the part that a merge would begin with.
    fn lowering(&self, version: &Version) -> Lowering {
        let deepest = usize::from(version.deepest());
        // Entries of L1 hide others of L1, or of several levels.
        let [_, .., above, last] = &version.levels()[..deepest] else {
            return Lowering::default();
        };
        let ([last], [above]) = (last.runs.as_slice(), above.runs.as_slice()) else {
            return Lowering::default();
        };
        let pieces = above.segments.iter();
        let Some(entry) = pieces.min_by_key(|entry| entry.segment.number) else {
            return Lowering::default();
        };
        let (_, hides) = self.known(entry);
        let hidden =
            u128::from(entry.segment.large_bytes) * u128::from(hides) / u128::from(Self::ALL);
        let own = u128::from(entry.segment.medium_bytes);
        let all = u128::from(version.medium_refs());
        let medium = version.medium_log().values();
        let medium: u128 = medium.map(|entry| u128::from(entry.segment.len)).sum();
        let garbage = medium.saturating_sub(all) * own / all.max(1);
        let below = last.overlapping(&entry.segment.range);
        let read = below.chain([entry]);
        let read: u128 = read.map(|entry| u128::from(entry.segment.len)).sum();
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Lowering {
            costs: narrow(2 * read + own),
            frees: narrow(hidden + garbage),
        }
    }

    /// What is known of the segment of `entry`: for how much of it it stands, and how much of that hides.
    fn known(&self, entry: &LevelEntry) -> (u64, u64) {
        let known = self.known.get(&entry.segment.number);
        known.map_or((Self::ALL, Self::ALL), |known| (known.stands, known.hides))
    }
}

/// Where a segment lies in a run.
#[derive(Debug)]
struct Span {
    /// Its first piece.
    first: usize,
    /// For which keys these stand.
    pieces: Pieces,
    /// From where to where they reach.
    keys: KeyRange,
}

/// Where the segments of `run` lie in it.
fn spans(run: &Run) -> impl Iterator<Item = Span> {
    let mut places: BTreeMap<SegmentNumber, Span> = BTreeMap::new();
    for (place, entry) in run.segments.iter().enumerate() {
        let range = &entry.segment.range;
        let span = places.entry(entry.segment.number).or_insert_with(|| Span {
            first: place,
            pieces: 0,
            keys: KeyRange::new(range.from.clone(), None),
        });
        let sum = |key: &[u8], seed| xxh3_64_with_seed(key, seed);
        span.pieces = sum(
            range.to.as_deref().unwrap_or_default(),
            sum(&range.from, span.pieces),
        );
        span.keys.to.clone_from(&range.to);
    }
    places.into_values()
}

/// Of the segment that begins at `segments[first]` of run number `place` and reaches over `span`, the share of its
/// entries for which it stands, and of these the share that hides something in the runs below.
fn look_at(
    version: &Arc<Version>,
    runs: &[&Run],
    (place, first): (usize, usize),
    span: &KeyRange,
    reading: &Reading,
) -> Result<(u64, u64), LevelError> {
    let run = runs[place];
    let stands = stands(run, &run.segments[first], reading)?;
    let number = run.segments[first].segment.number;
    let (mut asked, mut held) = (0_u64, 0);
    for from in places(&run.segments[first], span, reading)? {
        let range = KeyRange::new(from, span.to.clone());
        let mut pieces = run.places_overlapping(&range);
        pieces.end = pieces.end.min(pieces.start + 1);
        let own = run.segments.range(pieces.clone());
        // Between its pieces there may be others.
        if own.map(|entry| entry.segment.number).ne([number]) {
            continue;
        }
        let begun = Begun { run, place, pieces };
        let mut keys =
            RunSource::<false>::in_range(of_runs(reading), version, &begun, (&range, None))?;
        for _ in 0..KEYS / PLACES {
            let Some(key) = keys.key() else { break };
            asked += 1;
            held += u64::from(is_below(&runs[place + 1..], key, reading)?);
            keys.advance()?;
        }
    }
    let hides = (held * Hides::ALL).checked_div(asked);
    Ok((stands, hides.unwrap_or(Hides::ALL)))
}

/// How keys are read.
fn of_runs(reading: &Reading) -> RunReading {
    RunReading {
        region: reading.region,
        ahead: ReadAhead::SCAN,
        cache: Some(Arc::clone(&reading.cache)),
        resolve: None,
        counts: false,
    }
}

/// Whether a filter of `runs` says that `key` may be there.
fn is_below(runs: &[&Run], key: &[u8], reading: &Reading) -> Result<bool, LevelError> {
    let hash = KeyHash::of(key);
    for run in runs {
        let Some(entry) = run.find(key) else { continue };
        if reader(entry, reading.region, &reading.cache)?.may_contain(hash) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where keys of the segment of `entry` are looked up: its beginning, and places as far apart as its first and last
/// key, read as numbers, allow.
fn places(
    entry: &LevelEntry,
    span: &KeyRange,
    reading: &Reading,
) -> Result<Vec<Vec<u8>>, LevelError> {
    let segment = reader(entry, reading.region, &reading.cache)?;
    let from = segment.first_key().max(&span.from);
    let to = match &span.to {
        Some(to) => segment.last_key().min(to),
        None => segment.last_key(),
    };
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = &key[shared.min(key.len())..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        bytes
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (low, high) = (number(from), number(to));
    let step = high.saturating_sub(low) / PLACES as u64;
    let between = (1..PLACES as u64).map(|place| {
        let at = low + place * step;
        let bytes = at.to_le_bytes().into_iter().rev();
        from[..shared].iter().copied().chain(bytes).collect()
    });
    let mut all: Vec<Vec<u8>> = std::iter::once(from.to_vec()).chain(between).collect();
    all.dedup();
    Ok(all)
}

/// The share of its entries for which the segment of `entry` stands in `run`.
fn stands(run: &Run, entry: &LevelEntry, reading: &Reading) -> Result<u64, LevelError> {
    let segment = reader(entry, reading.region, &reading.cache)?;
    let pieces = run.pieces(entry.segment.number);
    let leaves = pieces.map(|piece| segment.leaves_in(&piece.segment.range));
    let (held, all) = (leaves.sum::<usize>() as u64, segment.leaves() as u64);
    // Of a tree the index lies elsewhere.
    let share = (held * Hides::ALL).checked_div(all);
    Ok(share.unwrap_or(Hides::ALL).min(Hides::ALL))
}
