//! What a configuration file may say.

use super::layers::{Complaint, Origin, resolve};
use super::*;

/// The configuration that `text` alone makes.
fn parse(text: &str) -> Result<ServerConfig, String> {
    let resolved = resolve(text, std::iter::empty(), &[]);
    let resolved = resolved.map_err(|complaints| in_words(&complaints))?;
    Ok(resolved.config)
}

const LEAST: &str = "[server]\nid = 2\ndata-dir = \".\"\n\
                     [coordinator]\ndir = \"../coordinator\"\n\
                     [fabric]\nshm-dir = \"/dev/shm/x\"\n";

#[test]
fn the_least_file_is_filled_up_with_defaults() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.resp.addr.port(), 7379);
    assert_eq!(config.storage, StorageSection::default());
    let based = config.based(Path::new("/data/server-2"));
    assert_eq!(based.server.data_dir, Path::new("/data/server-2/."));
    assert_eq!(
        based.coordinator.dir,
        Path::new("/data/server-2/../coordinator")
    );
    assert_eq!(based.fabric.shm_dir, Path::new("/dev/shm/x"));
}

/// The table of keys and the types agree: what is written has every key, and is read again.
#[test]
fn what_is_written_is_read_again() {
    let mut config = parse(LEAST).unwrap();
    config.memory.limit = Size::mib(77);
    config.storage.values.placement = PlacementName::Separated;
    config.storage.compaction = CompactionName::WholeLevel;
    config.storage.max_space_amplification = Factor(175);
    config.storage.values.medium_log_percent = 75;
    config.storage.values.large_bytes = Size(1500);
    config.storage.flush_interval = TimeSpan(Duration::from_millis(250));
    let text = config.to_toml();
    assert_eq!(parse(&text).unwrap(), config);
    let table: toml::Table = text.parse().unwrap();
    let written: usize = table
        .values()
        .map(|section| section.as_table().map_or(0, toml::Table::len))
        .sum();
    let typed: usize = toml::Table::try_from(&config)
        .unwrap()
        .values()
        .map(|section| section.as_table().map_or(0, toml::Table::len))
        .sum();
    assert_eq!((written, typed), (KEYS.len(), KEYS.len()));
}

