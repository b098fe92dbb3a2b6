//! What an export reads of a server that has keys of all types.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use argosy_client::{Kv, RespClient};
use argosy_server::resp::Listener;

use super::super::format::{Encoding, write_line, write_record};
use super::super::snapshot::ExportSnapshot;
use super::super::snapshot::tests::{client, serve};
use super::*;
use crate::transfer::format::Format;

/// Lines, and how many keys were read as of now and were gone.
struct Exported {
    lines: Vec<String>,
    as_of_now: u64,
    left_out: u64,
}

/// Exports everything, from `snapshot` if there is one.
fn exported(listener: &Listener, snapshot: Option<ExportSnapshot>, limit: Option<u64>) -> Exported {
    let reads = || {
        let mut reads = client(listener);
        reads.read_from(snapshot.as_ref().map(|snapshot| snapshot.name().to_owned()));
        reads
    };
    let stopping = AtomicBool::new(false);
    let reader = Reader {
        client: Box::new(reads()),
        resp: reads(),
        retry_for: Duration::ZERO,
        stopping: &stopping,
        snapshot,
    };
    let (give, pages) = sync_channel(1000);
    // The service of the tests does not hide elements, whose keys are above all others.
    let users = Span::of(KeyRange::new(Vec::new(), Some(vec![0xff])));
    reader.run(users, limit, &give);
    drop(give);
    let mut told = Exported {
        lines: Vec::new(),
        as_of_now: 0,
        left_out: 0,
    };
    for page in pages {
        let page = page.unwrap();
        told.as_of_now += page.as_of_now;
        told.left_out += page.left_out;
        let mut bytes = Vec::new();
        for pair in page.pairs() {
            write_line(Format::Jsonl, Encoding::Auto, pair, &mut bytes);
        }
        for record in &page.records {
            write_record(Encoding::Auto, record, &mut bytes);
        }
        let text = String::from_utf8(bytes).unwrap();
        told.lines.extend(text.lines().map(str::to_owned));
    }
    told
}

fn done(resp: &mut RespClient, command: &str) {
    let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
    resp.commands(&[words]).unwrap();
}

fn fill(listener: &Listener) -> RespClient {
    let mut resp = client(listener);
    for command in [
        "MSET a 1 b 2 d 4 e 5 z 26",
        "HSET c f v g w",
        "PEXPIREAT c 1900000000123",
        "ZADD f 1.5 m -inf n",
        "SADD g m n",
        "SADD y only",
    ] {
        done(&mut resp, command);
    }
    resp
}

const LINES: [&str; 9] = [
    r#"{"key":"a","value":"1"}"#,
    r#"{"key":"b","value":"2"}"#,
    r#"{"key":"c","type":"hash","elements":[["f","v"],["g","w"]],"expires_at_ms":1900000000123}"#,
    r#"{"key":"d","value":"4"}"#,
    r#"{"key":"e","value":"5"}"#,
    r#"{"key":"f","type":"zset","elements":[["m","1.5"],["n","-inf"]]}"#,
    r#"{"key":"g","type":"set","elements":["m","n"]}"#,
    r#"{"key":"y","type":"set","elements":["only"]}"#,
    r#"{"key":"z","value":"26"}"#,
];

#[test]
fn keys_of_all_types_come_in_their_order() {
    let (_, listener) = serve();
    fill(&listener);
    assert_eq!(exported(&listener, None, None).lines, LINES);
    for limit in 0..=9 {
        let told = exported(&listener, None, Some(limit)).lines;
        assert_eq!(told, LINES[..usize::try_from(limit).unwrap()]);
    }
}

#[test]
fn a_large_key_comes_in_parts_and_each_element_once() {
    let (_, listener) = serve();
    let mut resp = client(&listener);
    for from in (0..5000).step_by(1000) {
        let members: Vec<_> = (from..from + 1000).map(|n| format!("{n:05}")).collect();
        done(&mut resp, &format!("SADD s {}", members.join(" ")));
    }
    resp.put(b"t", b"behind").unwrap();
    let lines = exported(&listener, None, None).lines;
    assert_eq!(lines.len(), 6, "five parts and a string");
    let mut members = Vec::new();
    for (at, line) in lines[..5].iter().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = line["part"].as_u64().unwrap_or(1);
        assert_eq!(part, at as u64 + 1);
        assert_eq!(line["more"].as_bool().unwrap_or(false), at < 4);
        let some = line["elements"].as_array().unwrap();
        members.extend(
            some.iter()
                .map(|member| member.as_str().unwrap().to_owned()),
        );
    }
    let all: Vec<_> = (0..5000).map(|n| format!("{n:05}")).collect();
    assert_eq!(members, all);
}

#[test]
fn a_store_of_strings_is_asked_for_pages_and_expiries_alone() {
    let (fake, listener) = serve();
    let mut resp = client(&listener);
    for n in 0..1500 {
        resp.put(format!("{n:04}").as_bytes(), b"v").unwrap();
    }
    let before = fake.counts().0;
    assert_eq!(exported(&listener, None, None).lines.len(), 1500);
    assert_eq!(
        fake.counts().0 - before,
        2 + 1500,
        "two pages, and when each pair expires"
    );
}

#[test]
fn a_snapshot_says_which_keys_are_no_strings_and_they_are_as_of_now() {
    let (_, listener) = serve();
    let mut resp = fill(&listener);
    let snapshot = ExportSnapshot::open(client(&listener)).unwrap();
    for command in [
        "SET a other",
        "DEL c",
        "DEL e",
        "SADD e now-a-set",
        "SET f now-a-string",
        "SADD g o",
        "SET later 1",
        "HSET later-too f v",
    ] {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        resp.command(&words).unwrap();
    }
    let told = exported(&listener, Some(snapshot), None);
    let wanted = [
        LINES[0],
        LINES[1],
        LINES[3],
        LINES[4],
        r#"{"key":"f","value":"now-a-string"}"#,
        r#"{"key":"g","type":"set","elements":["m","n","o"]}"#,
        LINES[7],
        LINES[8],
    ];
    assert_eq!(told.lines, wanted);
    assert_eq!((told.as_of_now, told.left_out), (3, 1));
}
