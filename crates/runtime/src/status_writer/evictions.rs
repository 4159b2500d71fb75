//! Events on evicted pods and groups, naming the preemptor.
//!
//! No event is emitted before a pod is really deleted: a requested eviction may be rejected or fail. The condition of a
//! group is derived from the pods that are seen terminating, since the responses may be lost.

use muster_engine::DeleteOutcome;
use muster_engine::model::group::GroupKey;

use super::events::{Action, EventDetails};
use super::{StatusWriter, regarding_pod};
use crate::actuator::evict::{EvictionOutcomes, VictimUnit};
use crate::intake::Intake;

const PREEMPTED: &str = "Preempted";

impl StatusWriter {
    /// The eviction of a unit was requested.
    pub(crate) fn on_eviction_requested(&mut self, unit: &VictimUnit, intake: &mut Intake) {
        let Some(instance) = unit.group.as_ref().and_then(|key| intake.groups.instance_mut(key)) else { return };
        instance.was_evicted = true;
        self.groups.touch(&instance.object, true, self.clock.now_ms());
    }

    /// The eviction of a unit has ended.
    pub(crate) fn on_eviction_done(&mut self, unit: &VictimUnit, outcomes: &EvictionOutcomes, intake: &Intake) {
        let mut deleted = 0;
        for ((pod, node), (_, outcome)) in unit.pods.iter().zip(outcomes) {
            match outcome {
                DeleteOutcome::Deleted => {
                    deleted += 1;
                    let note = format!("{} on node {node}", unit.preemption_note());
                    let (reason, action) = (PREEMPTED, Action::Preempting);
                    self.emit_event(&regarding_pod(pod), &EventDetails { warning: false, reason, action, note });
                }
                DeleteOutcome::Refused { message } => {
                    let by = unit.by.as_deref().unwrap_or("others");
                    let note = format!("Its eviction for {by} was refused: {message}");
                    let (reason, action) = ("EvictionRefused", Action::Preempting);
                    self.emit_event(&regarding_pod(pod), &EventDetails { warning: true, reason, action, note });
                }
                DeleteOutcome::Transient { message } => {
                    tracing::warn!(%pod, by = unit.by, message, "an eviction failed and will be retried");
                }
            }
        }
        let Some(key) = &unit.group else { return };
        let Some(instance) = intake.groups.instance(key) else { return };
        // A rejection may have changed the group's conditions.
        self.groups.touch(&instance.object, true, self.clock.now_ms());
        if deleted > 0 {
            self.emit_group_preempted(key, unit, deleted, intake);
        }
    }

    fn emit_group_preempted(&mut self, key: &GroupKey, unit: &VictimUnit, deleted: usize, intake: &Intake) {
        let Some(instance) = intake.groups.instance(key) else { return };
        let Some((regarding, is_group)) = self.regarding_group(&instance.object, intake) else { return };
        let pods = if deleted == 1 { "1 pod is" } else { &format!("{deleted} pods are") };
        let text = format!("{}: {pods} evicted", unit.preemption_note());
        let note = if is_group { text } else { format!("{key}: {text}") };
        self.emit_event(
            &regarding,
            &EventDetails { warning: false, reason: PREEMPTED, action: Action::Preempting, note },
        );
    }
}
