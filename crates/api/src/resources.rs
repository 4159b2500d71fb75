//! Resource names and lists of amounts: validation, and conversion to integers.
//!
//! Base units are thousandths of a core for `cpu` and whole units for everything else.
//! Invariant of a checked [`ResourceList`]: names are allowed in their place, no amount is negative, indivisible
//! amounts are whole, and each amount fits `i64` in base units.
//!
//! Unlike Kubernetes, amounts are not rounded before the check for a whole number (there `0.9995` of a GPU passes as
//! one). Must not depend on pods, nodes or groups.

use std::collections::BTreeMap;

use crate::invalid::{FieldPath, InvalidField};
use crate::names::check_label_key;
use crate::quantity::{Quantity, QuantityError};
use crate::written_quantity::WrittenQuantity;

/// The name of the processor resource.
pub const CPU: &str = "cpu";
/// The name of the memory resource.
pub const MEMORY: &str = "memory";

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";
const HUGE_PAGES: &str = "hugepages-";
const ATTACHABLE_VOLUMES: &str = "attachable-volumes-";
/// Names with this domain, or one that ends with it, are native to Kubernetes.
const NATIVE_DOMAIN: &str = "kubernetes.io/";
/// The prefix of requests in quotas; a resource with such a name could not have a quota.
const QUOTA_REQUESTS: &str = "requests.";

/// Amounts of resources as written in an object.
pub type WrittenResources = BTreeMap<String, WrittenQuantity>;

/// Checked amounts of resources by name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Amounts in base units by name.
pub type BaseUnits = BTreeMap<String, i64>;

/// The place of a resource list, which determines the allowed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The resources of a container, requested or reported.
    Container,
    /// `spec.resources` of a pod.
    Pod,
    /// The capacity or allocatable resources of a node.
    Node,
    /// The minimum resources of a group.
    Group,
}

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// `ephemeral-storage`.
    EphemeralStorage,
    /// `pods`: the number of pods on a node.
    Pods,
    /// `hugepages-<size>`.
    HugePages,
    /// `attachable-volumes-<plugin>`: the number of volumes on a node.
    AttachableVolumes,
    /// `domain/name` under `kubernetes.io`.
    PrefixedNative,
    /// Any other `domain/name`, e.g. `nvidia.com/gpu`.
    Extended,
}

impl ResourceKind {
    /// The kind of the resource `name`, or why the name is invalid.
    pub fn of(name: &str) -> Result<ResourceKind, String> {
        match name {
            CPU => return Ok(ResourceKind::Cpu),
            MEMORY => return Ok(ResourceKind::Memory),
            EPHEMERAL_STORAGE => return Ok(ResourceKind::EphemeralStorage),
            PODS => return Ok(ResourceKind::Pods),
            _ => {}
        }
        check_label_key(name)?;
        if let Some(size) = name.strip_prefix(HUGE_PAGES) {
            return check_page_size(size).map(|()| ResourceKind::HugePages);
        }
        if !name.contains('/') {
            return match name.strip_prefix(ATTACHABLE_VOLUMES) {
                Some(_) => Ok(ResourceKind::AttachableVolumes),
                None => Err("is not a known resource and has no domain".to_owned()),
            };
        }
        if name.contains(NATIVE_DOMAIN) {
            return Ok(ResourceKind::PrefixedNative);
        }
        check_extended(name).map(|()| ResourceKind::Extended)
    }

    fn is_allowed_in(self, place: Place) -> bool {
        use ResourceKind::{AttachableVolumes, Cpu, HugePages, Memory, Pods};
        match place {
            Place::Container => !matches!(self, Pods | AttachableVolumes),
            Place::Pod => matches!(self, Cpu | Memory | HugePages),
            Place::Node => true,
            Place::Group => self != AttachableVolumes,
        }
    }

    /// Whether an amount must be a whole number.
    fn is_indivisible(self) -> bool {
        use ResourceKind::{AttachableVolumes, Extended, HugePages, Pods};
        matches!(self, Extended | HugePages | Pods | AttachableVolumes)
    }
}

