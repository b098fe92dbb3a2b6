//! Tests of the device in memory: see [`super`].

use super::*;

const LEN: u64 = 4 * SEGMENT_SIZE as u64;

fn write(device: &MemoryDevice, block: u64, byte: u8, blocks: usize) -> Ticket {
    let mut data = crate::Buffer::zeroed(blocks * BLOCK_SIZE);
    data.fill(byte);
    let range = 0..data.len();
    device.submit(Io::Write {
        at: block * BLOCK_SIZE as u64,
        data: Arc::new(data),
        range,
    })
}

fn read(device: &MemoryDevice, block: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![9; blocks * BLOCK_SIZE];
    device.read(block * BLOCK_SIZE as u64, &mut bytes).unwrap();
    bytes
}

/// The sectors of a block, by their first bytes; each sector is of one byte.
fn sectors(device: &MemoryDevice, block: u64) -> Vec<u8> {
    let bytes = read(device, block, 1);
    let of_one_byte = |sector: &[u8]| {
        assert!(sector.iter().all(|b| *b == sector[0]));
        sector[0]
    };
    bytes.chunks(SECTOR_SIZE).map(of_one_byte).collect()
}

#[test]
fn requests_wait_until_they_are_run() {
    let device = MemoryDevice::new(LEN, 1);
    let ticket = write(&device, 3, 7, 2);
    assert!(ticket.poll().is_none());
    assert_eq!(read(&device, 3, 1), [0; BLOCK_SIZE]);
    assert!(device.run_one());
    assert!(ticket.poll().unwrap().is_ok());
    assert_eq!(read(&device, 3, 2), [7; 2 * BLOCK_SIZE]);
    assert!(!device.run_one());
    assert_eq!(device.counters().write_bytes, 2 * BLOCK_SIZE as u64);
}

#[test]
fn one_seed_is_one_history() {
    let history = |seed| {
        let device = MemoryDevice::new(LEN, seed);
        let mut ended = vec![];
        let tickets: Vec<_> = (0..20u8).map(|n| write(&device, 0, n, 3)).collect();
        while device.run_one() {
            ended.extend(read(&device, 0, 1).first().copied());
        }
        tickets.iter().for_each(|t| t.poll().unwrap().unwrap());
        device.submit(Io::Sync);
        write(&device, 1, 100, 1);
        ended.extend(sectors(&device.crash(Crash::PowerLoss), 1));
        ended
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}

#[test]
fn what_a_sync_covers_survives_a_power_loss() {
    for seed in 0..100 {
        let device = MemoryDevice::eager(LEN, seed);
        write(&device, 0, 1, 4);
        device.submit(Io::Sync);
        assert_eq!(
            read(&device.crash(Crash::PowerLoss), 0, 4),
            [1; 4 * BLOCK_SIZE]
        );
    }
}

#[test]
fn a_sync_covers_what_had_completed_when_it_was_submitted() {
    let device = MemoryDevice::new(LEN, 1);
    let (early, late) = (write(&device, 0, 1, 1), write(&device, 1, 1, 1));
    while early.poll().is_none() {
        device.run_one();
    }
    let late_was_first = late.poll().is_some();
    let sync = device.submit(Io::Sync);
    // Overwritten after the sync was submitted, before it ended.
    let again = write(&device, 0, 2, 1);
    device.run_all();
    assert!(sync.poll().is_some() && again.poll().is_some());
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let after = device.crash_clone(Crash::PowerLoss, seed);
        seen.extend(sectors(&after, 0));
        if late_was_first {
            assert_eq!(sectors(&after, 1), [1; 8]);
        }
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [1, 2],
        "never 0, which came before"
    );
}

