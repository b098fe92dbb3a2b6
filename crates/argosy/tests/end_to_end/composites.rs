//! Hashes and sorted sets through three servers: many clients at one of them, and what is left when it is deleted.

use argosy_client::resp::{Connection, Reply};

use crate::support::{Playground, call, ok};

const CLIENTS: usize = 12;
const MEMBERS: usize = 60;

/// Each client adds members of its own to one sorted set and to one hash, and counts in one field.
fn fill(addr: std::net::SocketAddr, client: usize) {
    let mut connection = Connection::open(addr).unwrap();
    for member in 0..MEMBERS {
        let name = format!("{client:02}:{member:03}");
        let score = (member * CLIENTS + client).to_string();
        let added = call(
            &mut connection,
            &[b"ZADD", b"_indices", score.as_bytes(), name.as_bytes()],
        );
        assert_eq!(added, Reply::Integer(1), "{name}");
        let set = call(&mut connection, &[b"HSET", b"h", name.as_bytes(), b"v"]);
        assert_eq!(set, Reply::Integer(1), "{name}");
        // What is not there is found not to be, whatever others write.
        let absent = call(&mut connection, &[b"HGET", b"h", b"nobody"]);
        assert_eq!(absent, Reply::Bulk(None));
        let same = [&b"ZADD"[..], b"_indices", score.as_bytes(), name.as_bytes()];
        assert_eq!(call(&mut connection, &same), Reply::Integer(0), "{name}");
    }
}

#[test]
fn clients_add_to_one_sorted_set_at_once() {
    let playground = Playground::start(&["--servers", "3", "--regions", "3"]);
    let servers = &playground.servers;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let addr = servers[client % servers.len()].resp;
            scope.spawn(move || fill(addr, client));
        }
    });
    let all = i64::try_from(CLIENTS * MEMBERS).unwrap();
    for server in servers {
        let mut connection = Connection::open(server.resp).unwrap();
        let mut ask = |words: &[&[u8]]| call(&mut connection, words);
        assert_eq!(ask(&[b"ZCARD", b"_indices"]), Reply::Integer(all));
        let counted = ask(&[b"ZCOUNT", b"_indices", b"-inf", b"+inf"]);
        assert_eq!(counted, Reply::Integer(all));
        assert_eq!(ask(&[b"HLEN", b"h"]), Reply::Integer(all));
        let Reply::Array(Some(pairs)) = ask(&[b"HGETALL", b"h"]) else {
            panic!("a hash is an array");
        };
        assert_eq!(pairs.len(), 2 * CLIENTS * MEMBERS);
        let first = ask(&[
            b"ZRANGEBYSCORE",
            b"_indices",
            b"(0",
            b"+inf",
            b"LIMIT",
            b"0",
            b"2",
        ]);
        let name = |name: &str| Reply::Bulk(Some(name.as_bytes().to_vec()));
        assert_eq!(
            first,
            Reply::Array(Some(vec![name("01:000"), name("02:000")]))
        );
        assert_eq!(
            ask(&[b"ZRANK", b"_indices", b"11:059"]),
            Reply::Integer(all - 1)
        );
        let Reply::Integer(keys) = ask(&[b"DBSIZE"]) else {
            panic!("it is a number");
        };
        assert!(keys < 2 * all, "elements are no keys: {keys}");
    }
    let mut connection = Connection::open(servers[0].resp).unwrap();
    assert_eq!(call(&mut connection, &[b"SET", b"h", b"text"]), ok());
    let removed = call(&mut connection, &[b"DEL", b"h", b"_indices"]);
    assert_eq!(removed, Reply::Integer(2));
    let none = call(&mut connection, &[b"HGETALL", b"h"]);
    assert_eq!(none, Reply::Array(Some(Vec::new())));
}
