//! A manifest against everything that a crash may leave of its last append, and against damage that
//! no crash explains.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]

use argosy_base::codec::varint_len;
use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{AddressMode, Remedy, SegmentNumber, ServerId};
use argosy_device::{Crash, Device, FormatOptions, MemoryDevice, OpKind, StoreSettings};
use proptest::prelude::*;

use super::format::{Fragment, LAST_OF_APPEND, VERSION, WITNESSES_BYTES};
use super::*;
use crate::pins::PinError;

const REGION: RegionId = RegionId(7);
const SEGMENT: u32 = 4 * BLOCK_SIZE as u32;

fn store(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let device = Arc::<MemoryDevice>::clone(device);
    Store::open(device, &StoreSettings::default()).unwrap()
}

fn new_device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::eager(64 * SEGMENT_SIZE as u64, 1);
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(1),
        created_by: "test".to_owned(),
    };
    Store::format(&device, &options).unwrap();
    Arc::new(device)
}

/// Flips a bit in the last append of the first region of `device`, which `choice` says, unless that is
/// the checkpoint. Returns whether it did.
pub(crate) fn damage_last_append(
    device: &Arc<MemoryDevice>,
    segment_bytes: u32,
    choice: u64,
) -> bool {
    let opened: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open_read_only(opened).unwrap();
    let entry = store.regions()[0].clone();
    let mut fragments = Vec::new();
    let mut index = 0;
    for place in &entry.manifest {
        let mut bytes = Buffer::zeroed(segment_bytes as usize);
        store.read(*place, 0, &mut bytes).unwrap();
        let mut at = match index {
            0 => WITNESSES_BYTES,
            _ => 0,
        };
        while let Some(found) = Fragment::parse(entry.region, entry.words[0], &bytes, at) {
            if found.index != index {
                break;
            }
            let from = place.start() + u64::from(at);
            fragments.push((found.append, from..from + u64::from(found.blocks)));
            index += 1;
            at += found.blocks;
        }
    }
    let last = fragments.last().map_or(0, |(append, _)| *append);
    let first = fragments.first().map_or(0, |(append, _)| *append);
    fragments.retain(|(append, _)| *append == last && *append != first);
    if fragments.is_empty() {
        return false;
    }
    let (_, range) = &fragments[choice as usize % fragments.len()];
    let at = range.start + (choice >> 8) % (range.end - range.start);
    device.flip_bit(at, (choice >> 32) as u32 % 8);
    true
}

/// Overwrites what `store` does not keep with something else, in a copy of its device.
pub(crate) fn overwrite_free(device: &MemoryDevice, store: &Store, segment_bytes: u32) {
    let junk = vec![0xee; segment_bytes as usize];
    for segment in (1..store.total()).map(DeviceSegment) {
        if store.references(segment) == 0 {
            device.poke(segment.start(), &junk);
        }
    }
}

/// A record of about `len` bytes that no other number has.
fn record(number: u64, len: usize) -> ManifestRecord {
    let edit = number.to_le_bytes().into_iter().cycle().take(len).collect();
    let places = vec![(SegmentNumber(number), DeviceSegment(number as u32))];
    ManifestRecord { edit, places }
}

fn create(device: &Arc<MemoryDevice>) -> Manifest {
    let store = store(device);
    store.finish_recovery();
    Manifest::create(
        &store,
        REGION,
        SEGMENT,
        AddressMode::Rewrite as u64,
        &record(0, 100),
    )
    .unwrap()
}

fn append(manifest: &mut Manifest, records: &[ManifestRecord]) {
    manifest.append(records.to_vec()).unwrap();
    manifest.wait().unwrap();
}

fn reopen(device: &Arc<MemoryDevice>) -> Result<(Manifest, Vec<ManifestRecord>), ManifestError> {
    let store = store(device);
    let entry = store.regions()[0].clone();
    let opened = Manifest::open(&store, &entry, SEGMENT)?;
    store.finish_recovery();
    Ok(opened)
}

fn records(device: &Arc<MemoryDevice>) -> Vec<ManifestRecord> {
    reopen(device).unwrap().1
}

/// Where byte `at` of what was appended lies on the device.
fn on_device(manifest: &Manifest, at: u32) -> u64 {
    let at = WITNESSES_BYTES + at;
    let segment = manifest.chain().nth((at / SEGMENT) as usize).unwrap();
    segment.start() + u64::from(at % SEGMENT)
}

