//! Validation of observations: an invalid one is refused before it changes anything.
//!
//! The host parses and validates API objects first; this is a second check, so that the engine can rely on its input.
//! It looks at one object at a time and must not depend on the state of the cluster.

use std::collections::BTreeSet;

use crate::model::class::ClassSpec;
use crate::model::group::{GroupPriority, GroupSpec, Policy, Subset};
use crate::model::inter_pod::InterPodConstraints;
use crate::model::labels::{LabelOperator, NodeTerm};
use crate::model::node::NodeSpec;
use crate::model::pod::PodSpec;
use crate::model::resources::AMOUNT_MAX;
use crate::model::storage::StorageObservation;
use crate::model::topology::{GroupTopology, LEVELS_MAX};
use crate::model::tree::{DEPTH_MAX, GroupTree, NODES_MAX, TreeMinimum, TreeNode};
use crate::validation_error::ValidationError;

/// The largest minimum that the API can represent.
const MIN_COUNT_MAX: u32 = i32::MAX as u32;
/// The most subsets one group may have.
pub(crate) const SUBSETS_MAX: usize = 32;
/// The most kinds of later pods that one group may have, and the most pods in all.
const LATER_PARTS_MAX: usize = 64;
const LATER_PODS_MAX: u64 = 20_000;
/// The longest schedule timeout: a day.
const SCHEDULE_TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Validates a node.
pub(crate) fn node(spec: &NodeSpec) -> Result<(), ValidationError> {
    let object = || format!("Node {}", spec.name);
    if spec.name.is_empty() {
        return Err(ValidationError::new("Node", "name", "", "a node needs a name"));
    }
    for (name, size) in &spec.images {
        amount_in_range(&format!("images[{name}]"), *size, &object)?;
    }
    amounts(&spec.allocatable, "allocatable", &object)
}

/// Validates a pod.
pub(crate) fn pod(spec: &PodSpec) -> Result<(), ValidationError> {
    let object = || format!("Pod {}", spec.id);
    if spec.id.uid.is_empty() {
        return Err(ValidationError::new(object(), "uid", "", "a pod needs a UID"));
    }
    if let Some(membership) = &spec.membership
        && membership.group.name.is_empty()
    {
        return Err(ValidationError::new(object(), "membership.group.name", "", "a group needs a name"));
    }
    if let Some(refusal) = &spec.refused
        && refusal.field.is_empty()
    {
        return Err(ValidationError::new(object(), "refused.field", "", "a refusal must name a field"));
    }
    class(&spec.class, &object)
}

/// Validates an object of storage.
pub(crate) fn storage(observation: &StorageObservation) -> Result<(), ValidationError> {
    let (kind, name, bytes) = match observation {
        StorageObservation::ClaimSeen(spec) => ("PersistentVolumeClaim", &spec.id.name, spec.request_bytes),
        StorageObservation::VolumeSeen(spec) => ("PersistentVolume", &spec.name, Some(spec.capacity_bytes)),
        StorageObservation::ClassSeen(spec) => ("StorageClass", &spec.name, None),
        StorageObservation::NodeDriversSeen(spec) => ("CSINode", &spec.node, None),
        StorageObservation::DriverSeen(spec) => ("CSIDriver", &spec.name, None),
        StorageObservation::CapacitySeen(spec) => ("CSIStorageCapacity", &spec.key.1, spec.capacity_bytes),
        StorageObservation::AttachmentSeen(spec) => ("VolumeAttachment", &spec.name, None),
        _ => return Ok(()),
    };
    if name.is_empty() {
        return Err(ValidationError::new(kind, "name", "", "an object needs a name"));
    }
    match bytes {
        Some(bytes) if bytes < 0 => {
            Err(ValidationError::new(format!("{kind} {name}"), "size", bytes, "a size is not negative"))
        }
        _ => Ok(()),
    }
}

