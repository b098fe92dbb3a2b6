//! Real input: the package index of this machine's Debian, loaded through one server and read back
//! through the others, every byte compared.

use std::collections::BTreeMap;

use crate::support::{Playground, connect, ok, run};
use argosy_bench::resp::{Connection, Reply};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Fewer packages than this are no Debian index. A fresh machine has tens of thousands.
const PACKAGES_MIN: usize = 20_000;

/// Requests in flight.
const PIPELINE: usize = 128;

/// Pairs asked for in one `KV.RANGE`.
const PAGE: usize = 500;

#[test]
fn the_package_index_comes_back_byte_for_byte() {
    let packages = packages();
    assert!(
        packages.len() >= PACKAGES_MIN,
        "{} packages; run apt-get update",
        packages.len()
    );
    let playground = Playground::start(&["--regions", "4"]);
    let client = |server: usize| connect(playground.servers[server].resp);

    load(&mut client(0), &packages);
    read_back(&mut client(1), &packages);
    let scanned = scan(&mut client(2));
    assert_eq!(scanned.len(), packages.len());
    for ((key, value), (expected_key, expected)) in scanned.iter().zip(&packages) {
        assert_eq!(
            String::from_utf8_lossy(key),
            String::from_utf8_lossy(expected_key)
        );
        assert!(value == expected, "{}", String::from_utf8_lossy(key));
    }
    assert!(playground.interrupt().success());
}

/// `name/version/architecture` → stanza.
fn packages() -> Pairs {
    let text = run("apt-cache", &["dumpavail"]).stdout;
    let mut pairs = Pairs::new();
    for stanza in split_stanzas(&text) {
        let field = |name: &[u8]| {
            let mut lines = stanza.split(|&byte| byte == b'\n');
            let value = lines.find_map(|line| line.strip_prefix(name));
            value.map(<[u8]>::trim_ascii).unwrap_or_default()
        };
        let key = [
            field(b"Package:"),
            field(b"Version:"),
            field(b"Architecture:"),
        ]
        .join(&b'/');
        if key.len() > 2 {
            pairs.insert(key, stanza.to_vec());
        }
    }
    pairs
}

fn split_stanzas(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|pair| pair == b"\n\n");
        let (stanza, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        rest = behind.strip_prefix(b"\n").unwrap_or(behind);
        Some(stanza)
    })
}

fn load(client: &mut Connection, packages: &Pairs) {
    let pairs: Vec<_> = packages.iter().collect();
    for chunk in pairs.chunks(PIPELINE) {
        for (key, value) in chunk {
            client.push(&[b"SET", key, value]);
        }
        client.flush().unwrap();
        for _ in chunk {
            assert_eq!(client.reply().unwrap(), ok());
        }
    }
}

fn read_back(client: &mut Connection, packages: &Pairs) {
    let pairs: Vec<_> = packages.iter().collect();
    for chunk in pairs.chunks(PIPELINE) {
        for (key, _) in chunk {
            client.push(&[b"GET", key]);
        }
        client.flush().unwrap();
        for (key, value) in chunk {
            let reply = client.reply().unwrap();
            let same = matches!(&reply, Reply::Bulk(Some(found)) if found == *value);
            assert!(same, "{}: {reply:?}", String::from_utf8_lossy(key));
        }
    }
}

/// Everything there is, by pages of `KV.RANGE`.
fn scan(client: &mut Connection) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut found, mut from) = (Vec::new(), Vec::new());
    loop {
        let limit = PAGE.to_string();
        let command: [&[u8]; 5] = [b"KV.RANGE", &from, b"+", b"LIMIT", limit.as_bytes()];
        let Reply::Array(Some(flat)) = client.call(&command).unwrap() else {
            panic!("KV.RANGE answers an array");
        };
        let mut flat = flat.into_iter();
        let mut pairs = 0;
        while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
            let (Reply::Bulk(Some(key)), Reply::Bulk(Some(value))) = (key, value) else {
                panic!("keys and values are bulk strings");
            };
            from = [key.as_slice(), &[0]].concat();
            found.push((key, value));
            pairs += 1;
        }
        if pairs < PAGE {
            return found;
        }
    }
}
