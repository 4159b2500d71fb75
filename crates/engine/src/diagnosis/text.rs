//! The messages of diagnoses. Filter reasons use the wording of kube-scheduler, so that users and tools recognise them.

use std::fmt::{self, Display, Formatter};

use super::{
    Bottleneck, Closest, Diagnosis, DomainGap, FitError, KindShortfall, LaterGap, MemberKind, PartsGap, Preemption,
    Proof, Rejection, ResourceGap, Shortfall, SlicesGap, SpreadGap, TiedClaim, Victims, Waiting,
};
use crate::model::pod::RefusalKind;

impl Display for Rejection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName => f.write_str("node(s) didn't match the requested node name"),
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Taints => f.write_str("node(s) had untolerated taint(s)"),
            Self::EnforcedAffinity => f.write_str("node(s) didn't match scheduler-enforced node affinity"),
            Self::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Disk => f.write_str("node(s) had no available disk"),
            Self::ReadWriteOncePod => f.write_str(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            ),
            Self::VolumeLimit => f.write_str("node(s) exceed max volume count"),
            Self::DriverMissing { driver } => write!(f, "{driver} CSI driver is not installed on the node"),
            Self::NoVolume => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::NoStorage => f.write_str("node(s) did not have enough free storage"),
            Self::VolumeMissing => {
                f.write_str("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            }
            Self::VolumeAffinity => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::VolumeZone => f.write_str("node(s) had no available volume zone"),
            Self::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::SpreadLabel => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingPodAntiAffinity => f.write_str("node(s) didn't satisfy existing pods anti-affinity rules"),
            Self::Features => f.write_str("node(s) didn't match Pod's required features"),
            Self::Reserved => f.write_str("node(s) were reserved for a group that has waited too long"),
            Self::PartOfGroup => f.write_str("node(s) were in a domain that cannot take its part of the group"),
            Self::OtherDomain => f.write_str("node(s) were in another topology domain or in none"),
            Self::RefusedBind => f.write_str("node(s) refused the bind a moment ago"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient { resource } => write!(f, "Insufficient {resource}"),
        }
    }
}

impl Display for FitError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available", self.nodes)?;
        let mut parts: Vec<String> =
            self.rejections.iter().map(|(rejection, nodes)| format!("{nodes} {rejection}")).collect();
        // kube-scheduler sorts the reasons as text.
        parts.sort_unstable();
        if parts.is_empty() { f.write_str(".") } else { write!(f, ": {}.", parts.join(", ")) }?;
        self.tied_claims.iter().try_for_each(|claim| write!(f, " {claim}"))
    }
}

impl Display for TiedClaim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Claim {} ", self.claim)?;
        let nodes = self.examples.join(", ");
        match (&self.volume, self.nodes) {
            (None, 0) => write!(f, "waits for a volume on node {}, which does not exist.", self.selected_node),
            (None, _) => write!(f, "waits for a volume on node {}.", self.selected_node),
            (Some(volume), 0) => write!(f, "is bound to volume {volume}, which no node can use."),
            (Some(volume), count) if count as usize > self.examples.len() => {
                write!(f, "is bound to volume {volume}, which {count} nodes can use, {nodes} among them.")
            }
            (Some(volume), _) => write!(f, "is bound to volume {volume}, which can be used on {nodes} only."),
        }
    }
}

impl Display for Closest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Closest is node {}", self.node)?;
        let lacks =
            self.lacks.iter().map(|(resource, amount)| format!("{} {resource} more", amount_text(resource, *amount)));
        let lacks: Vec<String> = lacks.collect();
        if !lacks.is_empty() {
            return write!(f, ", which needs {}.", lacks.join(" and "));
        }
        let others: Vec<String> = self.rejections.iter().map(ToString::to_string).collect();
        if others.is_empty() { f.write_str(".") } else { write!(f, ": {}.", others.join(", ")) }
    }
}

