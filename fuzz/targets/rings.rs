//! What lies in memory that another process writes: the message ring between servers, the ring of requests and the
//! reply slots between a native client and a server.

use std::cell::RefCell;

use argosy_base::{Epoch, Incarnation, RegionId, Shared};
use argosy_wire::native::{
    Flags, Op, REQUESTS_AT, ReplyHeader, Request, RequestReader, RequestWriter, Shape, Slot,
    Status, read_reply, write_reply,
};
use argosy_wire::ring::{Header, RingMemory, RingReader, RingShape, RingWriter};

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "rings",
    run,
    seeds,
};

const RING: RingShape = RingShape::new(1024);
const WRITER: Incarnation = Incarnation(7);
/// The id of the request whose reply is waited for.
const ID: u32 = 5;
const SLOT: Slot = Slot {
    offset: 96,
    bytes: 1024,
};

fn shape() -> Shape {
    Shape::new(Shape::BYTES_MIN, Shape::BYTES_MIN).expect("within the bounds")
}

/// Memory that nobody else has.
struct Plain(RefCell<Vec<u8>>);

impl Plain {
    fn new(len: usize) -> Self {
        Self(RefCell::new(vec![0; len]))
    }

    /// Puts as much of `bytes` at `at` as is below `end`.
    fn put(&self, at: usize, end: usize, bytes: &[u8]) {
        let len = bytes.len().min(end.saturating_sub(at));
        self.0.borrow_mut()[at..at + len].copy_from_slice(&bytes[..len]);
    }

    /// What lies from `at` on and below `end`, without the zeros at its end.
    fn get(&self, at: usize, end: usize) -> Vec<u8> {
        let memory = self.0.borrow();
        let used = memory[at..end].iter().rposition(|byte| *byte != 0);
        memory[at..used.map_or(at, |last| at + last + 1)].to_vec()
    }
}

impl Shared for Plain {
    fn load(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        Shared::read(self, at, &mut word);
        u64::from_le_bytes(word)
    }

    fn store(&self, at: usize, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[at..at + out.len()]);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn zero(&self, at: usize, len: usize) {
        self.0.borrow_mut()[at..at + len].fill(0);
    }
}

impl RingMemory for Plain {
    fn load(&self, offset: usize) -> u64 {
        Shared::load(self, offset)
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        Shared::read(self, offset, out);
    }

    fn zero(&self, offset: usize, len: usize) {
        Shared::zero(self, offset, len);
    }
}

/// A bit of the first byte has the input begin where the ring is nearly at its end.
fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    let laid = if which & 4 == 0 { 0 } else { 3 };
    match which % 4 {
        0 => Messages::with(laid).read(bytes),
        1 => Requests::with(laid).read(bytes),
        _ => {
            let (memory, mut payload) = (Plain::new(shape().bytes()), Vec::new());
            memory.put(reply_at(), shape().bytes(), bytes);
            matches!(
                read_reply(&memory, shape(), SLOT, ID, &mut payload),
                Ok(Some(_))
            )
        }
    }
}

fn reply_at() -> usize {
    shape().replies_at() + SLOT.offset
}

struct Messages {
    memory: Plain,
    writer: RingWriter,
    reader: RingReader,
}

impl Messages {
    /// A ring through which that many messages have gone.
    fn with(messages: u64) -> Self {
        let mut ring = Self {
            memory: Plain::new(RING.capacity()),
            writer: RingWriter::new(RING, WRITER),
            reader: RingReader::new(RING, WRITER),
        };
        for number in 0..messages {
            ring.lay(number, &[0xff; 200]);
            let taken = ring.reader.next(&ring.memory, &mut Vec::new());
            assert!(matches!(taken, Ok(Some(_))), "what was laid is there");
            let head = ring.reader.head();
            ring.writer.set_head(head).expect("it was reached");
        }
        ring
    }

    fn lay(&mut self, number: u64, payload: &[u8]) {
        let header = Header {
            kind: 3,
            region: RegionId(1),
            epoch: Epoch(2),
            request: number,
        };
        let pushed = self.writer.push(header, &[payload]);
        pushed.expect("there is room");
        while let Some((offset, bytes)) = self.writer.next_write() {
            self.memory.put(offset, RING.capacity(), bytes);
            self.writer.wrote();
        }
    }

