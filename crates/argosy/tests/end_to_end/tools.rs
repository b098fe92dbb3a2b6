//! `argosy shell`, `import` and `export` against running clusters: what they print, how they end, and
//! that every byte comes back, also where they are interrupted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    ByHand, PATIENCE, Playground, Rng, argosy, empty_dir, keep_ports, lives, pause, signal, text,
    until,
};

/// A directory that goes away with the test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        Self(empty_dir(name))
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a text").to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tool that talks to the server at `addr`.
fn tool(addr: SocketAddr, args: &[&str]) -> Command {
    let mut command = argosy();
    command.env("ARGOSY_ENDPOINTS", addr.to_string()).args(args);
    command
}

/// Runs it with `input`: how it ended, what it printed, and what it said.
pub(crate) fn run(addr: SocketAddr, args: &[&str], input: &str) -> (i32, String, String) {
    let mut child = tool(addr, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without having read all.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

/// Runs it and expects success; what it printed.
pub(crate) fn done(addr: SocketAddr, args: &[&str]) -> String {
    let (code, out, said) = run(addr, args, "");
    assert_eq!(code, 0, "{args:?}: {said}");
    out
}

/// Any server of it.
pub(crate) fn any(playground: &Playground) -> SocketAddr {
    playground.servers.last().unwrap().resp
}

#[test]
fn the_shell_does_what_a_script_says() {
    let playground = Playground::start(&[]);
    let addr = any(&playground);
    let shell = |command: &str| run(addr, &["shell", "-c", command], "");
    let (code, out, _) = shell(r"put apple 1; put 'a b' 'x\x00y'; put 0xff00 b64:/w==; get apple");
    assert_eq!((code, out.as_str()), (0, "ok\nok\nok\n1\n"));
    let (_, out, _) = shell("scan; scan b keys; prefix 'a '; get apple 'a b'");
    let pairs = "'a b'\t'x\\0y'\napple\t1\n'\\xff\\0'\t'\\xff'\n";
    let others = "'\\xff\\0'\n'a b'\t'x\\0y'\napple\t1\n'a b'\t'x\\0y'\n";
    assert_eq!(out, format!("{pairs}{others}"));
    let (code, out, said) =
        shell("scan reverse limit 2 keys; scan '' b reverse keys; prefix a reverse keys");
    assert_eq!(
        (code, out.as_str()),
        (0, "'\\xff\\0'\napple\napple\n'a b'\napple\n'a b'\n")
    );
    assert!(!said.contains("more follows: scan"), "{said}");
    assert!(said.contains("from 'a b' down"), "{said}");
    let (_, out, said) = shell("scan limit 2 keys; format hex; get apple");
    assert_eq!(out, "'a b'\napple\nhex:31\n");
    assert!(said.contains("more follows: scan '\\xff\\0'"), "{said}");

    let (code, out, _) = run(
        addr,
        &["shell", "-o", "json"],
        "get apple none\nscan b\ndelete apple none",
    );
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = [
        json!({"key": "apple", "value": "1"}),
        json!({"key": "none", "value": null}),
        json!({"key": {"base64": "/wA="}, "value": {"base64": "/w=="}}),
        json!({"deleted": 1, "keys": 2}),
    ];
    assert_eq!(
        (code, lines.as_slice()),
        (3, &expected[..]),
        "a key was not bound"
    );
    let (code, out, _) = shell("put k 1 if-absent; put k 2 if-absent; get k");
    assert_eq!(code, 3);
    assert_eq!(out, "ok\nnot applied: the condition does not hold\n1\n");
}

#[test]
fn the_shell_stops_at_the_first_error_unless_it_is_told_not_to() {
    let playground = Playground::start(&["--servers", "1"]);
    let addr = any(&playground);
    let script = "put a 1\nfly\nput b 2\n";
    let (code, out, said) = run(addr, &["shell"], script);
    assert_eq!((code, out.as_str()), (2, "ok\n"), "usage");
    assert!(said.contains("line 2: no command 'fly'"), "{said}");
    let (code, out, _) = run(addr, &["shell", "--keep-going"], script);
    assert_eq!((code, out.as_str()), (2, "ok\nok\n"));
    let long = format!("put {} v", "k".repeat(5000));
    let (code, _, said) = run(addr, &["shell"], &long);
    assert_eq!(code, 1);
    assert!(
        said.contains("4096") && said.contains("not applied"),
        "{said}"
    );
    assert_eq!(run(addr, &["shell"], "put 'a 1").0, 2);
    drop(playground);
    let (code, _, said) = run(addr, &["shell", "-c", "get a"], "");
    assert_eq!(code, 4);
    assert!(said.contains("argosy playground"), "{said}");
}

/// What a terminal shows.
struct Screen {
    shown: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

impl Screen {
    fn of(mut output: impl Read + Send + 'static) -> Self {
        let (tell, shown) = channel();
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let _ = tell.send(bytes[..count].to_vec());
            }
        };
        std::thread::Builder::new().spawn(read).unwrap();
        let seen = Vec::new();
        Self { shown, seen }
    }

    /// Waits until it shows `what`, behind what it was seen to show before.
    fn shows(&mut self, what: &str) {
        loop {
            let at = self
                .seen
                .windows(what.len())
                .position(|part| part == what.as_bytes());
            if let Some(at) = at {
                self.seen.drain(..at + what.len());
                return;
            }
            let more = self.shown.recv_timeout(PATIENCE);
            let seen = text(&self.seen);
            self.seen
                .extend(more.unwrap_or_else(|_| panic!("no {what}: {seen}")));
        }
    }
}

/// A person at a terminal: util-linux's script makes one.
#[test]
fn the_shell_edits_completes_and_remembers() {
    let playground = Playground::start(&["--servers", "1"]);
    let dir = Dir::new("shell-history");
    let addr = any(&playground);
    done(addr, &["shell", "-c", "put apple fruit"]);
    let shell = format!("{} shell", env!("CARGO_BIN_EXE_argosy"));
    let mut terminal = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("ARGOSY_ENDPOINTS", addr.to_string())
        .env("XDG_STATE_HOME", &dir.0)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux");
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = Screen::of(terminal.stdout.take().unwrap());
    screen.shows("argosy> ");
    // A tab completes the key; the line that Ctrl-C throws away is not carried out.
    for (typed, shown) in [
        ("get app\t\r", "fruit"),
        ("", "argosy> "),
        ("put apple never", "never"),
        ("\x03", "argosy> "),
        ("fly\r", "no command 'fly'"),
        ("", "argosy> "),
    ] {
        keys.write_all(typed.as_bytes()).unwrap();
        screen.shows(shown);
    }
    keys.write_all(b"quit\r").unwrap();
    assert!(terminal.wait().unwrap().success());
    assert_eq!(done(addr, &["shell", "-c", "get apple"]), "fruit\n");
    let history = std::fs::read_to_string(dir.0.join("argosy/shell_history")).unwrap();
    assert!(
        history.contains("get apple") && history.contains("quit"),
        "{history}"
    );
}

/// Pairs of all kinds of bytes, some long, as JSON lines.
fn odd_pairs(count: u32) -> (BTreeMap<Vec<u8>, Vec<u8>>, String) {
    let mut rng = Rng::new(11, 0);
    let mut bytes =
        |len: u64| -> Vec<u8> { (0..len).map(|_| rng.next_u64().to_le_bytes()[3]).collect() };
    let mut pairs = BTreeMap::new();
    for n in 0..count {
        let mut key = bytes(u64::from(n % 7));
        key.extend_from_slice(n.to_string().as_bytes());
        let value = match n % 500 {
            0 => bytes(1 << 20),
            1 => Vec::new(),
            _ => bytes(u64::from(n % 300)),
        };
        pairs.insert(key, value);
    }
    let mut lines = String::new();
    for (key, value) in &pairs {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            })
        };
        let line = json!({"key": {"hex": hex(key)}, "value": {"hex": hex(value)}});
        lines.push_str(&format!("{line}\n"));
    }
    (pairs, lines)
}

