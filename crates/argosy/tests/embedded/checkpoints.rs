//! Checkpoints, as a program sees them.

use argosy::{Error, Remedy};

use crate::support::{Dir, small};

#[test]
fn a_checkpoint_is_what_the_store_was() {
    let dir = Dir::new("checkpoint");
    let db = small().open(&dir).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_le_bytes(), vec![1; 1200]).unwrap();
    }
    let made = db.checkpoint("one").unwrap();
    assert_eq!(made.version, 2000);
    for n in 0..2000_u32 {
        db.put(n.to_le_bytes(), vec![2; 1200]).unwrap();
    }
    db.compact().unwrap();
    db.checkpoint("two").unwrap();
    db.close().unwrap();
    drop(db);

    let db = small().open(&dir).unwrap();
    let names: Vec<_> = db.checkpoints().into_iter().map(|each| each.name).collect();
    assert_eq!(names, ["one", "two"]);
    for (name, fill) in [("one", 1), ("two", 2)] {
        let then = db.open_checkpoint(name).unwrap();
        let all = then.iter().map(|pair| pair.unwrap());
        let right = all.filter(|(_, value)| *value == vec![fill; 1200]);
        assert_eq!(right.count(), 2000, "{name}");
        assert_eq!(then.get([7, 0, 0, 0]).unwrap(), Some(vec![fill; 1200]));
    }
    let used = db.stats().device_used_bytes;
    db.drop_checkpoint("one").unwrap();
    db.drop_checkpoint("two").unwrap();
    assert!(db.stats().device_used_bytes < used);
    assert!(db.checkpoints().is_empty());
    assert_eq!(db.iter().count(), 2000);
}

#[test]
fn what_is_wrong_with_a_name_is_said() {
    let dir = Dir::new("checkpoint-names");
    let db = small().open(&dir).unwrap();
    // Of a store without anything in it, too.
    db.checkpoint("a").unwrap();
    for error in [
        db.checkpoint("a").unwrap_err(),
        db.checkpoint("").unwrap_err(),
        db.open_checkpoint("b").unwrap_err(),
        db.drop_checkpoint("b").unwrap_err(),
    ] {
        assert!(matches!(error, Error::Checkpoint(_)), "{error}");
        assert_eq!(error.remedy(), Remedy::Correct);
    }
    assert_eq!(db.open_checkpoint("a").unwrap().iter().count(), 0);
}

/// The tool for directories of servers looks into this one, too.
#[cfg(feature = "cli")]
#[test]
fn checkpoints_are_inspected() {
    let dir = Dir::new("inspected");
    let db = argosy::Db::builder()
        .memory(64 << 20)
        .device_bytes(1 << 30)
        .open(&dir)
        .unwrap();
    for fill in [1, 2] {
        // The second time every other one.
        for n in (0..3000_u32).step_by(fill.into()) {
            db.put(n.to_le_bytes(), vec![fill; 1200]).unwrap();
        }
        if fill == 1 {
            db.checkpoint("before").unwrap();
        }
    }
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    let inspect = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_argosy"))
            .arg("inspect")
            .args(args)
            .arg(dir.as_ref())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let text = inspect(&["verify"]);
    assert!(text.contains("everything is what was written"), "{text}");
    let text = inspect(&[]);
    let line = text.lines().find(|line| line.starts_with("checkpoint "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.starts_with("checkpoint before: everything up to LSN 3000, "),
        "{line}"
    );
    assert!(!line.contains(", 0 of them its own"), "{line}");

    // What it alone keeps, and what of the large log is dead.
    let json: serde_json::Value = serde_json::from_str(&inspect(&["-o", "json"])).unwrap();
    let checkpoint = &json["checkpoints"][0];
    let number = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap();
    let parts = ["level_segments", "medium_segments", "log_segments"];
    let parts: u64 = parts.iter().map(|part| number(checkpoint, part)).sum();
    assert_eq!(parts, number(checkpoint, "segments"), "{checkpoint}");
    let own = checkpoint["pinned"].as_array().unwrap();
    assert_eq!(own.len() as u64, number(checkpoint, "own_segments"));
    assert_eq!(number(checkpoint, "own_bytes"), (own.len() as u64) << 21);
    let owners = json["segments"].as_array().unwrap();
    for pinned in own {
        let place = number(pinned, "device_segment");
        let mut of_it = owners
            .iter()
            .filter(|owner| number(owner, "device_segment") == place);
        let of_it = of_it.next().unwrap();
        assert_eq!(of_it["owners"][0]["part"], "checkpoint", "{of_it}");
    }
    let logs = json["regions"][0]["version"]["logs"].as_array().unwrap();
    let mut dead = 0;
    for log in logs {
        if log["log"] == "large" {
            assert!(number(log, "dead") + number(log, "referenced") <= number(log, "held"));
            dead += number(log, "dead");
        } else {
            assert_eq!(log["dead"], serde_json::Value::Null);
        }
    }
    assert!(dead > 1500 * 1200, "{json}");
}
