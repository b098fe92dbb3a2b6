//! Sessions against the service in memory: scripts of bytes in and replies out, any split of any
//! input, answers in any order, and the bounds.

#![allow(clippy::cast_possible_truncation, reason = "small numbers in tests")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argosy_base::{Instant, Outcome};
use argosy_engine::Reach;

use super::*;
use crate::resp::fake::Fake;
use crate::resp::front::{Client, ClientPolicy, CrossRegion, Settings};
use crate::service::{Failure, ReplySink, ReplyTo, Service};

/// Takes late answers until the session is driven next.
#[derive(Default)]
struct Sink(Mutex<Vec<(u64, Response)>>);

impl ReplySink for Sink {
    fn deliver(&self, token: u64, response: Response) {
        self.0.lock().unwrap().push((token, response));
    }
}

/// A session with everything around it.
struct Harness {
    fake: Arc<Fake>,
    front: FrontEnd,
    session: Session,
    scratch: Scratch,
    pool: Pool,
    sink: Arc<Sink>,
    /// The client does not read.
    stuck: bool,
    /// What the client has read.
    out: Vec<u8>,
    /// What could not be given to the session yet.
    backlog: Vec<u8>,
    in_flight_seen: usize,
}

const ID: u64 = 7;

impl Harness {
    fn new(limits: Limits) -> Self {
        let settings = Settings {
            limits,
            ..Settings::default()
        };
        let front = FrontEnd::new(settings, Instant::default());
        let client = Client {
            address: "10.0.0.1:5000".to_owned(),
            local_address: "10.0.0.2:7379".to_owned(),
            protocol: 2,
            ..Client::default()
        };
        front.clients().insert(ID, client);
        Self {
            fake: Arc::default(),
            front,
            session: Session::new(ID, limits),
            scratch: Scratch::default(),
            pool: Pool::default(),
            sink: Arc::default(),
            stuck: false,
            out: Vec::new(),
            backlog: Vec::new(),
            in_flight_seen: 0,
        }
    }

    /// Gives `bytes` to the session as far as it wants them, and does all that can be done.
    fn send(&mut self, bytes: &[u8]) {
        self.backlog.extend_from_slice(bytes);
        self.drive();
    }

    fn drive(&mut self) {
        let backlog = std::mem::take(&mut self.backlog);
        let mut rest = backlog.as_slice();
        loop {
            self.pump();
            if rest.is_empty() || !self.session.wants_input() {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(4096));
            self.session.borrow_buffers(&mut self.pool);
            self.session.receive(now);
            rest = later;
        }
        self.rest();
        self.backlog = rest.to_vec();
    }

    /// As at the end of a round.
    fn rest(&mut self) {
        self.session.return_buffers(&mut self.pool, false);
    }

    /// Makes calls, takes answers and reads output until nothing moves.
    fn pump(&mut self) {
        let sink = Arc::clone(&self.sink) as Arc<dyn ReplySink>;
        loop {
            let mut moved = false;
            for (token, response) in std::mem::take(&mut *self.sink.0.lock().unwrap()) {
                moved = true;
                let token = CallToken::from_raw(token);
                self.session.answer(&self.front, token, response);
            }
            let context = Context {
                front: &self.front,
                service: &*self.fake,
                now: Instant::from_nanos(9_000_000_000),
                wall: Duration::new(1_000, 5_000),
            };
            while let Some(call) = self.session.next_call(&context, &mut self.scratch) {
                moved = true;
                let token = call.token;
                assert!(
                    token.get() >> CallToken::BITS == 0,
                    "the upper bits are free"
                );
                let response = self
                    .fake
                    .call(
                        call.request,
                        Reach::Device,
                        ReplyTo::new(&sink, token.get()),
                    )
                    .answered();
                self.in_flight_seen = self.in_flight_seen.max(self.session.in_flight());
                if let Some(response) = response {
                    self.session.answer(&self.front, token, response);
                }
            }
            if !self.stuck && !self.session.output().is_empty() {
                moved = true;
                self.out.extend_from_slice(self.session.output());
                let bytes = self.session.output().len();
                self.session.wrote(bytes);
            }
            if !moved {
                return;
            }
        }
    }

