//! What is text, or should be: heads of HTTP, replies of the Redis protocol, lines of an import, configurations, words
//! and numbers that somebody types; and the coordinator: the region map and its files, which are no text.

use std::sync::Arc;

use argosy::config::ServerConfig;
use argosy::config::layers::resolve;
use argosy::transfer::format::{Encoding, Format, Pair, parse, write_line, write_record};
use argosy::units::{Factor, Size, TimeSpan};
use argosy_base::{EditSeq, Epoch, KeyRange, Lsn, RegionId, ServerId};
use argosy_client::resp::parse_reply;
use argosy_coordinator::contract::CoordinatorOp;
use argosy_coordinator::format::{Effects, HeartbeatRecord, SnapshotRecord, TransactionRecord};
use argosy_coordinator::state::{State, StateChange};
use argosy_coordinator::{
    CLUSTER_KEY, ClusterId, ClusterMap, CopyStatus, Deed, Entry, EntryVersion, JobKind, JobLog,
    MapWrite, Presence, PromotionClaim, Region, RegionState, Replication, SHARD_BYTES_MAX, Server,
    ServerReport, SessionId, map_format,
};
use argosy_memory::BootId;
use argosy_server::admin::http;
use argosy_server::service::SnapshotId;

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "text",
    run,
    seeds,
};

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    match which % 8 {
        0 => matches!(http::parse(bytes), Ok(Some(_))),
        1 => replies(bytes),
        2 => coordinator(bytes),
        3 => agreed(bytes),
        4 => line(Format::Jsonl, bytes),
        5 => line(Format::Tsv, bytes),
        6 => {
            let text = String::from_utf8_lossy(bytes);
            let set = text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
            let flags = resolve("", std::iter::empty(), &set);
            resolve(&text, std::iter::empty(), &[]).is_ok() || flags.is_ok()
        }
        _ => typed(&String::from_utf8_lossy(bytes)),
    }
}

/// A file of the coordinator, of whatever kind, or the redo log.
fn coordinator(file: &[u8]) -> bool {
    let transaction = TransactionRecord::decode(file).is_ok_and(|found| {
        assert_eq!(TransactionRecord::decode(&found.encode()), Ok(found));
        true
    });
    let snapshot = SnapshotRecord::decode(file).is_ok_and(|found| {
        assert_eq!(SnapshotRecord::decode(&found.encode()), Ok(found));
        true
    });
    let heartbeat = HeartbeatRecord::decode(file).is_ok_and(|found| {
        assert_eq!(HeartbeatRecord::decode(&found.encode()), Ok(found));
        true
    });
    let log = !file.is_empty()
        && JobLog::decode(file).is_ok_and(|found| {
            assert_eq!(found.encode(), file, "equal logs are equal bytes");
            true
        });
    transaction || snapshot || heartbeat || log
}

fn replies(mut bytes: &[u8]) -> bool {
    let mut found = false;
    while let Ok(Some((_, len))) = parse_reply(bytes) {
        bytes = &bytes[len..];
        found = true;
    }
    found
}

/// What a line says is written so that it says the same.
fn line(format: Format, bytes: &[u8]) -> bool {
    parse(format, bytes).is_ok_and(|record| {
        let mut line = Vec::new();
        match (record.value(), format) {
            (Some(value), format) => {
                let (key, expires) = (record.key.as_slice(), record.expires);
                let pair = Pair {
                    key,
                    value,
                    expires,
                };
                write_line(format, Encoding::Auto, pair, &mut line);
            }
            (None, _) => write_record(Encoding::Auto, &record, &mut line),
        }
        line.pop();
        assert_eq!(parse(format, &line), Ok(record));
        true
    })
}

/// The region map, and what servers tell the master.
fn agreed(bytes: &[u8]) -> bool {
    let map = map_format::rewritten(bytes).is_ok_and(|again| {
        assert_eq!(again, bytes);
        true
    });
    let presence = Presence::parse(bytes).is_ok_and(|presence| {
        assert_eq!(Presence::parse(&presence.to_json()), Ok(presence));
        true
    });
    let report = ServerReport::parse(bytes).is_ok_and(|report| {
        assert_eq!(ServerReport::parse(&report.to_json()), Ok(report));
        true
    });
    map || presence || report
}

fn typed(text: &str) -> bool {
    let mut rest = text;
    let mut found = false;
    while let Ok((words, behind)) = argosy::bytes::words(rest) {
        found |= words.iter().any(|word| word.value().is_ok());
        if behind.is_empty() {
            break;
        }
        rest = behind;
    }
    let size: Result<Size, _> = text.parse();
    let span: Result<TimeSpan, _> = text.parse();
    let factor: Result<Factor, _> = text.parse();
    let snapshot = SnapshotId::parse(text.as_bytes()).is_some();
    let units = size.is_ok() || span.is_ok() || factor.is_ok();
    found || units || snapshot || BootId::parse(text).is_some()
}

