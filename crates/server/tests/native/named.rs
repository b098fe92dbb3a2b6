//! Writes that are sent again under their name, where nobody knows whether they were applied.

use super::*;

fn unknown() -> Failure {
    Failure::Unavailable {
        what: "its primary was lost".to_owned(),
        outcome: Outcome::Unknown,
    }
}

#[test]
fn a_write_in_doubt_is_sent_again() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    servers[0].fake.fail_next(unknown());
    client.put(b"argo", b"sails").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
    servers[0].fake.fail_next(unknown());
    assert!(client.delete(b"argo").unwrap());
    servers[0].fake.fail_next(unknown());
    let added = client.change(b"argo", ValueChange::Add(2)).unwrap();
    assert_eq!(added, Told::Number(2));
    // A condition that holds for neither attempt may have held for the first.
    servers[0].fake.fail_next(unknown());
    let error = client
        .put_only(PutOnly::IfAbsent, b"argo", b"x")
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert!(!client.put_only(PutOnly::IfAbsent, b"argo", b"x").unwrap());
    // Without names it is for the program to decide.
    let options = Options {
        random: None,
        ..Options::default()
    };
    let client = Client::connect_with(&servers[0].socket.to_string_lossy(), options).unwrap();
    servers[0].fake.fail_next(unknown());
    let error = client.put(b"argo", b"x").unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
}

/// The server carries writes out and stops before it answers. What is told by the next one.
#[test]
fn a_write_whose_answer_was_lost_is_not_done_again() {
    let dir = temp();
    let fake = Arc::new(Fake::new());
    let mut server = start(dir.path(), 0, &map([0, 0]), &fake, 1);
    let client = client_of(&server);
    client.put(b"ships", b"0").unwrap();
    fake.set_late(true);
    std::thread::scope(|scope| {
        let spawn = |write: fn(&Client) -> Result<(), ClientError>| {
            let client = &client;
            let thread = std::thread::Builder::new();
            thread.spawn_scoped(scope, move || write(client)).unwrap()
        };
        let put = spawn(|client| client.put(b"argo", b"sails"));
        let add = spawn(|client| client.change(b"ships", ValueChange::Add(1)).map(drop));
        until(|| fake.held() == 2);
        drop(server.listener.take());
        fake.set_late(false);
        server = start(dir.path(), 0, &map([0, 0]), &fake, 1);
        put.join().unwrap().unwrap();
        let error = add.join().unwrap().unwrap_err();
        assert_eq!(error.outcome(), Outcome::Applied, "{error}");
    });
    assert_eq!(client.get(b"ships").unwrap().unwrap(), b"1");
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
    while fake.release(0) {}
    drop(server);
}

#[test]
fn who_was_forgotten_takes_another_id() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let forgotten = || Failure::Forgotten("the request is forgotten".to_owned());
    servers[0].fake.fail_next(forgotten());
    client.put(b"argo", b"sails").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
    // Of one that was sent before nobody knows.
    servers[0].fake.fail_next(unknown());
    servers[0].fake.fail_next(forgotten());
    let error = client.put(b"argo", b"rows").unwrap_err();
    assert!(matches!(error, ClientError::Forgotten { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
}
