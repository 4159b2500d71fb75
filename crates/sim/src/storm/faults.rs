//! The parameters that a seed selects for a run: its size, its fault rates and its participants.
//!
//! Must not depend on how faults are injected.

use std::time::Duration;

use muster_playground::faults::Plan;
use muster_playground::random::Random;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunProfile {
    pub(super) nodes: u64,
    pub(super) actions: u64,
    /// The faults injected into Muster's requests until the quiet phase.
    pub(super) plan: Plan,
    /// Another scheduler uses the same nodes.
    pub(super) other_scheduler: bool,
    /// Two Muster processes compete for a lease.
    pub(super) pair: bool,
    /// Kubelets fail and nodes are deleted.
    pub(super) nodes_fail: bool,
    /// How many changes the server keeps for watches.
    pub(super) window: usize,
    pub(super) controllers_delay: Duration,
    /// Pods have volumes.
    pub(super) volumes: bool,
    /// After the quiet phase capacity is ample, and every complete group has to be scheduled.
    pub(super) ample_capacity: bool,
}

/// Few requests fail.
const LIGHT_FAULTS: Plan = Plan {
    delayed: 20,
    delay_max: Duration::from_millis(50),
    lost: 5,
    response_lost: 10,
    response_timed_out: 10,
    failed: 5,
    conflicts: 5,
    throttled: 5,
    cut: 5,
    expired: 1,
    repeated: 5,
    late: 10,
};

/// Every third request fails, many of them after they took effect, and responses take seconds.
const HEAVY_FAULTS: Plan = Plan {
    delayed: 150,
    delay_max: Duration::from_secs(5),
    lost: 60,
    response_lost: 100,
    response_timed_out: 40,
    failed: 40,
    conflicts: 50,
    throttled: 30,
    cut: 30,
    expired: 10,
    repeated: 30,
    late: 60,
};

impl RunProfile {
    pub(super) fn of(random: &mut Random) -> Self {
        let plans = [Plan::default(), LIGHT_FAULTS, Plan::STORM, Plan::STORM, HEAVY_FAULTS];
        Self {
            nodes: 2 + random.below(5),
            actions: 30 + random.below(31),
            plan: plans[random.below(plans.len() as u64) as usize],
            other_scheduler: random.per_mille(250),
            pair: random.per_mille(250),
            nodes_fail: random.per_mille(350),
            window: 20 + random.below(300) as usize,
            controllers_delay: Duration::from_millis([0, 0, 500, 3000][random.below(4) as usize]),
            volumes: random.per_mille(400),
            ample_capacity: random.per_mille(500),
        }
    }
}
