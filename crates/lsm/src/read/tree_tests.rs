//! Trees: what is built is found again, through every height, and no damage passes.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use super::cursor::ReadAhead;
use super::nodes::get_in_tree;
use crate::names::LevelError;
use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::range::successor;
use argosy_base::{KeyRange, Kind, Pointer, SegmentNumber};
use argosy_device::Buffer;

use super::tree_cursor::{Path, TreeCursor, Way};
use crate::cache::NodeCache;
use crate::filter::KeyHash;
use crate::level::pointers::{PointerKind, for_each_pointer_mut};
use crate::level::stand::DOWN;
use crate::level::testing::{BuiltTree, Dice, KeyShape, Model, NAME, SMALL, build_tree, model};
use crate::level::tree::{Child, IndexNode};
use crate::level::verify::{verify_index_segment, verify_segment};
use crate::level::*;
use crate::merge::Source;
use crate::names::{Entry, Form, OwnedEntry};

const GEOMETRIES: [SegmentGeometry; 4] = [
    SMALL,
    SegmentGeometry {
        node_bytes: 512,
        segment_bytes: format::segment_bytes_min(512).next_multiple_of(4096),
    },
    SegmentGeometry {
        node_bytes: 4096,
        segment_bytes: format::segment_bytes_min(4096).next_multiple_of(4096),
    },
    SegmentGeometry {
        node_bytes: 8192,
        segment_bytes: 2 << 20,
    },
];

/// The leaf segment that stands for `key`.
fn home_of(made: &BuiltTree, key: &[u8]) -> Option<usize> {
    made.leaves.iter().position(|(built, _)| {
        (built.first_key.as_slice()..=built.last_key.as_slice()).contains(&key)
    })
}

fn range_of(made: &BuiltTree, index: usize) -> KeyRange {
    let (built, _) = &made.leaves[index];
    KeyRange::new(built.first_key.clone(), Some(successor(&built.last_key)))
}

const fn way(segments: &BuiltTree, path: Path) -> Way<&BuiltTree> {
    Way { segments, path }
}

fn drain(source: &mut impl Source) -> Vec<(Vec<u8>, OwnedEntry)> {
    let mut pairs = vec![];
    while let Some(key) = source.key() {
        pairs.push((key.to_vec(), source.entry().to_owned()));
        source.advance().unwrap();
    }
    pairs
}

fn pairs(model: &Model, range: &KeyRange) -> Vec<(Vec<u8>, OwnedEntry)> {
    let inside = model.iter().filter(|(key, _)| range.contains(key));
    inside
        .map(|(key, entry)| (key.clone(), entry.clone()))
        .collect()
}

/// Every node of the tree: how high it is, where it begins, and its bytes.
fn check_shape(made: &BuiltTree) {
    let sides = made.index.values().chain(&made.leaves);
    for (built, bytes) in sides {
        let mut bytes = Buffer::from_slice(&bytes.bytes);
        assert_eq!(NAME.region, built.name.region);
        assert_eq!(built.checksum, built.name.checksum(&bytes));
        let own = made
            .order
            .iter()
            .position(|number| *number == built.name.number)
            .unwrap();
        let visited = for_each_pointer_mut(built.name, &mut bytes, |kind, at| {
            let to = made.order.iter().position(|number| *number == at.segment());
            match kind {
                PointerKind::Child => assert!(to.unwrap() < own, "bottom-up"),
                PointerKind::Log => assert_eq!(built.form, Form::Leaves),
            }
            Some(at)
        });
        let visited = visited.unwrap();
        match built.form {
            Form::Index(height) => {
                assert_eq!(
                    verify_index_segment(built.name, height, &bytes, Some),
                    vec![]
                );
                assert!(visited.pointers as usize >= built.nodes.len());
                assert_eq!((built.entries, built.log_refs.len()), (0, 0));
            }
            _ => {
                let (contents, faults) = verify_segment(
                    built.name,
                    &bytes,
                    SegmentNumber(9999),
                    |_, entry| match entry {
                        Entry::Pointer { at, .. } => Some(at.segment()),
                        _ => None,
                    },
                );
                assert_eq!(faults, vec![]);
                let contents = contents.unwrap();
                assert_eq!(contents.entries, built.entries);
                assert_eq!(contents.leaves as usize, built.nodes.len());
            }
        }
    }
}

