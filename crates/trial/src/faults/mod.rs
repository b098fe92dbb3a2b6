//! The table of failures: what each costs, measured on real clusters.
//!
//! 1. Each row has a playground of its own, of three servers, with some tens of MiB in it (`filler`), and a crowd of
//!    clients whose every request is recorded.
//! 2. `deeds` does what the row says, and mends it.
//! 3. It is waited until the cluster is whole again, for ten seconds at most (`look`).
//! 4. Every server is asked for every key, and all that was acknowledged is looked for. The histories of all keys are
//!    judged, as those of a trial are.
//! 5. `silence` finds how long regions were not served, and with what servers say in their logs (`said`) what of that
//!    was what. `material` makes the `row` of it.
//!
//! Read them in this order: `fault`, `deeds`, `said`, `silence`, `look`, `row`, `material`.
//!
//! ```text
//! DIR/ROW/data           the data of a row's cluster; removed at the end where nothing is wrong
//! DIR/ROW/playground     what the cluster says
//! DIR/ROW/wrong          what is wrong, in words
//! DIR/ROW/key-N.history  a history that is not possible
//! ```

mod deeds;
mod fault;
mod filler;
mod look;
mod material;
mod row;
mod said;
mod silence;

use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::Clock as _;
use argosy_device::SystemClock;

use crate::cluster::Cluster;
use crate::crowd::Crowd;
use crate::error::TrialError;
use crate::judge::judge;
use crate::keys::names_in;
use crate::record::{Parts, Record};
use crate::transactions::OfRegion;
use crate::trial::{write, write_history};
use deeds::{Deed, Scene, logs_of};
use filler::Filler;
use look::{fetched, look};
use material::{Material, not_done, row_of};
use said::{Log, Offset};
use silence::Times;

pub use fault::FaultKind;
pub use row::{AfterwardsRow, FaultRow, RequestsRow, ServedRow, heading};

/// Regions of each cluster: one for each server to lead, or all for one.
const REGIONS: usize = 3;

/// Members of each region.
const COPIES: usize = 3;

/// Bytes that are written before the load begins.
const FILLER_BYTES: usize = 16 << 20;

/// How long there is load before a failure, and behind all that comes of it.
const AROUND: Duration = Duration::from_secs(2);

/// How long it is waited until a cluster is whole again.
const WHOLE_WITHIN: Duration = Duration::from_secs(10);

/// How long the cluster may take to answer all reads, once the load is over.
const AFTERWARDS_MAX: Duration = Duration::from_secs(60);

/// How soon what is waited for is looked at again.
const AGAIN: Duration = Duration::from_millis(10);

/// How often it is looked whether a cluster is whole.
const LOOKED_EVERY: Duration = Duration::from_millis(100);

/// Most words that are told of what a cluster lacks.
const LACKS_MAX: usize = 3;

/// What is measured.
#[derive(Clone, Debug)]
pub struct FaultsSettings {
    /// The program whose clusters fail.
    pub program: PathBuf,
    /// Where their data go.
    pub dir: PathBuf,
    /// The rows.
    pub kinds: Vec<FaultKind>,
    /// What clients choose by.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct FaultsVerdict {
    /// The rows that were measured.
    pub rows: Vec<FaultRow>,
}

impl FaultsVerdict {
    /// 0 where nothing acknowledged was lost, every history is possible, and nothing else was wrong; otherwise 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.rows.iter().all(FaultRow::passed))
    }
}

/// Measures all rows, and tells each as soon as it is there.
///
/// # Errors
/// A cluster did not start, or what came of a row could not be written.
pub fn measure(
    settings: &FaultsSettings,
    mut tell: impl FnMut(&FaultRow),
) -> Result<FaultsVerdict, TrialError> {
    let mut verdict = FaultsVerdict::default();
    for kind in &settings.kinds {
        let row = measure_one(settings, *kind)?;
        tell(&row);
        verdict.rows.push(row);
    }
    Ok(verdict)
}

/// What was done, and what the cluster looked like then.
struct Done {
    deed: Deed,
    afterwards: AfterwardsRow,
}

