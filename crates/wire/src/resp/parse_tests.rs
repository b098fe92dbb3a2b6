//! The parser against well-formed and malformed streams, cut at every place and at random ones.

#![allow(clippy::cast_possible_truncation, reason = "small numbers in tests")]

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;

/// What a stream came to: each request's words in escaped form, and the error that ended it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    requests: Vec<String>,
    error: Option<ProtocolError>,
}

/// A connection as a caller would keep it: buffer, parser, and what was read.
#[derive(Default)]
struct Stream {
    parser: Parser,
    buffer: Vec<u8>,
    buffered_max: usize,
    memory_max: usize,
    seen: Seen,
}

impl Stream {
    fn feed(&mut self, piece: &[u8]) {
        if self.seen.error.is_some() {
            return;
        }
        self.buffer.extend_from_slice(piece);
        loop {
            let bytes = match self.parser.parse(&self.buffer) {
                Err(error) => {
                    self.seen.error = Some(error);
                    return;
                }
                Ok(Step::Incomplete) => break,
                Ok(Step::Long { .. }) => continue,
                Ok(Step::Discard { bytes }) => bytes,
                Ok(Step::Request { bytes }) => {
                    let args = self.parser.args(&self.buffer);
                    assert!(args.len() > 0, "a request has a name");
                    let words: Vec<String> = args
                        .from(0)
                        .map(|arg| arg.escape_ascii().to_string())
                        .collect();
                    self.seen.requests.push(words.join(" "));
                    bytes
                }
                Ok(Step::Oversized {
                    bytes,
                    request_bytes,
                    longest_bytes,
                }) => {
                    let line = format!("<oversized {request_bytes}, longest {longest_bytes}>");
                    self.seen.requests.push(line);
                    bytes
                }
            };
            self.buffer.drain(..bytes);
        }
        self.buffered_max = self.buffered_max.max(self.buffer.len());
        self.memory_max = self.memory_max.max(self.parser.memory_bytes());
    }
}

fn read(pieces: &[&[u8]]) -> Seen {
    let mut stream = Stream::default();
    for piece in pieces {
        stream.feed(piece);
    }
    stream.seen
}

fn requests(bytes: &[u8]) -> Vec<String> {
    let seen = read(&[bytes]);
    assert_eq!(seen.error, None, "{}", bytes.escape_ascii());
    seen.requests
}

/// A small generator, seeded, so that every run tests the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