#[test]
fn trees_agree_with_a_sorted_map() {
    let mut heights = BTreeSet::new();
    for (round, geometry) in GEOMETRIES.into_iter().enumerate() {
        for shape in KeyShape::ALL {
            let mut dice = Dice::new(round as u64 * 10 + 3);
            let model = model(shape, 900, &mut dice);
            let made = build_tree(&model, geometry);
            heights.insert(made.tree.height);
            check_shape(&made);
            check_gets(&made, &model, shape, &mut dice);
            check_cursors(&made, &model, &mut dice);
            check_cursors_down(&made, &model, &mut dice);
        }
    }
    let all: Vec<_> = heights.iter().copied().collect();
    assert!(
        all.contains(&1) && all.iter().any(|height| *height > 2),
        "{all:?}"
    );
}

fn check_gets(made: &BuiltTree, model: &Model, shape: KeyShape, dice: &mut Dice) {
    let cache = NodeCache::new(1 << 20);
    let mut probes: Vec<_> = (0..200).map(|_| shape.key(dice)).collect();
    for key in model.keys() {
        probes.push(key.clone());
        probes.push([key.as_slice(), &[0]].concat());
        probes.push(key[..key.len() - 1].to_vec());
    }
    for key in probes {
        let Some(index) = home_of(made, &key) else {
            assert_eq!(model.get(&key), None);
            continue;
        };
        let home = made.home(index);
        let reader = SegmentReader::open(home.name, home.len, &home.bytes).unwrap();
        assert_eq!((reader.form(), reader.leaves()), (Form::Leaves, 0));
        let hash = KeyHash::of(&key);
        let may_have = reader.spans(&key) && reader.may_contain(hash);
        assert!(may_have || !model.contains_key(&key));
        let cache = (dice.below(2) == 0).then_some(&cache);
        let found = get_in_tree(made, &home, &key, cache).unwrap();
        assert_eq!(found.as_ref(), model.get(&key), "{shape:?} {key:?}");
    }
}

fn check_cursors(made: &BuiltTree, model: &Model, dice: &mut Dice) {
    let cache = Arc::new(NodeCache::new(1 << 20));
    let mut path = Path::default();
    let mut all = vec![];
    for index in 0..made.leaves.len() {
        let whole = range_of(made, index);
        let (home, ahead) = (made.home(index), ReadAhead::COMPACTION);
        let mut cursor = TreeCursor::new(way(made, path), home, None, &whole, ahead).unwrap();
        all.extend(drain(&mut cursor));
        path = cursor.into_path();
        let keys = pairs(model, &whole);
        for _ in 0..4 {
            let any = |dice: &mut Dice| keys[dice.below(keys.len())].0.clone();
            let from = any(dice);
            let to = match dice.below(3) {
                0 => successor(&keys.last().unwrap().0),
                _ => any(dice),
            };
            let range = KeyRange::new(from, Some(to));
            let ahead = ReadAhead {
                first: dice.below(3000),
                max: dice.below(9000),
                begun: dice.below(4),
            };
            let cached = (dice.below(2) == 0).then(|| cache.clone());
            let home = made.home(index);
            let mut cursor =
                TreeCursor::new(way(made, Path::default()), home, cached, &range, ahead).unwrap();
            assert_eq!(drain(&mut cursor), pairs(model, &range));
        }
    }
    assert_eq!(all, pairs(model, &KeyRange::all()));
}

/// The same from the highest key down, and from one segment to the one before it.
fn check_cursors_down(made: &BuiltTree, model: &Model, dice: &mut Dice) {
    let cache = Arc::new(NodeCache::new(1 << 20));
    let cursor = |index, path, cached, range: &KeyRange, ahead| {
        let (way, home) = (way(made, path), made.home(index));
        TreeCursor::<_, _, DOWN>::either_way(way, home, cached, range, ahead).unwrap()
    };
    let mut path = Path::default();
    let mut all = vec![];
    for index in (0..made.leaves.len()).rev() {
        let whole = range_of(made, index);
        let mut falling = cursor(index, path, None, &whole, ReadAhead::COMPACTION);
        all.extend(drain(&mut falling));
        path = falling.into_path();
        let keys = pairs(model, &whole);
        for _ in 0..4 {
            let from = keys[dice.below(keys.len())].0.clone();
            let to = match dice.below(3) {
                0 => whole.to.clone(),
                1 => Some(successor(&keys[dice.below(keys.len())].0)),
                _ => Some(keys[dice.below(keys.len())].0.clone()),
            };
            let range = KeyRange::new(from, to);
            let ahead = ReadAhead {
                first: dice.below(3000),
                max: dice.below(9000),
                begun: dice.below(4),
            };
            let cached = (dice.below(2) == 0).then(|| cache.clone());
            let mut found = drain(&mut cursor(index, Path::default(), cached, &range, ahead));
            found.reverse();
            assert_eq!(found, pairs(model, &range), "{range}");
        }
    }
    all.reverse();
    assert_eq!(all, pairs(model, &KeyRange::all()));
}

