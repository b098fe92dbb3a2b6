//! `argosy playground kill`, `stop`, `cont`, `restart` and `status`, against playgrounds that run: servers end, halt
//! and come back, nothing acknowledged is lost, and who speaks nonsense on the socket disturbs nobody.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    ByHand, Playground, argosy, bulk, call, connect, empty_dir, lives, ok, signal, text, until,
    until_ready,
};

/// How a command ended.
struct Ended {
    code: Option<i32>,
    out: String,
    said: String,
}

/// `argosy playground` with `words`, for the playground in `dir`.
fn run(dir: &Path, words: &[&str]) -> Ended {
    let output = argosy()
        .arg("playground")
        .args(words)
        .arg("--data-dir")
        .arg(dir)
        .output()
        .unwrap();
    Ended {
        code: output.status.code(),
        out: text(&output.stdout),
        said: text(&output.stderr),
    }
}

/// The same, which has to succeed.
pub(crate) fn done(dir: &Path, words: &[&str]) -> String {
    let ended = run(dir, words);
    assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.said);
    ended.out
}

/// A server in an answer.
#[derive(Debug)]
struct Seen {
    state: String,
    pid: Option<u32>,
}

/// What `words` with `-o json` print.
fn seen(dir: &Path, words: &[&str]) -> Vec<Seen> {
    let words = [words, &["-o", "json"]].concat();
    let report: Value = serde_json::from_str(&done(dir, &words)).unwrap();
    assert_eq!(report["schema"], "argosy.playground-status.v1");
    let servers = report["servers"].as_array().unwrap().iter();
    servers
        .map(|server| Seen {
            state: server["state"].as_str().unwrap().to_owned(),
            pid: server["pid"]
                .as_u64()
                .map(|pid| u32::try_from(pid).unwrap()),
        })
        .collect()
}

/// The states of all servers.
pub(crate) fn states(dir: &Path) -> Vec<String> {
    let servers = seen(dir, &["status"]).into_iter();
    servers.map(|server| server.state).collect()
}

/// Keys that lie in all three regions.
fn keys() -> impl Iterator<Item = String> {
    (0..36).map(|n| format!("{}-key", char::from_digit(n, 36).unwrap()))
}