/// An amount as a Kubernetes quantity.
fn amount_text(resource: &str, amount: i64) -> String {
    const MEBI: i64 = 1 << 20;
    match resource {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" if amount >= MEBI => format!("{}Mi", (amount + MEBI - 1) / MEBI),
        _ => amount.to_string(),
    }
}

impl Display for Waiting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupMissing { group, pods } => {
                write!(f, "Waiting for the group {group}: no such object; {} it.", name_it(*pods))
            }
            Self::Members { subset, have, need, stateful_set } => {
                let of_subset = if subset.is_empty() { String::new() } else { format!(" of subset {subset}") };
                write!(f, "Waiting for members{of_subset}: {have} of {need} are there.")?;
                let Some(name) = stateful_set else { return Ok(()) };
                write!(
                    f,
                    " If StatefulSet {name} has the podManagementPolicy OrderedReady, the default, it creates its next \
                     pod only when this one is ready, and the group can never start: create it with \
                     podManagementPolicy Parallel."
                )
            }
            Self::Parent { parent } => write!(f, "Waiting for the parent group {parent}: no such object."),
            Self::TreeInvalid { field, value, reason } => write!(f, "The group's {field} ({value}): {reason}."),
            Self::Groups { group, have, need } if group.is_empty() => {
                write!(f, "Waiting for groups: {have} of {need} are there.")
            }
            Self::Groups { group, have, need } => {
                write!(f, "Waiting for groups of {group}: {have} of {need} are there.")
            }
            Self::Leaving => f.write_str("The group is being preempted; its waiting pods are considered after that."),
            Self::Gates { gated: 1, example } => write!(f, "Waiting for the scheduling gates of pod {example}."),
            Self::Gates { gated, example } => {
                write!(f, "Waiting for the scheduling gates of {gated} pods, {example} among them.")
            }
            Self::DesiredCount { have, desired } => {
                write!(f, "Waiting a moment for more members: {have} of {desired} desired are there.")
            }
            Self::Volumes { claims: 1, example, node } => {
                write!(f, "Waiting for the volume of claim {example} on node {node}, before any pod is bound.")
            }
            Self::Volumes { claims, example, node } => write!(
                f,
                "Waiting for the volumes of {claims} claims, {example} on node {node} among them, before any pod is bound."
            ),
            Self::UnknownSubset { subset, group } if subset.is_empty() => {
                write!(f, "The group {group} has several subsets and the pod names none.")
            }
            Self::UnknownSubset { subset, group } => write!(f, "The group {group} has no subset {subset:?}."),
            Self::OtherPriority { own, shared, group } => {
                write!(f, "All pods of the group {group} must have priority {shared}; this pod has {own}.")
            }
            Self::Former { group } => {
                write!(
                    f,
                    "The pod is left over from an earlier start of the group {group}; it is not scheduled with the current one."
                )
            }
            Self::PodRefused { pod, kind, field, value, reason, pods } => {
                write!(f, "Pod {pod}: {field} ({value:?})")?;
                let reason = reason.trim_end_matches('.');
                match kind {
                    RefusalKind::Unsupported if reason.is_empty() => f.write_str(" is not supported yet.")?,
                    RefusalKind::Unsupported => write!(f, " is not supported yet: {reason}.")?,
                    RefusalKind::Reference | RefusalKind::Invalid | RefusalKind::Volume => write!(f, ": {reason}.")?,
                }
                if *pods > 1 { write!(f, " {pods} pods are refused.") } else { Ok(()) }
            }
            Self::Unsupported { field, value } => {
                write!(f, "The group's {field} ({value}) is not supported yet; without it the group would be tried.")
            }
        }
    }
}

fn name_it(pods: u32) -> String {
    if pods == 1 { "1 pod names".to_owned() } else { format!("{pods} pods name") }
}

impl Display for KindShortfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plural = if self.pods == 1 { "" } else { "s" };
        write!(f, "No room for {} pod{plural}", self.pods)?;
        if !self.subset.is_empty() {
            write!(f, " of subset {}", self.subset)?;
        }
        write!(f, ": {}", self.fit)?;
        self.closest.as_ref().map_or(Ok(()), |closest| write!(f, " {closest}"))
    }
}