#[test]
fn every_byte_comes_back_from_a_cluster_with_other_settings() {
    let dir = Dir::new("round-trip");
    let (pairs, lines) = odd_pairs(3000);
    let (first, second) = (dir.file("first.jsonl"), dir.file("second.tsv"));
    std::fs::write(dir.file("source.jsonl"), lines).unwrap();
    let one = Playground::start(&[]);
    let said = done(
        any(&one),
        &["import", "-o", "json", &dir.file("source.jsonl")],
    );
    let summary: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(summary["schema"], "argosy.import.v1");
    assert_eq!(summary["pairs"], pairs.len());
    done(any(&one), &["export", &first]);

    let other = [
        "--servers",
        "2",
        "--regions",
        "5",
        "--placement",
        "separated",
        "--replication",
    ];
    let two = Playground::start(&[&other[..], &["none", "--replicas", "1"]].concat());
    let native = ["import", "--client", "native", "--connections", "1", &first];
    done(any(&two), &native);
    let said = done(any(&two), &["export", "-o", "json", &second]);
    let summary: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(summary["pairs"], pairs.len());
    assert_eq!(
        done(any(&one), &["export", "--format", "tsv"]),
        std::fs::read_to_string(&second).unwrap()
    );
    // And they are what was loaded.
    let back = done(any(&two), &["export", "--encoding", "base64"]);
    assert_eq!(back.lines().count(), pairs.len());
    for (line, (key, _)) in back.lines().zip(&pairs) {
        let line: Value = serde_json::from_str(line).unwrap();
        let expected = base64(key);
        assert_eq!(line["key"]["base64"], expected);
    }
    let some = done(
        any(&two),
        &[
            "export", "--from", "hex:80", "--to", "0xc0", "--limit", "10",
        ],
    );
    let range = pairs.range(vec![0x80]..vec![0xc0]).count().min(10);
    assert_eq!(some.lines().count(), range);
}