fn seeds() -> Vec<Vec<u8>> {
    let [index, shard] = map_values();
    let [transaction, seal, snapshot, heartbeat, log] = coordinator_files(&index);
    vec![
        input(0, b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n"),
        input(0, b"HEAD / HTTP/1.0\n\n"),
        input(
            1,
            b"+OK\r\n:-12\r\n$5\r\nhello\r\n*3\r\n$1\r\na\r\n*-1\r\n*1\r\n:7\r\n",
        ),
        input(1, b"-ERR no\r\n$-1\r\n*2\r\n*2\r\n$0\r\n\r\n+x\r\n$-1\r\n"),
        input(2, &transaction),
        input(2, &seal),
        input(2, &snapshot),
        input(2, &heartbeat),
        input(2, &log),
        input(3, &index),
        input(3, &shard),
        input(
            3,
            br#"{"schema":"argosy.server.v1","incarnation":7,"leaving":true,"unreachable":[0,2]}"#,
        ),
        input(
            3,
            br#"{"schema":"argosy.report.v1","incarnation":7,"map":42,
                "copies":[{"region":1,"epoch":5,"status":"cut","cut":3,"edit":17,"lsn":4711}],
                "opening":[2],"refused":[{"region":3,"epoch":6}],"failed":[4],
                "wishes":[{"region":5,"epoch":6,"remove":[2],"add":[3],"fill":[1]}]}"#,
        ),
        input(
            4,
            br#"{"key":"k\u00e9","value":{"base64":"AP8="},"expires_at_ms":5}"#,
        ),
        input(4, br#"{"key":{"hex":"00ff"},"value":null}"#),
        input(4, br#"{"key":{"utf8":"k"},"value":"text"}"#),
        input(5, b"key\\x00\\t\tvalue\\\\ \xff\t1700000000000"),
        input(6, ServerConfig::example().to_toml().as_bytes()),
        input(
            7,
            b"scan 'a\\n\\x00' hex:6162 \"b\" ; get base64:YWI= 0x6162 # rest",
        ),
        input(7, b"hex:6162"),
        input(7, b"512MiB"),
        input(7, b"1500ms"),
        input(7, b"2.5"),
        input(7, b"0123456789abcdef"),
        input(7, b"6f9a5b1c-1e1f-4f8e-9d0a-0123456789ab"),
    ]
}

/// One file of each kind.
fn coordinator_files(map: &[u8]) -> [Vec<u8>; 5] {
    let session = SessionId(3);
    let put = |key: &str, owner| StateChange::Put {
        key: key.to_owned(),
        entry: Entry {
            version: EntryVersion(3),
            value: map.to_vec(),
            owner,
        },
    };
    let begin = StateChange::Begin {
        session,
        timeout_ms: 1000,
    };
    let changes = vec![
        begin,
        put(CLUSTER_KEY, None),
        put("members/1", Some(session)),
    ];
    let mut state = State::default();
    for change in &changes {
        state.apply(change, &mut Vec::new()).expect("it may be");
    }
    let remove = StateChange::Remove {
        key: CLUSTER_KEY.to_owned(),
    };
    let ends = [remove, StateChange::End { session }];
    let transaction = |effects| TransactionRecord {
        number: 7,
        previous: 9,
        effects,
    };
    let snapshot = SnapshotRecord {
        generation: 2,
        number: 6,
        previous: 9,
        state,
    };
    let heartbeat = HeartbeatRecord {
        session,
        counter: 5,
    };
    let changes = changes.into_iter().chain(ends).collect();
    let mut log = JobLog::default();
    for region in [1, 300] {
        let deed = Deed {
            kind: JobKind::Fill,
            server: ServerId(2),
            region: RegionId(region),
        };
        log.cover(deed, Epoch(3), session).expect("there is room");
    }
    [
        transaction(Effects::Changes(changes)).encode(),
        transaction(Effects::Seal).encode(),
        snapshot.encode(),
        heartbeat.encode(),
        log.encode(),
    ]
}

/// The index of a map, and its shard.
fn map_values() -> [Vec<u8>; 2] {
    let write = MapWrite::first(Arc::new(map()), SHARD_BYTES_MAX);
    let ops = write.and_then(|write| write.ops()).expect("it is small");
    let values = ops.into_iter().map(|op| match op {
        CoordinatorOp::Set { value, .. } => value,
        _ => Vec::new(),
    });
    let values: Vec<_> = values.collect();
    values.try_into().expect("an index and a shard")
}

fn map() -> ClusterMap {
    let server = |id| Server {
        id: ServerId(id),
        resp: "127.0.0.1:7379".to_owned(),
        admin: "127.0.0.1:7380".to_owned(),
    };
    let members = || vec![ServerId(1), ServerId(2)];
    let region = |id, range| Region::first(RegionId(id), range, ServerId(1), members());
    let regions = vec![
        region(1, KeyRange::new(b"", Some(b"m\xff".to_vec()))),
        Region {
            epoch: Epoch(7),
            state: RegionState::Recovering,
            primary: ServerId(2),
            members: vec![ServerId(2)],
            filling: vec![ServerId(1)],
            since: Epoch(4),
            claim: Some(PromotionClaim {
                status: CopyStatus::Whole,
                cut: Epoch(1),
                edit: EditSeq(12),
                lsn: Lsn(4711),
                member: true,
            }),
            ..region(2, KeyRange::new(b"m\xff", None))
        },
    ];
    let servers = vec![server(1), server(2)];
    ClusterMap::new(ClusterId(7), Replication::SendIndex, servers, regions)
        .expect("it covers all keys")
}
