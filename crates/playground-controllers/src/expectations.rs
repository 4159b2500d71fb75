//! Expectations: what a controller has written and its watch has not shown yet.
//!
//! Invariant: the expectations of an owner are satisfied only if the cache includes everything that was written for it,
//! so that nothing is decided twice, however late the watch is. A write whose response was lost leaves the owner's
//! state unknown until it is read from the server.
//! Must not depend on any kind.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt};
use muster_reflector::{Cache, Delta, Key, key_of};

use super::reconcile::WorkQueue;

/// The expectations for one kind of object, by owner.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    /// The newest resourceVersion that the watch has shown.
    observed: u64,
    lists_begun: u64,
    /// The number of the last list that was completed.
    list_completed: u64,
    pending: BTreeMap<Key, Vec<Expectation>>,
    unknown: BTreeSet<Key>,
}

#[derive(Debug)]
struct Expectation {
    until: Until,
    /// How many lists had begun before the write: a later one includes it.
    lists: u64,
}

#[derive(Debug)]
enum Until {
    /// The watch has reached this resourceVersion.
    Observed(u64),
    /// This object is gone or terminating.
    Gone(Key, String),
}

fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Expectations {
    /// Observes a watch event. After a list, all owners with expectations are enqueued.
    pub(crate) fn observe<K: Resource>(&mut self, event: &Delta<K>, queue: &mut WorkQueue) {
        match event {
            Delta::ListStarted => self.lists_begun += 1,
            Delta::ListDone => {
                self.list_completed = self.lists_begun;
                self.pending.keys().for_each(|owner| queue.add(owner.clone()));
            }
            Delta::Applied(object) | Delta::Deleted(object) | Delta::Listed(object) => {
                // During a list, objects come in the order of their names.
                if self.list_completed == self.lists_begun {
                    self.observed = self.observed.max(revision(object));
                }
            }
            Delta::NotServed => {}
        }
    }

    fn expect(&mut self, owner: &Key, until: Until) {
        let expectation = Expectation { until, lists: self.lists_begun };
        self.pending.entry(owner.clone()).or_default().push(expectation);
    }

    /// An object was created or updated for an owner; `object` is the response.
    pub(crate) fn expect_write<K: Resource>(&mut self, owner: &Key, object: &K) {
        self.expect(owner, Until::Observed(revision(object)));
    }

    /// An object was deleted for an owner.
    pub(crate) fn expect_deletion<K: Resource>(&mut self, owner: &Key, object: &K) {
        self.expect(owner, Until::Gone(key_of(object), object.uid().unwrap_or_default()));
    }

    /// It is unknown whether something was written for this owner.
    pub(crate) fn mark_unknown(&mut self, owner: &Key) {
        self.unknown.insert(owner.clone());
    }

    pub(crate) fn is_unknown(&self, owner: &Key) -> bool {
        self.unknown.contains(owner)
    }

    /// Resolves an unknown state: `live` is what the server has now, `seen` what the cache has of the same objects.
    pub(crate) fn resolve_unknown<'a, K: Resource + 'a>(
        &mut self,
        owner: &Key,
        live: &[K],
        seen: impl Iterator<Item = &'a K>,
    ) {
        self.unknown.remove(owner);
        let seen: Vec<&K> = seen.collect();
        for object in live {
            let is_seen = |one: &&K| one.uid() == object.uid() && revision(*one) >= revision(object);
            if !seen.iter().any(is_seen) {
                self.expect_write(owner, object);
            }
        }
        for object in seen.into_iter().filter(|object| object.meta().deletion_timestamp.is_none()) {
            let stays = live.iter().any(|one| one.uid() == object.uid() && one.meta().deletion_timestamp.is_none());
            if !stays {
                self.expect_deletion(owner, object);
            }
        }
    }

    /// Whether the cache includes everything that was written for the owner.
    pub(crate) fn is_satisfied<K: Resource<DynamicType = ()>>(&mut self, owner: &Key, cache: &Cache<K>) -> bool {
        if self.unknown.contains(owner) {
            return false;
        }
        let Some(pending) = self.pending.get_mut(owner) else { return true };
        pending.retain(|expectation| {
            let is_observed = match &expectation.until {
                Until::Observed(revision) => self.observed >= *revision,
                Until::Gone(key, uid) => cache.get(key).is_none_or(|object| {
                    object.uid().as_ref() != Some(uid) || object.meta().deletion_timestamp.is_some()
                }),
            };
            !is_observed && self.list_completed <= expectation.lists
        });
        if pending.is_empty() {
            self.pending.remove(owner);
        }
        !self.pending.contains_key(owner)
    }

    /// The owner is gone.
    pub(crate) fn forget(&mut self, owner: &Key) {
        self.pending.remove(owner);
        self.unknown.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_record::PodRecord;

    fn pod(name: &str, revision: u64) -> PodRecord {
        let metadata = serde_json::json!({
            "name": name, "namespace": "d", "uid": name, "resourceVersion": revision.to_string(),
        });
        serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap()
    }

    struct View {
        expectations: Expectations,
        cache: Cache<PodRecord>,
        queue: WorkQueue,
    }

    impl View {
        fn listed() -> Self {
            let mut view =
                Self { expectations: Expectations::default(), cache: Cache::default(), queue: WorkQueue::default() };
            view.see(Delta::ListStarted);
            view.see(Delta::ListDone);
            view
        }

        fn see(&mut self, event: Delta<PodRecord>) {
            self.expectations.observe(&event, &mut self.queue);
            self.cache.apply(event);
        }

        fn is_satisfied(&mut self) -> bool {
            self.expectations.is_satisfied(&owner(), &self.cache)
        }
    }

    fn owner() -> Key {
        ("d".to_owned(), "set".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn created_object_is_expected_even_if_it_is_deleted_again() {
        let mut view = View::listed();
        assert!(view.is_satisfied());
        view.expectations.expect_write(&owner(), &pod("a", 7));
        view.see(Delta::Applied(pod("b", 6)));
        assert!(!view.is_satisfied());
        view.see(Delta::Deleted(pod("a", 8)));
        assert!(view.is_satisfied());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_list_that_began_later_satisfies_a_write() {
        let mut view = View::listed();
        view.see(Delta::ListStarted);
        view.expectations.expect_write(&owner(), &pod("a", 7));
        view.see(Delta::Listed(pod("z", 9)));
        view.see(Delta::ListDone);
        assert!(!view.is_satisfied(), "the list may have been taken before the write");
        view.see(Delta::ListStarted);
        view.see(Delta::ListDone);
        assert!(view.is_satisfied());
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_state_is_resolved_from_the_server() {
        let mut view = View::listed();
        view.see(Delta::ListStarted);
        view.see(Delta::Listed(pod("kept", 1)));
        view.see(Delta::Listed(pod("deleted", 2)));
        view.see(Delta::ListDone);
        view.expectations.mark_unknown(&owner());
        assert!(!view.is_satisfied());
        let live = [pod("kept", 1), pod("created", 5)];
        let seen: Vec<PodRecord> = vec![pod("kept", 1), pod("deleted", 2)];
        view.expectations.resolve_unknown(&owner(), &live, seen.iter());
        assert!(!view.is_satisfied());
        view.see(Delta::Deleted(pod("deleted", 4)));
        assert!(!view.is_satisfied(), "one was created that the watch has not shown");
        view.see(Delta::Applied(pod("created", 5)));
        assert!(view.is_satisfied());
    }
}
