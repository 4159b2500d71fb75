//! Behaviour tests of the engine through its public face: one binary, a module per idea.

mod commits;
mod garbage;
mod gangs;
mod groups_change;
mod judge;
mod queueing;
mod random;
mod random_runs;
mod replays;
mod world;
