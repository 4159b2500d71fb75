//! Behaviour tests of the engine through its public face: one binary, a module per idea.

mod commits;
mod company;
mod company_judge;
mod gangs;
mod garbage;
mod groups_change;
mod judge;
mod nominations;
mod one_by_one;
mod pending;
mod ping_pong;
mod preemption;
mod queueing;
mod random_runs;
mod refused_pods;
mod replays;
mod shaken_plans;
mod spread;
mod starts;
mod starvation;
mod story;
mod telling;
mod units;
mod whole_groups;
mod world;
