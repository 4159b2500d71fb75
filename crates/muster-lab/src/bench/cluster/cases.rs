//! The cases: so many pods, single or in gangs, on so many nodes.
//!
//! All pods of a case request the same and its nodes are identical, so that the pods per node are one number. In some
//! cases they have more than requests; in the hostile ones every pod is different, as expensive as a tenant can make it.

/// The requests of a pod or the capacity of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    pub(crate) cpu_milli: u64,
    pub(crate) memory_mib: u64,
    pub(crate) gpus: u64,
}

/// The nodes of Kubernetes' own scheduler benchmarks.
const SMALL_NODE: Amounts = Amounts { cpu_milli: 4_000, memory_mib: 32 << 10, gpus: 0 };
const SMALL_POD: Amounts = Amounts { cpu_milli: 100, memory_mib: 500, gpus: 0 };
const GPU_NODE: Amounts = Amounts { cpu_milli: 64_000, memory_mib: 512 << 10, gpus: 8 };
/// It takes all GPUs of a node.
const GPU_POD: Amounts = Amounts { cpu_milli: 32_000, memory_mib: 256 << 10, gpus: 8 };
/// The maximum number of pods per node.
pub(crate) const PODS_PER_NODE_MAX: u64 = 110;

/// When the scheduler starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Before the pods are created.
    Live,
    /// After all pods are created.
    Backlog,
}

/// What the pods of a case have beside their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Nothing.
    None,
    /// Each has a claim of its own, bound to a volume of a CSI driver with a limit on each node.
    Claims,
    /// Each gang has to be in one rack.
    Rack,
    /// Each has a preferred anti-affinity term of its own that matches nearly every pod of the cluster.
    BroadPreferences,
    /// Each has a toleration of its own.
    Tolerations,
    /// Each has labels and a topology spread constraint of its own.
    Spreads,
    /// Each gang has a Service of its own, over whose pods it is spread by default.
    Services,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) start: Start,
    pub(crate) nodes: usize,
    pub(crate) groups: usize,
    /// Pods of each; a group of none is a plain pod.
    pub(crate) size: usize,
    pub(crate) node: Amounts,
    pub(crate) pod: Amounts,
    pub(crate) extra: Extra,
}

pub(crate) const PLAIN: &str = "plain";
pub(crate) const GANGS_OF_100: &str = "gangs-of-100";
pub(crate) const BACKLOG: &str = "backlog";
pub(crate) const GANGS_OF_3: &str = "gangs-of-3";
pub(crate) const GANG_OF_5000: &str = "gang-of-5000";
pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const TOPOLOGY: &str = "topology";

const BROAD_PREFERENCES: &str = "broad-preferences";
const CLASSES: &str = "classes";
const SPREADS: &str = "spreads";
const SERVICE_GANGS: &str = "service-gangs";

/// The cases whose pods are as expensive as a tenant can make them.
pub(crate) const HOSTILE: [&str; 4] = [BROAD_PREFERENCES, CLASSES, SPREADS, SERVICE_GANGS];

/// The names of all cases, in the order in which they are measured.
pub(crate) const NAMES: [&str; 11] = [
    PLAIN,
    GANGS_OF_100,
    BACKLOG,
    GANGS_OF_3,
    GANG_OF_5000,
    VOLUMES,
    TOPOLOGY,
    BROAD_PREFERENCES,
    CLASSES,
    SPREADS,
    SERVICE_GANGS,
];

/// All cases, at a part of their full size.
pub(crate) fn all(scale: f64) -> Vec<Case> {
    let small = |name, start, groups, size| {
        let (node, pod, extra) = (SMALL_NODE, SMALL_POD, Extra::None);
        Case { name, start, nodes: 5_000, groups, size, node, pod, extra }
    };
    let with = |name, extra, groups, size| Case { extra, ..small(name, Start::Live, groups, size) };
    let gpus = small(GANG_OF_5000, Start::Live, 1, 5_000);
    let full = [
        small(PLAIN, Start::Live, 10_000, 0),
        small(GANGS_OF_100, Start::Live, 100, 100),
        small(BACKLOG, Start::Backlog, 100, 100),
        small(GANGS_OF_3, Start::Live, 1_000, 3),
        Case { node: GPU_NODE, pod: GPU_POD, ..gpus },
        with(VOLUMES, Extra::Claims, 10_000, 0),
        with(TOPOLOGY, Extra::Rack, 2_250, 4),
        with(BROAD_PREFERENCES, Extra::BroadPreferences, 2_000, 0),
        with(CLASSES, Extra::Tolerations, 10_000, 0),
        with(SPREADS, Extra::Spreads, 5_000, 0),
        with(SERVICE_GANGS, Extra::Services, 1_000, 3),
    ];
    full.into_iter().map(|case| case.scaled(scale)).collect()
}

impl Case {
    pub(crate) fn pods(self) -> usize {
        self.groups * self.size.max(1)
    }

    /// The feature gate that it needs in Kubernetes, beside that of gangs.
    pub(crate) fn gate(self) -> Option<&'static str> {
        (self.extra == Extra::Rack).then_some("TopologyAwareWorkloadScheduling=true")
    }

    /// How many of its pods fit on one of its nodes.
    pub(crate) fn pods_per_node(self) -> u64 {
        let (node, pod) = (self.node, self.pod);
        let by_gpu = node.gpus.checked_div(pod.gpus).unwrap_or(PODS_PER_NODE_MAX);
        (node.cpu_milli / pod.cpu_milli).min(node.memory_mib / pod.memory_mib).min(by_gpu).min(PODS_PER_NODE_MAX)
    }

    /// Fewer nodes, and fewer gangs; a single gang becomes smaller instead.
    fn scaled(self, scale: f64) -> Self {
        let part = |number: usize| ((number as f64 * scale).round() as usize).max(1);
        let (groups, size) = if self.groups > 1 { (part(self.groups), self.size) } else { (1, part(self.size)) };
        Self { nodes: part(self.nodes), groups, size, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_fits_at_every_scale() {
        for scale in [1.0, 0.1, 0.01] {
            let cases = all(scale);
            assert_eq!(cases.iter().map(|case| case.name).collect::<Vec<_>>(), NAMES);
            for case in cases {
                assert!(case.pods() as u64 <= case.nodes as u64 * case.pods_per_node(), "{case:?}");
            }
        }
    }

    #[test]
    fn sizes_are_as_documented() {
        let pods: Vec<_> = all(1.0).iter().map(|case| (case.pods(), case.pods_per_node())).collect();
        assert_eq!(pods[..5], [(10_000, 40), (10_000, 40), (10_000, 40), (3_000, 40), (5_000, 1)]);
        assert_eq!(pods[5..7], [(10_000, 40), (9_000, 40)]);
        assert_eq!(pods[7..], [(2_000, 40), (10_000, 40), (5_000, 40), (3_000, 40)]);
    }
}