#[test]
fn a_power_loss_leaves_any_mixture_of_unsynced_blocks() {
    let device = MemoryDevice::eager(LEN, 1);
    write(&device, 0, 1, 3);
    device.submit(Io::Sync);
    write(&device, 0, 2, 3);
    write(&device, 1, 3, 1);
    let mut whole = BTreeSet::new();
    let mut torn = 0;
    for seed in 0..500 {
        let after = device.crash_clone(Crash::PowerLoss, seed);
        let contents: Vec<_> = (0..3).map(|block| sectors(&after, block)).collect();
        let mixed = contents
            .iter()
            .filter(|c| c.iter().any(|b| *b != c[0]))
            .count();
        assert!(mixed <= 1, "at most one block is torn");
        assert_eq!(mixed as u64, after.fault_counters().torn_blocks);
        torn += mixed;
        if mixed == 0 {
            let firsts: Vec<_> = contents.iter().map(|c| c[0]).collect();
            let lost = firsts
                .iter()
                .zip([2, 3, 2])
                .filter(|(a, b)| **a != *b)
                .count();
            assert_eq!(lost as u64, after.fault_counters().lost_unsynced_blocks);
            whole.insert(firsts);
        }
    }
    assert!(torn > 100, "{torn}");
    assert_eq!(
        whole.len(),
        2 * 3 * 2,
        "block by block, any content since the sync"
    );
    // What is left is durable.
    let after = device.crash_clone(Crash::PowerLoss, 1);
    let left = read(&after, 0, 3);
    assert_eq!(read(&after.crash(Crash::PowerLoss), 0, 3), left);
}

#[test]
fn a_kill_loses_nothing_that_completed() {
    let device = MemoryDevice::eager(LEN, 1).lazy();
    let done = write(&device, 0, 1, 8);
    device.run_all();
    assert!(done.poll().is_some());
    write(&device, 16, 2, 8);
    let mut kept = BTreeSet::new();
    for seed in 0..200 {
        let after = device.crash_clone(Crash::Kill, seed);
        assert_eq!(read(&after, 0, 8), [1; 8 * BLOCK_SIZE]);
        let bytes = read(&after, 16, 8);
        let blocks: Vec<_> = bytes.chunks(BLOCK_SIZE).map(|b| b[0]).collect();
        let count = blocks.iter().filter(|b| **b == 2).count();
        assert!(
            blocks[..count].iter().all(|b| *b == 2),
            "a prefix: {blocks:?}"
        );
        assert_eq!(
            after.fault_counters().lost_in_flight_writes,
            u64::from(count < 8)
        );
        kept.insert(count);
        // It is still not synced.
        let power = after.crash_clone(Crash::PowerLoss, seed);
        kept.extend((read(&power, 0, 8) != [1; 8 * BLOCK_SIZE]).then_some(100));
    }
    assert_eq!(kept.len(), 9 + 1);
}

#[test]
fn a_crashed_device_fails_everything() {
    let device = MemoryDevice::new(LEN, 1);
    let ticket = write(&device, 0, 1, 1);
    let after = device.crash(Crash::Kill);
    assert!(ticket.poll().unwrap().is_err());
    assert!(device.submit(Io::Sync).poll().unwrap().is_err());
    assert!(device.read(0, &mut [0; BLOCK_SIZE]).is_err());
    assert!(!device.run_one());
    assert!(
        after.submit(Io::Sync).poll().is_none(),
        "the new one goes on"
    );
    assert!(after.run_one());
}

