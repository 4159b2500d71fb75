//! What is said of evictions: an event on everybody who goes, and on the group that goes whole, naming for whom.
//!
//! Nothing is said before somebody really goes: an eviction that is ordered may be refused, or fail. The condition of a
//! group follows from who is seen going, as the answers that would tell may be lost.

use muster_engine::TakeBackOutcome;
use muster_engine::model::group::GroupKey;

use super::events::{Action, Happening};
use super::{Scribe, regarding_pod};
use crate::hands::evict::{Outcomes, Unit};
use crate::intake::Intake;

const PREEMPTED: &str = "Preempted";

impl Scribe {
    /// A unit is to be evicted.
    pub(crate) fn eviction_ordered(&mut self, unit: &Unit, intake: &mut Intake) {
        let Some(instance) = unit.group.as_ref().and_then(|key| intake.groups.instance_mut(key)) else { return };
        if unit.by.is_some() {
            instance.preempted_by.clone_from(&unit.by);
        }
        self.groups.touch(&instance.object, true, self.clock.now_ms());
    }

    /// The eviction of a unit came to its end.
    pub(crate) fn evicted(&mut self, unit: &Unit, outcomes: &Outcomes, intake: &Intake) {
        let mut gone = 0;
        for ((pod, node), (_, outcome)) in unit.pods.iter().zip(outcomes) {
            match outcome {
                TakeBackOutcome::Deleted => {
                    gone += 1;
                    let note = format!("{} on node {node}", unit.fate());
                    let (reason, action) = (PREEMPTED, Action::Preempting);
                    self.tell(&regarding_pod(pod), &Happening { warning: false, reason, action, note });
                }
                TakeBackOutcome::Refused { message } => {
                    let by = unit.by.as_deref().unwrap_or("others");
                    let note = format!("Its eviction for {by} was refused: {message}");
                    let (reason, action) = ("EvictionRefused", Action::Preempting);
                    self.tell(&regarding_pod(pod), &Happening { warning: true, reason, action, note });
                }
                TakeBackOutcome::Transient { message } => {
                    tracing::warn!(%pod, by = unit.by, message, "an eviction failed in passing");
                }
            }
        }
        let Some(key) = &unit.group else { return };
        let Some(instance) = intake.groups.instance(key) else { return };
        // A refusal may have changed what is to be said.
        self.groups.touch(&instance.object, true, self.clock.now_ms());
        if gone > 0 {
            self.group_evicted(key, unit, gone, intake);
        }
    }

    fn group_evicted(&mut self, key: &GroupKey, unit: &Unit, gone: usize, intake: &Intake) {
        let Some(instance) = intake.groups.instance(key) else { return };
        let Some((regarding, is_group)) = self.regarding_group(&instance.object, intake) else { return };
        let pods = if gone == 1 { "1 pod is" } else { &format!("{gone} pods are") };
        let text = format!("{}: {pods} evicted", unit.fate());
        let note = if is_group { text } else { format!("{key}: {text}") };
        self.tell(&regarding, &Happening { warning: false, reason: PREEMPTED, action: Action::Preempting, note });
    }
}
