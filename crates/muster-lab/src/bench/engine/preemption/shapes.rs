//! The preemption shapes: what runs where, and what preempts.

/// How gangs of ten that are preempted as a whole are laid out on nodes of 8 GPUs, all of them full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One pod of 8 GPUs on each node, each gang on ten adjacent nodes.
    Neighbours,
    /// One pod of 8 GPUs on each node, each gang on any ten.
    Scattered,
    /// Four pods of 2 GPUs on each node, four gangs on each ten nodes.
    Interleaved,
    /// Four pods of 2 GPUs on each node, of any gangs.
    Mingled,
    /// Ten pods of a tenth of a node on each, of any gangs.
    Crowded,
    /// As `Mingled`, and a pod of high priority uses a little of every node: no node can be emptied.
    Hopeless,
}

/// The preemptor, of a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preemptor {
    /// One gang, until all evictions are ordered.
    Plan,
    /// One gang, until it is bound: victims leave one by one, and the engine decides after each event.
    Bound,
    /// So many single pods, one after the other.
    Singles,
}

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) nodes: usize,
    /// Pending pods; those of a gang request a whole node each.
    pub(crate) pods: usize,
    pub(crate) layout: Layout,
    pub(crate) preemptor: Preemptor,
}

impl Shape {
    fn new(name: &str, nodes: usize, pods: usize, layout: Layout, preemptor: Preemptor) -> Self {
        Self { name: format!("preempt-{name}"), nodes, pods, layout, preemptor }
    }

    /// A tenth of it, for plans on a large cluster: it shows how their time grows.
    pub(crate) fn tenth(&self) -> Option<Self> {
        let large = self.preemptor == Preemptor::Plan && self.nodes >= 5000;
        let name = format!("{}-tenth", self.name);
        large.then(|| Self { name, nodes: self.nodes / 10, pods: self.pods / 10, ..self.clone() })
    }

    /// The lower bound of preempted gangs: each node that is needed must be empty, and a gang has ten pods.
    pub(crate) fn gangs_at_least(&self) -> Option<usize> {
        let whole_nodes = self.preemptor != Preemptor::Singles;
        let pods_on_a_node = self.layout.pods_on_a_node();
        whole_nodes.then(|| (self.pods * pods_on_a_node).div_ceil(GANG))
    }
}

/// Pods in each running gang.
pub(crate) const GANG: usize = 10;

impl Layout {
    pub(crate) fn pods_on_a_node(self) -> usize {
        match self {
            Self::Neighbours | Self::Scattered => 1,
            Self::Interleaved | Self::Mingled | Self::Hopeless => 4,
            Self::Crowded => 10,
        }
    }
}

/// All shapes, in the order in which they are run.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let layouts = [
        ("neighbours", Layout::Neighbours),
        ("scattered", Layout::Scattered),
        ("interleaved", Layout::Interleaved),
        ("mingled", Layout::Mingled),
    ];
    for (word, layout) in layouts {
        for (pods, nodes) in [(50, 500), (100, 1000), (500, 5000)] {
            shapes.push(Shape::new(&format!("gang-{pods}-{word}"), nodes, pods, layout, Preemptor::Plan));
        }
    }
    shapes.push(Shape::new("singles-100", 1000, 100, Layout::Crowded, Preemptor::Singles));
    shapes.push(Shape::new("singles-1000-in-vain", 5000, 1000, Layout::Hopeless, Preemptor::Singles));
    for nodes in [500, 5000] {
        let name = format!("until-{}-gangs-left", nodes / GANG);
        shapes.push(Shape::new(&name, nodes, nodes, Layout::Scattered, Preemptor::Bound));
    }
    shapes
}
