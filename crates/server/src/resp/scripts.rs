//! `EVAL`, `EVALSHA`, `SCRIPT`: the scripts of lock libraries, and no others.
//!
//! There is no interpreter. A script is recognised by the SHA-1 of its text, and what it does is done here, as a
//! transaction of one command ([`exec`](super::exec)). The table names whose each is. Any other is refused by its
//! digest: a script that is almost one of these is another one.

use argosy_engine::change::integer;
use argosy_engine::{BatchError, Change, Expiry, Only};
use argosy_wire::resp::Encoder;

use super::command::{
    Command, NO_KEYS, Step, Turn, number, shown, syntax_error, unknown_subcommand, wrong_arity,
};
use super::exec::Procedure;
use super::expiry::Unit;
use super::overlay::Overlay;
use super::sha1::{self, Digest};
use crate::meter::MeteredOutcome;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "evalsha",
        arity: -3,
        flags: "write noscript",
        keys: NO_KEYS,
        group: "scripting",
        summary: "Carries out the script of a lock library, by its digest. Others are refused.",
        usage: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        run: eval,
    },
    Command {
        name: "eval",
        arity: -3,
        flags: "write noscript",
        keys: NO_KEYS,
        group: "scripting",
        summary: "Carries out the script of a lock library. Others are refused.",
        usage: "script numkeys [key [key ...]] [arg [arg ...]]",
        run: eval,
    },
    Command {
        name: "script",
        arity: -2,
        flags: "noscript",
        keys: NO_KEYS,
        group: "scripting-admin",
        summary: "LOAD and EXISTS, of the scripts of lock libraries.",
        usage: "LOAD script | EXISTS sha1 [sha1 ...]",
        run: script,
    },
];

/// What a script does with its keys, where the first argument is a token and the second, if there is one, a span in
/// milliseconds. To hold a key is to be what it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Removes the key that the token holds. Tells 1, or 0 where it does not hold it.
    Release,
    /// The same; -1 where there is no such key.
    ReleaseOrMissing,
    /// Has the key expire after the span, if the token holds it. Tells 1 or 0.
    Expire,
    /// The same, where it expires at all: after the span and, where the third argument is 0, what was left.
    Extend,
    /// Binds all keys to the token for the span, if none is bound. Tells how many, or 0.
    AcquireAll,
    /// Binds them again, if the token holds all. Tells how many, or 0.
    ExtendAll,
    /// Removes those that the token holds. Tells how many.
    ReleaseAll,
}

impl Does {
    /// How many keys there are to be; `None`: any number.
    const fn keys(self) -> Option<usize> {
        match self {
            Self::AcquireAll | Self::ExtendAll | Self::ReleaseAll => None,
            _ => Some(1),
        }
    }

    /// The fewest arguments.
    const fn args(self) -> usize {
        match self {
            Self::Release | Self::ReleaseOrMissing | Self::ReleaseAll => 1,
            Self::Expire | Self::AcquireAll | Self::ExtendAll => 2,
            Self::Extend => 3,
        }
    }
}

/// A script that is known.
struct Known {
    sha1: &'static str,
    does: Does,
}

const fn known(sha1: &'static str, does: Does) -> Known {
    Known { sha1, does }
}