    fn read(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// What the client reads in answer to `bytes`, which must not need late answers.
    fn exchange(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        let out = self.read();
        out.escape_ascii().to_string()
    }
}

fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn words(line: &str) -> Vec<u8> {
    let words: Vec<Vec<u8>> = line
        .split(' ')
        .map(|word| if word == "''" { vec![] } else { unescape(word) })
        .collect();
    array(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// `\r`, `\n`, `\\`, `\xNN` and `\s` for a blank; everything else is itself.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b's' => b' ',
                b'x' => {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
            byte => byte,
        });
    }
    out
}

/// Replies as a script shows them: a line for each line of the protocol.
fn shown(out: &[u8]) -> String {
    let text = out.escape_ascii().to_string();
    let mut lines = text.replace("\\r\\n", "\n");
    if out.is_empty() {
        lines.push_str("(nothing)\n");
    } else if !lines.ends_with('\n') {
        lines.push_str("(no end of line)\n");
    }
    lines.replace("\\'", "'").replace("\\\"", "\"")
}

fn failure(case: &mut datadriven::TestCase) -> Failure {
    let kind: String = case.take_arg("kind").unwrap();
    let outcome = match case.take_arg::<String>("outcome").unwrap().as_str() {
        "applied" => Outcome::Applied,
        "not-applied" => Outcome::NotApplied,
        "unknown" => Outcome::Unknown,
        other => panic!("no outcome: {other}"),
    };
    let what = "region 1 lacks a member".to_owned();
    match kind.as_str() {
        "invalid" => Failure::Invalid("the key is wrong".to_owned()),
        "unavailable" => Failure::Unavailable { what, outcome },
        "busy" => Failure::Busy { what, outcome },
        "storage" => Failure::Storage { what, outcome },
        other => panic!("no kind: {other}"),
    }
}

fn limits_of(case: &mut datadriven::TestCase) -> Limits {
    let defaults = Limits::default();
    let mut take = |name: &str, default: usize| -> usize {
        case.try_take_arg(name).unwrap().unwrap_or(default)
    };
    Limits {
        in_flight_max: take("in-flight", defaults.in_flight_max),
        asked_bytes_max: take("asked", defaults.asked_bytes_max),
        output_bytes_max: take("output", defaults.output_bytes_max),
        reply_bytes_max: take("reply", defaults.reply_bytes_max),
    }
}

/// What somebody else writes: `SET key value` and `DEL key`.
fn others(lines: &[String], batch: &mut argosy_engine::WriteBatch) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["SET", key, value] => batch.put(key.as_bytes(), value.as_bytes()),
            ["DEL", key] => batch.delete(key.as_bytes()),
            other => panic!("no write: {other:?}"),
        }
        .unwrap();
    }
}

/// Sets so many keys to values of so many bytes.
fn fill(harness: &mut Harness, case: &mut datadriven::TestCase) {
    let count: usize = case.take_arg("count").unwrap();
    let bytes: usize = case.take_arg("bytes").unwrap();
    for index in 0..count {
        let key = format!("fill:{index:04}");
        harness.send(&array(&[b"SET", key.as_bytes(), &vec![b'v'; bytes]]));
    }
    harness.read();
}

/// Others write before each of the next writes.
fn have_others_write(harness: &mut Harness, case: &mut datadriven::TestCase) {
    let times: usize = case.try_take_arg("times").unwrap().unwrap_or(1);
    for _ in 0..times {
        let lines: Vec<String> = case.input.lines().map(ToOwned::to_owned).collect();
        harness
            .fake
            .write_before(move |batch| others(&lines, batch));
    }
}

/// One directive of a script.
fn policy(case: &mut datadriven::TestCase) -> ClientPolicy {
    ClientPolicy {
        cross_region_exec: match case.take_flag("in-order").unwrap() {
            true => CrossRegion::InOrder,
            false => CrossRegion::default(),
        },
        flush_all: !case.take_flag("keep-all").unwrap(),
        ..ClientPolicy::default()
    }
}

