//! The logs of a region as tools read them: from the device, and from windows that are left.

use argosy_base::LogId;
use argosy_device::DeviceError;
use argosy_log::segment::Geometry;
use argosy_log::{Holes, RecoverError, Recovery, Replayed, recover};

use super::LeftWindows;
use crate::edit::LogSegment;
use crate::names::logs::{LOGS, Recovered};
use crate::version::Version;

/// The chain of `log`.
pub(super) fn chain_of(version: &Version, log: LogId) -> Vec<LogSegment> {
    version.log(log).iter().map(|entry| entry.segment).collect()
}

/// Reads bytes of a log segment from the device.
pub(super) fn read_log(
    version: &Version,
    segment: &LogSegment,
    offset: u32,
    out: &mut [u8],
) -> Result<(), DeviceError> {
    let stored = version.stored(segment.number);
    stored
        .expect("a chain's segments are stored")
        .read(offset, out)
}

/// Bytes of a log segment that may be other than zero.
pub(super) fn written_of(version: &Version, segment: &LogSegment) -> u32 {
    let stored = version.stored(segment.number);
    stored
        .expect("a chain's segments are stored")
        .written_up_to()
}

pub(super) fn recover_logs(
    version: &Version,
    geometry: Geometry,
    windows: &LeftWindows,
    visit: impl FnMut(Replayed<'_>),
) -> Result<Recovered, RecoverError<DeviceError>> {
    let chains = LOGS.map(|log| chain_of(version, log));
    let points: Vec<_> = version.log_points().collect();
    let recovery = Recovery {
        region: version.region(),
        geometry,
        chains: [&chains[0], &chains[1]],
        points: &points,
        windows: [&windows[0], &windows[1]],
        replay_from: version.replay_from(),
        durable: version.durable(),
        holes: Holes::Judged,
        written: &|segment| written_of(version, segment),
    };
    let read = |segment: &LogSegment, at: u32, out: &mut [u8]| read_log(version, segment, at, out);
    recover(&recovery, read, visit)
}
