//! Several connections that apply batches at the same time. A key's lines go over the same connection,
//! in their order, so that of two lines of one key the later one counts.
//!
//! A batch that is refused for a passing reason, or whose connection breaks, is sent again, with
//! growing pauses, until it has been tried for as long as was asked: doing it twice is as good as
//! once. Then, and after any other error, the connection ends; what was given to it is dropped.
//!
//! Chunks of sorted input go as they are, in turns over the connections, to be [bulk-loaded](super::sorted).
//!
//! What expires, and values of over 1 MiB, go by themselves, and hashes, sorted sets and sets in
//! [parts](super::part_writer), through the Redis protocol whatever the others are written through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::{Clock, Remedy};
use argosy_client::{ClientError, Kv, RespClient};
use argosy_device::SystemClock;

use super::format::{LineWay, ParsedLine};
use super::part_writer;
use super::sorted::BulkLoaded;
use crate::connect::Endpoints;
use crate::failure::CommandFailure;

/// Bytes of keys and values that are sent together, where each goes by itself; one longer pair is sent alone.
const TOGETHER_BYTES: usize = 1 << 20;
/// How many of them.
const TOGETHER: usize = 256;

/// Chunks that a connection has bulk-loaded at the same time: what it may have being written.
const BULK_LOADED_TOGETHER: usize = 2;

/// The first pause before a batch is sent again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Some records, of the lines of one chunk.
pub(super) struct Batch {
    pub(super) chunk: u64,
    pub(super) records: Vec<ParsedLine>,
    /// They are a chunk of sorted input, and may be bulk-loaded.
    sorted: bool,
}

/// A batch that has ended.
pub(super) struct Finished {
    pub(super) chunk: u64,
    pub(super) result: Result<(), CommandFailure>,
}

/// See the module documentation.
pub(super) struct Writers {
    batches: Vec<SyncSender<Batch>>,
    finished: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    bulk_loaded: Arc<BulkLoaded>,
}

impl Writers {
    /// Begins with a thread for each of `clients`; each takes up to `queued` batches in advance.
    pub(super) fn start(
        clients: Vec<Box<dyn Kv>>,
        endpoints: &Endpoints,
        queued: usize,
        retry_for: Duration,
    ) -> Result<Self, CommandFailure> {
        let (tell, finished) = channel();
        let mut writers = Self {
            batches: Vec::new(),
            finished,
            threads: Vec::new(),
            stopping: Arc::default(),
            bulk_loaded: Arc::default(),
        };
        for (number, client) in clients.into_iter().enumerate() {
            let (give, batches) = sync_channel(queued);
            let writer = Writer {
                client,
                endpoints: endpoints.clone(),
                resp: None,
                retry_for,
                stopping: Arc::clone(&writers.stopping),
                bulk_loaded: Arc::clone(&writers.bulk_loaded),
                tell: tell.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("import-{number}"))
                .spawn(move || writer.run(&batches))
                .map_err(|error| {
                    CommandFailure::Failed(format!("cannot start a thread: {error}"))
                })?;
            writers.batches.push(give);
            writers.threads.push(thread);
        }
        Ok(writers)
    }

    /// What became of what was to be bulk-loaded.
    pub(super) fn bulk_loaded(&self) -> &BulkLoaded {
        &self.bulk_loaded
    }

    /// Hands a chunk of sorted input out, which makes one batch.
    pub(super) fn give_sorted(&self, chunk: u64, records: Vec<ParsedLine>) {
        let count = self.batches.len() as u64;
        let turn = usize::try_from(chunk % count).expect("connections are few");
        // One that has ended has said why.
        let _ = self.batches[turn].send(Batch {
            chunk,
            records,
            sorted: true,
        });
    }