impl Display for Shortfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { minimum, held, waiting, would_fit, .. } = self;
        write!(f, "{would_fit} of {waiting} waiting pods fit")?;
        match (*minimum, *held) {
            (0, _) => f.write_str(".")?,
            (minimum, 0) => write!(f, ", the group needs {minimum} at once.")?,
            (minimum, held) => write!(f, ", the group needs {minimum} and has {held}.")?,
        }
        for kind in &self.kinds {
            write!(f, " {kind}")?;
        }
        if let Some(domain) = &self.domain {
            write!(f, " {domain}")?;
        }
        if let Some(bottleneck) = &self.bottleneck {
            write!(f, " {bottleneck}")?;
        }
        if let Some(ResourceGap { resource, asked, taken, left, owed }) = &self.gap {
            let text = |amount: i64| amount_text(resource, amount);
            write!(f, " Its minResources ask for {} {resource}: ", text(*asked))?;
            write!(f, "these pods take {}, and {} are left for the others", text(*taken), text(*left))?;
            f.write_str(" on the nodes that it may use")?;
            if *owed > 0 {
                write!(f, ", {} of them for groups that have started and are not complete", text(*owed))?;
            }
            f.write_str(".")?;
        }
        if let Some(LaterGap { group, pods, fit, beside }) = &self.later {
            let when = if *beside { "which run at the same time" } else { "which run after it" };
            write!(
                f,
                " Its owner creates {pods} more pods of {group} later, {when}, and there is room for {fit} of them."
            )?;
        }
        match self.proof {
            Proof::Impossible => {}
            Proof::NeverFits => f.write_str(" Even the empty nodes of this cluster could not hold it.")?,
            Proof::NodesLeftOut => f.write_str(" Nodes that refused a bind are tried again in a moment.")?,
            Proof::NotFound { steps, alike } => {
                let why = if alike {
                    "where one of these pods may be depends on where the others are"
                } else {
                    "the group mixes different pods"
                };
                write!(f, " This is not a proof: {why}")?;
                match steps {
                    0 => f.write_str(", and there are too many to be searched; only heuristics were tried.")?,
                    _ => write!(f, ", and the search ended after {steps} steps; it will be looked at again.")?,
                }
            }
        }
        write!(f, "{}", self.preemption)
    }
}

impl Display for MemberKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("pods")?;
        if !self.subset.is_empty() {
            write!(f, " of subset {}", self.subset)?;
        }
        let amount = |(resource, amount): &(String, i64)| format!("{} {resource}", amount_text(resource, *amount));
        let requests: Vec<String> = self.requests.iter().map(amount).collect();
        if requests.is_empty() { Ok(()) } else { write!(f, " with {}", requests.join(" and ")) }
    }
}

impl Display for Bottleneck {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |kinds: &[MemberKind]| kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Places { kinds, fit, need } => {
                write!(
                    f,
                    "Bottleneck: {} fit {fit} times, {need} are needed; no mix of nodes changes that.",
                    list(kinds)
                )
            }
            Self::Resource { resource, asked, usable } => {
                let text = |amount: i64| amount_text(resource, amount);
                let (asked, usable) = (text(*asked), text(*usable));
                write!(f, "Bottleneck: its pods need {asked} {resource}, and can use {usable} on the nodes together.")
            }
            Self::Mix { kinds, count } => {
                let more = if *count as usize > kinds.len() { " and more" } else { "" };
                write!(f, "Bottleneck: {}{more} do not fit together; no mix of nodes changes that.", list(kinds))
            }
        }
    }
}

