//! Amounts of named resources as vectors of `i64`.
//!
//! A name is interned once and is an index from then on. Node vectors are dense, requests are short sparse lists.
//! Amounts are base units: milli-CPUs, bytes, whole devices. A single amount is at most [`AMOUNT_MAX`], so that the sum
//! over the pods of one node cannot overflow below [`PODS_PER_NODE_MAX`] pods.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::ids::{ResourceId, Slab};

/// The largest amount of one resource that a pod may request or a node may have (1 PiB, or 10^12 CPUs).
pub(crate) const AMOUNT_MAX: i64 = 1 << 50;

/// The most pods that a node may hold, regardless of its allocatable resources: sums stay below 2^62.
pub const PODS_PER_NODE_MAX: usize = 4096;

/// The most resource names that one engine can hold. A cluster has tens.
pub(crate) const RESOURCE_NAMES_MAX: usize = 4096;

/// The most resource names that one pod may request.
pub(crate) const NAMES_PER_POD_MAX: usize = 64;

/// The most names that may be in use for pods to introduce new ones, so that users who create pods cannot use up the
/// names that nodes need.
pub(crate) const POD_NAMES_MAX: usize = 1024;

/// The resource name for the number of pods on a node; it is counted, not summed.
pub(crate) const PODS: &str = "pods";

/// CPU, in milli-CPUs.
pub(crate) const CPU: ResourceId = ResourceId(0);
/// Memory, in bytes.
pub(crate) const MEMORY: ResourceId = ResourceId(1);
/// Ephemeral storage, in bytes.
pub(crate) const EPHEMERAL_STORAGE: ResourceId = ResourceId(2);

/// Whether a resource is none of the three that every node has: scores treat all others as scalar resources.
pub(crate) fn is_scalar(resource: ResourceId) -> bool {
    resource.0 > EPHEMERAL_STORAGE.0
}

/// A resource name in use.
#[derive(Clone, Debug, PartialEq)]
struct ResourceName {
    name: Box<str>,
    /// The pod classes that request it.
    users: u32,
    /// Whether it stays without users: nodes have it, or scores weigh it.
    pinned: bool,
}

/// Resource names and their ids. A name that only pods have introduced is forgotten with the last of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceNames {
    names: Slab<ResourceName>,
    ids: BTreeMap<Box<str>, ResourceId>,
    /// Names were forgotten.
    has_forgotten: bool,
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut names = Self { names: Slab::default(), ids: BTreeMap::new(), has_forgotten: false };
        for name in ["cpu", "memory", "ephemeral-storage"] {
            names.intern(name).expect("three names fit");
        }
        names
    }
}

impl ResourceNames {
    /// The id of a name, which stays; `None` when there are too many names.
    pub(crate) fn intern(&mut self, name: &str) -> Option<ResourceId> {
        let id = self.id_of(name)?;
        self.names.get_mut(id.0).expect("a listed name exists").pinned = true;
        Some(id)
    }

    /// The id of a name, which stays until it is released; `None` when there are too many names.
    pub(crate) fn acquire(&mut self, name: &str) -> Option<ResourceId> {
        let id = self.id_of(name)?;
        self.names.get_mut(id.0).expect("a listed name exists").users += 1;
        Some(id)
    }

    /// Drops one reference.
    pub(crate) fn release(&mut self, id: ResourceId) {
        let name = self.names.get_mut(id.0).expect("a name in use exists");
        name.users -= 1;
        if name.users == 0 && !name.pinned {
            let name = self.names.remove(id.0).expect("a name in use exists");
            self.ids.remove(&name.name);
            self.has_forgotten = true;
        }
    }

    /// Whether names were forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.has_forgotten)
    }

    fn id_of(&mut self, name: &str) -> Option<ResourceId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        if self.ids.len() >= RESOURCE_NAMES_MAX {
            return None;
        }
        let id = ResourceId(self.names.insert(ResourceName { name: name.into(), users: 0, pinned: false }));
        self.ids.insert(name.into(), id);
        Some(id)
    }

    /// Whether all these names are known or could be interned within the limit.
    pub(crate) fn has_room_for<'a>(&self, names: impl Iterator<Item = &'a str>, limit: usize) -> bool {
        let new = names.filter(|name| !self.ids.contains_key(*name)).count();
        new == 0 || self.ids.len() + new <= limit
    }

    /// The name behind an id.
    pub(crate) fn name(&self, id: ResourceId) -> &str {
        &self.names.get(id.0).expect("a name in use exists").name
    }

    /// The id of a known name.
    pub(crate) fn get(&self, name: &str) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }
}

