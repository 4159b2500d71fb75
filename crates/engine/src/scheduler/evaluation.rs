//! The evaluation of every node for one pod: rejected with reasons, or scored with the parts of the score.
//!
//! Read-only. It uses the same candidates as a scheduling attempt, so the result is what the next attempt would use.

use super::Engine;
use crate::cluster::transaction::Transaction;
use crate::diagnosis::Rejection;
use crate::diagnosis::examine::to_rejection;
use crate::filter;
use crate::model::plugin::ScoreName;

/// The evaluation of a node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvaluation {
    /// The node.
    pub node: String,
    /// The result.
    pub verdict: NodeVerdict,
}

/// Whether a node passes the filters for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// Rejected, with all reasons of the first filter that rejected it.
    Refused(Vec<Rejection>),
    /// Feasible.
    Scored {
        /// Each score with its weight.
        scores: Vec<(ScoreName, i64)>,
        /// The total score.
        total: i64,
    },
}

impl Engine {
    /// Evaluates all nodes for this pod; `None` if there is no such pod. Nodes that refused its bind recently are not
    /// treated specially.
    pub fn evaluate_nodes(&mut self, uid: &str) -> Option<Vec<NodeEvaluation>> {
        let id = self.cluster.pod_id(uid)?;
        let (class, priority) = self.shape_of(id);
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.clear_nomination(id);
        let cluster = transaction.cluster();
        let candidates = self.cache.candidates(cluster, class, priority).clone();
        let pod_class = cluster.class(class);
        let present = cluster.nodes().filter(|(_, node)| node.present);
        let nodes = present.map(|(id, node)| {
            let verdict = if let Some(total) = candidates.total(id) {
                let scores = self.cache.scorer(cluster, class).breakdown(
                    pod_class,
                    node,
                    cluster,
                    candidates.inter_pod_score(id),
                    candidates.normalized_by(),
                );
                NodeVerdict::Scored { scores, total }
            } else {
                let reasons = filter::failure_reasons(pod_class, node, &filter::view(cluster, id, priority));
                NodeVerdict::Refused(reasons.into_iter().map(|reason| to_rejection(cluster, reason)).collect())
            };
            NodeEvaluation { node: node.name.to_string(), verdict }
        });
        Some(nodes.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::class::ClassSpec;
    use crate::model::node::NodeSpec;
    use crate::model::pod::{PodName, PodSpec};
    use crate::{Command, Config, Observation};

    fn engine() -> Engine {
        let mut engine = Engine::new(Config::default()).unwrap();
        for (name, cpu) in [("small", 1000), ("large", 4000)] {
            let allocatable = [("cpu".to_owned(), cpu), ("pods".to_owned(), 1)].into();
            let node = NodeSpec { name: name.to_owned(), allocatable, ..NodeSpec::default() };
            engine.observe(0, Observation::NodeSeen(node)).unwrap();
        }
        engine
    }

    fn pod(name: &str) -> PodSpec {
        let class = ClassSpec { requests: [("cpu".to_owned(), 2000)].into(), ..ClassSpec::default() };
        let class = Arc::new(ClassSpec { scoring_cpu_milli: 2000, ..class });
        let id = PodName { namespace: "ml".into(), name: name.to_owned(), uid: name.to_owned() };
        PodSpec { id: Arc::new(id), class, ours: true, ..PodSpec::default() }
    }

    #[test]
    fn each_node_is_rejected_or_scored_without_side_effects() {
        let mut engine = engine();
        assert_eq!(engine.evaluate_nodes("p"), None);
        engine.observe(0, Observation::PodSeen(pod("p"))).unwrap();
        let evaluation = engine.evaluate_nodes("p").unwrap();
        assert_eq!(evaluation, engine.evaluate_nodes("p").unwrap(), "an evaluation changes nothing");
        let lacking = Rejection::Insufficient { resource: "cpu".to_owned() };
        assert_eq!(
            (evaluation[0].node.as_str(), &evaluation[0].verdict),
            ("small", &NodeVerdict::Refused(vec![lacking]))
        );
        let NodeVerdict::Scored { scores, total } = &evaluation[1].verdict else { panic!("{evaluation:?}") };
        let expected = [
            (ScoreName::Taints, 300),
            (ScoreName::NodeAffinity, 0),
            (ScoreName::Fit, 50),
            (ScoreName::Balanced, 75),
            (ScoreName::PodAffinity, 0),
            (ScoreName::Spread, 0),
            (ScoreName::Images, 0),
            (ScoreName::VolumeBinding, 0),
        ];
        assert_eq!((scores.as_slice(), *total), (expected.as_slice(), 425));
        assert!(matches!(&engine.decide(0)[..], [Command::Bind { node, .. }] if **node == *"large"));
    }

    #[test]
    fn nominated_capacity_does_not_block_its_own_pod() {
        let mut engine = engine();
        let nominated = PodSpec { nominated: Some("large".to_owned()), ..pod("p") };
        engine.observe(0, Observation::PodSeen(nominated)).unwrap();
        engine.observe(0, Observation::PodSeen(pod("other"))).unwrap();
        assert!(matches!(engine.evaluate_nodes("p").unwrap()[1].verdict, NodeVerdict::Scored { .. }));
        let NodeVerdict::Refused(reasons) = &engine.evaluate_nodes("other").unwrap()[1].verdict else {
            panic!("it has room")
        };
        assert!(reasons.contains(&Rejection::TooManyPods), "{reasons:?}");
    }
}
