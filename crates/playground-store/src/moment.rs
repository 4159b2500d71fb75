//! A table at one moment: the present objects, with those that have changed since as they were then.
//!
//! Pages of a list are read from the moment of the first, so a page must cost what it holds, not what the table holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::{Key, Object};

/// A table at one moment.
#[derive(Debug)]
pub struct Moment<'a> {
    present: &'a BTreeMap<Key, Arc<Object>>,
    /// What has changed since, as it was at the moment, if it was there.
    then: BTreeMap<&'a Key, Option<&'a Arc<Object>>>,
}

impl<'a> Moment<'a> {
    pub(super) fn new(
        present: &'a BTreeMap<Key, Arc<Object>>,
        then: BTreeMap<&'a Key, Option<&'a Arc<Object>>>,
    ) -> Self {
        Self { present, then }
    }

    /// The objects from a key on, in the order of keys.
    pub fn from(&self, start: &Key) -> impl Iterator<Item = &'a Arc<Object>> {
        let mut present =
            self.present.range(start.clone()..).filter(|(key, _)| !self.then.contains_key(key)).peekable();
        let then = self.then.range::<Key, _>(start..).filter_map(|(key, object)| Some((*key, (*object)?)));
        let mut then = then.peekable();
        std::iter::from_fn(move || {
            let take_then = match (present.peek(), then.peek()) {
                (Some((now, _)), Some((before, _))) => before < now,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let next = if take_then { then.next() } else { present.next() };
            next.map(|(_, object)| object)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name}});
        Arc::new(Object::file(value, revision, &[""; 0]))
    }

    #[test]
    fn what_changed_is_shown_as_it_was_and_in_its_place() {
        let all: Vec<_> = ["a", "b", "d", "f"].map(|name| object(name, 9)).into();
        let present = all.iter().map(|object| (object.key.clone(), Arc::clone(object))).collect();
        let (gone, changed) = (object("c", 2), object("f", 3));
        let new = Key::new("n", "b");
        let then = BTreeMap::from([(&gone.key, Some(&gone)), (&changed.key, Some(&changed)), (&new, None)]);
        let moment = Moment::new(&present, then);
        let from = |name: &str| -> Vec<(String, u64)> {
            moment.from(&Key::new("n", name)).map(|object| (object.key.name.to_string(), object.revision)).collect()
        };
        let whole = [("a", 9), ("c", 2), ("d", 9), ("f", 3)].map(|(name, revision)| (name.to_owned(), revision));
        assert_eq!(from(""), whole);
        assert_eq!(from("b"), whole[1..]);
        assert_eq!(from("e"), whole[3..]);
        assert!(from("g").is_empty());
    }
}
