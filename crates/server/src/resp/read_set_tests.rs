//! What is known of elements that came page by page, from either end.

use super::*;

fn stretch(from: &str, to: &str, direction: Direction) -> Stretch {
    Stretch {
        range: KeyRange::new(from, Some(to.as_bytes().to_vec())),
        direction,
        most: 100,
        keeps: Keeps::Pairs,
    }
}

fn pair(key: &str) -> (Vec<u8>, Vec<u8>) {
    (key.as_bytes().to_vec(), b"v".to_vec())
}

fn page(keys: &[&str], next: Option<&str>) -> Response {
    Response::Page {
        pairs: keys.iter().map(|key| pair(key)).collect(),
        next: next.map(|next| next.as_bytes().to_vec()),
    }
}

fn read(stretch: Stretch, pages: &[Response]) -> ReadSet {
    let mut wants = Wants::default();
    wants.stretch(stretch.clone());
    wants.stretch(stretch);
    let mut reading = Reading::of(wants);
    let mut set = ReadSet::default();
    for page in pages {
        assert!(reading.plan(&mut Scratch::default()).is_some());
        assert!(reading.take(page.clone(), &mut set));
    }
    assert!(reading.plan(&mut Scratch::default()).is_none());
    set
}

fn known(set: &ReadSet, from: &str, to: &str, direction: Direction) -> KeyRange {
    set.known_of(&stretch(from, to, direction).range, direction)
}

#[test]
fn pages_follow_each_other_up() {
    let pages = [page(&["b", "c"], Some("d")), page(&["d"], None)];
    let set = read(stretch("a", "m", Direction::Up), &pages);
    assert_eq!(set.covered.len(), 1);
    let all = stretch("a", "m", Direction::Up).range;
    assert_eq!(known(&set, "a", "m", Direction::Up), all);
    assert_eq!(known(&set, "a", "m", Direction::Down), all);
    assert_eq!(set.element(b"c"), Some(Some(&b"v"[..])));
    assert_eq!(set.element(b"e"), Some(None));
    assert_eq!(set.element(b"m"), None);
    // What lies partly beside is known as far as it goes, from the end at which it begins.
    let up = known(&set, "c", "z", Direction::Up);
    assert_eq!(up, KeyRange::new("c", Some(b"m".to_vec())));
    assert!(known(&set, "c", "z", Direction::Down).is_empty());
    assert!(known(&set, "A", "c", Direction::Up).is_empty());
    let down = known(&set, "A", "c", Direction::Down);
    assert_eq!(down, KeyRange::new("a", Some(b"c".to_vec())));
}

#[test]
fn pages_follow_each_other_down() {
    let pages = [page(&["l", "k"], Some("k")), page(&["b"], Some("b"))];
    let mut wanted = stretch("a", "m", Direction::Down);
    wanted.most = 3;
    let set = read(wanted, &pages);
    assert_eq!((set.covered.len(), set.answers), (1, 2));
    let down = known(&set, "a", "m", Direction::Down);
    assert_eq!(down, KeyRange::new("b", Some(b"m".to_vec())));
    assert!(known(&set, "a", "m", Direction::Up).is_empty());
    assert_eq!(set.element(b"a"), None);
    assert_eq!(set.elements_in(&down).count(), 3);
}

#[test]
fn what_is_not_kept_is_counted() {
    let pages = [page(&["b", "c"], Some("d")), page(&["d"], Some("f"))];
    let mut wanted = stretch("a", "m", Direction::Up);
    (wanted.keeps, wanted.most) = (Keeps::Nothing, 3);
    let set = read(wanted.clone(), &pages);
    let passed = set.passed(&wanted).unwrap();
    assert_eq!((passed.number, &passed.rest.from[..]), (3, &b"f"[..]));
    assert!(set.element(b"b").is_none() && !set.is_by_name());
    let set = read(wanted.clone(), &[page(&["b"], None)]);
    let passed = set.passed(&wanted).unwrap();
    assert!(passed.number == 1 && passed.rest.is_empty());
}
