//! Looks a key up in the levels, newest run first.
//!
//! A search that comes to something that is not in memory ends there, and can be resumed once that was read: it
//! remembers the run that it has come to, and what filters said so far.

use argosy_base::{Pointer, SegmentNumber};
use argosy_engine::EngineError;

use super::nodes::{get_in_segment, get_in_tree};
use super::sources::NO_TREE;
use super::{ReadView, Reading, leaf_home, reader};
use crate::filter::KeyHash;
use crate::level::SegmentReader;
use crate::level::tree::TreeSegments;
use crate::names::{Form, LevelError, OwnedEntry, SegmentName, Tree};
use crate::segments::fetch::{Fetch, Fetched};
use crate::version::{LevelEntry, Run, RunTree};

/// A run that may have the key, and its segment that stands for it.
#[derive(Clone, Copy)]
struct Candidate<'v> {
    run: &'v Run,
    entry: &'v LevelEntry,
    /// Its index and filter.
    segment: &'v SegmentReader,
}

/// A key that is looked up.
pub(super) struct Search<'k> {
    key: &'k [u8],
    /// Known once a filter was asked.
    hash: Option<KeyHash>,
    /// The runs before this one do not have the key.
    run: usize,
    /// Segments that were not read because their filter knew that they do not have the key.
    spared: u64,
    /// Segments that were read in vain.
    misled: u64,
}

impl<'k> Search<'k> {
    /// Of `key`, from the newest run on.
    pub(super) const fn new(key: &'k [u8]) -> Self {
        Self {
            key,
            hash: None,
            run: 0,
            spared: 0,
            misled: 0,
        }
    }

    /// The newest binding of the key in the levels of `view`, which is the same in each call.
    ///
    /// # Errors
    /// When a segment that may hold it cannot be read. After [`EngineError::NotInMemory`] it can be called again.
    pub(super) fn advance(
        &mut self,
        view: &ReadView,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Option<OwnedEntry>, EngineError> {
        let hash = *self.hash.get_or_insert_with(|| KeyHash::of(self.key));
        let mut runs = view.version.runs().enumerate().skip(self.run);
        let found = runs.find_map(|(index, (_, run))| {
            // If what it takes is not in memory, the runs before this one are not asked again.
            self.run = index;
            self.look_in(run, hash, reading, fetch).transpose()
        });
        let mut found = found.transpose()?;
        reading.filters.count(self.spared, self.misled);
        if let Some((entry, segment)) = &mut found
            && let Some(at) = entry.pointer_mut()
        {
            *at = view.version.resolve(*at).ok_or_else(|| {
                let what = "a pointer leads to a place where the region has nothing";
                segment.corrupt(0, what)
            })?;
        }
        Ok(found.map(|(entry, _)| entry))
    }

    /// The newest binding of the key in `run`, and the segment that has it.
    ///
    /// Little is done where the filter says no, so that the processor comes to the filters of the next runs while it
    /// waits for this one's.
    #[inline]
    fn look_in(
        &mut self,
        run: &Run,
        hash: KeyHash,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Option<(OwnedEntry, SegmentName)>, EngineError> {
        let Some(entry) = run.find(self.key) else {
            return Ok(None);
        };
        let segment = reader(entry, reading.region, &reading.cache, fetch)?;
        if !segment.may_contain(hash) {
            self.spared += 1;
            return Ok(None);
        }
        let segment = &segment;
        let candidate = Candidate {
            run,
            entry,
            segment,
        };
        let found = candidate.get(self.key, reading, fetch)?;
        self.misled += u64::from(found.is_none());
        Ok(found.map(|found| (found, segment.name())))
    }
}

impl Candidate<'_> {
    /// What `key` is bound to here. Out of the loop over runs, which stays short.
    #[inline(never)]
    fn get(
        &self,
        key: &[u8],
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Option<OwnedEntry>, LevelError> {
        match self.entry.segment.form {
            Form::Leaves => in_tree(self.run, self.entry, key, reading, fetch),
            _ => {
                let stored = &self.entry.stored;
                let source = Fetched { stored, fetch };
                get_in_segment(self.segment, key, &source, Some(&reading.cache))
            }
        }
    }
}

/// What `key` is bound to in `entry`, a leaf segment of the tree of `run`.
fn in_tree(
    run: &Run,
    entry: &LevelEntry,
    key: &[u8],
    reading: &Reading,
    fetch: Fetch<'_>,
) -> Result<Option<OwnedEntry>, LevelError> {
    let tree = run.tree.as_deref();
    let stored = &entry.stored;
    let home = leaf_home(entry, tree, reading.region, Fetched { stored, fetch })?;
    let tree = tree.ok_or_else(|| home.name.corrupt(0, NO_TREE))?;
    let segments = FetchedTree { tree, fetch };
    get_in_tree(&segments, &home, key, Some(&reading.cache))
}

/// A tree whose index segments are read as `fetch` says.
struct FetchedTree<'a> {
    tree: &'a RunTree,
    fetch: Fetch<'a>,
}

impl TreeSegments for FetchedTree<'_> {
    type Bytes<'s>
        = Fetched<'s>
    where
        Self: 's;

    fn high_bits(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        self.tree.high_bits(number)
    }

    fn tree(&self) -> Tree {
        self.tree.tree()
    }

    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Fetched<'_>)> {
        self.tree.index_within(at, height, self.fetch)
    }
}
