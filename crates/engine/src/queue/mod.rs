//! Who is next: single pods and groups side by side.
//!
//! Order: priority, then the time they first asked (or their object was made), then the UID of that object, the greater
//! first, then the name. What failed is parked together with the
//! classes of the pods that found no room, and is woken only by an event that may help one of them. Like
//! single pods stand in one line: only the first is woken, the next when that one found a place. Nobody is
//! retried before its backoff is over, and nobody is forgotten.
//!
//! The queue must not know what makes anybody fit.

pub(crate) mod backoff;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diagnosis::Victims;
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId, PodId};

/// What stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entity {
    /// A pod that is scheduled alone.
    Pod(PodId),
    /// A group with members that wait.
    Group(GroupId),
}

/// The order of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: Reverse<i32>,
    pub(crate) asked_ms: Millis,
    /// Of whoever is ranked by his object.
    pub(crate) uid: Option<Reverse<Arc<str>>>,
    pub(crate) name: Arc<str>,
}

/// What a parked entity waits for: room for a pod of this class, asked for at this priority.
pub(crate) type Line = (ClassId, i32);

/// Where an entity is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ready to be tried.
    Active,
    /// Ready at this time.
    Backoff(Millis),
    /// Waits for room; looked at again at this time even without an event, if there is one.
    Parked { lines: Vec<Line>, again_at: Option<Millis> },
    /// Not to be tried until something about the entity itself changes.
    Held,
}

/// An entity in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) place: Place,
    /// Failures since it first asked.
    pub(crate) attempts: u32,
    /// Searches that ended without proof since it first asked.
    pub(crate) searches: u32,
    /// Not to be tried before this time.
    pub(crate) not_before: Millis,
    /// When it was first refused.
    pub(crate) refused_since: Option<Millis>,
    /// Claims of its that were in vain.
    pub(crate) vain_claims: u32,
    /// Whom it waits for, while a plan stands.
    pub(crate) awaits: Option<Box<Victims>>,
    /// Whether it was last refused for want of room that could drain, so that a claim might help.
    pub(crate) may_claim: bool,
}

/// The entities parked in one line.
#[derive(Clone, Debug, Default)]
struct Parked {
    pods: BTreeSet<(Rank, PodId)>,
    groups: BTreeSet<GroupId>,
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<Entity, Entry>,
    active: BTreeSet<(Rank, Entity)>,
    timers: BTreeSet<(Millis, Entity)>,
    parked: BTreeMap<Line, Parked>,
}

impl Queue {
    pub(crate) fn entry(&self, entity: Entity) -> Option<&Entry> {
        self.entries.get(&entity)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Entity, &Entry)> {
        self.entries.iter().map(|(entity, entry)| (*entity, entry))
    }

    /// Makes sure that the entity is known, with this rank; a new one is held until it is put somewhere.
    pub(crate) fn admit(&mut self, entity: Entity, rank: Rank) -> &Entry {
        match self.entries.get(&entity) {
            Some(entry) if entry.rank == rank => {}
            Some(entry) => {
                let place = entry.place.clone();
                self.unlist(entity);
                self.entries.get_mut(&entity).expect("just seen").rank = rank;
                self.list(entity, place);
            }
            None => {
                let entry = Entry {
                    rank,
                    place: Place::Held,
                    attempts: 0,
                    searches: 0,
                    not_before: 0,
                    refused_since: None,
                    vain_claims: 0,
                    awaits: None,
                    may_claim: false,
                };
                self.entries.insert(entity, entry);
            }
        }
        &self.entries[&entity]
    }

    /// Moves a known entity.
    pub(crate) fn put(&mut self, entity: Entity, place: Place) {
        self.unlist(entity);
        self.list(entity, place);
    }

    /// Makes a known entity ready as soon as its backoff is over.
    pub(crate) fn ready(&mut self, entity: Entity, now: Millis) {
        let not_before = self.entries[&entity].not_before;
        self.put(entity, if not_before <= now { Place::Active } else { Place::Backoff(not_before) });
    }

    /// Counts a failure, and says from when on the entity may be tried again.
    pub(crate) fn failed(&mut self, entity: Entity, now: Millis, pause: impl FnOnce(u32) -> Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can fail");
        entry.attempts = entry.attempts.saturating_add(1);
        entry.not_before = now.saturating_add(pause(entry.attempts));
        entry.refused_since.get_or_insert(now);
    }