fn run(harness: &mut Harness, case: &mut datadriven::TestCase) -> String {
    match case.directive.as_str() {
        "open" => {
            *harness = Harness::new(limits_of(case));
            return String::new();
        }
        "send" => {
            let bytes: Vec<u8> = case.input.lines().flat_map(unescape).collect();
            harness.send(&bytes);
        }
        "do" => {
            let bytes: Vec<u8> = case.input.lines().flat_map(words).collect();
            harness.send(&bytes);
        }
        "fill" => {
            fill(harness, case);
            return String::new();
        }
        "late" => harness.fake.set_late(true),
        "at-once" => harness.fake.set_late(false),
        "release" => {
            let index: usize = case.take_arg("index").unwrap();
            assert!(harness.fake.release(index), "an answer is kept");
            harness.drive();
        }
        "fail" => {
            let failure = failure(case);
            harness.fake.fail_next(failure);
            return String::new();
        }
        "others" => {
            have_others_write(harness, case);
            return String::new();
        }
        "policy" => {
            harness.front.settings.policy = policy(case);
            return String::new();
        }
        "split" => {
            let from: String = case.take_arg("from").unwrap();
            harness.fake.split_at(from.as_bytes());
            return String::new();
        }
        "not-ready" => {
            harness
                .fake
                .set_not_ready(Some("region 1 waits".to_owned()));
            return String::new();
        }
        "stuck" => harness.stuck = true,
        "reads" => {
            harness.stuck = false;
            harness.drive();
        }
        "end" => {
            harness.session.end_of_input();
            harness.drive();
        }
        "state" => {
            return format!(
                "in flight {}, kept {}, wants input {}, finished {}\n",
                harness.session.in_flight(),
                harness.fake.held(),
                harness.session.wants_input(),
                harness.session.is_finished(),
            );
        }
        unknown => panic!("no directive: {unknown}"),
    }
    shown(&harness.read())
}

#[test]
fn scripts() {
    datadriven::walk("src/resp/testdata", |file| {
        let mut harness = Harness::new(Limits::default());
        file.run(|case| run(&mut harness, case));
    });
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

/// A request out of everything that answers the same whatever the time and the order of answers.
fn random_request(random: &mut Random) -> Vec<u8> {
    let mut line = String::new();
    let count = 1 + random.below(4);
    let key = |random: &mut Random| format!("k{}", random.below(6));
    match random.below(24) {
        0..=3 => write!(line, "GET {}", key(random)),
        4..=6 => write!(line, "SET {} v{}", key(random), random.below(1000)),
        7 => write!(line, "SET {} v NX GET", key(random)),
        8 => write!(line, "SET {} w XX", key(random)),
        9 => write!(line, "DEL {} {}", key(random), key(random)),
        10 => write!(line, "EXISTS {} {}", key(random), key(random)),
        11 | 12 => {
            line.push_str("MGET");
            (0..count).try_for_each(|_| write!(line, " {}", key(random)))
        }
        13 => {
            line.push_str("MSET");
            (0..count).try_for_each(|_| write!(line, " {} m", key(random)))
        }
        14 => write!(line, "KV.RANGE - {} LIMIT {}", key(random), random.below(4)),
        15 => write!(line, "SCAN 0 MATCH k* COUNT {count}"),
        16 => write!(line, "HELLO {}", 2 + random.below(2)),
        17 => write!(line, "ECHO {}", "e".repeat(random.below(50))),
        18 => write!(
            line,
            "CLIENT REPLY {}",
            ["ON", "SKIP", "OFF"][random.below(3)]
        ),
        19 => write!(line, "NOSUCH {count}"),
        20 => write!(line, "STRLEN {}", key(random)),
        21 => write!(line, "APPEND {} a", key(random)),
        22 => write!(line, "SETRANGE {} {count} s", key(random)),
        _ => write!(line, "KEYS k[0-3]"),
    }
    .unwrap();
    if random.below(10) == 0 {
        return (line + "\r\n").into_bytes();
    }
    words(&line)
}

fn random_input(random: &mut Random) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..random.below(25) {
        input.extend(random_request(random));
    }
    match random.below(6) {
        0 if !input.is_empty() => {
            let at = random.below(input.len());
            input[at] = random.next() as u8;
        }
        1 => input.truncate(random.below(input.len() + 1)),
        2 => input.extend(words("QUIT")),
        _ => {}
    }
    input
}

fn split<'a>(random: &mut Random, mut input: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = vec![];
    while !input.is_empty() {
        let (piece, rest) = input.split_at(1 + random.below(input.len().min(60)));
        pieces.push(piece);
        input = rest;
    }
    pieces
}

