//! Aggregates the resources of a pod's containers, init containers and sidecars.
//!
//! Containers run concurrently, so they add up. Init containers run one after another before them, each together with
//! the sidecars started so far, so only the largest init stage counts.
//!
//! Invariant: the result is, per resource, the maximum in use at any time of the pod's life. Must not depend on where a
//! container's list comes from, or on pod-level resources.

use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// The resource list of one container, with its role.
pub(crate) struct ContainerResources<'a> {
    pub(crate) role: Role,
    pub(crate) list: &'a ResourceList,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs with all other main containers, for the pod's life.
    Main,
    /// Runs alone, before the main containers.
    Init,
    /// Starts in the order of the init containers and runs for the rest of the pod's life.
    Sidecar,
}

/// A sum that exceeds the range of a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    pub(crate) resource: String,
    pub(crate) addend: Quantity,
}

/// The maximum that the containers need at any time. `fill` has the defaults for resources that a container does not
/// name.
pub(crate) fn aggregate<'a>(
    containers: impl Iterator<Item = ContainerResources<'a>>,
    fill: &ResourceList,
) -> Result<ResourceList, Overflow> {
    let mut running = ResourceList::new();
    let mut sidecars = ResourceList::new();
    let mut largest_init_stage = ResourceList::new();
    for container in containers {
        match container.role {
            Role::Main => add(&mut running, container.list, fill)?,
            Role::Sidecar => {
                add(&mut running, container.list, fill)?;
                add(&mut sidecars, container.list, fill)?;
                raise(&mut largest_init_stage, &sidecars);
            }
            Role::Init => {
                let mut stage = sidecars.clone();
                add(&mut stage, container.list, fill)?;
                raise(&mut largest_init_stage, &stage);
            }
        }
    }
    raise(&mut running, &largest_init_stage);
    Ok(running)
}

/// Adds `list`, and the entries of `fill` that `list` does not name. An explicit zero counts as named.
pub(crate) fn add(into: &mut ResourceList, list: &ResourceList, fill: &ResourceList) -> Result<(), Overflow> {
    let missing = fill.iter().filter(|(name, _)| !list.contains_key(*name));
    for (name, &quantity) in list.iter().chain(missing) {
        match into.get_mut(name) {
            None => {
                into.insert(name.clone(), quantity);
            }
            Some(sum) => {
                *sum = sum.checked_add(quantity).map_err(|_| Overflow { resource: name.clone(), addend: quantity })?;
            }
        }
    }
    Ok(())
}

/// Sets each entry to the maximum of both lists.
pub(crate) fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, &quantity) in other {
        match list.get_mut(name) {
            None => {
                list.insert(name.clone(), quantity);
            }
            Some(entry) => *entry = quantity.max(*entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::{Init, Main, Sidecar};
    use proptest::prelude::*;

    fn cpu(millis: i64) -> ResourceList {
        [("cpu".to_owned(), Quantity::from_millis(millis))].into()
    }

    /// The need for cpu, if any container names it.
    fn need(parts: &[(Role, Option<i64>)], fill: Option<i64>) -> Option<i64> {
        let list = |millis: Option<i64>| millis.map(cpu).unwrap_or_default();
        let lists: Vec<_> = parts.iter().map(|&(role, millis)| (role, list(millis))).collect();
        let containers = lists.iter().map(|(role, list)| ContainerResources { role: *role, list });
        let total = aggregate(containers, &list(fill)).unwrap();
        total.get("cpu").map(|sum| sum.milli_value().unwrap())
    }

    #[test]
    fn containers_add_up_and_largest_init_stage_counts() {
        for (parts, expected) in [
            (&[][..], None),
            (&[(Main, Some(100)), (Main, Some(200))], Some(300)),
            (&[(Main, Some(100)), (Init, Some(250))], Some(250)),
            (&[(Main, Some(300)), (Init, Some(250))], Some(300)),
            // Init containers before a sidecar do not run with it, those after it do.
            (&[(Main, Some(100)), (Init, Some(500)), (Sidecar, Some(50))], Some(500)),
            (&[(Main, Some(100)), (Sidecar, Some(50)), (Init, Some(500))], Some(550)),
            (&[(Main, Some(10)), (Sidecar, Some(50)), (Init, Some(20)), (Sidecar, Some(70))], Some(130)),
            (&[(Main, None), (Init, None)], None),
            (&[(Main, Some(0))], Some(0)),
        ] {
            assert_eq!(need(parts, None), expected, "{parts:?}");
        }
    }

    #[test]
    fn fill_applies_only_to_unnamed_resources() {
        assert_eq!(need(&[(Main, None), (Main, Some(0)), (Main, Some(7))], Some(100)), Some(107));
        assert_eq!(need(&[(Sidecar, None), (Init, None), (Main, None)], Some(100)), Some(200));
    }

    #[test]
    fn overflow_names_the_resource() {
        let most: ResourceList = [("memory".to_owned(), Quantity::from_units(i64::MAX).unwrap())].into();
        let containers = [&most, &most].map(|list| ContainerResources { role: Main, list });
        let error = aggregate(containers.into_iter(), &ResourceList::new()).unwrap_err();
        assert_eq!(error.resource, "memory");
    }

    /// A reference implementation: the largest sum over all moments of the pod's life.
    fn reference_need(parts: &[(Role, i64)]) -> i64 {
        let sidecars_before = |end: usize| -> i64 {
            let started = parts[..end].iter().filter(|(role, _)| *role == Sidecar);
            started.map(|(_, cpu)| cpu).sum()
        };
        let early = parts.iter().enumerate().filter(|(_, (role, _))| *role != Main);
        let stages = early.map(|(index, (_, cpu))| sidecars_before(index) + cpu);
        let main: i64 = parts.iter().filter(|(role, _)| *role == Main).map(|(_, cpu)| cpu).sum();
        stages.max().unwrap_or(0).max(main + sidecars_before(parts.len()))
    }

    fn parts() -> impl Strategy<Value = Vec<(Role, i64)>> {
        let role = prop::sample::select(vec![Main, Init, Sidecar]);
        prop::collection::vec((role, 0..1000_i64), 1..8)
    }

    fn need_of(parts: &[(Role, i64)]) -> i64 {
        let named: Vec<_> = parts.iter().map(|&(role, cpu)| (role, Some(cpu))).collect();
        need(&named, None).unwrap()
    }

    proptest! {
        #[test]
        fn need_is_the_maximum_in_use_at_any_time(parts in parts()) {
            prop_assert_eq!(need_of(&parts), reference_need(&parts));
        }

        #[test]
        fn larger_request_never_needs_less(parts in parts(), which in any::<prop::sample::Index>(), more in 0..1000_i64) {
            let mut raised = parts.clone();
            raised[which.index(parts.len())].1 += more;
            let (before, after) = (need_of(&parts), need_of(&raised));
            prop_assert!(before <= after && after <= before + more);
        }
    }
}