#[test]
fn records_return_in_order_through_growth_and_checkpoints() {
    let device = new_device();
    let mut manifest = create(&device);
    let mut expected = vec![record(0, 100)];
    for number in 1..40u64 {
        // From much less than a block to more than a segment.
        let len = [10, 5000, 300, 20_000][number as usize % 4];
        let some = [record(number, len), record(100 + number, 50)];
        append(&mut manifest, &some);
        expected.extend(some);
        if manifest.wants_checkpoint() && number % 3 == 0 {
            let checkpoint = record(200 + number, len);
            manifest.checkpoint(&checkpoint).unwrap();
            manifest.wait().unwrap();
            assert!(!manifest.wants_checkpoint());
            expected = vec![checkpoint];
        }
        assert_eq!(records(&device), expected, "after {number}");
        // Opened in between, it goes on just so.
        if number % 5 == 0 {
            manifest = reopen(&device).unwrap().0;
        }
    }
}

/// The old chain is given back once the catalog names the new one.
#[test]
fn a_checkpoint_frees_what_was_before() {
    let device = new_device();
    let mut manifest = create(&device);
    for number in 1..20 {
        append(&mut manifest, &[record(number, 4000)]);
    }
    let used = manifest.store.used();
    assert!(manifest.chain().count() >= 4);
    manifest.checkpoint(&record(20, 100)).unwrap();
    manifest.wait().unwrap();
    assert_eq!(manifest.chain().count(), 1);
    assert!(manifest.store.used() < used);
    assert_eq!(manifest.store.used(), 2);
}

/// The blocks of the last append, one by one and in all combinations, may be missing.
#[test]
fn a_torn_append_is_cut_to_whole_records() {
    let last = [record(2, 50), record(3, 5000), record(4, 50)];
    for lost in 1..16u32 {
        let device = new_device();
        let mut manifest = create(&device);
        append(&mut manifest, &[record(1, 50)]);
        append(&mut manifest, &last);
        for block in (0..4).filter(|block| lost & 1 << block != 0) {
            // Behind the checkpoint and the first append.
            let at = on_device(&manifest, (2 + block) * BLOCK_SIZE as u32);
            device.poke(at, &[0; BLOCK_SIZE]);
        }
        let (mut again, found) = reopen(&device).unwrap();
        let whole = match lost.trailing_zeros() {
            0 => 0,
            1 | 2 => 1,
            _ => 2,
        };
        let mut expected = vec![record(0, 100), record(1, 50)];
        expected.extend_from_slice(&last[..whole]);
        assert_eq!(found, expected, "lost {lost:#06b}");
        // It goes on there, and what is left of the torn append is never taken for anything,
        // even when the next append is torn in turn.
        append(&mut again, &[record(5, 6000)]);
        expected.push(record(5, 6000));
        assert_eq!(records(&device), expected, "lost {lost:#06b}");
        let begin = (2 + [0, 1, 3][whole]) * BLOCK_SIZE as u32;
        device.poke(on_device(&again, begin), &[0; BLOCK_SIZE]);
        expected.pop();
        assert_eq!(records(&device), expected, "lost {lost:#06b}, then again");
    }
}

/// Damage to an append that was durable before a later one began is not a torn tail.
#[test]
fn damage_in_the_middle_is_reported() {
    for block in 0..9u32 {
        for bit in [0, 3] {
            let device = new_device();
            let mut manifest = create(&device);
            append(&mut manifest, &[record(1, 50), record(2, 5000)]);
            append(&mut manifest, &[record(3, 9000)]);
            append(&mut manifest, &[record(4, 50), record(5, 50)]);
            assert_eq!(manifest.cursor.bytes(SEGMENT) / BLOCK_SIZE as u64, 2 + 9);
            let at = on_device(&manifest, block * BLOCK_SIZE as u32);
            device.flip_bit(at + 5 * u64::from(block), bit);
            let found = reopen(&device).map(|(_, records)| records.len());
            match block {
                // The last append may be torn.
                7 => assert!(matches!(found, Ok(4)), "{found:?}"),
                8 => assert!(matches!(found, Ok(5)), "{found:?}"),
                _ => {
                    let error = found.unwrap_err();
                    assert!(matches!(error, ManifestError::Corrupt { .. }), "{error}");
                    assert_eq!(error.remedy(), Remedy::Repair);
                }
            }
        }
    }
}

fn witness(manifest: &mut Manifest) {
    manifest.begin_witness();
    manifest.wait().unwrap();
    assert!(manifest.is_witnessed());
}

