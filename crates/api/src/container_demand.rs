//! What the containers of a pod need together: the rule of sums, stages and sidecars.
//!
//! Containers run together, so they add up. Init containers run one after the other before them,
//! each beside the sidecars started so far, so only the hungriest stage counts.
//!
//! Invariant: the result holds, per resource, the most that is in use at any moment of the pod's
//! life. It must not know where a container's list comes from, nor pod-wide resources.

use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// One container's list and the part it plays.
pub(crate) struct Share<'a> {
    pub(crate) role: Role,
    pub(crate) list: &'a ResourceList,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// With all other main containers, for the pod's life.
    Main,
    /// Alone, before the main containers.
    Init,
    /// From its turn among the init containers on, for the pod's life.
    Sidecar,
}

/// A sum that is above what a quantity holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    pub(crate) resource: String,
    pub(crate) addend: Quantity,
}

/// The most the containers need at any moment. `fill` stands in for what a container leaves out.
pub(crate) fn aggregate<'a>(
    shares: impl Iterator<Item = Share<'a>>,
    fill: &ResourceList,
) -> Result<ResourceList, Overflow> {
    let mut running = ResourceList::new();
    let mut sidecars = ResourceList::new();
    let mut hungriest_stage = ResourceList::new();
    for share in shares {
        match share.role {
            Role::Main => add(&mut running, share.list, fill)?,
            Role::Sidecar => {
                add(&mut running, share.list, fill)?;
                add(&mut sidecars, share.list, fill)?;
                raise(&mut hungriest_stage, &sidecars);
            }
            Role::Init => {
                let mut stage = sidecars.clone();
                add(&mut stage, share.list, fill)?;
                raise(&mut hungriest_stage, &stage);
            }
        }
    }
    raise(&mut running, &hungriest_stage);
    Ok(running)
}

/// Adds `list`, and of `fill` what `list` does not name. A zero that is written counts as named.
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

/// Raises each entry to that of `other`, if it is higher or new.
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
        let shares = lists.iter().map(|(role, list)| Share { role: *role, list });
        let total = aggregate(shares, &list(fill)).unwrap();
        total.get("cpu").map(|sum| sum.milli_value().unwrap())
    }

    #[test]
    fn sums_stages_and_sidecars() {
        for (parts, expected) in [
            (&[][..], None),
            (&[(Main, Some(100)), (Main, Some(200))], Some(300)),
            (&[(Main, Some(100)), (Init, Some(250))], Some(250)),
            (&[(Main, Some(300)), (Init, Some(250))], Some(300)),
            // Init containers before a sidecar do not run beside it, those after it do.
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
    fn a_fill_stands_in_only_for_what_is_left_out() {
        assert_eq!(need(&[(Main, None), (Main, Some(0)), (Main, Some(7))], Some(100)), Some(107));
        assert_eq!(need(&[(Sidecar, None), (Init, None), (Main, None)], Some(100)), Some(200));
    }

    #[test]
    fn an_overflow_names_the_resource() {
        let most: ResourceList = [("memory".to_owned(), Quantity::from_units(i64::MAX).unwrap())].into();
        let shares = [&most, &most].map(|list| Share { role: Main, list });
        let error = aggregate(shares.into_iter(), &ResourceList::new()).unwrap_err();
        assert_eq!(error.resource, "memory");
    }

    /// The need by its definition: the largest sum over all moments of the pod's life.
    fn slow(parts: &[(Role, i64)]) -> i64 {
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
        fn it_is_the_most_in_use_at_any_moment(parts in parts()) {
            prop_assert_eq!(need_of(&parts), slow(&parts));
        }

        #[test]
        fn asking_for_more_never_needs_less(parts in parts(), which in any::<prop::sample::Index>(), more in 0..1000_i64) {
            let mut raised = parts.clone();
            raised[which.index(parts.len())].1 += more;
            let (before, after) = (need_of(&parts), need_of(&raised));
            prop_assert!(before <= after && after <= before + more);
        }
    }
}
