//! `KV.FLUSH` and `KV.COMPACT`, and what the native client has of them, against the built program, asked of any
//! server, in every replication mode.

use std::net::SocketAddr;

use argosy_client::Client;
use argosy_client::resp::Reply;
use serde_json::Value;

use crate::admin::status;
use crate::support::{Playground, call, connect, ok, until};

const KEYS: u32 = 6000;
const ROUNDS: u8 = 3;

/// Asks until it is not too late any more.
fn asked(resp: SocketAddr, command: &str) {
    let mut client = connect(resp);
    until(command, || match call(&mut client, &[command.as_bytes()]) {
        Reply::Error(text) => {
            assert!(text.starts_with("TRYAGAIN"), "{text}");
            false
        }
        reply => {
            assert_eq!(reply, ok());
            true
        }
    });
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// The sums of a field of a region's levels.
fn sum(region: &Value, field: &str) -> u64 {
    let levels = region["levels"].as_array().unwrap().iter();
    levels.map(|level| number(&level[field])).sum()
}

/// Regions of all servers.
fn regions(playground: &Playground) -> Vec<Value> {
    let of = |admin| status(admin)["regions"].as_array().unwrap().clone();
    let servers = playground.servers.iter();
    servers.flat_map(|server| of(server.admin)).collect()
}

/// Values that are overwritten, and every other key deleted.
fn load(playground: &Playground) {
    for round in 0..ROUNDS {
        for (n, server) in playground.servers.iter().enumerate() {
            let mut client = connect(server.resp);
            let mine = (0..KEYS).filter(|key| *key as usize % playground.servers.len() == n);
            for key in mine {
                // Over all regions.
                let name = [&(key % 251).to_le_bytes()[..1], &key.to_le_bytes()].concat();
                let value = [round; 600];
                call(&mut client, &[b"SET", &name, &value]);
                if key % 2 == 1 && round + 1 == ROUNDS {
                    call(&mut client, &[b"DEL", &name]);
                }
            }
        }
    }
}

fn everything(mode: &str, members: usize) {
    let playground = Playground::start(&["--regions", "3", "--replication", mode]);
    load(&playground);
    asked(playground.servers[0].resp, "KV.FLUSH");
    for region in regions(&playground) {
        if region["role"] == "primary" {
            assert_eq!(
                region["engine"]["durable_lsn"], region["last_lsn"],
                "{mode}"
            );
        }
    }
    let runs: u64 = regions(&playground)
        .iter()
        .map(|region| sum(region, "runs"))
        .max()
        .unwrap();
    assert!(runs > 1, "{mode}: there is something to merge");

    asked(playground.servers[2].resp, "KV.COMPACT");
    let regions = regions(&playground);
    assert_eq!(regions.len(), 3 * members, "{mode}");
    for region in &regions {
        let (runs, levels) = (sum(region, "runs"), &region["levels"]);
        assert_eq!(
            runs, 1,
            "{mode}: {} of {}: {levels}",
            region["role"], region["id"]
        );
    }
    let entries: u64 = regions.iter().map(|region| sum(region, "entries")).sum();
    assert_eq!(entries, members as u64 * u64::from(KEYS) / 2, "{mode}");
    let native = Client::connect(&playground.servers[1].resp.to_string()).unwrap();
    native.make_durable().unwrap();
    native.compact().unwrap();
    let mut client = connect(playground.servers[1].resp);
    assert_eq!(
        call(&mut client, &[b"DBSIZE"]),
        Reply::Integer(i64::from(KEYS) / 2)
    );
}

#[test]
fn everything_is_merged_where_levels_are_sent() {
    everything("send-index", 3);
}

#[test]
fn everything_is_merged_where_levels_are_built() {
    everything("build-index", 3);
}

#[test]
fn everything_is_merged_without_copies() {
    everything("none", 1);
}
