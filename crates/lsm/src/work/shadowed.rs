//! Estimates how much of what levels point to is shadowed: overwritten by newer entries that no merge has met yet.
//!
//! A merge counts the pointers that it drops ([`Reference`](crate::edit::Reference)). A pointer that a newer entry
//! shadows still counts until then. An entry shadows one older entry at most, and new keys shadow none. So of every
//! segment above the lowest run some keys, of four places, are asked for in the runs below, once, by their filters
//! alone. A segment that was not looked at counts as if every entry shadowed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{EditSeq, KeyRange, SegmentNumber};
use argosy_engine::Reach;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::edit::{Edit, LEVELS_MAX, RunId};
use crate::filter::KeyHash;
use crate::merge::Source;
use crate::names::LevelError;
use crate::read::ReadAhead;
use crate::read::scan::Begun;
use crate::read::sources::{RunReading, RunSource};
use crate::read::{Reading, reader};
use crate::segments::fetch::Fetch;
use crate::shared::work;
use crate::version::{LevelEntry, Run, Version};

/// Keys of a segment that are asked for.
const KEYS: usize = 64;
/// Places in which they lie.
const PLACES: usize = 4;

/// What is known of a segment.
#[derive(Clone, Debug)]
struct Known {
    /// For which keys it stood.
    bounds: BoundsSum,
    /// The share of its entries for which it stood, in parts of [`ShadowEstimate::ALL`].
    stands: u64,
    /// The share of those that shadow an older one.
    shadows: u64,
}

/// The bounds of a segment: a checksum of their ranges.
type BoundsSum = u64;

/// What is shadowed in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadowed {
    /// Bytes of values that levels point to.
    pub(crate) bytes: u64,
    /// The share of entries of the newest run that shadow an older one, in parts of [`ShadowEstimate::ALL`].
    pub(crate) newest: u64,
    /// What a merge into the last level would do.
    pub(crate) merge: Lowering,
}

/// A part of the level above the last, merged into that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lowering {
    /// Bytes that it reads and writes.
    pub(crate) costs: u64,
    /// Bytes that nothing points to then: what its entries shadow in the last level, and its share of the
    /// medium log's garbage.
    pub(crate) frees: u64,
}

/// What a segment adds to a run's [`Sums`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// Bytes of values in the large log.
    large: u128,
    entries: u128,
    /// Tombstones and bytes, each times the share of entries that shadow something.
    tombstones_shadowing: u128,
    large_shadowed: u128,
    /// Entries times that share.
    shadowing: u128,
}

impl Sums {
    /// The sums of the segment of `entry`. `shadows` is the share of its entries that stand and shadow something, times
    /// [`ShadowEstimate::ALL`].
    fn of(entry: &LevelEntry, shadows: u64) -> Self {
        let shadows = u128::from(shadows);
        let segment = &entry.segment;
        Self {
            large: u128::from(segment.large_bytes),
            entries: u128::from(segment.entries),
            tombstones_shadowing: u128::from(segment.tombstones) * shadows,
            large_shadowed: u128::from(segment.large_bytes) * shadows,
            shadowing: u128::from(segment.entries) * shadows,
        }
    }

    fn each(&mut self, other: &Self, change: impl Fn(u128, u128) -> u128) {
        self.large = change(self.large, other.large);
        self.entries = change(self.entries, other.entries);
        self.tombstones_shadowing = change(self.tombstones_shadowing, other.tombstones_shadowing);
        self.large_shadowed = change(self.large_shadowed, other.large_shadowed);
        self.shadowing = change(self.shadowing, other.shadowing);
    }
}

/// A level and a run of it.
type InRun = (u8, RunId);

/// A segment above the lowest run.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    run: InRun,
    /// For which keys it stands.
    bounds: BoundsSum,
    /// What it adds to the sums of its run.
    sums: Sums,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ShadowEstimate {
    known: BTreeMap<SegmentNumber, Known>,
    /// All segments above the lowest run.
    listed: BTreeMap<SegmentNumber, Listed>,
    /// By run, what they add up to.
    sums: BTreeMap<InRun, Sums>,
    /// Those that are to be looked at.
    unknown: BTreeSet<(InRun, SegmentNumber)>,
    /// The edit of the version that all of this describes, and the lowest run of that version.
    of: Option<(EditSeq, Option<InRun>)>,
}

