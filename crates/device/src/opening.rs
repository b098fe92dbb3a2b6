//! How a store is made, and how what a crash has left of device segment 0 is made whole again.
//!
//! Opening, step by step:
//!
//! 1. Read both superblock copies. One written by a program that knows more: refuse. None good:
//!    the device is damaged, or holds no store. Otherwise the newer one counts.
//! 2. Read both catalog slots, in the same way.
//! 3. Where the slots are not equal, write the one that counts over the other.
//! 4. Write both superblocks with the next generation and the next incarnation, the one that does
//!    not count first, a sync behind each. An incarnation is used only after that.

use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{DeviceSegment, Incarnation};

use crate::blank::first_foreign_byte;
use crate::buffer::Buffer;
use crate::catalog::{self, Catalog, SLOTS_AT};
use crate::io::{Device, DeviceError, Io};
use crate::store::FormatOptions;
use crate::superblock::{COPIES_AT, CREATED_BY_BYTES_MAX, Rejected, Superblock};
use crate::switch::write_slot;

/// Device segment 0, understood.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) superblock: Superblock,
    pub(crate) catalog: Catalog,
    /// What was found damaged or half written, in words.
    pub(crate) findings: Vec<String>,
    /// Which copy and which slot count.
    copy: usize,
    slots_equal: bool,
    slot: usize,
}

/// Whether any program of this family has made a store here.
pub(crate) fn is_formatted(device: &dyn Device) -> Result<bool, DeviceError> {
    if device.len() < 2 * SEGMENT_SIZE as u64 {
        return Ok(false);
    }
    let copies = read_superblocks(device)?;
    Ok(copies.iter().any(|copy| *copy != Err(Rejected::Absent)))
}

/// Makes a store; see [`Store::format`](crate::Store::format).
pub(crate) fn format(device: &dyn Device, options: &FormatOptions) -> Result<(), DeviceError> {
    let segments = device.len() / SEGMENT_SIZE as u64;
    let segments = u32::try_from(segments).unwrap_or(u32::MAX);
    if segments < 2 {
        return Err(unusable("it has no room for 2 segments of 2 MiB"));
    }
    if is_formatted(device)? {
        return Err(unusable("it holds a store already; remove it first"));
    }
    check_blank(device)?;
    let mut created_by = options.created_by.clone();
    while created_by.len() > CREATED_BY_BYTES_MAX {
        created_by.pop();
    }
    let catalog = Catalog::first();
    for slot in 0..SLOTS_AT.len() {
        write(device, write_slot(&catalog, slot))?;
    }
    let superblock = Superblock {
        generation: 1,
        incarnation: Incarnation(0),
        device_id: options.device_id,
        cluster_id: options.cluster_id,
        server: options.server,
        segments,
        compat: 0,
        created_by,
    };
    write_superblocks(device, &superblock, 0)
}

/// Whether a device that [holds no store](crate::Store::is_formatted) is new, or its making was cut short: nothing is
/// found on it. All of segment 0 is looked at, and some hundred places behind it. Blocks.
///
/// # Errors
/// [`DeviceError::Unusable`] where there is something, which may be a store that has lost segment 0; or the device's.
pub fn check_blank(device: &dyn Device) -> Result<(), DeviceError> {
    match first_foreign_byte(device)? {
        None => Ok(()),
        Some(at) if at < SEGMENT_SIZE as u64 => Err(unusable(&format!(
            "it holds something that is no whole store: byte {at} is not zero; if that was a store, put a copy in \
             its place, and if nothing of it is needed, empty the device first (`blkdiscard`), or remove the file"
        ))),
        Some(at) => Err(unusable(&format!(
            "its first 2 MiB are empty, where a store is described, but byte {at} is not zero: a store may have \
             lost them. Nothing was changed; put a copy in its place, or, if nothing of it is needed, empty the \
             device first (`blkdiscard`), or remove the file"
        ))),
    }
}

