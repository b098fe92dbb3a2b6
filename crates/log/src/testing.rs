//! A region's logs over memory and a device that are plain bytes, for the tests of this module.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use argosy_base::{Epoch, FlushRange, LogId, Lsn, RegionId, SegmentNumber};
use argosy_engine::Op;
use argosy_memory::SharedMemory;

use super::segment::{WINDOW_HEADER_BYTES, Writer};
use super::verify::{LogFault, verify_sealed};
use super::{
    Appended, Geometry, GroupOp, Holes, LogGroup, LogSource, LogWindows, LogWriter, NoRoom,
    RecoverError, RecoveredLogs, Recovery, recover,
};
use crate::Binding;
use crate::chain::{LogPoint, LogSegment};

pub(super) const REGION: RegionId = RegionId(7);

/// The log of short pairs.
pub(crate) const RECOVERY_LOG: LogId = LogId::FIRST;

/// The log of long pairs.
pub(crate) const LARGE_LOG: LogId = LogId::new(2).unwrap();

/// Both logs.
pub(crate) const LOGS: [LogId; 2] = [RECOVERY_LOG, LARGE_LOG];

/// 64-bit mixing: every test's randomness comes from a counter through this.
pub(super) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (n ^ n >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

/// A sequence of random numbers.
pub(super) struct Random(Cell<u64>);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Cell::new(mix(seed ^ 0x5eed)))
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        usize::try_from(mix(self.0.get()) % bound as u64).unwrap()
    }
}

/// An operation that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) log: LogId,
    pub(super) key: Vec<u8>,
    /// `None`: a delete.
    pub(super) value: Option<Vec<u8>>,
}

impl Operation {
    pub(super) fn as_group_op(&self) -> GroupOp<'_> {
        let key = &self.key;
        let op = match &self.value {
            Some(value) => Op::Put {
                key,
                value,
                expiry: argosy_engine::Expiry::Never,
            },
            None => Op::Delete { key },
        };
        GroupOp { op, log: self.log }
    }
}

/// An operation as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) operation: Operation,
    pub(super) lsn: Lsn,
    pub(super) at: argosy_base::Pointer,
    /// The last LSN of its group.
    pub(super) group_end: Lsn,
}

/// An operation as recovery hands it out: LSN, key, and the rest in words.
pub(super) type Seen = (Lsn, Vec<u8>, Vec<u8>);

/// See the module documentation.
pub(super) struct Region {
    pub(super) geometry: Geometry,
    pub(super) logs: LogGroup<2>,
    pub(super) memory: [Vec<Arc<SharedMemory>>; 2],
    pub(super) chains: [Vec<LogSegment>; 2],
    /// The log points of segments that are not sealed.
    pub(super) points: Vec<LogPoint>,
    /// Bytes of each segment; blocks that were never written are not zero.
    pub(super) device: RefCell<BTreeMap<SegmentNumber, Vec<u8>>>,
    pub(super) last: Lsn,
    pub(super) history: Vec<Written>,
    /// What a segment that nothing was written to is full of.
    pub(super) stale: u8,
    next_number: u64,
    /// What a missing LSN means.
    pub(super) holes: Holes,
}

impl Region {
    pub(super) fn new(geometry: Geometry) -> Self {
        let memory = LOGS.map(|_| -> Vec<_> {
            let slot = |_| Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
            (0..geometry.slots()).map(slot).collect()
        });
        let writer = |log: LogId| {
            let slots = memory[log.index()].clone();
            let windows = LogWindows::new(REGION, log, geometry, slots);
            LogWriter::new(Arc::new(windows), Writer::default())
        };
        Self {
            geometry,
            logs: LogGroup::new(LOGS.map(writer)),
            memory,
            chains: [vec![], vec![]],
            points: vec![],
            device: RefCell::default(),
            last: Lsn(0),
            history: vec![],
            next_number: 1,
            stale: 0xa5,
            holes: Holes::Judged,
        }
    }