impl ShadowEstimate {
    /// All entries, as a share.
    pub(crate) const ALL: u64 = 1024;

    /// Looks at a segment of `version` that was not looked at, if there is one. Where something cannot be read
    /// it counts as if everything were shadowed: whoever has to read there will report it.
    pub(crate) fn look(&mut self, version: &Arc<Version>, reading: &Reading) -> bool {
        self.catch_up(version);
        let Some((run, number)) = self.unknown.pop_last() else {
            return false;
        };
        let runs: Vec<_> = version.runs().collect();
        let place = runs
            .iter()
            .position(|(level, other)| (*level, other.id) == run);
        let place = place.expect("the run is listed");
        let runs: Vec<_> = runs.into_iter().map(|(_, run)| run).collect();
        let span = span(runs[place], number).expect("the segment is listed");
        let looked = look_at(version, &runs, place, &span, reading);
        let (stands, shadows) = looked.unwrap_or((Self::ALL, Self::ALL));
        let known = Known {
            bounds: span.bounds,
            stands,
            shadows,
        };
        self.known.insert(number, known);
        self.unlist(number);
        self.list(run, runs[place], number);
        true
    }

    /// Follows `edit`, which led to `version`, where it belongs to the version before.
    pub(crate) fn follow(&mut self, edit: &Edit, version: &Version) {
        let lowest = lowest(version);
        let before = self.of.map(|(seq, lowest)| (seq.next(), lowest));
        // Where another run is the lowest, all of it is listed, or no more.
        if edit.checkpoint || before != Some((version.seq(), lowest)) {
            return;
        }
        let gone = edit.removed.iter();
        let trimmed = edit.bounds.iter().map(|(place, _)| place);
        let places = gone
            .chain(trimmed)
            .map(|place| ((place.level, place.run), place.number));
        let added = edit.added.iter();
        let added = added.map(|(level, run, segment)| ((*level, *run), segment.number));
        // Parts that are uncounted are seen by nobody, and the medium log is in no run.
        let in_levels = |((level, _), _): &(InRun, SegmentNumber)| *level <= LEVELS_MAX;
        let touched: BTreeSet<_> = places.chain(added).filter(in_levels).collect();
        for (_, number) in &touched {
            self.unlist(*number);
        }
        for (place, number) in touched {
            let level = version.level(place.0);
            let mut runs = level.iter().flat_map(|level| &level.runs);
            if Some(place) != lowest
                && let Some(run) = runs.find(|run| run.id == place.1)
            {
                self.list(place, run, number);
            }
        }
        let removed = edit.removed.iter().map(|place| place.number);
        for number in removed.filter(|number| !self.listed.contains_key(number)) {
            self.known.remove(&number);
        }
        self.of = Some((version.seq(), lowest));
    }

    /// Makes sure that it belongs to `version`.
    fn catch_up(&mut self, version: &Version) {
        if self.of.map(|(seq, _)| seq) == Some(version.seq()) {
            debug_assert!(
                work::apart(|| self.is_exact(version)),
                "of {}",
                version.seq()
            );
            return;
        }
        self.list_all(version);
        self.known
            .retain(|number, _| self.listed.contains_key(number));
    }

    fn list_all(&mut self, version: &Version) {
        let lowest = lowest(version);
        self.listed.clear();
        self.sums.clear();
        self.unknown.clear();
        for (level, run) in version
            .runs()
            .filter(|(level, run)| Some((*level, run.id)) != lowest)
        {
            for entry in run.whole_segments() {
                self.list((level, run.id), run, entry.segment.number);
            }
        }
        self.of = Some((version.seq(), lowest));
    }

