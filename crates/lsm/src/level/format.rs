//! A level segment as it lies on the device, and its footer.
//!
//! ```text
//! 0        node    2*node                                                      len-128      len
//! +--------+--------+--- ... ---+-------+--------+-------+-- ... --+-----------+
//! | leaf 0 | leaf 1 |           | index | filter | table | 0       | footer    |
//! +--------+--------+--- ... ---+-------+--------+-------+-- ... --+-----------+
//! ```
//!
//! `len` is a whole number of blocks. Leaves are described in [`leaf`](super::leaf), the index in
//! [`index`](super::index), the filter in [`filter`](crate::filter). A segment of a tree
//! ([`tree`](super::tree)) has no index: a leaf segment has leaves and a filter, an index segment has
//! index nodes in the place of leaves, and no filter. A segment of the medium log
//! ([`medium`](super::medium)) has values in the place of leaves, and nothing else.
//!
//! ```text
//! table    := crc32c: u32  first_key: string  last_key: string  count: varint  log_ref[count]
//! log_ref  := number: varint  bytes: varint
//! string   := len: varint  bytes
//!
//! footer   := 0   magic: u64
//!             8   version: u32       crc32c: u32
//!             16  region: u32        epoch: u32
//!             24  number: u64
//!             32  node_bytes: u32    leaves: u32
//!             40  entries: u32       tombstones: u32
//!             48  lsn_max: u64
//!             56  index_len: u32     filter_len: u32
//!             64  table_len: u32     leaves_len: u32
//!             72  form: u8           zero: [u8; 55]
//! ```
//!
//! Integers are little-endian. Where pointers hold places, the table lists the log segments that the leaves point
//! into, in ascending order of their numbers, each with the bytes of keys and values that it holds for this segment;
//! elsewhere it lists none. The table of an index segment always lists the segments that its nodes lead to, each with
//! how many children lie there. `lsn_max` is reserved and zero. `version` is 7: leaves of 1 and 2 had whole keys in
//! their records, 3 knew no medium segments, 4 no pairs that expire, leaves of 5 told how long their whole keys are,
//! and filters of 6 had one size and six probes. `form` is 0
//! in a self-contained segment; in a segment of a tree it is 1 for leaves and h + 1 for index nodes of
//! height h; 255 in a medium segment, where
//! `leaves` and `entries` count values. In an index segment, `leaves` and `leaves_len` count nodes,
//! `entries` their children, and the keys in the table are separators. The footer's `crc32c` covers the
//! rest of the footer under the identity (footer, `len - 128`), the table's covers the rest of the table
//! under (footer, where it begins).
//!
//! In every version of the format the last 128 bytes of a segment begin with magic, version and
//! checksum, so that an older reader refuses a newer segment by its version and does not take it for
//! a damaged one.

use argosy_base::codec::{Malformed, Reader, put_string, put_varint, varint_len};
use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{BLOCK_SIZE, Epoch, Kind, RegionId, SEGMENT_SIZE, SegmentNumber};

use crate::names::{Form, LevelError, NODE_BYTES_MIN, SegmentName};

/// The format that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 7;
/// The first bytes of a footer: "ArgLevel", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"ArgLevel");
/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: usize = 128;
/// Bytes of a block, as offsets in a segment are counted.
pub(crate) const BLOCK: u32 = 4096;
/// Bytes of the largest node.
pub(crate) const NODE_BYTES_MAX: usize = 32 << 10;

const _: () = assert!(BLOCK as usize == BLOCK_SIZE);
const _: () = assert!(FOOTER_BYTES < BLOCK_SIZE, "the last block holds the footer");
const _: () = assert!(
    BLOCK_SIZE > FOOTER_BYTES + 128 + 512,
    "see `segment_bytes_min`"
);

/// Whether `node_bytes` can be the size of a segment's nodes: a power of two from
/// [`NODE_BYTES_MIN`] to [`NODE_BYTES_MAX`].
#[must_use]
pub(crate) const fn node_bytes_valid(node_bytes: usize) -> bool {
    node_bytes.is_power_of_two() && node_bytes >= NODE_BYTES_MIN && node_bytes <= NODE_BYTES_MAX
}