    /// Provides segments until none is wanted.
    pub(super) fn provide(&mut self) {
        for log in LOGS {
            while self.logs.log(log).wants_segment(0) {
                self.provide_one(log);
            }
        }
    }

    pub(super) fn provide_one(&mut self, log: LogId) {
        let segment = LogSegment {
            log,
            ordinal: self.chains[log.index()].len() as u64,
            number: SegmentNumber(self.next_number),
            epoch: Epoch(1),
            base_lsn: self.last,
            end: None,
        };
        self.next_number += 1;
        self.chains[log.index()].push(segment);
        let stale = vec![self.stale; self.geometry.segment_bytes() as usize];
        self.device.borrow_mut().insert(segment.number, stale);
        self.logs.log_mut(log).provide_segment(segment);
    }

    /// Appends a group, providing segments but flushing nothing.
    pub(super) fn append(&mut self, group: &[Operation]) -> Result<(), NoRoom> {
        self.provide();
        let ops = group.iter().map(Operation::as_group_op);
        let mut appended = vec![];
        let last = self
            .logs
            .append_group(self.last.next(), None, ops, |done: Appended<'_>| {
                appended.push((done.lsn, done.at));
            })?;
        for (operation, (lsn, at)) in group.iter().zip(appended) {
            self.history.push(Written {
                operation: operation.clone(),
                lsn,
                at,
                group_end: last,
            });
        }
        self.last = last;
        Ok(())
    }

    /// The bytes of a range as they are in the windows.
    pub(super) fn window_bytes(&self, range: &FlushRange) -> Vec<u8> {
        let chain = &self.chains[range.log.index()];
        let ordinal = usize::try_from(range.ordinal).unwrap();
        let mut bytes = vec![0; (range.to - range.from) as usize];
        let windows = self.logs.log(range.log).windows();
        assert!(windows.read(&chain[ordinal], range.from, &mut bytes));
        bytes
    }

    /// The same as they are on the device.
    pub(super) fn device_bytes(&self, range: &FlushRange) -> Vec<u8> {
        let device = self.device.borrow();
        device[&range.segment][range.from as usize..range.to as usize].to_vec()
    }

    /// Puts part of a range on the device.
    pub(super) fn write_device(&self, range: &FlushRange, bytes: &[u8]) {
        let mut device = self.device.borrow_mut();
        let segment = device.get_mut(&range.segment).unwrap();
        segment[range.from as usize..range.to as usize].copy_from_slice(bytes);
    }

    /// Flushes whatever there is to be flushed, here and everywhere. Returns what was written, in order.
    pub(super) fn flush(&mut self, force: bool) -> Vec<FlushRange> {
        let mut written = vec![];
        for log in LOGS {
            while let Some(range) = self.logs.log_mut(log).take_flush(force) {
                let bytes = self.window_bytes(&range);
                self.write_device(&range, &bytes);
                let log = self.logs.log_mut(log);
                log.flushed_locally(range.segment, range.to);
                log.flushed_everywhere(range.segment, range.to);
                written.push(range);
            }
        }
        self.note_durable();
        written
    }

    /// Flushes everything, says so, and has the logs rest until now.
    pub(super) fn rest(&mut self) {
        self.flush(true);
        for log in LOGS {
            let log = self.logs.log_mut(log);
            if log.lacks_mark() && log.append_mark().is_err() {
                return;
            }
        }
        self.flush(true);
        assert!(self.logs.are_settled(), "everything is flushed and marked");
        self.logs.rest();
        self.logs.wake().expect("there is memory");
    }

    /// Has the next marks say what is durable.
    pub(super) fn note_durable(&mut self) {
        let durable = self.logs.durable(self.last);
        for log in LOGS {
            self.logs.log_mut(log).set_durable(durable);
        }
        self.note_sealed();
    }

    /// Has the chains say what is sealed and flushed.
    pub(super) fn note_sealed(&mut self) {
        for log in LOGS {
            while let Some(point) = self.logs.log_mut(log).take_sealed() {
                let chain = &mut self.chains[log.index()];
                let sealed = chain.iter_mut().find(|s| s.number == point.number);
                sealed.unwrap().end = Some(point.to);
            }
        }
    }

    /// Does what an opening does with what was `recovered`: makes it durable, and seals all segments behind it. Returns
    /// what is wrong with them then.
    pub(super) fn cut(&mut self, recovered: &RecoveredLogs<2>) -> Vec<LogFault> {
        let mut faults = Vec::new();
        for (chain, tail) in self.chains.iter_mut().zip(&recovered.logs) {
            let mut device = self.device.borrow_mut();
            for part in tail.unflushed.iter().chain(&tail.closing) {
                let segment = device.get_mut(&part.segment.number).unwrap();
                segment[part.from as usize..][..part.bytes.len()].copy_from_slice(&part.bytes);
            }
            for point in &tail.seals {
                let sealed = chain.iter_mut().find(|s| s.number == point.number);
                sealed.unwrap().end = Some(point.to);
            }
            let mut read = |segment: &LogSegment, at: u32, out: &mut [u8]| {
                let at = at as usize;
                out.copy_from_slice(&device[&segment.number][at..at + out.len()]);
                Ok::<(), Infallible>(())
            };
            let found = verify_sealed(REGION, self.geometry, chain, &mut read);
            faults.extend(found.unwrap().faults);
        }
        faults
    }

    /// What a restart finds: the history, by the windows that `survive`.
    pub(super) fn recover(
        &self,
        survive: bool,
        replay_from: Lsn,
    ) -> Result<(RecoveredLogs<2>, Vec<Seen>), RecoverError<Infallible>> {
        let slots = |log: usize| -> Vec<_> {
            let slots = self.memory[log].iter();
            slots.map(|m| survive.then(|| Arc::clone(m))).collect()
        };
        let windows = [slots(0), slots(1)];
        let device = self.device.borrow();
        let written = |segment: &LogSegment| {
            let bytes = &device[&segment.number];
            let last = bytes.iter().rposition(|byte| *byte != 0);
            let bytes = last.map_or(0, |last| last + 1);
            u32::try_from(bytes.next_multiple_of(argosy_base::BLOCK_SIZE)).unwrap()
        };
        let recovery = Recovery {
            region: REGION,
            geometry: self.geometry,
            chains: [&self.chains[0], &self.chains[1]],
            points: &self.points,
            windows: [&windows[0], &windows[1]],
            replay_from,
            durable: Lsn(0),
            holes: self.holes,
            written: &written,
        };
        let mut seen = vec![];
        let recovered = recover(
            &recovery,
            |segment, offset, out: &mut [u8]| {
                let offset = offset as usize;
                out.copy_from_slice(&device[&segment.number][offset..offset + out.len()]);
                Ok(())
            },
            |replayed| {
                let what = match replayed.binding {
                    Binding::Inline(value) => [b"inline ", value].concat(),
                    Binding::Logged { value_len } => {
                        format!("{} {value_len}", replayed.at).into_bytes()
                    }
                    Binding::Nothing => b"deleted".to_vec(),
                };
                seen.push((replayed.lsn, replayed.key.to_vec(), what));
            },
        )?;
        Ok((recovered, seen))
    }

    /// What [`recover`](Self::recover) should see of the history up to `last`.
    pub(super) fn expected(&self, from: Lsn, last: Lsn) -> Vec<Seen> {
        let wanted = self
            .history
            .iter()
            .filter(|w| from <= w.lsn && w.lsn <= last);
        wanted
            .map(|written| {
                let operation = &written.operation;
                let what = match (&operation.value, operation.log) {
                    (None, _) => b"deleted".to_vec(),
                    (Some(value), RECOVERY_LOG) => [b"inline ", &value[..]].concat(),
                    (Some(value), _) => format!("{} {}", written.at, value.len()).into_bytes(),
                };
                (written.lsn, operation.key.clone(), what)
            })
            .collect()
    }

    /// The last LSN of the last group that ends at or below `lsn`.
    pub(super) fn group_end_below(&self, lsn: Lsn) -> Lsn {
        let ends = self.history.iter().map(|written| written.group_end);
        ends.filter(|end| *end <= lsn).max().unwrap_or(Lsn(0))
    }

    /// A random group.
    pub(super) fn group(&self, random: &Random) -> Vec<Operation> {
        let one = |n: usize| {
            let key_len = match random.below(40) {
                0 => 1 + random.below(4096),
                _ => 1 + random.below(30),
            };
            let key = (0..key_len).map(|_| b'a' + u8::try_from(random.below(9)).unwrap());
            let len = match random.below(20) {
                0 => random.below(self.geometry.window_bytes() as usize * 5 / 4),
                1..5 => random.below(3000),
                _ => random.below(120),
            };
            let value = (0..len).map(|i| u8::try_from((i * 7 + n) % 251).unwrap());
            let delete = random.below(6) == 0;
            Operation {
                log: match random.below(3) {
                    0 if !delete => LARGE_LOG,
                    _ => RECOVERY_LOG,
                },
                key: key.collect(),
                value: (!delete).then(|| value.collect()),
            }
        };
        let count = match random.below(3) {
            0 => 1 + random.below(6),
            _ => 1,
        };
        (0..count).map(one).collect()
    }

    /// The offset in a slot's memory of byte `offset` of a segment.
    pub(super) fn in_slot(&self, offset: u32) -> usize {
        WINDOW_HEADER_BYTES + (offset % self.geometry.window_bytes()) as usize
    }
}