/// Whatever damage hits the last append: its witness says that it was there.
#[test]
fn damage_to_an_append_with_a_witness_is_reported() {
    for (block, byte) in (1..5).flat_map(|block| [0, 17, 25, 600].map(|byte| (block, byte))) {
        let device = new_device();
        let mut manifest = create(&device);
        append(&mut manifest, &[record(1, 50)]);
        assert!(!manifest.is_witnessed());
        append(&mut manifest, &[record(2, 5000), record(3, 50)]);
        witness(&mut manifest);
        assert!(reopen(&device).unwrap().0.is_witnessed());
        device.flip_bit(on_device(&manifest, block * BLOCK_SIZE as u32) + byte, 3);
        let error = reopen(&device).map(drop).unwrap_err();
        assert_eq!(error.remedy(), Remedy::Repair, "{error}");
    }
}

/// The later witness may be torn: the one before counts, and the next goes where the torn one is. Without either of
/// them the manifest is as it was before them, and gets one anew.
#[test]
fn a_damaged_witness_takes_nothing_with_it() {
    for damaged in [&[0][..], &[1], &[0, 1]] {
        let device = new_device();
        let mut manifest = create(&device);
        for number in 1..=2 {
            append(&mut manifest, &[record(number, 50)]);
            witness(&mut manifest);
        }
        let whole = records(&device);
        let first = manifest.chain().next().unwrap().start();
        for place in damaged {
            device.flip_bit(first + place * BLOCK_SIZE as u64 + 17, 3);
        }
        let (mut again, found) = reopen(&device).unwrap();
        assert_eq!(found, whole);
        assert!(!again.is_witnessed(), "it is written anew");
        witness(&mut again);
        device.flip_bit(on_device(&again, 2 * BLOCK_SIZE as u32), 3);
        assert!(reopen(&device).is_err());
    }
}

/// While the next append is written, damage to the one before is told all the same.
#[test]
fn a_witness_outlives_the_next_append_that_was_torn() {
    let device = new_device();
    let mut manifest = create(&device);
    append(&mut manifest, &[record(1, 50)]);
    witness(&mut manifest);
    append(&mut manifest, &[record(2, 50)]);
    let torn = on_device(&manifest, 2 * BLOCK_SIZE as u32);
    device.poke(torn, &[0; BLOCK_SIZE]);
    assert_eq!(records(&device).len(), 2);
    device.flip_bit(on_device(&manifest, BLOCK_SIZE as u32) + 50, 1);
    assert!(reopen(&device).is_err());
}

/// What an opening finds of an append that was torn is no torn tail later on.
#[test]
fn what_is_left_of_a_torn_append_gets_a_witness() {
    let device = new_device();
    let mut manifest = create(&device);
    append(
        &mut manifest,
        &[record(1, 50), record(2, 50), record(3, 50)],
    );
    device.poke(
        on_device(&manifest, 2 * BLOCK_SIZE as u32),
        &[0; BLOCK_SIZE],
    );
    let (mut again, found) = reopen(&device).unwrap();
    assert_eq!((found.len(), again.is_witnessed()), (2, false));
    witness(&mut again);
    let (again, found) = reopen(&device).unwrap();
    assert_eq!((found.len(), again.is_witnessed()), (2, true));
    device.flip_bit(on_device(&manifest, BLOCK_SIZE as u32) + 50, 1);
    let error = reopen(&device).map(drop).unwrap_err();
    assert!(matches!(error, ManifestError::Corrupt { .. }), "{error}");
}

/// What may have become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Whole,
    /// Never written.
    Zero,
    /// Its first sector was written, and the others were not.
    Torn,
    /// A bit is another, in the payload.
    Flipped,
    /// What the device held there in another life.
    Stale,
    /// The block that stands first in the chain, written here.
    Misdirected,
}

impl Block {
    const ALL: [Self; 6] = [
        Self::Whole,
        Self::Zero,
        Self::Torn,
        Self::Flipped,
        Self::Stale,
        Self::Misdirected,
    ];

    /// A block that was `bytes`, in a chain that begins with `first`.
    fn of(self, bytes: &[u8], first: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match self {
            Self::Whole => {}
            Self::Zero => bytes.fill(0),
            Self::Torn => bytes[512..].fill(0),
            Self::Flipped => bytes[2000] ^= 4,
            Self::Stale => bytes.fill(0xa5),
            Self::Misdirected => bytes.copy_from_slice(first),
        }
        bytes
    }
}

