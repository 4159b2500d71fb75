//! The scheduler as a whole on the in-process server: what no scenario file can set up.

mod bad_objects;
mod churn;
mod groups_of_others;
mod growing_gang;
mod world;