/// The way to the next segment is known from the one before: an index node is read once.
#[test]
fn a_walk_reads_every_index_node_once() {
    walk_reads_every_index_node_once::<false>();
    walk_reads_every_index_node_once::<DOWN>();
}

fn walk_reads_every_index_node_once<const DOWN: bool>() {
    let mut dice = Dice::new(8);
    let model = model(KeyShape::Hashed, 6000, &mut dice);
    let made = build_tree(&model, SMALL);
    assert!(made.tree.height >= 2 && made.leaves.len() > 4);
    let mut path = Path::default();
    let leaves = made.leaves.len();
    for index in 0..leaves {
        let index = if DOWN { leaves - 1 - index } else { index };
        let (range, home) = (range_of(&made, index), made.home(index));
        let (ahead, way) = (ReadAhead::COMPACTION, way(&made, path));
        let cursor = TreeCursor::<_, _, DOWN>::either_way(way, home, None, &range, ahead);
        let mut cursor = cursor.unwrap();
        drain(&mut cursor);
        path = cursor.into_path();
    }
    let nodes: usize = made
        .index
        .values()
        .map(|(built, _)| built.nodes.len())
        .sum();
    let reads: u32 = made.index.values().map(|(_, bytes)| bytes.reads()).sum();
    assert_eq!(reads as usize, nodes);
}

/// A get goes down through one node of each height, and from a cache through none that it has.
#[test]
fn a_get_reads_one_node_of_each_height() {
    let mut dice = Dice::new(9);
    let model = model(KeyShape::Hashed, 6000, &mut dice);
    let made = build_tree(&model, SMALL);
    let reads =
        |made: &BuiltTree| -> u32 { made.index.values().map(|(_, bytes)| bytes.reads()).sum() };
    let cache = NodeCache::new(4 << 20);
    for (key, entry) in model.iter().step_by(50) {
        let before = reads(&made);
        let home = made.home(home_of(&made, key).unwrap());
        let found = get_in_tree(&made, &home, key, None).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
        assert_eq!(reads(&made) - before, u32::from(made.tree.height));
        get_in_tree(&made, &home, key, Some(&cache)).unwrap();
        let before = reads(&made);
        get_in_tree(&made, &home, key, Some(&cache)).unwrap();
        assert_eq!(reads(&made), before);
    }
}

/// What a tree is built of decides its bytes.
#[test]
fn equal_pairs_make_equal_trees() {
    let mut dice = Dice::new(10);
    let model = model(KeyShape::Mixed, 2000, &mut dice);
    let (a, b) = (build_tree(&model, SMALL), build_tree(&model, SMALL));
    assert_eq!((a.tree, &a.order), (b.tree, &b.order));
    let sums = |made: &BuiltTree| -> Vec<u32> {
        let all = made.leaves.iter().chain(made.index.values());
        all.map(|(built, _)| built.checksum).collect()
    };
    assert_eq!(sums(&a), sums(&b));
}

/// How many children are of each segment.
type Listed = Vec<(SegmentNumber, u64)>;

