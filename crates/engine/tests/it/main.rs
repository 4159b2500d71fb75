//! Behaviour tests of the engine through its public face: one binary, a module per idea.

mod commits;
mod gangs;
mod garbage;
mod groups_change;
mod judge;
mod queueing;
mod random_runs;
mod replays;
mod starvation;
mod world;