    /// Lists segment `number` of `run`, if it has pairs there.
    fn list(&mut self, place: InRun, run: &Run, number: SegmentNumber) {
        let (Some(span), Some(entry)) = (span(run, number), run.entry(number)) else {
            return;
        };
        let known = self.known.get(&number);
        if known.is_none_or(|known| known.bounds != span.bounds) {
            self.unknown.insert((place, number));
        }
        let (stands, shadows) = self.known(entry);
        let sums = Sums::of(entry, stands * shadows / Self::ALL);
        let of_run = self.sums.entry(place).or_default();
        of_run.each(&sums, |all, own| all + own);
        let listed = Listed {
            run: place,
            bounds: span.bounds,
            sums,
        };
        self.listed.insert(number, listed);
    }

    fn unlist(&mut self, number: SegmentNumber) {
        let Some(Listed { run, sums, .. }) = self.listed.remove(&number) else {
            return;
        };
        self.unknown.remove(&(run, number));
        let of_run = self.sums.get_mut(&run).expect("it is of a listed run");
        of_run.each(&sums, |all, own| all - own);
        if *of_run == Sums::default() {
            self.sums.remove(&run);
        }
    }

    /// Whether it is what it would be if it were made anew.
    fn is_exact(&self, version: &Version) -> bool {
        let mut anew = Self {
            known: self.known.clone(),
            ..Self::default()
        };
        anew.list_all(version);
        anew.listed == self.listed && anew.sums == self.sums && anew.unknown == self.unknown
    }

    /// What is shadowed in `version`: of a value as long as those of the entry that shadows it, mostly; a tombstone
    /// shadows one as long as values above the last run are. What is in segments that are gone is shadowed for
    /// certain, and does not count.
    pub(crate) fn shadowed(&mut self, version: &Version) -> Shadowed {
        self.catch_up(version);
        let mut all = Sums::default();
        for sums in self.sums.values() {
            all.each(sums, |all, own| all + own);
        }
        let newest = version.runs().next().map(|(level, run)| (level, run.id));
        let newest = newest.and_then(|newest| self.sums.get(&newest));
        let newest = newest.map_or((0, 0), |newest| (newest.shadowing, newest.entries));
        let length = all.large / all.entries.max(1);
        let shadowed =
            (all.large_shadowed + all.tombstones_shadowing * length) / u128::from(Self::ALL);
        let shadowed = u64::try_from(shadowed).unwrap_or(u64::MAX);
        Shadowed {
            merge: self.lowering(version),
            bytes: shadowed.saturating_sub(version.evacuated_refs()),
            newest: u64::try_from(newest.0 / newest.1.max(1)).unwrap_or(Self::ALL),
        }
    }

    /// See [`Lowering`]: of the part that a merge would begin with.
    fn lowering(&self, version: &Version) -> Lowering {
        let deepest = usize::from(version.deepest());
        // Entries of L1 shadow others of L1, or of several levels.
        let [_, .., above, last] = &version.levels()[..deepest] else {
            return Lowering::default();
        };
        let ([last], [above]) = (last.runs.as_slice(), above.runs.as_slice()) else {
            return Lowering::default();
        };
        let Some(entry) = above.oldest() else {
            return Lowering::default();
        };
        let (_, shadows) = self.known(entry);
        let shadowed =
            u128::from(entry.segment.large_bytes) * u128::from(shadows) / u128::from(Self::ALL);
        let own = u128::from(entry.segment.medium_bytes);
        let all = u128::from(version.medium_refs());
        let medium = u128::from(version.medium_bytes());
        let garbage = medium.saturating_sub(all) * own / all.max(1);
        let below = last.overlapping(&entry.segment.range);
        let read = below.chain([entry]);
        let read: u128 = read.map(|entry| u128::from(entry.segment.len)).sum();
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Lowering {
            costs: narrow(2 * read + own),
            frees: narrow(shadowed + garbage),
        }
    }

    /// What is known of the segment of `entry`: for how much of it it stands, and how much of that shadows.
    fn known(&self, entry: &LevelEntry) -> (u64, u64) {
        let known = self.known.get(&entry.segment.number);
        known.map_or((Self::ALL, Self::ALL), |known| {
            (known.stands, known.shadows)
        })
    }
}

