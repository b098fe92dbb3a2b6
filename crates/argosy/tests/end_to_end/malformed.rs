//! Input that is wrong in every way: a clear error or a closed connection, bounded memory, and
//! other clients undisturbed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{Playground, Rng, bulk, call, connect, ok};
use argosy_bench::process::Sample;
use argosy_bench::resp::{Connection, Reply};

const KEY_BYTES_MAX: usize = 4096;
const VALUE_BYTES_MAX: usize = 1 << 20;

/// How much the server's memory may grow under all of this.
const GROWTH_MAX: u64 = 48 << 20;

/// Sends `bytes`, half-closes, and returns what comes back until the server closes or has been
/// silent for a while.
fn answer_to(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The server may close before it has read everything: that is an answer too.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn malformed_requests_get_an_error_or_a_closed_connection() {
    let playground = Playground::start(&["--servers", "1"]);
    let server = &playground.servers[0];
    let mut neighbour = connect(server.resp);
    assert_eq!(
        call(&mut neighbour, &[b"SET", b"neighbour", b"undisturbed"]),
        ok()
    );
    let before = Sample::of(server.pid).unwrap().peak_rss_bytes;

    let nested = b"*1\r\n".repeat(1_000_000);
    let endless = vec![b'x'; 4 << 20];
    // What must be answered by an error.
    let wrong: [&[u8]; 13] = [
        b"*-1\r\n",
        b"*2147483648\r\n",
        b"*99999999999999999999\r\n",
        b"*x\r\n",
        b"*1\r\n$-5\r\nPING\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*1\r\n$99999999999999999999999\r\n",
        b"*1\r\n$4x\r\nPING\r\n",
        b"*1\r\n$3\r\nPINGPING\r\n",
        b"*1\r\n:4\r\n",
        b"*2\r\n$3\r\nGET\r\n*1\r\n$1\r\na\r\n",
        &nested,
        &endless,
    ];
    for bytes in wrong {
        let answer = answer_to(server.resp, bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        assert!(answer.starts_with("-ERR"), "{shown:?} got {answer:?}");
        assert_eq!(
            call(&mut neighbour, &[b"GET", b"neighbour"]),
            bulk("undisturbed")
        );
    }
    // What is cut off in the middle has no answer, and nothing of it is done.
    for bytes in [
        b"*3\r\n$3\r\nSET\r\n$9\r\nneighbour\r\n$7\r\ndist".as_slice(),
        b"*3\r\n$3\r\nSET\r\n",
        b"*",
        b"PI",
    ] {
        assert_eq!(answer_to(server.resp, bytes), "");
        assert_eq!(
            call(&mut neighbour, &[b"GET", b"neighbour"]),
            bulk("undisturbed")
        );
    }
    // What is empty or not there is passed over, as Redis does.
    assert_eq!(answer_to(server.resp, b"\r\n*0\r\nPING\r\n"), "+PONG\r\n");
    let grown = Sample::of(server.pid)
        .unwrap()
        .peak_rss_bytes
        .saturating_sub(before);
    assert!(grown < GROWTH_MAX, "memory grew by {grown} bytes");
}

#[test]
fn random_bytes_disturb_nobody() {
    let playground = Playground::start(&["--servers", "1"]);
    let addr = playground.servers[0].resp;
    let mut neighbour = connect(addr);
    assert_eq!(
        call(&mut neighbour, &[b"SET", b"neighbour", b"undisturbed"]),
        ok()
    );
    let mut rng = Rng::new(11, 0);
    for round in 0..200 {
        let len = usize::try_from(rng.below(2000)).unwrap();
        let mut bytes: Vec<u8> = (0..len)
            .map(|_| match rng.below(4) {
                0 => b"*$:+-\r\n0123456789"[usize::try_from(rng.below(17)).unwrap()],
                _ => u8::try_from(rng.below(256)).unwrap(),
            })
            .collect();
        if round % 2 == 0 {
            let head = format!("*{}\r\n${}\r\n", rng.below(9), rng.below(9));
            bytes.splice(0..0, head.into_bytes());
        }
        let _ = answer_to(addr, &bytes);
    }
    assert_eq!(
        call(&mut neighbour, &[b"GET", b"neighbour"]),
        bulk("undisturbed")
    );
}

#[test]
fn what_is_over_a_limit_is_refused_by_name_and_the_connection_stays() {
    let playground = Playground::start(&["--servers", "1"]);
    let mut client = connect(playground.servers[0].resp);
    let (longest_key, longest_value) = (vec![b'k'; KEY_BYTES_MAX], vec![b'v'; VALUE_BYTES_MAX]);
    assert_eq!(
        call(&mut client, &[b"SET", &longest_key, &longest_value]),
        ok()
    );
    assert_eq!(
        call(&mut client, &[b"GET", &longest_key]),
        bulk(&longest_value)
    );
    assert_eq!(call(&mut client, &[b"SET", b"empty", b""]), ok());
    assert_eq!(call(&mut client, &[b"GET", b"empty"]), bulk(""));

    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    let value = vec![b'v'; VALUE_BYTES_MAX + 1];
    refused(&mut client, &[b"SET", &key, b"v"], "max_key_bytes");
    refused(&mut client, &[b"GET", &key], "max_key_bytes");
    refused(&mut client, &[b"GETSET", b"k", &value], "max_value_bytes");
    let longest = vec![b'v'; (64 << 20) + 1];
    refused(
        &mut client,
        &[b"SET", b"k", &longest],
        "max_long_value_bytes",
    );
    refused(&mut client, &[b"SET", b"", b"v"], "empty");
    let half = vec![b'v'; VALUE_BYTES_MAX / 2];
    let mset: [&[u8]; 7] = [b"MSET", b"1", &half, b"2", &half, b"3", &half];
    refused(&mut client, &mset, "max_batch_bytes");
    for key in [b"1", b"2", b"3"] {
        assert_eq!(
            call(&mut client, &[b"GET", key]),
            Reply::Bulk(None),
            "nothing was applied"
        );
    }
}

fn refused(client: &mut Connection, command: &[&[u8]], name: &str) {
    match call(client, command) {
        Reply::Error(line) => assert!(line.contains(name), "{line}"),
        other => panic!(
            "{} was answered by {other:?}",
            String::from_utf8_lossy(command[0])
        ),
    }
    assert_eq!(call(client, &[b"PING"]), Reply::Simple("PONG".to_owned()));
}

#[test]
fn many_connections_come_and_go() {
    let playground = Playground::start(&["--servers", "1"]);
    let server = &playground.servers[0];
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", server.pid))
            .unwrap()
            .count()
    };
    let before = descriptors();
    for _ in 0..5 {
        let mut clients: Vec<_> = (0..200).map(|_| connect(server.resp)).collect();
        for client in &mut clients {
            assert_eq!(call(client, &[b"PING"]), Reply::Simple("PONG".to_owned()));
        }
    }
    crate::support::until("descriptors return", || descriptors() <= before + 2);
}
