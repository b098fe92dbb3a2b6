//! Values of over 1 MiB, and pairs that expire, from one cluster into another.

use std::net::SocketAddr;

use argosy_client::resp::{Connection, Reply};

use crate::support::{Playground, Rng, call, until};
use crate::tools::{Dir, any, done, run};

/// When some of the pairs expire, in milliseconds after the beginning of 1970: not soon.
const LATER: u64 = 4_000_000_000_123;

/// A key, its value, and when it expires.
type Entry = (Vec<u8>, Vec<u8>, Option<u64>);

/// Short pairs, and long ones among them: alone, at the end, and one behind the other.
fn entries() -> Vec<Entry> {
    let mut rng = Rng::new(7, 0);
    let mut bytes =
        |len: usize| -> Vec<u8> { (0..len).map(|_| rng.next_u64().to_le_bytes()[3]).collect() };
    let mut entries = Vec::new();
    for n in 0..300_u64 {
        let value = match n {
            17 => bytes(3_500_000),
            100 => vec![b'v'; (1 << 20) + 1],
            101 => bytes((1 << 20) + 1),
            299 => vec![b'\\'; 1_200_000],
            _ => bytes(usize::try_from(n).unwrap()),
        };
        let expires = (n % 7 == 3).then_some(LATER + n);
        entries.push((format!("key{n:03}").into_bytes(), value, expires));
    }
    entries
}

/// What a cluster has of `entries`.
fn check(addr: SocketAddr, entries: &[Entry]) {
    let mut client = Connection::open(addr).unwrap();
    for (key, value, expires) in entries {
        let shown = String::from_utf8_lossy(key);
        let got = call(&mut client, &[b"GET", key]);
        assert!(got == Reply::Bulk(Some(value.clone())), "{shown}");
        let until = expires.map_or(-1, |at| i64::try_from(at).unwrap());
        let got = call(&mut client, &[b"PEXPIRETIME", key]);
        assert_eq!(got, Reply::Integer(until), "{shown}");
    }
}

/// Three times what the device holds, through one key; then as many keys, which are deleted, and written anew as soon
/// as there is room.
#[test]
fn long_values_that_are_replaced_do_not_fill_a_server() {
    let alone = ["--servers", "1", "--regions", "1", "--replication", "none"];
    let small = ["--device-bytes", "256MiB"];
    let playground = Playground::start(&[&alone[..], &small].concat());
    let mut client = Connection::open(any(&playground)).unwrap();
    let mut put = |key: &str, byte: u8| {
        let value = vec![byte; 16 << 20];
        let told = call(&mut client, &[b"SET", key.as_bytes(), &value]);
        told == Reply::Simple("OK".to_owned())
    };
    (0..48).for_each(|byte| assert!(put("k", byte), "{byte}"));
    for round in 0..3 {
        for byte in 0..8 {
            until("there is room", || put(&format!("k{byte}"), byte));
        }
        let mut client = Connection::open(any(&playground)).unwrap();
        let told = call(&mut client, &[b"GET", b"k7"]);
        assert!(told == Reply::Bulk(Some(vec![7; 16 << 20])), "{round}");
        call(&mut client, &[b"KV.DELRANGE", b"k", b"l"]);
    }
}

#[test]
fn long_values_and_expiries_are_exported_and_imported() {
    let dir = Dir::new("long-values");
    let entries = entries();
    let one = Playground::start(&["--servers", "1", "--regions", "2"]);
    let addr = any(&one);
    let mut client = Connection::open(addr).unwrap();
    for (key, value, expires) in &entries {
        let at = expires.map(|at| at.to_string());
        let mut words = vec![&b"SET"[..], key, value];
        if let Some(at) = &at {
            words.extend([&b"PXAT"[..], at.as_bytes()]);
        }
        assert_eq!(call(&mut client, &words), Reply::Simple("OK".to_owned()));
    }
    check(addr, &entries);
    let size = call(&mut client, &[b"DBSIZE"]);
    assert_eq!(size, Reply::Integer(300), "parts are no keys");
    let (key, value, _) = &entries[17];
    for (from, to, wanted) in [
        ("0", "9", 0..10),
        ("524000", "1600000", 524_000..1_600_001),
        ("524288", "1048575", 524_288..1_048_576),
        ("-3", "-1", 3_499_997..3_500_000),
        ("3499999", "9999999", 3_499_999..3_500_000),
        ("7", "6", 0..0),
        ("3500000", "-1", 0..0),
        ("0", "-1", 0..3_500_000),
    ] {
        let words = [&b"GETRANGE"[..], key, from.as_bytes(), to.as_bytes()];
        let got = call(&mut client, &words);
        let wanted = Reply::Bulk(Some(value[wanted].to_vec()));
        assert!(got == wanted, "{from} to {to}");
    }
    let (json, tsv) = (dir.file("pairs.jsonl"), dir.file("pairs.tsv"));
    done(addr, &["export", &json]);
    done(addr, &["export", "--client", "native", &tsv]);
    let exported = std::fs::read(&json).unwrap();
    let lines = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').count() - 1;
    assert_eq!(lines(&exported), entries.len());

    // It goes on within a long value's line, and behind it.
    let part = dir.file("part.jsonl");
    let behind = exported
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    let behind = behind.map(|(at, _)| at + 1).nth(17).unwrap();
    for cut in [behind - 1_000_000, behind] {
        std::fs::write(&part, &exported[..cut]).unwrap();
        done(addr, &["export", "--resume", &part]);
        assert!(std::fs::read(&part).unwrap() == exported, "cut at {cut}");
    }

    let two = Playground::start(&["--servers", "2", "--regions", "3"]);
    let addr = any(&two);
    done(addr, &["import", &json]);
    check(addr, &entries);
    done(addr, &["export", "--overwrite", &part]);
    assert!(std::fs::read(&part).unwrap() == exported);

    let mut client = Connection::open(addr).unwrap();
    call(&mut client, &[b"KV.DELRANGE", b"-", b"+"]);
    assert_eq!(call(&mut client, &[b"DBSIZE"]), Reply::Integer(0));
    let native = ["import", "--client", "native", "--connections", "1", &tsv];
    done(addr, &native);
    check(addr, &entries);

    // A pair whose time has come is not there; what is behind it is.
    let late = "key000\tgone\t1\nkey001\tnew\n";
    let (code, _, said) = run(addr, &["import", "--format", "tsv", "-"], late);
    assert_eq!(code, 0, "{said}");
    let got = call(&mut client, &[b"MGET", b"key000", b"key001"]);
    let new = Reply::Bulk(Some(b"new".to_vec()));
    assert_eq!(got, Reply::Array(Some(vec![Reply::Bulk(None), new])));
}
