//! Lines of parts: every byte comes back, and what is no part is refused.

use super::super::format::{Format, LineContent, ParsedLine, parse, write_record};
use super::*;

fn element(name: &[u8], value: &[u8]) -> PartElement {
    PartElement {
        name: name.to_vec(),
        value: value.to_vec(),
    }
}

fn record(kind: CompositeType, elements: Vec<PartElement>, number: u64) -> ParsedLine {
    ParsedLine {
        key: b"k\xff".to_vec(),
        content: LineContent::Part(CompositePart {
            kind,
            elements,
            number,
            more: number != 3,
        }),
        expires: (number == 2).then_some(1_900_000_000_123),
    }
}

#[test]
fn parts_come_back_whatever_their_bytes_are() {
    let all: Vec<u8> = (0..=255).collect();
    for encoding in [Encoding::Auto, Encoding::Base64, Encoding::Hex] {
        for number in 1..=3 {
            let hash = vec![element(b"a", &all), element(b"", b""), element(&all, b"\"")];
            let sorted = vec![element(&all, b"inf"), element(b"m", b"-0.25")];
            let set = vec![element(b"\n", b""), element(&all, b"")];
            for (kind, elements) in [
                (CompositeType::Hash, hash),
                (CompositeType::SortedSet, sorted),
                (CompositeType::Set, set),
                (CompositeType::Set, Vec::new()),
            ] {
                let record = record(kind, elements, number);
                let mut line = Vec::new();
                write_record(encoding, &record, &mut line);
                assert_eq!(line.pop(), Some(b'\n'));
                assert!(!line.contains(&b'\n') && std::str::from_utf8(&line).is_ok());
                assert_eq!(parse(Format::Jsonl, &line), Ok(record));
            }
        }
    }
}

#[test]
fn lines_look_as_the_page_says() {
    let shown = |record: ParsedLine| {
        let mut line = Vec::new();
        write_record(Encoding::Auto, &record, &mut line);
        String::from_utf8(line).unwrap()
    };
    let hash = record(CompositeType::Hash, vec![element(b"f", b"v")], 2);
    assert_eq!(
        shown(hash),
        "{\"key\":{\"base64\":\"a/8=\"},\"type\":\"hash\",\"elements\":[[\"f\",\"v\"]],\"part\":2,\"more\":true,\
         \"expires_at_ms\":1900000000123}\n"
    );
    let set = record(
        CompositeType::Set,
        vec![element(b"m", b""), element(b"n", b"")],
        1,
    );
    assert_eq!(
        shown(set),
        "{\"key\":{\"base64\":\"a/8=\"},\"type\":\"set\",\"elements\":[\"m\",\"n\"],\"more\":true}\n"
    );
}

#[test]
fn what_is_no_part_is_refused() {
    let many = format!(
        r#"{{"key":"k","type":"set","elements":[{}"m"]}}"#,
        "\"m\",".repeat(LINE_ELEMENTS_MAX)
    );
    let name = "n".repeat(KEY_AND_NAME_BYTES_MAX);
    let long = format!(r#"{{"key":"k","type":"set","elements":["{name}"]}}"#);
    let member = format!(
        r#"{{"key":"k","type":"zset","elements":[["{}","1"]]}}"#,
        &name[1..]
    );
    for (line, said) in [
        (
            r#"{"key":"k","type":"list","elements":[]}"#,
            "'list' is not hash",
        ),
        (r#"{"key":"k","type":"hash"}"#, "missing field `elements`"),
        (r#"{"key":"k","elements":[]}"#, "missing field `type`"),
        (r#"{"key":"k","more":true}"#, "missing field `type`"),
        (
            r#"{"key":"k","part":1,"value":"v"}"#,
            "missing field `type`",
        ),
        (
            r#"{"key":"k","type":"hash","elements":[],"value":"v"}"#,
            "a value or a type",
        ),
        (
            r#"{"key":"k","type":"hash","elements":["f"]}"#,
            "is two in brackets",
        ),
        (
            r#"{"key":"k","type":"set","elements":[["f","v"]]}"#,
            "a member alone",
        ),
        (
            r#"{"key":"k","type":"set","elements":[7]}"#,
            "a member, or two in brackets",
        ),
        (
            r#"{"key":"k","type":"set","elements":["a",{"hex":"6"}]}"#,
            "element 2: '6' is not hexa",
        ),
        (
            r#"{"key":"k","type":"zset","elements":[["m","nan"]]}"#,
            "'nan' is no score",
        ),
        (
            r#"{"key":"k","type":"zset","elements":[["m",""]]}"#,
            "'' is no score",
        ),
        (
            r#"{"key":"k","type":"set","elements":[],"part":0}"#,
            "numbered from 1",
        ),
        (&many, "at most 8192 elements"),
        (&long, "over the limit of 4067"),
        (&member, "over the limit of 4059"),
    ] {
        let error = parse(Format::Jsonl, line.as_bytes()).unwrap_err();
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn pieces_are_bounded_and_leave_nothing_out() {
    let short: Vec<_> = (0..2500_u32)
        .map(|n| element(&n.to_le_bytes(), b"v"))
        .collect();
    let lens: Vec<_> = pieces(b"k", &short)
        .iter()
        .map(|piece| piece.len())
        .collect();
    assert_eq!(lens, [1000, 1000, 500]);
    assert_eq!(pieces(b"k", &short).concat(), short);
    let lens: Vec<_> = pieces(&[b'k'; 4000], &short[..100])
        .iter()
        .map(|piece| piece.len())
        .collect();
    assert_eq!(lens, [64, 36], "the key is in each element's");
    let long: Vec<_> = [100, 1 << 20, 100, PIECE_BYTES - 1000, 100]
        .map(|len| element(b"", &vec![0; len]))
        .to_vec();
    let lens: Vec<_> = pieces(b"k", &long)
        .iter()
        .map(|piece| piece.len())
        .collect();
    assert_eq!(lens, [1, 1, 3]);
    assert!(pieces(b"k", &[]).is_empty());
}