/// The lowest run, in which nothing shadows anything.
fn lowest(version: &Version) -> Option<InRun> {
    version.runs().last().map(|(level, run)| (level, run.id))
}

/// Where a segment lies in a run.
#[derive(Debug)]
struct Span {
    /// Its first entry.
    first: usize,
    /// For which keys these stand.
    bounds: BoundsSum,
    /// From where to where they reach.
    keys: KeyRange,
}

/// Where segment `number` lies in `run`, if it has pairs there.
fn span(run: &Run, number: SegmentNumber) -> Option<Span> {
    let mut ranges = run.entries_of(number).map(|entry| &entry.segment.range);
    let first = ranges.next()?;
    let sum = |sum: BoundsSum, range: &KeyRange| {
        let of = |key: &[u8], seed| xxh3_64_with_seed(key, seed);
        of(
            range.to.as_deref().unwrap_or_default(),
            of(&range.from, sum),
        )
    };
    let mut span = Span {
        first: run.place_of_first(number)?,
        bounds: sum(0, first),
        keys: first.clone(),
    };
    for range in ranges {
        span.bounds = sum(span.bounds, range);
        span.keys.to.clone_from(&range.to);
    }
    Some(span)
}

/// Of the segment that lies at `span` of run number `place`, the share of its
/// entries for which it stands, and of these the share that shadows something in the runs below.
fn look_at(
    version: &Arc<Version>,
    runs: &[&Run],
    place: usize,
    span: &Span,
    reading: &Reading,
) -> Result<(u64, u64), LevelError> {
    let run = runs[place];
    let first = &run.segments[span.first];
    let stands = stands(run, first, reading)?;
    let number = first.segment.number;
    let (mut asked, mut held) = (0_u64, 0);
    for from in places(first, &span.keys, reading)? {
        let range = KeyRange::new(from, span.keys.to.clone());
        let mut places = run.places_overlapping(&range);
        places.end = places.end.min(places.start + 1);
        let own = run.segments.range(places.clone());
        // Between its bounds there may be others.
        if own.map(|entry| entry.segment.number).ne([number]) {
            continue;
        }
        let begun = Begun { run, place, places };
        let mut keys =
            RunSource::<false>::in_range(of_runs(reading), version, &begun, &range, None)?;
        for _ in 0..KEYS / PLACES {
            let Some(key) = keys.key() else { break };
            asked += 1;
            held += u64::from(is_below(&runs[place + 1..], key, reading)?);
            keys.advance()?;
        }
    }
    let shadows = (held * ShadowEstimate::ALL).checked_div(asked);
    Ok((stands, shadows.unwrap_or(ShadowEstimate::ALL)))
}

/// How keys are read.
fn of_runs(reading: &Reading) -> RunReading {
    RunReading {
        region: reading.region,
        ahead: ReadAhead::SCAN,
        cache: Some(Arc::clone(&reading.cache)),
        reach: Reach::Device,
        resolve: None,
        counts: false,
    }
}

/// Whether a filter of `runs` says that `key` may be there.
fn is_below(runs: &[&Run], key: &[u8], reading: &Reading) -> Result<bool, LevelError> {
    let hash = KeyHash::of(key);
    for run in runs {
        let Some(entry) = run.find(key) else { continue };
        if reader(entry, reading.region, &reading.cache, Fetch::Device)?.may_contain(hash) {
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
    let segment = reader(entry, reading.region, &reading.cache, Fetch::Device)?;
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
    let segment = reader(entry, reading.region, &reading.cache, Fetch::Device)?;
    let entries = run.entries_of(entry.segment.number);
    let leaves = entries.map(|entry| segment.leaves_in(&entry.segment.range));
    let (held, all) = (leaves.sum::<usize>() as u64, segment.leaves() as u64);
    // Of a tree the index lies elsewhere.
    let share = (held * ShadowEstimate::ALL).checked_div(all);
    Ok(share
        .unwrap_or(ShadowEstimate::ALL)
        .min(ShadowEstimate::ALL))
}