/// Least bytes of a segment with nodes of `node_bytes`: room for a leaf with any one pair, two copies
/// of the longest key in the table, and, in one more block, the index, the filter and the footer.
#[must_use]
pub(crate) const fn segment_bytes_min(node_bytes: usize) -> usize {
    let longest_pair = 2 * KEY_BYTES_MAX;
    let leaf = if node_bytes > longest_pair {
        node_bytes
    } else {
        longest_pair
    };
    leaf + 2 * KEY_BYTES_MAX + BLOCK_SIZE
}

/// What the footer's fixed part says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) form: Form,
    pub(crate) node_bytes: u32,
    pub(crate) leaves: u32,
    pub(crate) entries: u32,
    pub(crate) tombstones: u32,
    pub(crate) index_len: u32,
    pub(crate) filter_len: u32,
    pub(crate) table_len: u32,
    pub(crate) leaves_len: u32,
}

impl Footer {
    /// Where the index, the filter and the table begin, and where the table ends.
    pub(crate) const fn bounds(&self) -> [u64; 4] {
        let index = self.leaves_len as u64;
        let filter = index + self.index_len as u64;
        let table = filter + self.filter_len as u64;
        [index, filter, table, table + self.table_len as u64]
    }

    /// Writes the footer of a segment whose footer begins at byte `at`.
    pub(crate) fn encode(&self, name: SegmentName, at: u32) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend(MAGIC.to_le_bytes());
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 4]);
        out.extend(name.region.get().to_le_bytes());
        out.extend(name.epoch.get().to_le_bytes());
        out.extend(name.number.get().to_le_bytes());
        out.extend(self.node_bytes.to_le_bytes());
        out.extend(self.leaves.to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        out.extend(self.tombstones.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.extend(self.index_len.to_le_bytes());
        out.extend(self.filter_len.to_le_bytes());
        out.extend(self.table_len.to_le_bytes());
        out.extend(self.leaves_len.to_le_bytes());
        out.push(self.form.to_raw());
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        let crc = Self::checksum(&bytes, name, at);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn checksum(bytes: &[u8; FOOTER_BYTES], name: SegmentName, at: u32) -> u32 {
        let front = name.identity(Kind::Footer, at).checksum(&bytes[..12]);
        argosy_base::checksum::extend(front, &bytes[16..])
    }

    /// Checks and decodes the footer that begins at byte `at` of segment `name`.
    pub(crate) fn parse(
        bytes: &[u8; FOOTER_BYTES],
        name: SegmentName,
        at: u32,
    ) -> Result<Self, LevelError> {
        let mut reader = Reader::new("footer", bytes);
        let read = |reader: &mut Reader<'_>| -> Result<(u64, u32, u32), Malformed> {
            Ok((reader.u64()?, reader.u32()?, reader.u32()?))
        };
        let (magic, version, crc) =
            read(&mut reader).map_err(|_| name.corrupt(at, "the segment has no footer"))?;
        if magic != MAGIC {
            return Err(name.corrupt(at, "the segment has no footer"));
        }
        if Self::checksum(bytes, name, at) != crc {
            return Err(name.corrupt(at, "the footer does not match its checksum"));
        }
        if version != VERSION {
            let segment = name.number;
            return Err(LevelError::UnknownVersion {
                segment,
                version,
                known: VERSION,
            });
        }
        Self::fields(&mut reader, name, at)
            .ok_or_else(|| name.corrupt(at, "the footer contradicts itself"))
    }

    fn fields(reader: &mut Reader<'_>, name: SegmentName, at: u32) -> Option<Self> {
        let own = SegmentName {
            region: RegionId(reader.u32().ok()?),
            epoch: Epoch(reader.u32().ok()?),
            number: SegmentNumber(reader.u64().ok()?),
        };
        let node_bytes = reader.u32().ok()?;
        let leaves = reader.u32().ok()?;
        let entries = reader.u32().ok()?;
        let tombstones = reader.u32().ok()?;
        let lsn_max = reader.u64().ok()?;
        let lens = [
            reader.u32().ok()?,
            reader.u32().ok()?,
            reader.u32().ok()?,
            reader.u32().ok()?,
        ];
        let [index_len, filter_len, table_len, leaves_len] = lens;
        let footer = Self {
            form: Form::from_raw(reader.u8().ok()?)?,
            node_bytes,
            leaves,
            entries,
            tombstones,
            index_len,
            filter_len,
            table_len,
            leaves_len,
        };
        let [.., end] = footer.bounds();
        let sound = own == name
            && node_bytes_valid(node_bytes as usize)
            && leaves > 0
            && entries >= leaves
            && entries as usize <= SEGMENT_SIZE
            && tombstones <= entries
            && lsn_max == 0
            && footer.parts_fit_form()
            && end <= u64::from(at)
            && reader.rest().iter().all(|byte| *byte == 0);
        sound.then_some(footer)
    }

    /// Whether the segment has the parts that its form has, and no others.
    const fn parts_fit_form(&self) -> bool {
        match self.form {
            Form::SelfContained => true,
            Form::Leaves => self.index_len == 0,
            Form::Index(_) | Form::Medium => {
                self.index_len == 0 && self.filter_len == 0 && self.tombstones == 0
            }
        }
    }
}