/// As the tools write it.
fn base64(bytes: &[u8]) -> String {
    argosy::bytes::shown(bytes, argosy::bytes::Notation::Base64)["base64:".len()..].to_owned()
}

#[test]
fn a_sorted_import_goes_straight_into_the_levels() {
    const PAIRS: usize = 12_000;
    let dir = Dir::new("import-sorted");
    let source = dir.file("source.tsv");
    let lines = (0..PAIRS).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "{n:06}\t{}", "v".repeat(100 + n % 7));
        lines
    });
    std::fs::write(&source, &lines).unwrap();
    let import = |addr, args: &[&str]| -> Value {
        let args = [&["import", "-o", "json"], args, &[&source]].concat();
        serde_json::from_str(&done(addr, &args)).unwrap()
    };
    for mode in [&["--regions", "3"][..], &["--replication", "build-index"]] {
        let cluster = Playground::start(mode);
        let addr = any(&cluster);
        let summary = import(addr, &[]);
        assert_eq!(
            (&summary["pairs"], &summary["ingested"]),
            (&json!(PAIRS), &json!(PAIRS))
        );
        assert_eq!(done(addr, &["export", "--format", "tsv"]), lines);
        // What is there is written over.
        let (code, _, said) = run(addr, &["import", "--format", "tsv", &source], "");
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("lines that are sorted are written"), "{said}");
        let summary = import(addr, &["--no-ingest"]);
        assert_eq!(
            (&summary["pairs"], &summary["ingested"]),
            (&json!(PAIRS), &json!(0))
        );
        assert_eq!(done(addr, &["export", "--format", "tsv"]), lines);
    }
}

/// The order of a key's lines holds where sorted lines end.
#[test]
fn lines_behind_sorted_ones_count() {
    let playground = Playground::start(&["--servers", "1"]);
    let addr = any(&playground);
    let mut lines: String = (0..5000).map(|n| format!("{n:05}\told\n")).collect();
    lines.extend((0..5000).rev().map(|n| format!("{n:05}\tnew\n")));
    let (code, out, said) = run(addr, &["import", "--format", "tsv", "-o", "json"], &lines);
    assert_eq!(code, 0, "{said}");
    let summary: Value = serde_json::from_str(&out).unwrap();
    let ingested = summary["ingested"].as_u64().unwrap();
    assert!((2000..=5000).contains(&ingested), "{summary}");
    let exported = done(addr, &["export", "--format", "tsv"]);
    assert_eq!(
        exported
            .lines()
            .filter(|line| line.ends_with("\tnew"))
            .count(),
        5000
    );
}

