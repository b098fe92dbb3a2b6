//! Tests of reads that a walk begins before it needs them.

use crate::names::LevelError;
use argosy_device::{BegunRead, Buffer};
use std::sync::{Arc, Mutex};

use argosy_base::KeyRange;

use super::cursor::*;
use crate::level::testing::{Dice, KeyShape, NAME, build, model};
use crate::level::*;
use crate::merge::Source;

/// A segment that writes down which reads were begun, and which of them had been when one was needed.
struct Early {
    bytes: Buffer,
    begun: Mutex<Vec<u32>>,
    needed: Mutex<Vec<(u32, bool)>>,
    /// Most reads that were begun and not yet needed, at any time.
    most: Mutex<usize>,
    /// From which byte on reads fail.
    damaged: u32,
}

impl ReadAt for Early {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        let was_begun = self.begun.lock().unwrap().contains(&offset);
        self.needed.lock().unwrap().push((offset, was_begun));
        if offset >= self.damaged {
            return Err(NAME.corrupt(offset, "planted"));
        }
        self.bytes.read_at(offset, out)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        self.begun.lock().unwrap().push(offset);
        let (begun, needed) = reads(self);
        let needed = needed.iter().filter(|(_, begun)| *begun).count();
        let mut most = self.most.lock().unwrap();
        *most = most.max(begun.len() - needed);
        BegunRead::later(bytes)
    }
}

/// Reads 40 KiB at a time, and begins `begun` such reads ahead.
fn ahead(begun: usize) -> ReadAhead {
    ReadAhead {
        first: 40 << 10,
        max: 40 << 10,
        begun,
    }
}

/// Goes through `range`. Tells how many pairs there were, and why it ended early if it did.
fn walk(
    segment: &Arc<SegmentReader>,
    source: &Arc<Early>,
    range: &KeyRange,
    begun: usize,
) -> (usize, Option<LevelError>) {
    source.begun.lock().unwrap().clear();
    source.needed.lock().unwrap().clear();
    let cursor = LevelCursor::new(segment.clone(), source.clone(), None, range, ahead(begun));
    go_through(cursor.unwrap())
}

fn go_through(mut cursor: LevelCursor<Arc<Early>>) -> (usize, Option<LevelError>) {
    let mut pairs = 0;
    while cursor.key().is_some() {
        pairs += 1;
        if let Err(error) = cursor.advance() {
            return (pairs, Some(error));
        }
    }
    (pairs, None)
}

/// The reads that were begun, and those that were needed.
fn reads(source: &Early) -> (Vec<u32>, Vec<(u32, bool)>) {
    let begun = source.begun.lock().unwrap().clone();
    (begun, source.needed.lock().unwrap().clone())
}

fn segment() -> (Arc<SegmentReader>, Early, usize) {
    let geometry = SegmentGeometry {
        node_bytes: 4096,
        segment_bytes: 512 << 10,
    };
    let pairs = model(KeyShape::Hashed, 20_000, &mut Dice::new(5));
    let built = build(&pairs, geometry).swap_remove(0);
    let len = u32::try_from(built.bytes.len()).unwrap();
    let segment = SegmentReader::open(built.name, len, &built.bytes).unwrap();
    let entries = segment.entries() as usize;
    let source = Early {
        bytes: built.bytes,
        begun: Mutex::default(),
        needed: Mutex::default(),
        most: Mutex::default(),
        damaged: u32::MAX,
    };
    (Arc::new(segment), source, entries)
}

#[test]
fn a_walk_through_all_begins_its_long_reads() {
    let (segment, source, entries) = segment();
    let source = Arc::new(source);
    for begun in 1..4 {
        let (pairs, error) = walk(&segment, &source, &KeyRange::all(), begun);
        assert!(pairs == entries && error.is_none(), "{error:?}");
        let (reads_begun, needed) = reads(&source);
        assert!(needed.len() > 5, "{needed:?}");
        assert!(needed[1..].iter().all(|(_, begun)| *begun), "{needed:?}");
        let fetched = needed[1..].iter().map(|(at, _)| *at);
        assert!(fetched.eq(reads_begun), "once, in their order");
        assert_eq!(*source.most.lock().unwrap(), begun);
    }
    // Readers that may end anywhere.
    assert_eq!(walk(&segment, &source, &KeyRange::all(), 0).0, entries);
    assert!(reads(&source).0.is_empty());
}

#[test]
fn the_first_leaves_of_a_range_can_be_on_their_way() {
    let (segment, source, entries) = segment();
    let source = Arc::new(source);
    for leaf in [0, 1, 20] {
        let from = segment.read_leaf(leaf, &*source).unwrap().last_key();
        let range = KeyRange { from, to: None };
        let ahead = ahead(1);
        source.begun.lock().unwrap().clear();
        source.needed.lock().unwrap().clear();
        let opened = Opened::begin(segment.clone(), &source, &range, ahead);
        let cursor = LevelCursor::opened(opened, source.clone(), None, &range, ahead);
        let (pairs, error) = go_through(cursor.unwrap());
        assert!(pairs > 0 && pairs < entries && error.is_none(), "{error:?}");
        let (_, needed) = reads(&source);
        assert!(needed.iter().all(|(_, begun)| *begun), "{needed:?}");
    }
}

#[test]
fn nothing_is_begun_behind_the_range() {
    let (segment, source, _) = segment();
    let source = Arc::new(source);
    for leaf in [1, 7, 20, 50] {
        let key = segment
            .read_leaf(leaf, &*source)
            .unwrap()
            .first_key()
            .to_vec();
        let range = KeyRange {
            from: Vec::new(),
            to: Some(key),
        };
        assert!(walk(&segment, &source, &range, 2).0 > 0);
        let (begun, _) = reads(&source);
        let end = segment.leaf_span(leaf).end;
        assert!(begun.iter().all(|at| *at < end), "{begun:?} beyond {end}");
    }
}

#[test]
fn an_error_of_a_read_comes_where_the_walk_gets_there() {
    let (segment, mut source, entries) = segment();
    source.damaged = 200 << 10;
    let (pairs, error) = walk(&segment, &Arc::new(source), &KeyRange::all(), 2);
    assert!(
        pairs > entries / 4 && pairs < entries,
        "{pairs} of {entries}"
    );
    assert!(
        matches!(
            error,
            Some(LevelError::Corrupt {
                what: "planted",
                ..
            })
        ),
        "{error:?}"
    );
}
