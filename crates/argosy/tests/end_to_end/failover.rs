//! Servers die, halt and come back: regions move to others, nothing that was acknowledged is lost, and nobody answers
//! with what another server has changed since.

use std::collections::BTreeMap;

use argosy_base::info;
use argosy_bench::resp::{Connection, Reply};

use crate::playground_commands::done;
use crate::support::{
    Playground, Server, bulk, call, connect, info as info_of, ok, until, until_ready,
};

/// Keys that lie in all three regions.
fn keys() -> impl Iterator<Item = String> {
    (0..36).map(|n| format!("{}-key", char::from_digit(n, 36).unwrap()))
}

/// Sets `key`, again and again until that is acknowledged.
fn set(client: &mut Connection, key: &str, value: &str) {
    let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
    until("a write is acknowledged", || call(client, &set) == ok());
}

fn set_all(server: &Server, value: &str) {
    let mut client = connect(server.resp);
    keys().for_each(|key| set(&mut client, &key, value));
}

fn all_are(server: &Server, value: &str) {
    let mut client = connect(server.resp);
    for key in keys() {
        let get: [&[u8]; 2] = [b"GET", key.as_bytes()];
        until("a read is answered", || match call(&mut client, &get) {
            Reply::Error(_) => false,
            found => {
                assert_eq!(found, bulk(value), "{key}");
                true
            }
        });
    }
}

/// Each region as `server` sees it.
fn regions(server: &Server) -> BTreeMap<String, String> {
    let lines = info_of(server.resp, info::SECTION_REGIONS).into_iter();
    lines
        .filter(|(name, _)| name.starts_with("region_"))
        .collect()
}

/// Until all servers have a copy of all regions that stands at the same place.
pub(crate) fn until_equal(servers: &[Server]) {
    until("all copies are equal", || {
        let seen: Vec<_> = servers.iter().map(regions).collect();
        let place = |line: &String| line.split_once(",edit=").map(|(_, rest)| rest.to_owned());
        let places = |of: &BTreeMap<String, String>| of.values().map(place).collect::<Vec<_>>();
        seen.iter()
            .all(|of| of.len() == 3 && places(of) == places(&seen[0]))
    });
}

/// Each server in turn is killed. Its regions serve without it, and it is a member again once it is back.
#[test]
fn killed_servers_are_replaced_without_a_restart() {
    let playground = Playground::start(&[]);
    let (dir, servers) = (playground.data_dir.clone(), playground.servers.clone());
    set_all(&servers[0], "first");
    for (killed, other) in [(0, 1), (1, 2), (2, 0)] {
        let name = killed.to_string();
        done(&dir, &["kill", &name]);
        all_are(
            &servers[other],
            if killed == 0 { "first" } else { "behind" },
        );
        let value = format!("without {killed}");
        set_all(&servers[other], &value);
        all_are(&servers[other], &value);
        done(&dir, &["restart", &name]);
        until_ready(servers[killed].admin);
        all_are(&servers[killed], &value);
        set_all(&servers[killed], "behind");
        until_equal(&servers);
    }
    assert!(playground.interrupt().success());
}

/// A server that halts for a while does not know that others have taken its place. It shows nothing of before.
#[test]
fn a_server_that_goes_on_shows_nothing_of_before() {
    let playground = Playground::start(&[]);
    let (dir, servers) = (playground.data_dir.clone(), playground.servers.clone());
    set_all(&servers[0], "before");
    let mut client = connect(servers[1].resp);
    done(&dir, &["stop", "1"]);
    set_all(&servers[0], "since");
    // What it reads first, when it goes on, are these.
    for key in keys() {
        client.push(&[b"GET", key.as_bytes()]);
    }
    client.flush().unwrap();
    done(&dir, &["cont", "1"]);
    for key in keys() {
        let found = client.reply().unwrap();
        assert!(
            matches!(found, Reply::Error(_)) || found == bulk("since"),
            "{key}: {found:?}"
        );
    }
    all_are(&servers[1], "since");
    until_equal(&servers);
    assert!(playground.interrupt().success());
}

/// A copy of all that was acknowledged is enough: with two of three servers lost, and then with all lost at once.
#[test]
fn one_server_that_is_left_serves_everything() {
    let playground = Playground::start(&[]);
    let (dir, servers) = (playground.data_dir.clone(), playground.servers.clone());
    set_all(&servers[0], "all");
    done(&dir, &["kill", "1"]);
    set_all(&servers[0], "two");
    done(&dir, &["kill", "0"]);
    all_are(&servers[2], "two");
    set_all(&servers[2], "one");
    done(&dir, &["kill", "2"]);
    done(&dir, &["restart", "0", "1", "2"]);
    for server in &servers {
        until_ready(server.admin);
        all_are(server, "one");
    }
    until_equal(&servers);
    assert!(playground.interrupt().success());
}
