//! Values that are taken in and given out in parts: whole, in their turn, and in little memory.

use std::collections::BTreeMap;

use argosy_engine::long::{Head, is_reserved};

use super::*;
use crate::resp::front::Limits;

const LEN: usize = (5 << 20) / 2 + 77;

fn value(seed: u8, len: usize) -> Vec<u8> {
    let noise = (0..10_007_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed);
    noise.cycle().take(len).collect()
}

fn bulk(value: &[u8]) -> Vec<u8> {
    let mut out = format!("${}\r\n", value.len()).into_bytes();
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    out
}

#[test]
fn a_long_value_comes_back_whole_among_others() {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, LEN);
    harness.send(b"SET a 1\r\n");
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.send(b"GET a\r\nGET k\r\nSTRLEN k\r\nGET a\r\nEXISTS k\r\n");
    let behind = format!(":{LEN}\r\n$1\r\n1\r\n:1\r\n");
    let expected = [
        &b"+OK\r\n+OK\r\n$1\r\n1\r\n"[..],
        &bulk(&long),
        behind.as_bytes(),
    ];
    assert!(harness.read() == expected.concat());
    let (input, output) = harness.session.memory_bytes();
    assert!(input + output < 4 << 20, "{input} {output}");
}

/// Nobody sees parts that no head names.
#[test]
fn a_part_that_failed_has_changed_nothing() {
    let (mut parts, mut heads) = (0, 0);
    for fails in 1.. {
        let mut harness = Harness::new(Limits::default());
        harness.fake.set_late(true);
        harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
        let mut calls = 0;
        loop {
            calls += 1;
            if calls == fails {
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
        if out == b"+OK\r\n" {
            break;
        }
        let out = String::from_utf8(out).unwrap();
        match out.starts_with("-UNCERTAIN no room in time (outcome unknown") {
            true => heads += 1,
            false => parts += 1,
        }
        let told = if heads > 0 {
            "-UNCERTAIN"
        } else {
            "-TRYAGAIN no room in time (not applied)"
        };
        assert!(out.starts_with(told), "call {fails}: {out}");
    }
    assert!(parts > 1 && heads == 1, "{parts} parts, {heads} heads");
}

#[test]
fn what_is_behind_the_value_counts() {
    let mut harness = Harness::new(Limits::default());
    let (one, two) = (value(1, LEN), value(2, LEN));
    let mut set = |value: &[u8], options: &[&[u8]]| {
        let words = [&[&b"SET"[..], b"k", value], options].concat();
        harness.send(&array(&words));
        harness.read()
    };
    assert_eq!(set(&one, &[b"XX"]), b"$-1\r\n");
    assert_eq!(set(&one, &[b"NX", b"EX", b"100"]), b"+OK\r\n");
    assert_eq!(set(&two, &[b"NX"]), b"$-1\r\n");
    assert_eq!(set(&two, &[b"EX", b"none"]).first(), Some(&b'-'));
    assert_eq!(set(&two, &[b"IFEQ", b"short"]), b"$-1\r\n");
    assert!(set(&two, &[b"GET"]) == bulk(&one), "what was there before");
    harness.send(b"GET k\r\n");
    assert!(harness.read() == bulk(&two));
    harness.send(&array(&[b"SETNX", b"k", &one]));
    harness.send(&array(&[b"SETNX", b"l", &one]));
    assert_eq!(harness.read(), b":0\r\n:1\r\n");
    harness.send(b"GETDEL l\r\nGET l\r\n");
    assert!(harness.read() == [bulk(&one), b"$-1\r\n".to_vec()].concat());
}

#[test]
fn a_stretch_is_read_among_others() {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, LEN);
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.send(b"SET a 12345\r\n");
    harness.read();
    for (from, to, wanted) in [
        (0, 1, 0..2),
        (524_287, 524_288, 524_287..524_289),
        (600_000, 2_000_000, 600_000..2_000_001),
        (-2, -1, LEN - 2..LEN),
        (-1, 9_999_999, LEN - 1..LEN),
        (-9_999_999, -1, 0..LEN),
        (5, 4, 0..0),
        (9_999_999, -1, 0..0),
    ] {
        let command = format!("GETRANGE k {from} {to}\r\nGETRANGE a 1 2\r\n");
        harness.send(command.as_bytes());
        let expected = [bulk(&long[wanted]), bulk(b"23")].concat();
        assert!(harness.read() == expected, "{from} to {to}");
    }
}

/// Of all long values of a reply one part is held at a time.
#[test]
fn long_values_come_among_others() {
    let mut harness = Harness::new(Limits::default());
    let (one, two) = (value(1, LEN), value(2, LEN));
    harness.send(b"SET a 1\r\n");
    harness.send(&array(&[b"SET", b"k", &one]));
    harness.send(&array(&[b"SET", b"l", &two]));
    harness.send(b"SET z 26\r\n");
    harness.read();
    let array_of = |items: &[Vec<u8>]| {
        let head = format!("*{}\r\n", items.len()).into_bytes();
        [head, items.concat()].concat()
    };
    let null = b"$-1\r\n".to_vec();
    let (k, l) = (bulk(&one), bulk(&two));
    harness.send(b"GET z\r\nMGET k none l a k\r\nGET a\r\n");
    let many = array_of(&[k.clone(), null, l.clone(), bulk(b"1"), k.clone()]);
    assert!(harness.read() == [bulk(b"26"), many, bulk(b"1")].concat());
    harness.send(b"KV.RANGE b zz REV\r\nPING\r\n");
    let pairs = [
        bulk(b"z"),
        bulk(b"26"),
        bulk(b"l"),
        l.clone(),
        bulk(b"k"),
        k.clone(),
    ];
    assert!(harness.read() == [array_of(&pairs), b"+PONG\r\n".to_vec()].concat());
    harness.send(b"KV.PREFIX k\r\nKV.RANGE - z KEYSONLY LIMIT 1\r\n");
    let behind = array_of(&[bulk(b"a")]);
    assert!(harness.read() == [array_of(&[bulk(b"k"), k]), behind].concat());
    let (input, output) = harness.session.memory_bytes();
    assert!(input + output < 4 << 20, "{input} {output}");
}

#[test]
fn a_long_value_among_others_without_its_parts_is_an_error() {
    let mut harness = Harness::new(Limits::default());
    harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
    harness.read();
    harness
        .fake
        .change(|pairs| pairs.retain(|key, _| !is_reserved(key)));
    let reply = harness.exchange(b"MGET a k\r\nPING\r\n");
    assert!(
        reply.starts_with("-TRYAGAIN") && reply.ends_with("+PONG\\r\\n"),
        "{reply}"
    );
}

#[test]
fn what_takes_values_as_one_piece_says_so() {
    let mut harness = Harness::new(Limits::default());
    harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
    harness.read();
    for command in ["INCR k", "INCRBYFLOAT k 1"] {
        let reply = harness.exchange(format!("{command}\r\n").as_bytes());
        assert!(reply.starts_with("-ERR"), "{command}: {reply}");
        assert!(reply.contains("1048576 bytes"), "{command}: {reply}");
    }
    let reply = harness.exchange(&array(&[b"SET", &[0xff; 9], &value(1, LEN)]));
    assert!(reply.contains("reserved"), "{reply}");
    let reply = harness.exchange(&array(&[b"SET", b"k", &value(1, (64 << 20) + 1)]));
    assert!(reply.contains("67108864"), "{reply}");
    let reply = harness.exchange(&array(&[b"GETSET", b"k", &value(1, LEN)]));
    assert!(reply.starts_with("-ERR"), "{reply}");
    assert_eq!(harness.exchange(b"PING\r\n"), "+PONG\\r\\n");
}

#[test]
fn a_value_that_does_not_come_to_its_end_is_none() {
    let mut harness = Harness::new(Limits::default());
    let request = array(&[b"SET", b"k", &value(1, LEN)]);
    harness.send(&request[..request.len() - 1]);
    harness.session.end_of_input();
    harness.drive();
    assert!(harness.session.is_finished());
    let mut harness = Harness::new(Limits::default());
    let mut request = array(&[b"SET", b"k", &value(1, LEN)]);
    *request.last_mut().unwrap() = b'x';
    harness.send(&request);
    let out = harness.read();
    assert!(out.starts_with(b"-ERR"), "{}", out.escape_ascii());
    assert!(harness.session.is_finished());
    assert!(!harness.fake.pairs().contains_key(&b"k"[..]));
}

#[test]
fn a_client_that_does_not_read_is_given_a_part_at_a_time() {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, 20 << 20);
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.read();
    harness.stuck = true;
    harness.send(b"GET k\r\n");
    let (_, held) = harness.session.memory_bytes();
    assert!(held < 3 << 20, "{held}");
    // It reads little by little.
    let mut out = Vec::new();
    while out.len() < long.len() + 13 {
        let some = harness.session.output().len().min(100_000);
        assert!(some > 0, "it goes on");
        out.extend_from_slice(&harness.session.output()[..some]);
        harness.session.wrote(some);
        if harness.session.can_go_on() {
            harness.drive();
        }
    }
    assert!(out == bulk(&long));
}

