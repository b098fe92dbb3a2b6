//! Values of over 1 MiB, in parts: see [`argosy_engine::long`].
//!
//! A store's snapshots see parts as they see heads, so what reads a long value reads from a snapshot. One who
//! asks for what a write has overwritten keeps the sweeper away until that is read.

use std::time::Duration;

use argosy_base::Outcome;
use argosy_base::limits::{PART_BYTES, VALUE_BYTES_MAX};
use argosy_engine::long::{Head, LongReader, LongWriter, is_any_head};
use argosy_engine::{
    BatchError, Condition, EngineError, Expiry, Reach, Store, WaitFor, WriteBatch, Written,
};

use crate::WriteOptions;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// The value that `found` stands for, where `get` gives what keys are bound to.
pub(crate) fn whole(
    found: Vec<u8>,
    get: impl Fn(&[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>,
) -> Result<Vec<u8>> {
    match Head::parse(&found) {
        None => Ok(found),
        Some(head) => {
            let value = LongReader::new(head).whole(get)?;
            value.map_err(|torn| EngineError::from(torn).into())
        }
    }
}

/// A long value that is being written: until it is dropped nobody sweeps its parts.
struct Writing<'a> {
    shared: &'a Shared,
    key: &'a [u8],
    version: u128,
}

impl<'a> Writing<'a> {
    fn begin(shared: &'a Shared, key: &'a [u8], version: u128) -> Self {
        shared.long.uses.begun(version);
        Self {
            shared,
            key,
            version,
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.shared.long.uses.ended(self.key, self.version);
        self.shared.pace.ring();
    }
}

/// A pair to be bound.
pub(crate) struct Put<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) expiry: Expiry,
    /// What the key has to be bound to.
    pub(crate) expected: Option<&'a [u8]>,
}

impl<'a> Put<'a> {
    /// For good, whatever there is.
    pub(crate) const fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key,
            value,
            expiry: Expiry::Never,
            expected: None,
        }
    }
}

impl Shared {
    /// Binds a key to a value of any length, where it has what is expected, if something is.
    pub(crate) fn put_as(&self, put: Put<'_>, options: &WriteOptions) -> Result<Written> {
        let Put {
            key,
            value,
            expiry,
            expected,
        } = put;
        let mut batch = WriteBatch::new();
        let long = value.len() > VALUE_BYTES_MAX || is_any_head(value);
        if !long {
            batch.put_until(key, value, expiry)?;
            if let Some(expected) = expected {
                batch.expect(expected)?;
            }
            return self.write_with(&batch, options);
        }
        self.check_open()?;
        // Refused before anything is written.
        match expected {
            Some(expected) => batch.expect(expected)?,
            None if options.condition == Condition::Equals => {
                return Err(BatchError::NothingExpected.into());
            }
            None => {}
        }
        if let Some(wait) = self.cannot_hold(key, options.condition)? {
            return Ok(not_applied(wait));
        }
        let version = self.long.versions.draw();
        let _writing = Writing::begin(self, key, version);
        let writer = LongWriter::new(key, value.len() as u64, version)?;
        let mut writer = writer.in_parts_of(self.part_len());
        let as_any = WriteOptions {
            patience: options.patience,
            ..WriteOptions::default()
        };
        let mut rest = value;
        while let Some(bytes) = writer.next_bytes() {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            writer.part(part, &mut batch);
            if let Err(error) = self.append(&batch, &as_any) {
                self.take_back(&writer, Some(Duration::ZERO));
                return Err(error);
            }
        }
        batch.clear();
        if let Some(expected) = expected {
            batch.expect(expected)?;
        }
        writer.head(expiry, &mut batch);
        let written = match self.write_with(&batch, options) {
            Err(error) if error.outcome() == Outcome::NotApplied => {
                self.take_back(&writer, Some(Duration::ZERO));
                return Err(error);
            }
            written => written?,
        };
        if !written.applied {
            self.take_back(&writer, options.patience);
            if written.unguarded {
                return Err(Error::Swept);
            }
        }
        Ok(written)
    }

    /// Removes the parts that `writer` has written for nothing, where there is room within `patience`. What stays
    /// is found by the sweeper.
    fn take_back(&self, writer: &LongWriter, patience: Option<Duration>) {
        let mut batch = WriteBatch::new();
        writer.take_back(&mut batch);
        let options = WriteOptions {
            patience,
            ..WriteOptions::default()
        };
        let _ = self.append(&batch, &options);
    }

    /// Bytes of a part: several fit the windows of a log.
    fn part_len(&self) -> u32 {
        let settings = self.engine.settings();
        let windows = settings
            .layout
            .window_bytes
            .saturating_mul(settings.layout.window_slots);
        let bytes = (windows / 4).clamp(1 << 10, PART_BYTES);
        u32::try_from(bytes).expect("parts are short")
    }

    /// Whether `condition` does not hold of `key` now, where that can be told without its value: before much is
    /// written for nothing.
    fn cannot_hold(&self, key: &[u8], condition: Condition) -> Result<Option<WaitFor>> {
        let wanted = match condition {
            Condition::Absent => false,
            Condition::Present | Condition::Equals => true,
            Condition::Always | Condition::Version(_) => return Ok(None),
        };
        let found = self.engine.outline(key, Reach::Device)?;
        let fails = found.len.is_some() != wanted;
        if fails {
            self.shown_up_to(found.wait.lsn())?;
        }
        Ok(fails.then_some(found.wait))
    }

    /// Puts whole values in the place of heads of what a write has overwritten.
    pub(crate) fn make_whole(&self, written: &mut Written) -> Result<()> {
        for previous in written.previous.iter_mut().flatten() {
            *previous = whole(std::mem::take(previous), |keys| {
                let found = self.engine.get_many(keys)?;
                Ok(found.into_iter().map(|found| found.value).collect())
            })?;
        }
        Ok(())
    }
}

const fn not_applied(wait: WaitFor) -> Written {
    Written {
        applied: false,
        unguarded: false,
        before: false,
        wait,
        previous: Vec::new(),
        existed: Vec::new(),
        changed: None,
    }
}
