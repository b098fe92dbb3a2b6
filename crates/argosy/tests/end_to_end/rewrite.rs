//! Address mode `rewrite`: pointers hold places, each member's its own.

use std::collections::BTreeMap;

use argosy_base::info;
use argosy_bench::resp::Reply;
use rustix::process::Signal;
use serde_json::Value;

use crate::failover::until_equal;
use crate::inspect_command::{Dir, inspect, load, path, verify};
use crate::support::{
    ByHand, Playground, argosy, call, connect, empty_dir, info as info_of, keep_ports, lives,
    signal, text, until, until_ready,
};

const MODE: [&str; 4] = ["--regions", "3", "--address", "rewrite"];

fn start(dir: &Dir) -> Playground {
    let data = ["--data-dir", path(&dir.0)];
    Playground::start(&[&MODE[..], &data[..]].concat())
}

fn number(playground: &Playground, server: usize, name: &str) -> u64 {
    let all = info_of(playground.servers[server].resp, info::SECTION);
    all[name].parse().unwrap()
}

/// Every pair that `playground` has.
fn pairs(playground: &Playground) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut client = connect(playground.servers[0].resp);
    let (mut found, mut from) = (BTreeMap::new(), b"-".to_vec());
    loop {
        let page = call(&mut client, &[b"KV.RANGE", &from, b"+", b"LIMIT", b"2000"]);
        let Reply::Array(Some(words)) = page else {
            panic!("a page is not {page:?}");
        };
        let word = |reply: &Reply| match reply {
            Reply::Bulk(Some(word)) => word.clone(),
            other => panic!("{other:?} is no word"),
        };
        let page = words.chunks(2).map(|pair| (word(&pair[0]), word(&pair[1])));
        let page: Vec<_> = page.collect();
        let Some((last, _)) = page.last() else {
            return found;
        };
        from = [last.as_slice(), b"\0"].concat();
        found.extend(page);
    }
}

/// Members are whole, and equal once pointers hold numbers.
fn assert_whole_and_equal(dir: &Dir) {
    let servers = [0, 1, 2].map(|id| dir.0.join(format!("server-{id}")));
    for server in &servers {
        assert_eq!(verify(server), Vec::<Value>::new());
    }
    for (a, b) in [(0, 1), (0, 2)] {
        let (code, report) = inspect(&["compare", path(&servers[a]), path(&servers[b])]);
        assert_eq!(
            (code, &report["equal"]),
            (0, &Value::from(true)),
            "{report}"
        );
    }
}

/// A server that is killed and comes back, then one without its device: it fetches what the others have, in places of
/// its own. Each time others lead its regions meanwhile.
#[test]
fn members_come_back_from_each_others_places() {
    let dir = Dir(empty_dir("rewrite"));
    let playground = start(&dir);
    load(&playground, 0);
    for server in 0..3 {
        assert!(number(&playground, server, info::REWRITTEN_POINTERS) > 0);
        assert!(number(&playground, server, info::REWRITTEN_BYTES) > 0);
    }
    let ports = keep_ports();
    let lost = playground.servers[2].clone();
    signal(lost.pid, Signal::KILL);
    until("the server dies", || !lives(lost.pid));
    let _back = ByHand::start(&lost.config);
    until_ready(lost.admin);
    drop(ports);
    until_ready(playground.servers[0].admin);
    load(&playground, 1);
    let before = pairs(&playground);
    assert!(before.len() > 10_000, "{}", before.len());
    until_equal(&playground.servers);
    assert!(playground.interrupt().success());
    assert_whole_and_equal(&dir);

    std::fs::remove_file(dir.0.join("server-0/device")).unwrap();
    let data = ["--data-dir", path(&dir.0), "--new-device", "0"];
    let playground = Playground::start(&[&MODE[..], &data[..]].concat());
    until_equal(&playground.servers);
    assert!(number(&playground, 0, info::CATCH_UP_BYTES) > 0);
    assert!(number(&playground, 0, info::REWRITTEN_POINTERS) > 0);
    assert!(pairs(&playground) == before, "the same pairs");
    assert!(playground.interrupt().success());
    assert_whole_and_equal(&dir);

    // The data is of one mode for ever, whoever says otherwise.
    let other = argosy()
        .args(["playground", "--address", "logical", "--data-dir"])
        .arg(&dir.0)
        .output()
        .unwrap();
    let said = text(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--address logical") && said.contains("has rewrite"),
        "{said}"
    );
}