fn check_page_size(size: &str) -> Result<(), String> {
    match size.parse::<Quantity>() {
        Err(error) => Err(format!("the page size {size:?} {error}")),
        Ok(size) if !size.is_whole() || size <= Quantity::ZERO => {
            Err(format!("the page size {size} must be a whole number above 0"))
        }
        Ok(_) => Ok(()),
    }
}

fn check_extended(name: &str) -> Result<(), String> {
    if name.starts_with(QUOTA_REQUESTS) {
        return Err(format!("must not start with {QUOTA_REQUESTS:?}"));
    }
    check_label_key(&format!("{QUOTA_REQUESTS}{name}"))
        .map_err(|reason| format!("with {QUOTA_REQUESTS:?} before it: {reason}"))
}

/// Whether the pod's own `spec.resources` may set this resource.
pub fn is_pod_level(name: &str) -> bool {
    name == CPU || name == MEMORY || is_huge_pages(name)
}

/// Whether the resource is huge pages of some size.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Checks the names and amounts of a list.
pub fn validate(written: &WrittenResources, place: Place, path: &FieldPath<'_>) -> Result<ResourceList, InvalidField> {
    written
        .iter()
        .map(|(name, amount)| {
            let path = path.key(name);
            let kind = check_name(name, place, &path)?;
            let quantity = amount.parse().map_err(|error| path.invalid(amount, error))?;
            check_amount(name, kind, quantity).map_err(|reason| path.invalid(amount, reason))?;
            Ok((name.clone(), quantity))
        })
        .collect()
}

fn check_name(name: &str, place: Place, path: &FieldPath<'_>) -> Result<ResourceKind, InvalidField> {
    let kind =
        ResourceKind::of(name).map_err(|reason| path.invalid(name, format_args!("the resource name {reason}")))?;
    if kind.is_allowed_in(place) {
        return Ok(kind);
    }
    let owner = match place {
        Place::Container => "a container",
        Place::Pod => "a pod as a whole",
        Place::Node => "a node",
        Place::Group => "a group",
    };
    Err(path.invalid(name, format_args!("is not a resource of {owner}")))
}

fn check_amount(name: &str, kind: ResourceKind, quantity: Quantity) -> Result<(), String> {
    if quantity.is_negative() {
        return Err("must not be negative".to_owned());
    }
    if kind.is_indivisible() && !quantity.is_whole() {
        return Err("must be an integer".to_owned());
    }
    base_units(name, quantity).map(|_| ()).map_err(|error| error.to_string())
}

/// The amount in base units, rounded up.
pub fn base_units(name: &str, quantity: Quantity) -> Result<i64, QuantityError> {
    if name == CPU { quantity.milli_value() } else { Ok(quantity.value()) }
}

