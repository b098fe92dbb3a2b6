//! Replies in pieces.

use super::*;

/// What is read of `bytes`, shown `piece` more of them at a time, and how many bytes were looked at.
fn read(bytes: &[u8], piece: usize) -> (Vec<Reply>, usize) {
    let (mut parser, mut replies) = (Parser::default(), Vec::new());
    let (mut start, mut shown) = (0, 0);
    while shown < bytes.len() {
        shown = (shown + piece).min(bytes.len());
        loop {
            let input = &bytes[start..shown];
            let (used, parsed) = parser.parse(input).expect("it is RESP");
            start += used;
            match parsed {
                Some(parsed) => replies.push(parsed.into_reply(input)),
                None => break,
            }
        }
    }
    assert_eq!(start, bytes.len());
    (replies, parser.looked)
}

fn array_of(items: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = format!("*{items}\r\n").into_bytes();
    for _ in 0..items {
        bytes.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn every_byte_is_looked_at_once() {
    let short = array_of(100_000, &[b'v'; 40]);
    let long = array_of(3, &vec![b'v'; 1 << 20]);
    let nested = [b"*1\r\n".repeat(6), array_of(20_000, b"")].concat();
    let line = [&b"+"[..], &vec![b'l'; 1 << 20], b"\r\n"].concat();
    for bytes in [short, long, nested, line] {
        for piece in [777, 64 << 10] {
            let (replies, looked) = read(&bytes, piece);
            assert_eq!(replies.len(), 1);
            // One byte more where a piece ends within a line.
            let most = bytes.len() + bytes.len().div_ceil(piece);
            assert!(looked <= most, "{looked} of {}, by {piece}", bytes.len());
        }
    }
}

#[test]
fn replies_are_the_same_however_they_are_cut() {
    let bytes =
        b"+OK\r\n:-12\r\n$7\r\nhe\r\nllo\r\n$-1\r\n*-1\r\n*0\r\n*3\r\n$1\r\na\r\n*2\r\n*0\r\n\
        *1\r\n:7\r\n+\r\r\n-ERR no\r\n$0\r\n\r\n*2\r\n*-1\r\n$-1\r\n";
    let (whole, _) = read(bytes, bytes.len());
    assert_eq!(whole.len(), 10);
    for piece in 1..bytes.len() {
        assert_eq!(read(bytes, piece).0, whole, "{piece}");
    }
    // As it is parsed all at once.
    let (mut rest, mut each) = (&bytes[..], Vec::new());
    while let Some((reply, len)) = parse_reply(rest).unwrap() {
        each.push(reply);
        rest = &rest[len..];
    }
    assert_eq!(each, whole);
}

#[test]
fn what_is_announced_reserves_nothing() {
    let mut parser = Parser::default();
    let huge = b"*9223372036854775807\r\n*9223372036854775807\r\n$9223372036854775807\r\nab";
    let (used, parsed) = parser.parse(huge).unwrap();
    assert!(parsed.is_none() && used == 44);
    assert_eq!(parser.open.len(), 2);
    assert!(parser.open.iter().all(|open| open.items.capacity() == 0));
    let deep = b"*1\r\n".repeat(DEPTH_MAX + 1);
    assert!(Parser::default().parse(&deep).is_err());
    assert!(Parser::default().parse(&deep[4..]).is_ok());
}
