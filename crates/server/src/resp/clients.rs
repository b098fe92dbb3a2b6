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
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type: all are normal.",
    "    * USER <username>",
    "      Kill connections of <username>: all are of default.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id>",
    "      Kill connections by client id.",
    "    * MAXAGE <maxage>",
    "      Kill connections older than the specified age.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> [...]]",
    "      Return clients of specified IDs only.",
    "NO-EVICT (ON|OFF)",
    "    Taken, and without effect: the connection that holds most is ended where memory is short.",
    "NO-TOUCH (ON|OFF)",
    "    Taken, and without effect: reads change nothing about a key.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
];
