//! Native clients and keys that are bound to hashes, sorted sets and sets: these are not told as values.

use super::*;

use argosy_client::native::ValueChange;
use argosy_engine::composite::{Composite, CompositeType};
use argosy_engine::{Expiry, WriteBatch, WriteOptions};

/// Binds `key` to a hash.
fn put_hash(server: &Running, key: &[u8]) {
    let head = Composite {
        kind: CompositeType::Hash,
        version: 7,
        number: 1,
        key: key.to_vec(),
    };
    let mut batch = WriteBatch::new();
    let put = batch.put_any(key, &head.to_value(), Expiry::Never);
    put.unwrap();
    let sink: Arc<dyn ReplySink> = Arc::new(Nobody);
    let request = Request::Write {
        batch: &batch,
        options: WriteOptions::default(),
    };
    let begun = server
        .fake
        .call(request, Reach::Device, ReplyTo::new(&sink, 0));
    begun.answered().unwrap();
}

#[test]
fn a_key_of_another_type_is_no_value() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"a", b"text").unwrap();
    put_hash(&servers[0], b"b");
    client.put(b"c", b"text").unwrap();
    let wrong = |error: ClientError| {
        assert!(matches!(error, ClientError::WrongType { .. }), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    };
    wrong(client.get(b"b").unwrap_err());
    wrong(client.get_with_version(b"b").unwrap_err());
    wrong(client.multi_get(&[&b"a"[..], b"b"]).unwrap_err());
    wrong(client.change(b"b", ValueChange::Add(1)).unwrap_err());
    // A page ends before it, and the next one is refused.
    let all = Span::of(KeyRange::new("", Some(b"m".to_vec())));
    let page = client.page(&all, 100).unwrap();
    assert_eq!(page.pairs, [(b"a".to_vec(), b"text".to_vec())]);
    wrong(client.page(&page.rest.unwrap(), 100).unwrap_err());
    client.put(b"b", b"text").unwrap();
    assert_eq!(client.get(b"b").unwrap().unwrap(), b"text");
}
