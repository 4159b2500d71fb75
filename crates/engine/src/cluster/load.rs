//! The load of a node: what its pods use in total, as read by filters and scores.

use super::class::PodClass;
use super::storage::Attached;
use crate::model::port::HostPort;
use crate::model::resources::ResourceVec;
use crate::model::storage::NamedDisk;

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
    /// The used disks, sorted; a disk is listed as often as it is used.
    pub(crate) disks: Vec<NamedDisk>,
    /// The attached volumes, if there are any.
    pub(crate) attached: Option<Box<Attached>>,
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
        for disk in &class.spec.disks {
            let place = self.disks.partition_point(|used| used < disk);
            self.disks.insert(place, disk.clone());
        }
        if let Some(demand) = class.storage.as_deref().filter(|demand| demand.attaches()) {
            self.attached.get_or_insert_default().add(demand);
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
        for disk in &class.spec.disks {
            let place = self.disks.binary_search(disk).expect("a removed pod's disk is listed");
            self.disks.remove(place);
        }
        if let (Some(demand), Some(attached)) = (class.storage.as_deref(), self.attached.as_mut()) {
            attached.sub(demand);
            if attached.is_empty() {
                self.attached = None;
            }
        }
    }
}
