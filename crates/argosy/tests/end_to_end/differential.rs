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
        'w' => "a|b|c|ab||\u{1}\u{80}\r\n",
        'c' => "1|2|2|0|-3|2.5|100|inf|-inf|x",
        'p' => "NX|XX|GT|LT|CH|INCR",
        'i' => "-inf|+inf|0|1|(1|2|(2|100|-3|x",
        'd' => "0|0|1|2|5",
        'y' => "-|+|[a|(a|[b|(ab|[c|x",
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

/// The same of hashes, sorted sets and sets. Keys are few, so that types meet. Scores that 7.0 shows otherwise are left
/// out.
const COMPOSITES: &str = "\
HSET k w v
HSET k w v w v
HSET k w
HMSET k w v w v
HSETNX k w v
HGET k w
HMGET k w w w
HDEL k w
HDEL k w w
HLEN k
HEXISTS k w
HSTRLEN k w
HINCRBY k w n
HINCRBYFLOAT k w f
HRANDFIELD k 0
ZADD k c w
ZADD k c w c w c w
ZADD k p c w
ZADD k p p c w c w
ZADD k p p p c w
ZADD k c
ZINCRBY k c w
ZREM k w
ZREM k w w
ZSCORE k w
ZMSCORE k w w
ZCARD k
ZCOUNT k i i
ZRANGE k n n
ZRANGE k n n WITHSCORES
ZRANGE k n n REV
ZRANGE k i i BYSCORE
ZRANGE k i i BYSCORE REV LIMIT d n WITHSCORES
ZREVRANGE k n n
ZRANGEBYSCORE k i i
ZRANGEBYSCORE k i i LIMIT d n
ZRANGEBYSCORE k i i WITHSCORES LIMIT d n
ZREVRANGEBYSCORE k i i
ZREVRANGEBYSCORE k i i LIMIT d n
ZRANK k w
ZREVRANK k w
ZPOPMIN k
ZPOPMAX k
ZPOPMIN k d
ZPOPMAX k d
ZREMRANGEBYRANK k n n
ZREMRANGEBYSCORE k i i
SADD k w
SADD k w w w
SREM k w w
SISMEMBER k w
SMISMEMBER k w w
SCARD k
SPOP k 0
DEL k
DEL k k
SET k v
SET k v GET
SET k v NX
GET k
GETSET k v
GETDEL k
MGET k k k
APPEND k v
INCR k
STRLEN k
GETRANGE k n g
SETRANGE k o v
GETBIT k o
SETBIT k o b
BITCOUNT k
LCS k k
TYPE k
EXISTS k k
EXPIRE k 1000
PERSIST k
TTL k
COPY k k
COPY k k REPLACE
RENAME k k
RENAMENX k k
GETEX k
MULTI
EXEC
EXEC
DISCARD
HGETALL k
HKEYS k
HVALS k
SMEMBERS k
UNWATCH
PING";

/// The same of names, where all scores are the same.
const LEX: &str = "\
ZADD {a}lex 0 w
ZADD {a}lex 0 w 0 w
ZREM {a}lex w
ZRANGEBYLEX {a}lex y y
ZRANGEBYLEX {a}lex y y LIMIT d n
ZREVRANGEBYLEX {a}lex y y
ZRANGE {a}lex y y BYLEX
ZRANGE {a}lex y y BYLEX REV LIMIT d n
ZLEXCOUNT {a}lex y y
ZRANGE {a}lex n n
ZRANK {a}lex w
ZREMRANGEBYLEX {a}lex y y";

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

/// Whether the reply has no order in redis-server.
fn is_without_order(command: &str) -> bool {
    ["HGETALL", "HKEYS", "HVALS", "SMEMBERS"].contains(&command)
}

/// The same reply, in an order.
fn in_order(reply: Reply) -> Reply {
    match reply {
        Reply::Array(Some(mut of)) => {
            of.sort_by_key(|reply| format!("{reply:?}"));
            Reply::Array(Some(of))
        }
        other => other,
    }
}

/// Sends so many random commands to both, and compares the answers.
fn compare(patterns: &str, commands: usize, seed: u64) {
    let playground = Playground::start(&["--servers", "1"]);
    let redis = Redis::start("differential");
    let mut both = (redis.connect(), connect(playground.servers[0].resp));
    let mut rng = Rng::new(24, seed);
    let patterns: Vec<_> = patterns.lines().collect();
    let mut differences = Vec::new();
    let mut in_multi = false;
    for _ in 0..commands {
        let words = command(&mut rng, &patterns);
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        in_multi = match words[0].as_str() {
            "MULTI" => true,
            "EXEC" | "DISCARD" => false,
            _ => in_multi,
        };
        let no_order = is_without_order(&words[0]);
        if no_order && in_multi {
            continue;
        }
        let mut theirs = call(&mut both.0, &bytes);
        let mut ours = in_its_words(call(&mut both.1, &bytes));
        if no_order {
            (theirs, ours) = (in_order(theirs), in_order(ours));
        }
        if ours != theirs {
            differences.push(format!(
                "{words:?}\n  redis-server {theirs:?}\n  here         {ours:?}"
            ));
        }
    }
    differences.truncate(40);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn random_commands_are_answered_as_by_redis_server() {
    compare(PATTERNS, COMMANDS, 0);
}

#[test]
fn so_are_those_on_hashes_sorted_sets_and_sets() {
    let patterns = format!("{COMPOSITES}\n{LEX}");
    compare(&patterns, COMMANDS, 1);
}