fn class(spec: &ClassSpec, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    amounts(&spec.requests, "requests", object)?;
    let placed = spec.scoring_when_placed();
    for (field, amount) in [
        ("scoring_cpu_milli", spec.scoring_cpu_milli),
        ("scoring_memory_bytes", spec.scoring_memory_bytes),
        ("placed_scoring.cpu_milli", placed.cpu_milli),
        ("placed_scoring.memory_bytes", placed.memory_bytes),
    ] {
        amount_in_range(field, amount, object)?;
    }
    for term in spec.required_terms.iter().flatten() {
        node_term(term, "required_terms", object)?;
    }
    for preferred in &spec.preferred_terms {
        if !(1..=100).contains(&preferred.weight) {
            let reason = "a weight is from 1 to 100";
            return Err(ValidationError::new(object(), "preferred_terms.weight", preferred.weight, reason));
        }
        node_term(&preferred.term, "preferred_terms", object)?;
    }
    if let Some(inter_pod) = &spec.inter_pod {
        inter_pod_terms(inter_pod, object)?;
    }
    for port in &spec.host_ports {
        if port.port == 0 {
            return Err(ValidationError::new(object(), "host_ports.port", 0, "a port is from 1 to 65535"));
        }
        if matches!(port.address.as_deref(), Some("" | "0.0.0.0")) {
            let reason = "for all addresses, omit the address";
            return Err(ValidationError::new(
                object(),
                "host_ports.address",
                port.address.as_deref().unwrap_or(""),
                reason,
            ));
        }
    }
    Ok(())
}

fn inter_pod_terms(inter_pod: &InterPodConstraints, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    for preferred in &inter_pod.preferred {
        if preferred.weight == 0 || !(-100..=100).contains(&preferred.weight) {
            let reason = "a weight is from 1 to 100, or from -100 to -1";
            return Err(ValidationError::new(object(), "inter_pod.preferred.weight", preferred.weight, reason));
        }
    }
    for term in inter_pod.spread.do_not_schedule.iter().chain(&inter_pod.spread.schedule_anyway) {
        if term.topology_key.is_empty() {
            return Err(ValidationError::new(
                object(),
                "inter_pod.spread.topology_key",
                "",
                "a term needs a topology key",
            ));
        }
        if term.max_skew == 0 {
            return Err(ValidationError::new(object(), "inter_pod.spread.max_skew", 0, "a skew is at least 1"));
        }
    }
    let preferred = inter_pod.preferred.iter().map(|preferred| &preferred.term);
    for term in inter_pod.required_affinity.iter().chain(&inter_pod.required_anti_affinity).chain(preferred) {
        if term.topology_key.is_empty() {
            return Err(ValidationError::new(object(), "inter_pod.topology_key", "", "a term needs a topology key"));
        }
    }
    Ok(())
}

fn node_term(term: &NodeTerm, field: &str, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    for requirement in &term.labels {
        if requirement.key.is_empty() {
            return Err(ValidationError::new(object(), format!("{field}.key"), "", "a requirement needs a key"));
        }
        if let LabelOperator::In(values) | LabelOperator::NotIn(values) = &requirement.operator
            && values.is_empty()
        {
            let reason = "In and NotIn need at least one value";
            return Err(ValidationError::new(object(), format!("{field}[{}].values", requirement.key), "[]", reason));
        }
    }
    Ok(())
}

/// Validates a group by itself; parents are checked against other groups by the caller.
pub(crate) fn group(spec: &GroupSpec) -> Result<(), ValidationError> {
    let object = || format!("group {}", spec.key);
    if spec.key.name.is_empty() {
        return Err(ValidationError::new(object(), "key.name", "", "a group needs a name"));
    }
    match &spec.policy {
        Policy::Gang { min_count } => minimum("policy.min_count", *min_count, &object)?,
        Policy::Basic { desired_count: Some(count) } => minimum("policy.desired_count", *count, &object)?,
        Policy::Basic { desired_count: None } => {}
        Policy::Subsets(list) => subsets(list, spec.open, &object)?,
        Policy::Tree(tree) => group_tree(spec, tree, &object)?,
        Policy::Groups { min_groups } => minimum("policy.min_groups", *min_groups, &object)?,
    }
    if let Some(timeout_ms) = spec.schedule_timeout_ms
        && !(1..=SCHEDULE_TIMEOUT_MS_MAX).contains(&timeout_ms)
    {
        let reason = "a schedule timeout is greater than zero and at most a day";
        return Err(ValidationError::new(object(), "schedule_timeout_ms", timeout_ms, reason));
    }
    if let Some(constraint) = spec.topology.as_deref() {
        topology(constraint, &object)?;
    }
    amounts(&spec.min_resources, "min_resources", &object)?;
    later_pods(spec, &object)
}