    /// Hands `records` out. Returns how many batches they make.
    pub(super) fn give(&self, chunk: u64, records: Vec<ParsedLine>) -> usize {
        let mut parts: Vec<Vec<ParsedLine>> = self.batches.iter().map(|_| Vec::new()).collect();
        for record in records {
            let hash = argosy_base::checksum::extend(0, &record.key) as usize;
            let part = hash % parts.len();
            parts[part].push(record);
        }
        let mut given = 0;
        for (records, batches) in parts.into_iter().zip(&self.batches) {
            if records.is_empty() {
                continue;
            }
            given += 1;
            // One that has ended has said why.
            let _ = batches.send(Batch {
                chunk,
                records,
                sorted: false,
            });
        }
        given
    }

    /// Waits for a batch to end.
    pub(super) fn wait(&self) -> Finished {
        self.finished
            .recv()
            .expect("every batch that was given out ends")
    }

    /// A batch that has ended.
    pub(super) fn poll(&self) -> Option<Finished> {
        self.finished.try_recv().ok()
    }

    /// No batch is tried again from now on.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop();
        self.batches.clear();
        for thread in self.threads.drain(..) {
            // A panic has been told by its hook.
            let _ = thread.join();
        }
    }
}

struct Writer {
    client: Box<dyn Kv>,
    endpoints: Endpoints,
    /// Connected when it is needed.
    resp: Option<RespClient>,
    retry_for: Duration,
    stopping: Arc<AtomicBool>,
    bulk_loaded: Arc<BulkLoaded>,
    tell: Sender<Finished>,
}

impl Writer {
    fn run(mut self, batches: &Receiver<Batch>) {
        let mut failed = false;
        let mut behind = None;
        while let Some(first) = behind.take().or_else(|| batches.recv().ok()) {
            let mut together = vec![first];
            while together.iter().all(|batch| batch.sorted) && together.len() < BULK_LOADED_TOGETHER
            {
                let Ok(next) = batches.try_recv() else { break };
                match next.sorted {
                    true => together.push(next),
                    false => {
                        behind = Some(next);
                        break;
                    }
                }
            }
            let done = match failed {
                false => self.bulk_load(&together),
                true => vec![false; together.len()],
            };
            for (batch, done) in together.iter().zip(done) {
                let result = match failed {
                    false if done => Ok(()),
                    false => self.apply(&batch.records),
                    true => Err(CommandFailure::Failed(
                        "an earlier batch has failed".to_owned(),
                    )),
                };
                failed |= result.is_err();
                let chunk = batch.chunk;
                if self.tell.send(Finished { chunk, result }).is_err() {
                    return;
                }
            }
        }
    }

    /// Has sorted batches bulk-loaded. Tells of each whether it was.
    fn bulk_load(&mut self, batches: &[Batch]) -> Vec<bool> {
        let none = vec![false; batches.len()];
        let sorted = batches.iter().all(|batch| batch.sorted);
        if !sorted || !self.bulk_loaded.goes_on() {
            return none;
        }
        let client = match &mut self.resp {
            Some(client) => client,
            closed => match self.endpoints.resp() {
                Ok(client) => closed.insert(client),
                // Writing them tries again, and says why it cannot.
                Err(_) => return none,
            },
        };
        let chunks: Vec<&[ParsedLine]> = batches.iter().map(|batch| &batch.records[..]).collect();
        self.bulk_loaded.bulk_load(client, &chunks)
    }

    fn apply(&mut self, records: &[ParsedLine]) -> Result<(), CommandFailure> {
        for run in records.chunk_by(|one, next| one.way() == next.way()) {
            match run.first().map_or(LineWay::Together, ParsedLine::way) {
                LineWay::Alone => self.apply_alone(run)?,
                LineWay::InParts => self.apply_in_parts(run)?,
                LineWay::Together => self.apply_together(run)?,
            }
        }
        Ok(())
    }

    fn apply_in_parts(&mut self, records: &[ParsedLine]) -> Result<(), CommandFailure> {
        let client = match &mut self.resp {
            Some(client) => client,
            closed => closed.insert(self.endpoints.resp()?),
        };
        for group in part_writer::groups(records) {
            retried(self.retry_for, &self.stopping, || {
                part_writer::write(client, &group)
            })?;
        }
        Ok(())
    }

