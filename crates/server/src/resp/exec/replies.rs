//! What the commands of a transaction are answered, until it is known whether they take effect.

use argosy_wire::api::Scratch;
use argosy_wire::resp::{Encoder, Protocol};

use super::super::command;
use super::super::errors::error_text;
use super::super::front::{Context, FrontEnd};
use super::super::overlay::{Halt, Overlay};
use super::super::reply::Pending;
use super::{Begun, answer};
use crate::meter::MeteredOutcome;
use crate::service::Failure;

/// What commands are answered so far.
#[derive(Debug)]
pub(in crate::resp) struct Replies {
    pub(super) protocol: Protocol,
    pub(super) bytes_max: usize,
    pub(super) bytes: Vec<u8>,
    counted: Vec<Counted>,
}

/// A command that is carried out.
pub(super) struct Numbered {
    /// As what it is counted.
    pub(super) number: u16,
    pub(super) begun: Begun,
}

/// How a command was answered.
#[derive(Debug)]
struct Counted {
    /// Its place among those that are counted.
    command: u16,
    outcome: MeteredOutcome,
}

impl Replies {
    /// None yet.
    pub(super) const fn new(protocol: Protocol, bytes_max: usize) -> Self {
        Self {
            protocol,
            bytes_max,
            bytes: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Counts the answers, if each command is counted by itself, and writes them.
    pub(super) fn write(self, each: bool, out: &mut Vec<u8>, front: &FrontEnd) {
        if each {
            for Counted { command, outcome } in self.counted {
                front.meter.count(command, outcome);
            }
        }
        out.extend_from_slice(&self.bytes);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.counted.clear();
    }

    pub(super) fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(&mut self.bytes, self.protocol)
    }

    /// The next command is answered so.
    pub(in crate::resp) fn add(&mut self, command: u16, bytes: &[u8], outcome: MeteredOutcome) {
        self.bytes.extend_from_slice(bytes);
        self.counted.push(Counted { command, outcome });
    }

    /// The same, by an error.
    pub(in crate::resp) fn refuse(&mut self, command: u16, text: &str) {
        self.encoder().error(text);
        self.add(command, b"", MeteredOutcome::Invalid);
    }

    /// The same, by what was gathered; by an error, where that makes the whole too long.
    pub(in crate::resp) fn answer(&mut self, command: u16, pending: Pending, front: &FrontEnd) {
        let (before, outcome) = (self.bytes.len(), pending.outcome());
        pending.write(&mut self.bytes, front);
        if self.is_over() {
            self.bytes.truncate(before);
            let text = command::reply_too_long(self.bytes_max);
            return self.refuse(command, &text);
        }
        self.add(command, b"", outcome);
    }

    /// Carries a command out on `overlay`, and answers it.
    pub(super) fn carry_out(
        &mut self,
        Numbered { number, begun }: Numbered,
        overlay: &mut Overlay<'_>,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Halt> {
        // So much is no answer any more: the rest says what else has to be read.
        if self.is_over() {
            self.bytes.truncate(self.bytes_max + 1);
        }
        match begun {
            Begun::Replied(bytes, outcome) => self.add(number, &bytes, outcome),
            Begun::Procedure(procedure) => {
                let outcome = procedure.run(overlay, &mut self.encoder(), context.front)?;
                self.add(number, b"", outcome);
            }
            Begun::Call(plan, gather) => {
                let pending = Pending::new(gather, self.protocol, false);
                let pending = answer(pending, plan, overlay, context, scratch)?;
                let outcome = pending.outcome();
                pending.write(&mut self.bytes, context.front);
                self.add(number, b"", outcome);
            }
        }
        Ok(())
    }

    /// Whether there is more than a reply may have.
    pub(super) const fn is_over(&self) -> bool {
        self.bytes.len() > self.bytes_max
    }
}

/// What a transaction is answered that has failed.
#[derive(Debug)]
pub(in crate::resp) struct Refused {
    pub(in crate::resp) text: String,
    pub(in crate::resp) outcome: MeteredOutcome,
}

impl Refused {
    pub(in crate::resp) fn of(error: &Failure) -> Self {
        Self {
            text: error_text(error, true),
            outcome: error.into(),
        }
    }

    pub(in crate::resp) const fn invalid(text: String) -> Self {
        let outcome = MeteredOutcome::Invalid;
        Self { text, outcome }
    }
}
