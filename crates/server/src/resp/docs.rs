//! `COMMAND`: what the commands are. Tools read it for completion and help.

use argosy_wire::resp::Encoder;

use super::command::{Command, FAMILIES, NO_KEYS, Step, Turn, find, unknown_subcommand};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    flags: "loading stale",
    keys: NO_KEYS,
    group: "server",
    summary: "Tells of the commands.",
    usage: "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]",
    run: command,
}];

/// Most names that are asked for at a time: what is told of one is longer than its name.
const NAMES_MAX: usize = 1024;

fn all() -> impl Iterator<Item = &'static Command> + Clone {
    FAMILIES.iter().flat_map(|family| family.iter())
}

fn command(turn: &mut Turn<'_>) -> Step {
    let Some(subcommand) = turn.args.get(1) else {
        return turn.core.reply(|out| {
            out.array(all().count());
            for command in all() {
                write_info(out, command);
            }
        });
    };
    if turn.args.len() > NAMES_MAX + 2 {
        return turn
            .core
            .error(&format!("ERR over {NAMES_MAX} names in one COMMAND"));
    }
    let names: Vec<&[u8]> = turn.args.from(2).collect();
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" if names.is_empty() => turn.core.reply(|out| out.count(all().count() as u64)),
        b"list" if names.is_empty() => turn.core.reply(|out| {
            out.array(all().count());
            for command in all() {
                out.bulk(command.name.as_bytes());
            }
        }),
        b"info" => turn.core.reply(|out| write_infos(out, &names)),
        b"docs" => turn.core.reply(|out| write_docs(out, &names)),
        _ => unknown_subcommand(turn, "COMMAND"),
    }
}

fn write_infos(out: &mut Encoder<'_>, names: &[&[u8]]) {
    if names.is_empty() {
        out.array(all().count());
        for command in all() {
            write_info(out, command);
        }
        return;
    }
    out.array(names.len());
    for name in names {
        match find(name) {
            Some(command) => write_info(out, command),
            None => out.null_array(),
        }
    }
}

/// Name, arity, flags, first key, last key, step, categories, hints, key specifications,
/// subcommands.
fn write_info(out: &mut Encoder<'_>, command: &Command) {
    let flags = command.flags.split_ascii_whitespace();
    let (first, last, step) = command.keys;
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(command.arity);
    out.set(flags.clone().count());
    for flag in flags {
        out.simple(flag);
    }
    out.integer(first);
    out.integer(last);
    out.integer(step);
    out.set(0);
    out.array(0);
    out.array(0);
    out.array(0);
}

fn write_docs(out: &mut Encoder<'_>, names: &[&[u8]]) {
    let chosen: Vec<&Command> = if names.is_empty() {
        all().collect()
    } else {
        names.iter().filter_map(|name| find(name)).collect()
    };
    out.map(chosen.len());
    for command in chosen {
        out.bulk(command.name.as_bytes());
        out.map(4);
        out.bulk(b"summary");
        out.bulk(command.summary.as_bytes());
        out.bulk(b"since");
        out.bulk(b"1.0.0");
        out.bulk(b"group");
        out.bulk(command.group.as_bytes());
        out.bulk(b"arguments");
        write_arguments(out, command.usage);
    }
}

/// The arguments, as one text for people: tools print it behind the name.
fn write_arguments(out: &mut Encoder<'_>, usage: &str) {
    if usage.is_empty() {
        out.array(0);
        return;
    }
    out.array(1);
    out.map(3);
    out.bulk(b"name");
    out.bulk(usage.as_bytes());
    out.bulk(b"type");
    out.bulk(b"string");
    out.bulk(b"display_text");
    out.bulk(usage.as_bytes());
}

/// Replies with what `name HELP` tells of its subcommands: lines of text, as Redis has them.
pub(super) fn help(turn: &mut Turn<'_>, name: &str, lines: &[&str]) -> Step {
    turn.core.reply(|out| {
        out.array(lines.len() + 3);
        out.simple(&format!(
            "{name} takes one of these words, and what stands behind it:"
        ));
        lines.iter().for_each(|line| out.simple(line));
        out.simple("HELP");
        out.simple("    These lines.");
    })
}
