//! The shapes: clusters and pods after Kubernetes' scheduler_perf, and a few larger ones.

use super::volumes::Volumes;

/// What the pods of a shape are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Single pods.
    Plain,
    /// Gangs that need all their pods.
    Gangs {
        /// Pods in each.
        size: usize,
    },
    /// Groups without a minimum.
    Basic {
        /// Pods in each.
        size: usize,
    },
}

/// The sizes of pods and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Nodes of 4 CPUs and 32 GiB, pods of a tenth of a CPU.
    Small,
    /// Nodes of 8 GPUs, pods of 8 GPUs: each pod fills a node.
    WholeGpuNode,
}

/// The inter-pod constraints; all pods belong to one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterPod {
    /// None.
    None,
    /// Required anti-affinity by host.
    AntiAffinityByHost,
    /// Required affinity by zone.
    AffinityByZone,
    /// Required topology spread over zones with a maximum skew of one.
    SpreadOverZones,
    /// Preferred affinity by host.
    PreferredAffinity,
    /// Preferred spread over hosts and zones, as kube-scheduler's default for pods of a set.
    PreferredSpread,
}

/// The topology constraint of the groups. Racks have 100 nodes, blocks ten racks, and all are in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domains {
    /// None.
    None,
    /// One rack, the tightest.
    OneRack,
    /// One rack, by kube-scheduler's placement scores.
    OneRackByScore,
    /// One region, and as few blocks and racks as possible.
    Levels,
}

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) kind: Kind,
    pub(crate) size: Size,
    pub(crate) inter_pod: InterPod,
    pub(crate) volumes: Volumes,
    pub(crate) domains: Domains,
    /// Other pending pods, each nominated to a node.
    pub(crate) nominated: usize,
    /// Pods that are bound before the measurement begins.
    pub(crate) bound: usize,
    /// Nodes that are full already, so that the last pods do not fit.
    pub(crate) full_nodes: usize,
    /// Measure what happens when a pod is deleted, after everything was unschedulable once.
    pub(crate) retries: bool,
}

impl Shape {
    fn new(name: String, nodes: usize, pods: usize, kind: Kind) -> Self {
        let (size, inter_pod, volumes) = (Size::Small, InterPod::None, Volumes::None);
        Self {
            name,
            nodes,
            pods,
            kind,
            size,
            inter_pod,
            volumes,
            domains: Domains::None,
            nominated: 0,
            bound: 0,
            full_nodes: 0,
            retries: false,
        }
    }
}

/// All shapes, in the order in which they are run.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = vec![
        Shape::new("plain-10000".into(), 5000, 10_000, Kind::Plain),
        Shape { nominated: 5000, ..Shape::new("plain-10000-while-5000-nominated".into(), 5000, 10_000, Kind::Plain) },
    ];
    for (word, basic) in [("gang", false), ("basic", true)] {
        for (count, size) in [(1000, 3), (2000, 3), (3000, 3), (3, 1000), (6, 1000), (9, 1000)] {
            let kind = if basic { Kind::Basic { size } } else { Kind::Gangs { size } };
            shapes.push(Shape::new(format!("{word}-{count}x{size}"), 5000, count * size, kind));
        }
    }
    for (word, inter_pod) in [
        ("apart-by-host", InterPod::AntiAffinityByHost),
        ("together-in-a-zone", InterPod::AffinityByZone),
        ("even-over-zones", InterPod::SpreadOverZones),
    ] {
        let gang = Shape::new(format!("gang-1x1000-{word}"), 5000, 1000, Kind::Gangs { size: 1000 });
        shapes.push(Shape { inter_pod, ..gang });
    }
    for (word, inter_pod) in
        [("like-each-other", InterPod::PreferredAffinity), ("rather-even", InterPod::PreferredSpread)]
    {
        shapes.push(Shape { inter_pod, ..Shape::new(format!("plain-10000-{word}"), 5000, 10_000, Kind::Plain) });
    }
    for (word, volumes) in [("bound-claims", Volumes::Bound), ("first-consumer-claims", Volumes::FirstConsumer)] {
        let kind = Kind::Gangs { size: 100 };
        shapes.push(Shape { volumes, ..Shape::new(format!("plain-10000-{word}"), 5000, 10_000, Kind::Plain) });
        shapes.push(Shape { volumes, ..Shape::new(format!("gang-100x100-{word}"), 5000, 10_000, kind) });
    }
    for (name, domains) in [("one-rack", Domains::OneRack), ("one-rack-by-score", Domains::OneRackByScore)] {
        let gangs = Shape::new(format!("gang-2250x4-in-{name}"), 5000, 9000, Kind::Gangs { size: 4 });
        shapes.push(Shape { domains, ..gangs });
    }
    for nodes in [5000, 50_000] {
        let gang =
            Shape::new(format!("gang-1x1000-in-levels-on-{nodes}-nodes"), nodes, 1000, Kind::Gangs { size: 1000 });
        shapes.push(Shape { domains: Domains::Levels, ..gang });
    }
    for (name, full_nodes) in [("fills", 0), ("impossible-on", 1)] {
        let gang = Shape::new(format!("gang-in-levels-{name}-5000-gpu-nodes"), 5000, 5000, Kind::Gangs { size: 5000 });
        shapes.push(Shape { domains: Domains::Levels, size: Size::WholeGpuNode, full_nodes, ..gang });
    }
    for nodes in [100, 1000, 5000, 20_000, 50_000] {
        let gang =
            Shape { size: Size::WholeGpuNode, ..Shape::new(String::new(), nodes, nodes, Kind::Gangs { size: nodes }) };
        shapes.push(Shape { name: format!("gang-fills-{nodes}-gpu-nodes"), ..gang.clone() });
        shapes.push(Shape { name: format!("gang-impossible-on-{nodes}-gpu-nodes"), full_nodes: 1, ..gang });
    }
    for nodes in [100, 1000, 5000, 20_000, 50_000] {
        shapes.push(Shape::new(format!("gang-1x1000-on-{nodes}-nodes"), nodes, 1000, Kind::Gangs { size: 1000 }));
    }
    for (word, kind) in [("pods", Kind::Plain), ("gangs-of-3", Kind::Gangs { size: 3 })] {
        let name = format!("parked-{word}-woken-by-one-event");
        let full =
            Shape { size: Size::WholeGpuNode, full_nodes: 5000, retries: true, ..Shape::new(name, 5000, 9000, kind) };
        shapes.push(full);
    }
    shapes.push(Shape { bound: 150_000, ..Shape::new("held-150000-pods".into(), 5000, 1000, Kind::Plain) });
    shapes
}