/// Steps 1 and 2: reads, and changes nothing.
pub(crate) fn inspect(device: &dyn Device) -> Result<Opened, DeviceError> {
    if device.len() < 2 * SEGMENT_SIZE as u64 {
        return Err(unusable("it holds no store: format it first"));
    }
    let mut findings = Vec::new();
    let copies = read_superblocks(device)?;
    if copies.iter().all(|copy| *copy == Err(Rejected::Absent)) {
        check_blank(device)?;
        return Err(unusable("it holds no store: format it first"));
    }
    let (copy, superblock, _) = choose("superblock", COPIES_AT, copies, &mut findings)?;
    if u64::from(superblock.segments) * SEGMENT_SIZE as u64 > device.len() {
        let (has, len) = (superblock.segments, device.len());
        return Err(unusable(&format!(
            "its store has {has} segments, but the device only {len} bytes"
        )));
    }
    let slots = read_catalogs(device)?;
    let (slot, catalog, slots_equal) = choose("catalog", SLOTS_AT, slots, &mut findings)?;
    let manifests = catalog.regions.values().flat_map(|entry| &entry.manifest);
    for segment in manifests {
        if segment.0 == 0 || segment.0 >= superblock.segments {
            return Err(damaged(SLOTS_AT[slot], "the catalog names no segment"));
        }
    }
    Ok(Opened {
        superblock,
        catalog,
        findings,
        copy,
        slots_equal,
        slot,
    })
}

/// All steps.
pub(crate) fn open(device: &dyn Device) -> Result<Opened, DeviceError> {
    let mut opened = inspect(device)?;
    if !opened.slots_equal {
        write(device, write_slot(&opened.catalog, 1 - opened.slot))?;
    }
    opened.superblock.generation += 1;
    opened.superblock.incarnation = opened.superblock.incarnation.next();
    write_superblocks(device, &opened.superblock, 1 - opened.copy)?;
    Ok(opened)
}

/// One of the copies in device segment 0, as [`Store::survey`](crate::Store::survey) finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadBlock {
    /// "superblock" or "catalog".
    pub what: &'static str,
    /// Which of the two copies.
    pub copy: usize,
    /// Where in device segment 0.
    pub offset: u32,
    /// How often it had changed when this copy was written; `None` where it cannot be read.
    pub generation: Option<u64>,
    /// What is wrong with it, in words.
    pub trouble: Option<String>,
}

/// Each copy of superblock and catalog. Reads, and changes nothing.
pub(crate) fn survey(device: &dyn Device) -> Result<Vec<HeadBlock>, DeviceError> {
    if device.len() < 2 * SEGMENT_SIZE as u64 {
        return Err(unusable("it holds no store: format it first"));
    }
    let mut blocks = survey_copies("superblock", COPIES_AT, &read_superblocks(device)?);
    blocks.extend(survey_copies("catalog", SLOTS_AT, &read_catalogs(device)?));
    Ok(blocks)
}

fn survey_copies<T: Stored>(
    what: &'static str,
    places: [u32; 2],
    found: &[Result<T, Rejected>; 2],
) -> Vec<HeadBlock> {
    let generation = |copy: usize| found[copy].as_ref().ok().map(Stored::generation);
    let look = |copy: usize| {
        let trouble = match (&found[copy], &found[1 - copy]) {
            (Err(Rejected::Absent), _) => Some("it is not there".to_owned()),
            (Err(Rejected::Damaged(why)), _) => Some((*why).to_owned()),
            (Err(Rejected::Unknown(why)), _) => Some(why.clone()),
            (Ok(this), Ok(other)) if this.generation() < other.generation() => Some(format!(
                "it is stale: generation {}, and the other copy has {}",
                this.generation(),
                other.generation()
            )),
            (Ok(this), Ok(other)) if this.generation() == other.generation() && this != other => {
                Some("both copies have one generation and are not equal".to_owned())
            }
            (Ok(_), _) => None,
        };
        HeadBlock {
            what,
            copy,
            offset: places[copy],
            generation: generation(copy),
            trouble,
        }
    };
    vec![look(0), look(1)]
}

