//! Gathers the records of a group until it is complete: a batch, or a value in chunks, is handed out
//! whole or not at all.

use std::ops::Range;

use argosy_base::{LogId, Lsn, Pointer, RequestName};

use super::record::{Record, RecordKind};
use super::recover::{Binding, Replayed, Request};

/// Whether values of `log` are handed out. Of values in other logs, only their places are.
pub(super) fn has_values(log: LogId) -> bool {
    log == LogId::FIRST
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Group {
    operations: Vec<Gathered>,
    /// Keys and, of the first log, values.
    bytes: Vec<u8>,
    /// The value of the last operation goes on in the next record of this log.
    continues: Option<LogId>,
}

struct Gathered {
    lsn: Lsn,
    log: LogId,
    at: Pointer,
    kind: RecordKind,
    key: Range<usize>,
    value: Range<usize>,
    value_len: usize,
    request: Option<RequestName>,
    expiry: Option<u64>,
}

impl Group {
    /// Adds the next record, which begins at `at` and has a value of `value_len` bytes (which, of
    /// another log than the first, need not be in it), or tells why it cannot be one of this group.
    pub(super) fn add(
        &mut self,
        log: LogId,
        at: Pointer,
        record: &Record<'_>,
        value_len: usize,
    ) -> Result<(), &'static str> {
        match self.continues {
            Some(of) if of != log || !record.key.is_empty() => {
                return Err("a value in chunks is not continued");
            }
            None if record.key.is_empty() && record.kind != RecordKind::Time => {
                return Err("a chunk continues nothing");
            }
            Some(_) => {}
            None => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(record.key);
                let end = self.bytes.len();
                self.operations.push(Gathered {
                    lsn: record.lsn,
                    log,
                    at,
                    kind: record.kind,
                    key: start..end,
                    value: end..end,
                    value_len: 0,
                    request: record.request,
                    expiry: record.expiry,
                });
            }
        }
        let operation = self.operations.last_mut().expect("there is one by now");
        operation.lsn = record.lsn;
        operation.value_len += value_len;
        if has_values(log) {
            self.bytes.extend_from_slice(record.value);
            operation.value.end = self.bytes.len();
        }
        self.continues = record.chunk.then_some(log);
        Ok(())
    }

    /// Hands the operations out, and begins the next group.
    pub(super) fn hand_out(&mut self, visit: &mut impl FnMut(Replayed<'_>)) {
        let last = self.operations.last().map_or(Lsn(0), |last| last.lsn);
        for operation in self.operations.drain(..) {
            let binding = match (operation.kind, has_values(operation.log)) {
                (RecordKind::Put | RecordKind::DeleteRange, true) => {
                    Binding::Inline(&self.bytes[operation.value])
                }
                (RecordKind::Put, false) => Binding::Logged {
                    value_len: u32::try_from(operation.value_len).unwrap_or(u32::MAX),
                },
                // Deletes, and what says nothing: a range is never written to another log than the first.
                _ => Binding::Nothing,
            };
            visit(Replayed {
                key: &self.bytes[operation.key],
                lsn: operation.lsn,
                binding,
                at: operation.at,
                request: operation.request.map(|id| Request { id, last }),
                expiry: operation.expiry,
                removes_range: operation.kind == RecordKind::DeleteRange,
            });
        }
        self.bytes.clear();
    }
}