/// The appends of the five blocks of the test below: a checkpoint, and two appends of two records of a block each.
const APPENDS: [u32; 5] = [0, 1, 1, 2, 2];

/// Which row of the table of [`replay`](super::replay) is about these blocks, and how many records they have:
/// `None` for corruption.
fn row_of(states: &[Block; 5]) -> (usize, Option<usize>) {
    // The first block is where a misdirected one belongs.
    let is_whole = |block: usize| {
        states[block] == Block::Whole || (block, states[block]) == (0, Block::Misdirected)
    };
    let later = |append: u32| (0..5).any(|block| APPENDS[block] > append && is_whole(block));
    match (0..5).find(|block| !is_whole(*block)) {
        None => (0, Some(5)),
        Some(0) => (1, None),
        Some(first) if !later(APPENDS[first]) => (2, Some(first)),
        Some(_) => (3, None),
    }
}

/// What is said of a tail that was cut behind `count` records.
fn check_tail(states: &[Block; 5], count: usize, torn: Option<&str>) {
    let in_append = [2, 4].contains(&count);
    if in_append {
        assert_eq!(torn, Some("the last append is not whole"), "{states:?}");
    } else if count == 5 || states[count] == Block::Zero {
        assert_eq!(torn, None, "{states:?}");
    } else if [Block::Torn, Block::Flipped].contains(&states[count]) {
        assert_eq!(torn, Some("the last append is damaged"), "{states:?}");
    }
}

/// The table, with everything that may have become of each block of a chain of two segments.
#[test]
fn each_row_of_the_table_of_ends() {
    let device = new_device();
    let all: Vec<_> = (0..5).map(|number| record(number, 3000)).collect();
    let mut manifest = {
        let store = store(&device);
        store.finish_recovery();
        let shape = AddressMode::Rewrite as u64;
        Manifest::create(&store, REGION, SEGMENT, shape, &all[0]).unwrap()
    };
    append(&mut manifest, &all[1..3]);
    append(&mut manifest, &all[3..5]);
    let places = [0, 1, 2, 3, 4].map(|block| on_device(&manifest, block * BLOCK_SIZE as u32));
    let entry = manifest.store.regions()[0].clone();
    let whole = places.map(|at| {
        let mut bytes = vec![0; BLOCK_SIZE];
        device.read(at, &mut bytes).unwrap();
        bytes
    });
    let mut rows = [0; 4];
    for combination in 0..6usize.pow(5) {
        let states: [Block; 5] =
            std::array::from_fn(|block| Block::ALL[combination / 6usize.pow(block as u32) % 6]);
        for (block, state) in states.iter().enumerate() {
            device.poke(places[block], &state.of(&whole[block], &whole[0]));
        }
        let (row, expected) = row_of(&states);
        rows[row] += 1;
        match (
            super::replay::replay(&manifest.store, &entry, SEGMENT),
            expected,
        ) {
            (Ok(found), Some(count)) => {
                assert_eq!(found.records, all[..count], "{states:?}");
                check_tail(&states, count, found.torn.map(|torn| torn.what));
            }
            (Err(ManifestError::Corrupt { .. }), None) => {}
            (found, _) => panic!("{states:?}: {:?}", found.map(|found| found.records.len())),
        }
    }
    // Of the third row, the first block that is not whole is block 1 or 2, and neither of the last append's
    // is; or it is block 3 or 4. Of the fourth, it is block 1 or 2 as well. The checkpoint has two whole states.
    let last = (5 * 6 + 5) * 5 * 5 + 5 * 6 + 5;
    assert_eq!(rows, [2, 4 * 1296, 2 * last, 2 * (5 * 6 + 5) * (36 - 25)]);
}

/// A block of the first segment, and what is put of it where.
struct MovedBlock {
    from: u32,
    to: u32,
    /// Which of its bytes becomes another one.
    changed: usize,
    byte: u8,
}

