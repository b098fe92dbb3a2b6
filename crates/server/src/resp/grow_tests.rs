//! `APPEND` and `SETRANGE` of values in parts: what is told of them, and what is behind them in a pipeline.

use std::collections::BTreeSet;

use argosy_engine::long::Part;

use super::*;
use crate::resp::front::Limits;

const MIB: usize = 1 << 20;

fn value(seed: u8, len: usize) -> Vec<u8> {
    let noise = (0..10_007_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed);
    noise.cycle().take(len).collect()
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Versions of which there are parts.
fn versions(fake: &Fake) -> BTreeSet<u128> {
    let pairs = fake.pairs();
    let parts = pairs.keys().filter_map(|key| Part::parse(key));
    parts.map(|part| part.version).collect()
}

/// A session with a value of so many bytes under `k`.
fn with_value(len: usize) -> (Harness, Vec<u8>) {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, len);
    harness.send(&array(&[b"SET", b"k", &long]));
    assert_eq!(harness.read(), b"+OK\r\n");
    (harness, long)
}

/// Releases what is kept, the oldest first, until nothing is, and returns how much that was.
fn release_all(harness: &mut Harness) -> usize {
    let mut released = 0;
    while harness.fake.release(0) {
        released += 1;
        harness.drive();
    }
    released
}

#[test]
fn changes_of_long_values_come_to_what_they_say() {
    let mut random = Random(0x5eed_0024);
    let mut harness = Harness::new(Limits::default());
    let mut model: Vec<u8> = Vec::new();
    for round in 0..40_u8 {
        // From below the limit of one piece to some parts above it, and back.
        if round % 8 == 0 {
            model = value(round, random.below(3 * MIB));
            harness.send(&array(&[b"SET", b"k", &model]));
            harness.read();
        }
        let operand = value(round, [0, 1, 7, 600_000, MIB][random.below(5)]);
        let place = random.below(model.len() + MIB);
        if round % 2 == 0 {
            model.extend_from_slice(&operand);
            harness.send(&array(&[b"APPEND", b"k", &operand]));
        } else {
            let end = place + operand.len();
            if !operand.is_empty() {
                model.resize(model.len().max(end), 0);
                model[place..end].copy_from_slice(&operand);
            }
            let place = place.to_string();
            harness.send(&array(&[b"SETRANGE", b"k", place.as_bytes(), &operand]));
        }
        harness.send(b"GET k\r\nSTRLEN k\r\nGETRANGE k -3 -1\r\n");
        let len = format!(":{}\r\n", model.len()).into_bytes();
        let last = bulk(&model[model.len().saturating_sub(3)..]);
        let expected = [len.clone(), bulk(&model), len, last].concat();
        assert!(harness.read() == expected, "round {round}");
    }
    let (input, output) = harness.session.memory_bytes();
    assert!(input + output < 4 * MIB, "{input} {output}");
}

#[test]
fn the_longest_value_is_made_in_little_memory() {
    let len = 64 * MIB - 5;
    let (mut harness, mut long) = with_value(len);
    let calls = harness.fake.counts().0;
    harness.fake.set_late(true);
    harness.send(b"APPEND k 12345\r\n");
    let mut held = 0;
    while harness.fake.release(0) {
        harness.drive();
        assert!(harness.fake.held() <= 1, "one call at a time");
        held = held.max(harness.session.held());
    }
    harness.fake.set_late(false);
    assert_eq!(harness.read(), format!(":{}\r\n", 64 * MIB).into_bytes());
    assert!(held < MIB, "{held}");
    // The change, the key, each part read and written, and the head.
    assert_eq!(harness.fake.counts().0 - calls, 1 + 1 + 2 * 128 + 1);
    long.extend_from_slice(b"12345");
    harness.send(b"GET k\r\n");
    assert!(harness.read() == bulk(&long));
    let over = harness.exchange(b"APPEND k x\r\n");
    let set = harness.exchange(&array(&[b"SET", b"l", &value(1, 64 * MIB + 1)]));
    assert_eq!(over, set, "as it is said of SET");
    assert!(
        over.contains("67108864") && over.contains("not applied"),
        "{over}"
    );
}

#[test]
fn what_is_over_a_limit_is_refused_and_leaves_nothing() {
    let mut harness = Harness::new(Limits::default());
    harness.send(b"SET k old\r\n");
    harness.read();
    for place in ["67108864", "4294967296", "9223372036854775807"] {
        let reply = harness.exchange(format!("SETRANGE k {place} x\r\n").as_bytes());
        assert!(reply.starts_with("-ERR the value has"), "{reply}");
        assert!(reply.contains("max_long_value_bytes"), "{reply}");
    }
    let reply = harness.exchange(b"SETRANGE k -1 x\r\n");
    assert_eq!(reply, "-ERR offset is out of range\\r\\n");
    let reply = harness.exchange(&array(&[b"SETRANGE", &[b'k'; 4096], b"2000000", b"x"]));
    assert!(reply.starts_with("-ERR the key has 4096 bytes"), "{reply}");
    assert_eq!(harness.exchange(b"GET k\r\n"), "$3\\r\\nold\\r\\n");
    assert_eq!(versions(&harness.fake), BTreeSet::new());
}

#[test]
fn the_expiry_stays() {
    let (mut harness, long) = with_value(2 * MIB);
    harness.send(b"EXPIRE k 100\r\nAPPEND k x\r\nTTL k\r\nSETRANGE k 9 x\r\nTTL k\r\n");
    harness.send(
        b"SET s 1 EX 50\r\nSETRANGE s 2000000 x\r\nTTL s\r\nPERSIST k\r\nAPPEND k x\r\nTTL k\r\n",
    );
    let (one, two) = (long.len() + 1, long.len() + 2);
    let expected = format!(
        ":1\r\n:{one}\r\n:100\r\n:{one}\r\n:100\r\n+OK\r\n:2000001\r\n:50\r\n:1\r\n:{two}\r\n:-1\r\n"
    );
    assert_eq!(harness.read(), expected.into_bytes());
}

