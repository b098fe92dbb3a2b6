//! The status document: what a server knows of itself at one moment, as `/status` shows it and as
//! metrics are made from it. `docs/admin.md` describes most of its fields.
//!
//! Sizes are in bytes and times in seconds. What ends in `_total` only rises while the server runs.
//! Numbers are taken one after the other, while the server goes on: they need not agree to the last
//! digit.
//!
//! What belongs together is a struct of its own here; in the document its fields stand beside the others.

mod engine;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

pub use engine::{
    CompactionStatus, EngineStatus, FilterStatus, GcStatus, MediumLogStatus, MemtableStatus,
    StallStatus, WaitingStatus,
};

/// What the whole document is called; another one when a field is taken away or means something
/// else.
pub const SCHEMA: &str = "argosy.status.v1";

/// The document.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The program's.
    pub version: &'static str,
    /// This server.
    pub server: ServerStatus,
    /// The cluster, as the region map names it.
    pub cluster: ClusterStatus,
    /// What the server uses: its process, its memory and its device.
    #[serde(flatten)]
    pub resources: ResourceStatus,
    /// Where messages and requests come in.
    #[serde(flatten)]
    pub traffic: TrafficStatus,
    /// The regions that this server is a member of.
    pub regions: Vec<RegionStatus>,
    /// What replication has done.
    pub replication: ReplicationStatus,
    /// Snapshots that clients keep open.
    pub snapshots: SnapshotStatus,
}

/// What the server uses: its process, its memory and its device.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceStatus {
    /// The process, as the system counts.
    pub process: ProcessStatus,
    /// CPU and device bytes by what they were used for.
    pub work: Vec<WorkStatus>,
    /// The memory budget.
    pub memory: MemoryStatus,
    /// The device.
    pub device: DeviceStatus,
    /// What scrubbing has read, and found.
    pub scrub: ScrubStatus,
}

/// Where messages and requests come in.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficStatus {
    /// Links to the other servers.
    pub links: Vec<LinkStatus>,
    /// Where clients come in.
    pub transports: Vec<TransportStatus>,
    /// The front end of native clients, where there is one.
    pub native: Option<NativeStatus>,
}

/// Snapshots that clients keep open, of the regions that are served here.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SnapshotStatus {
    /// How many, each region's counted.
    pub open: usize,
    /// How long the oldest has been open.
    pub oldest_seconds: f64,
    /// Bytes of the device that only they keep.
    pub device_bytes: u64,
    /// Bytes of memtables that only they keep.
    pub memory_bytes: u64,
}

/// This server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerStatus {
    /// Its name in the map.
    pub id: u32,
    /// How often its device was opened.
    pub incarnation: u64,
    /// Since it was opened.
    pub uptime_seconds: f64,
    /// As `/readyz` says.
    pub ready: bool,
    /// What it waits for, where it is not ready.
    pub waits_for: Option<String>,
    /// As `/readyz?writes` says.
    pub ready_for_writes: bool,
    /// What that waits for.
    pub writes_wait_for: Option<String>,
    /// Whatever is not as it should be.
    pub degraded: Vec<String>,
    /// Pieces of background work that are known to be left.
    pub background_pending: usize,
}

/// The cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    /// Its random name.
    pub id: String,
    /// How copies are kept.
    pub replication: &'static str,
    /// All servers.
    pub servers: Vec<PeerStatus>,
    /// How many regions there are.
    pub regions: usize,
}

/// A server of the cluster, as the region map has it.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub id: u32,
    /// Where it speaks the Redis protocol.
    pub resp: String,
    /// Where it is watched.
    pub admin: String,
}

/// The process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProcessStatus {
    /// Its id.
    pub pid: u32,
    /// CPU of all its threads.
    pub cpu_seconds_total: f64,
    /// Memory that is resident, shared memory of windows and links included.
    pub resident_bytes: u64,
    /// Open files and sockets.
    pub open_fds: u64,
    /// When it began to serve, since 1970.
    pub start_time_seconds: f64,
}

/// What was used for one activity in one place.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WorkStatus {
    /// The region; none where the work was for no region in particular.
    pub region: Option<u32>,
    /// This server's role in it: `primary`, `backup`, `member` (its copy has failed) or `none`.
    pub role: &'static str,
    /// `request`, `log_replication`, `compaction`, `index_shipping`, `rewriting` or
    /// `other`.
    pub activity: &'static str,
    /// CPU.
    pub cpu_seconds_total: f64,
    /// Bytes read from the device.
    pub device_read_bytes_total: u64,
    /// Bytes written to it.
    pub device_write_bytes_total: u64,
}

/// The memory budget.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryStatus {
    /// `memory.limit`: the sum of the components' limits.
    pub limit_bytes: u64,
    /// The sum of what the components take.
    pub bytes: u64,
    /// `memtables`, `windows`, `links`, `clients` and `cache`.
    pub components: Vec<MemoryPart>,
    /// What the cache does.
    pub cache: CacheStatus,
}

