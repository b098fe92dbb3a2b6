//! `argosy playground` and `argosy server` as processes: they start, find ports, survive a dead
//! child, stop, and leave nothing behind.

use std::path::PathBuf;

use crate::support::{
    ByHand, Playground, argosy, bulk, call, connect, empty_dir, info, lives, ok, signal, text,
    until, until_ready,
};
use rustix::process::Signal;

#[test]
fn any_server_answers_for_any_key_until_ctrl_c() {
    let playground = Playground::start(&["--regions", "6"]);
    let servers = playground.servers.clone();
    assert_eq!(servers.len(), 3);
    let mut clients: Vec<_> = servers.iter().map(|server| connect(server.resp)).collect();
    for n in 0..36_u32 {
        let key = char::from_digit(n, 36).unwrap().to_string();
        let to = usize::try_from(n % 3).unwrap();
        assert_eq!(
            call(&mut clients[to], &[b"SET", key.as_bytes(), b"v"]),
            ok()
        );
    }
    for client in &mut clients {
        for n in 0..36_u32 {
            let key = char::from_digit(n, 36).unwrap().to_string();
            assert_eq!(call(client, &[b"GET", key.as_bytes()]), bulk("v"));
        }
    }
    for server in &servers {
        assert!(lives(server.pid));
        assert!(server.config.exists());
        let memory = info(server.resp, "memory");
        let bytes = |name: &str| memory[name].parse::<u64>().unwrap();
        let parts = memory.keys().filter(|name| name.starts_with("memory_"));
        let parts = parts.filter(|name| name.ends_with("_max"));
        let parts: u64 = parts.map(|name| bytes(name)).sum();
        assert_eq!(parts, bytes("memory_limit"), "{memory:?}");
        for part in [
            "memtables",
            "windows",
            "links",
            "answers",
            "buffers",
            "cache",
        ] {
            let name = format!("memory_{part}");
            assert!(bytes(&name) <= bytes(&format!("{name}_max")), "{memory:?}");
        }
    }
    let memory = shared_memory(&playground);
    assert!(memory.exists());

    let dir = playground.data_dir.clone();
    assert!(playground.interrupt().success());
    assert!(servers.iter().all(|server| !lives(server.pid)));
    assert!(!dir.exists(), "the temporary directory is removed");
    assert!(!memory.exists(), "shared memory is removed");
}

/// Where the servers of a playground keep their shared memory.
fn shared_memory(playground: &Playground) -> PathBuf {
    let config = std::fs::read_to_string(&playground.servers[0].config).unwrap();
    let line = config.lines().find(|line| line.starts_with("shm-dir"));
    PathBuf::from(line.unwrap().split('"').nth(1).unwrap())
}

#[test]
fn a_dead_server_is_restarted_by_hand_and_stops_with_the_rest() {
    let playground = Playground::start(&["--servers", "1", "--replicas", "1"]);
    let server = playground.servers[0].clone();
    assert_eq!(call(&mut connect(server.resp), &[b"SET", b"k", b"v"]), ok());
    signal(server.pid, Signal::KILL);
    until("the server dies", || !lives(server.pid));
    assert!(
        lives(playground.pid()),
        "a dead child does not end the playground"
    );

    let mut restarted = ByHand::start(&server.config);
    until_ready(server.admin);
    assert_eq!(call(&mut connect(server.resp), &[b"GET", b"k"]), bulk("v"));
    let refused = argosy()
        .arg("server")
        .arg("--config")
        .arg(&server.config)
        .output()
        .unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains(&restarted.pid().to_string()), "{said}");

    let dir = playground.data_dir.clone();
    assert!(playground.interrupt().success());
    assert!(
        restarted.wait().success(),
        "it was asked to stop, not killed"
    );
    assert!(!dir.exists());
}

#[test]
fn a_data_directory_is_found_again_and_two_playgrounds_stay_apart() {
    let dir = empty_dir("data-dir");
    let place = dir.to_str().unwrap();
    let first = Playground::start(&["--data-dir", place]);
    let other = Playground::start(&["--servers", "2"]);
    let ports = |playground: &Playground| -> Vec<_> {
        let servers = playground.servers.iter();
        servers
            .flat_map(|server| [server.resp, server.admin])
            .collect()
    };
    assert!(
        ports(&first)
            .iter()
            .all(|port| !ports(&other).contains(port))
    );
    for n in 0..300 {
        let key = format!("{n}-key");
        let client = &mut connect(first.servers[n % 3].resp);
        assert_eq!(call(client, &[b"SET", key.as_bytes(), b"v"]), ok());
    }
    let memory = shared_memory(&first);

    let busy = argosy()
        .args(["playground", "--data-dir", place])
        .output()
        .unwrap();
    assert_eq!(busy.status.code(), Some(1), "it is in use");
    assert!(first.interrupt().success());
    assert!(dir.join("server-0").exists(), "the data stays");
    assert!(!memory.exists(), "all of it is on devices now");
    let wrong = argosy()
        .args(["playground", "--data-dir", place, "--servers", "5"])
        .output();
    assert_eq!(
        wrong.unwrap().status.code(),
        Some(2),
        "it has three servers"
    );

    let again = Playground::start(&["--data-dir", place]);
    for n in 0..300 {
        let key = format!("{n}-key");
        let client = &mut connect(again.servers[0].resp);
        assert_eq!(call(client, &[b"GET", key.as_bytes()]), bulk("v"));
    }
    assert!(again.interrupt().success());
    drop(other);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn servers_do_not_outlive_a_killed_playground() {
    let mut playground = Playground::start(&[]);
    playground.kill();
    for server in playground.servers.clone() {
        until("the server stops", || !lives(server.pid));
    }
    // The next playground sweeps up what this one could not.
    let dir = playground.data_dir.clone();
    drop(Playground::start(&["--servers", "1"]));
    assert!(!dir.exists());
}

#[test]
fn wrong_command_lines_and_configurations_say_what_is_wrong() {
    let run = |args: &[&str]| {
        let output = argosy().args(args).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(run(&["playgroud"]).0, Some(2));
    let (code, said) = run(&["playground", "--servers", "2", "--replicas", "3"]);
    assert!(code == Some(2) && said.contains("--replicas"), "{said}");
    let (code, said) = run(&["server", "--config", "/nowhere/argosy.toml"]);
    assert!(
        code == Some(7) && said.contains("/nowhere/argosy.toml"),
        "{said}"
    );

    let dir = empty_dir("config");
    let config = dir.join("argosy.toml");
    let text = "[server]\nid = 0\ndata-dir = \".\"\n[storage]\nl0-byte = 1\n";
    std::fs::write(&config, text).unwrap();
    let (code, said) = run(&["server", "--config", config.to_str().unwrap()]);
    assert!(
        code == Some(7) && said.contains("did you mean l0-bytes"),
        "{said}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}