    fn apply_together(&mut self, records: &[ParsedLine]) -> Result<(), CommandFailure> {
        let writes: Vec<_> = records
            .iter()
            .map(|record| (record.key.as_slice(), record.value()))
            .collect();
        let client = &mut self.client;
        let stopping = &self.stopping;
        retried(self.retry_for, stopping, || client.write_many(&writes))
    }

    fn apply_alone(&mut self, records: &[ParsedLine]) -> Result<(), CommandFailure> {
        let client = match &mut self.resp {
            Some(client) => client,
            closed => closed.insert(self.endpoints.resp()?),
        };
        let mut left = records;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&ParsedLine| {
                bytes += record.key.len() + record.value().map_or(0, <[u8]>::len);
                bytes <= TOGETHER_BYTES
            };
            let run = left.iter().take(TOGETHER).take_while(fits).count();
            let (now, behind) = left.split_at(run.max(1));
            let expiries: Vec<Option<String>> = now
                .iter()
                .map(|record| record.expires.map(|at| at.to_string()))
                .collect();
            let commands: Vec<Vec<&[u8]>> = now
                .iter()
                .zip(&expiries)
                .map(|(record, expires)| {
                    let value = record.value().unwrap_or_default();
                    let mut words = vec![&b"SET"[..], &record.key, value];
                    if let Some(at) = expires {
                        words.extend([&b"PXAT"[..], at.as_bytes()]);
                    }
                    words
                })
                .collect();
            retried(self.retry_for, &self.stopping, || {
                client.commands(&commands)
            })?;
            left = behind;
        }
        Ok(())
    }
}

/// Does `what` until it succeeds, fails for good, or has failed for as long as `retry_for`.
pub(super) fn retried<T>(
    retry_for: Duration,
    stopping: &AtomicBool,
    mut what: impl FnMut() -> Result<T, ClientError>,
) -> Result<T, CommandFailure> {
    let began = SystemClock.now();
    let mut pause = PAUSES.0;
    let mut tries = 1_u64;
    loop {
        let error = match what() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let took = SystemClock.now().since(began);
        let again = error.remedy() == Remedy::Retry && !stopping.load(Ordering::Relaxed);
        if !again || took >= retry_for {
            let failure = CommandFailure::from(error);
            return Err(match (tries, failure) {
                (1, failure) => failure,
                (_, CommandFailure::Unreachable(text)) => CommandFailure::Unreachable(format!(
                    "{text}; tried {tries} times in {} s",
                    took.as_secs()
                )),
                (_, failure) => failure,
            });
        }
        // Woken early, it tries early.
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(PAUSES.1);
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argosy_base::Outcome;

    fn lost() -> ClientError {
        ClientError::Lost {
            what: "server 1 is gone".to_owned(),
            outcome: Outcome::Unknown,
        }
    }

    #[test]
    fn passing_errors_are_tried_again_and_others_are_not() {
        let stopping = AtomicBool::new(false);
        let mut left = 2;
        let done = retried(Duration::from_secs(60), &stopping, || {
            left -= 1;
            if left > 0 { Err(lost()) } else { Ok(7) }
        });
        assert_eq!((done.unwrap(), left), (7, 0));

        let mut tries = 0;
        let failed: Result<(), _> = retried(Duration::from_secs(60), &stopping, || {
            tries += 1;
            let what = "too long".to_owned();
            Err(ClientError::Invalid { what })
        });
        assert!(matches!(failed, Err(CommandFailure::Failed(_))) && tries == 1);

        let mut tries = 0;
        let failed: Result<(), _> = retried(Duration::from_millis(1), &stopping, || {
            tries += 1;
            Err(lost())
        });
        let Err(CommandFailure::Unreachable(text)) = failed else {
            panic!("it is tried later");
        };
        assert!(tries > 1 && text.contains("tried 2 times"), "{text}");
        stopping.store(true, Ordering::Relaxed);
        let mut tries = 0;
        let failed: Result<(), _> = retried(Duration::from_secs(60), &stopping, || {
            tries += 1;
            Err(lost())
        });
        assert!(failed.is_err() && tries == 1);
    }
}
