//! The client against a scripted server.

use std::net::TcpListener;

use super::*;

/// A connection to a server that sends `pieces` one by one and then closes.
fn served(pieces: &'static [&'static [u8]]) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.set_nodelay(true).unwrap();
            for piece in pieces {
                peer.write_all(piece).unwrap();
                peer.flush().unwrap();
            }
        })
        .unwrap();
    Connection::open(addr).unwrap()
}

#[test]
fn replies_come_in_order_however_they_are_cut() {
    let mut connection = served(&[
        b"+OK\r",
        b"\n:-12\r\n$5\r\nhe\r\n",
        b"o\r\n$-1\r\n",
        b"*3\r\n$1\r\na\r\n*-1\r\n*1\r\n:7\r\n-ERR no\r\n$0\r\n\r\n",
    ]);
    let nil = Reply::Bulk(None);
    assert_eq!(connection.reply().unwrap(), Reply::Simple("OK".into()));
    assert_eq!(connection.reply().unwrap(), Reply::Integer(-12));
    assert_eq!(
        connection.brief_reply().unwrap(),
        BriefReply::Bulk(Some(b"he\r\no"))
    );
    assert_eq!(connection.reply().unwrap(), nil);
    let array = vec![
        Reply::Bulk(Some(b"a".to_vec())),
        Reply::Array(None),
        Reply::Array(Some(vec![Reply::Integer(7)])),
    ];
    assert_eq!(connection.reply().unwrap(), Reply::Array(Some(array)));
    assert_eq!(connection.reply().unwrap(), Reply::Error("ERR no".into()));
    assert_eq!(connection.reply().unwrap(), Reply::Bulk(Some(Vec::new())));
    assert!(matches!(
        connection.reply(),
        Err(RespError::Connection { .. })
    ));
}

#[test]
fn what_is_not_resp_is_an_error() {
    const GARBAGE: [&[&[u8]]; 5] = [
        &[b"HTTP/1.1 200 OK\r\n"],
        &[b"$x\r\n"],
        &[b"$1\r\nab\r\n"],
        &[b"\r\n"],
        &[b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"],
    ];
    for garbage in GARBAGE {
        let reply = served(garbage).reply();
        assert!(
            matches!(reply, Err(RespError::Protocol { .. })),
            "{reply:?}"
        );
    }
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut connection = served(&[]);
    connection.push(&[b"SET", b"", &[b'x'; 12]]);
    let sent = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\nxxxxxxxxxxxx\r\n";
    assert_eq!(connection.output, sent);
    assert_eq!(connection.unsent(), sent.len());
}
