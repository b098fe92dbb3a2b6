//! What a build makes segments of: their sizes, what they make up, and what their pointers hold.

use argosy_base::{Epoch, Moment, Pointer, RegionId, SegmentNumber};

use super::values::Values;
use crate::addresses::Pointers;
use crate::filter::BitsPerKey;
use crate::level::SegmentBuilder;
use crate::level::builder::SegmentGeometry;
use crate::level::tree_builder::TreeBuilder;
use crate::names::SegmentName;
use crate::version::Version;

/// What a build makes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunShape {
    /// Segments with an index each.
    SelfContained,
    /// A tree.
    Tree,
}

/// What a build makes segments of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The region.
    pub region: RegionId,
    /// The epoch in which they are written.
    pub epoch: Epoch,
    /// Their sizes.
    pub geometry: SegmentGeometry,
    /// How the pointers of the source become those of the segments.
    pub pointers: Pointers,
    /// What they make up.
    pub shape: RunShape,
    /// What each key gets of their filters.
    pub filter_bits: BitsPerKey,
    /// The region's time: committed, so that no primary to come is behind it.
    pub time: Moment,
}

impl Target {
    /// The index over the segments, where they make up a tree.
    pub(super) fn tree(self) -> Option<TreeBuilder> {
        let new = || TreeBuilder::new(self.region, self.epoch, self.geometry);
        (self.shape == RunShape::Tree).then(new)
    }

    /// The next segment with pairs; `below` is the last key of the one before.
    pub(super) fn builder(self, number: SegmentNumber, below: Option<&[u8]>) -> SegmentBuilder {
        let name = SegmentName {
            region: self.region,
            number,
            epoch: self.epoch,
        };
        let builder = match self.shape {
            RunShape::SelfContained => SegmentBuilder::new(name, self.geometry),
            RunShape::Tree => {
                SegmentBuilder::of_tree(name, self.geometry, below.map(<[u8]>::to_vec))
            }
        };
        builder
            .with_filter(self.filter_bits)
            .listing(self.pointers.hold_places())
    }
}

/// The number of the log segment to which pointers have these high bits.
pub(super) fn number_of(
    high: SegmentNumber,
    target: Target,
    values: &Values,
    head: &Version,
) -> Option<SegmentNumber> {
    if !target.pointers.hold_places() {
        return Some(high);
    }
    let written = values.number_of(high);
    written.or_else(|| head.resolve(Pointer::new(high, 0)).map(Pointer::segment))
}
