//! Tests of the protocol: what is written is read again, and nothing else is.

use argosy_bench::rng::Rng;

use super::*;

fn line(id: usize, state: ServerState, process: Option<u32>) -> ServerLine {
    ServerLine {
        id,
        state,
        process,
        resp: "127.0.0.1:7379".parse().unwrap(),
        admin: "127.0.0.1:7480".parse().unwrap(),
    }
}

#[test]
fn requests_are_read_as_they_were_written() {
    for verb in Verb::ALL {
        for servers in [vec![0], vec![2, 0], (0..SERVERS_MAX).collect()] {
            let request = Request { verb, servers };
            let bytes = request.to_bytes();
            assert!(bytes.len() <= REQUEST_BYTES_MAX);
            assert_eq!(Request::parse(&bytes), Ok(request));
        }
    }
    let all = Request {
        verb: Verb::Status,
        servers: Vec::new(),
    };
    assert_eq!(all.to_bytes(), b"argosy-playground/1 status\n");
    assert_eq!(Request::parse(&all.to_bytes()), Ok(all));
}

#[test]
fn what_is_no_request_is_refused_by_name() {
    let long = [b'x'; REQUEST_BYTES_MAX + 1];
    let cases: [(&[u8], &str); 16] = [
        (b"", "cut off"),
        (b"argosy-playground/1 kill 1", "cut off"),
        (b"\n", "speaks argosy-playground/1"),
        (
            b"argosy-playground/2 kill 1\n",
            "speaks argosy-playground/1",
        ),
        (b"GET / HTTP/1.1\r\n", "speaks argosy-playground/1"),
        (b"argosy-playground/1\n", "none of the verbs"),
        (b"argosy-playground/1 \n", "none of the verbs"),
        (b"argosy-playground/1 Kill 1\n", "none of the verbs"),
        (b"argosy-playground/1 kill\n", "wants the number"),
        (b"argosy-playground/1 kill \n", "no number"),
        (b"argosy-playground/1 kill -1\n", "no number"),
        (b"argosy-playground/1 kill 1 +2\n", "no number"),
        (
            b"argosy-playground/1 kill 99999999999999999999\n",
            "no number",
        ),
        (b"argosy-playground/1 kill 1 1\n", "named twice"),
        (
            b"argosy-playground/1 status\nargosy-playground/1 kill 1\n",
            "behind",
        ),
        (&long, "longer than"),
    ];
    for (bytes, words) in cases {
        let shown = String::from_utf8_lossy(bytes);
        let refused = Request::parse(bytes).expect_err(&shown);
        assert_eq!(refused.kind, RefusalKind::Usage, "{shown}");
        assert!(refused.words.contains(words), "{shown}: {refused}");
    }
    assert_eq!(
        Request::parse(b"argosy-playground/1 kill \xff\n").map_err(|refused| refused.words),
        Err("the request is no text".to_owned())
    );
}

fn answers() -> Vec<Answer> {
    let states = ServerState::ALL.into_iter().enumerate();
    let servers = states.map(|(id, state)| line(id, state, (id > 0).then_some(4711)));
    let refused = |kind| Err(Refusal::new(kind, "server 7: there is none".to_owned()));
    let mut answers = vec![Ok(Vec::new()), Ok(servers.collect())];
    answers.extend(RefusalKind::ALL.map(refused));
    answers
}

#[test]
fn answers_are_read_as_they_were_written_and_not_when_cut_off() {
    for answer in answers() {
        let bytes = answer_to_bytes(&answer);
        for end in 0..bytes.len() {
            assert_eq!(parse_answer(&bytes[..end]), Err(NoAnswer::CutOff), "{end}");
        }
        assert_eq!(parse_answer(&bytes), Ok(answer));
        let mut more = bytes.clone();
        more.push(b'x');
        assert_eq!(parse_answer(&more), Err(NoAnswer::OtherVersion));
    }
    let other = b"argosy-playground/2\ndone\n";
    assert_eq!(parse_answer(other), Err(NoAnswer::OtherVersion));
    assert_eq!(
        answer_to_bytes(&Ok(vec![line(1, ServerState::Ended, None)])),
        b"argosy-playground/1\nserver 1 ended - 127.0.0.1:7379 127.0.0.1:7480\ndone\n"
    );
}

/// The path of a data directory may hold anything but a zero byte; an answer has lines, and a terminal obeys escapes.
#[test]
fn words_of_a_refusal_are_one_printable_line_of_bounded_length() {
    let words = format!(
        "cannot use a\nb\u{1b}[2J: {}",
        "\u{e4}".repeat(WORDS_BYTES_MAX)
    );
    let bytes = answer_to_bytes(&Err(Refusal::new(RefusalKind::Failed, words)));
    assert!(bytes.len() <= ANSWER_BYTES_MAX);
    let refused = parse_answer(&bytes).unwrap().unwrap_err();
    assert!(refused.words.starts_with("cannot use a b [2J: \u{e4}"));
}

#[test]
fn the_longest_answer_is_within_its_bound() {
    let longest = ServerLine {
        id: SERVERS_MAX - 1,
        state: ServerState::Stopped,
        process: Some(u32::MAX),
        resp: "[1111:1111:1111:1111:1111:1111:1111:1111]:65535"
            .parse()
            .unwrap(),
        admin: "[1111:1111:1111:1111:1111:1111:1111:1111]:65535"
            .parse()
            .unwrap(),
    };
    let bytes = answer_to_bytes(&Ok(vec![longest; SERVERS_MAX]));
    assert!(bytes.len() <= ANSWER_BYTES_MAX, "{}", bytes.len());
}

/// A flipped bit or random bytes give an error or something that could have been meant; nothing panics.
#[test]
fn damaged_bytes_are_refused_or_mean_what_they_say() {
    let mut rng = Rng::new(7, 0);
    let request = Request {
        verb: Verb::Restart,
        servers: vec![1, 20],
    };
    let mut refused = 0;
    for bit in 0..request.to_bytes().len() * 8 {
        let mut bytes = request.to_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match Request::parse(&bytes) {
            Ok(other) => assert_eq!(other.to_bytes(), bytes),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 200, "{refused}");
    for _ in 0..10_000 {
        let len = usize::try_from(rng.below(300)).unwrap();
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        assert!(Request::parse(&bytes).is_err());
        let mut answer = format!("{VERSION}\n").into_bytes();
        answer.extend(bytes);
        assert!(parse_answer(&answer).is_err());
    }
}
