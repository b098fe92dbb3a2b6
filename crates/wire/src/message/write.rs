//! Writes what several messages have in common, and those about the state of a copy.

use alloc::vec::Vec;

use argosy_base::codec::{put_string, put_varint};
use argosy_base::{Descriptor, FlushRange, Position};

use super::Message;

impl Message<'_> {
    /// Appends the payload of a message about how far a member is.
    pub(super) fn encode_state(&self, out: &mut Vec<u8>) {
        match self {
            Self::Prepare {
                attempt,
                addresses,
                refill,
            } => {
                put_varint(out, *attempt);
                out.extend_from_slice(&[*addresses as u8, u8::from(*refill)]);
            }
            Self::CheckpointWanted { attempt }
            | Self::Whole { attempt }
            | Self::Rest { attempt }
            | Self::Wake { attempt }
            | Self::Awake { attempt } => put_varint(out, *attempt),
            Self::Report {
                attempt,
                position,
                standing,
                windows,
            } => {
                put_varint(out, *attempt);
                put_position(out, position);
                out.push(*standing as u8);
                put_descriptors(out, windows);
            }
            Self::CaughtUp { attempt, position } => {
                put_varint(out, *attempt);
                put_position(out, position);
            }
            Self::Failed {
                attempt,
                damaged,
                why,
            } => {
                put_varint(out, *attempt);
                out.push(u8::from(*damaged));
                put_string(out, why.as_bytes());
            }
            _ => {}
        }
    }
}

pub(super) fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        put_varint(out, *number);
    }
}

pub(super) fn put_position(out: &mut Vec<u8>, position: &Position) {
    put_all(out, &[position.edit.0, position.lsn.0]);
    put_varint(out, position.logs.iter().count() as u64);
    for (log, at) in position.logs.iter() {
        out.push(log.raw());
        let (end, flushed) = (u64::from(at.end), u64::from(at.flushed));
        put_all(out, &[at.ordinal, at.segment.0, end, flushed]);
    }
}

pub(super) fn put_range(out: &mut Vec<u8>, range: &FlushRange) {
    out.push(range.log.raw());
    put_all(
        out,
        &[
            range.ordinal,
            range.segment.0,
            u64::from(range.from),
            u64::from(range.to),
        ],
    );
}

pub(super) fn put_descriptors(out: &mut Vec<u8>, descriptors: &[Descriptor]) {
    put_varint(out, descriptors.len() as u64);
    for Descriptor { key, grant } in descriptors {
        out.extend_from_slice(&key.0.to_le_bytes());
        out.extend_from_slice(&grant.to_le_bytes());
    }
}