#[test]
fn unknown_keys_are_refused_with_what_was_meant() {
    for (extra, expected) in [
        ("[storage]\nl0-byte = 1", "did you mean l0-bytes?"),
        ("[storge]\nl0-bytes = 1", "did you mean storage?"),
        ("[storage]\nshards = 1", "there are device-bytes, l0-bytes"),
        ("[memory]\nlimit = \"64M\"", "'M' is no unit"),
        ("[memory]\nlimit = -1", "not negative"),
        ("[storage]\nplacement = \"inline\"", "in-place"),
    ] {
        let error = parse(&format!("{LEAST}{extra}\n")).unwrap_err();
        assert!(error.contains(expected), "{extra}: {error}");
    }
    let error = parse("server = 1").unwrap_err();
    assert!(error.contains("write [server]"), "{error}");
    assert!(parse("[server]\nid = 1\n").is_err(), "data-dir is missing");
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_line() {
    let text = "[server]\nid = 1\nid-x = 2\n\n[storage]\nl0-byte = 1\ngrowth-factor = \"x\"\n\
                shm-dir = \"/x\"\n[strage]\nx = 1\n[memory]\nlimit = \"64M\"\n";
    let complaints = resolve(text, std::iter::empty(), &[]).err().unwrap();
    let lines: Vec<_> = complaints.iter().map(|c| c.origin.line()).collect();
    let told = in_words(&complaints);
    for line in [3, 6, 7, 8, 9, 12] {
        assert!(lines.contains(&Some(line)), "{line}: {told}");
    }
    for words in [
        "did you mean id?",
        "did you mean l0-bytes?",
        "storage.growth-factor: ",
        "did you mean shm-dir in [fabric]?",
        "did you mean storage?",
        "'M' is no unit",
        "server.data-dir is missing",
        "coordinator.dir is missing",
        "fabric.shm-dir is missing",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(complaints.len(), 9, "{told}");
    let broken = resolve("[server\nid = 1\n", std::iter::empty(), &[])
        .err()
        .unwrap();
    assert!(in_words(&broken).contains("line 1: not TOML"), "{broken:?}");
}

#[test]
fn flags_go_before_environment_and_that_before_the_file() {
    let text =
        format!("{LEAST}[storage]\nl0-bytes = 1048576\ngrowth-factor = 4\nnode-bytes = 4096\n");
    let said = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = [
        said("ARGOSY_STORAGE__L0_BYTES", "2MiB"),
        said("ARGOSY_STORAGE__GROWTH_FACTOR", "5"),
        said("ARGOSY_LOG", "debug"),
        said("HOME__X", "1"),
    ];
    let flags = ["storage.l0-bytes=3MiB".to_owned()];
    let resolved = resolve(&text, environment.into_iter(), &flags)
        .ok()
        .unwrap();
    let storage = &resolved.config.storage;
    assert_eq!((storage.l0_bytes, storage.growth_factor), (Size::mib(3), 5));
    let origin = |name| resolved.origins.get(&("storage", name)).cloned();
    assert_eq!(origin("l0-bytes"), Some(Origin::Flag));
    let variable = Origin::Environment("ARGOSY_STORAGE__GROWTH_FACTOR".to_owned());
    assert_eq!(origin("growth-factor"), Some(variable));
    assert_eq!(origin("node-bytes"), Some(Origin::File(11)));
    assert_eq!(origin("placement"), None);

    let wrong = [
        said("ARGOSY_STORAGE__L0_BYTE", "1"),
        said("ARGOSY_MEMORY_LIMIT", "1GiB"),
        said("ARGOSY_MEMORY", "1GiB"),
    ];
    let flags = ["storage=1".to_owned()];
    let complaints = resolve(LEAST, wrong.into_iter(), &flags).err().unwrap();
    let told: Vec<_> = complaints.iter().map(Complaint::to_string).collect();
    assert!(told[0].starts_with("ARGOSY_STORAGE__L0_BYTE: ") && told[0].contains("l0-bytes?"));
    assert!(
        told[1].contains("did you mean ARGOSY_MEMORY__LIMIT?"),
        "{told:?}"
    );
    assert!(told[2].contains("there is no such variable"), "{told:?}");
    assert!(told[3].contains("write section.key=value"), "{told:?}");
}

/// There is no password, so nobody listens for other machines by mistake.
#[test]
fn an_address_that_others_reach_has_to_be_meant() {
    for (addr, is_right) in [
        ("0.0.0.0:7379", false),
        ("192.168.1.7:7379", false),
        ("[::]:7379", false),
        ("[::1]:7379", true),
        ("127.0.0.2:7379", true),
    ] {
        let mut flags = vec![format!("resp.addr={addr}")];
        let refused = resolve(LEAST, std::iter::empty(), &flags).err();
        assert_eq!(refused.is_none(), is_right, "{addr}");
        assert!(refused.is_none_or(|told| in_words(&told).contains("resp.allow-remote = true")));
        flags.push("resp.allow-remote=true".to_owned());
        assert!(resolve(LEAST, std::iter::empty(), &flags).is_ok(), "{addr}");
    }
}

/// Entries of the slow log are bounded, and names of the admin port are a list.
#[test]
fn ports_are_set_up_as_they_say() {
    let text = format!(
        "{LEAST}[resp]\nslowlog-log-slower-than = \"250us\"\nslowlog-max-len = 7\n[admin]\nhosts = [\"a.example\"]\n"
    );
    let config = parse(&text).unwrap();
    let kept = config.resp.slow_log;
    assert_eq!(
        (kept.slower_than.0, kept.entries_max),
        (Duration::from_micros(250), 7)
    );
    assert!(config.admin.allowed().allow("a.example:80", None));
    assert!(!config.admin.allowed().allow("b.example", None));
    let flags = ["resp.slowlog-max-len=4097".to_owned()];
    let refused = resolve(LEAST, std::iter::empty(), &flags).err().unwrap();
    assert!(in_words(&refused).contains("slowlog-max-len: 4097 is over 4096"));
}

/// What has to be said is what has no default, and the defaults are right.
#[test]
fn the_default_configuration_is_right_and_names_what_is_required() {
    let text = ServerConfig::example().to_toml();
    assert_eq!(parse(&text), Ok(ServerConfig::example()));
    for key in &KEYS {
        let mut table = layers::table_of(&ServerConfig::example());
        let section = table[key.section].as_table_mut().unwrap();
        section.remove(key.name);
        let read = parse(&table.to_string());
        let required = keys::REQUIRED.contains(&(key.section, key.name));
        assert_eq!(read.is_err(), required, "{}.{}", key.section, key.name);
    }
    let refused = parse(&text.replace("node-bytes = \"4KiB\"", "node-bytes = 1000")).unwrap_err();
    assert!(refused.contains("storage.node-bytes"), "{refused}");
}