impl Display for DomainGap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { key, path, domains, held, outside, without_label, parts, closed } = self;
        let in_one = parts.as_ref().is_none_or(|parts| parts.in_one_domain);
        if in_one && path.is_empty() && *closed > 0 {
            write!(f, "They have to share a domain of {key}, and other groups have the only {closed} for themselves.")?;
        } else if in_one && path.is_empty() {
            return write!(f, "They have to share a domain of {key}, and no node has the labels for one.");
        } else if in_one {
            let path = path.join("/");
            if *held {
                write!(f, "They have to be in domain {path} of {key}, where members of the group are.")?;
            } else {
                let plural = if *domains == 1 { "" } else { "s" };
                write!(f, "They have to share a domain of {key}: of {domains} domain{plural}, {path} comes closest.")?;
            }
        }
        if let Some(parts) = parts {
            write!(f, "{}{parts}", if in_one { " " } else { "" })?;
        }
        match *closed {
            0 => {}
            _ if path.is_empty() && in_one => {}
            1 => f.write_str(" Another group has 1 domain for itself.")?,
            closed => write!(f, " Other groups have {closed} domains for themselves.")?,
        }
        match *outside {
            0 => {}
            1 => f.write_str(" 1 member is outside of it: the labels of nodes have changed.")?,
            members => write!(f, " {members} members are outside of it: the labels of nodes have changed.")?,
        }
        match *without_label {
            0 => Ok(()),
            1 => f.write_str(" 1 node is in no domain, as it lacks a label."),
            nodes => write!(f, " {nodes} nodes are in no domain, as they lack a label."),
        }
    }
}

impl Display for PartsGap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(SlicesGap { key, size, needed, fit, largest }) = &self.slices {
            write!(f, "Every {size} of them have to share a domain of {key}: ")?;
            match fit {
                0 => write!(f, "the largest has room for {largest}.")?,
                fit => write!(f, "there is room for {fit} of {needed} such slices.")?,
            }
        }
        if let Some(SpreadGap { key, min, max, with_room }) = &self.spread {
            let space = if self.slices.is_some() { " " } else { "" };
            match (min, max) {
                (0 | 1, max) => write!(f, "{space}They have to be in at most {max} domains of {key}")?,
                (min, &u32::MAX) => write!(f, "{space}They have to be in at least {min} domains of {key}")?,
                (min, max) => write!(f, "{space}They have to be in {min} to {max} domains of {key}")?,
            }
            write!(f, ", and {with_room} have room.")?;
        }
        Ok(())
    }
}

impl Display for Victims {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.evicted {
            0 => f.write_str("A place is kept free; waiting for pods that are being deleted")?,
            1 => f.write_str("A place is kept free; 1 pod is evicted for it")?,
            pods => write!(f, "A place is kept free; {pods} pods are evicted for it")?,
        }
        if !self.examples.is_empty() {
            let more = if self.units as usize > self.examples.len() { " and more" } else { "" };
            write!(f, ": {}{more}", self.examples.join(", "))?;
        }
        if let Some(highest) = self.highest {
            write!(f, ", of priority {highest} or lower")?;
        }
        f.write_str(".")?;
        if self.pdb_violations > 0 {
            write!(f, " {} of them are evicted against a disruption budget.", self.pdb_violations)?;
        }
        if self.proven && self.evicted > 0 {
            f.write_str(" No cheaper choice exists.")?;
        } else if self.groups_at_least > 0 && self.groups > 1 {
            write!(f, " Of {} whole groups, at least {} must go in any case.", self.groups, self.groups_at_least)?;
        }
        if let Some(within_ms) = self.within_ms.filter(|_| self.overdue.is_empty()) {
            write!(f, " The last of them was given {} s to leave.", within_ms.div_ceil(1000))?;
        }
        self.write_overdue(f)?;
        let Some(failing) = &self.failing else { return Ok(()) };
        write!(f, " Evictions fail and are retried, for example that of {failing}.")
    }
}

impl Victims {
    fn write_overdue(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.overdue.is_empty() {
            return Ok(());
        }
        write!(f, " They should be gone and are not: {}.", self.overdue.join(", "))
    }
}