    /// Whether `bytes`, from where the ring stands on and then from its start, begin with a message.
    fn read(mut self, bytes: &[u8]) -> bool {
        let head = usize::try_from(self.reader.head()).expect("less than a lap");
        let to_end = bytes.len().min(RING.capacity() - head);
        self.memory.put(head, RING.capacity(), bytes);
        self.memory.put(0, head, &bytes[to_end..]);
        let (mut payload, mut found) = (Vec::new(), false);
        // Each message that is taken leaves zeros, so there is an end.
        while let Ok(Some(_)) = self.reader.next(&self.memory, &mut payload) {
            found = true;
            assert!(payload.len() <= RING.payload_max());
        }
        found
    }

    /// As [`read`](Self::read) takes it.
    fn laid(&self) -> Vec<u8> {
        let head = usize::try_from(self.reader.head()).expect("less than a lap");
        let mut bytes = self.memory.0.borrow()[head..].to_vec();
        bytes.extend(self.memory.get(0, head));
        bytes
    }
}

struct Requests {
    memory: Plain,
    writer: RequestWriter,
    reader: RequestReader,
    /// How far the ring has been read, in bytes.
    at: usize,
}

impl Requests {
    /// A ring through which that many requests have gone.
    fn with(requests: u64) -> Self {
        let mut ring = Self {
            memory: Plain::new(shape().bytes()),
            writer: RequestWriter::new(shape()),
            reader: RequestReader::new(shape()),
            at: 0,
        };
        for _ in 0..requests {
            ring.lay(&[0xff; 1180]);
            let taken = ring.reader.next(&ring.memory, &mut Vec::new());
            assert!(matches!(taken, Ok(Some(_))), "what was laid is there");
            ring.reader.publish(&ring.memory);
            ring.at += argosy_wire::native::message_bytes(1180);
        }
        ring
    }

    fn lay(&mut self, payload: &[u8]) {
        let request = Request {
            op: Op::Put,
            flags: Flags::IF_ABSENT,
            id: ID,
            region: RegionId(3),
            epoch: Epoch(7),
            slot: SLOT,
        };
        let pushed = self.writer.push(&self.memory, request, &[payload]);
        pushed.expect("there is room");
    }

    fn read(mut self, bytes: &[u8]) -> bool {
        let to_end = bytes.len().min(shape().requests() - self.at);
        let (head, end) = (REQUESTS_AT + self.at, shape().replies_at());
        self.memory.put(head, end, bytes);
        self.memory.put(REQUESTS_AT, head, &bytes[to_end..]);
        let (mut payload, mut found) = (Vec::new(), false);
        while let Ok(Some(request)) = self.reader.next(&self.memory, &mut payload) {
            found = true;
            let slot = request.slot;
            assert!(slot.offset + slot.bytes <= shape().replies());
            self.reader.publish(&self.memory);
        }
        found
    }

    fn laid(&self) -> Vec<u8> {
        let (head, end) = (REQUESTS_AT + self.at, shape().replies_at());
        let mut bytes = self.memory.0.borrow()[head..end].to_vec();
        bytes.extend(self.memory.get(REQUESTS_AT, head));
        bytes
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for laid in [0, 3] {
        let bit = if laid == 0 { 0 } else { 4 };
        let mut messages = Messages::with(laid);
        messages.lay(8, b"payload");
        messages.lay(9, &[7; 200]);
        seeds.push(input(bit, &messages.laid()));
        let mut requests = Requests::with(laid);
        requests.lay(b"a key and a value");
        requests.lay(&[7; 300]);
        seeds.push(input(bit + 1, &requests.laid()));
    }
    for (status, parts) in [
        (Status::Value, &[&b"value"[..], b"s"][..]),
        (Status::Failed, &[&[b'x'; 3000][..]]),
        (Status::Page, &[&[b'x'; 3000][..]]),
    ] {
        let memory = Plain::new(shape().bytes());
        let reply = ReplyHeader {
            status,
            flags: Flags::APPLIED,
            id: ID,
            needed: 0,
            map: 0xfeed,
        };
        write_reply(&memory, shape(), SLOT, reply, parts);
        seeds.push(input(2, &memory.get(reply_at(), shape().bytes())));
    }
    seeds
}