/// A part of the budget.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryPart {
    /// Its name.
    pub component: &'static str,
    /// What it may take.
    pub limit_bytes: u64,
    /// What it takes.
    pub bytes: u64,
}

/// The cache.
#[derive(Clone, Debug, Serialize)]
pub struct CacheStatus {
    /// Indexes and filters that stay.
    pub pinned_bytes: u64,
    /// Such as found no room among the pins.
    pub pins_refused_total: u64,
    /// By kind of entry: `leaf`, `index`, `value`.
    pub kinds: Vec<CacheKind>,
}

/// What was asked for of one kind of entry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CacheKind {
    /// Its name.
    pub kind: &'static str,
    /// Found.
    pub hits_total: u64,
    /// Not found.
    pub misses_total: u64,
}

/// The device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeviceStatus {
    /// The room on a device.
    #[serde(flatten)]
    pub space: DeviceSpace,
    /// Whether there is no room for new data.
    pub full: bool,
    /// Whether a write or a sync has failed, so that none is done any more.
    pub failed: bool,
    /// What a device was asked for.
    #[serde(flatten)]
    pub io: DeviceIo,
}

/// The room on a device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeviceSpace {
    /// Its size.
    pub bytes: u64,
    /// Segments in use.
    pub used_bytes: u64,
    /// Segments that nobody uses, the reserve included.
    pub free_bytes: u64,
    /// What is kept for deletes and compactions.
    pub reserve_bytes: u64,
}

/// What a device was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeviceIo {
    /// Bytes read.
    pub read_bytes_total: u64,
    /// Bytes written.
    pub write_bytes_total: u64,
    /// Syncs.
    pub syncs_total: u64,
    /// The best way by which bytes come from it: `plain`, `io_uring`, `io_uring with registered buffers`.
    pub io: &'static str,
    /// Reads through io_uring.
    pub ring_reads_total: u64,
    /// Those of them into registered memory.
    pub fixed_reads_total: u64,
    /// Segments whose space was given back to the file system.
    pub discards_total: u64,
}

/// What reading everything now and then has found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScrubStatus {
    /// How long a pass over everything takes; 0: nothing is scrubbed.
    pub period_seconds: f64,
    /// Bytes read.
    pub bytes_total: u64,
    /// Segments read.
    pub segments_total: u64,
    /// Passes over a region that were finished.
    pub passes_total: u64,
    /// What scrubs found damaged and nobody has repaired, in words, with the keys that it concerns.
    pub damages: Vec<String>,
    /// Segments that are damaged now, as far as scrubs, reads and merges have found out.
    pub damaged_segments: u64,
    /// Damaged segments that were written again with what another member had.
    pub repaired_segments_total: u64,
    /// Damaged copies that were set aside and filled anew from another member.
    pub refilled_copies_total: u64,
    /// The regions of which a damaged copy is set aside.
    pub set_aside_regions: Vec<u32>,
    /// Device segments that these copies keep.
    pub set_aside_segments: u64,
}

/// The link to another server.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// The other server.
    pub peer: u32,
    /// Whether messages can be sent.
    pub open: bool,
    /// Whether the peer has shown no sign of life for two seconds.
    pub silent: bool,
    /// Bytes written into the peer's memory, by kind: `log`, `segments`, `fetched`, `edits`,
    /// `calls`, `control`.
    pub sent_bytes_total: Vec<SentStatus>,
    /// Bytes of the longest message that was sent, with its frame: at most 64 KiB, whatever is stored.
    pub longest_message_bytes: u64,
}

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SentStatus {
    /// What they were for.
    pub kind: &'static str,
    /// How many.
    pub bytes: u64,
}

/// A protocol by which clients come in.
#[derive(Clone, Debug, Serialize)]
pub struct TransportStatus {
    /// `resp` or `native`.
    pub transport: &'static str,
    /// Connections that are open.
    pub connections: u64,
    /// Connections accepted.
    pub connections_total: u64,
    /// Connections refused since there were too many.
    pub refused_total: u64,
    /// Connections ended since clients together held too much memory.
    pub evicted_total: u64,
    /// Requests answered, by command and result; what never happened is left out.
    pub requests_total: Vec<RequestStatus>,
}

/// The front end of native clients.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NativeStatus {
    /// Threads that carry out what needs the device.
    pub workers: usize,
    /// Bytes of memory that clients share with the server.
    pub memory_bytes: u64,
    /// Clients ended since they wrote what is no request.
    pub garbled_total: u64,
    /// Requests that wait for a worker.
    pub tasks_queued: u64,
    /// Requests that workers carried out.
    pub tasks_total: u64,
    /// Requests that found the queue full.
    pub queue_full_total: u64,
}

/// Requests of one command with one result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestStatus {
    /// The command, in small letters; `unknown` for what is none.
    pub command: &'static str,
    /// `ok`, `invalid`, `unavailable`, `busy` or `storage`.
    pub result: &'static str,
    /// How many.
    pub count: u64,
}

