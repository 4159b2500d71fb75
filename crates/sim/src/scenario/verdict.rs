//! What the object of a group says about it, in the words of each carrier: whether it has its place, and why.
//!
//! It must not know what a scenario claims.

use muster_api::keys::conditions;
use serde_json::Value;

use super::carrier::{Carriage, Carrier, Form};

/// What is said about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether it has its place; nothing if nobody has said so.
    pub(super) scheduled: Option<bool>,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether it is said to have lost members that it needs.
    pub(super) is_degraded: bool,
    /// The words about that.
    pub(super) degraded_message: String,
}

impl Verdict {
    /// Reads the object of a group. `key` is a replica key, which only a Workload's groups have.
    pub(super) fn read(carriage: &Carriage, group: &str, key: &str, object: &Value) -> Result<Self, String> {
        let status = &object["status"];
        let said = |prefix: &str, kind: &str| find(&status["conditions"], &format!("{prefix}{kind}"));
        let (scheduled, degraded) = (conditions::POD_GROUP_SCHEDULED, conditions::DEGRADED);
        let prefix = conditions::NATIVE_PREFIX;
        let form = carriage.form(group);
        if !key.is_empty() && form != Form::Workload {
            return Err(format!("it has no replicas, and no pod names it with the key {key:?}"));
        }
        Ok(match form {
            Form::PodGroup => Self::of(&[said("", scheduled)], said("", degraded)),
            Form::Workload => {
                let list = conditions_of_replica(status, group, key)?;
                Self::of(&[find(list, scheduled)], find(list, degraded))
            }
            Form::Native(_) => {
                let upstream = match carriage.carrier() {
                    Carrier::V1alpha2 => scheduled,
                    _ => conditions::POD_GROUP_INITIALLY_SCHEDULED,
                };
                let upstream = said("", upstream);
                let degraded = said(prefix, degraded);
                match said(prefix, scheduled) {
                    None => Self::of(&[upstream], degraded),
                    Some(ours) => Self::of(&[Some(ours), upstream], degraded),
                }
            }
            Form::Volcano => Self::of(&[said(prefix, scheduled)], said(prefix, degraded)),
            Form::NativeWorkload(_) | Form::SchedulerPlugins => Self::default(),
        })
    }

    /// The first condition gives the reason. A group has its place if all say so; it has none if the first says so.
    fn of(conditions: &[Option<&Value>], degraded: Option<&Value>) -> Self {
        let says = |condition: Option<&Value>, status: &str| condition.is_some_and(|one| one["status"] == status);
        let first = conditions.first().copied().flatten();
        let scheduled = match () {
            () if conditions.iter().all(|one| says(*one, "True")) => Some(true),
            () if says(first, "False") => Some(false),
            () => None,
        };
        let text = |condition: Option<&Value>, field: &str| {
            condition.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned()
        };
        Self {
            scheduled,
            reason: text(first, "reason"),
            message: text(first, "message"),
            is_degraded: says(degraded, "True"),
            degraded_message: text(degraded, "message"),
        }
    }
}

/// The conditions of one replica of a Workload's group. A replica that no pod names is not listed: without a key the
/// object speaks for it.
fn conditions_of_replica<'a>(status: &'a Value, group: &str, key: &str) -> Result<&'a Value, String> {
    let key_of = |one: &'a Value| one["replicaKey"].as_str().unwrap_or("");
    let listed = status["podGroups"].as_array().into_iter().flatten();
    let replicas: Vec<&Value> = listed.filter(|one| one["name"] == group).collect();
    match replicas.iter().find(|one| key_of(one) == key) {
        Some(replica) => Ok(&replica["conditions"]),
        None if key.is_empty() => Ok(&status["conditions"]),
        None => {
            let keys: Vec<&str> = replicas.into_iter().map(key_of).collect();
            Err(format!("it has no replica {key:?}; there are {keys:?}"))
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
    fn of_a_group_of_volcano_our_own_conditions_are_read() {
        let verdict = |conditions: &[Value]| {
            let object = json!({"status": {"conditions": conditions}});
            Verdict::read(&Carriage::plain(Carrier::Volcano), "g", "", &object).unwrap()
        };
        assert_eq!(verdict(&[condition("Scheduled", "True")]), Verdict::default(), "Volcano's own says nothing");
        let ours = verdict(&[
            condition("Unschedulable", "True"),
            condition("muster.dev/PodGroupScheduled", "True"),
            condition("muster.dev/Degraded", "True"),
        ]);
        assert_eq!((ours.scheduled, ours.is_degraded), (Some(true), true));
        assert_eq!(ours.reason, "muster.dev/PodGroupScheduled");
    }

    #[test]
    fn a_replica_that_is_not_there_says_nothing() {
        let one = json!({"name": "g", "replicaKey": "one", "conditions": [condition("PodGroupScheduled", "True")]});
        let object = json!({"status": {"podGroups": [one], "conditions": [condition("PodGroupScheduled", "False")]}});
        let scheduled = |carrier, key| {
            let verdict = Verdict::read(&Carriage::plain(carrier), "g", key, &object);
            verdict.map(|verdict| verdict.scheduled)
        };
        assert_eq!(scheduled(Carrier::MusterWorkload, "one"), Ok(Some(true)));
        assert_eq!(scheduled(Carrier::MusterWorkload, ""), Ok(Some(false)));
        let missing = "it has no replica \"tow\"; there are [\"one\"]";
        assert_eq!(scheduled(Carrier::MusterWorkload, "tow"), Err(missing.to_owned()));
        let single = "it has no replicas, and no pod names it with the key \"one\"";
        assert_eq!(scheduled(Carrier::Muster, "one"), Err(single.to_owned()));
    }
}
