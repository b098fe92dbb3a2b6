//! Commands on the connection itself: `PING`, `HELLO`, `CLIENT` and the like.

use argosy_wire::resp::{Encoder, Protocol};

use super::clients;
use super::command::{
    Command, NO_KEYS, Step, Turn, number, shown, syntax_error, unknown_subcommand, wrong_arity,
};
use super::docs::help;
use super::front::{Client, REDIS_VERSION};
use super::session::ReplyMode;

/// Longest name that a client may give itself or its library, in bytes.
const NAME_BYTES_MAX: usize = 256;

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "ping",
        arity: -1,
        flags: "fast",
        keys: NO_KEYS,
        group: "connection",
        summary: "Returns PONG, or the message.",
        usage: "[message]",
        run: ping,
    },
    Command {
        name: "echo",
        arity: 2,
        flags: "fast",
        keys: NO_KEYS,
        group: "connection",
        summary: "Returns the message.",
        usage: "message",
        run: echo,
    },
    Command {
        name: "hello",
        arity: -1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: NO_KEYS,
        group: "connection",
        summary: "Chooses the version of the protocol and tells of the server.",
        usage: "[protover [AUTH username password] [SETNAME name]]",
        run: hello,
    },
    Command {
        name: "auth",
        arity: -2,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: NO_KEYS,
        group: "connection",
        summary: "Refused: no password is set.",
        usage: "[username] password",
        run: auth,
    },
    Command {
        name: "select",
        arity: 2,
        flags: "loading stale fast",
        keys: NO_KEYS,
        group: "connection",
        summary: "Selects database 0, the only one.",
        usage: "index",
        run: select,
    },
    Command {
        name: "client",
        arity: -2,
        flags: "noscript loading stale",
        keys: NO_KEYS,
        group: "connection",
        summary: "SETNAME, GETNAME, SETINFO, ID, INFO, LIST, KILL, REPLY, NO-EVICT, NO-TOUCH, HELP.",
        usage: "subcommand [argument ...]",
        run: client,
    },
    Command {
        name: "reset",
        arity: 1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: NO_KEYS,
        group: "connection",
        summary: "Makes the connection as it was when it began.",
        usage: "",
        run: reset,
    },
    Command {
        name: "quit",
        arity: -1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: NO_KEYS,
        group: "connection",
        summary: "Closes the connection.",
        usage: "",
        run: quit,
    },
    Command {
        name: "readonly",
        arity: 1,
        flags: "loading stale fast",
        keys: NO_KEYS,
        group: "connection",
        summary: "Does nothing: every server answers for every key.",
        usage: "",
        run: ok,
    },
    Command {
        name: "readwrite",
        arity: 1,
        flags: "loading stale fast",
        keys: NO_KEYS,
        group: "connection",
        summary: "Does nothing: every server answers for every key.",
        usage: "",
        run: ok,
    },
];

fn ok(turn: &mut Turn<'_>) -> Step {
    turn.core.reply(|out| out.simple("OK"))
}

fn ping(turn: &mut Turn<'_>) -> Step {
    match turn.args.len() {
        1 => turn.core.reply(|out| out.simple("PONG")),
        2 => echo(turn),
        _ => wrong_arity(turn, "ping"),
    }
}

fn echo(turn: &mut Turn<'_>) -> Step {
    let message = turn.args.at(1);
    turn.core.reply(|out| out.bulk(message))
}

fn auth(turn: &mut Turn<'_>) -> Step {
    match turn.args.len() {
        2 | 3 => turn.core.error(NO_PASSWORD),
        _ => syntax_error(turn),
    }
}

fn select(turn: &mut Turn<'_>) -> Step {
    match number(turn.args.at(1)) {
        Some(0) => ok(turn),
        Some(_) => turn
            .core
            .error("ERR DB index is out of range: database 0 is the only one"),
        None => turn
            .core
            .error("ERR value is not an integer or out of range"),
    }
}

fn quit(turn: &mut Turn<'_>) -> Step {
    turn.core.closing = true;
    ok(turn)
}

fn reset(turn: &mut Turn<'_>) -> Step {
    turn.core.client.protocol = Protocol::Resp2;
    turn.core.client.reply_mode = ReplyMode::On;
    turn.core.client.transaction.clear();
    update(turn, |client| {
        client.name.clear();
        client.protocol = Protocol::Resp2.number();
    });
    turn.core.reply(|out| out.simple("RESET"))
}

