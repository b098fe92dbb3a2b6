//! Logs: records with all their options, the segments and windows in which they stand, and the recovery of a
//! history from whatever is there.
#![no_main]

use std::ops::ControlFlow;

use argosy_base::{Epoch, Identity, Kind, LogKind, Lsn, RegionId, SegmentNumber};
use argosy_lsm::LogSegment;
use argosy_lsm::Settings;
use argosy_lsm::log::record::decode;
use argosy_lsm::log::verify::visit_records;
use argosy_lsm::log::{Geometry, Recovery, recover};
use libfuzzer_sys::fuzz_target;

const REGION: RegionId = RegionId(1);
const SEGMENT: usize = 32 << 10;

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    let settings = Settings {
        segment_bytes: SEGMENT,
        window_bytes: SEGMENT / 2,
        ..Settings::default()
    };
    let geometry = Geometry::of(&settings);
    let segment = |log, sealed: bool| LogSegment {
        log,
        ordinal: 0,
        number: SegmentNumber(1 + log as u64),
        epoch: Epoch(1),
        base_lsn: Lsn(1),
        end: sealed.then_some(SEGMENT as u32),
    };
    let mut read = |segment: &LogSegment, at: u32, out: &mut [u8]| {
        let skip = at as usize + usize::from(segment.log == LogKind::Large) * SEGMENT;
        let from = bytes.get(skip..).unwrap_or_default();
        let len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
        out[len..].fill(0);
        Ok::<_, ()>(())
    };
    match which % 4 {
        0 => {
            let _ = decode(bytes, Identity::of_server(Kind::LogRecord, 0), Lsn(1));
        }
        1 => {
            let of = (REGION, geometry);
            let sealed = which & 4 != 0;
            let mut visit = |_: u32, _: argosy_lsm::log::Record<'_>| ControlFlow::Continue(());
            let segment = segment(LogKind::Recovery, sealed);
            let _ = visit_records(of, &segment, &mut read, &mut visit);
        }
        _ => {
            let sealed = which & 4 != 0;
            let chains = LogKind::ALL.map(|log| [segment(log, sealed)]);
            let recovery = Recovery {
                region: REGION,
                geometry,
                chains: [&chains[0], &chains[1]],
                windows: [&[], &[]],
                replay_from: Lsn(1),
                durable: Lsn(u64::from(which >> 4)),
                past_holes: which & 8 != 0,
            };
            let _ = recover(&recovery, read, |_| {});
        }
    }
});