    /// An entity waits for others to leave, which is no failure: it is only not looked at again too soon.
    pub(crate) fn waits(&mut self, entity: Entity, now: Millis, pause_ms: Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can wait");
        entry.not_before = now.saturating_add(pause_ms);
        entry.refused_since.get_or_insert(now);
    }

    /// Makes an entity ready whom those have left for that it waited for.
    pub(crate) fn hurry(&mut self, entity: Entity, now: Millis) {
        let Some(entry) = self.entries.get_mut(&entity) else { return };
        if matches!(entry.place, Place::Parked { .. } | Place::Backoff(_)) {
            entry.not_before = now;
            self.put(entity, Place::Active);
        }
    }

    /// Says whether a claim might help a known entity.
    pub(crate) fn set_may_claim(&mut self, entity: Entity, may_claim: bool) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.may_claim = may_claim;
        }
    }

    /// Remembers whom a known entity waits for.
    pub(crate) fn set_awaits(&mut self, entity: Entity, awaits: Option<Box<Victims>>) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.awaits = awaits;
        }
    }

    /// Counts a claim that was in vain.
    pub(crate) fn claimed_in_vain(&mut self, entity: Entity) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.vain_claims = entry.vain_claims.saturating_add(1);
        }
    }

    /// Makes sure that a known entity is not tried before a time.
    pub(crate) fn delay(&mut self, entity: Entity, not_before: Millis, now: Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be delayed");
        entry.not_before = entry.not_before.max(not_before);
        if entry.place == Place::Active && entry.not_before > now {
            self.ready(entity, now);
        }
    }

    /// Counts a search that ended without proof; says which it was.
    pub(crate) fn searched(&mut self, entity: Entity) -> u32 {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be searched for");
        entry.searches = entry.searches.saturating_add(1);
        entry.searches
    }

    /// Forgets an entity.
    pub(crate) fn remove(&mut self, entity: Entity) -> Option<Entry> {
        self.unlist(entity);
        self.entries.remove(&entity)
    }

    /// The next to be tried; it is held until it is put somewhere.
    pub(crate) fn pop(&mut self) -> Option<Entity> {
        let (_, entity) = self.active.pop_first()?;
        self.entries.get_mut(&entity).expect("a listed entity is known").place = Place::Held;
        Some(entity)
    }

    /// Makes ready whoever's time has come.
    pub(crate) fn tick(&mut self, now: Millis) {
        while let Some((_, entity)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.ready(entity, now);
        }
    }

    /// When `tick` or `pop` would do something: at once, later, or never.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        if self.active.is_empty() { self.timers.first().map(|(due, _)| *due) } else { Some(0) }
    }

    /// The lines that somebody is parked in.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> {
        self.parked.keys().copied()
    }

    /// Wakes the first single pod of a line and every group in it.
    pub(crate) fn wake(&mut self, line: Line, now: Millis) {
        let Some(parked) = self.parked.get(&line) else { return };
        for group in parked.groups.clone() {
            self.ready(Entity::Group(group), now);
        }
        self.wake_next_pod(line, now);
    }

    /// Wakes one entity if it is parked.
    pub(crate) fn wake_parked(&mut self, entity: Entity, now: Millis) {
        if self.entry(entity).is_some_and(|entry| matches!(entry.place, Place::Parked { .. })) {
            self.ready(entity, now);
        }
    }

    /// Wakes those in a line who wait for others to leave.
    pub(crate) fn wake_those_who_await(&mut self, line: Line, now: Millis) {
        let Some(parked) = self.parked.get(&line) else { return };
        let pods = parked.pods.iter().map(|(_, pod)| Entity::Pod(*pod));
        let all = pods.chain(parked.groups.iter().map(|group| Entity::Group(*group)));
        let who: Vec<Entity> = all.filter(|entity| self.entries[entity].awaits.is_some()).collect();
        for entity in who {
            self.ready(entity, now);
        }
    }

    /// Wakes the first single pod of a line.
    pub(crate) fn wake_next_pod(&mut self, line: Line, now: Millis) {
        let first = self.parked.get(&line).and_then(|parked| parked.pods.first()).map(|(_, pod)| *pod);
        if let Some(pod) = first {
            self.ready(Entity::Pod(pod), now);
        }
    }

    fn list(&mut self, entity: Entity, place: Place) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be listed");
        entry.place = place;
        match &entry.place {
            Place::Active => drop(self.active.insert((entry.rank.clone(), entity))),
            Place::Backoff(until) => drop(self.timers.insert((*until, entity))),
            Place::Held => {}
            Place::Parked { lines, again_at } => {
                for line in lines {
                    let parked = self.parked.entry(*line).or_default();
                    match entity {
                        Entity::Pod(pod) => drop(parked.pods.insert((entry.rank.clone(), pod))),
                        Entity::Group(group) => drop(parked.groups.insert(group)),
                    }
                }
                if let Some(due) = again_at {
                    self.timers.insert((*due, entity));
                }
            }
        }
    }

    fn unlist(&mut self, entity: Entity) {
        let Some(entry) = self.entries.get_mut(&entity) else { return };
        let rank = entry.rank.clone();
        match std::mem::replace(&mut entry.place, Place::Held) {
            Place::Active => drop(self.active.remove(&(rank, entity))),
            Place::Backoff(until) => drop(self.timers.remove(&(until, entity))),
            Place::Held => {}
            Place::Parked { lines, again_at } => {
                for line in lines {
                    self.unpark(line, entity, &rank);
                }
                if let Some(due) = again_at {
                    self.timers.remove(&(due, entity));
                }
            }
        }
    }

    fn unpark(&mut self, line: Line, entity: Entity, rank: &Rank) {
        let Some(parked) = self.parked.get_mut(&line) else { return };
        match entity {
            Entity::Pod(pod) => drop(parked.pods.remove(&(rank.clone(), pod))),
            Entity::Group(group) => drop(parked.groups.remove(&group)),
        }
        if parked.pods.is_empty() && parked.groups.is_empty() {
            self.parked.remove(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(priority: i32, asked_ms: Millis, name: &str) -> Rank {
        Rank { priority: Reverse(priority), asked_ms, uid: None, name: name.into() }
    }

    fn pod(number: u32) -> Entity {
        Entity::Pod(PodId(number))
    }

    #[test]
    fn priority_then_time_then_name() {
        let mut queue = Queue::default();
        let ranks = [rank(0, 5, "b"), rank(0, 5, "a"), rank(0, 4, "z"), rank(9, 99, "y")];
        for (number, rank) in ranks.into_iter().enumerate() {
            queue.admit(pod(number as u32), rank);
            queue.put(pod(number as u32), Place::Active);
        }
        queue.admit(Entity::Group(GroupId(0)), rank(5, 50, "g"));
        queue.put(Entity::Group(GroupId(0)), Place::Active);
        let order: Vec<Entity> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [pod(3), Entity::Group(GroupId(0)), pod(2), pod(1), pod(0)]);
    }

    #[test]
    fn a_changed_rank_moves_the_entity() {
        let mut queue = Queue::default();
        for number in 0..2 {
            queue.admit(pod(number), rank(0, u64::from(number), "p"));
            queue.put(pod(number), Place::Active);
        }
        queue.admit(pod(1), rank(7, 1, "p"));
        assert_eq!(queue.pop(), Some(pod(1)));
        assert_eq!(queue.pop(), Some(pod(0)));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn nobody_is_tried_before_the_backoff_is_over() {
        let mut queue = Queue::default();
        queue.admit(pod(0), rank(0, 0, "p"));
        queue.failed(pod(0), 100, |_| 1000);
        queue.ready(pod(0), 100);
        assert_eq!(queue.next_due(), Some(1100));
        queue.tick(1099);
        assert_eq!(queue.pop(), None);
        queue.tick(1100);
        assert_eq!(queue.pop(), Some(pod(0)));
    }

    #[test]
    fn only_the_first_pod_of_a_line_wakes_but_every_group() {
        let mut queue = Queue::default();
        let line = (ClassId(0), 0);
        let parked = || Place::Parked { lines: vec![line], again_at: None };
        for number in 0..3 {
            queue.admit(pod(number), rank(0, u64::from(9 - number), "p"));
            queue.put(pod(number), parked());
            queue.admit(Entity::Group(GroupId(number)), rank(0, 0, "g"));
            queue.put(Entity::Group(GroupId(number)), parked());
        }
        queue.wake(line, 0);
        let woken: Vec<Entity> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(woken.len(), 4);
        assert!(woken.contains(&pod(2)), "the one that asked first");
        queue.wake_next_pod(line, 0);
        assert_eq!(queue.pop(), Some(pod(1)));
        queue.remove(pod(0));
        assert_eq!(queue.lines().count(), 0);
    }
}
