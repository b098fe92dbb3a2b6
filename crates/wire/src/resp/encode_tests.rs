//! Each kind of reply in both versions of the protocol.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;

fn both(write: impl Fn(&mut Encoder<'_>)) -> [String; 2] {
    [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut out = Vec::new();
        write(&mut Encoder::new(&mut out, protocol));
        out.escape_ascii().to_string()
    })
}

fn same(text: &str) -> [String; 2] {
    [text.to_string(), text.to_string()]
}

fn apart(resp2: &str, resp3: &str) -> [String; 2] {
    [resp2.to_string(), resp3.to_string()]
}

#[test]
fn what_both_versions_write_alike() {
    assert_eq!(both(|out| out.simple("OK")), same("+OK\\r\\n"));
    assert_eq!(both(|out| out.error("ERR no")), same("-ERR no\\r\\n"));
    assert_eq!(both(|out| out.integer(0)), same(":0\\r\\n"));
    assert_eq!(
        both(|out| out.integer(i64::MIN)),
        same(":-9223372036854775808\\r\\n")
    );
    assert_eq!(
        both(|out| out.count(u64::MAX)),
        same(":9223372036854775807\\r\\n")
    );
    assert_eq!(
        both(|out| out.bulk(b"a\r\n\0")),
        same("$4\\r\\na\\r\\n\\x00\\r\\n")
    );
    assert_eq!(both(|out| out.bulk(b"")), same("$0\\r\\n\\r\\n"));
    assert_eq!(both(|out| out.array(10)), same("*10\\r\\n"));
}

#[test]
fn what_the_versions_write_differently() {
    assert_eq!(both(|out| out.null()), apart("$-1\\r\\n", "_\\r\\n"));
    assert_eq!(
        both(|out| out.bulk_or_null(None)),
        apart("$-1\\r\\n", "_\\r\\n")
    );
    assert_eq!(both(|out| out.null_array()), apart("*-1\\r\\n", "_\\r\\n"));
    assert_eq!(both(|out| out.map(3)), apart("*6\\r\\n", "%3\\r\\n"));
    assert_eq!(both(|out| out.set(3)), apart("*3\\r\\n", "~3\\r\\n"));
    assert_eq!(both(|out| out.boolean(true)), apart(":1\\r\\n", "#t\\r\\n"));
    assert_eq!(
        both(|out| out.double(1.5)),
        apart("$3\\r\\n1.5\\r\\n", ",1.5\\r\\n")
    );
    assert_eq!(
        both(|out| out.double(f64::NEG_INFINITY)),
        apart("$4\\r\\n-inf\\r\\n", ",-inf\\r\\n")
    );
    assert_eq!(
        both(|out| out.verbatim("a\nb")),
        apart("$3\\r\\na\\nb\\r\\n", "=7\\r\\ntxt:a\\nb\\r\\n")
    );
}

#[test]
fn no_text_ends_a_line_early() {
    assert_eq!(
        both(|out| out.error("ERR no\r\n+OK\r\n")),
        same("-ERR no  +OK  \\r\\n")
    );
}
