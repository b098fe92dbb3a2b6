//! Machines and control groups as they are met, in a directory each.

use super::*;

const MIB: u64 = 1 << 20;
const MEMINFO: &str = "MemTotal:        2097152 kB\nMemFree:          100000 kB\n";
const V1: &str = "33 25 0:28 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
                  34 25 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
const V2: &str = "24 1 0:22 / / rw - ext4 /dev/vda rw\n\
                  25 24 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

/// What there is where `/proc` says these things, and limits stand in these files.
fn memory(groups: &str, mounts: &str, limits: &[(&str, &str)]) -> Option<u64> {
    let root = tempfile::tempdir().unwrap();
    let proc = [
        ("proc/meminfo", MEMINFO),
        ("proc/self/cgroup", groups),
        ("proc/self/mountinfo", mounts),
    ];
    for (file, text) in proc.iter().chain(limits) {
        let file = root.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    memory_below(root.path())
}

#[test]
fn without_a_limit_it_is_the_machine() {
    let all = Some(2048 * MIB);
    assert_eq!(memory("", "", &[]), all);
    let top = [(
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    )];
    assert_eq!(memory("4:memory:/\n", V1, &top), all);
    let group = [("sys/fs/cgroup/a/memory.max", "max\n")];
    assert_eq!(memory("0::/a\n", V2, &group), all);
    let more = [("sys/fs/cgroup/a/memory.max", "4294967296\n")];
    assert_eq!(memory("0::/a\n", V2, &more), all);
}

#[test]
fn the_least_limit_on_the_way_up_counts() {
    let limits = |dir: &str, file: &str, texts: [&str; 3]| {
        let places = [dir.to_owned(), format!("{dir}/a"), format!("{dir}/a/b")];
        let places = places.map(|place| format!("{place}/{file}"));
        places
            .into_iter()
            .zip(texts.map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let cases = [
        ("inner", ["max", "536870912", "268435456"], 256),
        ("outer", ["max", "134217728", "268435456"], 128),
        ("outer-alone", ["max", "134217728", "max"], 128),
        ("none-but-the-top", ["1073741824", "max", "max"], 1024),
    ];
    for (name, texts, mib) in cases {
        let v2 = limits("sys/fs/cgroup", "memory.max", texts);
        let v2: Vec<_> = v2
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()))
            .collect();
        assert_eq!(memory("0::/a/b\n", V2, &v2), Some(mib * MIB), "{name}");
        let without = "9223372036854771712";
        let texts = texts.map(|text| if text == "max" { without } else { text });
        let v1 = limits("sys/fs/cgroup/memory", "memory.limit_in_bytes", texts);
        let v1: Vec<_> = v1
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()))
            .collect();
        let groups = "5:cpu,cpuacct:/elsewhere\n4:hugetlb,memory:/a/b\n0::/c\n";
        assert_eq!(memory(groups, V1, &v1), Some(mib * MIB), "{name}");
    }
}

/// Containers: the group is named from the machine's root, or from its own, and is what is mounted.
#[test]
fn a_container_finds_its_own_limit() {
    let mounts = "25 24 0:23 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
    let limits = [
        ("sys/fs/cgroup/memory.max", "536870912\n"),
        ("sys/fs/cgroup/in/memory.max", "104857600\n"),
    ];
    assert_eq!(memory("0::/docker/abc\n", mounts, &limits), Some(512 * MIB));
    assert_eq!(
        memory("0::/docker/abc/in\n", mounts, &limits),
        Some(100 * MIB)
    );
    assert_eq!(memory("0::/\n", V2, &limits), Some(512 * MIB));
    assert_eq!(memory("0::/../x\n", mounts, &limits), Some(512 * MIB));
}

#[test]
fn this_machine_has_memory() {
    assert!(memory_bytes().is_some_and(|bytes| bytes > MIB));
}
