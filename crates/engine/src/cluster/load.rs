//! The load of a node: what its pods use in total, as read by filters and scores.

use super::class::PodClass;
use crate::model::port::HostPort;
use crate::model::resources::ResourceVec;

/// The sum over some pods. It does not depend on the order in which pods are added and removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// The sum of requests.
    pub(crate) used: ResourceVec,
    /// The sum of CPU requests as used for scoring.
    pub(crate) scoring_cpu_milli: i64,
    /// The sum of memory requests as used for scoring.
    pub(crate) scoring_memory_bytes: i64,
    /// The number of pods.
    pub(crate) pods: usize,
    /// The used host ports, sorted; a port is listed twice if two pods were bound despite the conflict.
    pub(crate) ports: Vec<HostPort>,
}

impl Load {
    /// Adds one pod of a class.
    pub(crate) fn add(&mut self, class: &PodClass) {
        self.used.add(&class.requests);
        let scoring = class.spec.scoring_when_placed();
        self.scoring_cpu_milli = self.scoring_cpu_milli.wrapping_add(scoring.cpu_milli);
        self.scoring_memory_bytes = self.scoring_memory_bytes.wrapping_add(scoring.memory_bytes);
        self.pods += 1;
        for port in &class.spec.host_ports {
            let place = self.ports.partition_point(|taken| taken < port);
            self.ports.insert(place, port.clone());
        }
    }

    /// Removes one pod of a class.
    pub(crate) fn sub(&mut self, class: &PodClass) {
        self.used.sub(&class.requests);
        let scoring = class.spec.scoring_when_placed();
        self.scoring_cpu_milli = self.scoring_cpu_milli.wrapping_sub(scoring.cpu_milli);
        self.scoring_memory_bytes = self.scoring_memory_bytes.wrapping_sub(scoring.memory_bytes);
        self.pods -= 1;
        for port in &class.spec.host_ports {
            let place = self.ports.binary_search(port).expect("a removed pod's port is listed");
            self.ports.remove(place);
        }
    }
}