fn topology(constraint: &GroupTopology, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    let levels = &constraint.levels;
    if !(1..=LEVELS_MAX).contains(&levels.len()) {
        let reason = format!("from 1 to {LEVELS_MAX} levels");
        return Err(ValidationError::new(object(), "topology.levels", levels.len(), reason));
    }
    for (index, key) in levels.iter().enumerate() {
        if key.is_empty() || levels[..index].contains(key) {
            let reason = "a level needs a label key of its own";
            return Err(ValidationError::new(object(), format!("topology.levels[{index}]"), key, reason));
        }
    }
    for (field, level) in [("topology.required", constraint.required), ("topology.preferred", constraint.preferred)] {
        if let Some(level) = level.filter(|level| *level >= levels.len()) {
            return Err(ValidationError::new(object(), field, level, "there is no such level"));
        }
    }
    if let Some(preferred) = constraint.preferred.filter(|preferred| Some(*preferred) <= constraint.required) {
        let reason = "the preferred level must be narrower than the required one";
        return Err(ValidationError::new(object(), "topology.preferred", preferred, reason));
    }
    structure(constraint, object)
}

/// Slices and spread are narrower than what all members share, and slices are inside of what they are spread over.
fn structure(constraint: &GroupTopology, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    let GroupTopology { levels, required, slices, spread, exclusive, .. } = constraint;
    let wrong = |field: &str, value: &dyn std::fmt::Debug, reason: &str| {
        Err(ValidationError::new(object(), field, format!("{value:?}"), reason))
    };
    if let Some(slices) = slices
        && (slices.level >= levels.len() || Some(slices.level) <= *required || slices.size == 0)
    {
        return wrong("topology.slices", slices, "needs a level below the required one and a size");
    }
    if let Some(spread) = spread {
        let inside = slices.is_none_or(|slices| spread.level < slices.level);
        if spread.level >= levels.len() || Some(spread.level) <= *required || !inside || spread.max < spread.min.max(1)
        {
            let reason = "needs a level below the required one and above the slices, and a maximum";
            return wrong("topology.spread", spread, reason);
        }
    }
    if let Some(level) = exclusive {
        let of_slices = slices.is_some_and(|slices| slices.level == *level);
        if !of_slices && required.is_none_or(|required| *level > required) {
            return wrong("topology.exclusive", level, "must be a level that members share");
        }
    }
    Ok(())
}

fn later_pods(spec: &GroupSpec, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    let parts = spec.later.iter().flatten();
    if parts.clone().count() > LATER_PARTS_MAX {
        let reason = format!("at most {LATER_PARTS_MAX} entries");
        return Err(ValidationError::new(object(), "later", parts.count(), reason));
    }
    let stages = spec.later.iter().filter(|stage| stage.iter().any(|part| part.group == spec.key));
    if !spec.later.is_empty() && stages.count() == 0 {
        return Err(ValidationError::new(object(), "later", spec.later.len(), "the group itself is not in it"));
    }
    let total: u64 = parts.clone().map(|part| u64::from(part.count)).sum();
    if total > LATER_PODS_MAX {
        return Err(ValidationError::new(object(), "later.count", total, format!("at most {LATER_PODS_MAX} in all")));
    }
    for part in parts {
        if part.count == 0 {
            return Err(ValidationError::new(object(), "later.count", 0, "a count is 1 or more"));
        }
        if part.class.inter_pod.is_some() {
            return Err(ValidationError::new(object(), "later.class", "inter_pod", "later pods have no such terms"));
        }
        class(&part.class, object)?;
    }
    Ok(())
}

