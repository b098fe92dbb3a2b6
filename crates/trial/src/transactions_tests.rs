//! What a client makes of the answers to a transaction, and that it sees when they are wrong.

use super::*;

fn list(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

#[test]
fn a_list_is_numbers_or_none() {
    assert_eq!(numbers_of(&Reply::Bulk(None)), Some(Vec::new()));
    assert_eq!(numbers_of(&list("7,12,")), Some(vec![7, 12]));
    for wrong in ["", "7", "7,,", "7,x,", "-1,"] {
        assert_eq!(numbers_of(&list(wrong)), None, "{wrong}");
    }
    assert_eq!(numbers_of(&Reply::Integer(7)), None);
}

/// A client that is not connected.
fn client<'a>(own: &'a OfRegion, record: &'a Record) -> Transacting<'a> {
    Transacting {
        server: 0,
        addr: SocketAddr::from(([127, 0, 0, 1], 1)),
        region: 0,
        base: b"a",
        own,
        record,
        rng: Rng::new(1, 0),
    }
}

/// What is wrong with a transaction that read one list and appended to it, and was answered so.
fn wrong_with(answers: Vec<Reply>, watched: Option<Vec<u32>>) -> Vec<String> {
    let record = Record::of(0);
    let own = OfRegion::default();
    let client = client(&own, &record);
    let mut transaction = Transaction {
        number: 9,
        began: 1,
        fate: Fate::Applied(2),
        steps: vec![ListAccess {
            key: 0,
            read: Some(Vec::new()),
            appends: true,
        }],
    };
    let ended = Ended {
        fate: Came::Answered,
        answers,
        watched,
    };
    client.take_reads(&mut transaction, &ended);
    record.into_parts().wrong
}

#[test]
fn wrong_answers_are_seen() {
    let right = || vec![list("7,"), Reply::Integer(4)];
    assert!(wrong_with(right(), None).is_empty());
    assert!(wrong_with(right(), Some(vec![7])).is_empty());
    let watched = wrong_with(right(), Some(vec![]));
    assert!(watched[0].contains("watched"), "{watched:?}");
    for answers in [
        vec![list("7,")],
        vec![list("7"), Reply::Integer(4)],
        vec![list("7,"), Reply::Integer(4), Reply::Integer(4)],
        vec![Reply::Integer(4), list("7,")],
    ] {
        assert_eq!(wrong_with(answers.clone(), None).len(), 1, "{answers:?}");
    }
}

#[test]
fn every_list_is_read_and_appended_to() {
    let record = Record::of(0);
    let own = OfRegion::default();
    let mut client = client(&own, &record);
    let (mut read, mut appended) = ([0; LISTS], [0; LISTS]);
    for _ in 0..200 {
        let steps = client.steps();
        assert!(steps[0].read.is_some());
        let mut keys: Vec<_> = steps.iter().map(|step| step.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), steps.len(), "each list once");
        for step in steps {
            read[step.key] += usize::from(step.read.is_some());
            appended[step.key] += usize::from(step.appends);
        }
    }
    assert!(read.into_iter().chain(appended).all(|times| times > 30));
}
