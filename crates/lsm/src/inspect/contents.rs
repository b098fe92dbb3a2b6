//! What is in a segment, piece by piece, for people who look: the leaves of a level and their pairs, the
//! records of a log. What cannot be read is told where it is, and the rest is shown nevertheless.

use std::ops::ControlFlow;

use argosy_base::SegmentNumber;
use argosy_base::limits::BLOCK_SIZE;
use argosy_device::{Buffer, DeviceError};
use argosy_log::record::Record;
use argosy_log::segment::LogLayout;
use argosy_log::verify::visit_records;

use crate::edit::LogSegment;
use crate::level::medium::verify_medium_segment;
use crate::level::verify::leaves_of;
use crate::names::{Entry, Form};
use crate::settings::Settings;
use crate::version::{LevelEntry, Version};

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A leaf begins, with so many pairs.
    Leaf(u32, usize),
    /// A pair of the leaf that began last.
    Pair(&'a [u8], Entry<'a>),
    /// A record of a log.
    Record(u32, Record<'a>),
    /// So many values of the medium log, whose keys are in the leaves that point to them.
    Values(u32),
    /// Nothing can be read at this byte, for this reason.
    Bad(u32, &'a str),
}

/// Shows `visit` what segment `number` of `version` holds, until that has had enough. Of logs, what windows
/// alone have is not shown. Blocks for the device.
pub fn contents(
    version: &Version,
    number: SegmentNumber,
    settings: &Settings,
    visit: &mut dyn FnMut(Content<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if let Some(entry) = version.log_segment(number) {
        return log(version, &entry.segment, settings, visit);
    }
    let finished = version.finished();
    let mut same = finished.filter(|entry| entry.segment.number == number);
    match same.next() {
        Some(entry) => level(version, entry, visit),
        None => ControlFlow::Continue(()),
    }
}

fn level(
    version: &Version,
    entry: &LevelEntry,
    visit: &mut dyn FnMut(Content<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let segment = &entry.segment;
    let len = (segment.len as usize).next_multiple_of(BLOCK_SIZE);
    let mut bytes = Buffer::zeroed(len);
    if let Err(error) = entry.stored.read(0, &mut bytes) {
        return visit(Content::Bad(0, &error.to_string()));
    }
    let name = version.name_of(segment);
    if segment.form == Form::Medium {
        let (values, faults) = verify_medium_segment(name, &bytes);
        for fault in &faults {
            visit(Content::Bad(fault.offset, &fault.what))?;
        }
        return values.map_or(ControlFlow::Continue(()), |n| visit(Content::Values(n)));
    }
    if matches!(segment.form, Form::Index(_)) {
        return ControlFlow::Continue(());
    }
    let leaves = match leaves_of(name, &bytes) {
        Ok(leaves) => leaves,
        Err(leaves) => {
            visit(Content::Bad(
                0,
                "footer or index are damaged: leaves are looked for",
            ))?;
            leaves
        }
    };
    for (offset, leaf) in &leaves {
        match leaf {
            Err(error) => visit(Content::Bad(*offset, &error.to_string()))?,
            Ok(leaf) => {
                visit(Content::Leaf(*offset, leaf.count()))?;
                for pair in 0..leaf.count() {
                    visit(Content::Pair(&leaf.key(pair), leaf.entry(pair)))?;
                }
            }
        }
    }
    ControlFlow::Continue(())
}

fn log(
    version: &Version,
    segment: &LogSegment,
    settings: &Settings,
    visit: &mut dyn FnMut(Content<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut read = |segment: &LogSegment, at: u32, out: &mut [u8]| {
        super::logs::read_log(version, segment, at, out)
    };
    let of = LogLayout {
        region: version.region(),
        geometry: settings.layout.log_geometry(),
    };
    let mut ended = ControlFlow::Continue(());
    let mut each = |offset: u32, record: Record<'_>| {
        ended = visit(Content::Record(offset, record));
        ended
    };
    let stopped = visit_records::<DeviceError>(of, segment, &mut read, &mut each);
    ended?;
    match stopped {
        Ok(None) => ControlFlow::Continue(()),
        Ok(Some((offset, what))) => visit(Content::Bad(offset, what)),
        Err(error) => visit(Content::Bad(0, &error.to_string())),
    }
}
