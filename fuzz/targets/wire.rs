//! What clients and other servers send: requests of the Redis protocol, messages and calls, the beginning of a
//! native client, its bodies, the region map.
#![no_main]

use argosy_base::codec::Reader;
use argosy_coordinator::ClusterMap;
use argosy_wire::call::{Answer, Call};
use argosy_wire::message::Message;
use argosy_wire::native::{
    Hello, Long, PartOf, RegionMap, Values, Welcome, failure, keys_of, split_pair,
};
use argosy_wire::resp::parse::{Parser, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    match which % 8 {
        0 => resp(bytes),
        1 => {
            if let Some((kind, payload)) = bytes.split_first() {
                let _ = Message::decode(*kind, payload);
            }
        }
        2 => {
            let _ = Call::decode(&mut Reader::new("a call", bytes));
        }
        3 => {
            let _ = Answer::decode(&mut Reader::new("an answer", bytes));
        }
        4 => {
            let _ = bytes.first_chunk().map(Hello::decode);
            let _ = bytes.first_chunk().map(Welcome::decode);
        }
        5 => {
            if let Ok(map) = RegionMap::decode(bytes) {
                let mut out = Vec::new();
                map.encode(&mut out);
                assert!(
                    RegionMap::decode(&out).is_ok(),
                    "what was read is written and read again"
                );
            }
        }
        6 => {
            let _ = split_pair(bytes);
            let _ = keys_of(bytes);
            let _ = failure(bytes);
            let _ = Long::decode(bytes).map(|long| long.parts());
            if let Ok(part) = PartOf::decode(bytes) {
                let mut out = Vec::new();
                part.encode(&mut out);
                out.extend_from_slice(part.bytes);
                assert!(out == bytes, "what was read is written as it was");
            }
            let mut values = Values::of(bytes);
            while !values.is_over() && values.next_value().is_ok() {}
        }
        _ => {
            let _ = ClusterMap::parse(bytes);
        }
    }
});

/// Whatever comes in pieces is read as it is read at once.
fn resp(bytes: &[u8]) {
    let mut parser = Parser::default();
    let mut rest = bytes;
    let mut given = 0;
    while given < rest.len() {
        given = (given + 1 + given / 2).min(rest.len());
        match parser.parse(&rest[..given]) {
            Err(_) => return,
            Ok(Step::Request { bytes: len, .. }) => {
                let _ = parser.args(&rest[..given]);
                rest = &rest[len..];
                given = 0;
            }
            Ok(Step::Discard { bytes } | Step::Oversized { bytes, .. }) => {
                rest = &rest[bytes..];
                given = 0;
            }
            Ok(Step::Long { bytes, .. }) => {
                parser.take_long();
                rest = &rest[bytes..];
                let taken = parser.long_left().unwrap_or(0).min(rest.len());
                parser.took_long(taken);
                rest = &rest[taken..];
                given = 0;
            }
            Ok(Step::Incomplete) => {}
        }
    }
}
