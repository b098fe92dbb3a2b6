//! Segments of levels and of the medium log: leaves, indexes, filters, footers, index nodes, values.

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Epoch, Identity, Kind, RegionId, SegmentNumber};
use argosy_device::Buffer;
use argosy_lsm::filter::{BitsPerKey, Filter, KeyHash};
use argosy_lsm::level::form_and_refs;
use argosy_lsm::level::leaf::Leaf;
use argosy_lsm::level::medium::verify_medium_segment;
use argosy_lsm::level::verify::{leaves_of, name_of_segment, verify_index_segment, verify_segment};
use argosy_lsm::names::{Entry, Form, SegmentName};
use argosy_lsm::read::medium::MediumRef;
use argosy_lsm::{Compaction, LevelSegment};

use super::sample::Sample;
use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "levels",
    run,
    seeds,
};

const NAME: SegmentName = SegmentName {
    region: RegionId(1),
    number: SegmentNumber(2),
    epoch: Epoch(3),
};

/// More than any segment has.
const NUMBERS_END: SegmentNumber = SegmentNumber(1 << 20);

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    match which % 6 {
        0 => Leaf::parse(bytes, NAME, 0).is_ok_and(|leaf| {
            for pair in 0..leaf.count() {
                assert_eq!(leaf.search(&leaf.key(pair)), Ok(pair));
                let _ = leaf.entry(pair);
            }
            true
        }),
        1 => {
            let filter = Filter::parse(bytes, Identity::of_server(Kind::Filter, 0));
            filter.is_ok_and(|filter| {
                let _ = filter.may_contain(KeyHash::of(b"key"));
                true
            })
        }
        2 => {
            let (name, bytes) = segment(bytes);
            let visit = |_: &[u8], entry: Entry<'_>| entry.pointer().map(|(at, _)| at.segment());
            let _ = form_and_refs(name, &bytes);
            let (contents, _) = verify_segment(name, &bytes, NUMBERS_END, visit);
            contents.is_some()
        }
        3 => {
            let (name, bytes) = segment(bytes);
            leaves_of(name, &bytes).is_ok_and(|leaves| leaves.iter().any(|(_, leaf)| leaf.is_ok()))
        }
        4 => {
            let (name, bytes) = segment(bytes);
            let height = match form_and_refs(name, &bytes) {
                Ok((Form::Index(height), _)) => height,
                _ => 1,
            };
            verify_index_segment(name, height, &bytes, Some).is_empty()
        }
        _ => {
            let (name, segment) = segment(bytes);
            if let Some((at, rest)) = bytes.split_first_chunk::<4>() {
                let at = u32::from_le_bytes(*at) % (2 << 20);
                let medium = MediumRef {
                    name,
                    segment_len: u32::try_from(segment.len()).unwrap_or(0),
                    at,
                    value_len: u32::try_from(rest.len()).unwrap_or(0),
                    key: b"key",
                };
                let _ = medium.read(&segment, None);
            }
            verify_medium_segment(name, &segment).0.is_some()
        }
    }
}

/// A segment that ends with `bytes`, and whose it says that it is: footers stand at the end.
fn segment(bytes: &[u8]) -> (SegmentName, Buffer) {
    let bytes = &bytes[..bytes.len().min(2 << 20)];
    let len = bytes.len().next_multiple_of(BLOCK_SIZE).max(BLOCK_SIZE);
    let mut buffer = Buffer::zeroed(len);
    buffer[len - bytes.len()..].copy_from_slice(bytes);
    (name_of_segment(&buffer).unwrap_or(NAME), buffer)
}

fn seeds() -> Vec<Vec<u8>> {
    let hashes: Vec<_> = (0..50u8).map(|key| KeyHash::of(&[key])).collect();
    let filter = Filter::build(&hashes, BitsPerKey::LAST);
    let mut bytes = vec![0; filter.encoded_len()];
    filter.encode(&mut bytes, Identity::of_server(Kind::Filter, 0));
    let mut seeds = vec![input(1, &bytes)];
    for compaction in [Compaction::Partial, Compaction::WholeLevel] {
        let sample = Sample::new(compaction);
        let mut of_form = |which: &[u8], form: &dyn Fn(Form) -> bool| {
            let version = sample.version();
            let found = version.finished().filter(|entry| form(entry.segment.form));
            for entry in found.take(2) {
                let LevelSegment { len, .. } = *entry.segment;
                let len = usize::try_from(len).expect("a segment is short");
                let bytes = sample.bytes(entry.stored.place().start(), len);
                seeds.extend(which.iter().map(|which| input(*which, &bytes)));
                seeds.extend(first_leaf(&bytes).filter(|_| which.contains(&3)));
            }
        };
        of_form(&[2, 3], &|form| {
            form == Form::SelfContained || form == Form::Leaves
        });
        of_form(&[4], &|form| matches!(form, Form::Index(_)));
        of_form(&[5], &|form| form == Form::Medium);
    }
    seeds
}

/// The leaf with which a segment begins.
fn first_leaf(segment: &[u8]) -> Option<Vec<u8>> {
    let lens = (512..=BLOCK_SIZE).step_by(512);
    let mut leaves = lens.filter_map(|len| segment.get(..len));
    let leaf = leaves.find(|bytes| Leaf::parse(bytes, NAME, 0).is_ok())?;
    Some(input(0, leaf))
}
