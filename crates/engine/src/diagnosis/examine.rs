//! Analysis of why a class of pods does not fit in the cluster.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Closest, FitError, Rejection};
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::load::Load;
use crate::cluster::node::Node;
use crate::filter::{self, Reason, View};
use crate::model::ids::{ClassId, NodeId};
use crate::placement::Within;

/// Why no node fits, of all or of a domain, and which came closest. Nodes that refused a bind recently are avoided.
pub(crate) fn explain_no_fit(
    cluster: &Cluster,
    class: ClassId,
    priority: i32,
    (avoid, within): (&[NodeId], Option<&Within>),
) -> (FitError, Option<Closest>) {
    let pod_class = cluster.class(class);
    let mut counts: BTreeMap<Rejection, u32> = BTreeMap::new();
    let mut nearest: Option<(i64, NodeId)> = None;
    let mut reserved_only = 0;
    for (id, node) in cluster.nodes().filter(|(_, node)| node.present) {
        if within.is_some_and(|within| !within.contains(id)) {
            *counts.entry(Rejection::OtherDomain).or_default() += 1;
            continue;
        }
        if avoid.contains(&id) {
            *counts.entry(Rejection::RefusedBind).or_default() += 1;
            continue;
        }
        let view = filter::view(cluster, id, priority);
        let reasons = filter::failure_reasons(pod_class, node, &view);
        reserved_only += u32::from(matches!(reasons[..], [Reason::Reserved]));
        if reasons.is_empty() {
            *counts.entry(Rejection::PartOfGroup).or_default() += 1;
            continue;
        }
        let distance = distance(cluster, pod_class, id, &view.load, &reasons);
        if let Some(distance) = distance
            && nearest.is_none_or(|(best, _)| distance < best)
        {
            nearest = Some((distance, id));
        }
        for reason in reasons {
            *counts.entry(to_rejection(cluster, reason)).or_default() += 1;
        }
    }
    let (nodes, rejections) = (cluster.nodes_present() as u32, counts.into_iter().collect());
    let fit = FitError { nodes, rejections, reserved_only, tied_claims: Vec::new() };
    (fit, nearest.map(|(_, id)| closest(cluster, pod_class, id, priority)))
}

/// How many pods of a class would fit in a cluster without pods, counted up to `enough`.
pub(crate) fn room_when_empty(cluster: &Cluster, class: ClassId, enough: u64) -> u64 {
    room_of_empty_nodes(cluster, class, enough, cluster.nodes().map(|(id, _)| id))
}

/// How many pods of a class would fit on these nodes without pods, counted up to `enough`.
pub(crate) fn room_of_empty_nodes(
    cluster: &Cluster,
    class: ClassId,
    enough: u64,
    nodes: impl Iterator<Item = NodeId>,
) -> u64 {
    let pod_class = cluster.class(class);
    let nothing = Load::default();
    let mut room = 0_u64;
    for id in nodes {
        let node = cluster.node(id);
        // A node that is starting up will be ready.
        let ready = (!node.startup_taints.is_empty()).then(|| Node { assumed_ready: true, ..node.clone() });
        if filter::passes_static_filters(pod_class, ready.as_ref().unwrap_or(node)) {
            let empty = View::of_empty_cluster(cluster, id, Cow::Borrowed(&nothing));
            room = room.saturating_add(filter::copies_max(pod_class, node, &empty) as u64);
            if room >= enough {
                break;
            }
        }
    }
    room
}

/// Whether a pod of a class requests more of a resource than any node has, considering only resources that some node
/// has: an upcoming node may have the others.
pub(crate) fn is_too_large(cluster: &Cluster, class: ClassId) -> bool {
    let present = || cluster.nodes().filter(|(_, node)| node.present);
    cluster.class(class).requests.iter().any(|(resource, asked)| {
        let most = present().map(|(_, node)| node.allocatable.get(resource)).max().unwrap_or(0);
        most > 0 && most < asked
    })
}

