//! The demo `deadlock`: the same two gangs twice, each time with capacity for one and a half of them.
//!
//! In one half of the cluster their pods belong to no group, so each is bound as soon as it fits, as in any pod-by-pod
//! scheduler: both gangs hold nodes, neither is complete, and neither ever works. In the other half they are gangs.

use serde_json::{Value, json};

use super::board::{GANG_LABEL, SIDE_LABEL};
use super::{NAMESPACE, Step, gang, pod_spec, work_annotations};

pub(super) const GANGS: [&str; 2] = ["a", "b"];
pub(super) const POD_GPUS: u32 = 4;
const WORK_SECONDS: u32 = 15;
/// The selector of the pods of the left side.
const PLACED_LABEL: &str = "demo-side=pod-by-pod";
const ZONE: &str = "topology.kubernetes.io/zone";

/// One half of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    PodByPod,
    Muster,
}

impl Side {
    pub(super) const ALL: [Side; 2] = [Side::PodByPod, Side::Muster];

    pub(super) fn name(self) -> &'static str {
        match self {
            Side::PodByPod => "pod-by-pod",
            Side::Muster => "muster",
        }
    }

    fn zone(self) -> &'static str {
        match self {
            Side::PodByPod => "zone-0",
            Side::Muster => "zone-1",
        }
    }

    /// How many pods of the demo fit here.
    pub(super) fn slots(self, nodes: u32) -> u32 {
        let own = if self == Side::PodByPod { nodes.div_ceil(2) } else { nodes / 2 };
        own * (super::GPUS / POD_GPUS)
    }

    /// The size of a gang: three quarters of the pods that fit.
    pub(super) fn gang_size(self, nodes: u32) -> u32 {
        self.slots(nodes) * 3 / 4
    }
}

pub(super) fn introduction(nodes: u32) -> String {
    let [left, right] = Side::ALL.map(|side| (side.gang_size(nodes), side.slots(nodes)));
    format!(
        "The demo, in namespace {NAMESPACE}: two gangs, a and b, which work {WORK_SECONDS} s once all of their pods run.\n\
         \x20 left, in zone-0   {} pods each, room for {}, and they are in no group\n\
         \x20 right, in zone-1  {} pods each, room for {}, and each gang is a PodGroup\n\
         Their pods come one of a, one of b, one of a, and so on.",
        left.0, left.1, right.0, right.1
    )
}

pub(super) fn steps(nodes: u32) -> Vec<Step> {
    let mine = GANGS.map(|name| gang(&full_name(Side::Muster, name), Side::Muster.gang_size(nodes)));
    let mut steps = vec![Step { objects: mine.to_vec(), then: None }];
    for number in 0..Side::PodByPod.gang_size(nodes) {
        let sides = Side::ALL.into_iter().filter(|side| number < side.gang_size(nodes));
        let pods = sides.flat_map(|side| GANGS.map(|name| pod(side, name, number, side.gang_size(nodes))));
        // As long as there is capacity, each pair is bound before the next one is created, so that they alternate.
        let bound = (number + 1) * GANGS.len() as u32;
        let then = (bound <= Side::PodByPod.slots(nodes)).then_some((PLACED_LABEL, bound as usize));
        steps.push(Step { objects: pods.collect(), then });
    }
    steps
}

fn full_name(side: Side, gang: &str) -> String {
    format!("{}-{gang}", side.name())
}

fn pod(side: Side, gang: &str, number: u32, size: u32) -> Value {
    let name = full_name(side, gang);
    let mut annotations = work_annotations(&name, size, WORK_SECONDS);
    if side == Side::Muster {
        annotations["muster.dev/pod-group"] = json!(name);
    }
    let mut spec = pod_spec(POD_GPUS);
    spec["restartPolicy"] = json!("Never");
    spec["nodeSelector"] = json!({ZONE: side.zone()});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": format!("{name}-{number}"), "annotations": annotations,
            "labels": {SIDE_LABEL: side.name(), GANG_LABEL: gang}},
        "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gang_fits_and_two_do_not_for_any_number_of_nodes() {
        for nodes in super::super::Demo::NODES_MIN..200 {
            for side in Side::ALL {
                let (slots, size) = (side.slots(nodes), side.gang_size(nodes));
                // Alternating, both get half of the capacity, which is not enough for either.
                assert!(size <= slots && slots.div_ceil(2) < size, "{nodes} nodes: {size} of {slots}");
            }
        }
    }
}