/// What is stored twice: has a generation.
trait Stored: PartialEq {
    fn generation(&self) -> u64;
}

impl Stored for Superblock {
    fn generation(&self) -> u64 {
        self.generation
    }
}

impl Stored for Catalog {
    fn generation(&self) -> u64 {
        self.generation
    }
}

/// Which of two stored things counts, it, and whether the other one is equal to it.
fn choose<T: Stored>(
    what: &str,
    places: [u32; 2],
    found: [Result<T, Rejected>; 2],
    findings: &mut Vec<String>,
) -> Result<(usize, T, bool), DeviceError> {
    for (copy, rejected) in (0..).zip(&found) {
        match rejected {
            Err(Rejected::Unknown(why)) => return Err(unusable(why)),
            Err(Rejected::Damaged(why)) => {
                findings.push(format!("{what} copy {copy} was rewritten: {why}"));
            }
            Err(Rejected::Absent) => {
                findings.push(format!(
                    "{what} copy {copy} was rewritten: it was not there"
                ));
            }
            Ok(_) => {}
        }
    }
    match found {
        [Ok(first), Ok(second)] if first == second => Ok((0, first, true)),
        [Ok(first), Ok(second)] => {
            findings.push(format!("the last change of the {what} was cut short"));
            if first.generation() > second.generation() {
                Ok((0, first, false))
            } else {
                Ok((1, second, false))
            }
        }
        [Ok(first), Err(_)] => Ok((0, first, false)),
        [Err(_), Ok(second)] => Ok((1, second, false)),
        [Err(Rejected::Damaged(why)), _] => Err(damaged(places[0], why)),
        [_, Err(Rejected::Damaged(why))] => Err(damaged(places[1], why)),
        _ => Err(damaged(places[0], "both copies are missing")),
    }
}

fn read_superblocks(device: &dyn Device) -> Result<[Result<Superblock, Rejected>; 2], DeviceError> {
    let mut block = Buffer::zeroed(BLOCK_SIZE);
    let mut read = |copy: usize| {
        device.read(u64::from(COPIES_AT[copy]), &mut block)?;
        Ok(Superblock::decode(copy, &block))
    };
    Ok([read(0)?, read(1)?])
}

fn read_catalogs(device: &dyn Device) -> Result<[Result<Catalog, Rejected>; 2], DeviceError> {
    let read = |slot: usize| {
        let at = u64::from(SLOTS_AT[slot]);
        let mut head = Buffer::zeroed(BLOCK_SIZE);
        device.read(at, &mut head)?;
        // Whatever claims no possible length is refused as it is.
        let length = Catalog::length(&head[..catalog::HEADER_BYTES]).unwrap_or(BLOCK_SIZE);
        let mut whole = Buffer::zeroed(length);
        device.read(at, &mut whole)?;
        Ok(Catalog::decode(slot, &whole))
    };
    Ok([read(0)?, read(1)?])
}

/// Writes both copies, `first` first, with a sync behind each.
fn write_superblocks(
    device: &dyn Device,
    superblock: &Superblock,
    first: usize,
) -> Result<(), DeviceError> {
    for copy in [first, 1 - first] {
        let data = Arc::new(superblock.encode(copy));
        let range = 0..data.len();
        let at = u64::from(COPIES_AT[copy]);
        write(device, Io::Write { at, data, range })?;
    }
    Ok(())
}

/// Writes, waits, syncs, waits.
fn write(device: &dyn Device, io: Io) -> Result<(), DeviceError> {
    device.wait(&device.submit(io))?;
    device.wait(&device.submit(Io::Sync))
}

fn unusable(what: &str) -> DeviceError {
    DeviceError::Unusable {
        path: "the device".to_owned(),
        what: what.to_owned(),
    }
}

fn damaged(offset: u32, what: &'static str) -> DeviceError {
    DeviceError::Corrupt {
        segment: DeviceSegment(0),
        offset,
        what,
    }
}
