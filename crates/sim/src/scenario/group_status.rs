//! The status of a group as its object reports it, in each carrier: whether it is scheduled, and why not.
//!
//! Must not depend on what a scenario asserts.

use muster_api::keys::conditions;
use serde_json::Value;

use super::carrier::{Carrier, Form, ScenarioCarrier};

/// The reported status of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupStatus {
    /// Whether it is scheduled; `None` if there is no such condition.
    pub(super) scheduled: Option<bool>,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether it is reported as degraded.
    pub(super) is_degraded: bool,
    /// The message of that condition.
    pub(super) degraded_message: String,
}

/// A group has no such replica.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoReplica {
    #[error("it has no replicas, and no pod references it with the key {key:?}")]
    NotReplicated { key: String },
    #[error("it has no replica {key:?}; there are {keys:?}")]
    Unknown { key: String, keys: Vec<String> },
}

impl GroupStatus {
    /// Reads the object of a group. `key` is a replica key, which only groups of a Workload have.
    pub(super) fn read(
        scenario_carrier: &ScenarioCarrier,
        group: &str,
        key: &str,
        object: &Value,
    ) -> Result<Self, NoReplica> {
        let status = &object["status"];
        let condition = |prefix: &str, kind: &str| find(&status["conditions"], &format!("{prefix}{kind}"));
        let (scheduled, degraded) = (conditions::POD_GROUP_SCHEDULED, conditions::DEGRADED);
        let prefix = conditions::NATIVE_PREFIX;
        let form = scenario_carrier.form(group);
        if !key.is_empty() && form != Form::Workload {
            return Err(NoReplica::NotReplicated { key: key.to_owned() });
        }
        Ok(match form {
            Form::PodGroup => Self::of(&[condition("", scheduled)], condition("", degraded)),
            Form::Workload => {
                let list = conditions_of_replica(status, group, key)?;
                Self::of(&[find(list, scheduled)], find(list, degraded))
            }
            Form::Native(_) => {
                let upstream = match scenario_carrier.carrier() {
                    Carrier::V1alpha2 => scheduled,
                    _ => conditions::POD_GROUP_INITIALLY_SCHEDULED,
                };
                let upstream = condition("", upstream);
                let degraded = condition(prefix, degraded);
                match condition(prefix, scheduled) {
                    None => Self::of(&[upstream], degraded),
                    Some(ours) => Self::of(&[Some(ours), upstream], degraded),
                }
            }
            Form::Volcano => Self::of(&[condition(prefix, scheduled)], condition(prefix, degraded)),
            Form::NativeWorkload(_) | Form::SchedulerPlugins => Self::default(),
        })
    }

    /// The first condition gives the reason. A group is scheduled if all conditions are true, and not scheduled if the
    /// first is false.
    fn of(conditions: &[Option<&Value>], degraded: Option<&Value>) -> Self {
        let has_status = |condition: Option<&Value>, status: &str| condition.is_some_and(|one| one["status"] == status);
        let first = conditions.first().copied().flatten();
        let scheduled = match () {
            () if conditions.iter().all(|one| has_status(*one, "True")) => Some(true),
            () if has_status(first, "False") => Some(false),
            () => None,
        };
        let text = |condition: Option<&Value>, field: &str| {
            condition.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned()
        };
        Self {
            scheduled,
            reason: text(first, "reason"),
            message: text(first, "message"),
            is_degraded: has_status(degraded, "True"),
            degraded_message: text(degraded, "message"),
        }
    }
}

/// The conditions of one replica of a Workload's group. A replica without pods is not listed: without a key the
/// conditions of the object itself are used.
fn conditions_of_replica<'a>(status: &'a Value, group: &str, key: &str) -> Result<&'a Value, NoReplica> {
    let key_of = |one: &'a Value| one["replicaKey"].as_str().unwrap_or("");
    let listed = status["podGroups"].as_array().into_iter().flatten();
    let replicas: Vec<&Value> = listed.filter(|one| one["name"] == group).collect();
    match replicas.iter().find(|one| key_of(one) == key) {
        Some(replica) => Ok(&replica["conditions"]),
        None if key.is_empty() => Ok(&status["conditions"]),
        None => {
            let keys = replicas.into_iter().map(|one| key_of(one).to_owned()).collect();
            Err(NoReplica::Unknown { key: key.to_owned(), keys })
        }
    }
}

fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|one| one["type"] == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "reason": kind})
    }

    #[test]
    fn musters_conditions_are_read_from_volcano_groups() {
        let group_status = |conditions: &[Value]| {
            let object = json!({"status": {"conditions": conditions}});
            GroupStatus::read(&ScenarioCarrier::plain(Carrier::Volcano), "g", "", &object).unwrap()
        };
        assert_eq!(
            group_status(&[condition("Scheduled", "True")]),
            GroupStatus::default(),
            "Volcano's own condition is ignored"
        );
        let ours = group_status(&[
            condition("Unschedulable", "True"),
            condition("muster.dev/PodGroupScheduled", "True"),
            condition("muster.dev/Degraded", "True"),
        ]);
        assert_eq!((ours.scheduled, ours.is_degraded), (Some(true), true));
        assert_eq!(ours.reason, "muster.dev/PodGroupScheduled");
    }

    #[test]
    fn missing_replica_has_no_status() {
        let one = json!({"name": "g", "replicaKey": "one", "conditions": [condition("PodGroupScheduled", "True")]});
        let object = json!({"status": {"podGroups": [one], "conditions": [condition("PodGroupScheduled", "False")]}});
        let scheduled = |carrier, key| {
            let group_status = GroupStatus::read(&ScenarioCarrier::plain(carrier), "g", key, &object);
            group_status.map(|group_status| group_status.scheduled).map_err(|error| error.to_string())
        };
        assert_eq!(scheduled(Carrier::MusterWorkload, "one"), Ok(Some(true)));
        assert_eq!(scheduled(Carrier::MusterWorkload, ""), Ok(Some(false)));
        let missing = "it has no replica \"tow\"; there are [\"one\"]";
        assert_eq!(scheduled(Carrier::MusterWorkload, "tow"), Err(missing.to_owned()));
        let single = "it has no replicas, and no pod references it with the key \"one\"";
        assert_eq!(scheduled(Carrier::Muster, "one"), Err(single.to_owned()));
    }
}
