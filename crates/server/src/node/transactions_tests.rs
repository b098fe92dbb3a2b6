//! Transactions of Redis clients against each other, by two servers, stepped by the test: every call of every client is
//! a step, so others come between any two of a transaction.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::Instant;
use argosy_coordinator::Replication;
use argosy_engine::{Reach, WriteBatch};
use argosy_fabric::sim::SimSettings;
use argosy_wire::api::Scratch;

use crate::node::copies_tests::{Pair, settings};
use crate::node::readers_tests::Answers;
use crate::node::{Mutants, Node, NodeSettings};
use crate::resp::{CallToken, Context, FrontEnd, Limits, Session, Settings};
use crate::service::{Begun, ReplySink, ReplyTo, Request, Service};

/// A Redis client of a server.
struct Client {
    node: Arc<Node>,
    front: FrontEnd,
    session: Session,
    scratch: Scratch,
    answers: Arc<Answers>,
    doing: Doing,
    /// Counts that were applied.
    counted: i64,
}

/// What a client is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It moves one from an account to another.
    Moving,
    /// It looks at all accounts.
    Auditing,
    /// It has asked for the count, which it watches.
    Reading,
    /// It writes the next count.
    Counting,
}

const ACCOUNTS: [&str; 3] = ["acc:1", "acc:2", "acc:3"];
const EACH: i64 = 100;

impl Client {
    fn of(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            front: FrontEnd::new(Settings::default(), Instant::default()),
            session: Session::new(1, Limits::default()),
            scratch: Scratch::default(),
            answers: Arc::default(),
            doing: Doing::Nothing,
            counted: 0,
        }
    }

    /// Sends `lines`.
    fn send(&mut self, doing: Doing, lines: &str) {
        self.doing = doing;
        let bytes = lines.replace('\n', "\r\n") + "\r\n";
        self.session.receive(bytes.as_bytes());
    }

    /// Takes what has come, and makes one call, if there is one. Returns whether there was.
    fn turn(&mut self) -> bool {
        let late = std::mem::take(&mut *self.answers.0.lock());
        for (token, response) in late {
            let token = CallToken::from_raw(token);
            self.session.answer(&self.front, token, response);
        }
        let context = Context {
            front: &self.front,
            service: &*self.node,
            now: Instant::default(),
            wall: Duration::ZERO,
        };
        let Some(call) = self.session.next_call(&context, &mut self.scratch) else {
            return false;
        };
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.answers);
        let (token, reply) = (call.token, ReplyTo::new(&sink, call.token.get()));
        let begun = self.node.call(call.request, Reach::Device, reply);
        self.node.flush();
        if let Begun::Answered(response) = begun {
            self.session.answer(&self.front, token, response);
        }
        true
    }

    /// The lines that it has been answered, once it waits for nothing.
    fn answered(&mut self) -> Option<Vec<String>> {
        let waits = self.session.has_request() || !self.session.is_idle();
        let out = String::from_utf8_lossy(self.session.output()).into_owned();
        if waits || out.is_empty() || !self.answers.0.lock().is_empty() {
            return None;
        }
        self.session.wrote(out.len());
        Some(out.lines().map(ToOwned::to_owned).collect())
    }

    /// What it is answered to `lines`, with nobody else at it.
    fn exchange(&mut self, pair: &mut Pair, lines: &str) -> Vec<String> {
        self.send(Doing::Nothing, lines);
        for _ in 0..20_000 {
            while self.turn() {}
            if let Some(lines) = self.answered() {
                return lines;
            }
            pair.run(1);
        }
        panic!("{lines}: no answer")
    }

    /// Takes the answer to what it was at. Returns whether that cannot be.
    fn judge(&mut self, lines: &[String]) -> bool {
        let mut numbers = lines.iter().filter_map(|line| line.parse::<i64>().ok());
        let last = lines.last().map_or("", String::as_str);
        assert!(
            !lines.iter().any(|line| line.starts_with("-UNCERTAIN")),
            "{lines:?}"
        );
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing | Doing::Moving => false,
            Doing::Auditing => {
                let (count, sum) = numbers.fold((0, 0), |(count, sum), it| (count + 1, sum + it));
                assert!(count == 3 || last.starts_with("-TRYAGAIN"), "{lines:?}");
                count == 3 && sum != 3 * EACH
            }
            Doing::Reading => {
                let count = numbers.next_back().expect("it is a number");
                let next = count + 1;
                self.send(Doing::Counting, &format!("MULTI\nSET count {next}\nEXEC"));
                false
            }
            Doing::Counting => {
                let outcome = lines.get(2).map(String::as_str);
                assert!(
                    matches!(outcome, Some("*1" | "*-1")) || last.starts_with("-TRYAGAIN"),
                    "{lines:?}"
                );
                self.counted += i64::from(outcome == Some("*1"));
                false
            }
        }
    }

    /// Begins something.
    fn begin(&mut self, random: usize) {
        let [from, to] = [0, 1].map(|at| ACCOUNTS[(random / 7 + at) % 3]);
        let all = ACCOUNTS.join(" ");
        match random % 4 {
            0 => self.send(Doing::Auditing, &format!("MULTI\nMGET {all}\nEXEC")),
            1 => self.send(Doing::Reading, "WATCH count\nGET count"),
            _ => self.send(
                Doing::Moving,
                &format!("MULTI\nDECR {from}\nINCR {to}\nEXEC"),
            ),
        }
    }
}

