//! `LATENCY`: how long commands take, as far as it is measured.
//!
//! `HISTOGRAM` tells of each command how its calls are spread, of the one call in
//! [`SAMPLE_EVERY`](crate::meter::SAMPLE_EVERY) that is timed, by the bounds of
//! [`BUCKETS_MICROS`]. Events are not monitored: the other subcommands answer what Redis
//! answers where none was recorded.

use argosy_wire::resp::Encoder;

use super::command::{
    Command, NO_KEYS, Step, Turn, number_of, shown, unknown_subcommand, wrong_arity,
};
use super::docs::help;
use crate::meter::{BUCKETS_MICROS, CommandDurations};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "latency",
    arity: -2,
    flags: "admin noscript loading stale",
    keys: NO_KEYS,
    group: "server",
    summary: "Tells how long commands take, by samples: HISTOGRAM. Events are not monitored.",
    usage: "HISTOGRAM [command ...] | LATEST | HISTORY event | RESET [event ...] | DOCTOR | HELP",
    run: latency,
}];

fn latency(turn: &mut Turn<'_>) -> Step {
    let subcommand = turn.args.at(1).to_ascii_lowercase();
    match (subcommand.as_slice(), turn.args.len()) {
        (b"histogram", _) => histogram(turn),
        (b"latest", 2) | (b"history", 3) => turn.core.reply(|out| out.array(0)),
        (b"reset", _) => turn.core.reply(|out| out.integer(0)),
        (b"doctor", 2) => turn.core.reply(|out| out.verbatim(DOCTOR)),
        (b"help", 2) => help(turn, "LATENCY", HELP),
        (b"latest" | b"history" | b"doctor" | b"help", _) => {
            let name = format!("latency|{}", shown(&subcommand));
            wrong_arity(turn, &name)
        }
        _ => unknown_subcommand(turn, "LATENCY"),
    }
}

const DOCTOR: &str = "Events are not monitored here. LATENCY HISTOGRAM tells how long commands take, SLOWLOG GET \
                      which of them waited long, and /metrics of the admin port where time goes.\n";

const HELP: &[&str] = &[
    "DOCTOR",
    "    Where to look instead: events are not monitored.",
    "HISTOGRAM [<command> ...]",
    "    How long calls took, of the one in 16 that is timed.",
    "HISTORY <event>",
    "    Nothing: events are not monitored.",
    "LATEST",
    "    Nothing: events are not monitored.",
    "RESET [<event> ...]",
    "    0: there is nothing to forget.",
];

fn histogram(turn: &mut Turn<'_>) -> Step {
    let meter = &turn.context.front.meter;
    let all: Vec<CommandDurations> = match turn.args.len() {
        2 => meter.timed_commands().collect(),
        _ => {
            let mut numbers: Vec<u16> = turn.args.from(2).map(number_of).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let timed = numbers.into_iter().filter_map(|number| meter.timed(number));
            timed.collect()
        }
    };
    turn.core.reply(|out| {
        out.map(all.len());
        all.iter().for_each(|of| write(out, of));
    })
}

/// A command, how many of its calls were timed, and for each bound that some call came near, how many took no longer.
fn write(out: &mut Encoder<'_>, of: &CommandDurations) {
    let (last, within) = of.cumulative.split_last().expect("there are buckets");
    let mut told = Vec::new();
    let mut before = 0;
    for (bound, count) in BUCKETS_MICROS.iter().zip(within) {
        if *count > before {
            told.push((*bound, *count));
        }
        before = *count;
    }
    if *last > before {
        // What is longer than the highest bound has none; it is told under twice that.
        told.push((2 * BUCKETS_MICROS[BUCKETS_MICROS.len() - 1], *last));
    }
    out.bulk(of.name.as_bytes());
    out.map(2);
    out.bulk(b"calls");
    out.count(*last);
    out.bulk(b"histogram_usec");
    out.map(told.len());
    for (bound, count) in told {
        out.count(bound);
        out.count(count);
    }
}