/// A dense vector of amounts; what is not stored is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceVec(SmallVec<[i64; 6]>);

impl ResourceVec {
    /// The amount of one resource.
    pub(crate) fn get(&self, resource: ResourceId) -> i64 {
        self.0.get(resource.slot()).copied().unwrap_or(0)
    }

    /// Sets the amount of one resource.
    pub(crate) fn set(&mut self, resource: ResourceId, amount: i64) {
        self.grow(resource);
        self.0[resource.slot()] = amount;
    }

    /// Adds a pod's requests. Wraps on overflow, so that `sub` always restores the old value;
    /// the limits of this module keep every sum that a decision reads in range.
    pub(crate) fn add(&mut self, requests: &Requests) {
        for (resource, amount) in requests.iter() {
            self.grow(resource);
            let sum = &mut self.0[resource.slot()];
            *sum = sum.wrapping_add(amount);
        }
    }

    /// Subtracts a pod's requests.
    pub(crate) fn sub(&mut self, requests: &Requests) {
        for (resource, amount) in requests.iter() {
            self.grow(resource);
            let sum = &mut self.0[resource.slot()];
            *sum = sum.wrapping_sub(amount);
        }
    }

    fn grow(&mut self, resource: ResourceId) {
        if self.0.len() <= resource.slot() {
            self.0.resize(resource.slot() + 1, 0);
        }
    }
}

impl PartialEq for ResourceVec {
    /// Equal amounts are equal, regardless of how many zeros are stored behind them.
    fn eq(&self, other: &Self) -> bool {
        let shared = self.0.len().min(other.0.len());
        self.0[..shared] == other.0[..shared]
            && self.0[shared..].iter().chain(&other.0[shared..]).all(|amount| *amount == 0)
    }
}

/// The requests of one pod: a short list, ordered by resource, without zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests(SmallVec<[(ResourceId, i64); 4]>);

impl Requests {
    /// Builds the list from amounts by id.
    pub(crate) fn new(amounts: impl IntoIterator<Item = (ResourceId, i64)>) -> Self {
        let mut list: SmallVec<[(ResourceId, i64); 4]> =
            amounts.into_iter().filter(|(_, amount)| *amount != 0).collect();
        list.sort_unstable();
        Self(list)
    }

    /// The requested amounts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        self.0.iter().copied()
    }

    /// The amount of one resource.
    pub(crate) fn get(&self, resource: ResourceId) -> i64 {
        self.0.iter().find(|(id, _)| *id == resource).map_or(0, |(_, amount)| *amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_zeros_do_not_matter() {
        let mut long = ResourceVec::default();
        let requests = Requests::new([(ResourceId(9), 5), (CPU, 0)]);
        assert_eq!(requests.iter().count(), 1);
        long.add(&requests);
        assert_ne!(long, ResourceVec::default());
        long.sub(&requests);
        assert_eq!(long, ResourceVec::default());
        assert_eq!(ResourceVec::default(), long);
    }

    #[test]
    fn name_that_only_pods_had_is_forgotten_with_the_last_of_them() {
        let mut names = ResourceNames::default();
        let before = names.clone();
        let [first, second] = [0, 1].map(|_| names.acquire("example.com/x").unwrap());
        assert_eq!(first, second);
        names.release(first);
        assert_eq!(names.get("example.com/x"), Some(first));
        names.release(first);
        assert_eq!((names.get("example.com/x"), names.ids.len()), (None, before.ids.len()));
        assert_eq!(names.acquire("example.com/y"), Some(first), "the id is used again");
        names.intern("example.com/y");
        names.release(first);
        assert_eq!(names.get("example.com/y"), Some(first), "a node has it");
    }

    #[test]
    fn names_are_interned_once_up_to_a_limit() {
        let mut names = ResourceNames::default();
        assert_eq!(names.intern("cpu"), Some(CPU));
        let gpu = names.intern("nvidia.com/gpu").unwrap();
        assert_eq!(names.intern("nvidia.com/gpu"), Some(gpu));
        assert_eq!(names.name(gpu), "nvidia.com/gpu");
        for number in 0..RESOURCE_NAMES_MAX {
            names.intern(&format!("example.com/r{number}"));
        }
        assert_eq!(names.intern("example.com/one-more"), None);
        assert_eq!(names.intern("cpu"), Some(CPU));
    }
}
