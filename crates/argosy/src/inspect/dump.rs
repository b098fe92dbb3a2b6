//! `argosy inspect dump`: what is stored, piece by piece: edits, segments, leaves and their pairs, records.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use argosy_base::SegmentNumber;
use argosy_log::{LogLayout, Record, RecordKind};
use argosy_lsm::edit::log_segment_in_words;
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::inspect::contents::{Content, contents};
use argosy_lsm::names::logs::log_name;
use argosy_lsm::names::{Entry, Lasting};
use argosy_lsm::{Version, cut_segments};
use clap::Args;
use serde::Serialize;

use super::cut::cut_of;
use super::view::KeyView;
use super::{Common, Opened, print_json, say};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect-dump.v1";

/// Print what is stored, piece by piece
///
/// Prints the edits of the manifest, then every segment by its number: leaves with their pairs, records of
/// logs. What cannot be read is named where it is. Ends after so many lines, and says so. Changes nothing.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy inspect dump ./data/server-0 --limit 100\n  \
    argosy inspect dump ./data/server-0 --region 1 --segment 17 --value-bytes 64 -o json\n\n\
    Exit codes: 0 printed, 1 failed or in use, 3 no such device, region or segment"
)]
pub(super) struct Dump {
    /// The server's, or the embedded store's, data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only these segments, by number
    #[arg(long, value_delimiter = ',', value_name = "NUMBER")]
    segment: Vec<u64>,
    /// Most lines
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Bytes of each value to print
    #[arg(long, value_name = "N", default_value_t = 16)]
    value_bytes: usize,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    dir: &'a PathBuf,
    items: Vec<Item>,
    /// There is more than may be printed.
    more: bool,
}

/// A line.
#[derive(Default, Serialize)]
struct Item {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_segment: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lsn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyView>,
    #[serde(flatten)]
    value: ValueItem,
    /// In milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// The same for people.
    text: String,
}

/// What a line says of a value.
#[derive(Default, Serialize)]
struct ValueItem {
    #[serde(rename = "value", skip_serializing_if = "Option::is_none")]
    begin: Option<KeyView>,
    #[serde(rename = "value_bytes", skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    /// Where it lies: as the pointer says, in numbers or places.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// Lines, as many as there may be.
struct Lines {
    items: Vec<Item>,
    limit: usize,
    more: bool,
}

impl Lines {
    fn add(&mut self, item: Item) -> ControlFlow<()> {
        if self.items.len() >= self.limit {
            self.more = true;
            return ControlFlow::Break(());
        }
        self.items.push(item);
        ControlFlow::Continue(())
    }
}

impl Dump {
    /// Prints.
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let opened = Opened::open(&self.dir)?;
        let regions = opened.regions(self.common.region)?;
        let mut cut = BTreeSet::new();
        if !self.segment.is_empty() {
            let kept = regions.iter().flat_map(|region| cut_of(&opened, region));
            cut.extend(kept.filter_map(|kept| Some(kept.segment.ok()?.number)));
        }
        let has = |number: &u64| {
            let number = SegmentNumber(*number);
            let mut versions = regions.iter().filter_map(|region| region.version.as_ref());
            versions.any(|version| version.stored(number).is_some()) || cut.contains(&number)
        };
        if let Some(none) = self.segment.iter().find(|number| !has(number)) {
            return Err(CommandFailure::NotFound(format!(
                "there is no segment {none}"
            )));
        }
        let mut lines = Lines {
            items: Vec::new(),
            limit: self.limit,
            more: false,
        };
        // Broken off where there are enough.
        let _ = regions
            .iter()
            .try_for_each(|region| self.region(&opened, region, &mut lines));
        match self.common.output {
            OutputFormat::Json => print_json(&Report {
                schema: SCHEMA,
                dir: &self.dir,
                items: lines.items,
                more: lines.more,
            }),
            OutputFormat::Table => {
                lines.items.iter().for_each(|item| say(&item.text));
                if lines.more {
                    say(&format!("and more: --limit is {}", self.limit));
                }
            }
        }
        Ok(())
    }

    fn region(
        &self,
        opened: &Opened,
        region: &InspectedRegion,
        lines: &mut Lines,
    ) -> ControlFlow<()> {
        let id = region.entry.region;
        if self.segment.is_empty() {
            for record in &region.edits {
                let seq = record.edit.seq;
                let what = if record.edit.checkpoint {
                    "checkpoint"
                } else {
                    "edit"
                };
                lines.add(Item {
                    kind: what,
                    region: Some(id.0),
                    seq: Some(seq.0),
                    text: format!("{id}, {what}: {}", record.edit.to_string().trim_end()),
                    ..Item::default()
                })?;
            }
        }
        for problem in &region.problems {
            let text = problem.to_string();
            lines.add(bad(problem.offset, text))?;
        }
        let segments = region.version.iter().flat_map(|version| {
            version
                .table()
                .iter()
                .map(move |(number, stored)| (version, number, stored))
        });
        for (version, number, stored) in segments {
            if !self.segment.is_empty() && !self.segment.contains(&number.0) {
                continue;
            }
            lines.add(Item {
                kind: "segment",
                region: Some(id.0),
                number: Some(number.0),
                device_segment: Some(stored.place().0),
                text: format!(
                    "{id}, {number} at {}: {}",
                    stored.place(),
                    what(version, *number)
                ),
                ..Item::default()
            })?;
            let mut visit = |content: Content<'_>| lines.add(self.item(content));
            contents(version, *number, &opened.settings, &mut visit)?;
        }
        self.cut(opened, region, lines)
    }

