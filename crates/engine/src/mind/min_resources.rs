//! What a group will need in all, where its members are not all there when it starts: a leader whose workers are made
//! once it runs must not take its place while there is no room for them.
//!
//! Nobody knows yet how those look who are to come, so sums over nodes have to do: what is left on the nodes that its
//! members may use. It must not know why members are missing.

use crate::cluster::Cluster;
use crate::cluster::pod::{Pod, Standing};
use crate::diagnosis::ResourceGap;
use crate::filter;
use crate::model::class::PodClass;
use crate::model::ids::GroupId;
use crate::placement::Want;

/// What the resource is called of which every pod takes one.
const PODS: &str = "pods";

/// What would be missing of what a group asks for in all, if it started with those who have a place in this picture.
/// A group that has had its minimum is not asked any more.
pub(super) fn gap(cluster: &Cluster, id: GroupId, want: &Want) -> Option<ResourceGap> {
    let group = cluster.group(id);
    let spec = group.spec.as_ref().filter(|_| group.asks_for_more())?;
    let asked = spec.min_resources.iter().filter(|(_, asked)| **asked > 0);
    asked
        .map(|(resource, asked)| look(cluster, id, want, resource, *asked))
        .find(|gap| gap.asked > gap.taken + gap.left)
}

fn look(cluster: &Cluster, id: GroupId, want: &Want, resource: &str, asked: i64) -> ResourceGap {
    let known = cluster.resource_names().get(resource);
    let of_class = |class: &PodClass| match known {
        _ if resource == PODS => 1,
        Some(known) => class.requests.get(known),
        None => 0,
    };
    let members = cluster.group(id).members.iter().map(|(_, member)| cluster.pod(*member));
    let has_place = |pod: &&Pod| matches!(pod.standing(), Standing::Bound | Standing::Assumed | Standing::Succeeded);
    let taken = members.filter(has_place).map(|pod| of_class(cluster.class(pod.class))).fold(0, i64::saturating_add);
    let mut left = 0_i64;
    for (node_id, node) in cluster.nodes() {
        let may_be_used = |class| filter::node_would_do(cluster.class(class), node);
        if asked <= taken.saturating_add(left) {
            break;
        }
        if !want.lots.iter().any(|lot| may_be_used(lot.class)) {
            continue;
        }
        let view = filter::view(cluster, node_id, want.priority);
        let free = match known {
            _ if resource == PODS => node.pods_max.saturating_sub(view.load.pods as i64),
            Some(known) => node.allocatable.get(known).saturating_sub(view.load.used.get(known)),
            None => 0,
        };
        left = left.saturating_add(free.max(0));
    }
    ResourceGap { resource: resource.to_owned(), asked, taken, left }
}
