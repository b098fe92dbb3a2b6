//! What the duplicate table remembers, and what it says of the rest.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use argosy_base::codec::Reader;

use super::*;

const fn request(client: u64, seq: u64) -> RequestName {
    RequestName {
        client: ClientId(client),
        seq,
    }
}

fn read(bytes: &[u8]) -> Result<Duplicates, Malformed> {
    let mut from = Reader::new("table", bytes);
    let table = Duplicates::read(&mut from)?;
    from.finish()?;
    Ok(table)
}

#[test]
fn a_request_is_new_once() {
    let mut table = Duplicates::default();
    assert_eq!(table.look(request(7, 1)), Known::New);
    table.note(request(7, 1), Lsn(10));
    assert_eq!(table.look(request(7, 1)), Known::Applied(Lsn(10)));
    assert_eq!(table.look(request(7, 2)), Known::New);
    assert_eq!(table.look(request(8, 1)), Known::New);
}

#[test]
fn nobody_is_forgotten_from_the_beginning() {
    let table = Duplicates::default();
    assert_eq!(table.look(request(0, 1)), Known::Forgotten);
    assert_eq!(table.look(request(1, 0)), Known::Forgotten);
}

#[test]
fn a_number_that_went_is_unknown() {
    let mut table = Duplicates::default();
    let last = REQUESTS_MAX as u64 + 2;
    // Not in their order: 2 comes last, and goes at once.
    for seq in (3..=last).chain([1, 2]) {
        table.note(request(7, seq), Lsn(seq));
    }
    assert_eq!(table.look(request(7, 1)), Known::Forgotten);
    assert_eq!(table.look(request(7, 2)), Known::Forgotten);
    assert_eq!(table.look(request(7, 3)), Known::Applied(Lsn(3)));
    assert_eq!(table.look(request(7, last + 1)), Known::New);
}

#[test]
fn a_client_that_went_is_unknown_for_ever() {
    let mut table = Duplicates::default();
    let most = CLIENTS_MAX as u64;
    for id in 1..=most {
        table.note(request(10 * id, 1), Lsn(id));
    }
    // The first one is used again, so the second one is the oldest.
    table.note(request(10, 2), Lsn(most + 1));
    table.note(request(10 * most + 10, 1), Lsn(most + 2));
    assert_eq!(table.look(request(20, 1)), Known::Forgotten);
    assert_eq!(table.look(request(20, 99)), Known::Forgotten);
    assert_eq!(
        table.look(request(15, 1)),
        Known::Forgotten,
        "taken for one that went"
    );
    assert_eq!(
        table.look(request(10, 1)),
        Known::Applied(Lsn(1)),
        "a lower id that is there"
    );
    assert_eq!(
        table.look(request(25, 1)),
        Known::New,
        "a higher one that was never there"
    );
    assert_eq!(table.clients.len(), CLIENTS_MAX);
}

/// No request of a long history is ever new again, whatever the order.
#[test]
fn nothing_is_new_twice() {
    let mut table = Duplicates::default();
    let mut history: Vec<RequestName> = Vec::new();
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for step in 1..=20_000 {
        let request = request(1 + random(400), 1 + random(60) + step / 400);
        if table.look(request) == Known::New {
            assert!(!history.contains(&request), "{request} at {step}");
            table.note(request, Lsn(step));
            history.push(request);
        }
    }
    assert!(history.len() > 1000, "{} were applied", history.len());
    assert!(table.forgotten > ClientId(0));
    let mut bytes = Vec::new();
    table.encode(&mut bytes);
    assert_eq!(read(&bytes), Ok(table));
}

#[test]
fn a_full_table_is_as_small_as_promised() {
    let mut table = Duplicates::default();
    let clients = CLIENTS_MAX as u64 + 1;
    for seq in 1..=REQUESTS_MAX as u64 + 1 {
        for id in 1..=clients {
            let lsn = Lsn(1_000_000_000 + seq * clients + id);
            let client = ClientId::taken_at(argosy_base::Moment(1_700_000_000_000 + id), id);
            table.note(RequestName { client, seq }, lsn);
        }
    }
    let mut bytes = Vec::new();
    table.encode(&mut bytes);
    assert!(bytes.len() <= 20 << 10, "{} bytes", bytes.len());
    let memory = table.memory_bytes();
    assert!(memory <= 72 << 10, "{memory} bytes of memory");
}

#[test]
fn what_is_no_table_is_refused() {
    let mut table = Duplicates::default();
    table.note(request(7, 3), Lsn(10));
    table.note(request(9, 4), Lsn(12));
    let mut bytes = Vec::new();
    table.encode(&mut bytes);
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end} bytes");
    }
    let mut other = bytes.clone();
    other[0] = 2;
    assert!(read(&other).is_err(), "another format");
    // The first client's id is not below the second one's.
    let mut other = bytes;
    other[10] = 9;
    assert!(read(&other).is_err(), "ids that do not rise");
}