#[test]
fn a_value_that_is_swept_meanwhile_is_never_torn() {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, LEN);
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.read();
    let sweep = |harness: &Harness, all: bool| {
        harness.fake.change(|pairs| {
            let head = Head::parse(&pairs[&b"k"[..]]).unwrap();
            let mut keys: Vec<_> = pairs
                .keys()
                .filter(|key| is_reserved(key))
                .cloned()
                .collect();
            assert_eq!(keys.len(), head.parts() as usize);
            if !all {
                keys.drain(..2);
            }
            keys.iter().for_each(|key| drop(pairs.remove(key)));
        });
    };
    // Before the first part: whoever finds the old head all the time is told to try again.
    sweep(&harness, true);
    let reply = harness.exchange(b"GET k\r\n");
    assert!(reply.starts_with("-TRYAGAIN"), "{reply}");
    // Behind the first part: the connection ends.
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.read();
    sweep(&harness, false);
    harness.send(b"GET k\r\n");
    assert!(harness.session.is_finished());
    assert!(harness.read().len() < long.len());
}

fn no_room() -> Failure {
    Failure::Unavailable {
        what: "no room in time".to_owned(),
        outcome: Outcome::NotApplied,
    }
}

#[test]
fn a_head_is_not_written_while_the_last_part_is() {
    let mut harness = Harness::new(Limits::default());
    harness.send(b"SET k old\r\n");
    harness.read();
    harness.fake.set_late(true);
    harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
    let parts = LEN.div_ceil(512 << 10);
    for part in 1..parts {
        assert_eq!(harness.fake.held(), 1, "one part at a time");
        assert!(harness.fake.release(0));
        if part == parts - 1 {
            harness.fake.fail_next(no_room());
        }
        harness.drive();
    }
    assert_eq!(harness.fake.held(), 1, "the last part, without the head");
    assert_eq!(harness.fake.pairs()[&b"k"[..]], b"old");
    harness.fake.set_late(false);
    assert!(harness.fake.release(0));
    harness.drive();
    let reply = harness.exchange(b"GET k\r\n");
    assert!(
        reply.starts_with("-TRYAGAIN no room in time (not applied)"),
        "{reply}"
    );
    assert!(reply.ends_with("$3\\r\\nold\\r\\n"), "{reply}");
}

