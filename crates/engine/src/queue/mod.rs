//! The scheduling queue for single pods and groups.
//!
//! Order: priority, then since when it waits (a single pod since it could first be tried, a group since it or its
//! oldest waiting member was created), then the UID of the group object (the greater first), then the name. An
//! unschedulable entity is parked under the shapes of its pods and is only activated by an event that may make one of
//! them fit. Of single pods with the same shape only the first is activated, the next one when that is placed. No
//! entity is retried before its backoff is over. A namespace whose attempts are expensive lets others of the same
//! priority go first (`turns`).
//!
//! Must not depend on what makes a pod fit.

pub(crate) mod backoff;
mod turns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use turns::Turns;

use crate::diagnosis::Victims;
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId, PodId};

/// What the queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entity {
    /// A pod without a group.
    Pod(PodId),
    /// A group with waiting members.
    Group(GroupId),
}

/// The order of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: Reverse<i32>,
    pub(crate) since_ms: Millis,
    /// Only for groups that are ranked by their object.
    pub(crate) uid: Option<Reverse<Arc<str>>>,
    pub(crate) name: Arc<str>,
}

/// The class and priority of a pod: what determines whether it fits. Parked entities are indexed by the shapes of their
/// pods.
pub(crate) type PodShape = (ClassId, i32);

/// The state of an entity in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// Ready for an attempt.
    Active,
    /// In backoff until this time.
    Backoff(Millis),
    /// Unschedulable; retried at this time even without an event, if it is set.
    Parked { shapes: Vec<PodShape>, retry_at: Option<Millis> },
    /// Not to be attempted until the entity itself changes.
    Held,
}

/// An entity in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    namespace: Arc<str>,
    pub(crate) state: QueueState,
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// Searches that ended without a proof.
    pub(crate) searches: u32,
    /// Not to be attempted before this time.
    pub(crate) not_before: Millis,
    /// When it first was unschedulable.
    pub(crate) unschedulable_since: Option<Millis>,
    /// How many of its reservations expired.
    pub(crate) expired_reservations: u32,
    /// The victims that it waits for, while its plan holds.
    pub(crate) awaited_victims: Option<Box<Victims>>,
    /// Since when it waits for victims.
    pub(crate) waits_since: Option<Millis>,
    /// How many of its waits for victims took too long, since it was last placed.
    pub(crate) overlong_waits: u32,
    /// The pause after the last of them.
    pub(crate) eviction_pause_ms: Millis,
    /// When that pause ends.
    pub(crate) evicts_not_before: Millis,
    /// Whether it lacks capacity that draining nodes could provide, so that a reservation might help.
    pub(crate) may_reserve: bool,
}

/// The entities parked under one shape.
#[derive(Clone, Debug, Default)]
struct Parked {
    pods: BTreeSet<(Rank, PodId)>,
    groups: BTreeSet<GroupId>,
}

/// Entities in the order of the queue.
type InOrder = BTreeSet<(Rank, Entity)>;

/// The scheduling queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<Entity, Entry>,
    active: InOrder,
    /// The active entities by priority and namespace.
    active_by_namespace: BTreeMap<(Reverse<i32>, Arc<str>), InOrder>,
    turns: Turns,
    timers: BTreeSet<(Millis, Entity)>,
    parked: BTreeMap<PodShape, Parked>,
}

impl Queue {
    pub(crate) fn entry(&self, entity: Entity) -> Option<&Entry> {
        self.entries.get(&entity)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Entity, &Entry)> {
        self.entries.iter().map(|(entity, entry)| (*entity, entry))
    }

    /// Adds an entity, or updates its rank; a new one is held until it is moved.
    pub(crate) fn admit(&mut self, entity: Entity, rank: Rank, namespace: &str) -> &Entry {
        match self.entries.get(&entity) {
            Some(entry) if entry.rank == rank => {}
            Some(entry) => {
                let state = entry.state.clone();
                self.unlist(entity);
                self.entries.get_mut(&entity).expect("just seen").rank = rank;
                self.list(entity, state);
            }
            None => {
                let entry = Entry {
                    rank,
                    namespace: namespace.into(),
                    state: QueueState::Held,
                    attempts: 0,
                    searches: 0,
                    not_before: 0,
                    unschedulable_since: None,
                    expired_reservations: 0,
                    awaited_victims: None,
                    waits_since: None,
                    overlong_waits: 0,
                    eviction_pause_ms: 0,
                    evicts_not_before: 0,
                    may_reserve: false,
                };
                self.entries.insert(entity, entry);
            }
        }
        &self.entries[&entity]
    }

    /// Moves an entity to another state.
    pub(crate) fn move_to(&mut self, entity: Entity, state: QueueState) {
        self.unlist(entity);
        self.list(entity, state);
    }