fn measure_one(settings: &FaultsSettings, kind: FaultKind) -> Result<FaultRow, TrialError> {
    let dir = settings.dir.join(kind.name());
    let cluster = Cluster::start(&settings.program, &dir, REGIONS, kind.leads())?;
    let regions = cluster.regions()?;
    let ranges: Vec<_> = regions.iter().map(|region| region.range.clone()).collect();
    let names = names_in(&ranges)?;
    let record = Record::of(names.len());
    let transactions: Vec<_> = ranges.iter().map(|_| OfRegion::default()).collect();
    let crowd = Crowd {
        cluster: &cluster,
        names: &names,
        record: &record,
        transactions: &transactions,
        seed: settings.seed,
    };
    let filler = Filler::default();
    filler.write(cluster.servers[0].resp, FILLER_BYTES)?;
    let asked = crowd.ask_while(|end| {
        let scene = Scene {
            cluster: &cluster,
            end,
            filler: &filler,
        };
        act(&scene, kind)
    })?;
    let offset = Offset::of(&SystemClock);
    let said = logs_of(&cluster).iter_mut().flat_map(Log::news).collect();
    let latest = SystemClock.now() + AFTERWARDS_MAX;
    crowd.read_all(latest);
    let lost = filler.lost(cluster.servers[0].resp, latest);
    let lost = lost.unwrap_or_else(|error| {
        record.wrong(error.to_string());
        0
    });
    if let Err(error) = cluster.stop() {
        record.wrong(error.to_string());
    }
    let material = asked.done.map(|done| Material {
        times: Times {
            load: asked.began,
            failed: done.deed.failed,
            mended: done.deed.mended,
            ended: asked.ended,
        },
        samples: asked.samples,
        deed: done.deed,
        regions: regions.iter().map(|region| region.id).collect(),
        said,
        offset,
        afterwards: done.afterwards,
    });
    let parts = record.into_parts();
    let mut row = match material {
        Ok(material) => row_of(kind, &material, &parts),
        Err(error) => not_done(kind, &error, &parts),
    };
    row.requests.acknowledged += filler.acknowledged();
    row.requests.lost += lost;
    if lost > 0 {
        row.wrong
            .push(format!("{lost} acknowledged pairs are lost"));
    }
    tidy_up(&dir, &row, &parts)?;
    Ok(row)
}

/// Has a failure be done in the middle of the load, and looks at what comes of it.
fn act(scene: &Scene<'_>, kind: FaultKind) -> Result<Done, TrialError> {
    let wait = |span| scene.end.wait_until(SystemClock.now() + span);
    wait(AROUND);
    let deed = scene.carry_out(kind)?;
    let latest = deed.mended + WHOLE_WITHIN;
    let mut afterwards = AfterwardsRow::default();
    let seen = loop {
        let seen = look(scene.cluster, COPIES);
        let now = SystemClock.now();
        if seen.is_whole() {
            let after = now.since(deed.mended).as_secs_f64();
            afterwards.whole_after = Some(after);
            break seen;
        }
        if now > latest {
            break seen;
        }
        wait(LOOKED_EVERY);
    };
    afterwards.words.extend(deed.notes.iter().cloned());
    for server in &deed.servers {
        if let Some(fetched) = fetched(scene.cluster, *server) {
            afterwards.words.push(fetched.to_string());
        }
    }
    afterwards
        .words
        .extend(seen.lacks.into_iter().take(LACKS_MAX));
    wait(AROUND);
    Ok(Done { deed, afterwards })
}

/// Removes the data of a row where nothing is wrong; otherwise writes what is, and the histories that are not possible.
fn tidy_up(dir: &Path, row: &FaultRow, parts: &Parts) -> Result<(), TrialError> {
    if row.passed() {
        return std::fs::remove_dir_all(dir).map_err(TrialError::file("remove", dir));
    }
    write(&dir.join("wrong"), &row.wrong.join("\n"))?;
    for fault in judge(&parts.histories) {
        write_history(dir, fault.key, &parts.histories[fault.key])?;
    }
    Ok(())
}