#[test]
fn what_is_being_written_is_counted_off_again() {
    let mut harness = Harness::new(Limits::default());
    for _ in 0..3 {
        harness.fake.set_late(true);
        harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
        while harness.fake.release(0) {
            assert!(harness.session.asked() > 0);
            harness.drive();
        }
        harness.fake.set_late(false);
        assert_eq!(harness.read(), b"+OK\r\n");
        assert_eq!(harness.session.asked(), 0);
    }
}

#[test]
fn a_long_argument_behind_the_value_is_answered_by_one_error() {
    let mut harness = Harness::new(Limits::default());
    harness.send(b"SET k old\r\n");
    harness.read();
    let long = value(1, LEN);
    for len in [(1 << 20) + 5, 3 << 20, LEN] {
        let other = value(2, len);
        for behind in [&[&b"IFEQ"[..]][..], &[b"SET", b"j"], &[b"EX", b"5", b"NX"]] {
            let behind = [behind, &[&other]].concat();
            harness.send(&array(&[&[&b"SET"[..], b"k", &long], &behind[..]].concat()));
            let reply = harness.exchange(b"PING\r\n");
            assert!(reply.starts_with("-ERR"), "{len}: {reply}");
            assert!(reply.ends_with("+PONG\\r\\n"), "{len}: {reply}");
            assert_eq!(reply.matches("\\r\\n").count(), 2, "{len}: {reply}");
        }
    }
    assert_eq!(harness.exchange(b"GET k\r\n"), "$3\\r\\nold\\r\\n");
    harness.session.end_of_input();
    harness.drive();
    assert!(harness.session.is_finished());
}

