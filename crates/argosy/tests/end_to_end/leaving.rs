//! A server that is stopped where regions move: others lead its regions before it ends, and it comes back.

use rustix::process::Signal;

use crate::admin::status;
use crate::support::{
    Playground, argosy, bulk, call, connect, empty_dir, lines_with, lives, ok, signal, until,
    until_ready,
};

/// Keys that lie in all three regions.
fn keys() -> impl Iterator<Item = String> {
    (0..36).map(|n| format!("{}-key", char::from_digit(n, 36).unwrap()))
}

/// The numbers of the regions that the server behind `admin` leads.
fn led(admin: std::net::SocketAddr) -> Vec<u64> {
    let status = status(admin);
    let regions = status["regions"].as_array().unwrap().iter();
    let led = regions.filter(|region| region["role"] == "primary");
    led.map(|region| region["id"].as_u64().unwrap()).collect()
}

#[test]
fn others_lead_the_regions_of_a_server_that_is_stopped() {
    let place = empty_dir("leaving");
    let playground = Playground::start(&["--data-dir", place.to_str().unwrap()]);
    let servers = playground.servers.clone();
    let write = |server: usize, value: &str| {
        let mut client = connect(servers[server].resp);
        for key in keys() {
            let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
            until("a write is taken", || call(&mut client, &set) == ok());
        }
    };
    write(1, "1");
    let before = led(servers[0].admin);
    assert_eq!(before.len(), 1, "each leads one");

    signal(servers[0].pid, Signal::TERM);
    until("it has ended", || !lives(servers[0].pid));
    assert_eq!(lines_with(&servers[0], &["others have its regions"]), 1);
    let others = || [led(servers[1].admin), led(servers[2].admin)].concat();
    until("others serve its region", || others().len() == 3);
    assert!(others().contains(&before[0]));
    write(2, "2");

    let dir = place.to_str().unwrap();
    let restart = ["playground", "restart", "0", "--data-dir", dir];
    let restarted = argosy().args(restart).output().unwrap();
    assert!(restarted.status.success(), "{restarted:?}");
    until_ready(servers[0].admin);
    let mut client = connect(servers[0].resp);
    for key in keys() {
        let get: [&[u8]; 2] = [b"GET", key.as_bytes()];
        until("it is read", || call(&mut client, &get) == bulk("2"));
    }
    // All of them at once: nobody waits for another to take its regions.
    assert!(playground.interrupt().success(), "all stop cleanly");
    std::fs::remove_dir_all(&place).unwrap();
}