impl LogSource for Region {
    type Error = Infallible;
    type Segment = LogSegment;

    fn segment(&self, number: SegmentNumber) -> Option<LogSegment> {
        let mut all = self.chains.iter().flatten();
        all.find(|segment| segment.number == number).copied()
    }

    fn after(&self, segment: LogSegment) -> Option<LogSegment> {
        let next = usize::try_from(segment.ordinal + 1).ok()?;
        self.chains[segment.log.index()].get(next).copied()
    }

    fn read(&self, segment: LogSegment, offset: u32, out: &mut [u8]) -> Result<(), Infallible> {
        let device = self.device.borrow();
        let offset = offset as usize;
        out.copy_from_slice(&device[&segment.number][offset..offset + out.len()]);
        Ok(())
    }
}

impl Region {
    /// Writes some of the blocks of ranges that are being flushed.
    pub(super) fn flush_some_blocks(&self, ranges: &[FlushRange], random: &Random) {
        let keep = random.below(5);
        for range in ranges {
            let bytes = self.window_bytes(range);
            for (n, block) in bytes.chunks(argosy_base::BLOCK_SIZE).enumerate() {
                if random.below(4) < keep {
                    let from = range.from + u32::try_from(n * block.len()).unwrap();
                    let to = from + u32::try_from(block.len()).unwrap();
                    self.write_device(&FlushRange { from, to, ..*range }, block);
                }
            }
        }
    }

    /// Flips a bit of a random byte of a window or the device, near what was written if `near`.
    pub(super) fn flip_a_bit(&self, random: &Random, near: bool) {
        let written = &self.history[random.below(self.history.len())];
        let within = random.below(if near { 60 } else { 20_000 });
        let at =
            (written.at.offset() as usize + within).min(self.geometry.segment_bytes() as usize - 1);
        let bit = 1 << random.below(8);
        self.device
            .borrow_mut()
            .get_mut(&written.at.segment())
            .unwrap()[at] ^= bit;
        let segment = self.segment(written.at.segment()).unwrap();
        let at = u32::try_from(at).unwrap();
        let slot = self
            .geometry
            .slot(segment.ordinal, self.geometry.window_index(at));
        let memory = &self.memory[segment.log.index()][slot];
        let byte = memory.read_vec(self.in_slot(at), 1)[0];
        memory.write(self.in_slot(at), &[byte ^ bit]);
    }
}