#[test]
fn killed_servers_are_restarted_and_nothing_acknowledged_is_lost() {
    let place = empty_dir("commands-kill");
    let playground = Playground::start(&["--data-dir", place.to_str().unwrap()]);
    let dir = playground.data_dir.clone();
    let servers = playground.servers.clone();
    let write = |value: &str| {
        let mut client = connect(servers[0].resp);
        for key in keys() {
            let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
            assert_eq!(call(&mut client, &set), ok());
        }
    };
    write("1");
    let told = done(&dir, &["kill", "1"]);
    assert_eq!(told, "server 1: ended\n");
    assert!(!lives(servers[1].pid), "it has ended when the command has");
    assert!(lives(playground.pid()));
    assert_eq!(states(&dir), ["running", "ended", "running"]);
    let table = done(&dir, &["status"]);
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    let row = format!("1 ended - {} {}", servers[1].resp, servers[1].admin);
    let words: Vec<_> = rows[2].split_whitespace().collect();
    assert_eq!(words.join(" "), row);

    let again = seen(&dir, &["restart", "1"]);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].state, "running");
    assert_ne!(again[0].pid, Some(servers[1].pid));
    until_ready(servers[1].admin);
    write("2");

    // All at once; and a restart kills what runs.
    let killed = seen(&dir, &["kill", "0", "2"]);
    assert!(
        killed
            .iter()
            .all(|server| server.state == "ended" && server.pid.is_none())
    );
    let old = again[0].pid.unwrap();
    assert_eq!(seen(&dir, &["restart", "0", "1", "2"]).len(), 3);
    assert!(!lives(old));
    for server in &servers {
        until_ready(server.admin);
    }
    let mut client = connect(servers[2].resp);
    for key in keys() {
        assert_eq!(call(&mut client, &[b"GET", key.as_bytes()]), bulk("2"));
    }
    let now = seen(&dir, &["status"]);
    assert!(playground.interrupt().success(), "all stop cleanly");
    assert!(now.iter().all(|server| !lives(server.pid.unwrap())));
    assert!(!dir.join("control").exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Also where all servers have ended, the playground waits for what its user does next.
#[test]
fn a_playground_without_a_living_server_goes_on() {
    let playground = Playground::start(&["--servers", "1", "--replicas", "1"]);
    let dir = playground.data_dir.clone();
    let server = playground.servers[0].clone();
    assert_eq!(call(&mut connect(server.resp), &[b"SET", b"k", b"v"]), ok());
    done(&dir, &["kill", "0"]);
    assert_eq!(states(&dir), ["ended"]);
    done(&dir, &["restart", "0"]);
    until_ready(server.admin);
    assert_eq!(call(&mut connect(server.resp), &[b"GET", b"k"]), bulk("v"));
    // What somebody kills by hand is the same.
    signal(seen(&dir, &["status"])[0].pid.unwrap(), Signal::KILL);
    until("it has ended", || states(&dir) == ["ended"]);
    assert!(playground.interrupt().success());
    assert!(!dir.exists());
}

#[test]
fn stopped_servers_go_on_or_end_with_the_rest() {
    let playground = Playground::start(&[]);
    let dir = playground.data_dir.clone();
    let servers = playground.servers.clone();
    assert_eq!(seen(&dir, &["stop", "0", "1"])[1].state, "stopped");
    assert_eq!(states(&dir), ["stopped", "stopped", "running"]);
    let pid = servers[0].pid;
    assert_eq!(
        done(&dir, &["cont", "0"]),
        format!("server 0: running, process {pid}\n")
    );
    assert_eq!(states(&dir), ["running", "stopped", "running"]);
    done(&dir, &["cont", "1"]);
    for server in &servers {
        until_ready(server.admin);
    }
    let mut client = connect(servers[2].resp);
    for key in keys() {
        assert_eq!(call(&mut client, &[b"SET", key.as_bytes(), b"v"]), ok());
    }
    // By hand it is the same; and a stopped server can be killed.
    signal(servers[2].pid, Signal::STOP);
    until("it has stopped", || states(&dir)[2] == "stopped");
    done(&dir, &["kill", "2"]);
    assert_eq!(states(&dir), ["running", "running", "ended"]);
    done(&dir, &["stop", "0"]);
    assert!(
        playground.interrupt().success(),
        "the stopped one ends cleanly, too"
    );
    assert!(servers.iter().all(|server| !lives(server.pid)));
    assert!(!dir.exists());
}

#[test]
fn a_stopped_server_does_not_outlive_a_killed_playground() {
    let mut playground = Playground::start(&[]);
    let dir = playground.data_dir.clone();
    done(&dir, &["stop", "1"]);
    playground.kill();
    for server in playground.servers.clone() {
        until("the server ends", || !lives(server.pid));
    }
    let ended = run(&dir, &["status"]);
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    // The next playground sweeps up what this one could not.
    drop(Playground::start(&["--servers", "1"]));
    assert!(!dir.exists());
}

#[test]
fn a_refused_command_says_why_and_does_nothing() {
    let playground = Playground::start(&["--servers", "2"]);
    let dir = playground.data_dir.clone();
    let refused = |words: &[&str], code: i32, what: &str| {
        let ended = run(&dir, words);
        assert_eq!(ended.code, Some(code), "{words:?}: {}", ended.said);
        assert!(ended.said.contains(what), "{words:?}: {}", ended.said);
        assert!(ended.out.is_empty(), "{words:?}: {}", ended.out);
    };
    refused(&["kill"], 2, "<N>");
    refused(&["kill", "one"], 2, "one");
    refused(&["kill", "1", "1"], 2, "server 1 is named twice");
    refused(
        &["kill", "0", "2"],
        3,
        "there is no server 2: there are servers 0 to 1",
    );
    refused(
        &["cont", "0"],
        3,
        "server 0 is not stopped; to stop it: argosy playground stop 0",
    );
    assert_eq!(
        states(&dir),
        ["running", "running"],
        "also server 0 of `kill 0 2`"
    );
    done(&dir, &["stop", "0"]);
    refused(
        &["stop", "1", "0"],
        3,
        "server 0 is stopped already; let it go on: argosy playground cont 0",
    );
    assert_eq!(states(&dir), ["stopped", "running"]);
    done(&dir, &["kill", "0"]);
    for verb in ["kill", "stop", "cont"] {
        refused(
            &[verb, "0"],
            3,
            "server 0 has ended already; start it again: argosy playground restart 0",
        );
    }

    // Whoever starts a server by hand has it.
    let mut by_hand = ByHand::start(&playground.servers[0].config);
    until_ready(playground.servers[0].admin);
    let now = seen(&dir, &["status", "0"]);
    assert_eq!((now.len(), &*now[0].state), (1, "by-hand"));
    assert_eq!(now[0].pid, Some(by_hand.pid()));
    for verb in ["kill", "stop", "cont", "restart"] {
        refused(
            &[verb, "0"],
            3,
            &format!("started by hand (process {})", by_hand.pid()),
        );
    }
    assert!(lives(by_hand.pid()));
    signal(by_hand.pid(), Signal::TERM);
    assert!(by_hand.wait().success());
    done(&dir, &["restart", "0"]);
    until_ready(playground.servers[0].admin);
    assert!(playground.interrupt().success());
}

#[test]
fn where_no_playground_runs_a_command_says_so() {
    let place = empty_dir("commands-none");
    for dir in [place.clone(), place.join("missing"), place.join("file")] {
        std::fs::write(place.join("file"), b"").unwrap();
        for words in [&["status"][..], &["kill", "0"], &["restart", "0"]] {
            let ended = run(&dir, words);
            assert_eq!(ended.code, Some(3), "{}", ended.said);
            assert!(
                ended
                    .said
                    .contains("no playground runs there; start one with argosy playground")
            );
            assert!(ended.said.contains(dir.to_str().unwrap()), "{}", ended.said);
        }
    }
    assert_eq!(
        std::fs::read_dir(&place).unwrap().count(),
        1,
        "nothing is made"
    );
    let output = argosy()
        .args(["playground", "status"])
        .env("TMPDIR", &place)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no playground runs that was started without --data-dir"));
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn commands_reach_the_playground_of_their_directory_alone() {
    let places = ["commands-one", "commands-two"].map(empty_dir);
    let start = |place: &Path| {
        let place = place.to_str().unwrap();
        Playground::start(&["--servers", "2", "--data-dir", place])
    };
    let (one, two) = (start(&places[0]), start(&places[1]));
    done(&places[0], &["kill", "1"]);
    done(&places[1], &["stop", "0"]);
    assert_eq!(states(&places[0]), ["running", "ended"]);
    assert_eq!(states(&places[1]), ["stopped", "running"]);
    assert!(one.interrupt().success());
    assert_eq!(run(&places[0], &["status"]).code, Some(3));
    assert_eq!(states(&places[1]), ["stopped", "running"]);
    assert!(two.interrupt().success());
    for place in places {
        std::fs::remove_dir_all(place).unwrap();
    }
}

/// What `bytes` on the socket of the playground in `dir` are answered with.
fn speak(dir: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(dir.join("control")).unwrap();
    // It may be answered, and closed, before all is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let mut part = [0; 512];
    // Where the playground has not read all, its end is an error behind the answer.
    while let Ok(read @ 1..) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..read]);
    }
    text(&answer)
}

