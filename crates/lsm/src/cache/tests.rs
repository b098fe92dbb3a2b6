//! The cache: its budget, what it counts, and what it gives up first.

use argosy_engine::Excess;

use super::*;

fn key(number: u64) -> CacheKey {
    CacheKey::Value {
        region: RegionId(1),
        at: Pointer::from_raw(number),
    }
}

fn value(len: usize) -> Arc<[u8]> {
    Arc::from(vec![7; len])
}

/// Asks for `number`, and keeps it where it was not found.
fn ask(cache: &NodeCache, number: u64, len: usize) -> bool {
    let found = cache.value(key(number)).is_some();
    if !found {
        cache.count(Lookup::Value, false);
        cache.keep_value(key(number), value(len));
    }
    found
}

#[test]
fn what_is_kept_is_found_and_counted() {
    let cache = NodeCache::new(1 << 20);
    assert!(!ask(&cache, 1, 100));
    assert!(ask(&cache, 1, 100));
    assert!(cache.leaf(key(1)).is_none(), "a value is no leaf");
    let stats = cache.stats();
    assert_eq!((stats.value.hits, stats.value.misses), (1, 1));
    assert_eq!((stats.leaf.hits, stats.leaf.misses), (0, 0));
    // 100 bytes and the counters lie in 128.
    assert_eq!(stats.bytes, (128 + 8 + OVERHEAD_BYTES) as u64);
}

#[test]
fn an_entry_counts_with_what_an_allocator_takes_for_it() {
    for (bytes, rounded) in [
        (1, 16),
        (64, 64),
        (65, 80),
        (1024, 1024),
        (1025, 1280),
        (3584, 3584),
        (4096, 4096),
        (4097, 5120),
    ] {
        assert_eq!(footprint(bytes), rounded + rounded / 16, "{bytes}");
    }
}

#[test]
fn regions_and_kinds_are_told_apart() {
    let keys = [
        key(9),
        CacheKey::Value {
            region: RegionId(2),
            at: Pointer::from_raw(9),
        },
        CacheKey::Leaf {
            region: RegionId(1),
            segment: SegmentNumber(9),
            leaf: 0,
        },
        CacheKey::Leaf {
            region: RegionId(1),
            segment: SegmentNumber(9),
            leaf: 1,
        },
    ];
    let cache = NodeCache::new(1 << 20);
    for (place, key) in keys.iter().enumerate() {
        cache.keep_value(*key, value(place));
    }
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(cache.value(*key).map(|value| value.len()), Some(place));
    }
    let hashes: std::collections::BTreeSet<u64> =
        keys.iter().map(|key| FixedState.hash_one(key)).collect();
    assert_eq!(hashes.len(), keys.len());
}

#[test]
fn the_budget_is_never_passed() {
    for budget in [0, 1000, 100_000, 9 << 20, 40 << 20] {
        let cache = NodeCache::new(budget);
        for number in 0..20_000 {
            ask(&cache, number, 50 + (number % 97) as usize * 100);
            let bytes = cache.stats().bytes;
            assert!(bytes <= budget as u64, "{bytes} of {budget}");
        }
        if budget >= 100_000 {
            let bytes = cache.stats().bytes;
            assert!(bytes > budget as u64 / 2, "{bytes} of {budget}");
        }
    }
}

#[test]
fn the_longest_value_can_be_kept() {
    let cache = NodeCache::new(8 << 20);
    assert!(!ask(&cache, 1, 1 << 20));
    assert!(ask(&cache, 1, 1 << 20));
    let small = NodeCache::new(64 << 10);
    assert!(!ask(&small, 1, 1 << 20));
    assert!(!ask(&small, 1, 1 << 20), "no room for it");
}

/// What is asked for again and again survives a scan twenty times as long as the cache.
#[test]
fn a_scan_does_not_flush_the_cache() {
    let cache = NodeCache::new(1 << 20);
    let hot = 50;
    for _ in 0..10 {
        for number in 0..hot {
            ask(&cache, number, 8000);
        }
    }
    for number in 1000..1000 + 2600 {
        ask(&cache, number, 8000);
    }
    let kept = (0..hot)
        .filter(|number| cache.value(key(*number)).is_some())
        .count();
    assert!(kept as u64 >= hot * 9 / 10, "{kept} of {hot} are left");
}

#[test]
fn equal_requests_make_equal_hits() {
    let run = || {
        let cache = NodeCache::new(3 << 20);
        let mut number = 1u64;
        for _ in 0..30_000 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ask(&cache, (number >> 33) % 1500, 4000);
        }
        cache.stats()
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.value.hits > 1000 && first.value.misses > 1000);
}

/// Pins push entries out, and no more of both is held than the budget; a pin that ends makes room.
#[test]
fn pins_are_taken_off_the_budget() {
    let budget = 8 << 20;
    let cache = Arc::new(NodeCache::new(budget));
    let fill = |from: u64| {
        for number in from..from + 4000 {
            ask(&cache, number, 4000);
        }
    };
    fill(0);
    assert!(cache.stats().bytes > budget as u64 * 9 / 10);
    let mut pins = Vec::new();
    while let Some(pin) = cache.pin(70_000) {
        pins.push(pin);
        let stats = cache.stats();
        assert!(
            stats.bytes + stats.pinned_bytes <= budget as u64,
            "{stats:?}"
        );
    }
    let stats = cache.stats();
    assert_eq!(stats.pins_refused, 1);
    assert!(stats.pinned_bytes > budget as u64 * 11 / 16, "{stats:?}");
    assert!(stats.pinned_bytes <= budget as u64 * 12 / 16, "{stats:?}");
    fill(10_000);
    let full = cache.stats();
    assert!(
        full.bytes > budget as u64 / 8,
        "entries keep a quarter: {full:?}"
    );
    assert!(full.bytes + full.pinned_bytes <= budget as u64, "{full:?}");
    pins.clear();
    fill(20_000);
    let freed = cache.stats();
    assert_eq!(freed.pinned_bytes, 0);
    assert!(freed.bytes > budget as u64 * 8 / 10, "{freed:?}");
    assert!(NodeCache::new(0).budget.bytes == 0 && Arc::new(NodeCache::new(0)).pin(1).is_none());
}

#[test]
fn the_cache_gives_way_until_nothing_is_over_the_budget() {
    let cache = Arc::new(NodeCache::new(1600));
    let excess = Excess::new(Arc::<NodeCache>::clone(&cache), 1600);
    let charged = |resident| {
        excess.look(resident);
        excess.charged()
    };
    assert_eq!([charged(0), charged(1600), charged(1601)], [0, 0, 1]);
    assert_eq!([charged(2000), charged(2000)], [101, 201]);
    assert_eq!([charged(1600), charged(1500)], [201, 201], "all is well");
    assert_eq!([charged(1499), charged(1499)], [188, 176]);
    assert_eq!(charged(u64::MAX), 1500, "a sixteenth of the cache stays");
    (0..100).for_each(|_| excess.look(0));
    assert_eq!(excess.charged(), 0);
}

#[test]
fn what_is_given_away_is_given_back() {
    let cache = Arc::new(NodeCache::new(64 << 20));
    let room = 32 << 20;
    let excess = Excess::new(Arc::<NodeCache>::clone(&cache), 64 << 20);
    assert!(cache.has_room(room));
    excess.look(64 << 22);
    assert!(!cache.has_room(room), "three quarters are charged");
    drop(excess);
    assert!(cache.has_room(room));
}