fn subsets(list: &[Subset], open: bool, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    if list.is_empty() || list.len() > SUBSETS_MAX {
        let reason = format!("a group has 1 to {SUBSETS_MAX} subsets");
        return Err(ValidationError::new(object(), "policy.subsets", list.len(), reason));
    }
    for (position, subset) in list.iter().enumerate() {
        if list[..position].iter().any(|other| other.name == subset.name) {
            return Err(ValidationError::new(
                object(),
                "policy.subsets.name",
                &subset.name,
                "two subsets have this name",
            ));
        }
        if open && subset.name.is_empty() && subset.min_member == 0 {
            continue;
        }
        minimum(&format!("policy.subsets[{}].min_member", subset.name), subset.min_member, object)?;
        if subset.name.is_empty() && list.len() > 1 && !open {
            return Err(ValidationError::new(
                object(),
                "policy.subsets.name",
                "",
                "only a lone subset may go without a name",
            ));
        }
    }
    Ok(())
}

/// The groups of a tree: each after its parent, with a name of its own, and not too deep.
fn group_tree(spec: &GroupSpec, tree: &GroupTree, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    let nodes = tree.nodes();
    if nodes.is_empty() || nodes.len() > NODES_MAX {
        let reason = format!("a tree has 1 to {NODES_MAX} groups");
        return Err(ValidationError::new(object(), "policy.tree", nodes.len(), reason));
    }
    let mut names = BTreeSet::new();
    let is_leaf = |node: &TreeNode| matches!(node.minimum, TreeMinimum::Pods(_));
    for (at, node) in nodes.iter().enumerate() {
        let field = |name: &str| format!("policy.tree[{}].{name}", node.name);
        let fails =
            |name: &str, value: String, reason: &str| Err(ValidationError::new(object(), field(name), value, reason));
        if !names.insert((is_leaf(node), &node.name)) || (node.name.is_empty() && at > 0) {
            return fails("name", node.name.clone(), "every group of a tree needs a name of its own");
        }
        if at > 0 && (node.parent >= at || is_leaf(&nodes[node.parent])) {
            return fails("parent", node.parent.to_string(), "the parent is a group of groups before it in the list");
        }
        match node.minimum {
            TreeMinimum::Pods(pods) if at > 0 => minimum(&field("minimum"), pods, object)?,
            TreeMinimum::Pods(pods) => return fails("minimum", pods.to_string(), "the root of a tree has groups"),
            TreeMinimum::Groups(groups) => minimum(&field("minimum"), groups, object)?,
        }
        if tree.depth(at) > DEPTH_MAX {
            return fails("parent", node.parent.to_string(), "a tree has at most 4 levels");
        }
        if let Some(constraint) = node.topology.as_deref() {
            topology(constraint, object)?;
        }
        let above = (at > 0).then(|| tree.priority(node.parent)).flatten().or(match spec.priority {
            GroupPriority::Own(own) => Some(own),
            GroupPriority::LowestMember | GroupPriority::SharedByMembers => None,
        });
        if let Some(priority) = node.priority.filter(|priority| above.is_none_or(|above| *priority < above)) {
            return fails("priority", priority.to_string(), "a group has at least the priority of its parent");
        }
    }
    if !spec.min_resources.is_empty() || !spec.later.is_empty() {
        let reason = "a tree has neither min_resources nor later pods";
        return Err(ValidationError::new(object(), "policy.tree", nodes.len(), reason));
    }
    Ok(())
}

fn minimum(field: &str, count: u32, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    if (1..=MIN_COUNT_MAX).contains(&count) {
        return Ok(());
    }
    Err(ValidationError::new(object(), field, count, format!("a count is from 1 to {MIN_COUNT_MAX}")))
}

fn amounts(
    list: &std::collections::BTreeMap<String, i64>,
    field: &str,
    object: &dyn Fn() -> String,
) -> Result<(), ValidationError> {
    for (name, amount) in list {
        if name.is_empty() {
            return Err(ValidationError::new(object(), field, "", "a resource needs a name"));
        }
        amount_in_range(&format!("{field}[{name}]"), *amount, object)?;
    }
    Ok(())
}

