//! What a controller has written and its watch has not shown yet.
//!
//! Invariant: an owner is settled only if the view includes everything that was written for it, so that nothing is
//! decided twice, however late the watch is. A write whose answer was lost is a doubt, which a look at the server ends.
//! It must not know any kind.

use std::collections::{BTreeMap, BTreeSet};

use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use muster_playground_client::mirror::{Key, Mirror, key_of};

use super::reconcile::Queue;

/// One kind of object, by the owners for which it is written.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    /// The newest revision that the watch has shown.
    shown: u64,
    lists_begun: u64,
    /// The number of the last list that was seen whole.
    list_seen: u64,
    waits: BTreeMap<Key, Vec<Wait>>,
    doubts: BTreeSet<Key>,
}

#[derive(Debug)]
struct Wait {
    until: Until,
    /// How many lists had begun before the write: a later one shows it.
    lists: u64,
}

#[derive(Debug)]
enum Until {
    /// The watch has come this far.
    Shown(u64),
    /// This object is gone or on its way out.
    Gone(Key, String),
}

fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Unseen {
    /// Takes note of an event of the watch. After a list, everybody who waits is looked after again.
    pub(crate) fn see<K: Resource>(&mut self, event: &watcher::Event<K>, queue: &mut Queue) {
        match event {
            watcher::Event::Init => self.lists_begun += 1,
            watcher::Event::InitDone => {
                self.list_seen = self.lists_begun;
                self.waits.keys().for_each(|owner| queue.soon(owner.clone()));
            }
            watcher::Event::Apply(object) | watcher::Event::Delete(object) | watcher::Event::InitApply(object) => {
                // While a list is under way, objects come in the order of their names.
                if self.list_seen == self.lists_begun {
                    self.shown = self.shown.max(revision(object));
                }
            }
        }
    }

    fn wait(&mut self, owner: &Key, until: Until) {
        let wait = Wait { until, lists: self.lists_begun };
        self.waits.entry(owner.clone()).or_default().push(wait);
    }

    /// An object was made or changed for an owner, and this is the answer.
    pub(crate) fn wrote<K: Resource>(&mut self, owner: &Key, object: &K) {
        self.wait(owner, Until::Shown(revision(object)));
    }

    /// An object was deleted for an owner.
    pub(crate) fn deleted<K: Resource>(&mut self, owner: &Key, object: &K) {
        self.wait(owner, Until::Gone(key_of(object), object.uid().unwrap_or_default()));
    }

    /// Nobody knows whether something was written for this owner.
    pub(crate) fn doubt(&mut self, owner: &Key) {
        self.doubts.insert(owner.clone());
    }

    pub(crate) fn is_in_doubt(&self, owner: &Key) -> bool {
        self.doubts.contains(owner)
    }

    /// Ends a doubt: `live` is what the server has now, `seen` what the watch has shown of the same objects.
    pub(crate) fn compare<'a, K: Resource + 'a>(&mut self, owner: &Key, live: &[K], seen: impl Iterator<Item = &'a K>) {
        self.doubts.remove(owner);
        let seen: Vec<&K> = seen.collect();
        for object in live {
            let is_seen = |one: &&K| one.uid() == object.uid() && revision(*one) >= revision(object);
            if !seen.iter().any(is_seen) {
                self.wrote(owner, object);
            }
        }
        for object in seen.into_iter().filter(|object| object.meta().deletion_timestamp.is_none()) {
            let stays = live.iter().any(|one| one.uid() == object.uid() && one.meta().deletion_timestamp.is_none());
            if !stays {
                self.deleted(owner, object);
            }
        }
    }

    /// Whether the view includes all that was written for the owner.
    pub(crate) fn is_settled<K: Resource<DynamicType = ()>>(&mut self, owner: &Key, view: &Mirror<K>) -> bool {
        if self.doubts.contains(owner) {
            return false;
        }
        let Some(waits) = self.waits.get_mut(owner) else { return true };
        waits.retain(|wait| {
            let is_shown = match &wait.until {
                Until::Shown(revision) => self.shown >= *revision,
                Until::Gone(key, uid) => view.get(key).is_none_or(|object| {
                    object.uid().as_ref() != Some(uid) || object.meta().deletion_timestamp.is_some()
                }),
            };
            !is_shown && self.list_seen <= wait.lists
        });
        if waits.is_empty() {
            self.waits.remove(owner);
        }
        !self.waits.contains_key(owner)
    }

    /// The owner is gone.
    pub(crate) fn forget(&mut self, owner: &Key) {
        self.waits.remove(owner);
        self.doubts.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_card::PodCard;

    fn pod(name: &str, revision: u64) -> PodCard {
        let metadata = serde_json::json!({
            "name": name, "namespace": "d", "uid": name, "resourceVersion": revision.to_string(),
        });
        serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap()
    }

    struct View {
        unseen: Unseen,
        mirror: Mirror<PodCard>,
        queue: Queue,
    }

    impl View {
        fn listed() -> Self {
            let mut view = Self { unseen: Unseen::default(), mirror: Mirror::default(), queue: Queue::default() };
            view.see(watcher::Event::Init);
            view.see(watcher::Event::InitDone);
            view
        }

        fn see(&mut self, event: watcher::Event<PodCard>) {
            self.unseen.see(&event, &mut self.queue);
            self.mirror.take(event);
        }

        fn is_settled(&mut self) -> bool {
            self.unseen.is_settled(&owner(), &self.mirror)
        }
    }

    fn owner() -> Key {
        ("d".to_owned(), "set".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_made_is_waited_for_even_if_it_is_gone_again() {
        let mut view = View::listed();
        assert!(view.is_settled());
        view.unseen.wrote(&owner(), &pod("a", 7));
        view.see(watcher::Event::Apply(pod("b", 6)));
        assert!(!view.is_settled());
        view.see(watcher::Event::Delete(pod("a", 8)));
        assert!(view.is_settled());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_list_that_began_later_shows_a_write() {
        let mut view = View::listed();
        view.see(watcher::Event::Init);
        view.unseen.wrote(&owner(), &pod("a", 7));
        view.see(watcher::Event::InitApply(pod("z", 9)));
        view.see(watcher::Event::InitDone);
        assert!(!view.is_settled(), "the list may have been taken before the write");
        view.see(watcher::Event::Init);
        view.see(watcher::Event::InitDone);
        assert!(view.is_settled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_ends_with_a_look_at_the_server() {
        let mut view = View::listed();
        view.see(watcher::Event::Init);
        view.see(watcher::Event::InitApply(pod("kept", 1)));
        view.see(watcher::Event::InitApply(pod("deleted", 2)));
        view.see(watcher::Event::InitDone);
        view.unseen.doubt(&owner());
        assert!(!view.is_settled());
        let live = [pod("kept", 1), pod("made", 5)];
        let seen: Vec<PodCard> = vec![pod("kept", 1), pod("deleted", 2)];
        view.unseen.compare(&owner(), &live, seen.iter());
        assert!(!view.is_settled());
        view.see(watcher::Event::Delete(pod("deleted", 4)));
        assert!(!view.is_settled(), "one was made that the watch has not shown");
        view.see(watcher::Event::Apply(pod("made", 5)));
        assert!(view.is_settled());
    }
}
