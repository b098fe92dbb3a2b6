//! Random commands, sent to a server of this project and to redis-server: both answer the same, but for the words
//! *(not applied)*.
//!
//! The test leaves out what is known to differ: how a value is kept (`OBJECT`), replies without an order (`KEYS`,
//! `SCAN`), estimates (`DBSIZE`), fractions of a second, `WATCH` of a key that is absent and is removed
//! meanwhile, and `GETEX` with a wrong time of a key that is absent.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use argosy_bench::resp::{Connection, Reply};

use crate::support::{Playground, Rng, call, connect, empty_dir, pause};

/// Commands of each connection.
const COMMANDS: usize = 20_000;

/// A redis-server that ends with the test.
pub(crate) struct Redis {
    process: Child,
    pub(crate) addr: SocketAddr,
}

impl Redis {
    /// One whose directory has this name.
    pub(crate) fn start(name: &str) -> Self {
        let dir = empty_dir(name);
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = free.local_addr().unwrap();
        drop(free);
        let process = Command::new("redis-server")
            .args([
                "--save",
                "",
                "--bind",
                "127.0.0.1",
                "--port",
                &addr.port().to_string(),
            ])
            .current_dir(&dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self { process, addr }
    }

    pub(crate) fn connect(&self) -> Connection {
        while std::net::TcpStream::connect(self.addr).is_err() {
            pause();
        }
        connect(self.addr)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One of these.
fn one_of<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    let at = rng.below(of.len() as u64);
    of[usize::try_from(at).unwrap()]
}

/// What a letter stands for: one of these, bars between.
const fn stands_for(letter: char) -> &'static str {
    match letter {
        'k' => "{a}1|{a}2|{a}3|{a}4|{a}5",
        'v' => "|0|7|-3|3.25|text|another text|\u{1}\u{80}\r\n",
        'n' => "0|1|-1|2|-2|5|12|-9|100|x||1.5",
        // An end that lies before the value is its first byte in Redis 7.0, and no byte in 7.4.
        'g' => "0|1|-1|2|5|12|100|x||1.5",
        // Redis 7.0 looks at ranges of bits only where there is a value, 7.4 before that.
        'm' => "0|1|-1|2|-2|5|12|-9|100",
        // Numbers above 2^53 are added up with 64 bits here, and with 80 there.
        'l' => "9223372036854775807|-9223372036854775808|9223372036854775806|-1|1|2",
        'f' => "0.5|-2|1e3|x|10",
        'o' => "0|3|17|40|-1|x",
        'b' => "0|1",
        'u' => "BYTE|BIT|bit",
        't' => "1000|99999|0|-5|x",
        's' => "NX|XX|GET|KEEPTTL|SIDEWAYS",
        // Whether GT holds of the same time again depends on the millisecond.
        'e' => "NX|XX|LT|SIDEWAYS",
        _ => "",
    }
}

/// Commands; words of one small letter are any of what that stands for. One line is as likely as another.
const PATTERNS: &str = "\
SET k v
SET k v s
SET k v s s
SET k v EX t
SET k v s EX t
GET k
GET k
MGET k k k
MSET k v k v
MSETNX k v k v
SETNX k v
GETSET k v
GETDEL k
STRLEN k
GETRANGE k n g
SUBSTR k n g
INCR k
DECR k
INCRBY k n
DECRBY k n
INCRBYFLOAT k f
SET {a}large l
INCR {a}large
DECRBY {a}large l
INCRBY {a}large l
APPEND k v
SETRANGE k o v
EXPIRE k t
EXPIRE k t e
TTL k
PERSIST k
SETEX k t v
GETEX k EX 1000
GETEX k PERSIST
DEL k k
UNLINK k
EXISTS k k
TOUCH k k
TYPE k
COPY k k
COPY k k REPLACE
RENAME k k
RENAMENX k k
LCS k k
LCS k k LEN
LCS k k IDX
LCS k k IDX WITHMATCHLEN
LCS k k IDX MINMATCHLEN n
GETBIT k o
SETBIT k o b
SETBIT k o n
BITCOUNT k
BITCOUNT k m m
BITCOUNT k m m u
BITPOS k b
BITPOS k n
BITPOS k b m
BITPOS k b m m
BITPOS k b m m u
MULTI
EXEC
EXEC
EXEC
DISCARD
WATCH {a}large
UNWATCH
GET
SET k
INCR k k
ECHO v
PING
PING v
NOSUCH k";

fn command(rng: &mut Rng, patterns: &[&str]) -> Vec<String> {
    let words = one_of(rng, patterns).split(' ');
    let words = words.map(|word| match word.as_bytes() {
        [letter @ b'a'..=b'z'] => {
            let of: Vec<_> = stands_for(char::from(*letter)).split('|').collect();
            one_of(rng, &of).to_owned()
        }
        _ => word.to_owned(),
    });
    words.collect()
}

/// A reply of this project in the words of redis-server: without *(not applied)*.
fn in_its_words(reply: Reply) -> Reply {
    match reply {
        Reply::Error(text) => {
            let words = text.strip_suffix(" (not applied)");
            Reply::Error(words.unwrap_or(&text).to_owned())
        }
        Reply::Array(Some(of)) => Reply::Array(Some(of.into_iter().map(in_its_words).collect())),
        other => other,
    }
}

#[test]
fn random_commands_are_answered_as_by_redis_server() {
    let playground = Playground::start(&["--servers", "1"]);
    let redis = Redis::start("differential");
    let mut both = (redis.connect(), connect(playground.servers[0].resp));
    let mut rng = Rng::new(24, 0);
    let patterns: Vec<_> = PATTERNS.lines().collect();
    let mut differences = Vec::new();
    for _ in 0..COMMANDS {
        let words = command(&mut rng, &patterns);
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let theirs = call(&mut both.0, &bytes);
        let ours = in_its_words(call(&mut both.1, &bytes));
        if ours != theirs {
            differences.push(format!(
                "{words:?}\n  redis-server {theirs:?}\n  here         {ours:?}"
            ));
        }
    }
    differences.truncate(40);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
