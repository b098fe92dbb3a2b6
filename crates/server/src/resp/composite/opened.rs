//! A composite while a command is at it.
//!
//! 1. [`Opened::of`] reads the head, and refuses a key that is bound to something else.
//! 2. The command reads and changes elements. Those that it names are asked for together
//!    ([`know`](Opened::know)), so that a command waits for them once.
//! 3. [`close`](Opened::close) writes the head, with the new number; one without elements is removed.

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{Direction, KeyRange};
use argosy_engine::Expiry;
use argosy_engine::composite::{
    Composite, CompositeType, Element, ElementsOf, KEY_AND_NAME_BYTES_MAX, Name, is_composite,
    may_be_composites,
};

use crate::resp::overlay::{Elements, Halt, Overlay};

/// What is said of a key that is bound to something of another type.
pub(in crate::resp) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// What is said of a head of a later format.
const UNKNOWN_FORMAT: &str =
    "ERR the key is bound to something that a later version has written (not applied)";

/// See the module documentation.
pub(super) struct Opened<'o, 'r> {
    overlay: &'o mut Overlay<'r>,
    head: Composite,
    /// There is such a composite.
    exists: bool,
    expiry: Expiry,
    /// An element was put or removed.
    changed: bool,
}

/// The composite that `key` is bound to; `None`: to nothing.
///
/// # Errors
/// It is bound to something else.
fn head_of(overlay: &Overlay<'_>, key: &[u8]) -> Result<Option<Composite>, Halt> {
    let Some(value) = overlay.value(key) else {
        return Ok(None);
    };
    match Composite::parse(value) {
        Some(head) => Ok(Some(head)),
        None if is_composite(value) => Err(Halt::Refused(UNKNOWN_FORMAT.to_owned())),
        None => Err(Halt::Refused(WRONG_TYPE.to_owned())),
    }
}

impl<'o, 'r> Opened<'o, 'r> {
    /// What `key` is bound to, which is to be of this type.
    ///
    /// # Errors
    /// It is of another one.
    pub(super) fn of(
        overlay: &'o mut Overlay<'r>,
        key: &[u8],
        kind: CompositeType,
    ) -> Result<Self, Halt> {
        let head = head_of(overlay, key)?;
        let exists = head.is_some();
        let head = head.unwrap_or_else(|| Composite {
            kind,
            version: 0,
            number: 0,
            key: key.to_vec(),
        });
        if head.kind != kind {
            return Err(Halt::Refused(WRONG_TYPE.to_owned()));
        }
        let expiry = overlay.expiry(key).0.map_or(Expiry::Never, Expiry::At);
        Ok(Self {
            overlay,
            head,
            exists,
            expiry,
            changed: false,
        })
    }

    /// How many fields or members there are.
    pub(super) const fn number(&self) -> u64 {
        self.head.number
    }

    /// Whether there is such a composite.
    pub(super) const fn exists(&self) -> bool {
        self.exists
    }

    /// The head, which names the elements.
    pub(super) const fn head(&self) -> &Composite {
        &self.head
    }

