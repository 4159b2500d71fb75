//! What a LeaderWorkerSet shows about the gangs of its replicas.

use muster_api::invalid::FieldPath;
use muster_api::owners::event_reasons::INVALID_GANG_MODE;
use muster_api::owners::leader_worker_set::{self as lws, labels};
use muster_api::wire::LeaderWorkerSet;

use super::Verdict;
use super::groups::{Gangs, gang_of_object, is_muster};
use crate::providers::handles_scheduler;
use crate::reconcile::controller_of;
use crate::state::State;

pub(super) fn verdict(state: &State, set: &LeaderWorkerSet) -> Verdict {
    let Some(provider) = &state.provider else { return Verdict::Unknown };
    let is_handled = |name: &str| handles_scheduler(provider.as_ref(), name, state.settings.scheduler_names());
    if let Err(error) = lws::check_templates(set, is_handled) {
        return Verdict::Waiting { reason: INVALID_GANG_MODE, message: error.to_string() };
    }
    let template = &set.spec.leader_worker_template;
    let leader = template.leader_template.as_ref().unwrap_or(&template.worker_template);
    let is_off = lws::is_off(&leader.metadata.annotations, &FieldPath::Root("metadata")).unwrap_or(true);
    if is_off || !is_handled(&leader.spec.scheduler_name) {
        return Verdict::NoGangs;
    }
    let Some(kind) = provider.resource() else { return Verdict::Unknown };
    let metadata = &set.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default());
    let mut replicas = Vec::new();
    for group in state.managed(&kind).by_index(namespace.unwrap_or_default(), name) {
        let label = |key: &str| group.metadata.labels.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let of_replica = controller_of(&group.metadata).is_some_and(|owner| owner.kind == "Pod");
        let is_live = group.metadata.deletion_timestamp.is_none();
        if let Some(index) =
            label(labels::GROUP_INDEX).filter(|_| is_live && of_replica && label(labels::NAME) == Some(name))
        {
            let number: u64 = index.parse().unwrap_or(u64::MAX);
            replicas.push((number, gang_of_object(format!("{name}-{index}"), group, is_muster(&kind))));
        }
    }
    replicas.sort_by_key(|(number, _)| *number);
    let mut gangs = Gangs::default();
    for (_, gang) in replicas {
        gangs.add(gang);
    }
    gangs.verdict(set.spec.replicas.unwrap_or(1).max(0), "replicas")
}