#[test]
fn faults_come_when_they_are_told_to() {
    let device = MemoryDevice::eager(LEN, 1);
    let broken = MemoryDevice::eager(LEN, 1);
    broken.fail_after(OpKind::Write, 1);
    assert!(write(&broken, 0, 1, 1).poll().unwrap().is_ok());
    assert!(broken.failure().is_none());
    assert!(write(&broken, 1, 1, 1).poll().unwrap().is_err());
    assert!(broken.failure().is_some());
    for ticket in [write(&broken, 2, 1, 1), broken.submit(Io::Sync)] {
        let error = ticket.poll().unwrap().unwrap_err();
        assert_eq!(error.remedy(), argosy_base::Remedy::Reopen);
        assert!(error.to_string().contains("write of 4096 bytes"), "{error}");
    }
    assert_eq!(read(&broken, 0, 1), [1; BLOCK_SIZE], "reads go on");
    write(&device, 0, 1, 1).wait().unwrap();
    device.fail_after(OpKind::Read, 0);
    assert!(device.read(0, &mut [0; BLOCK_SIZE]).is_err());
    assert_eq!(read(&device, 0, 1), [1; BLOCK_SIZE]);

    device.set_full(true);
    let held = write(&device, 0, 2, 1);
    assert!(held.poll().is_none(), "it waits for room");
    assert_eq!(read(&device, 0, 1), [1; BLOCK_SIZE]);
    let error = device.wait(&write(&device, 1, 3, 1)).unwrap_err();
    assert!(error.is_full(), "who blocks is told: {error}");
    assert_eq!(error.remedy(), argosy_base::Remedy::Retry);
    assert!(device.failure().is_none());
    device.set_full(false);
    assert!(held.poll().unwrap().is_ok());

    device.flip_bit(5, 7);
    assert_eq!(read(&device, 0, 1)[5], 2 | 0x80);
    device.flip_bit(LEN - 1, 0);
    assert_eq!(
        read(&device, LEN / BLOCK_SIZE as u64 - 1, 1)[BLOCK_SIZE - 1],
        1
    );

    device.fail_after(OpKind::Sync, 0);
    let error = device.submit(Io::Sync).poll().unwrap().unwrap_err();
    assert_eq!(error.remedy(), argosy_base::Remedy::Reopen);
    assert!(device.submit(Io::Sync).poll().unwrap().is_err());
    assert!(write(&device, 0, 3, 1).poll().unwrap().is_err());
    assert_eq!(read(&device, 0, 1)[0], 2, "reads go on");
}

#[test]
fn a_discarded_segment_is_zero_and_its_neighbours_are_not() {
    let device = MemoryDevice::eager(LEN, 1);
    let blocks = SEGMENT_SIZE / BLOCK_SIZE;
    write(&device, 0, 1, 3 * blocks);
    device.discard(DeviceSegment(1));
    let bytes = read(&device, 0, 3 * blocks);
    let segments: Vec<_> = bytes
        .chunks(SEGMENT_SIZE)
        .map(|s| (s[0], s[SEGMENT_SIZE - 1]))
        .collect();
    assert_eq!(segments, [(1, 1), (0, 0), (1, 1)]);
    device.submit(Io::Sync);
}

#[test]
fn waiting_runs_what_is_waited_for() {
    let device = MemoryDevice::new(LEN, 1);
    let tickets: Vec<_> = (0..10).map(|n| write(&device, n, 1, 1)).collect();
    device.wait(&tickets[4]).unwrap();
    assert_eq!(read(&device, 4, 1), [1; BLOCK_SIZE]);
}

#[test]
#[should_panic(expected = "outside a device")]
fn a_write_behind_the_end_panics() {
    write(&MemoryDevice::eager(LEN, 1), LEN / BLOCK_SIZE as u64, 1, 1);
}

#[test]
fn a_misdirected_write_is_told_to_have_been_done() {
    let device = MemoryDevice::eager(LEN, 4);
    for block in 0..6 {
        write(&device, block, 1, 1).wait().unwrap();
    }
    device.misdirect_after(1, 2 * BLOCK_SIZE as i64);
    for block in 0..3 {
        write(&device, block, 2, 1).wait().unwrap();
    }
    let seen: Vec<u8> = (0..6).map(|block| read(&device, block, 1)[0]).collect();
    assert_eq!(seen, [2, 1, 2, 2, 1, 1]);
    let told = device.misdirected().unwrap();
    assert_eq!((told.at, told.landed, told.len), (4096, 3 * 4096, 4096));
    assert!(device.failure().is_none());

    // Never beyond either end.
    for by in [-8192, i64::MAX / 4096 * 4096] {
        let device = MemoryDevice::eager(LEN, 4);
        device.misdirect_after(0, by);
        write(&device, 1, 3, 1).wait().unwrap();
        let told = device.misdirected().unwrap();
        assert!(
            told.landed + 4096 <= LEN && told.landed != told.at,
            "{told:?}"
        );
        assert_eq!(read(&device, told.landed / 4096, 1)[0], 3);
    }
}