/// The distance of a node from having enough capacity: the sum of what is missing, in thousandths of the requests.
/// `None` if more than capacity is missing.
fn distance(cluster: &Cluster, class: &PodClass, id: NodeId, load: &Load, reasons: &[Reason]) -> Option<i64> {
    let node = cluster.node(id);
    let mut sum = 0_i64;
    for reason in reasons {
        sum = sum.saturating_add(match reason {
            Reason::NodeName
            | Reason::Unschedulable
            | Reason::Taints
            | Reason::EnforcedAffinity
            | Reason::NodeAffinity
            | Reason::Features
            | Reason::VolumeAffinity
            | Reason::VolumeMissing
            | Reason::NoVolume
            | Reason::NoStorage
            | Reason::DriverMissing(_)
            | Reason::VolumeZone
            | Reason::SpreadLabel
            | Reason::PodAffinity => return None,
            Reason::Ports
            | Reason::Disk
            | Reason::ReadWriteOncePod
            | Reason::VolumeLimit
            | Reason::TooManyPods
            | Reason::Spread
            | Reason::PodAntiAffinity
            | Reason::ExistingPodAntiAffinity
            | Reason::Reserved => 1000,
            Reason::Insufficient(resource) => {
                let asked = class.requests.get(*resource).max(1);
                let free = node.allocatable.get(*resource).saturating_sub(load.used.get(*resource));
                let missing = i128::from(asked.saturating_sub(free));
                i64::try_from(missing * 1000 / i128::from(asked)).unwrap_or(i64::MAX)
            }
        });
    }
    Some(sum)
}

fn closest(cluster: &Cluster, class: &PodClass, id: NodeId, priority: i32) -> Closest {
    let (node, view) = (cluster.node(id), filter::view(cluster, id, priority));
    let reasons = filter::failure_reasons(class, node, &view);
    let mut closest = Closest { node: node.name.to_string(), lacks: Vec::new(), rejections: Vec::new() };
    for reason in reasons {
        match reason {
            Reason::Insufficient(resource) => {
                let free = node.allocatable.get(resource).saturating_sub(view.load.used.get(resource));
                let missing = class.requests.get(resource).saturating_sub(free);
                closest.lacks.push((cluster.resource_names().name(resource).to_owned(), missing));
            }
            other => closest.rejections.push(to_rejection(cluster, other)),
        }
    }
    closest
}

pub(crate) fn to_rejection(cluster: &Cluster, reason: Reason) -> Rejection {
    match reason {
        Reason::NodeName => Rejection::NodeName,
        Reason::Unschedulable => Rejection::Unschedulable,
        Reason::Taints => Rejection::Taints,
        Reason::EnforcedAffinity => Rejection::EnforcedAffinity,
        Reason::NodeAffinity => Rejection::NodeAffinity,
        Reason::Ports => Rejection::Ports,
        Reason::TooManyPods => Rejection::TooManyPods,
        Reason::Disk => Rejection::Disk,
        Reason::ReadWriteOncePod => Rejection::ReadWriteOncePod,
        Reason::VolumeLimit => Rejection::VolumeLimit,
        Reason::DriverMissing(driver) => Rejection::DriverMissing { driver: driver.to_string() },
        Reason::VolumeMissing => Rejection::VolumeMissing,
        Reason::NoVolume => Rejection::NoVolume,
        Reason::NoStorage => Rejection::NoStorage,
        Reason::VolumeAffinity => Rejection::VolumeAffinity,
        Reason::VolumeZone => Rejection::VolumeZone,
        Reason::Spread => Rejection::Spread,
        Reason::SpreadLabel => Rejection::SpreadLabel,
        Reason::PodAffinity => Rejection::PodAffinity,
        Reason::PodAntiAffinity => Rejection::PodAntiAffinity,
        Reason::ExistingPodAntiAffinity => Rejection::ExistingPodAntiAffinity,
        Reason::Features => Rejection::Features,
        Reason::Reserved => Rejection::Reserved,
        Reason::Insufficient(resource) => {
            Rejection::Insufficient { resource: cluster.resource_names().name(resource).to_owned() }
        }
    }
}