/// An index segment whose footer is whole, but lists other children than its nodes have: another
/// segment, or another count of one.
#[test]
fn a_wrong_list_of_children_is_found() {
    let mut dice = Dice::new(13);
    let model = model(KeyShape::Numbered, 1500, &mut dice);
    let made = build_tree(&model, SMALL);
    let mut planted = 0;
    for (built, bytes) in made.index.values() {
        let Form::Index(height) = built.form else {
            panic!("{}", built.form);
        };
        let whole = &bytes.bytes;
        let verify = |bytes: &Buffer, high: fn(SegmentNumber) -> Option<SegmentNumber>| {
            verify_index_segment(built.name, height, bytes, high)
        };
        let with = |change: &dyn Fn(&mut Listed)| {
            let mut bytes = Buffer::from_slice(whole);
            let at = bytes.len() - format::FOOTER_BYTES;
            let footer = bytes[at..].first_chunk().unwrap();
            let footer = format::Footer::parse(footer, built.name, at as u32).unwrap();
            let [.., from, to] = footer.bounds().map(|at| at as usize);
            let table = &bytes[from..to];
            let mut table = format::Table::parse(table, built.name, from as u32).unwrap();
            change(&mut table.log_refs);
            let table = table.encode(built.name, from as u32);
            assert_eq!(table.len(), to - from, "it has the old one's place");
            bytes[from..to].copy_from_slice(&table);
            bytes
        };
        assert_eq!(verify(&with(&|_| {}), Some), vec![]);
        let listed = "the footer's segments of children are not those that the nodes lead to";
        let wrong = |faults: Vec<verify::Fault>| {
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert_eq!(faults[0].what, listed);
        };
        wrong(verify(&with(&|refs| refs[0].1 += 1), Some));
        wrong(verify(&with(&|refs| refs.last_mut().unwrap().1 -= 1), Some));
        // Which segment it is nobody can tell who does not know its pointers.
        let renamed = with(&|refs| refs[0].0.0 -= 1);
        wrong(verify(&renamed, Some));
        assert_eq!(verify(&renamed, |_| None), vec![]);
        planted += 1;
    }
    assert!(planted > 1);
}

