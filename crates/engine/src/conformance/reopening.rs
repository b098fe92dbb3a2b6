//! What survives the end of an engine: everything, whether it ended in good order or was killed.

use argosy_base::{KeyRange, Lsn};

use super::{Host, batch, collect, delete, get, key_of, put, settle, value_of, write};
use crate::{Expiry, Op, Store, WriteOptions};

/// How a case ends its engine.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Kill,
}

/// Runs the cases of this module.
pub(super) fn run<H: Host>(make: &mut impl FnMut() -> H) {
    for end in [End::Close, End::Kill] {
        nothing(&mut make(), end);
        unsettled(&mut make(), end);
        settled(&mut make(), end);
        often(&mut make(), end);
    }
}

fn finish<H: Host>(host: &mut H, engine: H::Engine, end: End) {
    match end {
        End::Close => host.close(engine),
        End::Kill => host.kill(engine),
    }
}

fn nothing<H: Host>(host: &mut H, end: End) {
    for _ in 0..3 {
        let engine = host.open();
        assert_eq!(engine.last_lsn(), Lsn(0));
        assert!(collect(engine.snapshot().as_ref(), &KeyRange::all()).is_empty());
        finish(host, engine, end);
    }
}

/// What was written a moment before the end is there, batches and long values whole.
fn unsettled<H: Host>(host: &mut H, end: End) {
    let engine = host.open();
    let long = value_of(3, 50_000);
    put(host, &engine, b"a", b"1");
    put(host, &engine, b"gone", b"1");
    delete(host, &engine, b"gone");
    let group = batch(&[
        Op::Put {
            key: b"b",
            value: &long,
            expiry: Expiry::Never,
        },
        Op::Put {
            key: b"c",
            value: b"3",
            expiry: Expiry::Never,
        },
    ]);
    let last = write(host, &engine, &group, WriteOptions::default())
        .wait
        .lsn();
    finish(host, engine, end);

    let engine = host.open();
    assert_eq!(
        get(&engine, b"a").as_deref(),
        Some(&b"1"[..]),
        "after {end:?}"
    );
    assert_eq!(get(&engine, b"gone"), None);
    assert!(get(&engine, b"b") == Some(long), "after {end:?}");
    assert_eq!(get(&engine, b"c").as_deref(), Some(&b"3"[..]));
    assert!(engine.last_lsn() >= last, "LSNs go on where they ended");
    let next = put(host, &engine, b"d", b"4");
    assert!(next.wait.lsn() > last, "an LSN is never used twice");
}

/// What has gone down to the levels is there.
fn settled<H: Host>(host: &mut H, end: End) {
    let engine = host.open();
    for number in 0..500u64 {
        let key = key_of(number * 7919 % 500);
        put(host, &engine, &key, &value_of(number * 7919 % 500, 80));
    }
    settle(host, &engine);
    put(host, &engine, &[0], b"last");
    finish(host, engine, end);

    let engine = host.open();
    for number in 0..500u64 {
        assert!(get(&engine, &key_of(number)) == Some(value_of(number, 80)));
    }
    let all = collect(engine.snapshot().as_ref(), &KeyRange::all());
    assert_eq!(all.len(), 501, "after {end:?}");
}

/// Many short lives, some of which do nothing.
fn often<H: Host>(host: &mut H, end: End) {
    for life in 0..12u64 {
        let engine = host.open();
        for before in 0..life {
            let expected = (before % 3 != 2).then(|| value_of(before, 700));
            let key = key_of(before);
            assert!(
                get(&engine, &key) == expected,
                "life {life}, {before}, {end:?}"
            );
        }
        if life % 3 != 2 {
            put(host, &engine, &key_of(life), &value_of(life, 700));
        }
        if life % 4 == 1 {
            settle(host, &engine);
        }
        finish(host, engine, end);
    }
}
