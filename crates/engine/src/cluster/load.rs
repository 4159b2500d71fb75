//! What the pods on one node take together: the ledger that filters and scores read.

use crate::model::class::PodClass;
use crate::model::port::HostPort;
use crate::model::resources::ResourceVec;

/// The sum over some pods. Adding and taking away the same pods in any order gives equal loads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The sum of requests.
    pub used: ResourceVec,
    /// The sum of CPU requests as scores count them.
    pub scoring_cpu_milli: i64,
    /// The sum of memory requests as scores count them.
    pub scoring_memory_bytes: i64,
    /// The number of pods.
    pub pods: usize,
    /// The host ports taken, ordered; a port that two pods took by force stands twice.
    pub ports: Vec<HostPort>,
}

impl Load {
    /// Counts one more pod of a class.
    pub fn add(&mut self, class: &PodClass) {
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

    /// Counts one pod of a class less.
    pub fn sub(&mut self, class: &PodClass) {
        self.used.sub(&class.requests);
        let scoring = class.spec.scoring_when_placed();
        self.scoring_cpu_milli = self.scoring_cpu_milli.wrapping_sub(scoring.cpu_milli);
        self.scoring_memory_bytes = self.scoring_memory_bytes.wrapping_sub(scoring.memory_bytes);
        self.pods -= 1;
        for port in &class.spec.host_ports {
            let place = self.ports.binary_search(port).expect("a port that is given back was taken");
            self.ports.remove(place);
        }
    }
}
