//! The preemption step: what happens when a group or a pod finds no place.
//!
//! This is the seam for it. The present answer is never to preempt: a "no" evicts nobody.

use crate::diagnosis::Preemption;

/// Looks for room that could be taken from others.
pub(crate) fn consider() -> Preemption {
    Preemption::NotTried
}
