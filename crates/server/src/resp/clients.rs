//! `CLIENT LIST` and `CLIENT KILL`: which connections there are, and the end of some.

use std::collections::BTreeSet;

use argosy_base::Instant;

use super::command::{Step, Turn, number, shown, syntax_error};
use super::front::Client;

/// Which clients are meant. What is `None` is any.
#[derive(Default)]
struct Chosen {
    numbers: Option<BTreeSet<u64>>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    /// None of them: all clients are normal ones, and the default user's.
    nobody: bool,
    /// The least age, in seconds.
    age: Option<u64>,
    /// All but this one.
    skip: Option<u64>,
}

impl Chosen {
    fn has(&self, id: u64, client: &Client, now: Instant) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: &str| {
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted == address.as_bytes())
        };
        let numbers = self.numbers.as_ref();
        !self.nobody
            && self.skip != Some(id)
            && numbers.is_none_or(|numbers| numbers.contains(&id))
            && is(&self.address, &client.address)
            && is(&self.local_address, &client.local_address)
            && self
                .age
                .is_none_or(|age| now.since(client.since).as_secs() >= age)
    }

    /// Takes one more condition, or says what is wrong with it.
    fn add(&mut self, name: &[u8], value: &[u8], own: u64) -> Result<(), String> {
        const SYNTAX: &str = "ERR syntax error";
        match name.to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = number(value).filter(|id| *id > 0);
                let id = id.ok_or("ERR client-id should be greater than 0")?;
                self.numbers.get_or_insert_default().insert(id);
            }
            b"addr" => self.address = Some(value.to_vec()),
            b"laddr" => self.local_address = Some(value.to_vec()),
            b"type" => self.nobody |= !is_normal(value)?,
            b"user" if value == b"default" => {}
            b"user" => return Err(format!("ERR No such user '{}'", shown(value))),
            b"maxage" => {
                let age = number(value).ok_or("ERR maxage is not an integer or out of range")?;
                self.age = Some(age);
            }
            b"skipme" => match value.to_ascii_lowercase().as_slice() {
                b"yes" => self.skip = Some(own),
                b"no" => self.skip = None,
                _ => return Err(SYNTAX.to_owned()),
            },
            _ => return Err(SYNTAX.to_owned()),
        }
        Ok(())
    }
}

/// Whether clients of this type are normal ones, which all are here.
fn is_normal(name: &[u8]) -> Result<bool, String> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => Err(format!("ERR Unknown client type '{}'", shown(name))),
    }
}

pub(super) fn list(turn: &mut Turn<'_>) -> Step {
    let mut chosen = Chosen::default();
    match turn.args.get(2) {
        None => {}
        Some(option) if option.eq_ignore_ascii_case(b"id") && turn.args.len() > 3 => {
            let ids: Option<BTreeSet<u64>> = turn.args.from(3).map(number).collect();
            if ids.is_none() {
                return turn.core.error("ERR Invalid client ID");
            }
            chosen.numbers = ids;
        }
        Some(option) if option.eq_ignore_ascii_case(b"type") && turn.args.len() == 4 => {
            match is_normal(turn.args.at(3)) {
                Ok(normal) => chosen.nobody = !normal,
                Err(text) => return turn.core.error(&text),
            }
        }
        Some(_) => return syntax_error(turn),
    }
    let now = turn.context.now;
    let mut lines = String::new();
    for (id, client) in turn.context.front.clients().iter() {
        if chosen.has(*id, client, now) {
            lines.push_str(&client.line(*id, now));
            lines.push('\n');
        }
    }
    turn.core.reply(|out| out.verbatim(&lines))
}

/// Ends connections, in the old form the one of an address, in the new one all that fulfil all conditions. What they
/// have sent is not carried out any more, unless it has begun.
pub(super) fn kill(turn: &mut Turn<'_>) -> Step {
    let own = turn.core.id;
    let mut chosen = Chosen::default();
    let is_old = turn.args.len() == 3;
    if is_old {
        chosen.address = Some(turn.args.at(2).to_vec());
    } else {
        chosen.skip = Some(own);
        let mut args = turn.args.from(2);
        while let Some(name) = args.next() {
            let added = match args.next() {
                Some(value) => chosen.add(name, value, own),
                None => return syntax_error(turn),
            };
            if let Err(text) = added {
                return turn.core.error(&text);
            }
        }
    }
    let front = turn.context.front;
    let mut ended = BTreeSet::new();
    front.clients().retain(|id, client| {
        let is_meant = chosen.has(*id, client, turn.context.now);
        if is_meant {
            ended.insert(*id);
        }
        // Who is ended by somebody else is gone from now on. One's own connection ends behind the reply.
        !is_meant || *id == own
    });
    let count = ended.len() as u64;
    turn.core.closing |= ended.remove(&own);
    front.operators.ends.add(&ended);
    match (is_old, count) {
        (true, 0) => turn.core.error("ERR No such client"),
        (true, _) => turn.core.reply(|out| out.simple("OK")),
        (false, count) => turn.core.reply(|out| out.count(count)),
    }
}

/// What `CLIENT HELP` tells.
pub(super) const HELP: &[&str] = &[
    "GETNAME",
    "    This connection's name.",
    "ID",
    "    This connection's number.",
    "INFO",
    "    This connection's line of LIST.",
    "KILL <ip:port>",
    "    Ends the connection that comes from there.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Ends those that fulfil all options, and counts them:",
    "    * ID <number>, ADDR <ip:port>, LADDR <ip:port>",
    "    * TYPE <type>: all are normal",
    "    * USER <name>: all are default",
    "    * MAXAGE <seconds>: older ones",
    "    * SKIPME (YES|NO): whether this connection is left out (YES)",
    "LIST [TYPE <type> | ID <number> [<number> ...]]",
    "    A line for each connection.",
    "NO-EVICT (ON|OFF)",
    "    Taken, and without effect: the connection that holds most is ended where memory is short.",
    "NO-TOUCH (ON|OFF)",
    "    Taken, and without effect: reads change nothing about a key.",
    "REPLY (ON|OFF|SKIP)",
    "    Whether replies are sent; SKIP leaves out the next one.",
    "SETINFO (LIB-NAME|LIB-VER) <text>",
    "    Which library this connection is of, for LIST.",
    "SETNAME <name>",
    "    Names this connection.",
];
