//! Evaluation of assertions against a snapshot, with messages that say what was seen instead.
//!
//! Invariant: an assertion about pods that match nothing never holds. Must not change anything.

use std::collections::BTreeSet;
use std::fmt;

use muster_api::wire::Pod;
use serde_json::Value;

use super::assertions::{
    Assertions, ConditionAssertion, ConditionStatus, EventAssertion, GroupAssertion, ObjectAssertion,
};
use super::autoscaler;
use super::group_status::GroupStatus;
use super::pattern::Pods;
use super::snapshot::{PodKey, Snapshot, event_line, group_and_key, key_of, pod_line};
use super::world::World;

/// The maximum number of pods or objects listed for each assertion that does not hold.
const SHOWN_MAX: usize = 5;

/// The assertions that do not hold, one line or more for each; empty if all hold.
pub(super) fn evaluate(world: &World, assertions: &Assertions, seen: &Snapshot) -> Vec<String> {
    let evaluator = Evaluator { world, seen };
    let mut unmet = Vec::new();
    let mut add = |assertion: String, result: Result<(), Mismatch>| {
        if let Err(mismatch) = result {
            unmet.push(format!("{assertion}: {mismatch}"));
        }
    };
    for pods in &assertions.bound {
        add(format!("bound {pods}"), evaluator.each(pods, "bound", is_bound));
    }
    for pods in &assertions.unbound {
        add(format!("unbound {pods}"), evaluator.each(pods, "not bound", |pod| !is_bound(pod)));
    }
    for (pods, count) in &assertions.bound_count {
        add(format!("boundCount {pods}: {count}"), evaluator.bound_count(pods, *count));
    }
    for pods in &assertions.gone {
        add(format!("gone {pods}"), evaluator.gone(pods));
    }
    for pods in &assertions.present {
        add(format!("present {pods}"), evaluator.present(pods));
    }
    for (pods, nodes) in &assertions.on {
        let is_there = |pod: &Pod| nodes.contains(&pod.spec.node_name);
        add(format!("on {pods}: {nodes:?}"), evaluator.each(pods, "there", is_there));
    }
    for (pods, label) in &assertions.one_domain {
        add(format!("oneDomain {pods}: {label}"), evaluator.one_domain(pods, label));
    }
    for (pods, node) in &assertions.nominated {
        let is_nominated = |pod: &Pod| pod.status.nominated_node_name == *node;
        add(format!("nominated {pods}: {node:?}"), evaluator.each(pods, "nominated so", is_nominated));
    }
    if let Some(patterns) = &assertions.demand {
        for pods in patterns {
            add(format!("demand {pods}"), evaluator.demand(pods));
        }
        add("demand".to_owned(), evaluator.no_other_demand(patterns));
    }
    for (name, assertion) in &assertions.groups {
        add(format!("group {name}"), evaluator.group(name, assertion));
    }
    for assertion in &assertions.objects {
        add(format!("{} {}", assertion.kind, assertion.name.text()), evaluator.object(assertion));
    }
    for assertion in &assertions.conditions {
        add(
            format!("condition {} of {} {}", assertion.condition, assertion.kind, assertion.name.text()),
            evaluator.condition(assertion),
        );
    }
    for assertion in &assertions.events {
        add(
            format!("event {} of {} {}", assertion.reason, assertion.kind, assertion.name.text()),
            evaluator.event(assertion),
        );
    }
    unmet
}

struct Evaluator<'a> {
    world: &'a World,
    seen: &'a Snapshot,
}

fn is_bound(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty()
}

/// Why an assertion does not hold.
#[derive(Debug)]
struct Mismatch {
    /// What was seen instead.
    seen: String,
    /// The pods or objects that differ, one line for each.
    differing: Vec<String>,
}

impl Mismatch {
    fn new(seen: impl Into<String>) -> Self {
        Self { seen: seen.into(), differing: Vec::new() }
    }