    /// The cut segments: the records in them that were cut off.
    fn cut(&self, opened: &Opened, region: &InspectedRegion, lines: &mut Lines) -> ControlFlow<()> {
        let id = region.entry.region;
        for kept in cut_of(opened, region) {
            let number = kept.segment.as_ref().ok().map(|segment| segment.number);
            if !self.segment.is_empty() && !number.is_some_and(|n| self.segment.contains(&n.0)) {
                continue;
            }
            let name = number.map_or_else(|| "a segment".to_owned(), |number| number.to_string());
            lines.add(Item {
                kind: "cut segment",
                region: Some(id.0),
                number: number.map(|number| number.0),
                device_segment: Some(kept.place.0),
                text: format!(
                    "{id}, {name} at {}: cut segment of the {}, from {} on: {} whole records",
                    kept.place,
                    log_name(kept.log),
                    kept.cut_at,
                    kept.records
                ),
                ..Item::default()
            })?;
            let of = LogLayout {
                region: id,
                geometry: opened.settings.layout.log_geometry(),
            };
            let mut visit = |offset: u32, record: Record<'_>| {
                lines.add(self.item(Content::Record(offset, record)))
            };
            match cut_segments::visit(&opened.store, of, &kept, &mut visit) {
                Ok(visited) => visited?,
                Err(error) => lines.add(bad(0, format!("  {error}")))?,
            }
            if let Err(trouble) = &kept.segment {
                lines.add(bad(0, format!("  {trouble}")))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn item(&self, content: Content<'_>) -> Item {
        match content {
            Content::Leaf(offset, pairs) => Item {
                kind: "leaf",
                offset: Some(offset),
                text: format!("  leaf at byte {offset}: {pairs} pairs"),
                ..Item::default()
            },
            Content::Pair(key, entry) => self.pair(key, entry),
            Content::Record(offset, record) => self.record(offset, &record),
            Content::Values(values) => Item {
                kind: "values",
                text: format!("  {values} values"),
                ..Item::default()
            },
            Content::Bad(offset, what) => bad(offset, format!("  byte {offset}: {what}")),
        }
    }

    /// The first bytes of a value.
    fn begin(&self, value: &[u8]) -> KeyView {
        KeyView::of(&value[..value.len().min(self.value_bytes)])
    }

    fn pair(&self, key: &[u8], entry: Entry<'_>) -> Item {
        let mut item = Item {
            kind: "pair",
            key: Some(KeyView::of(key)),
            expires: entry.expiry().map(|expiry| expiry.0),
            text: format!("    {}", key.escape_ascii()),
            ..Item::default()
        };
        let rest = match entry {
            Entry::Tombstone => {
                item.kind = "removed";
                " removed".to_owned()
            }
            Entry::Inline(value) | Entry::Until(_, Lasting::Inline(value)) => {
                item.value.begin = Some(self.begin(value));
                item.value.bytes = Some(value.len());
                self.value_text(value)
            }
            Entry::Pointer { at, value_len }
            | Entry::Until(_, Lasting::Pointer { at, value_len }) => {
                item.value.at = Some(at.to_string());
                item.value.bytes = Some(usize::try_from(value_len).unwrap_or(usize::MAX));
                format!(" = {value_len} bytes at {at}")
            }
        };
        item.text.push_str(&rest);
        if let Some(expires) = item.expires {
            let _ = write!(item.text, ", expires at {expires}");
        }
        item
    }

    fn value_text(&self, value: &[u8]) -> String {
        let begin = &value[..value.len().min(self.value_bytes)];
        let dots = if begin.len() < value.len() { "…" } else { "" };
        format!(
            " = {} bytes \"{}\"{dots}",
            value.len(),
            begin.escape_ascii()
        )
    }

    fn record(&self, offset: u32, record: &Record<'_>) -> Item {
        let (lsn, key) = (record.lsn, record.key);
        let kind = match record.kind {
            RecordKind::Put => "put",
            RecordKind::Delete => "delete",
            RecordKind::DeleteRange => "delete range",
            _ => "record",
        };
        let mut text = format!("  byte {offset}, {lsn}: {kind} {}", key.escape_ascii());
        match record.kind {
            RecordKind::Put => text.push_str(&self.value_text(record.value)),
            RecordKind::DeleteRange => {
                let _ = write!(text, " to {}", record.value.escape_ascii());
            }
            _ => {}
        }
        for (flag, name) in [(record.chunk, ", goes on"), (record.more, ", of a group")] {
            if flag {
                text.push_str(name);
            }
        }
        if let Some(expires) = record.expiry {
            let _ = write!(text, ", expires at {expires}");
        }
        Item {
            kind,
            lsn: Some(lsn.0),
            offset: Some(offset),
            key: Some(KeyView::of(key)),
            value: ValueItem {
                begin: Some(self.begin(record.value)),
                bytes: Some(record.value.len()),
                at: None,
            },
            expires: record.expiry,
            text,
            ..Item::default()
        }
    }
}

fn bad(offset: u32, text: String) -> Item {
    Item {
        kind: "damage",
        offset: Some(offset),
        text,
        ..Item::default()
    }
}

/// What segment `number` is.
fn what(version: &Version, number: SegmentNumber) -> String {
    if let Some(entry) = version.log_segment(number) {
        return log_segment_in_words(&entry.segment);
    }
    if let Some(entry) = version.medium_log().get(&number) {
        return format!("medium log, {}", entry.segment);
    }
    let mut runs = version.runs();
    let found = runs.find_map(|(level, run)| {
        let mut entries = run.entries();
        let entry = entries.find(|entry| entry.segment.number == number)?;
        Some(format!(
            "L{level}, {}, {}",
            entry.segment.form, entry.segment
        ))
    });
    found.unwrap_or_default()
}