/// The scripts that are known.
const KNOWN: &[Known] = &[
    // redis-py's Lock: release, extend, reacquire.
    known("c3f8721cbb97f72bc19e972846bd7aaf91901658", Does::Release),
    known("a4e8783852e6b949f9ef3a97212805108459a890", Does::Extend),
    known("1cac51482acf5858da00f6d685d68f886cd6b6b2", Does::Expire),
    // The page of Redis on distributed locks: unlock.
    known("647c65a442733a1aa440f99908d249d13b4d6c4a", Does::Release),
    // Redlock for Python: unlock.
    known("4e92fdc63815b3a0a2dd1c1df3694de73607c88d", Does::Release),
    // Redlock for Node, version 5: acquire, extend, release.
    known("96da70f7716f27d278a5218544df37fd8b0a5e4c", Does::AcquireAll),
    known("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Does::ExtendAll),
    known("e4612211c9f8f51c257e26e056b0a654b3187242", Does::ReleaseAll),
    // The same, version 4, in two spellings.
    known("e5a322e2634ef59a516e8ea150cb085afafee684", Does::AcquireAll),
    known("ce46f80993d5dac20dd066eb301a4e37994bdbed", Does::ExtendAll),
    known("0f0f23b9048b36752b5be114f357ba083449f908", Does::ReleaseAll),
    known("1d48b4c6fea2cdadc46b3346de5c2eaf121c7bb3", Does::ExtendAll),
    known("517e7ed95f00c0c4a209c6a7afcc6ab797d30b85", Does::ReleaseAll),
    // The same, versions 2 and 3: extend, unlock.
    known("a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf", Does::Expire),
    known("cf0e94b2e9ffc7e04395cf88f7583fc309985910", Does::Release),
    // Redsync for Go: unlock and extend, now and before.
    known(
        "e950836ed1e694540c503ef9972b8de518044d3b",
        Does::ReleaseOrMissing,
    ),
    known("00583931c4e4d483f6233879c133c71ed5393f9d", Does::Release),
    known("d75bb8b5bd13532ddedd17762e772346e39b321e", Does::Expire),
    known("53692746b44cae854b8dfa32b177218bbe40baee", Does::Expire),
];

/// What the script of this digest does, if it is known.
fn find(digest: &Digest) -> Option<Does> {
    let text = sha1::text_of(digest);
    let known = KNOWN.iter().find(|known| known.sha1 == text);
    known.map(|known| known.does)
}

/// A call of a script.
#[derive(Debug)]
pub(super) struct Script {
    does: Does,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

/// What a script returns.
enum Returned {
    Number(i64),
    Error(String),
}

impl From<usize> for Returned {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Returned {
    fn from(done: bool) -> Self {
        Self::Number(done.into())
    }
}

/// The call that the arguments of `EVAL` or `EVALSHA` make.
fn script_of(turn: &mut Turn<'_>) -> Result<Script, Step> {
    let named = turn.args.at(1);
    let by_digest = turn.args.at(0).eq_ignore_ascii_case(b"evalsha");
    let digest = match by_digest {
        true => sha1::parse(named),
        false => Some(sha1::sha1(named)),
    };
    let Some(does) = digest.as_ref().and_then(find) else {
        return Err(match digest {
            Some(digest) if !by_digest => turn.core.error(&refusal(&digest)),
            _ => {
                let text = format!(
                    "NOSCRIPT No matching script for {}: the scripts of lock libraries are known, and no others \
                     (not applied)",
                    shown(named)
                );
                turn.core.error(&text)
            }
        });
    };
    let Some(count) = number(turn.args.at(2)).and_then(|count| usize::try_from(count).ok()) else {
        let text = "ERR value is not an integer or out of range";
        return Err(turn.core.error(text));
    };
    let given = turn.args.len() - 3;
    if count > given {
        let text = "ERR Number of keys can't be greater than number of args";
        return Err(turn.core.error(text));
    }
    if does.keys().is_some_and(|keys| keys != count) || given - count < does.args() {
        let text = "ERR this script takes another number of keys and arguments (not applied)";
        return Err(turn.core.error(text));
    }
    let mut rest = turn.args.from(3).map(<[u8]>::to_vec);
    Ok(Script {
        does,
        keys: rest.by_ref().take(count).collect(),
        args: rest.collect(),
    })
}

/// What is said of a script that is not known.
fn refusal(digest: &Digest) -> String {
    format!(
        "ERR the script {} is not known: this server carries out the scripts of lock libraries, and no others \
         (not applied)",
        sha1::text_of(digest)
    )
}

fn eval(turn: &mut Turn<'_>) -> Step {
    match script_of(turn) {
        Ok(script) => Step::Procedure(Procedure::Script(script)),
        Err(refused) => refused,
    }
}

fn script(turn: &mut Turn<'_>) -> Step {
    let what = turn.args.at(1).to_ascii_lowercase();
    match (what.as_slice(), turn.args.len()) {
        (b"load", 3) => {
            let digest = sha1::sha1(turn.args.at(2));
            match find(&digest) {
                Some(_) => {
                    let text = sha1::text_of(&digest);
                    turn.core.reply(|out| out.bulk(text.as_bytes()))
                }
                None => turn.core.error(&refusal(&digest)),
            }
        }
        (b"exists", 3..) => {
            let known = |name| sha1::parse(name).as_ref().and_then(find).is_some();
            let known: Vec<bool> = turn.args.from(2).map(known).collect();
            turn.core.reply(|out| {
                out.array(known.len());
                for known in known {
                    out.integer(known.into());
                }
            })
        }
        (b"load", _) => wrong_arity(turn, "script|load"),
        (b"exists", _) => syntax_error(turn),
        _ => unknown_subcommand(turn, "SCRIPT"),
    }
}

impl Script {
    /// Its keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Carries it out, and writes what it returns.
    ///
    /// # Errors
    /// What is left is more than a batch takes.
    pub(super) fn run(
        &self,
        overlay: &mut Overlay<'_>,
        out: &mut Encoder<'_>,
    ) -> Result<MeteredOutcome, BatchError> {
        Ok(match self.carry_out(overlay)? {
            Returned::Number(number) => {
                out.integer(number);
                MeteredOutcome::Ok
            }
            Returned::Error(text) => {
                out.error(&text);
                MeteredOutcome::Invalid
            }
        })
    }

    fn carry_out(&self, overlay: &mut Overlay<'_>) -> Result<Returned, BatchError> {
        let token = self.args[0].as_slice();
        let holds = |overlay: &Overlay<'_>, key: &Vec<u8>| overlay.value(key) == Some(token);
        let mut held = self.keys.iter().filter(|key| holds(overlay, key));
        match self.does {
            Does::Release | Does::ReleaseOrMissing | Does::ReleaseAll => {
                let held: Vec<&Vec<u8>> = held.collect();
                let missing = self.keys.iter().all(|key| overlay.value(key).is_none());
                for key in &held {
                    overlay.delete(key)?;
                }
                Ok(match self.does == Does::ReleaseOrMissing && missing {
                    true => Returned::Number(-1),
                    false => held.len().into(),
                })
            }
            Does::Expire | Does::Extend => match held.next() {
                Some(key) => self.expire(key, overlay),
                None => Ok(false.into()),
            },
            Does::AcquireAll => {
                let free = self.keys.iter().all(|key| overlay.value(key).is_none());
                self.bind_all(free, overlay)
            }
            Does::ExtendAll => {
                let all = held.count() == self.keys.len();
                self.bind_all(all, overlay)
            }
        }
    }

    /// Has `key`, which the token holds, expire later.
    fn expire(&self, key: &[u8], overlay: &mut Overlay<'_>) -> Result<Returned, BatchError> {
        let Some(mut span) = integer(&self.args[1]) else {
            let text = "ERR value is not an integer or out of range";
            return Ok(Returned::Error(text.to_owned()));
        };
        if self.does == Does::Extend {
            let (Some(expiry), now) = overlay.expiry(key) else {
                return Ok(false.into());
            };
            if self.args[2] == b"0" {
                let left = i64::try_from(expiry.since(now)).unwrap_or(i64::MAX);
                span = span.saturating_add(left);
            }
        }
        let span = u64::try_from(span).unwrap_or(0);
        let change = Change::Expire(Expiry::After(span), Only::Any);
        overlay.change(key, change)?;
        Ok(true.into())
    }

    /// Binds all keys to the token for the span, if they `may` be.
    fn bind_all(&self, may: bool, overlay: &mut Overlay<'_>) -> Result<Returned, BatchError> {
        let expiry = match Unit::Px.future(&self.args[1], "set") {
            Ok(expiry) => expiry,
            Err(text) => return Ok(Returned::Error(text)),
        };
        if !may {
            return Ok(0.into());
        }
        for key in &self.keys {
            overlay.put(key, &self.args[0], expiry)?;
        }
        Ok(self.keys.len().into())
    }
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