fn open(mutants: Mutants) -> Pair {
    let settings = NodeSettings {
        deadline: Duration::from_secs(60),
        ..settings(mutants)
    };
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    pair
}

/// Six clients move money, count it, and count on something that they watch. Returns how often what they saw in the end
/// and on the way cannot be, if transactions are carried out one behind the other.
fn violations(mutants: Mutants) -> usize {
    let mut pair = open(mutants);
    let mut clients: Vec<Client> = (0..6).map(|at| Client::of(&pair.nodes[at % 2])).collect();
    let accounts = ACCOUNTS.map(|key| format!("{key} {EACH}")).join(" ");
    let set = clients[0].exchange(&mut pair, &format!("MSET {accounts} count 0"));
    assert_eq!(set, ["+OK"]);
    let (mut seed, mut violations) = (1_u64, 0);
    let (mut ended, mut tries) = (0, 0);
    while ended < 600 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = usize::try_from(seed >> 40).expect("24 bits");
        let client = &mut clients[random % 6];
        if let Some(lines) = client.answered() {
            ended += 1;
            violations += usize::from(client.judge(&lines));
        } else if client.doing == Doing::Nothing {
            client.begin(random / 6);
        }
        client.turn();
        pair.step_fabric();
        if random.is_multiple_of(16) {
            pair.run(1);
        }
        tries += 1;
        assert!(tries < 400_000, "they come to an end");
    }
    for client in &mut clients {
        while client.doing != Doing::Nothing {
            while client.turn() {}
            pair.run(1);
            if let Some(lines) = client.answered() {
                violations += usize::from(client.judge(&lines));
            }
        }
    }
    let all = ACCOUNTS.join(" ");
    let lines = clients[1].exchange(&mut pair, &format!("MGET {all} count"));
    let numbers = lines.iter().filter_map(|line| line.parse::<i64>().ok());
    let numbers: Vec<i64> = numbers.collect();
    let counted: i64 = clients.iter().map(|client| client.counted).sum();
    assert!(counted > 20, "{counted} counts are few");
    violations += usize::from(numbers[..3].iter().sum::<i64>() != 3 * EACH);
    violations + usize::from(numbers[3] != counted)
}

#[test]
fn transactions_are_carried_out_as_if_one_behind_the_other() {
    assert_eq!(violations(Mutants::default()), 0);
}

/// Without the look at what was read, that is found.
#[test]
fn transactions_that_are_not_validated_overwrite_each_other() {
    let mutants = Mutants {
        skip_validation: true,
        ..Mutants::default()
    };
    assert!(violations(mutants) > 0);
}

#[test]
fn regions_are_named_where_a_transaction_has_several() {
    let mut pair = open(Mutants::default());
    for server in 0..2 {
        let mut client = Client::of(&pair.nodes[server]);
        let lines = client.exchange(&mut pair, "MULTI\nSET a 1\nSET z 1\nEXEC\nEXISTS a z");
        assert_eq!(lines.last().map(String::as_str), Some(":0"));
        let refused = &lines[3];
        assert!(
            refused.contains("EXECABORT") && refused.contains("region 1, region 2"),
            "{refused}"
        );
        assert!(refused.contains("transaction=False") && refused.ends_with("(not applied)"));
    }
}

/// A key that was not there when it was watched, and is bulk-loaded.
#[test]
fn a_bulk_load_is_a_change_of_what_is_watched() {
    let mut pair = open(Mutants::default());
    for server in 0..2 {
        let key = format!("loaded:{server}");
        let mut client = Client::of(&pair.nodes[server]);
        let watching = client.exchange(&mut pair, &format!("WATCH {key}"));
        assert_eq!(watching, ["+OK"]);
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), b"1").expect("it is short");
        let batch = &batch;
        pair.begin(Request::Ingest { batch });
        pair.run(200);
        assert_eq!(pair.acknowledged(), (1, 1));
        let lines = client.exchange(&mut pair, &format!("MULTI\nSET {key} 2\nEXEC\nGET {key}"));
        assert_eq!(lines[2..], ["*-1", "$1", "1"]);
    }
}