/// The footer's variable part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) first_key: Vec<u8>,
    pub(crate) last_key: Vec<u8>,
    pub(crate) log_refs: Vec<(SegmentNumber, u64)>,
}

impl Table {
    /// Most bytes of a table with keys of these lengths and that many log segments.
    pub(crate) const fn len_max(first: usize, last: usize, log_refs: usize) -> usize {
        4 + 2 + first + 2 + last + 5 + log_refs * (varint_len(SegmentNumber::MAX.0) + 10)
    }

    pub(crate) fn encode(&self, name: SegmentName, at: u32) -> Vec<u8> {
        let mut out = vec![0; 4];
        put_string(&mut out, &self.first_key);
        put_string(&mut out, &self.last_key);
        put_varint(&mut out, self.log_refs.len() as u64);
        for (segment, bytes) in &self.log_refs {
            put_varint(&mut out, segment.get());
            put_varint(&mut out, *bytes);
        }
        let crc = name.identity(Kind::Footer, at).checksum(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn parse(bytes: &[u8], name: SegmentName, at: u32) -> Result<Self, LevelError> {
        let malformed = || name.corrupt(at, "the footer's table is malformed");
        let (crc, covered) = bytes.split_first_chunk::<4>().ok_or_else(malformed)?;
        let identity = name.identity(Kind::Footer, at);
        if identity.checksum(covered).to_le_bytes() != *crc {
            return Err(name.corrupt(at, "the footer's table does not match its checksum"));
        }
        Self::fields(covered).map_err(|_| malformed())
    }

    fn fields(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("table", bytes);
        let first_key = reader.string(KEY_BYTES_MAX)?.to_vec();
        let last_key = reader.string(KEY_BYTES_MAX)?.to_vec();
        if first_key.is_empty() || last_key < first_key {
            return Err(reader.malformed());
        }
        let count = reader.length(SEGMENT_SIZE)?;
        let mut log_refs: Vec<(SegmentNumber, u64)> = vec![];
        for _ in 0..count {
            let segment = SegmentNumber(reader.varint()?);
            let bytes = reader.varint()?;
            let above = log_refs.last().is_none_or(|(below, _)| *below < segment);
            if !above || segment > SegmentNumber::MAX {
                return Err(reader.malformed());
            }
            log_refs.push((segment, bytes));
        }
        reader.finish()?;
        Ok(Self {
            first_key,
            last_key,
            log_refs,
        })
    }
}

/// What segment `name`, whose bytes are `bytes`, is, and what its footer lists. Where pointers hold places, these are
/// the log segments that it points into, in ascending order, each with the bytes of keys and values that it holds for
/// the segment; of an index segment, the segments of its children, each with how many lie there; else nothing.
///
/// # Errors
/// [`LevelError::Corrupt`] where the bytes do not end as that segment does.
pub fn form_and_refs(
    name: SegmentName,
    bytes: &[u8],
) -> Result<(Form, Vec<(SegmentNumber, u64)>), LevelError> {
    let at = bytes.len().wrapping_sub(FOOTER_BYTES);
    let no_footer = || name.corrupt(0, "the segment has no footer");
    let footer = bytes.get(at..).and_then(|rest| rest.first_chunk());
    let at = u32::try_from(at).map_err(|_| no_footer())?;
    let footer = Footer::parse(footer.ok_or_else(no_footer)?, name, at)?;
    let [_, _, from, to] = footer
        .bounds()
        .map(|bound| usize::try_from(bound).unwrap_or(usize::MAX));
    let table = bytes.get(from..to).ok_or_else(no_footer)?;
    let from = u32::try_from(from).map_err(|_| no_footer())?;
    Ok((footer.form, Table::parse(table, name, from)?.log_refs))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
