//! The webhook as a whole, on an API server in the process.

mod calls;
mod files;
mod keeping;
mod world;