impl Display for Preemption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTried => f.write_str(" Preemption was not tried."),
            Self::Never => f.write_str(" It does not preempt: its preemption policy is Never."),
            Self::NoLowerPriority => f.write_str(" No pod of a lower priority could be preempted."),
            Self::NotEnough => f.write_str(
                " Preemption would not help: even without all pods of a lower priority there is too little room.",
            ),
            Self::MinResources => f.write_str(
                " Preemption would not help: beside these pods there would be too little for its minResources.",
            ),
            Self::LaterPods => {
                f.write_str(" Preemption would not help: there would be no room for the pods that come later.")
            }
            Self::BeyondMinimum => {
                f.write_str(" It does not preempt: the group has its minimum, and preemption.beyondMinimum is false.")
            }
            Self::NotFound => f.write_str(" No preemption plan was found; that does not prove that there is none."),
            Self::Budgets => f.write_str(" Preemption would violate a disruption budget."),
            Self::Spared => {
                f.write_str(" Pods that could be preempted are spared for a while because their eviction was refused.")
            }
            Self::UpcomingNodes { nodes: 1 } => {
                f.write_str(" It does not preempt: it fits once a node that is starting up is ready.")
            }
            Self::UpcomingNodes { nodes } => {
                write!(f, " It does not preempt: it fits once {nodes} nodes that are starting up are ready.")
            }
            Self::Delayed { delay_ms } => {
                write!(f, " It preempts once it has waited {} s.", delay_ms.div_ceil(1000))
            }
            Self::TimedOut { pause_ms } => {
                write!(f, " No more pods are evicted for it for {} s: ", pause_ms.div_ceil(1000))?;
                f.write_str("others that had to leave for it did not leave in time.")
            }
        }
    }
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduled { minimum: 0, scheduled } => write!(f, "{}.", bound(*scheduled)),
            Self::Scheduled { minimum, scheduled } => write!(f, "{}, {}.", bound(*scheduled), needed(*minimum)),
            Self::Waiting(waiting) => waiting.fmt(f),
            Self::PodUnschedulable { fit, closest, never, preemption } => {
                write!(f, "{fit}")?;
                if let Some(closest) = closest {
                    write!(f, " {closest}")?;
                }
                if *never {
                    f.write_str(" No node of this cluster could hold it even when empty.")?;
                }
                write!(f, "{preemption}")
            }
            Self::GroupUnschedulable(shortfall) => shortfall.fmt(f),
            Self::WaitingForVictims(victims) => victims.fmt(f),
            Self::VolumeBindFailed { claim, node, message } => {
                write!(f, "Claim {claim} has no volume on node {node}: {message}. No pod is bound.")
            }
            Self::BindFailed { node, message } => write!(f, "Binding to node {node} failed: {message}"),
            Self::TimedOut { victims: Some(victims), .. } => {
                f.write_str(
                    "The group did not start in time: pods have not left, and no place is kept free any more.",
                )?;
                victims.write_overdue(f)?;
                victims.failing.as_ref().map_or(Ok(()), |failing| write!(f, " An eviction failed: {failing}."))
            }
            Self::TimedOut { minimum, scheduled, rolled_back, kept, victims: None } => {
                write!(f, "The group did not start in time: {scheduled} of {minimum} pods were bound. ")?;
                write!(f, "{rolled_back} are rolled back")?;
                if *kept > 0 {
                    write!(f, ", {kept} stay because no controller would recreate them")?;
                }
                f.write_str(".")
            }
            Self::Degraded { minimum, scheduled, evicted } => {
                write!(f, "The group lost members: {scheduled} of the {minimum} it needs are left.")?;
                match evicted {
                    0 => Ok(()),
                    1 => f.write_str(" What is left of it, 1 pod, is deleted so that it starts as a whole."),
                    pods => write!(f, " What is left of it, {pods} pods, is deleted so that it starts as a whole."),
                }
            }
            Self::Healthy { minimum, scheduled } => {
                write!(f, "The group has what it needs again: {}, {}.", bound(*scheduled), needed(*minimum))
            }
        }
    }
}

fn bound(pods: u32) -> String {
    if pods == 1 { "1 pod is bound".to_owned() } else { format!("{pods} pods are bound") }
}

