//! Scripts of lock libraries: by their digests, alone and against each other.

use super::*;

#[test]
fn every_digest_that_is_known_is_one() {
    for known in KNOWN {
        let digest = sha1::parse(known.sha1.as_bytes());
        assert_eq!(
            digest.as_ref().and_then(find),
            Some(known.does),
            "{}",
            known.sha1
        );
        assert_eq!(
            digest.map(|digest| sha1::text_of(&digest)).as_deref(),
            Some(known.sha1)
        );
    }
}