    fn with(self, differing: impl Iterator<Item = String>) -> Self {
        Self { differing: differing.collect(), ..self }
    }
}

impl fmt::Display for Mismatch {
    /// Shows the first few that differ, and how many more there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.seen)?;
        self.differing.iter().take(SHOWN_MAX).try_for_each(|line| write!(f, "\n  {line}"))?;
        match self.differing.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl Evaluator<'_> {
    fn matches(&self, written: &Pods) -> Result<Vec<&Pod>, Mismatch> {
        let found = self.seen.pods_of(&self.world.resolve_pods(written));
        if found.is_empty() { Err(Mismatch::new("no pod matches")) } else { Ok(found) }
    }

    fn each(&self, written: &Pods, what: &str, is_true: impl Fn(&Pod) -> bool) -> Result<(), Mismatch> {
        let found = self.matches(written)?;
        let wrong: Vec<&Pod> = found.iter().copied().filter(|pod| !is_true(pod)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let matching = found.len() - wrong.len();
        let seen = format!("{matching} of {} are {what}", found.len());
        Err(Mismatch::new(seen).with(wrong.into_iter().map(pod_line)))
    }

    fn bound_count(&self, written: &Pods, count: u32) -> Result<(), Mismatch> {
        let found = self.matches(written)?;
        let bound = found.iter().filter(|pod| is_bound(pod)).count();
        if bound == count as usize {
            return Ok(());
        }
        let seen = format!("{bound} of {} are bound", found.len());
        Err(Mismatch::new(seen).with(found.into_iter().map(pod_line)))
    }

    fn gone(&self, written: &Pods) -> Result<(), Mismatch> {
        let pattern = self.world.resolve_pods(written);
        if !self.world.ever_seen(&pattern).1 {
            return Err(Mismatch::new("no pod of this name ever existed"));
        }
        let there = self.seen.pods_of(&pattern).into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let there: Vec<&Pod> = there.collect();
        if there.is_empty() {
            return Ok(());
        }
        Err(Mismatch::new(format!("{} exist", there.len())).with(there.into_iter().map(pod_line)))
    }

    fn present(&self, written: &Pods) -> Result<(), Mismatch> {
        let pattern = self.world.resolve_pods(written);
        let (ever_seen, _) = self.world.ever_seen(&pattern);
        if ever_seen.is_empty() {
            return Err(Mismatch::new("no pod of this name ever existed"));
        }
        let staying = self.seen.pods_of(&pattern).into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let staying: BTreeSet<_> = staying.map(key_of).collect();
        let lost: Vec<_> = ever_seen.iter().filter(|key| !staying.contains(**key)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let lines = lost.iter().map(|(namespace, name, uid)| format!("{namespace}/{name} (UID {uid}) is gone"));
        let seen = format!("{} of {} still exist", ever_seen.len() - lost.len(), ever_seen.len());
        Err(Mismatch::new(seen).with(lines))
    }

    fn one_domain(&self, written: &Pods, label: &str) -> Result<(), Mismatch> {
        self.each(written, "bound", is_bound)?;
        let found = self.matches(written)?;
        let domain = |pod: &Pod| self.seen.nodes.get(&pod.spec.node_name)?.get(label).cloned();
        let domains: BTreeSet<Option<String>> = found.iter().map(|pod| domain(pod)).collect();
        match domains.first() {
            Some(Some(_)) if domains.len() == 1 => Ok(()),
            _ => {
                let line = |pod: &Pod| format!("{}: {}", pod_line(pod), domain(pod).as_deref().unwrap_or("no label"));
                let seen = format!("they are in {} domains", domains.len());
                Err(Mismatch::new(seen).with(found.into_iter().map(line)))
            }
        }
    }

    fn group(&self, name: &str, assertion: &GroupAssertion) -> Result<(), Mismatch> {
        let (group, key) = group_and_key(name);
        let Some(Some(object)) = self.seen.groups.get(group) else {
            return Err(Mismatch::new("the group does not exist"));
        };
        if !self.world.scenario_carrier.has_status() {
            return Ok(());
        }
        let group_status = GroupStatus::read(&self.world.scenario_carrier, group, key, object)
            .map_err(|error| Mismatch::new(error.to_string()))?;
        let is_scheduled = assertion.scheduled.is_none_or(|scheduled| group_status.scheduled == Some(scheduled));
        let has_reason = assertion.reason.as_ref().is_none_or(|reason| group_status.reason == *reason);
        let is_degraded = assertion.degraded.is_none_or(|degraded| group_status.is_degraded == degraded);
        let message = if assertion.degraded.is_some() { &group_status.degraded_message } else { &group_status.message };
        let has_message = assertion.contains.as_ref().is_none_or(|part| message.contains(part.as_str()));
        if is_scheduled && has_reason && is_degraded && has_message {
            return Ok(());
        }
        let scheduled = match group_status.scheduled {
            Some(scheduled) => scheduled.to_string(),
            None => "unknown".to_owned(),
        };
        let expectation = [
            assertion.scheduled.map(|scheduled| format!("scheduled: {scheduled}")),
            assertion.reason.as_ref().map(|reason| format!("reason: {reason}")),
            assertion.degraded.map(|degraded| format!("degraded: {degraded}")),
            assertion.contains.as_ref().map(|part| format!("with {part:?}")),
        ];
        let expectation: Vec<String> = expectation.into_iter().flatten().collect();
        Err(Mismatch::new(format!(
            "expected {}\n  seen   scheduled: {scheduled}, reason: {}: {}\n  status: {}",
            expectation.join(", "),
            group_status.reason,
            group_status.message,
            object["status"]
        )))
    }

    /// Every match is demand, became demand once, and within one burst with the others.
    fn demand(&self, written: &Pods) -> Result<(), Mismatch> {
        self.each(written, "demand", autoscaler::is_demand)?;
        let found: Vec<PodKey> = self.matches(written)?.into_iter().map(key_of).collect();
        let again = self.world.autoscaler.demanded_again(&found);
        if !again.is_empty() {
            let seen = format!("{} became demand more than once", again.len());
            return Err(Mismatch::new(seen).with(again.into_iter()));
        }
        self.world.autoscaler.not_one_burst(&found).map_or(Ok(()), |seen| Err(Mismatch::new(seen)))
    }

    /// No other pods are demand.
    fn no_other_demand(&self, written: &[Pods]) -> Result<(), Mismatch> {
        let pattern = written.iter().flat_map(|pods| self.seen.pods_of(&self.world.resolve_pods(pods)));
        let pattern: BTreeSet<PodKey> = pattern.map(key_of).collect();
        let is_other = |pod: &&Pod| autoscaler::is_demand(pod) && !pattern.contains(&key_of(pod));
        let others: Vec<&Pod> = self.world.own_pods(&self.seen.pods).filter(is_other).collect();
        if others.is_empty() {
            return Ok(());
        }
        let seen = format!("{} more are demand", others.len());
        Err(Mismatch::new(seen).with(others.into_iter().map(pod_line)))
    }

    fn object(&self, assertion: &ObjectAssertion) -> Result<(), Mismatch> {
        let name = self.world.resolve(&assertion.object());
        let objects = self.seen.objects.get(&name).map(Vec::as_slice).unwrap_or_default();
        match assertion.count {
            Some(count) if count != objects.len() => {
                let names = objects.iter().map(|object| object["metadata"]["name"].to_string());
                return Err(Mismatch::new(format!("there are {}, not {count}", objects.len())).with(names));
            }
            None if objects.is_empty() => return Err(Mismatch::new("the object does not exist")),
            _ => {}
        }
        let differing: Vec<String> =
            objects.iter().filter_map(|object| difference(object, &assertion.has, "")).collect();
        let seen = "different fields".to_owned();
        if differing.is_empty() { Ok(()) } else { Err(Mismatch { seen, differing }) }
    }

    fn condition(&self, assertion: &ConditionAssertion) -> Result<(), Mismatch> {
        let name = self.world.resolve(&assertion.object());
        let objects = self.seen.objects.get(&name).map(Vec::as_slice).unwrap_or_default();
        if objects.is_empty() {
            return Err(Mismatch::new("the object does not exist"));
        }
        let wrong: Vec<&Value> = objects.iter().filter(|object| !has_condition(object, assertion)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let line = |object: &&Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let conditions_seen = conditions.map(|one| {
                let text = |field: &str| one[field].as_str().unwrap_or_default();
                format!("{}={} {} {:?}", text("type"), text("status"), text("reason"), text("message"))
            });
            let conditions_seen: Vec<String> = conditions_seen.collect();
            format!("{}: {}", object["metadata"]["name"].as_str().unwrap_or_default(), conditions_seen.join("; "))
        };
        Err(Mismatch::new(expectation(assertion)).with(wrong.iter().map(line)))
    }

    fn event(&self, assertion: &EventAssertion) -> Result<(), Mismatch> {
        let namespace = self.world.real_namespace(&assertion.namespace);
        let about = self.seen.events.iter().filter(|event| {
            let about = &event.involved_object;
            // Events about cluster-scoped objects are in the namespace default.
            about.kind.as_deref() == Some(&assertion.kind)
                && about.namespace.as_deref().is_none_or(|one| one.is_empty() || one == namespace)
                && assertion.name.matches(about.name.as_deref().unwrap_or_default())
        });
        let about: Vec<_> = about.collect();
        let is_match = about.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(&assertion.reason)
                && assertion.contains.as_ref().is_none_or(|part| message.contains(part.as_str()))
        });
        if is_match {
            return Ok(());
        }
        let contains = assertion.contains.as_ref().map(|part| format!(" with {part:?}")).unwrap_or_default();
        let seen = format!("none{contains} among {}", about.len());
        Err(Mismatch::new(seen).with(about.iter().map(|event| event_line(event))))
    }
}