/// A flipped byte anywhere in the index is an error, or the right answer where nothing was read of it.
#[test]
fn every_flipped_byte_is_found() {
    let mut dice = Dice::new(12);
    let model = model(KeyShape::Numbered, 1500, &mut dice);
    let mut made = build_tree(&model, SMALL);
    let keys: Vec<_> = model.keys().cloned().collect();
    let numbers: Vec<_> = made.index.keys().copied().collect();
    let mut errors = 0;
    for round in 0..600 {
        let number = numbers[dice.below(numbers.len())];
        let (built, bytes) = &made.index[&number];
        let height = match built.form {
            Form::Index(height) => height,
            form => panic!("{form}"),
        };
        let (name, nodes_end) = (
            built.name,
            built.nodes.last().map_or(0, |n| n.offset + n.len),
        );
        let whole = Buffer::from_slice(&bytes.bytes);
        let mut damaged = Buffer::from_slice(&whole);
        let at = match round % 3 {
            0 => dice.below(damaged.len()),
            _ => dice.below(nodes_end as usize),
        };
        damaged[at] ^= 1 << dice.below(8);
        assert_ne!(
            verify_index_segment(name, height, &damaged, Some),
            vec![],
            "byte {at}"
        );
        made.index.get_mut(&number).unwrap().1 = Arc::new(testing::Counted::new(damaged));
        for _ in 0..20 {
            let key = &keys[dice.below(keys.len())];
            let home = made.home(home_of(&made, key).unwrap());
            match get_in_tree(&made, &home, key, None) {
                Ok(found) => assert_eq!(found.as_ref(), model.get(key)),
                Err(LevelError::Corrupt { segment, .. }) => {
                    assert_eq!(segment, number);
                    errors += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        made.index.get_mut(&number).unwrap().1 = Arc::new(testing::Counted::new(whole));
    }
    assert!(errors > 100, "{errors}");
}

/// Nodes that are whole, but not those that their parents lead to, are refused.
#[test]
fn a_pointer_to_the_wrong_node_is_found() {
    let mut dice = Dice::new(14);
    let model = model(KeyShape::Hashed, 6000, &mut dice);
    let mut made = build_tree(&model, SMALL);
    let numbers: Vec<_> = made.index.keys().copied().collect();
    let mut targets: Vec<Pointer> = vec![Pointer::default(), Pointer::from_raw(u64::MAX)];
    for (built, _) in made.leaves.iter().chain(made.index.values()) {
        let at = built
            .nodes
            .iter()
            .map(|node| Pointer::new(built.name.number, node.offset));
        targets.extend(at);
    }
    let mut errors = 0;
    for _ in 0..200 {
        let number = numbers[dice.below(numbers.len())];
        let (built, bytes) = &made.index[&number];
        let whole = Buffer::from_slice(&bytes.bytes);
        let mut wrong = Buffer::from_slice(&whole);
        let target = targets[dice.below(targets.len())];
        let chosen = dice.below(built.nodes.len());
        let mut count = 0;
        let mut changed = None;
        for_each_pointer_mut(built.name, &mut wrong, |_, at| {
            count += 1;
            if count == chosen + 1 {
                changed = Some(at);
                return Some(target);
            }
            Some(at)
        })
        .unwrap();
        if changed == Some(target) {
            continue;
        }
        made.index.get_mut(&number).unwrap().1 = Arc::new(testing::Counted::new(wrong));
        for (key, entry) in model.iter().step_by(7) {
            let home = made.home(home_of(&made, key).unwrap());
            match get_in_tree(&made, &home, key, None) {
                Ok(found) => assert_eq!(found.as_ref(), Some(entry)),
                Err(LevelError::Corrupt { .. }) => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        made.index.get_mut(&number).unwrap().1 = Arc::new(testing::Counted::new(whole));
    }
    assert!(errors > 100, "{errors}");
}

/// Random bytes under a right checksum are refused or harmless.
#[test]
fn nodes_that_lie_are_refused_or_harmless() {
    let mut dice = Dice::new(15);
    let model = model(KeyShape::Nested, 400, &mut dice);
    let made = build_tree(&model, SMALL);
    let (built, bytes) = made.index.values().next().unwrap();
    let node = &built.nodes[0];
    let (from, to) = (node.offset as usize, (node.offset + node.len) as usize);
    for _ in 0..3000 {
        let mut lying = bytes.bytes[from..to].to_vec();
        for _ in 0..=dice.below(3) {
            let at = dice.below(lying.len());
            lying[at] = dice.next() as u8;
        }
        let crc = built
            .name
            .identity(Kind::Index, node.offset)
            .checksum(&lying[4..]);
        lying[..4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(node) = IndexNode::parse(&lying, built.name, node.offset) {
            for key in model.keys() {
                let child: Child = node.child(node.find(key));
                assert!(child.len > 0);
            }
        }
    }
}

/// The bytes are stored: a change would make every existing tree unreadable.
#[test]
fn the_format_never_changes() {
    let model: Model = (0..40u8)
        .map(|n| (vec![b'k', n], OwnedEntry::Inline(vec![n; 60])))
        .collect();
    let made = build_tree(&model, SMALL);
    let (built, bytes) = made.index.values().next().unwrap();
    assert_eq!((made.tree.height, made.index.len()), (1, 1));
    let node = &bytes.bytes[..512];
    assert_eq!(made.tree.root.to_raw(), (built.name.number.0) << 21);
    // Ascending from the floor: the last child first. 2, key_len, len 512, pointer; the separator's
    // first byte is what all have in common, its second is in the slot.
    let floor = u16::from_le_bytes([node[6], node[7]]) as usize;
    let last = &node[floor..floor + 12];
    assert_eq!(last[..4], [2, 2, 0x80, 4], "a pointer to 512 bytes");
    let separator = &made.leaves[0].0.nodes.last().unwrap().separator;
    assert_eq!(node[floor - 1], separator[0]);
    let slot = 16 + 8 * (made.leaves[0].0.nodes.len() - 1);
    assert_eq!(node[slot + 7], separator[1]);
    let at = Pointer::from_raw(u64::from_le_bytes(last[4..12].try_into().unwrap()));
    assert_eq!(
        at,
        Pointer::new(
            SegmentNumber(22),
            made.leaves[0].0.nodes.last().unwrap().offset
        )
    );
    assert_eq!(
        node[4..6],
        (made.leaves[0].0.nodes.len() as u16).to_le_bytes()
    );
    let footer = &bytes.bytes[bytes.bytes.len() - 128..];
    assert_eq!(footer[8..12], [7, 0, 0, 0], "the format");
    assert_eq!(footer[72], 2, "height 1");
    let leaves = &made.leaves[0].1.bytes;
    assert_eq!(leaves[leaves.len() - 128 + 72], 1, "leaves");
}
