//! The client against a server that answers from a script.

use std::io::{Read, Write as _};
use std::net::TcpListener;

use super::*;

/// A client of a server that answers the n-th thing that it reads by the n-th of `answers`, and
/// then closes; with what it has read.
fn scripted(answers: &'static [&'static str]) -> (RespClient, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut input = vec![0; 1 << 16];
            for answer in answers {
                let read = peer.read(&mut input).unwrap();
                let _ = tell.send(String::from_utf8_lossy(&input[..read]).into_owned());
                peer.write_all(answer.as_bytes()).unwrap();
            }
        })
        .unwrap();
    (RespClient::connect(addr).unwrap(), told)
}

#[test]
fn errors_say_what_became_of_a_write() {
    let (mut client, _) = scripted(&[
        "-TRYAGAIN no room; retry (not applied)\r\n",
        "-UNCERTAIN lost (outcome unknown: it may have been applied)\r\n",
        "-ERR too long (not applied)\r\n",
        "-MISCONF device 0 failed (applied)\r\n",
    ]);
    let mut put = || client.put(b"k", b"v").unwrap_err();
    let error = put();
    assert!(matches!(&error, ClientError::Unavailable { what, .. } if what == "no room; retry"));
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(put().outcome(), Outcome::Unknown);
    assert!(matches!(put(), ClientError::Invalid { what } if what == "too long"));
    let error = put();
    assert!(matches!(error, ClientError::Storage { .. }));
    assert_eq!(error.outcome(), Outcome::Applied);
}

#[test]
fn a_lost_connection_leaves_a_write_unknown_and_a_read_harmless() {
    let (mut client, _) = scripted(&[""]);
    let error = client.put(b"k", b"v").unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    let (mut client, _) = scripted(&[""]);
    assert_eq!(client.get(b"k").unwrap_err().outcome(), Outcome::NotApplied);
}

#[test]
fn pages_follow_each_other_and_shrink_where_they_do_not_fit() {
    let (mut client, told) = scripted(&[
        "-ERR the reply has over 9 bytes (max_reply_bytes): ask for less\r\n",
        "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$0\r\n\r\n",
        "*2\r\n$1\r\nc\r\n$1\r\n3\r\n",
    ]);
    let page = client.page(&Span::all(), 4).unwrap();
    assert_eq!(page.pairs.len(), 2);
    let page = client.page(&page.rest.unwrap(), 4).unwrap();
    assert_eq!(page.pairs, [(b"c".to_vec(), b"3".to_vec())]);
    assert_eq!(page.rest, None);
    let asked: Vec<_> = told.iter().collect();
    assert!(asked[0].ends_with("LIMIT\r\n$1\r\n4\r\n"), "{asked:?}");
    assert!(asked[1].ends_with("LIMIT\r\n$1\r\n2\r\n"), "{asked:?}");
    assert!(asked[2].contains("$2\r\nb\0\r\n"), "{asked:?}");
}

#[test]
fn a_batch_goes_in_as_few_commands_as_it_can() {
    let (mut client, told) = scripted(&["+OK\r\n", ":1\r\n", "-TRYAGAIN full (not applied)\r\n"]);
    let v = Some(&b"v"[..]);
    let writes = [(&b"a"[..], v), (b"b", v), (b"c", None), (b"d", v)];
    let error = client.write_many(&writes).unwrap_err();
    assert_eq!(
        error.outcome(),
        Outcome::Unknown,
        "two commands were applied"
    );
    let asked: Vec<_> = told.iter().collect();
    assert!(asked[0].starts_with("*5\r\n$4\r\nMSET\r\n"));
    assert!(asked[1].starts_with("*2\r\n$3\r\nDEL\r\n"));
    assert_eq!(asked.len(), 3);
}

#[test]
fn bounds_that_are_signs_mean_themselves() {
    let range = KeyRange::new("-", Some(b"+a".to_vec()));
    let (from, to) = bounds(&range);
    assert_eq!(to, b"+a");
    let longest_below = [&b","[..], &[0xff; KEY_BYTES_MAX - 1]].concat();
    assert!(longest_below < from && from < b"-".to_vec());
    assert!(from.len() <= KEY_BYTES_MAX + 1);
}

#[test]
fn reads_are_from_a_snapshot_once_that_is_said() {
    let (mut client, told) = scripted(&[
        "$4\r\ns-17\r\n",
        "*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        "*1\r\n$1\r\na\r\n",
        "$1\r\n1\r\n",
        ":1\r\n",
        ":0\r\n",
        "$1\r\n2\r\n",
    ]);
    let name = client
        .open_snapshot(std::time::Duration::from_secs(90))
        .unwrap();
    client.read_from(Some(name.clone()));
    assert_eq!(client.page(&Span::all(), 4).unwrap().pairs.len(), 1);
    assert_eq!(client.first_key(&Span::all()).unwrap(), Some(b"a".to_vec()));
    assert_eq!(client.get(b"a").unwrap(), Some(b"1".to_vec()));
    assert!(
        client
            .renew_snapshot(&name, std::time::Duration::from_secs(60))
            .unwrap()
    );
    assert!(!client.close_snapshot(&name).unwrap());
    client.read_from(None);
    assert_eq!(client.get(b"a").unwrap(), Some(b"2".to_vec()));
    let asked: Vec<_> = told.iter().collect();
    assert!(
        asked[0].contains("OPEN\r\n$3\r\nTTL\r\n$2\r\n90\r\n"),
        "{asked:?}"
    );
    for (place, name) in [(1, "KV.RANGE"), (2, "KV.RANGE"), (3, "KV.GET")] {
        assert!(asked[place].contains(name), "{asked:?}");
        assert!(
            asked[place].ends_with("$8\r\nSNAPSHOT\r\n$4\r\ns-17\r\n"),
            "{asked:?}"
        );
    }
    assert!(
        asked[4].contains("RENEW\r\n$4\r\ns-17\r\n$3\r\nTTL\r\n$2\r\n60\r\n"),
        "{asked:?}"
    );
    assert!(asked[5].contains("CLOSE\r\n$4\r\ns-17\r\n"), "{asked:?}");
    assert!(asked[6].starts_with("*2\r\n$3\r\nGET\r\n"), "{asked:?}");
}