fn amount_in_range(field: &str, amount: i64, object: &dyn Fn() -> String) -> Result<(), ValidationError> {
    if (0..=AMOUNT_MAX).contains(&amount) {
        return Ok(());
    }
    Err(ValidationError::new(object(), field, amount, format!("an amount is from 0 to {AMOUNT_MAX}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::class::ScoringRequest;
    use crate::model::group::GroupKey;
    use crate::model::labels::{PreferredTerm, Requirement};
    use crate::model::pod::{Membership, PodName, PodRefusal, RefusalKind};
    use crate::model::port::{HostPort, Protocol};

    fn pod_with(change: impl FnOnce(&mut ClassSpec)) -> PodSpec {
        let id = PodName { namespace: "ml".into(), name: "a-0".into(), uid: "u".into() };
        let mut class = ClassSpec::default();
        change(&mut class);
        PodSpec { id: Arc::new(id), class: Arc::new(class), ..PodSpec::default() }
    }

    fn refused(result: Result<(), ValidationError>) -> String {
        result.expect_err("must be refused").to_string()
    }

    #[test]
    fn invalid_pod_is_refused_with_object_field_and_value() {
        let term =
            |demand| NodeTerm { labels: vec![Requirement { key: "zone".into(), operator: demand }], names: vec![] };
        let port =
            |address: Option<&str>, port| HostPort { address: address.map(Into::into), protocol: Protocol::Tcp, port };
        let cases: Vec<(PodSpec, &str)> = vec![
            (
                pod_with(|class| {
                    class.requests.insert("cpu".into(), -1);
                }),
                "Pod ml/a-0: requests[cpu]: \"-1\"",
            ),
            (
                pod_with(|class| {
                    class.requests.insert("memory".into(), i64::MAX);
                }),
                "9223372036854775807",
            ),
            (
                pod_with(|class| {
                    class.requests.insert(String::new(), 1);
                }),
                "needs a name",
            ),
            (pod_with(|class| class.scoring_cpu_milli = -5), "scoring_cpu_milli: \"-5\""),
            (
                pod_with(|class| class.required_terms = Some(vec![term(LabelOperator::In(vec![]))])),
                "required_terms[zone].values",
            ),
            (
                pod_with(|class| {
                    class.preferred_terms = vec![PreferredTerm { weight: 0, term: term(LabelOperator::Exists) }];
                }),
                "preferred_terms.weight: \"0\"",
            ),
            (
                pod_with(|class| {
                    class.preferred_terms = vec![PreferredTerm { weight: 101, term: term(LabelOperator::Exists) }];
                }),
                "\"101\"",
            ),
            (
                pod_with(|class| {
                    class.requests.insert("memory".into(), AMOUNT_MAX + 1);
                }),
                "requests[memory]",
            ),
            (
                pod_with(|class| {
                    class.placed_scoring = Some(ScoringRequest { cpu_milli: 0, memory_bytes: -7 });
                }),
                "placed_scoring.memory_bytes: \"-7\"",
            ),
            (
                pod_with(|class| class.required_terms = Some(vec![term(LabelOperator::NotIn(vec![]))])),
                "required_terms[zone].values",
            ),
            (
                pod_with(|class| {
                    class.preferred_terms = vec![PreferredTerm { weight: 1, term: term(LabelOperator::In(vec![])) }];
                }),
                "preferred_terms[zone].values",
            ),
            (
                pod_with(|class| {
                    let requirement = Requirement { key: String::new(), operator: LabelOperator::Exists };
                    class.required_terms = Some(vec![NodeTerm { labels: vec![requirement], names: vec![] }]);
                }),
                "required_terms.key",
            ),
            (pod_with(|class| class.host_ports = vec![port(None, 0)]), "host_ports.port: \"0\""),
            (pod_with(|class| class.host_ports = vec![port(Some(""), 80)]), "host_ports.address"),
            (PodSpec { id: Arc::default(), ..pod_with(|_| {}) }, "uid"),
            (pod_with(|class| class.host_ports = vec![port(Some("0.0.0.0"), 80)]), "host_ports.address"),
        ];
        for (spec, expected) in cases {
            let text = refused(pod(&spec));
            assert!(text.contains(expected), "{text} should contain {expected}");
        }
        assert!(pod(&pod_with(|_| {})).is_ok());
        let unnamed_group = PodSpec { membership: Some(Membership::of(GroupKey::default())), ..pod_with(|_| {}) };
        assert!(refused(pod(&unnamed_group)).contains("membership.group.name"));
        let refusal = PodRefusal {
            kind: RefusalKind::Unsupported,
            field: String::new(),
            value: "x".into(),
            reason: String::new(),
        };
        let unnamed_field = PodSpec { refused: Some(Arc::new(refusal)), ..pod_with(|_| {}) };
        assert!(refused(pod(&unnamed_field)).contains("refused.field"));
    }

    #[test]
    fn invalid_group_is_refused_with_object_field_and_value() {
        let key = || GroupKey { namespace: "ml".into(), name: "g".into(), ..GroupKey::default() };
        let subset = |name: &str, min_member| Subset { name: name.into(), min_member };
        let many = |count: usize| (0..count).map(|number| subset(&number.to_string(), 1)).collect();
        let with = |policy| GroupSpec::with_policy(key(), policy);
        let cases = [
            (GroupSpec::gang(key(), 0), "group ml/g: policy.min_count: \"0\""),
            (GroupSpec::gang(key(), 1 << 31), "\"2147483648\""),
            (with(Policy::Basic { desired_count: Some(0) }), "policy.desired_count: \"0\""),
            (with(Policy::Subsets(vec![])), "policy.subsets: \"0\""),
            (with(Policy::Subsets(vec![subset("a", 1), subset("a", 1)])), "two subsets"),
            (with(Policy::Subsets(vec![subset("", 1), subset("a", 1)])), "lone subset"),
            (with(Policy::Subsets(vec![subset("a", 0)])), "policy.subsets[a].min_member: \"0\""),
            (with(Policy::Subsets(many(SUBSETS_MAX + 1))), "policy.subsets: \"33\""),
            (GroupSpec { schedule_timeout_ms: Some(0), ..GroupSpec::gang(key(), 1) }, "schedule_timeout_ms: \"0\""),
            (
                GroupSpec { schedule_timeout_ms: Some(SCHEDULE_TIMEOUT_MS_MAX + 1), ..GroupSpec::gang(key(), 1) },
                "schedule_timeout_ms: \"86400001\"",
            ),
            (
                GroupSpec {
                    topology: GroupTopology::of([(String::new(), true)]).map(Arc::new),
                    ..GroupSpec::gang(key(), 1)
                },
                "topology.levels[0]: \"\"",
            ),
            (
                GroupSpec {
                    topology: GroupTopology::of([("a".into(), true), ("a".into(), false)]).map(Arc::new),
                    ..GroupSpec::gang(key(), 1)
                },
                "topology.levels[1]: \"a\"",
            ),
            (
                GroupSpec {
                    topology: Some(Arc::new(GroupTopology {
                        levels: vec!["a".into(), "b".into()],
                        required: Some(1),
                        preferred: Some(0),
                        ..GroupTopology::of([("a".into(), true)]).unwrap()
                    })),
                    ..GroupSpec::gang(key(), 1)
                },
                "topology.preferred: \"0\"",
            ),
            (
                GroupSpec { min_resources: [("cpu".to_owned(), -1)].into(), ..GroupSpec::gang(key(), 1) },
                "min_resources[cpu]: \"-1\"",
            ),
            (GroupSpec::gang(GroupKey::default(), 1), "key.name"),
        ];
        for (spec, expected) in cases {
            let text = refused(group(&spec));
            assert!(text.contains(expected), "{text} should contain {expected}");
        }
        assert!(group(&GroupSpec::gang(key(), i32::MAX as u32)).is_ok());
        assert!(group(&with(Policy::Subsets(many(SUBSETS_MAX)))).is_ok());
        assert!(group(&with(Policy::Subsets(vec![subset("", 1)]))).is_ok());
    }

    #[test]
    fn invalid_node_is_refused() {
        let spec = NodeSpec { name: "n0".into(), allocatable: [("cpu".to_owned(), -1)].into(), ..NodeSpec::default() };
        assert!(refused(node(&spec)).starts_with("Node n0: allocatable[cpu]: \"-1\""));
        assert!(refused(node(&NodeSpec::default())).contains("needs a name"));
    }
}