/// What replication has done.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReplicationStatus {
    /// Finished segments sent to a backup.
    pub segments_shipped_total: u64,
    /// Bytes fetched or received in catching up.
    pub catch_up_bytes_total: u64,
    /// Level segments whose pointers were rewritten.
    pub rewritten_segments_total: u64,
    /// Bytes of these segments.
    pub rewritten_bytes_total: u64,
    /// Pointers that were rewritten in them.
    pub rewritten_pointers_total: u64,
    /// Checkpoints offered to backups that had to catch up.
    pub offers_total: u64,
    /// Histories adopted from another member.
    pub adoptions_total: u64,
    /// Regions that were opened here from a copy that was cut.
    pub cut_promotions_total: u64,
    /// Whole records behind the end of the history that were given up when regions were opened here.
    pub cut_records_total: u64,
    /// Links that went down.
    pub links_lost_total: u64,
}

/// A region of this server.
#[derive(Clone, Debug, Serialize)]
pub struct RegionStatus {
    /// What the region map says of a region.
    #[serde(flatten)]
    pub group: GroupStatus,
    /// What a server is to a region.
    #[serde(flatten)]
    pub role: RoleStatus,
    /// Where a copy stands.
    #[serde(flatten)]
    pub at: PositionStatus,
    /// On the primary: its backups.
    pub backups: Vec<BackupStatus>,
    /// L1 first.
    pub levels: Vec<LevelStatus>,
    /// `recovery` and `large`.
    pub logs: Vec<LogStatus>,
    /// On a primary that is open: what its engine does.
    pub engine: Option<EngineStatus>,
}

/// What the region map says of a region.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    /// Its number.
    pub id: u32,
    /// Its first key.
    pub from: KeyStatus,
    /// The first key behind it; none where it has no end.
    pub to: Option<KeyStatus>,
    /// The number of its group's configuration.
    pub epoch: u32,
    /// The server that serves it.
    pub primary: u32,
    /// All that hold a copy.
    pub members: Vec<u32>,
}

/// What a server is to a region.
#[derive(Clone, Debug, Serialize)]
pub struct RoleStatus {
    /// `primary`, `backup`, or `member` where the copy cannot be used.
    pub role: &'static str,
    /// `opening`, `serving`, `degraded`, `following` or `failed`.
    pub state: &'static str,
    /// Why it is not `serving` or `following`.
    pub waits_for: Option<String>,
}

/// Where a copy stands.
#[derive(Clone, Debug, Serialize)]
pub struct PositionStatus {
    /// Up to here this member knows the history to be committed.
    pub commit_lsn: u64,
    /// The last write here.
    pub last_lsn: u64,
    /// The last version edit that is applied here.
    pub edit: u64,
    /// What levels that edit left: equal on members at the same edit.
    pub digest: String,
}

/// A key.
#[derive(Clone, Debug, Serialize)]
pub struct KeyStatus {
    /// What a person can read of it: bytes that are not printable are escaped.
    pub text: String,
    /// The key itself.
    pub base64: String,
}

impl KeyStatus {
    /// That of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self {
            text: key.escape_ascii().to_string(),
            base64: STANDARD.encode(key),
        }
    }
}

/// A backup, as its primary sees it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BackupStatus {
    /// The server.
    pub server: u32,
    /// `down`, `prepared`, `reported`, `syncing`, `live` or `failed`.
    pub state: &'static str,
    /// Its memory holds the history up to here.
    pub lsn: u64,
    /// How many writes it lacks.
    pub lsn_lag: u64,
    /// The last edit that it has applied since it was attached.
    pub edit: u64,
    /// How many edits it has not said that it has applied.
    pub edit_lag: u64,
}

/// A level.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LevelStatus {
    /// 1 is L1.
    pub level: u8,
    /// Sorted runs.
    pub runs: usize,
    /// Segments.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
}

/// A log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogStatus {
    /// `recovery` or `large`.
    pub log: &'static str,
    /// Segments that exist.
    pub segments: usize,
    /// Bytes of records in the sealed ones.
    pub bytes: u64,
    /// Of these, bytes that no level points to any more.
    pub dead_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_do_not_show_in_the_document() {
        let device = DeviceStatus {
            space: DeviceSpace {
                bytes: 1,
                used_bytes: 2,
                free_bytes: 3,
                reserve_bytes: 4,
            },
            full: false,
            failed: true,
            io: DeviceIo {
                read_bytes_total: 5,
                write_bytes_total: 6,
                syncs_total: 7,
                io: "plain",
                ring_reads_total: 8,
                fixed_reads_total: 9,
                discards_total: 10,
            },
        };
        let json = serde_json::to_string(&device).expect("plain data becomes JSON");
        let expected = r#"{"bytes":1,"used_bytes":2,"free_bytes":3,"reserve_bytes":4,"full":false,"failed":true,"#
            .to_owned()
            + r#""read_bytes_total":5,"write_bytes_total":6,"syncs_total":7,"io":"plain","ring_reads_total":8,"#
            + r#""fixed_reads_total":9,"discards_total":10}"#;
        assert_eq!(json, expected);
    }
}