/// Puts a block where it is said, with the checksum that it has there.
fn put_block(device: &MemoryDevice, manifest: &Manifest, moved: MovedBlock) {
    let MovedBlock {
        from,
        to,
        changed,
        byte,
    } = moved;
    let mut bytes = Buffer::zeroed(BLOCK_SIZE);
    let segment = manifest.chain().next().unwrap();
    manifest.store.read(segment, from, &mut bytes).unwrap();
    bytes[changed] = byte;
    let generation = manifest.cursor.generation();
    let crc = format::identity(REGION, generation, to).checksum(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    device.poke(segment.start() + u64::from(to), &bytes);
}

#[test]
fn a_later_format_is_refused_by_name() {
    let device = new_device();
    let mut manifest = create(&device);
    append(&mut manifest, &[record(1, 50)]);
    let at = WITNESSES_BYTES + BLOCK_SIZE as u32;
    let moved = MovedBlock {
        from: at,
        to: at,
        changed: 4,
        byte: VERSION as u8 + 1,
    };
    put_block(&device, &manifest, moved);
    let error = reopen(&device).map(drop).unwrap_err();
    assert!(error.to_string().contains("format 3"), "{error}");
}

/// Format 1 had no witnesses: its checkpoint is where the first of them is now.
#[test]
fn the_format_before_is_refused_by_name() {
    let device = new_device();
    let manifest = create(&device);
    let moved = MovedBlock {
        from: WITNESSES_BYTES,
        to: 0,
        changed: 4,
        byte: 1,
    };
    put_block(&device, &manifest, moved);
    let error = reopen(&device).map(drop).unwrap_err();
    assert_eq!(error.remedy(), Remedy::Correct);
    assert!(error.to_string().contains("has format 1;"), "{error}");
}

/// The checksum of a block says where in its segment it is, not in which one of the chain.
#[test]
fn a_fragment_in_the_place_of_a_witness_is_none() {
    let device = new_device();
    let mut manifest = create(&device);
    append(&mut manifest, &[record(1, 50)]);
    let last = WITNESSES_BYTES + BLOCK_SIZE as u32;
    let moved = MovedBlock {
        from: last,
        to: 0,
        changed: 16,
        byte: 9,
    };
    put_block(&device, &manifest, moved);
    let (again, found) = reopen(&device).unwrap();
    assert_eq!((found.len(), again.is_witnessed()), (2, false));
}

/// A generation that was written and never named by the catalog is as if it had not been.
#[test]
fn a_crash_during_a_checkpoint_leaves_a_whole_manifest() {
    let eager = new_device();
    let mut manifest = create(&eager);
    for number in 1..6 {
        append(&mut manifest, &[record(number, 3000)]);
    }
    let before = records(&eager);
    drop(manifest);
    let eager = Arc::into_inner(eager).expect("nobody else has it");
    let lazy = Arc::new(eager.lazy());
    let store = Store::open(Arc::<MemoryDevice>::clone(&lazy), &StoreSettings::default());
    let store = store.unwrap();
    let entry = store.regions()[0].clone();
    let (mut manifest, _) = Manifest::open(&store, &entry, SEGMENT).unwrap();
    store.finish_recovery();
    let checkpoint = record(9, 20_000);
    manifest.checkpoint(&checkpoint).unwrap();
    let (mut old, mut new) = (0, 0);
    loop {
        let done = manifest.step().unwrap() == Moved::Done;
        for seed in 1..8 {
            let crashed = Arc::new(lazy.crash_clone(Crash::PowerLoss, seed));
            let found = records(&crashed);
            if found == before {
                old += 1;
                assert!(!done, "it was durable");
            } else {
                new += 1;
                assert_eq!(found, std::slice::from_ref(&checkpoint));
            }
        }
        if done {
            break;
        }
        assert!(lazy.run_one(), "the device has something to do");
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// A checkpoint is written in several places. Where the first of them fails, nobody waits for the others for ever.
#[test]
fn a_checkpoint_that_cannot_be_written_ends() {
    let eager = new_device();
    drop(create(&eager));
    let eager = Arc::into_inner(eager).expect("nobody else has it");
    let lazy = Arc::new(eager.lazy());
    let store = store(&lazy);
    let entry = store.regions()[0].clone();
    let (mut manifest, _) = Manifest::open(&store, &entry, SEGMENT).unwrap();
    store.finish_recovery();
    lazy.fail_after(OpKind::Write, 0);
    manifest.checkpoint(&record(9, 20_000)).unwrap();
    for _ in 0..10 {
        manifest.wait_for_device().unwrap();
        if manifest.step().is_err() {
            return;
        }
    }
    panic!("it waits for what nobody does");
}

/// A record that is one byte too long, of bytes that nobody has written yet.
fn too_long() -> ManifestRecord {
    let frame = varint_len(RECORD_BYTES_MAX as u64) + 1;
    let edit = vec![0; RECORD_BYTES_MAX - frame + 1];
    let places = Vec::new();
    ManifestRecord { edit, places }
}

fn assert_too_long(refused: Result<(), ManifestError>) {
    let found = refused.expect_err("it is too long");
    let is_too_long = |bytes, max| (bytes, max) == (RECORD_BYTES_MAX + 1, RECORD_BYTES_MAX);
    assert!(
        matches!(found, ManifestError::TooLong { bytes, max, .. } if is_too_long(bytes, max)),
        "{found}"
    );
    assert!(
        matches!(PinError::from(found), PinError::TooLong { bytes, max } if is_too_long(bytes, max))
    );
}

#[test]
fn a_record_that_is_too_long_is_refused_and_nothing_is_begun() {
    let device = new_device();
    let opened = store(&device);
    opened.finish_recovery();
    let shape = AddressMode::Rewrite as u64;
    let made = Manifest::create(&opened, REGION, SEGMENT, shape, &too_long());
    assert_too_long(made.map(drop));
    assert_eq!((opened.regions().len(), opened.used()), (0, 1));
    drop(opened);

    let mut manifest = create(&device);
    assert_too_long(manifest.append(vec![record(1, 50), too_long()]));
    assert!(manifest.is_idle());
    let mut expected = vec![record(0, 100)];
    let mut grow = |manifest: &mut Manifest| {
        while !manifest.wants_checkpoint() {
            let next = record(expected.len() as u64, 4000);
            append(manifest, std::slice::from_ref(&next));
            expected.push(next);
        }
        assert_eq!(records(&device), expected);
        expected.len()
    };
    // Whoever is refused goes on, and does not ask at each step.
    let before = grow(&mut manifest);
    assert_too_long(manifest.checkpoint(&too_long()));
    assert!(manifest.is_idle() && !manifest.wants_checkpoint());
    assert!(grow(&mut manifest) >= 2 * before);

    // One byte decides.
    let checkpoint = record(200, 3000);
    let len = checkpoint.payload_len();
    manifest.limit_records(len - 1);
    assert!(manifest.checkpoint(&checkpoint).is_err());
    manifest.limit_records(len);
    manifest.checkpoint(&checkpoint).unwrap();
    manifest.wait().unwrap();
    assert_eq!(records(&device), [checkpoint]);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(record) = ManifestRecord::decode(&bytes) {
            let (number, _) = (record.places.len(), record.edit.len());
            prop_assert!(number <= bytes.len());
        }
        prop_assert!(Fragment::parse(REGION, 1, &bytes, 0).is_none());
    }

    /// A chain with a damaged byte is refused, or cut to a prefix; it never says anything else.
    #[test]
    fn a_damaged_byte_never_makes_a_record(at in 0..9 * BLOCK_SIZE as u32, bit in 0..8u32) {
        let device = new_device();
        let mut manifest = create(&device);
        append(&mut manifest, &[record(1, 50), record(2, 5000)]);
        append(&mut manifest, &[record(3, 9000), record(4, 50), record(5, 50)]);
        let whole = records(&device);
        device.flip_bit(on_device(&manifest, at), bit);
        if let Ok((_, found)) = reopen(&device) {
            prop_assert!(whole.starts_with(&found));
            prop_assert!(found.len() >= 3, "the first append is not the last");
        }
    }

    #[test]
    fn a_fragment_knows_its_place(len in 1..3000usize, generation in 1..9u64) {
        let mut writer = Writer::new(REGION, Cursor::new(generation), SEGMENT);
        writer.put(&record(1, len));
        let (parts, _) = writer.finish();
        let at = WITNESSES_BYTES;
        let mut own = vec![0; at as usize];
        own.extend_from_slice(&parts[0].bytes);
        let mut segment = vec![0; BLOCK_SIZE];
        segment.extend_from_slice(&own);
        let parse = |region, generation, bytes, at| {
            Fragment::parse(region, generation, bytes, at).map(|found| found.flags)
        };
        let flags = parse(REGION, generation, &own, at);
        prop_assert_eq!(flags.map(|flags| flags & LAST_OF_APPEND), Some(LAST_OF_APPEND));
        prop_assert_eq!(parse(RegionId(8), generation, &own, at), None);
        prop_assert_eq!(parse(REGION, generation + 1, &own, at), None);
        prop_assert_eq!(parse(REGION, generation, &segment, at + BLOCK_SIZE as u32), None);
    }
}