#[test]
fn exports_go_on_where_they_ended() {
    let dir = Dir::new("export-resume");
    let playground = Playground::start(&["--servers", "1", "--regions", "3"]);
    let addr = any(&playground);
    std::fs::write(dir.file("source.jsonl"), odd_pairs(1200).1).unwrap();
    done(addr, &["import", &dir.file("source.jsonl")]);
    for name in ["whole.jsonl", "whole.tsv"] {
        let whole = dir.file(name);
        done(addr, &["export", &whole]);
        let bytes = std::fs::read(&whole).unwrap();
        let (code, _, said) = run(addr, &["export", &whole], "");
        assert_eq!(code, 1);
        assert!(said.contains("--resume"), "{said}");
        for cut in [0, 7, bytes.len() / 3, bytes.len() - 1, bytes.len()] {
            let part = dir.file(&format!("part-{name}"));
            std::fs::write(&part, &bytes[..cut]).unwrap();
            done(addr, &["export", "--resume", &part]);
            assert!(
                std::fs::read(&part).unwrap() == bytes,
                "{name} cut at {cut}"
            );
        }
    }
    let (code, _, said) = run(
        addr,
        &[
            "export",
            "--resume",
            "--prefix",
            "zz",
            &dir.file("whole.tsv"),
        ],
        "",
    );
    assert_eq!(code, 1);
    assert!(said.contains("another"), "{said}");
}

#[test]
fn a_bad_line_ends_an_import_or_is_put_aside() {
    let dir = Dir::new("bad-lines");
    let playground = Playground::start(&[]);
    let addr = any(&playground);
    let mut lines = String::new();
    for n in 0..5000 {
        lines.push_str(&match n {
            3210 => "no pair\n".to_owned(),
            _ => format!("key{n:05}\tvalue\n"),
        });
    }
    let source = dir.file("source.tsv");
    std::fs::write(&source, &lines).unwrap();
    let (code, _, said) = run(addr, &["import", &source], "");
    assert_eq!(code, 1);
    assert!(said.contains("line 3211: a line has one tab"), "{said}");
    assert!(said.contains("lines 1 to 3210 are applied;"), "{said}");
    let applied = done(addr, &["export", "--format", "tsv"]);
    assert!(lines.starts_with(&applied), "and nothing behind");
    assert_eq!(applied.lines().count(), 3210);

    let rejects = dir.file("rejects");
    let args = ["import", "--keep-going", "--rejects", &rejects, &source];
    let (code, _, said) = run(addr, &args, "");
    assert_eq!(code, 1);
    assert!(said.contains("1 lines were no pairs"), "{said}");
    assert_eq!(std::fs::read_to_string(&rejects).unwrap(), "no pair\n");
    let all = done(addr, &["export", "--format", "tsv"]);
    assert_eq!(all, lines.replace("no pair\n", ""));
    let (code, ..) = run(addr, &["import", "--keep-going", &source], "");
    assert_eq!(code, 2, "it has to be said where bad lines go");
    assert_eq!(run(addr, &["import", &dir.file("none.tsv")], "").0, 3);
}

#[test]
fn a_killed_import_goes_on_from_its_checkpoint() {
    let dir = Dir::new("import-resume");
    let playground = Playground::start(&[]);
    let addr = any(&playground);
    let checkpoint = dir.file("checkpoint");
    let args = ["import", "--resume", &checkpoint, "-o", "json", "-"];
    let line = |n: u32| format!("{{\"key\":\"key{n:06}\",\"value\":\"value {n}\"}}\n");
    let mut import = tool(addr, &args).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = import.stdin.take().unwrap();
    let mut written = 0;
    let kept = || -> u64 {
        let text = std::fs::read_to_string(&checkpoint).unwrap_or_default();
        let kept: Value = serde_json::from_str(&text).unwrap_or_default();
        kept["place"]["lines"].as_u64().unwrap_or(0)
    };
    until("a checkpoint is kept", || {
        for _ in 0..1000 {
            input.write_all(line(written).as_bytes()).unwrap();
            written += 1;
        }
        kept() > 0
    });
    signal(import.id(), Signal::KILL);
    import.wait().unwrap();
    let kept = kept();
    let all: String = (0..written + 500).map(line).collect();
    let (code, out, said) = run(addr, &args, &all);
    assert_eq!(code, 0, "{said}");
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["resumed_behind_line"], kept);
    assert_eq!(summary["pairs"], written + 500);
    assert_eq!(done(addr, &["export"]), all);
    let (code, _, said) = run(addr, &args, &all);
    assert_eq!((code, said.contains("already")), (0, true));

    // Another input is not taken for the same one.
    let other = dir.file("other.jsonl");
    std::fs::write(&other, all.replace("value", "other")).unwrap();
    let text = std::fs::read_to_string(&checkpoint).unwrap();
    std::fs::write(&checkpoint, text.replace("\"done\":true", "\"done\":false")).unwrap();
    let (code, _, said) = run(addr, &["import", "--resume", &checkpoint, &other], "");
    assert_eq!(code, 1);
    assert!(said.contains("does not begin"), "{said}");
}