    /// Makes an entity active, or puts it into backoff until that is over.
    pub(crate) fn requeue(&mut self, entity: Entity, now: Millis) {
        let not_before = self.entries[&entity].not_before;
        self.move_to(entity, if not_before <= now { QueueState::Active } else { QueueState::Backoff(not_before) });
    }

    /// Counts a failed attempt and starts the backoff.
    pub(crate) fn record_failure(&mut self, entity: Entity, now: Millis, pause: impl FnOnce(u32) -> Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can fail");
        entry.attempts = entry.attempts.saturating_add(1);
        entry.not_before = now.saturating_add(pause(entry.attempts));
        entry.unschedulable_since.get_or_insert(now);
    }

    /// An entity waits for its victims, which is not a failure: only delays the next attempt.
    pub(crate) fn record_wait(&mut self, entity: Entity, now: Millis, pause_ms: Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can wait");
        entry.not_before = now.saturating_add(pause_ms);
        entry.unschedulable_since.get_or_insert(now);
    }

    /// Activates an entity whose victims are gone, without backoff.
    pub(crate) fn activate_now(&mut self, entity: Entity, now: Millis) {
        let Some(entry) = self.entries.get_mut(&entity) else { return };
        if matches!(entry.state, QueueState::Parked { .. } | QueueState::Backoff(_)) {
            entry.not_before = now;
            self.move_to(entity, QueueState::Active);
        }
    }