fn needed(pods: u32) -> String {
    if pods == 1 { "1 is needed".to_owned() } else { format!("{pods} are needed") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> FitError {
        let gpu = Rejection::Insufficient { resource: "nvidia.com/gpu".into() };
        FitError { nodes: 12, rejections: vec![(Rejection::Taints, 8), (gpu, 4)], ..FitError::default() }
    }

    #[test]
    fn claims_that_tie_a_pod_to_nodes_are_named() {
        let claim = |volume: Option<&str>, selected: &str, nodes, examples: &[&str]| {
            TiedClaim {
                claim: "ns/c".to_owned(),
                volume: volume.map(str::to_owned),
                selected_node: selected.to_owned(),
                nodes,
                examples: examples.iter().map(ToString::to_string).collect(),
            }
            .to_string()
        };
        assert_eq!(claim(None, "n1", 1, &["n1"]), "Claim ns/c waits for a volume on node n1.");
        assert_eq!(claim(None, "n1", 0, &[]), "Claim ns/c waits for a volume on node n1, which does not exist.");
        assert_eq!(claim(Some("v"), "", 0, &[]), "Claim ns/c is bound to volume v, which no node can use.");
        let two = claim(Some("v"), "", 2, &["n1", "n2"]);
        assert_eq!(two, "Claim ns/c is bound to volume v, which can be used on n1, n2 only.");
        let many = claim(Some("v"), "", 9, &["n1", "n2", "n3"]);
        assert_eq!(many, "Claim ns/c is bound to volume v, which 9 nodes can use, n1, n2, n3 among them.");
    }

    #[test]
    fn filter_reasons_use_the_wording_of_kube_scheduler() {
        let expected = "0/12 nodes are available: 4 Insufficient nvidia.com/gpu, 8 node(s) had untolerated taint(s).";
        assert_eq!(fit().to_string(), expected);
        assert_eq!(FitError::default().to_string(), "0/0 nodes are available.");
    }

    #[test]
    fn group_message_has_fitting_pods_closest_node_and_what_is_missing() {
        let closest = Closest {
            node: "gpu-7".into(),
            lacks: vec![("nvidia.com/gpu".into(), 3), ("memory".into(), (5 << 30) + 1)],
            rejections: vec![],
        };
        let kind = KindShortfall { subset: "worker".into(), pods: 2, fit: fit(), closest: Some(closest) };
        let mut shortfall = Shortfall {
            started: false,
            minimum: 8,
            held: 0,
            waiting: 8,
            would_fit: 6,
            kinds: vec![kind],
            gap: None,
            later: None,
            domain: None,
            bottleneck: None,
            proof: Proof::NotFound { steps: 9, alike: false },
            preemption: Preemption::NotTried,
        };
        let text = shortfall.to_string();
        assert_eq!(
            text,
            "6 of 8 waiting pods fit, the group needs 8 at once. No room for 2 pods of subset worker: 0/12 nodes are \
             available: 4 Insufficient nvidia.com/gpu, 8 node(s) had untolerated taint(s). Closest is node gpu-7, \
             which needs 3 nvidia.com/gpu more and 5121Mi memory more. This is not a proof: the group mixes different \
             pods, and the search ended after 9 steps; it will be looked at again. Preemption was not tried."
        );
        shortfall.proof = Proof::NotFound { steps: 9, alike: true };
        let text = shortfall.to_string();
        assert!(!text.contains("different pods"), "{text}");
        assert!(text.contains("depends on where the others are, and the search ended after 9 steps;"), "{text}");
        shortfall.proof = Proof::NeverFits;
        assert!(shortfall.to_string().contains("Even the empty nodes"));
        shortfall.gap = Some(ResourceGap { resource: "cpu".into(), asked: 8000, taken: 2000, left: 500, owed: 0 });
        let text = shortfall.to_string();
        let gap = "Its minResources ask for 8 cpu: these pods take 2, and 500m are left for the others on the";
        assert!(text.contains(gap), "{text}");
    }

    #[test]
    fn bottlenecks_name_what_is_too_little() {
        let kind = |subset: &str, gpus| MemberKind {
            subset: subset.to_owned(),
            requests: vec![("nvidia.com/gpu".to_owned(), gpus)],
        };
        let places = Bottleneck::Places { kinds: vec![kind("", 8)], fit: 12, need: 14 };
        assert_eq!(
            places.to_string(),
            "Bottleneck: pods with 8 nvidia.com/gpu fit 12 times, 14 are needed; no mix of nodes changes that."
        );
        let resource = Bottleneck::Resource { resource: "cpu".into(), asked: 9000, usable: 8500 };
        assert_eq!(resource.to_string(), "Bottleneck: its pods need 9 cpu, and can use 8500m on the nodes together.");
        let mix = Bottleneck::Mix { kinds: vec![kind("ps", 1), kind("worker", 4)], count: 3 };
        assert_eq!(
            mix.to_string(),
            "Bottleneck: pods of subset ps with 1 nvidia.com/gpu, pods of subset worker with 4 nvidia.com/gpu and more \
             do not fit together; no mix of nodes changes that."
        );
    }

    #[test]
    fn parts_that_do_not_apply_are_omitted() {
        let timed_out =
            |kept| Diagnosis::TimedOut { minimum: 3, scheduled: 2, rolled_back: 2, kept, victims: None }.to_string();
        assert_eq!(timed_out(0), "The group did not start in time: 2 of 3 pods were bound. 2 are rolled back.");
        assert!(timed_out(1).ends_with("2 are rolled back, 1 stay because no controller would recreate them."));
        let closest = |rejections| Closest { node: "n0".into(), lacks: vec![], rejections }.to_string();
        assert_eq!(closest(vec![]), "Closest is node n0.");
        assert_eq!(closest(vec![Rejection::TooManyPods]), "Closest is node n0: Too many pods.");
        let unknown = |subset: &str| Waiting::UnknownSubset { subset: subset.into(), group: "ml/g".into() }.to_string();
        assert_eq!(unknown(""), "The group ml/g has several subsets and the pod names none.");
        assert_eq!(unknown("ps"), "The group ml/g has no subset \"ps\".");
        let no_room = |pods| KindShortfall { subset: String::new(), pods, fit: fit(), closest: None }.to_string();
        assert!(no_room(1).starts_with("No room for 1 pod: 0/12"));
        assert!(no_room(2).starts_with("No room for 2 pods: 0/12"));
    }

    #[test]
    fn refusal_message_has_field_value_and_reason() {
        let refused = |kind, field: &str, reason: &str, pods| {
            let (field, reason) = (field.to_owned(), reason.to_owned());
            Waiting::PodRefused { pod: "ml/a-0".into(), kind, field, value: "x".into(), reason, pods }.to_string()
        };
        let affinity = |reason, pods| refused(RefusalKind::Unsupported, "spec.affinity.podAffinity", reason, pods);
        assert_eq!(affinity("", 1), "Pod ml/a-0: spec.affinity.podAffinity (\"x\") is not supported yet.");
        assert_eq!(
            affinity("use a selector.", 3),
            "Pod ml/a-0: spec.affinity.podAffinity (\"x\") is not supported yet: use a selector. 3 pods are refused."
        );
        let annotation = "metadata.annotations[muster.dev/workload]";
        assert_eq!(
            refused(RefusalKind::Reference, annotation, "no such template", 1),
            "Pod ml/a-0: metadata.annotations[muster.dev/workload] (\"x\"): no such template."
        );
    }

    #[test]
    fn amounts_are_formatted_as_quantities() {
        assert_eq!(amount_text("cpu", 2000), "2");
        assert_eq!(amount_text("cpu", 1500), "1500m");
        assert_eq!(amount_text("memory", 1000), "1000");
        assert_eq!(amount_text("memory", 1 << 30), "1024Mi");
        assert_eq!(amount_text("example.com/dongle", 3), "3");
    }
}