#[test]
fn hostile_clients_of_a_playground_get_an_error_and_disturb_nobody() {
    let playground = Playground::start(&["--servers", "1"]);
    let dir = playground.data_dir.clone();
    let mode = std::fs::metadata(dir.join("control"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "nobody else connects");
    let endless = vec![b'7'; 100_000];
    let hostile: [&[u8]; 7] = [
        b"\n",
        b"\0\xff\x1b[2J\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"argosy-playground/2 kill 0\n",
        b"argosy-playground/1 kill 0",
        b"argosy-playground/1 kill 0\nargosy-playground/1 kill 0\n",
        &endless,
    ];
    // More than may be connected at one time, and none says a word.
    let silent: Vec<_> = (0..20)
        .map(|_| UnixStream::connect(dir.join("control")).unwrap())
        .collect();
    for bytes in hostile {
        let answer = speak(&dir, bytes);
        assert!(
            answer.starts_with("argosy-playground/1\nrefused usage "),
            "{answer}"
        );
        assert_eq!(answer.lines().count(), 2, "{answer}");
    }
    for _ in 0..100 {
        let mut gone = UnixStream::connect(dir.join("control")).unwrap();
        let _ = gone.write_all(b"argosy-playground/1 status\n");
    }
    assert_eq!(states(&dir), ["running"]);
    assert!(lives(playground.servers[0].pid));
    drop(silent);
    assert!(playground.interrupt().success());
}
