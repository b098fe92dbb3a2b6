//! The ring against a queue: whatever the sizes, the place, and the order in which bytes arrive,
//! the reader takes exactly the messages that were written, each once all of it is there.

#![expect(
    clippy::cast_possible_truncation,
    reason = "test sizes and offsets are small"
)]

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use super::*;

const WRITER: Incarnation = Incarnation(0x1_0000_0007);

/// Memory that counts how it is read.
struct Memory {
    bytes: RefCell<Vec<u8>>,
    loads: Cell<usize>,
    reads: Cell<usize>,
}

impl Memory {
    fn new(len: usize) -> Self {
        Self {
            bytes: RefCell::new(vec![0; len]),
            loads: Cell::new(0),
            reads: Cell::new(0),
        }
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl RingMemory for Memory {
    fn load(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8));
        self.loads.set(self.loads.get() + 1);
        let bytes = self.bytes.borrow();
        u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight"))
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.is_multiple_of(8));
        self.reads.set(self.reads.get() + 1);
        out.copy_from_slice(&self.bytes.borrow()[offset..offset + out.len()]);
    }

    fn zero(&self, offset: usize, len: usize) {
        assert!(offset.is_multiple_of(8) && len.is_multiple_of(8));
        self.bytes.borrow_mut()[offset..offset + len].fill(0);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn header(number: u64) -> Header {
    Header {
        kind: (number % 255) as u8 + 1,
        region: RegionId(number as u32 * 3),
        epoch: Epoch(number as u32),
        request: number.wrapping_mul(0x1234_5678_9abc),
    }
}

/// A ring with both its sides.
struct Ring {
    memory: Memory,
    writer: RingWriter,
    reader: RingReader,
    payload: Vec<u8>,
}

impl Ring {
    fn new(capacity: usize) -> Self {
        let shape = RingShape::new(capacity);
        Self {
            memory: Memory::new(capacity),
            writer: RingWriter::new(shape, WRITER),
            reader: RingReader::new(shape, WRITER),
            payload: Vec::new(),
        }
    }

    /// Lands all that the writer has, whole.
    fn land(&mut self) -> usize {
        let mut writes = 0;
        while let Some((offset, bytes)) = self.writer.next_write() {
            self.memory.put(offset, bytes);
            self.writer.wrote();
            writes += 1;
        }
        writes
    }

    fn next(&mut self) -> Result<Option<(Header, Vec<u8>)>, RingError> {
        let header = self.reader.next(&self.memory, &mut self.payload)?;
        Ok(header.map(|header| (header, self.payload.clone())))
    }

    fn publish(&mut self) {
        if let Some(head) = self.reader.head_to_publish(true) {
            self.writer.set_head(head).expect("a head that was reached");
        }
    }

    /// Takes what can be taken, which must be what was written.
    fn take_all(&mut self, model: &mut VecDeque<(Header, Vec<u8>)>) -> usize {
        let before = model.len();
        while let Some(taken) = self.next().expect("nothing is damaged") {
            assert_eq!(Some(taken), model.pop_front());
        }
        before - model.len()
    }

    /// Sends one message through.
    fn pass(&mut self, number: u64, payload: &[u8]) {
        let pushed = self.writer.push(header(number), &[payload]);
        pushed.expect("the ring is empty");
        self.land();
        assert_eq!(self.next(), Ok(Some((header(number), payload.to_vec()))));
        assert_eq!(self.next(), Ok(None));
        self.publish();
    }
}

/// How the writer's bytes become visible.
#[derive(Clone, Copy, Debug)]
enum Tearing {
    Whole,
    Words,
    Bytes,
}

/// Bytes on their way, in the order in which they were written. They land in any order, except that
/// the fabric keeps the order of those that overlap.
#[derive(Default)]
struct InFlight {
    pieces: Vec<(usize, Vec<u8>)>,
}

impl InFlight {
    fn launch(&mut self, offset: usize, bytes: &[u8], tearing: Tearing) {
        let size = match tearing {
            Tearing::Whole => bytes.len(),
            Tearing::Words => 8,
            Tearing::Bytes => 1,
        };
        let pieces = bytes.chunks(size).enumerate();
        self.pieces
            .extend(pieces.map(|(i, piece)| (offset + i * size, piece.to_vec())));
    }

    fn land_one(&mut self, memory: &Memory, random: &mut Random) {
        let overlap = |a: &(usize, Vec<u8>), b: &(usize, Vec<u8>)| {
            a.0 < b.0 + b.1.len() && b.0 < a.0 + a.1.len()
        };
        let mut chosen = random.below(self.pieces.len());
        while let Some(earlier) =
            (0..chosen).find(|i| overlap(&self.pieces[*i], &self.pieces[chosen]))
        {
            chosen = earlier;
        }
        let (offset, bytes) = self.pieces.remove(chosen);
        memory.put(offset, &bytes);
    }
}

/// A payload of any length that fits, short ones and the longest more often.
fn any_payload(max: usize, random: &mut Random) -> Vec<u8> {
    let len = match random.below(4) {
        0 => random.below(max + 1),
        1 => random.below(32.min(max)),
        2 => max,
        _ => random.below(200.min(max)),
    };
    random.bytes(len)
}

/// Sends random messages through a ring; returns how many were taken while others were on their
/// way.
fn run_model(seed: u64, capacity: usize, tearing: Tearing) -> usize {
    let mut random = Random(seed);
    let mut ring = Ring::new(capacity);
    let mut model: VecDeque<(Header, Vec<u8>)> = VecDeque::new();
    let mut in_flight = InFlight::default();
    let mut passed = 0;
    let max = ring.writer.shape().payload_max();
    for number in 0..600u64 {
        for _ in 0..random.below(4) {
            let payload = any_payload(max, &mut random);
            let room = ring.writer.has_room_for(payload.len());
            let (left, right) = payload.split_at(payload.len() / 3);
            let pushed = ring.writer.push(header(number), &[left, right]);
            assert_eq!(pushed.is_ok(), room);
            if room {
                model.push_back((header(number), payload));
            }
        }
        while let Some((offset, bytes)) = ring.writer.next_write() {
            in_flight.launch(offset, bytes, tearing);
            ring.writer.wrote();
        }
        for _ in 0..random.below(in_flight.pieces.len() + 1) {
            in_flight.land_one(&ring.memory, &mut random);
            if random.below(8) == 0 {
                passed += ring.take_all(&mut model);
            }
        }
        if random.below(3) == 0 {
            ring.publish();
        }
    }
    while !in_flight.pieces.is_empty() {
        in_flight.land_one(&ring.memory, &mut random);
    }
    ring.take_all(&mut model);
    assert!(model.is_empty(), "what has landed can be taken");
    assert!(!ring.reader.is_partial());
    assert!(ring.memory.bytes.borrow().iter().all(|byte| *byte == 0));
    passed
}

#[test]
fn behaves_like_a_queue() {
    let mut passed = 0;
    for seed in 0..20 {
        for capacity in [256, 512, 1024, 4096, 16384] {
            passed += run_model(seed, capacity, Tearing::Whole);
            passed += run_model(seed, capacity, Tearing::Words);
        }
        passed += run_model(seed, 256, Tearing::Bytes);
        passed += run_model(seed, 1024, Tearing::Bytes);
    }
    assert!(passed > 10_000, "{passed}");
}

/// A message of eight words, its words landing in each of the 40,320 orders.
#[test]
fn tears_in_every_order() {
    let mut ring = Ring::new(256);
    ring.writer
        .push(header(9), &[b"abcdefghijklmnopqrstuvwx"])
        .expect("there is room");
    let (_, whole) = ring.writer.next_write().expect("something to write");
    let whole = whole.to_vec();
    assert_eq!(whole.len(), 64);
    let mut orders = 0;
    let mut order: Vec<usize> = (0..8).collect();
    let shape = ring.reader.shape();
    permutations(&mut order, 8, &mut |order| {
        let memory = Memory::new(256);
        let mut reader = RingReader::new(shape, WRITER);
        let mut payload = Vec::new();
        for (landed, word) in order.iter().enumerate() {
            memory.put(word * 8, &whole[word * 8..word * 8 + 8]);
            let taken = reader.next(&memory, &mut payload);
            let expected = (landed == 7).then_some(header(9));
            assert_eq!(taken, Ok(expected), "{order:?}, {landed}");
        }
        orders += 1;
    });
    assert_eq!(orders, 40_320);
}

/// Heap's algorithm.
fn permutations(items: &mut [usize], len: usize, visit: &mut dyn FnMut(&[usize])) {
    if len == 1 {
        return visit(items);
    }
    for i in 0..len {
        permutations(items, len - 1, visit);
        let other = if len.is_multiple_of(2) { i } else { 0 };
        items.swap(other, len - 1);
    }
}

/// Every length at every offset, so that each way of meeting the ring's end occurs.
#[test]
fn wraps_at_every_alignment() {
    let mut skips = 0;
    for capacity in [256usize, 512, 1024] {
        let max = RingShape::new(capacity).payload_max();
        for len in 0..=max {
            let mut ring = Ring::new(capacity);
            let payload = vec![0xff; len];
            let mut offsets = alloc::collections::BTreeSet::new();
            for number in 0..100 {
                // A small message now and then shifts where the long one meets the end.
                if number % 5 == 0 {
                    ring.pass(number, b"");
                }
                offsets.insert(ring.reader.head() as usize % capacity);
                let before = ring.reader.head() as usize;
                ring.pass(number, &payload);
                let skipped = ring.reader.head() as usize - before - message_size(len);
                assert!(skipped < message_size(len));
                skips += usize::from(skipped > 0);
            }
            assert!(offsets.len() > 1, "{len} of {capacity}");
        }
    }
    assert!(skips > 1_000, "{skips}");
}

#[test]
fn many_messages_are_one_write() {
    let mut ring = Ring::new(4096);
    for number in 0..20 {
        ring.writer
            .push(header(number), &[b"small"])
            .expect("there is room");
    }
    assert_eq!(ring.land(), 1);
    for number in 0..20 {
        assert_eq!(ring.next(), Ok(Some((header(number), b"small".to_vec()))));
    }
    assert_eq!(ring.next(), Ok(None));
    ring.publish();
    // 20 * 64 bytes are taken; 60 more messages cross the end of the ring once.
    for number in 0..60 {
        ring.writer
            .push(header(number), &[b"small"])
            .expect("there is room");
    }
    assert_eq!(ring.land(), 2);
}

#[test]
fn a_full_ring_says_so_and_takes_nothing() {
    let mut ring = Ring::new(256);
    for number in 0..4 {
        ring.writer
            .push(header(number), &[&[7; 24]])
            .expect("there is room");
    }
    assert_eq!(ring.writer.used(), 256);
    assert_eq!(ring.writer.push(header(4), &[]), Err(PushError::Full));
    let too_large = PushError::TooLarge { len: 25, max: 24 };
    assert_eq!(ring.writer.push(header(4), &[&[7; 25]]), Err(too_large));
    assert!(!ring.writer.has_room_for(25));
    ring.land();
    for number in 0..4 {
        assert_eq!(ring.next(), Ok(Some((header(number), vec![7; 24]))));
    }
    assert_eq!(ring.writer.push(header(4), &[]), Err(PushError::Full));
    ring.publish();
    assert_eq!(ring.writer.used(), 0);
    ring.pass(5, &[7; 24]);
}

/// Even a reader that never finds time to publish but when it must never blocks the longest
/// message for good.
#[test]
fn a_busy_reader_publishes_often_enough() {
    let mut random = Random(5);
    for capacity in [256usize, 1024, 8192] {
        let mut ring = Ring::new(capacity);
        let max = ring.writer.shape().payload_max();
        let mut published = 0;
        for number in 0..2_000 {
            let len = if number % 3 == 0 {
                max
            } else {
                random.below(max)
            };
            let payload = random.bytes(len);
            let pushed = ring.writer.push(header(number), &[&payload]);
            pushed.expect("all was read, and enough of that was published");
            ring.land();
            assert_eq!(ring.next(), Ok(Some((header(number), payload))));
            if let Some(head) = ring.reader.head_to_publish(false) {
                ring.writer.set_head(head).expect("it was reached");
                published += 1;
            }
        }
        let each = capacity == RingShape::CAPACITY_MIN;
        assert!(each || published < 2_000, "not for each message");
    }
}

#[test]
fn polling_an_empty_ring_loads_one_word() {
    let mut ring = Ring::new(4096);
    ring.pass(1, b"first");
    let (loads, reads) = (ring.memory.loads.get(), ring.memory.reads.get());
    assert_eq!(ring.next(), Ok(None));
    assert_eq!(ring.memory.loads.get(), loads + 1);
    assert_eq!(ring.memory.reads.get(), reads);
}

/// What an earlier lap left, had it not been zeroed, is no message of this lap, even where its
/// last word is made to fit.
#[test]
fn an_earlier_lap_is_no_message() {
    let mut ring = Ring::new(256);
    ring.writer
        .push(header(1), &[b"stale"])
        .expect("there is room");
    let stale = ring
        .writer
        .next_write()
        .expect("something to write")
        .1
        .to_vec();
    ring.land();
    assert_eq!(ring.next(), Ok(Some((header(1), b"stale".to_vec()))));
    ring.publish();
    for number in 2..5 {
        ring.pass(number, b"filler");
    }
    assert_eq!(ring.reader.head(), 256, "the second lap begins");

    ring.memory.put(0, &stale);
    assert_eq!(ring.next(), Ok(None));
    assert!(ring.reader.is_partial());
    let size = stale.len();
    ring.memory.put(size - 8, &end_word(256).to_le_bytes());
    assert_eq!(ring.next(), Ok(None));

    // The right message in its place is taken.
    ring.memory.put(0, &[0; 64]);
    ring.pass(5, b"fresh");
    assert!(!ring.reader.is_partial());
}

/// A message of another place of the same lap, or of another incarnation, is none.
#[test]
fn a_misplaced_or_foreign_message_is_refused() {
    let mut ring = Ring::new(512);
    ring.writer
        .push(header(1), &[b"first"])
        .expect("there is room");
    ring.writer
        .push(header(2), &[b"other"])
        .expect("there is room");
    let both = ring
        .writer
        .next_write()
        .expect("something to write")
        .1
        .to_vec();
    ring.memory.put(0, &both[64..]);
    assert_eq!(ring.next(), Ok(None));

    let mut ring = Ring::new(512);
    ring.writer = RingWriter::new(ring.writer.shape(), Incarnation(8));
    ring.writer
        .push(header(1), &[b"first"])
        .expect("there is room");
    ring.land();
    let stranger = RingError::Stranger {
        found: 8,
        expected: 7,
    };
    assert_eq!(ring.next(), Err(stranger));
    assert_eq!(ring.next(), Err(stranger), "an error repeats");
}

/// The bytes are a format: a change would need another version.
#[test]
fn the_format_never_changes() {
    let mut ring = Ring::new(256);
    let header = Header {
        kind: 3,
        region: RegionId(0x0403_0201),
        epoch: Epoch(0x0807_0605),
        request: 0x1817_1615_1413_1211,
    };
    ring.pass(1, b"");
    ring.writer
        .push(header, &[b"pay", b"load"])
        .expect("there is room");
    let (offset, bytes) = ring.writer.next_write().expect("something to write");
    assert_eq!(offset, 64);
    let expected = [
        0x50, 0xa6, 3, 24, 7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
        0x17, 0x18, 7, 0, 0, 0,
    ];
    assert_eq!(bytes[..28], expected);
    let mut identity = [0u8; 24];
    identity[0] = 12;
    identity[4..8].copy_from_slice(&expected[8..12]);
    identity[8] = 64;
    identity[16..20].copy_from_slice(&expected[12..16]);
    let mut covered = identity.to_vec();
    covered.extend_from_slice(&expected);
    covered.extend_from_slice(b"payload");
    assert_eq!(bytes[28..32], extend(0, &covered).to_le_bytes());
    assert_eq!(&bytes[32..56], b"payload\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(bytes[56..], [2, 0, 0, 0, 0xd5, 0xe4, 0xa6, 0x50]);
}

#[test]
fn another_version_is_refused_clearly() {
    for version in [1, VERSION - 1, VERSION + 1] {
        let mut ring = Ring::new(256);
        ring.memory.put(0, &[0x50, 0xa6, 1, version]);
        let refused = ring.next().expect_err("only one version is known");
        assert_eq!(refused, RingError::Version { found: version });
        let words = alloc::format!("{refused}");
        assert!(
            words.contains(&alloc::format!("version {version},")),
            "{words}"
        );
        assert!(words.contains("same release"), "{words}");
    }
}

#[test]
fn impossible_lengths_and_heads_are_garbage() {
    let garbage = |result: Result<_, RingError>| matches!(result, Err(RingError::Garbage { .. }));
    for (kind, len) in [(1, 25), (1, u32::MAX), (0, 257), (0, u32::MAX)] {
        let mut ring = Ring::new(256);
        ring.memory.put(0, &start_word(kind, len).to_le_bytes());
        assert!(garbage(ring.next().map(|_| ())), "{kind} {len}");
    }
    // A message that would cross the end of the ring.
    let mut ring = Ring::new(512);
    for number in 0..7 {
        ring.pass(number, b"");
    }
    ring.memory.put(448, &start_word(1, 25).to_le_bytes());
    assert!(garbage(ring.next().map(|_| ())));

    let mut ring = Ring::new(256);
    ring.writer.push(header(1), &[]).expect("there is room");
    for head in [1, 31, 33, 96, 1 << 40, u64::MAX] {
        assert!(garbage(ring.writer.set_head(head)), "{head}");
    }
    assert_eq!(ring.writer.set_head(64), Ok(()));
    assert_eq!(
        ring.writer.set_head(0),
        Ok(()),
        "an older head changes nothing"
    );
    assert_eq!(ring.writer.used(), 0);
}

/// Whatever one bit of a message is, the reader takes the message as it was written, or none.
#[test]
fn no_flipped_bit_is_taken() {
    let mut ring = Ring::new(512);
    let payload = b"some bytes that matter, every one";
    ring.writer
        .push(header(3), &[payload])
        .expect("there is room");
    let whole = ring
        .writer
        .next_write()
        .expect("something to write")
        .1
        .to_vec();
    let shape = ring.reader.shape();
    let mut refused = 0;
    for bit in 0..whole.len() * 8 {
        let memory = Memory::new(512);
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        memory.put(0, &damaged);
        let mut reader = RingReader::new(shape, WRITER);
        let mut taken = Vec::new();
        if let Ok(Some(found)) = reader.next(&memory, &mut taken) {
            assert_eq!((found, &taken[..]), (header(3), &payload[..]));
        } else {
            refused += 1;
        }
    }
    let covered = HEADER_SIZE + payload.len() + END_SIZE;
    assert_eq!(refused, covered * 8, "all but the padding is covered");
}

/// Random bytes, and a message with random bytes put over it, are never taken and never panic.
#[test]
fn random_bytes_are_no_message() {
    let mut random = Random(77);
    let (mut errors, mut nothing) = (0, 0);
    for round in 0..50_000 {
        let mut ring = Ring::new(512);
        if round % 2 == 0 {
            let bytes = random.bytes(512);
            ring.memory.put(0, &bytes);
        } else {
            let len = random.below(88);
            let payload = random.bytes(len);
            ring.writer
                .push(header(round), &[&payload])
                .expect("there is room");
            let size = ring.writer.used() - 8;
            ring.land();
            let at = random.below(size / 8) * 8;
            if at >= HEADER_SIZE + payload.len() {
                continue; // The padding is not covered.
            }
            let mut damage = random.bytes(8);
            let before = ring.memory.bytes.borrow()[at];
            damage[0] = before.wrapping_add(1 + random.below(255) as u8);
            ring.memory.put(at, &damage);
        }
        match ring.next() {
            Ok(None) => nothing += 1,
            Err(_) => errors += 1,
            Ok(Some(taken)) => panic!("{taken:?} was taken in round {round}"),
        }
    }
    assert!(errors > 1_000 && nothing > 1_000, "{errors} {nothing}");
}
