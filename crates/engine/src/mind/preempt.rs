//! Preemption in the engine: whom it is considered for, and on what view of the cluster.

use super::Engine;
use super::cycle::own_view;
use crate::cluster::trial::Trial;
use crate::command::Subject;
use crate::model::ids::{GroupId, PodId};
use crate::preemption::{self, Limits, NoPlan, Outlook, Plan, Rules};
use crate::queue::Entity;

impl Engine {
    /// What preemption would do for somebody who waits, if it was tried now; `None` if there is nobody of that name who
    /// waits. Nothing is decided by it.
    pub fn preemption_outlook(&mut self, subject: &Subject) -> Option<Result<Outlook, NoPlan>> {
        let plan = match subject {
            Subject::Pod(pod) => {
                let id = self.cluster.pod_id(&pod.uid).filter(|id| self.cluster.pod(*id).state.node().is_none())?;
                self.plan_for_pod(id)
            }
            Subject::Group(key) => {
                let id = self.cluster.group_id(key).filter(|id| !self.cluster.group(*id).waiting.is_empty())?;
                self.plan_for_group(id)
            }
        };
        Some(plan.map(|plan| plan.outlook(&self.cluster)))
    }

    fn plan_for_pod(&mut self, id: PodId) -> Result<Plan, NoPlan> {
        let (class, priority) = self.line_of(id);
        let (avoid, rules) = (self.avoided(id), self.rules());
        let mut trial = Trial::new(&mut self.cluster);
        trial.release(id);
        without_the_leaving(&mut trial);
        preemption::for_pod(trial.cluster(), &mut self.cache, (id, class, priority), &avoid, rules)
    }

    fn plan_for_group(&mut self, id: GroupId) -> Result<Plan, NoPlan> {
        let (want, claimed, rules) = (self.want(id), self.claimed_by(id), self.rules());
        let limits = Limits {
            placement_steps: self.steps_max(Entity::Group(id)),
            search_steps: self.config.preemption.steps_max,
        };
        let mut trial = own_view(&mut self.cluster, &want, &claimed);
        without_the_leaving(&mut trial);
        preemption::for_group(&mut trial, &mut self.cache, &want, rules, limits)
    }

    fn rules(&self) -> Rules {
        Rules { whole_groups: self.config.preemption.whole_groups, now: self.now }
    }
}

/// Takes those away who are leaving anyway: nobody has to be evicted where it is enough to wait.
fn without_the_leaving(trial: &mut Trial<'_>) {
    let cluster = trial.cluster();
    let leaving = cluster.pods().filter(|(_, pod)| pod.is_leaving() && pod.state.node().is_some());
    let leaving: Vec<PodId> = leaving.map(|(id, _)| id).collect();
    for pod in leaving {
        trial.remove(pod);
    }
}