#[test]
fn an_import_waits_for_a_server_that_returns() {
    let dir = Dir::new("import-restart");
    let playground = Playground::start(&[]);
    let _ports = keep_ports();
    let victim = playground.servers[1].clone();
    let addr = playground.servers[0].resp;
    let mut lines = String::new();
    for n in 0..30_000 {
        let first = ["a", "h", "t"][n % 3];
        lines.push_str(&format!("{first}{n:05}\t{}\n", "v".repeat(100)));
    }
    let source = dir.file("source.tsv");
    std::fs::write(&source, &lines).unwrap();
    let args = ["import", "--retry-for", "100s", "-o", "json", &source];
    let import = tool(addr, &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    signal(victim.pid, Signal::KILL);
    until("the server dies", || !lives(victim.pid));
    pause();
    let _again = ByHand::start(&victim.config);
    let output = import.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut sorted: Vec<&str> = lines.lines().collect();
    sorted.sort_unstable();
    let exported = done(addr, &["export", "--format", "tsv"]);
    assert!(exported.lines().eq(sorted), "every line is there");
}

#[test]
fn an_import_that_gives_up_says_what_is_applied_and_goes_on_later() {
    let dir = Dir::new("import-gives-up");
    let playground = Playground::start(&["--servers", "1", "--regions", "2"]);
    let _ports = keep_ports();
    let server = playground.servers[0].clone();
    let checkpoint = dir.file("checkpoint");
    let args = [
        "import",
        "--resume",
        &checkpoint,
        "--retry-for",
        "500ms",
        "--format",
        "tsv",
    ];
    let line = |n: u32| format!("key{n:06}\tvalue\n");
    let mut import = tool(server.resp, &args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = import.stdin.take().unwrap();
    // A chunk has at most 2000 lines: some chunks are applied before the server dies.
    let first: String = (0..10_000).map(line).collect();
    input.write_all(first.as_bytes()).unwrap();
    until("some lines are applied", || {
        !done(server.resp, &["shell", "-c", "scan keys limit 1"]).is_empty()
    });
    signal(server.pid, Signal::KILL);
    until("the server dies", || !lives(server.pid));
    let rest: String = (10_000..20_000).map(line).collect();
    // It may end before it has read all.
    let _ = input.write_all(rest.as_bytes());
    drop(input);
    let output = import.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("lines 1 to ") && said.contains("repeat the command"),
        "{said}"
    );

    let _again = ByHand::start(&server.config);
    crate::support::until_ready(server.admin);
    let kept: Value = serde_json::from_slice(&std::fs::read(&checkpoint).unwrap()).unwrap();
    let kept = usize::try_from(kept["place"]["lines"].as_u64().unwrap()).unwrap();
    let applied = done(server.resp, &["export", "--format", "tsv"]);
    let all = first + &rest;
    let lines: Vec<&str> = all.lines().collect();
    let prefix = applied.lines().take(kept);
    assert!(
        prefix.eq(lines[..kept].iter().copied()),
        "what it says is applied"
    );
    let (code, _, said) = run(server.resp, &args, &all);
    assert_eq!(code, 0, "{said}");
    assert_eq!(done(server.resp, &["export", "--format", "tsv"]), all);
}