    /// Sets whether a reservation might help an entity.
    pub(crate) fn set_may_reserve(&mut self, entity: Entity, may_reserve: bool) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.may_reserve = may_reserve;
        }
    }

    /// Sets the victims that an entity waits for.
    pub(crate) fn set_awaited_victims(&mut self, entity: Entity, awaited_victims: Option<Box<Victims>>) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.waits_since.take_if(|_| awaited_victims.is_none());
            entry.awaited_victims = awaited_victims;
        }
    }

    /// An entity waits for victims, at the latest from now on.
    pub(crate) fn begin_wait(&mut self, entity: Entity, now: Millis) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.waits_since.get_or_insert(now);
        }
    }

    /// Counts a wait for victims that took too long; returns the count.
    pub(crate) fn count_overlong_wait(&mut self, entity: Entity) -> u32 {
        let Some(entry) = self.entries.get_mut(&entity) else { return 0 };
        entry.overlong_waits = entry.overlong_waits.saturating_add(1);
        entry.overlong_waits
    }

    /// No pods are evicted for an entity during a pause.
    pub(crate) fn pause_evictions(&mut self, entity: Entity, pause_ms: Millis, now: Millis) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.eviction_pause_ms = pause_ms;
            entry.evicts_not_before = now.saturating_add(pause_ms);
        }
    }

    /// An entity was placed: its waits for victims do not count any more.
    pub(crate) fn forget_overlong_waits(&mut self, entity: Entity) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            (entry.overlong_waits, entry.evicts_not_before) = (0, 0);
        }
    }

    /// Counts a reservation that expired.
    pub(crate) fn count_expired_reservation(&mut self, entity: Entity) {
        if let Some(entry) = self.entries.get_mut(&entity) {
            entry.expired_reservations = entry.expired_reservations.saturating_add(1);
        }
    }

    /// Delays the next attempt of an entity at least until a time.
    pub(crate) fn delay(&mut self, entity: Entity, not_before: Millis, now: Millis) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be delayed");
        entry.not_before = entry.not_before.max(not_before);
        if entry.state == QueueState::Active && entry.not_before > now {
            self.requeue(entity, now);
        }
    }

    /// Counts a search that ended without a proof; returns the count.
    pub(crate) fn count_search(&mut self, entity: Entity) -> u32 {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be searched for");
        entry.searches = entry.searches.saturating_add(1);
        entry.searches
    }

    /// Removes an entity.
    pub(crate) fn remove(&mut self, entity: Entity) -> Option<Entry> {
        self.unlist(entity);
        self.entries.remove(&entity)
    }

    /// Takes the first active entity whose turn it is, with its namespace; it is held until it is moved.
    pub(crate) fn pop(&mut self) -> Option<(Entity, Arc<str>)> {
        let (rank, first) = self.active.first()?;
        let waits = self.turns.lets_others_go_first(&self.entries[first].namespace);
        let entity = if waits { self.first_by_turns(rank.priority) } else { *first };
        self.unlist(entity);
        Some((entity, self.entries[&entity].namespace.clone()))
    }

    /// The first active entity of a priority of the namespace whose turn it is.
    fn first_by_turns(&self, priority: Reverse<i32>) -> Entity {
        let from = (priority, Arc::from(""));
        let namespaces = self.active_by_namespace.range(from..).take_while(|((other, _), _)| *other == priority);
        let firsts = namespaces.map(|((_, namespace), active)| {
            let (rank, entity) = active.first().expect("a listed namespace has active entities");
            (self.turns.turn_of(namespace), rank, *entity)
        });
        firsts.min().expect("an entity of this priority is active").2
    }

    /// Counts the steps of an attempt, which decide whose turn is next.
    pub(crate) fn charge(&mut self, namespace: &Arc<str>, steps: u64) {
        self.turns.charge(namespace, steps);
    }

    /// Requeues entities whose backoff is over or whose retry is due.
    pub(crate) fn tick(&mut self, now: Millis) {
        while let Some((_, entity)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.requeue(entity, now);
        }
    }

    /// When `tick` or `pop` has work to do: 0 if at once, `None` if never.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        if self.active.is_empty() { self.timers.first().map(|(due, _)| *due) } else { Some(0) }
    }

    /// The shapes with parked entities.
    pub(crate) fn parked_shapes(&self) -> impl Iterator<Item = PodShape> {
        self.parked.keys().copied()
    }

    /// Activates the first single pod and every group of a shape.
    pub(crate) fn activate(&mut self, shape: PodShape, now: Millis) {
        let Some(parked) = self.parked.get(&shape) else { return };
        for group in parked.groups.clone() {
            self.requeue(Entity::Group(group), now);
        }
        self.activate_next_pod(shape, now);
    }

    /// Activates an entity if it is parked.
    pub(crate) fn activate_parked(&mut self, entity: Entity, now: Millis) {
        if self.entry(entity).is_some_and(|entry| matches!(entry.state, QueueState::Parked { .. })) {
            self.requeue(entity, now);
        }
    }

    /// Activates entities of a shape that wait for victims.
    pub(crate) fn activate_waiting_for_victims(&mut self, shape: PodShape, now: Millis) {
        let Some(parked) = self.parked.get(&shape) else { return };
        let pods = parked.pods.iter().map(|(_, pod)| Entity::Pod(*pod));
        let all = pods.chain(parked.groups.iter().map(|group| Entity::Group(*group)));
        let waiting: Vec<Entity> = all.filter(|entity| self.entries[entity].awaited_victims.is_some()).collect();
        for entity in waiting {
            self.requeue(entity, now);
        }
    }

    /// Activates the first single pod of a shape.
    pub(crate) fn activate_next_pod(&mut self, shape: PodShape, now: Millis) {
        let first = self.parked.get(&shape).and_then(|parked| parked.pods.first()).map(|(_, pod)| *pod);
        if let Some(pod) = first {
            self.requeue(Entity::Pod(pod), now);
        }
    }

    fn list(&mut self, entity: Entity, state: QueueState) {
        let entry = self.entries.get_mut(&entity).expect("only a known entity can be listed");
        entry.state = state;
        match &entry.state {
            QueueState::Active => {
                let key = (entry.rank.priority, entry.namespace.clone());
                self.active_by_namespace.entry(key).or_default().insert((entry.rank.clone(), entity));
                self.active.insert((entry.rank.clone(), entity));
            }
            QueueState::Backoff(until) => drop(self.timers.insert((*until, entity))),
            QueueState::Held => {}
            QueueState::Parked { shapes, retry_at } => {
                for shape in shapes {
                    let parked = self.parked.entry(*shape).or_default();
                    match entity {
                        Entity::Pod(pod) => drop(parked.pods.insert((entry.rank.clone(), pod))),
                        Entity::Group(group) => drop(parked.groups.insert(group)),
                    }
                }
                if let Some(due) = retry_at {
                    self.timers.insert((*due, entity));
                }
            }
        }
    }

    fn unlist(&mut self, entity: Entity) {
        let Some(entry) = self.entries.get_mut(&entity) else { return };
        let rank = entry.rank.clone();
        match std::mem::replace(&mut entry.state, QueueState::Held) {
            QueueState::Active => {
                let key = (rank.priority, entry.namespace.clone());
                let active = self.active_by_namespace.get_mut(&key).expect("an active entity is listed");
                active.remove(&(rank.clone(), entity));
                if active.is_empty() {
                    self.active_by_namespace.remove(&key);
                }
                self.active.remove(&(rank, entity));
            }
            QueueState::Backoff(until) => drop(self.timers.remove(&(until, entity))),
            QueueState::Held => {}
            QueueState::Parked { shapes, retry_at } => {
                for shape in shapes {
                    self.unpark(shape, entity, &rank);
                }
                if let Some(due) = retry_at {
                    self.timers.remove(&(due, entity));
                }
            }
        }
    }

    fn unpark(&mut self, shape: PodShape, entity: Entity, rank: &Rank) {
        let Some(parked) = self.parked.get_mut(&shape) else { return };
        match entity {
            Entity::Pod(pod) => drop(parked.pods.remove(&(rank.clone(), pod))),
            Entity::Group(group) => drop(parked.groups.remove(&group)),
        }
        if parked.pods.is_empty() && parked.groups.is_empty() {
            self.parked.remove(&shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(priority: i32, since_ms: Millis, name: &str) -> Rank {
        Rank { priority: Reverse(priority), since_ms, uid: None, name: name.into() }
    }

    fn pop(queue: &mut Queue) -> Option<Entity> {
        queue.pop().map(|(entity, _)| entity)
    }

    fn pod(number: u32) -> Entity {
        Entity::Pod(PodId(number))
    }

    #[test]
    fn order_is_priority_then_time_then_name() {
        let mut queue = Queue::default();
        let ranks = [rank(0, 5, "b"), rank(0, 5, "a"), rank(0, 4, "z"), rank(9, 99, "y")];
        for (number, rank) in ranks.into_iter().enumerate() {
            queue.admit(pod(number as u32), rank, "");
            queue.move_to(pod(number as u32), QueueState::Active);
        }
        queue.admit(Entity::Group(GroupId(0)), rank(5, 50, "g"), "");
        queue.move_to(Entity::Group(GroupId(0)), QueueState::Active);
        let order: Vec<Entity> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(order, [pod(3), Entity::Group(GroupId(0)), pod(2), pod(1), pod(0)]);
    }

    #[test]
    fn namespace_with_an_expensive_attempt_lets_others_of_its_priority_go_first() {
        let mut queue = Queue::default();
        for (number, (priority, namespace)) in
            [(0, "slow"), (0, "slow"), (0, "slow"), (0, "quick"), (0, "quick"), (-1, "other")].into_iter().enumerate()
        {
            queue.admit(pod(number as u32), rank(priority, number as Millis, "p"), namespace);
            queue.move_to(pod(number as u32), QueueState::Active);
        }
        assert_eq!(pop(&mut queue), Some(pod(0)));
        queue.charge(&"slow".into(), 50_000);
        assert_eq!(pop(&mut queue), Some(pod(3)), "waits for one expensive attempt only");
        queue.charge(&"quick".into(), 10);
        assert_eq!(pop(&mut queue), Some(pod(4)));
        queue.charge(&"quick".into(), 60_000);
        assert_eq!(pop(&mut queue), Some(pod(1)), "it has waited for as much work as it took");
        queue.charge(&"slow".into(), 50_000);
        assert_eq!(pop(&mut queue), Some(pod(2)), "nobody else of this priority is waiting");
        assert_eq!(pop(&mut queue), Some(pod(5)));
        assert_eq!(pop(&mut queue), None);
    }

    #[test]
    fn changed_rank_reorders_the_entity() {
        let mut queue = Queue::default();
        for number in 0..2 {
            queue.admit(pod(number), rank(0, u64::from(number), "p"), "");
            queue.move_to(pod(number), QueueState::Active);
        }
        queue.admit(pod(1), rank(7, 1, "p"), "");
        assert_eq!(pop(&mut queue), Some(pod(1)));
        assert_eq!(pop(&mut queue), Some(pod(0)));
        assert_eq!(pop(&mut queue), None);
    }

    #[test]
    fn entity_is_not_attempted_during_backoff() {
        let mut queue = Queue::default();
        queue.admit(pod(0), rank(0, 0, "p"), "");
        queue.record_failure(pod(0), 100, |_| 1000);
        queue.requeue(pod(0), 100);
        assert_eq!(queue.next_due(), Some(1100));
        queue.tick(1099);
        assert_eq!(pop(&mut queue), None);
        queue.tick(1100);
        assert_eq!(pop(&mut queue), Some(pod(0)));
    }

    #[test]
    fn activation_of_a_shape_takes_its_first_pod_and_every_group() {
        let mut queue = Queue::default();
        let shape = (ClassId(0), 0);
        let parked = || QueueState::Parked { shapes: vec![shape], retry_at: None };
        for number in 0..3 {
            queue.admit(pod(number), rank(0, u64::from(9 - number), "p"), "");
            queue.move_to(pod(number), parked());
            queue.admit(Entity::Group(GroupId(number)), rank(0, 0, "g"), "");
            queue.move_to(Entity::Group(GroupId(number)), parked());
        }
        queue.activate(shape, 0);
        let activated: Vec<Entity> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(activated.len(), 4);
        assert!(activated.contains(&pod(2)), "the oldest pod");
        queue.activate_next_pod(shape, 0);
        assert_eq!(pop(&mut queue), Some(pod(1)));
        queue.remove(pod(0));
        assert_eq!(queue.parked_shapes().count(), 0);
    }
}
