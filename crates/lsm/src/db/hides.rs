//! How much of what levels point to is hidden by newer entries above.
//!
//! Space is collected where levels point to what is overwritten, and nothing says how much that is before a merge
//! has found it: an entry hides one older entry at most, and new keys hide none. So of every segment above the
//! lowest run some keys are asked for in the runs below, once, by their filters alone. A segment of which ranges
//! were taken away still points to all that it did: what was taken is in a level below, and counts as hidden.
//! A segment that was not looked at counts as if every entry hid one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{KeyRange, SegmentNumber};

use crate::compaction::sources::{RunReading, RunSource};
use crate::filter::KeyHash;
use crate::level::{LevelError, ReadAhead};
use crate::merge::Source;
use crate::read::{Reading, reader};
use crate::scan::Begun;
use crate::version::{LevelEntry, Run, Version};

/// Keys of a segment that are asked for.
const KEYS: usize = 64;

/// What is known of a segment.
#[derive(Debug)]
struct Known {
    /// The keys for which it stood.
    span: KeyRange,
    /// The share of its entries for which it stood, in parts of [`Hides::ALL`].
    stands: u64,
    /// The share of those that hide an older one.
    hides: u64,
}

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
}

impl Hides {
    /// All entries, as a share.
    pub(crate) const ALL: u64 = 1024;

    /// Looks at a segment of `version` that was not looked at, if there is one. Where something cannot be read
    /// it counts as if everything were hidden: whoever has to read there will tell.
    pub(crate) fn look(&mut self, version: &Arc<Version>, reading: &Reading) -> bool {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        for place in 0..runs.len().saturating_sub(1) {
            for (first, span) in spans(runs[place]) {
                let number = runs[place].segments[first].segment.number;
                if self
                    .known
                    .get(&number)
                    .is_some_and(|known| known.span == span)
                {
                    continue;
                }
                let at = (place, first);
                let looked = look_at(version, &runs, at, reading);
                let (stands, hides) = looked.unwrap_or((Self::ALL, Self::ALL));
                let known = Known {
                    span,
                    stands,
                    hides,
                };
                self.known.insert(number, known);
                return true;
            }
        }
        let all = runs.iter().flat_map(|run| &run.segments);
        let here: BTreeSet<_> = all.map(|entry| entry.segment.number).collect();
        self.known.retain(|number, _| here.contains(number));
        false
    }

    /// What is hidden in `version`: of a value as long as those of the entry that hides it, mostly; a tombstone
    /// hides one of the usual length. What is in segments that are gone is hidden for certain, and does not
    /// count.
    pub(crate) fn hidden(&self, version: &Version) -> Hidden {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        let (mut refs, mut entries) = (0, 0);
        for entry in runs.iter().flat_map(|run| run.whole_segments()) {
            refs += u128::from(entry.large_refs);
            entries += u128::from(entry.segment.entries);
        }
        let usual = refs / entries.max(1);
        let (all, mut hidden, mut newest) = (u128::from(Self::ALL), 0, (0, 0));
        let upper = &runs[..runs.len().saturating_sub(1)];
        for (place, run) in upper.iter().enumerate() {
            for entry in run.whole_segments() {
                let (stands, hides) = self.known(entry);
                let hides = u128::from(stands * hides / Self::ALL);
                let gone = u128::from(Self::ALL - stands);
                let tombstones = u128::from(entry.segment.tombstones) * usual;
                let refs = u128::from(entry.large_refs);
                hidden += (refs * (hides + gone) + tombstones * hides) / all;
                if place == 0 {
                    newest.0 += hides * u128::from(entry.segment.entries);
                    newest.1 += u128::from(entry.segment.entries);
                }
            }
        }
        let gone = version.evacuated_refs();
        Hidden {
            merge: self.lowering(version),
            bytes: u64::try_from(hidden)
                .unwrap_or(u64::MAX)
                .saturating_sub(gone),
            newest: u64::try_from(newest.0 / newest.1.max(1)).unwrap_or(Self::ALL),
        }
    }
}

impl Hides {
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
        let hidden = u128::from(entry.large_refs) * u128::from(hides) / u128::from(Self::ALL);
        let (own, all) = medium_refs(version, entry);
        let medium = version.medium_log().values();
        let medium: u128 = medium.map(|entry| u128::from(entry.segment.len)).sum();
        let garbage = medium.saturating_sub(all) * own / all.max(1);
        let below = last.overlapping(&entry.segment.range).iter();
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

/// Bytes of values in the medium log that the segment of `entry` points to, and that all do.
fn medium_refs(version: &Version, entry: &LevelEntry) -> (u128, u128) {
    let medium = version.medium_log();
    let all = medium
        .keys()
        .map(|number| u128::from(version.log_refs(*number)));
    let own = entry.segment.log_refs.iter();
    let own = own.filter(|(number, _)| medium.contains_key(number));
    (own.map(|(_, bytes)| u128::from(*bytes)).sum(), all.sum())
}

/// Where the segments of `run` begin in it, and from where to where their pieces reach.
fn spans(run: &Run) -> impl Iterator<Item = (usize, KeyRange)> {
    let mut places: BTreeMap<SegmentNumber, (usize, usize)> = BTreeMap::new();
    for (place, entry) in run.segments.iter().enumerate() {
        let number = entry.segment.number;
        places.entry(number).or_insert((place, place)).1 = place;
    }
    places.into_values().map(|(first, last)| {
        let range = |place: usize| &run.segments[place].segment.range;
        (
            first,
            KeyRange::new(range(first).from.clone(), range(last).to.clone()),
        )
    })
}

/// Of the segment that begins at `segments[first]` of run number `place`, the share of its entries for which it
/// stands, and of these the share that hides something in the runs below.
fn look_at(
    version: &Arc<Version>,
    runs: &[&Run],
    (place, first): (usize, usize),
    reading: &Reading,
) -> Result<(u64, u64), LevelError> {
    let run = runs[place];
    let entry = &run.segments[first];
    let stands = stands(run, entry, reading)?;
    let how = RunReading {
        region: reading.region,
        ahead: ReadAhead::SCAN,
        cache: Some(Arc::clone(&reading.cache)),
        resolve: None,
    };
    let begun = Begun {
        run,
        place,
        pieces: first..first + 1,
    };
    let range = &entry.segment.range;
    let mut keys = RunSource::<false>::in_range(how, version, &begun, (range, None))?;
    let (mut asked, mut held) = (0, 0);
    while asked < KEYS {
        let Some(key) = keys.key() else { break };
        let hash = KeyHash::of(key);
        asked += 1;
        for below in &runs[place + 1..] {
            let Some(below) = below.find(key) else {
                continue;
            };
            if reader(below, reading.region, &reading.cache)?.may_contain(hash) {
                held += 1;
                break;
            }
        }
        keys.advance()?;
    }
    Ok((stands, held * Hides::ALL / (asked as u64).max(1)))
}

/// The share of its entries for which the segment of `entry` stands in `run`.
fn stands(run: &Run, entry: &LevelEntry, reading: &Reading) -> Result<u64, LevelError> {
    let segment = reader(entry, reading.region, &reading.cache)?;
    let pieces = run.segments.iter();
    let pieces = pieces.filter(|piece| piece.segment.number == entry.segment.number);
    let leaves = pieces.map(|piece| segment.leaves_in(&piece.segment.range));
    let (held, all) = (leaves.sum::<usize>() as u64, segment.leaves() as u64);
    // Of a tree the index lies elsewhere.
    let share = (held * Hides::ALL).checked_div(all);
    Ok(share.unwrap_or(Hides::ALL).min(Hides::ALL))
}