/// However the input is cut, however late and in whatever order answers come, and however small the
/// limits are, the client reads the same bytes.
#[test]
fn replies_depend_on_the_requests_only() {
    let mut random = Random(0x5eed_0003);
    let small = Limits {
        in_flight_max: 2,
        asked_bytes_max: usize::MAX,
        output_bytes_max: 30,
        reply_bytes_max: 4096,
    };
    let (mut ended, mut bytes, mut late_answers) = (0, 0, 0);
    for round in 0..3000 {
        let input = random_input(&mut random);
        let mut at_once = Harness::new(Limits::default());
        at_once.send(&input);
        let expected = at_once.read();

        let limits = if random.below(2) == 0 {
            small
        } else {
            Limits::default()
        };
        let mut other = Harness::new(limits);
        other.fake.set_late(random.below(4) > 0);
        for piece in split(&mut random, &input) {
            other.stuck = random.below(3) == 0;
            other.send(piece);
            if random.below(2) == 0 && other.fake.held() > 0 {
                late_answers += 1;
                other.fake.release(random.below(other.fake.held()));
                other.drive();
            }
            assert!(other.in_flight_seen <= limits.in_flight_max);
        }
        other.stuck = false;
        other.drive();
        while other.fake.held() > 0 {
            late_answers += 1;
            other.fake.release(random.below(other.fake.held()));
            other.drive();
        }
        let read = other.read();
        assert_eq!(
            read.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "round {round}: {}",
            input.escape_ascii()
        );
        assert_eq!(other.session.is_finished(), at_once.session.is_finished());
        ended += u32::from(at_once.session.is_finished());
        bytes += read.len();
    }
    assert!(
        ended > 300 && bytes > 500_000,
        "{ended} ended, {bytes} bytes read"
    );
    assert!(late_answers > 10_000, "{late_answers} late answers");
}

#[test]
fn random_bytes_never_panic() {
    const PIECES: &[&[u8]] = &[
        b"*",
        b"$",
        b"\r\n",
        b"1",
        b"2",
        b"3",
        b"-1",
        b"GET",
        b"SET",
        b"SCAN",
        b"k",
        b"\"",
        b"'",
        b"\0",
        b"\xff",
        b" ",
        b"MSET",
        b"99999999999999999999",
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    ];
    let mut random = Random(0x5eed_0004);
    for _ in 0..5000 {
        let input: Vec<u8> = (0..random.below(30))
            .flat_map(|_| PIECES[random.below(PIECES.len())])
            .copied()
            .collect();
        let mut whole = Harness::new(Limits::default());
        whole.send(&input);
        let mut cut = Harness::new(Limits::default());
        for byte in &input {
            cut.send(&[*byte]);
        }
        assert_eq!(cut.read(), whole.read(), "{}", input.escape_ascii());
    }
}

