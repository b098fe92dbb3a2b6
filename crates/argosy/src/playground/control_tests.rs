//! Tests of the socket: who may connect, what is answered, and that nobody keeps others out.

use std::io::{Read, Write};

use super::super::protocol::{ANSWER_BYTES_MAX, RefusalKind, Verb, parse_answer};
use super::*;

/// An answer that shows what was asked.
fn echo(request: &Request) -> Answer {
    let words = format!("{} {:?}", request.verb.name(), request.servers);
    Err(Refusal::new(RefusalKind::Failed, words))
}

/// What the other side has sent until it closed. Where it closed without reading all, that is an error behind it.
fn read_all(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = [0; 512];
    while let Ok(read @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..read]);
        assert!(bytes.len() <= ANSWER_BYTES_MAX);
    }
    bytes
}

fn refused(stream: &mut UnixStream) -> Refusal {
    parse_answer(&read_all(stream)).unwrap().unwrap_err()
}

fn kill_2() -> Vec<u8> {
    let (verb, servers) = (Verb::Kill, vec![2]);
    Request { verb, servers }.to_bytes()
}

#[test]
fn a_request_is_answered_once_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut control = Control::listen(dir.path()).unwrap();
    let mode = std::fs::metadata(dir.path().join(NAME)).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);

    let mut stream = connect(dir.path()).unwrap();
    let mut asked = 0;
    for byte in kill_2() {
        assert_eq!(asked, 0);
        stream.write_all(&[byte]).unwrap();
        let answer = |request: &Request| {
            asked += 1;
            echo(request)
        };
        control.step(answer).unwrap();
    }
    assert_eq!(asked, 1);
    assert_eq!(refused(&mut stream).words, "kill [2]");
    assert_eq!(control.fds().count(), 1, "the connection is closed");
    drop(control);
    assert!(!dir.path().join(NAME).exists());
}

#[test]
fn hostile_callers_get_an_error_and_nothing_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let mut control = Control::listen(dir.path()).unwrap();
    let endless = vec![b'9'; 64 << 10];
    let cases: [(&[u8], &str); 5] = [
        (&endless, "longer than"),
        (b"\0\0\0\n", "speaks"),
        (b"\xff\xfe\n", "no text"),
        (
            b"argosy-playground/1 kill 0\nargosy-playground/1 kill 1\n",
            "behind",
        ),
        (b"argosy-playground/1 kill 0", "cut off"),
    ];
    for (bytes, words) in cases {
        let mut stream = connect(dir.path()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        control.step(|request| panic!("{request:?}")).unwrap();
        let refused = refused(&mut stream);
        assert_eq!(refused.kind, RefusalKind::Usage);
        assert!(refused.words.contains(words), "{refused}");
    }
    // Gone without a word, and gone before the answer.
    drop(connect(dir.path()).unwrap());
    let mut gone = connect(dir.path()).unwrap();
    gone.write_all(&kill_2()).unwrap();
    drop(gone);
    control.step(echo).unwrap();
    assert_eq!(control.fds().count(), 1);
}

#[test]
fn the_silent_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut control = Control::listen(dir.path()).unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 * CALLERS_MAX {
        silent.push(connect(dir.path()).unwrap());
        control.step(echo).unwrap();
        assert!(control.fds().count() <= 1 + CALLERS_MAX);
    }
    let mut stream = connect(dir.path()).unwrap();
    stream.write_all(&kill_2()).unwrap();
    control.step(echo).unwrap();
    assert_eq!(refused(&mut stream).words, "kill [2]");
    assert!(refused(&mut silent[0]).words.contains("others came"));
    // Whoever has spoken is heard before it loses its place.
    let last = silent.last_mut().unwrap();
    last.write_all(&kill_2()).unwrap();
    let mut others = Vec::new();
    for _ in 0..CALLERS_MAX {
        others.push(connect(dir.path()).unwrap());
    }
    control.step(echo).unwrap();
    assert_eq!(refused(last).words, "kill [2]");
}

#[test]
fn what_was_left_is_replaced_if_it_is_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    // As a playground leaves it that is killed: nobody listens.
    drop(UnixListener::bind(&path).unwrap());
    assert!(connect(dir.path()).is_err());
    let control = Control::listen(dir.path()).unwrap();
    connect(dir.path()).unwrap();
    drop(control);
    std::fs::write(&path, b"somebody's").unwrap();
    assert!(Control::listen(dir.path()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

#[test]
fn a_directory_may_have_a_longer_name_than_an_address_has_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("x".repeat(200));
    std::fs::create_dir(&long).unwrap();
    let control = Control::listen(&long).unwrap();
    connect(&long).unwrap();
    drop(control);
    assert!(!long.join(NAME).exists());
}
