//! A request for the values of several keys: their answers, put together.

use argosy_wire::native::put_value;

use crate::service::Response;

/// What has come so far.
#[derive(Debug)]
pub(super) struct Gather {
    values: Vec<Option<Vec<u8>>>,
    missing: usize,
    /// Bytes that the values take in the reply.
    bytes: usize,
    /// Most bytes that the reply's slot has room for.
    room: usize,
    failed: Option<Response>,
}

impl Gather {
    /// Expects a value for each of `keys` keys.
    pub(super) fn new(keys: usize, room: usize) -> Self {
        Self {
            values: vec![None; keys],
            missing: keys,
            bytes: 0,
            room,
            failed: None,
        }
    }

    /// Takes the answer for the key at `element`. Returns whether it was the last. Values that do not
    /// fit the reply are counted, but not kept.
    pub(super) fn take(&mut self, element: usize, response: Response) -> bool {
        match response {
            Response::Value(value) => {
                // Its sign and its length take at most so much.
                self.bytes += 5 + value.as_ref().map_or(0, Vec::len);
                if self.bytes <= self.room {
                    self.values[element] = value;
                } else {
                    self.values = Vec::new();
                    self.room = 0;
                }
            }
            failed => self.failed = Some(failed),
        }
        self.missing -= 1;
        self.missing == 0
    }

    /// The failure that the whole ends with, if there was one; otherwise appends the values to `out`,
    /// or where they do not fit as many bytes as they would have.
    pub(super) fn finish(self, out: &mut Vec<u8>) -> Option<Response> {
        if self.failed.is_none() {
            if self.room == 0 {
                out.resize(self.bytes, 0);
            }
            for value in &self.values {
                put_value(value.as_deref(), out);
            }
        }
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use argosy_wire::native::Values;

    use super::*;

    #[test]
    fn values_come_back_in_the_order_of_the_keys() {
        let mut gather = Gather::new(3, 1000);
        assert!(!gather.take(2, Response::Value(Some(b"c".to_vec()))));
        assert!(!gather.take(0, Response::Value(Some(b"a".to_vec()))));
        assert!(gather.take(1, Response::Value(None)));
        let mut out = Vec::new();
        assert_eq!(gather.finish(&mut out), None);
        let mut values = Values::of(&out);
        assert_eq!(values.next_value().unwrap(), Some(&b"a"[..]));
        assert_eq!(values.next_value().unwrap(), None);
        assert_eq!(values.next_value().unwrap(), Some(&b"c"[..]));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_kept() {
        let mut gather = Gather::new(3, 100);
        for element in 0..3 {
            gather.take(element, Response::Value(Some(vec![7; 90])));
        }
        assert!(gather.values.is_empty());
        let mut out = Vec::new();
        assert_eq!(gather.finish(&mut out), None);
        assert_eq!(out.len(), 3 * 95);
    }
}