/// A list in base units, without zeros: zero and a missing entry are equivalent.
pub fn list_in_base_units(list: &ResourceList, path: &FieldPath<'_>) -> Result<BaseUnits, InvalidField> {
    let mut units = BaseUnits::new();
    for (name, &quantity) in list {
        let amount =
            base_units(name, quantity).map_err(|error| path.key(name).invalid(&quantity.to_string(), error))?;
        if amount != 0 {
            units.insert(name.clone(), amount);
        }
    }
    Ok(units)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::json;

    const ROOT: FieldPath<'static> = FieldPath::Root("requests");

    fn read(json: serde_json::Value, place: Place) -> Result<BaseUnits, String> {
        let written: WrittenResources = serde_json::from_value(json).unwrap();
        validate(&written, place, &ROOT)
            .and_then(|list| list_in_base_units(&list, &ROOT))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_have_kinds() {
        use ResourceKind as Kind;
        for (name, kind) in [
            ("cpu", Kind::Cpu),
            ("memory", Kind::Memory),
            ("ephemeral-storage", Kind::EphemeralStorage),
            ("pods", Kind::Pods),
            ("hugepages-2Mi", Kind::HugePages),
            ("hugepages-1Gi", Kind::HugePages),
            ("attachable-volumes-aws-ebs", Kind::AttachableVolumes),
            ("nvidia.com/gpu", Kind::Extended),
            ("nvidia.com/mig-1g.5gb", Kind::Extended),
            ("a/b", Kind::Extended),
            ("kubernetes.io/batch-cpu", Kind::PrefixedNative),
            ("x.kubernetes.io/y", Kind::PrefixedNative),
        ] {
            assert_eq!(ResourceKind::of(name), Ok(kind), "{name}");
        }
    }

    #[test]
    fn bad_names_are_refused() {
        let too_long_with_prefix = format!("{}/gpu", "a".repeat(250));
        for name in [
            "",
            "gpu",
            "CPU",
            "Memory",
            "storage",
            "requests.cpu",
            "nvidia.com/",
            "/gpu",
            "a/b/c",
            "nvidia.com/g pu",
            "NVIDIA.com/gpu",
            "requests.nvidia.com/gpu",
            "hugepages-",
            "hugepages-x",
            "hugepages-0",
            "hugepages-1m",
            "hugepages--1",
            &too_long_with_prefix,
        ] {
            assert!(ResourceKind::of(name).is_err(), "{name}");
        }
    }

    #[test]
    fn base_units_are_milli_for_cpu_and_whole_for_the_rest() {
        let units = read(
            json!({"cpu": "1500m", "memory": "1.5Gi", "ephemeral-storage": "1k",
                   "nvidia.com/gpu": 8, "hugepages-2Mi": "4Mi", "a.com/none": 0}),
            Place::Container,
        )
        .unwrap();
        let expected = [
            ("cpu", 1500),
            ("memory", 3 << 29),
            ("ephemeral-storage", 1000),
            ("nvidia.com/gpu", 8),
            ("hugepages-2Mi", 4 << 20),
        ];
        assert_eq!(units, expected.map(|(name, n)| (name.to_owned(), n)).into());
        assert_eq!(
            read(json!({"cpu": "1n", "memory": "1n"}), Place::Container).unwrap(),
            [("cpu".to_owned(), 1), ("memory".to_owned(), 1)].into()
        );
    }

    #[test]
    fn bad_amounts_name_the_field_and_the_value() {
        for (json, message) in [
            (json!({"cpu": "1x"}), r#"requests[cpu]: "1x": suffix "x" is not known"#),
            (json!({"cpu": -1}), "requests[cpu]: -1: must not be negative"),
            (json!({"memory": "-1n"}), r#"requests[memory]: "-1n": must not be negative"#),
            (json!({"cpu": [1]}), "requests[cpu]: [1]: must be a string or a number"),
            (json!({"nvidia.com/gpu": "500m"}), r#"requests[nvidia.com/gpu]: "500m": must be an integer"#),
            (json!({"nvidia.com/gpu": "0.9995"}), r#"requests[nvidia.com/gpu]: "0.9995": must be an integer"#),
            (json!({"hugepages-2Mi": 0.5}), "requests[hugepages-2Mi]: 0.5: must be an integer"),
            (json!({"gpu": 1}), r#"requests[gpu]: "gpu": the resource name is not a known resource and has no domain"#),
            (
                json!({"cpu": "9223372036854775807"}),
                r#"requests[cpu]: "9223372036854775807": is larger than a 64 bit integer holds"#,
            ),
            (json!({"memory": "8Ei"}), r#"requests[memory]: "8Ei": is larger than a 64 bit integer holds"#),
        ] {
            assert_eq!(read(json, Place::Container).unwrap_err(), message);
        }
    }

    #[test]
    fn the_place_decides_which_names_are_allowed() {
        use Place::{Container, Group, Node, Pod};
        for (name, places) in [
            ("cpu", &[Container, Pod, Node, Group][..]),
            ("memory", &[Container, Pod, Node, Group]),
            ("hugepages-2Mi", &[Container, Pod, Node, Group]),
            ("ephemeral-storage", &[Container, Node, Group]),
            ("nvidia.com/gpu", &[Container, Node, Group]),
            ("pods", &[Node, Group]),
            ("attachable-volumes-x", &[Node]),
        ] {
            for place in [Container, Pod, Node, Group] {
                let allowed = read(json!({name: 1}), place).is_ok();
                assert_eq!(allowed, places.contains(&place), "{name} {place:?}");
            }
        }
    }
}