/// The list of malformed input: each ends its connection with one error, or waits for more, and
/// takes no memory; what stood before it was served.
#[test]
fn malformed_input_ends_in_one_error_and_bounded_memory() {
    let nested = b"*1\r\n".repeat(1_000_000);
    // With line ends in it, garbage is a row of unknown commands; without, it has no end.
    let garbage: Vec<u8> = (0..100_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .filter(|byte| !b"\n*".contains(byte))
        .collect();
    let cases: [(&str, &[u8], bool); 11] = [
        ("negative count", b"*-1\r\n", true),
        ("negative length", b"*1\r\n$-5\r\n", true),
        ("huge count", b"*2000000000\r\n", true),
        ("huge length", b"*1\r\n$99999999999\r\n", true),
        ("missing length", b"*1\r\n$\r\nPING\r\n", true),
        ("missing count", b"*\r\n$4\r\nPING\r\n", true),
        ("length too short", b"*1\r\n$3\r\nPING\r\n", true),
        ("length too long", b"*1\r\n$6\r\nPING\r\n*1\r\n", true),
        ("nested arrays", &nested, true),
        ("garbage", &garbage, true),
        ("cut frame", b"*2\r\n$3\r\nGET\r\n$10\r\nabc", false),
    ];
    for (name, bytes, is_error) in cases {
        let mut harness = Harness::new(Limits::default());
        harness.send(&words("PING"));
        assert_eq!(harness.read(), b"+PONG\r\n");
        harness.send(bytes);
        let out = String::from_utf8_lossy(&harness.read()).into_owned();
        assert_eq!(harness.session.is_finished(), is_error, "{name}: {out}");
        assert_eq!(
            out.contains("-ERR Protocol error: "),
            is_error,
            "{name}: {out}"
        );
        assert_eq!(
            out.matches("Protocol error").count(),
            usize::from(is_error),
            "{name}"
        );
        let (input, output) = harness.session.memory_bytes();
        assert!(
            input <= 64 << 10 && output <= 64 << 10,
            "{name}: {input} and {output} bytes"
        );
    }
}

#[test]
fn a_value_over_the_limit_is_refused_and_the_connection_goes_on() {
    let mut harness = Harness::new(Limits::default());
    harness.send(&array(&[b"SET", b"k", b"before"]));
    for bytes in [(1 << 20) + 1, 3 << 20, 40 << 20] {
        harness.send(&array(&[b"GETSET", b"k", &vec![b'v'; bytes]]));
        let (input, output) = harness.session.memory_bytes();
        assert!(
            input < 6 << 20 && output < 1 << 20,
            "{input} and {output} bytes"
        );
    }
    harness.send(&array(&[b"SET", b"k", &vec![b'v'; 1 << 20]]));
    harness.send(&array(&[b"STRLEN", b"k"]));
    harness.send(&array(&[b"SET", &[b'k'; 4097], b"v"]));
    harness.send(&array(&[b"GET", &[b'k'; 4097]]));
    harness.send(&array(&[b"SET", b"", b"v"]));
    let out = String::from_utf8(harness.read()).unwrap();
    let lines: Vec<&str> = out.split("\r\n").collect();
    assert_eq!(lines.len(), 10, "{out}");
    assert_eq!(lines[0], "+OK");
    for (line, bytes) in [
        (lines[1], "1048577"),
        (lines[2], "3145728"),
        (lines[3], "41943040"),
    ] {
        assert!(line.starts_with("-ERR ") && line.contains(bytes), "{line}");
        assert!(
            line.contains("max_value_bytes") && line.contains("applied"),
            "{line}"
        );
    }
    assert_eq!(lines[4..6], ["+OK", ":1048576"]);
    assert!(lines[6].contains("4097 bytes") && lines[6].contains("max_key_bytes"));
    assert!(lines[6].ends_with("(not applied)"), "{}", lines[6]);
    assert!(lines[7].contains("max_key_bytes"), "{}", lines[7]);
    assert!(lines[8].contains("the key is empty"), "{}", lines[8]);
}

/// A client that sends and never reads is not read from any more, and costs bounded memory.
#[test]
fn a_client_that_does_not_read_is_bounded() {
    let limits = Limits {
        asked_bytes_max: usize::MAX,
        output_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let value = vec![b'v'; 10_000];
    let mut harness = Harness::new(limits);
    harness.send(&array(&[b"SET", b"k", &value]));
    harness.read();
    harness.stuck = true;
    let flood = array(&[b"GET", b"k"]).repeat(10_000);
    harness.send(&flood);
    assert!(!harness.session.wants_input(), "there is no room");
    let left = harness.backlog.len();
    assert!(left > flood.len() / 2, "most was never read: {left}");
    let (input, output) = harness.session.memory_bytes();
    assert!(input <= 64 << 10, "{input} bytes of input");
    assert!(output <= 3 * (64 << 10), "{output} bytes of output");

    harness.stuck = false;
    harness.drive();
    assert!(harness.backlog.is_empty() && harness.session.wants_input());
    let reply = 8 + value.len() + 2;
    assert_eq!(harness.read().len(), 10_000 * reply, "nothing was lost");
    let (input, output) = harness.session.memory_bytes();
    assert!(
        input + output <= 8 << 10,
        "an idle session keeps little: {input} + {output}"
    );
}

/// Late answers are bounded by their number at first, then by their size, too.
#[test]
fn calls_without_an_answer_are_bounded() {
    let limits = Limits {
        in_flight_max: 10,
        asked_bytes_max: usize::MAX,
        output_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let mut harness = Harness::new(limits);
    harness.send(&array(&[b"SET", b"k", &vec![b'v'; 30_000]]));
    harness.fake.set_late(true);
    harness.send(&array(&[b"GET", b"k"]).repeat(100));
    assert_eq!(harness.session.in_flight(), 10);
    assert!(!harness.session.wants_input());
    let mut most = 0;
    for _ in 0..100 {
        // The youngest first, so that answers pile up behind the oldest.
        assert!(harness.fake.release(harness.fake.held() - 1));
        harness.drive();
        most = most.max(harness.session.memory_bytes().1);
    }
    assert_eq!(harness.fake.held(), 0);
    assert_eq!(harness.read().len(), 5 + 100 * (8 + 30_000 + 2));
    assert!(most <= 10 * 30_000 + (200 << 10), "{most} bytes held");
}

#[test]
fn a_reply_that_is_too_long_is_refused_whole() {
    let limits = Limits {
        reply_bytes_max: 100_000,
        ..Limits::default()
    };
    for late in [false, true] {
        let mut harness = Harness::new(limits);
        for key in [b"a", b"b", b"c"] {
            harness.send(&array(&[b"SET", key, &vec![b'v'; 40_000]]));
        }
        harness.read();
        harness.fake.set_late(late);
        for (request, fits) in [
            ("MGET a b", true),
            ("MGET a b c a b c", false),
            ("KV.RANGE - - LIMIT 2", true),
            ("KV.RANGE - -", false),
            ("KEYS *", true),
            ("PING", true),
        ] {
            harness.send(&words(request));
            while harness.fake.release(0) {
                harness.drive();
            }
            let out = harness.read();
            assert_eq!(!out.starts_with(b"-ERR"), fits, "{request}");
            if !fits {
                assert!(out.len() < 200 && out.ends_with(b"\r\n"));
                assert!(String::from_utf8_lossy(&out).contains("max_reply_bytes"));
            }
            assert_eq!(harness.session.in_flight(), 0);
            assert!(harness.session.memory_bytes().1 <= 400_000);
        }
    }
}

#[test]
fn names_of_fields_fit_a_reply_where_their_values_do_not() {
    let mut harness = Harness::new(Limits {
        reply_bytes_max: 100_000,
        ..Limits::default()
    });
    for field in [b"a", b"b", b"c"] {
        harness.send(&array(&[b"HSET", b"h", field, &vec![b'v'; 40_000]]));
    }
    harness.read();
    let names = |harness: &mut Harness, request: &str| {
        harness.send(&words(request));
        String::from_utf8(harness.read()).unwrap()
    };
    let all = "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n";
    assert_eq!(names(&mut harness, "HKEYS h"), all);
    assert_eq!(names(&mut harness, "HRANDFIELD h 9"), all);
    let page = format!("*2\r\n$1\r\n0\r\n{all}");
    assert_eq!(names(&mut harness, "HSCAN h 0 NOVALUES"), page);
    for request in ["HVALS h", "HGETALL h", "HRANDFIELD h 9 WITHVALUES"] {
        let refused = names(&mut harness, request);
        assert!(refused.contains("max_reply_bytes"), "{request}: {refused}");
    }
    // In a transaction others may ask for the values.
    let out = names(&mut harness, "MULTI") + &names(&mut harness, "HKEYS h");
    assert_eq!(out, "+OK\r\n+QUEUED\r\n");
    assert!(names(&mut harness, "EXEC").contains("max_reply_bytes"));
}

#[test]
fn several_keys_are_asked_for_by_one_call() {
    let mut harness = Harness::new(Limits::default());
    harness.send(&words("MSET a 1 b 22 c ''"));
    harness.read();
    for late in [false, true] {
        harness.fake.set_late(late);
        for (request, reply) in [
            (
                "MGET b none a b",
                "*4\r\n$2\r\n22\r\n$-1\r\n$1\r\n1\r\n$2\r\n22\r\n",
            ),
            ("EXISTS a none b a", ":3\r\n"),
            ("STRLEN b", ":2\r\n"),
        ] {
            let (calls, _) = harness.fake.counts();
            harness.send(&words(request));
            while harness.fake.release(0) {
                harness.drive();
            }
            assert_eq!(String::from_utf8_lossy(&harness.read()), reply);
            assert_eq!(harness.fake.counts().0 - calls, 1, "{request}");
        }
    }
}

#[test]
fn what_is_told_of_several_keys_in_parts_is_one_reply() {
    let mut harness = Harness::new(Limits::default());
    let value = vec![b'v'; 100_000];
    for key in [b"a", b"b"] {
        harness.send(&array(&[b"SET", key, &value]));
    }
    harness.read();
    for late in [false, true] {
        harness.fake.set_late(late);
        let (calls, _) = harness.fake.counts();
        harness.send(&words("MGET a b none a b a"));
        harness.send(&words("PING"));
        while harness.fake.release(0) {
            harness.drive();
        }
        let out = harness.read();
        let one = 5 * (value.len() + 11) + 5 + 4;
        assert_eq!(out.len(), one + 7);
        assert!(out.starts_with(b"*6\r\n$100000\r\nvvv") && out.ends_with(b"+PONG\r\n"));
        // Three values go over what one answer brings.
        assert_eq!(harness.fake.counts().0 - calls, 2);
        assert_eq!(harness.session.memory_bytes().1 / 100_000, 0);
    }
    // Of keys themselves only so many go in one call.
    harness.fake.set_late(false);
    let (calls, _) = harness.fake.counts();
    harness.send(&words(&format!("EXISTS{}", " a".repeat(2500))));
    assert_eq!(harness.read(), b":2500\r\n");
    assert_eq!(harness.fake.counts().0 - calls, 3);
}

#[test]
fn a_range_is_gathered_over_pages() {
    let mut harness = Harness::new(Limits::default());
    let count = 10_000;
    for index in 0..count {
        let key = format!("key:{index:06}");
        harness.send(&array(&[b"SET", key.as_bytes(), b"v"]));
    }
    harness.read();
    for late in [false, true] {
        harness.fake.set_late(late);
        for (request, expected) in [
            ("KV.RANGE - +", 2 * count),
            ("KV.RANGE key:000100 key:009100", 2 * 9000),
            ("KV.RANGE - '' LIMIT 5000", 2 * 5000),
            ("KEYS *0", count / 10),
        ] {
            let (calls, _) = harness.fake.counts();
            harness.send(&words(request));
            while harness.fake.release(0) {
                harness.drive();
            }
            let out = harness.read();
            let head = format!("*{expected}\r\n");
            assert!(out.starts_with(head.as_bytes()), "{request}");
            assert!(
                harness.fake.counts().0 - calls >= 2,
                "{request} took several pages"
            );
        }
    }
}

/// `SCAN` sees every key that is there throughout, each once here, where nothing changes.
#[test]
fn a_scan_sees_every_key() {
    let mut harness = Harness::new(Limits::default());
    for index in 0..500 {
        let key = format!("{}:{index:04}", ["user", "item"][index % 2]);
        harness.send(&array(&[b"SET", key.as_bytes(), b"v"]));
    }
    harness.read();
    for (options, expected) in [
        ("", 500),
        (" COUNT 7", 500),
        (" MATCH user:*", 250),
        (" MATCH *7", 50),
    ] {
        let mut cursor = "0".to_owned();
        let mut keys = std::collections::BTreeSet::new();
        loop {
            let out = harness.exchange(&words(&format!("SCAN {cursor}{options}")));
            let lines: Vec<&str> = out.split("\\r\\n").collect();
            assert_eq!(lines[0], "*2");
            cursor = lines[2].to_owned();
            for key in lines[4..].iter().skip(1).step_by(2) {
                assert!(keys.insert((*key).to_owned()), "{key} came twice");
            }
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(keys.len(), expected, "{options}");
    }
}

#[test]
fn commands_are_counted_and_the_table_is_in_order() {
    let mut harness = Harness::new(Limits::default());
    harness.exchange(b"PING\r\nPING\r\nNOSUCH\r\n");
    assert_eq!(harness.session.take_commands(), 3);
    assert_eq!(harness.session.take_commands(), 0);

    let mut names: Vec<&str> = command::FAMILIES
        .iter()
        .flat_map(|family| family.iter().map(|command| command.name))
        .collect();
    assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is there once");
}

#[path = "long_tests.rs"]
mod long;

#[path = "grow_tests.rs"]
mod grow;