    /// Goes past the first `most` elements of a range, and keeps none. Returns how many there were, and what lies
    /// behind them.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(super) fn pass(
        &mut self,
        range: &KeyRange,
        direction: Direction,
        most: usize,
    ) -> Result<(u64, KeyRange), Halt> {
        match self.exists {
            true => self.overlay.pass(range, direction, most),
            false => Ok((0, range.clone())),
        }
    }

    /// A number below `bound`, which is not zero.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.overlay.below(bound)
    }

    /// The key of an element, if any can have it.
    fn key_of(&self, name: Name<'_>) -> Option<Vec<u8>> {
        let key = self.head.element(name).to_key();
        (self.exists && key.len() <= KEY_BYTES_MAX).then_some(key)
    }

    /// Asks for the fields of these names together.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(super) fn know<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<(), Halt> {
        let keys = names.into_iter();
        let keys = keys.filter_map(|name| self.key_of(Name::Field(name)));
        let keys: Vec<_> = keys.collect();
        self.overlay.know(keys)
    }

    /// The value of a field or member.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(super) fn field(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Halt> {
        match self.key_of(Name::Field(name)) {
            Some(key) => Ok(self.overlay.element(&key)?.map(<[u8]>::to_vec)),
            None => Ok(None),
        }
    }

    /// The first `most` fields or members from `from` on, and their values.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(super) fn fields_from(
        &mut self,
        from: Option<&[u8]>,
        most: usize,
    ) -> Result<Elements, Halt> {
        let mut range = self.head.fields();
        if let Some(from) = from {
            range.from = self.head.element(Name::Field(from)).to_key();
        }
        let elements = self.elements(&range, Direction::Up, most)?;
        let field = |(key, value): (Vec<u8>, Vec<u8>)| match Element::parse(&key)?.name {
            Name::Field(field) => Some((field.to_vec(), value)),
            Name::Score(..) => None,
        };
        Ok(elements.into_iter().filter_map(field).collect())
    }

    /// The first `most` elements of a range, from one of its ends.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(super) fn elements(
        &mut self,
        range: &KeyRange,
        direction: Direction,
        most: usize,
    ) -> Result<Elements, Halt> {
        match self.exists {
            true => self.overlay.elements(range, direction, most),
            false => Ok(Vec::new()),
        }
    }

    /// Binds a field or member. Returns whether there was none of this name.
    ///
    /// # Errors
    /// [`Halt::NotRead`], [`Halt::Limit`]; the name is too long.
    pub(super) fn put_field(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Halt> {
        self.create()?;
        let is_new = self.field(name)?.is_none();
        self.put(Name::Field(name), value)?;
        self.head.number += u64::from(is_new);
        Ok(is_new)
    }

    /// Removes a field or member. Returns the value that it had.
    ///
    /// # Errors
    /// [`Halt::NotRead`], [`Halt::Limit`].
    pub(super) fn remove_field(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Halt> {
        let before = self.field(name)?;
        if before.is_some() {
            self.remove(Name::Field(name))?;
            self.head.number = self.head.number.saturating_sub(1);
        }
        Ok(before)
    }

    /// Removes a field or member that is known to be there.
    ///
    /// # Errors
    /// [`Halt::Limit`].
    pub(super) fn forget_field(&mut self, name: &[u8]) -> Result<(), Halt> {
        self.head.number = self.head.number.saturating_sub(1);
        self.remove(Name::Field(name))
    }

    /// Has there be such a composite.
    fn create(&mut self) -> Result<(), Halt> {
        if !self.exists {
            if !may_be_composites(&self.head.key) {
                return Err(too_long(self.head.key.len()));
            }
            self.head.version = self.overlay.draw();
            self.exists = true;
        }
        Ok(())
    }

    /// Binds an element.
    pub(super) fn put(&mut self, name: Name<'_>, value: &[u8]) -> Result<(), Halt> {
        let key = self.head.element(name).to_key();
        if key.len() > KEY_BYTES_MAX {
            let over = key.len() - KEY_BYTES_MAX;
            return Err(too_long(KEY_AND_NAME_BYTES_MAX + over));
        }
        self.changed = true;
        self.overlay.put_any(&key, value, Expiry::Never)
    }

    /// Removes an element.
    pub(super) fn remove(&mut self, name: Name<'_>) -> Result<(), Halt> {
        let key = self.head.element(name).to_key();
        self.changed = true;
        self.overlay.delete_any(&key)
    }

    /// Writes the head, if anything has changed.
    ///
    /// # Errors
    /// [`Halt::Limit`].
    pub(super) fn close(self) -> Result<(), Halt> {
        match (self.changed, self.head.number) {
            (false, _) => Ok(()),
            (true, 0) => self.overlay.delete_any(&self.head.key),
            (true, _) => {
                let value = self.head.to_value();
                self.overlay.put_any(&self.head.key, &value, self.expiry)
            }
        }
    }
}

fn too_long(bytes: usize) -> Halt {
    Halt::Refused(format!(
        "ERR the key and the name of a field or member have {bytes} bytes together, and have at most \
         {KEY_AND_NAME_BYTES_MAX} (not applied)"
    ))
}

/// Binds `other` to a copy of the composite that `key` is bound to. `false`: it is bound to none.
///
/// # Errors
/// The copy is more than a batch takes; elements were not read.
pub(in crate::resp) fn copy(
    overlay: &mut Overlay<'_>,
    key: &[u8],
    other: &[u8],
) -> Result<bool, Halt> {
    if !overlay.value(key).is_some_and(is_composite) {
        return Ok(false);
    }
    let Some(head) = head_of(overlay, key)? else {
        return Ok(false);
    };
    if !may_be_composites(other) {
        return Err(too_long(other.len()));
    }
    let of = ElementsOf {
        key: &head.key,
        version: head.version,
    };
    let elements = overlay.elements(&of.all(), Direction::Up, usize::MAX)?;
    let expiry = overlay.expiry(key).0.map_or(Expiry::Never, Expiry::At);
    let copy = Composite {
        version: overlay.draw(),
        key: other.to_vec(),
        ..head
    };
    for (key, value) in elements {
        let Some(element) = Element::parse(&key) else {
            continue;
        };
        let key = copy.element(element.name).to_key();
        if key.len() > KEY_BYTES_MAX {
            return Err(too_long(KEY_AND_NAME_BYTES_MAX + key.len() - KEY_BYTES_MAX));
        }
        overlay.put_any(&key, &value, Expiry::Never)?;
    }
    overlay.put_any(other, &copy.to_value(), expiry)?;
    Ok(true)
}

/// How Redis would keep a composite, as far as the number of its elements tells.
pub(in crate::resp) fn encoding(head: &Composite) -> &'static str {
    /// The most elements that Redis keeps in one piece.
    const TOGETHER_MAX: u64 = 128;
    match head.kind {
        _ if head.number <= TOGETHER_MAX => "listpack",
        CompositeType::SortedSet => "skiplist",
        CompositeType::Hash | CompositeType::Set => "hashtable",
    }
}
