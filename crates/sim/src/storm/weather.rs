//! What sort of run a seed gives: how large, how wild, and who takes part.
//!
//! It must not know how any of it is done.

use std::time::Duration;

use muster_playground::faults::Plan;
use muster_playground::random::Random;

/// A run in outline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) nodes: u64,
    pub(super) actions: u64,
    /// What happens to Muster's requests until the calm.
    pub(super) plan: Plan,
    /// Another scheduler fills the same nodes.
    pub(super) rival: bool,
    /// Two Muster processes compete for a lease.
    pub(super) pair: bool,
    /// Kubelets die and nodes go.
    pub(super) mortal: bool,
    /// How many changes the server remembers.
    pub(super) window: usize,
    pub(super) housekeeping_delay: Duration,
    /// After the calm there is plenty of room, and everything that is complete has to be placed.
    pub(super) plenty: bool,
}

/// Some requests fail, and nothing is late.
const GUSTS: Plan = Plan {
    delayed: 20,
    delay_max: Duration::from_millis(50),
    lost: 5,
    answer_lost: 10,
    answer_timed_out: 10,
    failed: 5,
    conflicts: 5,
    throttled: 5,
    cut: 5,
    expired: 1,
    repeated: 5,
    late: 10,
};

/// Every third request fails, many of them after they were done, and answers take seconds.
const HURRICANE: Plan = Plan {
    delayed: 150,
    delay_max: Duration::from_secs(5),
    lost: 60,
    answer_lost: 100,
    answer_timed_out: 40,
    failed: 40,
    conflicts: 50,
    throttled: 30,
    cut: 30,
    expired: 10,
    repeated: 30,
    late: 60,
};

impl Weather {
    pub(super) fn of(random: &mut Random) -> Self {
        let plans = [Plan::default(), GUSTS, Plan::STORM, Plan::STORM, HURRICANE];
        Self {
            nodes: 2 + random.below(5),
            actions: 30 + random.below(31),
            plan: plans[random.below(plans.len() as u64) as usize],
            rival: random.per_mille(250),
            pair: random.per_mille(250),
            mortal: random.per_mille(350),
            window: 20 + random.below(300) as usize,
            housekeeping_delay: Duration::from_millis([0, 0, 500, 3000][random.below(4) as usize]),
            plenty: random.per_mille(500),
        }
    }
}