/// The reply to `GET k`, of which a part fails or is not there, with requests behind it.
fn torn_reply(tear: impl Fn(&Harness)) -> Vec<u8> {
    let mut harness = Harness::new(Limits::default());
    harness.send(&array(&[b"SET", b"k", &value(1, 20 << 20)]));
    harness.send(b"SET a other\r\n");
    harness.read();
    harness.stuck = true;
    harness.send(b"GET k\r\nGET a\r\nPING\r\n");
    let begun = harness.session.output().len();
    tear(&harness);
    harness.stuck = false;
    harness.drive();
    harness.drive();
    assert!(harness.session.is_finished(), "the connection ends");
    let mut out = bulk(&value(1, 20 << 20));
    let told = harness.read();
    assert!(begun > 512 << 10 && told.len() >= begun && told.len() < out.len());
    out.truncate(told.len());
    assert!(out == told, "nothing but bytes of the value is told");
    told
}

#[test]
fn a_value_of_which_a_part_fails_ends_the_connection() {
    torn_reply(|harness| harness.fake.fail_next(no_room()));
}

#[test]
fn nothing_is_written_behind_a_value_of_which_a_part_is_missing() {
    torn_reply(|harness| {
        harness.fake.change(|pairs| {
            let last = pairs.keys().rfind(|key| is_reserved(key)).cloned();
            pairs.remove(&last.expect("it lies in parts"));
        });
    });
}

#[test]
fn keys_of_parts_are_not_told_of() {
    let mut harness = Harness::new(Limits::default());
    harness.send(&array(&[b"SET", b"k", &value(1, LEN)]));
    let opened = harness.exchange(b"KV.SNAPSHOT OPEN\r\n");
    assert!(opened.ends_with("0000000000000010\\r\\n"), "{opened}");
    let pairs = harness.fake.pairs();
    let part = pairs.keys().find(|key| is_reserved(key)).unwrap();
    let snapshot = b"0000000000000010";
    for request in [
        &[&b"MGET"[..], b"a", part][..],
        &[b"EXISTS", part],
        &[b"KV.GET", part, b"SNAPSHOT", snapshot],
        &[b"KV.MGET", b"SNAPSHOT", snapshot, part],
    ] {
        let reply = harness.exchange(&array(request));
        assert!(
            reply.starts_with("-ERR") && reply.contains("reserved"),
            "{reply}"
        );
    }
}

#[test]
fn a_value_whose_parts_were_swept_is_never_taken_for_one_that_was_written() {
    let mut harness = Harness::new(Limits::default());
    harness.send(b"SET k old\r\n");
    harness.read();
    let long = value(1, LEN);
    for request in [
        &[&b"SET"[..], b"k", &long][..],
        &[b"SET", b"k", &long, b"GET"],
        &[b"SET", b"k", &long, b"XX"],
        &[b"SET", b"k", &long, b"IFEQ", b"old"],
        &[b"SET", b"other", &long, b"NX"],
        &[b"SETNX", b"other", &long],
    ] {
        let request = array(request);
        let (most, last) = request.split_at(request.len() - 1);
        harness.send(most);
        let sweep =
            |pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>| pairs.retain(|key, _| !is_reserved(key));
        harness.fake.change(sweep);
        let reply = harness.exchange(last);
        assert!(
            reply.starts_with("-TRYAGAIN the value took too long")
                && reply.contains("(not applied)"),
            "{reply}"
        );
        assert_eq!(harness.exchange(b"GET k\r\n"), "$3\\r\\nold\\r\\n");
    }
    // The condition itself comes first.
    let request = array(&[b"SET", b"k", &long, b"NX"]);
    assert_eq!(harness.exchange(&request), "$-1\\r\\n");
}

/// A long value is written part by part as it comes, but not inside a transaction.
#[test]
fn a_long_value_inside_a_transaction_is_read_past() {
    let mut harness = Harness::new(Limits::default());
    let long = value(1, LEN);
    harness.send(b"SET k before\r\nMULTI\r\n");
    harness.send(&array(&[b"SET", b"k", &long]));
    harness.send(&array(&[b"SETNX", b"l", &long]));
    harness.send(b"EXEC\r\nGET k\r\nEXISTS l\r\n");
    let out = harness.exchange(b"DBSIZE\r\n");
    assert_eq!(out.matches("(not applied)\\r\\n").count(), 3, "{out}");
    let end = "-EXECABORT ";
    assert!(out.contains(end), "{out}");
    assert!(
        out.ends_with("$6\\r\\nbefore\\r\\n:0\\r\\n:1\\r\\n"),
        "{out}"
    );
}