fn hello(turn: &mut Turn<'_>) -> Step {
    let mut args = turn.args.from(1);
    let mut protocol = turn.core.client.protocol;
    if let Some(version) = args.next() {
        protocol = match number(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return turn.core.error("NOPROTO unsupported protocol version"),
            None => {
                let text = "ERR Protocol version is not an integer or out of range";
                return turn.core.error(text);
            }
        };
    }
    let mut name = None;
    while let Some(option) = args.next() {
        if option.eq_ignore_ascii_case(b"auth") && args.len() >= 2 {
            return turn.core.error(NO_PASSWORD);
        }
        match args.next() {
            Some(value) if option.eq_ignore_ascii_case(b"setname") => name = Some(value),
            _ => {
                let text = format!("ERR Syntax error in HELLO option '{}'", shown(option));
                return turn.core.error(&text);
            }
        }
    }
    if let Some(name) = name {
        if !is_name(name) {
            return bad_name(turn, "Client names");
        }
        update(turn, |client| client.name = name.to_vec());
    }
    turn.core.client.protocol = protocol;
    update(turn, |client| client.protocol = protocol.number());
    let id = i64::try_from(turn.core.id).unwrap_or(i64::MAX);
    turn.core.reply(|out| write_hello(out, id))
}

fn write_hello(out: &mut Encoder<'_>, id: i64) {
    let protocol = out.protocol().number();
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"redis");
    out.bulk(b"version");
    out.bulk(REDIS_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(protocol);
    out.bulk(b"id");
    out.integer(id);
    out.bulk(b"mode");
    out.bulk(b"standalone");
    out.bulk(b"role");
    out.bulk(b"master");
    out.bulk(b"modules");
    out.array(0);
}

fn client(turn: &mut Turn<'_>) -> Step {
    let subcommand = turn.args.at(1).to_ascii_lowercase();
    match (subcommand.as_slice(), turn.args.len()) {
        (b"setname", 3) => {
            let name = turn.args.at(2);
            if !is_name(name) {
                return bad_name(turn, "Client names");
            }
            update(turn, |client| client.name = name.to_vec());
            ok(turn)
        }
        (b"getname", 2) => {
            let client = card(turn);
            turn.core.reply(|out| match client.name.as_slice() {
                b"" => out.null(),
                name => out.bulk(name),
            })
        }
        (b"setinfo", 4) => set_info(turn),
        (b"id", 2) => {
            let id = turn.core.id;
            turn.core.reply(|out| out.count(id))
        }
        (b"info", 2) => {
            let line = card(turn).line(turn.core.id, turn.context.now) + "\n";
            turn.core.reply(|out| out.verbatim(&line))
        }
        (b"list", 2..) => clients::list(turn),
        (b"kill", 3..) => clients::kill(turn),
        (b"help", 2) => help(turn, "CLIENT", clients::HELP),
        (b"no-evict" | b"no-touch", 3) => match turn.args.at(2).to_ascii_lowercase().as_slice() {
            b"on" | b"off" => ok(turn),
            _ => syntax_error(turn),
        },
        (b"reply", 3) => reply_mode(turn),
        (
            b"setname" | b"getname" | b"setinfo" | b"id" | b"info" | b"kill" | b"no-evict"
            | b"no-touch" | b"reply" | b"help",
            _,
        ) => {
            let name = format!("client|{}", shown(&subcommand));
            wrong_arity(turn, &name)
        }
        _ => unknown_subcommand(turn, "CLIENT"),
    }
}

fn set_info(turn: &mut Turn<'_>) -> Step {
    let (attribute, value) = (turn.args.at(2), turn.args.at(3));
    if !is_name(value) {
        return bad_name(turn, &shown(attribute));
    }
    match attribute.to_ascii_lowercase().as_slice() {
        b"lib-name" => update(turn, |client| client.library = value.to_vec()),
        b"lib-ver" => update(turn, |client| client.library_version = value.to_vec()),
        _ => {
            let text = format!("ERR Unrecognized option '{}'", shown(attribute));
            return turn.core.error(&text);
        }
    }
    ok(turn)
}

fn reply_mode(turn: &mut Turn<'_>) -> Step {
    turn.core.client.reply_mode = match turn.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => ReplyMode::On,
        b"off" => ReplyMode::Off,
        b"skip" if turn.core.client.reply_mode == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return syntax_error(turn),
    };
    match turn.core.client.reply_mode {
        ReplyMode::On => ok(turn),
        _ => Step::Replied,
    }
}

/// Whether `name` may stand in a line of `CLIENT LIST`.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic)
}

fn bad_name(turn: &mut Turn<'_>, what: &str) -> Step {
    turn.core.error(&format!(
        "ERR {what} cannot contain spaces, newlines or special characters, nor be over \
         {NAME_BYTES_MAX} bytes."
    ))
}

/// What is known of this client.
fn card(turn: &Turn<'_>) -> Client {
    let clients = turn.context.front.clients();
    clients.get(&turn.core.id).cloned().unwrap_or_default()
}

/// Changes what is known of this client.
fn update(turn: &Turn<'_>, change: impl FnOnce(&mut Client)) {
    if let Some(client) = turn.context.front.clients().get_mut(&turn.core.id) {
        change(client);
    }
}