#[test]
fn of_parts_with_other_bytes_nothing_is_made() {
    let (mut harness, _) = with_value(2 * MIB);
    harness.fake.change(|pairs| {
        pairs.values_mut().for_each(|value| {
            if value.len() > 100 {
                value[7] ^= 1;
            }
        })
    });
    let before = harness.fake.pairs();
    let reply = harness.exchange(b"APPEND k x\r\n");
    assert!(
        reply.starts_with("-TRYAGAIN the parts") && reply.contains("not applied"),
        "{reply}"
    );
    assert_eq!(harness.fake.pairs()[&b"k"[..]], before[&b"k"[..]]);
}

#[test]
fn what_became_of_a_change_that_failed_is_told() {
    // The key is looked up, or the head is written.
    for (fails, expected) in [
        (1, "-TRYAGAIN no room in time (not applied)"),
        (8, "-UNCERTAIN no room in time (outcome unknown"),
    ] {
        let (mut harness, _) = with_value(MIB + 100);
        harness.fake.set_late(true);
        harness.send(b"APPEND k xyz\r\n");
        for call in 1.. {
            if call == fails {
                harness.fake.fail_next(Failure::Unavailable {
                    what: "no room in time".to_owned(),
                    outcome: Outcome::Unknown,
                });
            }
            if !harness.fake.release(0) {
                break;
            }
            harness.drive();
        }
        let out = harness.read();
        assert!(
            out.starts_with(expected.as_bytes()),
            "{}",
            out.escape_ascii()
        );
    }
}

/// A pipeline comes to the same, whenever and in whatever order answers come.
#[test]
fn what_comes_behind_a_change_sees_it() {
    let mut random = Random(0x5eed_0025);
    let mut waited = 0;
    for round in 0..60 {
        let mut input = Vec::new();
        for _ in 0..12 {
            let key = ["a", "b"][random.below(2)];
            let place = MIB - 3 + random.below(5);
            let line = match random.below(14) {
                0..=2 => format!("APPEND {key} xy"),
                3..=5 => format!("SETRANGE {key} {place} z"),
                6 => format!("GETRANGE {key} -9 -1"),
                7 => format!("GETRANGE {key} 0 1"),
                8 => format!("DEL {key} none"),
                9 => format!("SET {key} short"),
                10 => "EXISTS none a b".to_owned(),
                11 => "KV.RANGE - y KEYSONLY".to_owned(),
                12 => "PING".to_owned(),
                _ => {
                    input.extend(array(&[b"SET", key.as_bytes(), &value(1, MIB + 1)]));
                    continue;
                }
            };
            input.extend(words(&line));
        }
        let mut at_once = Harness::new(Limits::default());
        at_once.send(&input);
        let expected = at_once.read();
        let mut other = Harness::new(Limits::default());
        other.fake.set_late(true);
        other.send(&input);
        while other.fake.held() > 0 {
            waited += usize::from(other.session.waits());
            other.fake.release(random.below(other.fake.held()));
            other.drive();
            assert!(!other.session.waits() || !other.session.can_go_on());
        }
        let read = other.read();
        assert_eq!(
            read.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "round {round}"
        );
        assert_eq!(other.session.held(), 0);
    }
    assert!(waited > 100, "{waited}");
}

#[test]
fn what_is_about_other_keys_does_not_wait() {
    let (mut harness, long) = with_value(2 * MIB);
    harness.fake.set_late(true);
    harness.send(b"APPEND k x\r\nGET a\r\nAPPEND b 1\r\nGET b\r\nGET c\r\n");
    assert_eq!(harness.fake.held(), 3, "all in front of what waits");
    assert!(!harness.session.wants_input() && !harness.session.can_go_on());
    // The append to the other key is answered.
    assert!(harness.fake.release(2));
    harness.drive();
    assert_eq!(harness.fake.held(), 4);
    release_all(&mut harness);
    let expected = format!(":{}\r\n$-1\r\n:1\r\n$1\r\n1\r\n$-1\r\n", long.len() + 1);
    assert_eq!(harness.read(), expected.into_bytes());
}

#[test]
fn changes_of_several_keys_are_made_one_after_the_other() {
    let (mut harness, long) = with_value(2 * MIB);
    harness.send(&array(&[b"SET", b"l", &long]));
    harness.read();
    harness.fake.set_late(true);
    harness.send(b"APPEND k x\r\nAPPEND l x\r\n");
    assert_eq!(harness.fake.held(), 2);
    // The second is refused first, and waits for its turn.
    assert!(harness.fake.release(1));
    harness.drive();
    while harness.fake.held() > 0 {
        assert_eq!(harness.fake.held(), 1);
        harness.fake.release(0);
        harness.drive();
    }
    let told = format!(":{}\r\n", long.len() + 1);
    assert_eq!(harness.read(), told.repeat(2).into_bytes());
}

#[test]
fn a_change_without_a_reply_is_made() {
    let (mut harness, long) = with_value(2 * MIB);
    harness.send(b"CLIENT REPLY OFF\r\nAPPEND k x\r\nCLIENT REPLY ON\r\nSTRLEN k\r\n");
    let expected = format!("+OK\r\n:{}\r\n", long.len() + 1);
    assert_eq!(harness.read(), expected.into_bytes());
}