const WELL_FORMED: &[(&[u8], &[&str])] = &[
    (b"*1\r\n$4\r\nPING\r\n", &["PING"]),
    (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", &["GET "]),
    (
        b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0\xff\r\n",
        &["GET \\r\\n\\x00\\xff"],
    ),
    (b"PING\r\n", &["PING"]),
    (b"PING\n", &["PING"]),
    (b"  set\ta  b \r\n", &["set a b"]),
    (
        b"set \"a b\\n\\x41\\\"\" 'c \\'d\\n'\r\n",
        &["set a b\\nA\\\" c \\'d\\\\n"],
    ),
    (b"echo \"\" ''\r\n", &["echo  "]),
    (b"\r\n\n*0\r\nPING\r\n", &["PING"]),
    (b"*1\r\n$1\r\na\r\nb\r\n*1\r\n$1\r\nc\r\n", &["a", "b", "c"]),
];

#[test]
fn well_formed_streams_are_read() {
    for (bytes, expected) in WELL_FORMED {
        assert_eq!(&requests(bytes), expected, "{}", bytes.escape_ascii());
    }
}

const MALFORMED: &[(&[u8], ProtocolError)] = &[
    (b"*-1\r\n", ProtocolError::ArrayCount),
    (b"*\r\n", ProtocolError::ArrayCount),
    (b"*a\r\n", ProtocolError::ArrayCount),
    (b"*01\r\n", ProtocolError::ArrayCount),
    (b"*+1\r\n", ProtocolError::ArrayCount),
    (b"*1 \r\n", ProtocolError::ArrayCount),
    (b"*1\r\r\n", ProtocolError::ArrayCount),
    (b"*1\n", ProtocolError::ArrayCount),
    (b"*1048577\r\n", ProtocolError::ArrayCount),
    (b"*4294967297\r\n", ProtocolError::ArrayCount),
    (b"*99999999999999999999999999", ProtocolError::ArrayCount),
    (b"*000000000000000000000000", ProtocolError::ArrayCount),
    (b"*1\r\n*1\r\n$1\r\na\r\n", ProtocolError::NotBulk(b'*')),
    (b"*1\r\nPING\r\n", ProtocolError::NotBulk(b'P')),
    (b"*1\r\n\0", ProtocolError::NotBulk(0)),
    (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
    (b"*1\r\n$\r\n", ProtocolError::BulkLength),
    (b"*1\r\n$536870913\r\n", ProtocolError::BulkLength),
    (
        b"*1\r\n$18446744073709551617\r\n",
        ProtocolError::BulkLength,
    ),
    (b"*1\r\n$3\r\nPING\r\n", ProtocolError::BulkEnd),
    (b"*1\r\n$3\r\nPIN\rX", ProtocolError::BulkEnd),
    (b"*2\r\n$5\r\nPING\r\n$1\r\na\r\n", ProtocolError::BulkEnd),
    (b"set \"a\r\n", ProtocolError::InlineQuotes),
    (b"set 'a\r\n", ProtocolError::InlineQuotes),
    (b"set \"a\"b\r\n", ProtocolError::InlineQuotes),
    (b"set \"a\\\r\n", ProtocolError::InlineQuotes),
];

#[test]
fn malformed_streams_end_with_their_error() {
    for (bytes, expected) in MALFORMED {
        let mut stream = b"PING\r\n".to_vec();
        stream.extend_from_slice(bytes);
        let seen = read(&[&stream]);
        assert_eq!(seen.error, Some(*expected), "{}", bytes.escape_ascii());
        assert_eq!(seen.requests, ["PING"], "what stood before it is served");
    }
}

/// An error is told as soon as its cause is there: nobody waits for bytes that cannot help.
#[test]
fn no_error_waits_for_more_bytes() {
    for (bytes, expected) in MALFORMED {
        let mut stream = Stream::default();
        for byte in *bytes {
            stream.feed(&[*byte]);
        }
        assert_eq!(
            stream.seen.error,
            Some(*expected),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn every_cut_gives_the_same() {
    let streams = WELL_FORMED.iter().map(|(bytes, _)| *bytes);
    for bytes in streams.chain(MALFORMED.iter().map(|(bytes, _)| *bytes)) {
        let whole = read(&[bytes]);
        for cut in 0..=bytes.len() {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole, "byte by byte");
    }
}

#[test]
fn nothing_is_taken_for_a_request_before_its_last_byte() {
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nxyz\r\n";
    for cut in 0..request.len() {
        assert_eq!(read(&[&request[..cut]]), Seen::default(), "cut at {cut}");
    }
}

#[test]
fn a_million_nested_arrays_are_refused_at_the_second() {
    let mut stream = Stream::default();
    stream.feed(&b"*1\r\n".repeat(1_000_000));
    assert_eq!(stream.seen.error, Some(ProtocolError::NotBulk(b'*')));
    assert!(
        stream.memory_max <= 4096,
        "{} bytes held",
        stream.memory_max
    );
}

/// Whatever is announced, memory grows with what arrives.
#[test]
fn lying_lengths_cost_nothing() {
    for claim in [
        &b"*1048576\r\n"[..],
        b"*1\r\n$536870912\r\n",
        b"*1048576\r\n$4\r\nMGET\r\n",
    ] {
        let mut stream = Stream::default();
        stream.feed(claim);
        assert_eq!(stream.seen, Seen::default(), "it waits for the rest");
        assert!(stream.parser.memory_bytes() <= 4096);
        assert!(stream.buffered_max <= claim.len());
    }
}

#[test]
fn a_value_that_is_too_long_is_read_past_in_bounded_memory() {
    let length = 64 << 20;
    let mut stream = Stream::default();
    stream.feed(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").as_bytes());
    let piece = vec![b'x'; 60_000];
    let mut left = length;
    while left > 0 {
        let now = left.min(piece.len());
        stream.feed(&piece[..now]);
        left -= now;
    }
    stream.feed(b"\r\n*1\r\n$4\r\nPING\r\n");
    let request_bytes = 4 + 9 + 7 + 11 + length + 2;
    assert_eq!(
        stream.seen.requests,
        [
            format!("<oversized {request_bytes}, longest {length}>"),
            "PING".to_string()
        ]
    );
    assert!(stream.buffered_max < 100_000, "{}", stream.buffered_max);
}

#[test]
fn too_many_arguments_are_read_past_in_bounded_memory() {
    let count = 700_000;
    let mut stream = Stream::default();
    stream.feed(format!("*{count}\r\n").as_bytes());
    for _ in 0..count / 1000 {
        stream.feed(&b"$3\r\nDEL\r\n".repeat(1000));
    }
    stream.feed(b"PING\r\n");
    let request_bytes = 9 + count * 9;
    assert_eq!(
        stream.seen.requests,
        [
            format!("<oversized {request_bytes}, longest 3>"),
            "PING".to_string()
        ]
    );
    assert!(stream.buffered_max <= REQUEST_BYTES_MAX + 9000);
    assert!(
        stream.memory_max <= 2 * REQUEST_BYTES_MAX,
        "spans of {} bytes",
        stream.memory_max
    );
}

#[test]
fn a_broken_end_is_seen_in_a_request_that_is_read_past() {
    let mut stream = Stream::default();
    stream.feed(b"*2\r\n$3000000\r\n");
    stream.feed(&vec![b'x'; 3_000_000]);
    stream.feed(b"\r");
    assert_eq!(stream.seen.error, None);
    stream.feed(b"x");
    assert_eq!(stream.seen.error, Some(ProtocolError::BulkEnd));
}

#[test]
fn the_largest_request_is_kept_and_one_byte_more_is_not() {
    let head = |len: usize| format!("*1\r\n${len}\r\n");
    let len = REQUEST_BYTES_MAX - head(REQUEST_BYTES_MAX).len() - 2;
    for (len, kept) in [(len, true), (len + 1, false)] {
        let mut bytes = head(len).into_bytes();
        bytes.resize(bytes.len() + len, b'x');
        bytes.extend_from_slice(b"\r\n");
        let seen = requests(&bytes);
        assert_eq!(seen.len(), 1);
        assert_eq!(
            seen[0].starts_with("<oversized"),
            !kept,
            "{}",
            &seen[0][..20]
        );
    }
}

#[test]
fn an_endless_inline_request_is_refused() {
    let mut stream = Stream::default();
    stream.feed(&vec![b'a'; INLINE_BYTES_MAX - 1]);
    assert_eq!(stream.seen.error, None);
    stream.feed(b"a");
    assert_eq!(stream.seen.error, Some(ProtocolError::InlineLength));

    let mut longest = vec![b'a'; INLINE_BYTES_MAX - 1];
    longest.push(b'\n');
    assert_eq!(requests(&longest)[0].len(), INLINE_BYTES_MAX - 1);
}

/// A stream of requests, most well-formed, some bytes wrong.
fn random_stream(random: &mut Random) -> Vec<u8> {
    let mut out = vec![];
    for _ in 0..random.below(6) {
        match random.below(5) {
            0 => out.extend_from_slice(b"PING \"x y\"\r\n"),
            1 => out.extend_from_slice(b"\r\n"),
            _ => {
                let args = random.below(4);
                out.extend_from_slice(format!("*{args}\r\n").as_bytes());
                for _ in 0..args {
                    let len = random.below(40);
                    out.extend_from_slice(format!("${len}\r\n").as_bytes());
                    out.extend((0..len).map(|_| random.next() as u8));
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }
    for _ in 0..random.below(3) {
        if !out.is_empty() {
            let at = random.below(out.len());
            match random.below(3) {
                0 => out[at] = random.next() as u8,
                1 => out.truncate(at),
                _ => out.insert(at, b"*$\r\n-0129"[random.below(9)]),
            }
        }
    }
    out
}

#[test]
fn random_streams_cut_at_random_give_the_same() {
    let mut random = Random(0x5eed_0001);
    let mut errors = 0;
    for _ in 0..20_000 {
        let stream = random_stream(&mut random);
        let whole = read(&[&stream]);
        errors += usize::from(whole.error.is_some());
        let mut pieces: Vec<&[u8]> = vec![];
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let (piece, next) = rest.split_at(1 + random.below(rest.len().min(30)));
            pieces.push(piece);
            rest = next;
        }
        assert_eq!(read(&pieces), whole, "{}", stream.escape_ascii());
    }
    assert!(
        (2_000..18_000).contains(&errors),
        "both kinds occur: {errors}"
    );
}

#[test]
fn random_bytes_never_panic() {
    const BYTES: &[u8] = b"*$\r\n0123456789-+ \"'\\x\0\xffPINGget";
    let mut random = Random(0x5eed_0002);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(80))
            .map(|_| BYTES[random.below(BYTES.len())])
            .collect();
        let whole = read(&[&bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole, "{}", bytes.escape_ascii());
    }
}

#[test]
fn memory_of_a_long_request_is_given_back() {
    let mut stream = Stream::default();
    let mut bytes = b"*10000\r\n".to_vec();
    bytes.extend_from_slice(&b"$0\r\n\r\n".repeat(10_000));
    stream.feed(&bytes);
    assert!(stream.parser.memory_bytes() >= 10_000 * size_of::<Span>());
    stream.parser.shrink();
    assert!(stream.parser.memory_bytes() <= 8 << 10);
    stream.feed(b"PING\r\n");
    assert_eq!(stream.seen.requests.len(), 2);
}

#[test]
fn messages_name_what_is_wrong() {
    assert_eq!(
        ProtocolError::NotBulk(b'*').to_string(),
        "expected '$', got '*'"
    );
    assert_eq!(
        ProtocolError::NotBulk(b'\n').to_string(),
        "expected '$', got '\\x0a'"
    );
}