/// The first field in which an object differs from the expectation.
fn difference(object: &Value, expected: &Value, path: &str) -> Option<String> {
    match (object, expected) {
        (_, Value::Null) => None,
        (Value::Object(fields), Value::Object(expected)) => {
            expected.iter().find_map(|(key, expected)| match (fields.get(key), expected) {
                // `null` means that the field must be absent.
                (None, Value::Null) => None,
                (Some(there), Value::Null) => Some(format!("{path}.{key}: {there}, which must be absent")),
                (there, expected) => difference(there.unwrap_or(&Value::Null), expected, &format!("{path}.{key}")),
            })
        }
        (Value::Array(entries), Value::Array(expected)) if entries.len() == expected.len() => {
            let pairs = entries.iter().zip(expected).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (entry, expected))| difference(entry, expected, &format!("{path}[{index}]")))
        }
        (there, expected) if there == expected => None,
        (there, expected) => Some(format!("{path}: {there}, not {expected}")),
    }
}

fn has_condition(object: &Value, assertion: &ConditionAssertion) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().filter(|one| one["type"] == assertion.condition.as_str()).any(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        assertion.status.is_none_or(|status| text("status") == status_text(status))
            && assertion.reason.as_ref().is_none_or(|reason| text("reason") == reason)
            && assertion.contains.as_ref().is_none_or(|part| text("message").contains(part.as_str()))
    })
}

fn status_text(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

fn expectation(assertion: &ConditionAssertion) -> String {
    let parts = [
        Some("expected".to_owned()),
        assertion.status.map(|status| format!("status {}", status_text(status))),
        assertion.reason.as_ref().map(|reason| format!("reason {reason}")),
        assertion.contains.as_ref().map(|part| format!("with {part:?}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
