//! Judging claims: what of them is not true of a snapshot, in words that say what was seen instead.
//!
//! Invariant: a claim about pods that match nothing is never true.
//! It must not change anything.

use std::collections::BTreeSet;

use muster_api::wire::Pod;
use serde_json::Value;

use super::autoscaler;
use super::claims::{Claims, ConditionClaim, ConditionStatus, EventClaim, GroupClaim, ObjectClaim};
use super::pattern::Pods;
use super::snapshot::{PodKey, Snapshot, event_line, group_and_key, key_of, pod_line};
use super::verdict::Verdict;
use super::world::World;

/// How many pods or objects are told of each claim that is not true.
const TOLD_MAX: usize = 5;

/// What is not true, one line or more for each; empty if all is.
pub(super) fn judge(world: &World, claims: &Claims, seen: &Snapshot) -> Vec<String> {
    let judge = Judge { world, seen };
    let mut unmet = Vec::new();
    let mut add = |claim: String, verdict: Result<(), String>| {
        if let Err(why) = verdict {
            unmet.push(format!("{claim}: {why}"));
        }
    };
    for pods in &claims.bound {
        add(format!("bound {pods}"), judge.each(pods, "bound", is_bound));
    }
    for pods in &claims.unbound {
        add(format!("unbound {pods}"), judge.each(pods, "not bound", |pod| !is_bound(pod)));
    }
    for (pods, count) in &claims.bound_count {
        add(format!("boundCount {pods}: {count}"), judge.bound_count(pods, *count));
    }
    for pods in &claims.gone {
        add(format!("gone {pods}"), judge.gone(pods));
    }
    for pods in &claims.present {
        add(format!("present {pods}"), judge.present(pods));
    }
    for (pods, nodes) in &claims.on {
        let is_there = |pod: &Pod| nodes.contains(&pod.spec.node_name);
        add(format!("on {pods}: {nodes:?}"), judge.each(pods, "there", is_there));
    }
    for (pods, label) in &claims.one_domain {
        add(format!("oneDomain {pods}: {label}"), judge.one_domain(pods, label));
    }
    for (pods, node) in &claims.nominated {
        let is_nominated = |pod: &Pod| pod.status.nominated_node_name == *node;
        add(format!("nominated {pods}: {node:?}"), judge.each(pods, "nominated so", is_nominated));
    }
    if let Some(meant) = &claims.demand {
        for pods in meant {
            add(format!("demand {pods}"), judge.demand(pods));
        }
        add("demand".to_owned(), judge.no_other_demand(meant));
    }
    for (name, claim) in &claims.groups {
        add(format!("group {name}"), judge.group(name, claim));
    }
    for claim in &claims.objects {
        add(format!("{} {}", claim.kind, claim.name.text()), judge.object(claim));
    }
    for claim in &claims.conditions {
        add(format!("condition {} of {} {}", claim.condition, claim.kind, claim.name.text()), judge.condition(claim));
    }
    for claim in &claims.events {
        add(format!("event {} of {} {}", claim.reason, claim.kind, claim.name.text()), judge.event(claim));
    }
    unmet
}

struct Judge<'a> {
    world: &'a World,
    seen: &'a Snapshot,
}

fn is_bound(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty()
}

/// The first few lines, and how many more there are.
fn some(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(TOLD_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let told = lines.into_iter().take(TOLD_MAX).chain(more);
    told.flat_map(|line| ["\n  ".to_owned(), line]).collect()
}

impl Judge<'_> {
    fn matches(&self, written: &Pods) -> Result<Vec<&Pod>, String> {
        let found = self.seen.pods_of(&self.world.meant_pods(written));
        if found.is_empty() { Err("no pod matches".to_owned()) } else { Ok(found) }
    }

    fn each(&self, written: &Pods, what: &str, is_true: impl Fn(&Pod) -> bool) -> Result<(), String> {
        let found = self.matches(written)?;
        let wrong: Vec<&Pod> = found.iter().copied().filter(|pod| !is_true(pod)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let good = found.len() - wrong.len();
        Err(format!("{good} of {} are {what}{}", found.len(), some(wrong.into_iter().map(pod_line))))
    }

    fn bound_count(&self, written: &Pods, count: u32) -> Result<(), String> {
        let found = self.matches(written)?;
        let bound = found.iter().filter(|pod| is_bound(pod)).count();
        if bound == count as usize {
            return Ok(());
        }
        Err(format!("{bound} of {} are bound{}", found.len(), some(found.into_iter().map(pod_line))))
    }

    fn gone(&self, written: &Pods) -> Result<(), String> {
        let meant = self.world.meant_pods(written);
        if !self.world.ever(&meant).1 {
            return Err("no pod of this name was ever there".to_owned());
        }
        let there = self.seen.pods_of(&meant).into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let there: Vec<&Pod> = there.collect();
        if there.is_empty() {
            return Ok(());
        }
        Err(format!("{} are there{}", there.len(), some(there.into_iter().map(pod_line))))
    }

    fn present(&self, written: &Pods) -> Result<(), String> {
        let meant = self.world.meant_pods(written);
        let (ever, _) = self.world.ever(&meant);
        if ever.is_empty() {
            return Err("no pod of this name was ever there".to_owned());
        }
        let staying = self.seen.pods_of(&meant).into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let staying: BTreeSet<_> = staying.map(key_of).collect();
        let lost: Vec<_> = ever.iter().filter(|key| !staying.contains(**key)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let lines = lost.iter().map(|(namespace, name, uid)| format!("{namespace}/{name} (UID {uid}) has left"));
        Err(format!("{} of {} are still there{}", ever.len() - lost.len(), ever.len(), some(lines)))
    }

    fn one_domain(&self, written: &Pods, label: &str) -> Result<(), String> {
        self.each(written, "bound", is_bound)?;
        let found = self.matches(written)?;
        let domain = |pod: &Pod| self.seen.nodes.get(&pod.spec.node_name)?.get(label).cloned();
        let domains: BTreeSet<Option<String>> = found.iter().map(|pod| domain(pod)).collect();
        match domains.first() {
            Some(Some(_)) if domains.len() == 1 => Ok(()),
            _ => {
                let line = |pod: &Pod| format!("{}: {}", pod_line(pod), domain(pod).as_deref().unwrap_or("no label"));
                Err(format!("they are in {} domains{}", domains.len(), some(found.into_iter().map(line))))
            }
        }
    }

    fn group(&self, name: &str, claim: &GroupClaim) -> Result<(), String> {
        let (group, key) = group_and_key(name);
        let Some(Some(object)) = self.seen.groups.get(group) else { return Err("there is no such group".to_owned()) };
        if !self.world.carriage.has_status() {
            return Ok(());
        }
        let verdict = Verdict::read(&self.world.carriage, group, key, object)?;
        let is_scheduled = claim.scheduled.is_none_or(|scheduled| verdict.scheduled == Some(scheduled));
        let has_reason = claim.reason.as_ref().is_none_or(|reason| verdict.reason == *reason);
        let is_degraded = claim.degraded.is_none_or(|degraded| verdict.is_degraded == degraded);
        let message = if claim.degraded.is_some() { &verdict.degraded_message } else { &verdict.message };
        let has_words = claim.contains.as_ref().is_none_or(|part| message.contains(part.as_str()));
        if is_scheduled && has_reason && is_degraded && has_words {
            return Ok(());
        }
        let scheduled = match verdict.scheduled {
            Some(scheduled) => scheduled.to_string(),
            None => "unknown".to_owned(),
        };
        let wanted = [
            claim.scheduled.map(|scheduled| format!("scheduled: {scheduled}")),
            claim.reason.as_ref().map(|reason| format!("reason: {reason}")),
            claim.degraded.map(|degraded| format!("degraded: {degraded}")),
            claim.contains.as_ref().map(|part| format!("with {part:?}")),
        ];
        let wanted: Vec<String> = wanted.into_iter().flatten().collect();
        Err(format!(
            "wanted {}\n  seen   scheduled: {scheduled}, reason: {}: {}\n  status: {}",
            wanted.join(", "),
            verdict.reason,
            verdict.message,
            object["status"]
        ))
    }

    /// Every match is demand, came into it once, and came with the others.
    fn demand(&self, written: &Pods) -> Result<(), String> {
        self.each(written, "demand", autoscaler::is_demand)?;
        let found: Vec<PodKey> = self.matches(written)?.into_iter().map(key_of).collect();
        let again = self.world.autoscaler.came_again(&found);
        if !again.is_empty() {
            return Err(format!("{} came more than once{}", again.len(), some(again.into_iter())));
        }
        self.world.autoscaler.straggled(&found).map_or(Ok(()), Err)
    }

    /// Nobody is demand but who is meant.
    fn no_other_demand(&self, written: &[Pods]) -> Result<(), String> {
        let meant = written.iter().flat_map(|pods| self.seen.pods_of(&self.world.meant_pods(pods)));
        let meant: BTreeSet<PodKey> = meant.map(key_of).collect();
        let is_other = |pod: &&Pod| autoscaler::is_demand(pod) && !meant.contains(&key_of(pod));
        let others: Vec<&Pod> = self.world.own_pods(&self.seen.pods).filter(is_other).collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(format!("{} more are demand{}", others.len(), some(others.into_iter().map(pod_line))))
    }

    fn object(&self, claim: &ObjectClaim) -> Result<(), String> {
        let name = self.world.meant(&claim.object());
        let objects = self.seen.objects.get(&name).map(Vec::as_slice).unwrap_or_default();
        match claim.count {
            Some(count) if count != objects.len() => {
                let names = objects.iter().map(|object| object["metadata"]["name"].to_string());
                return Err(format!("there are {}, not {count}{}", objects.len(), some(names)));
            }
            None if objects.is_empty() => return Err("there is no such object".to_owned()),
            _ => {}
        }
        let differing: Vec<String> = objects.iter().filter_map(|object| difference(object, &claim.has, "")).collect();
        if differing.is_empty() { Ok(()) } else { Err(format!("other than said{}", some(differing.into_iter()))) }
    }

    fn condition(&self, claim: &ConditionClaim) -> Result<(), String> {
        let name = self.world.meant(&claim.object());
        let objects = self.seen.objects.get(&name).map(Vec::as_slice).unwrap_or_default();
        if objects.is_empty() {
            return Err("there is no such object".to_owned());
        }
        let wrong: Vec<&Value> = objects.iter().filter(|object| !has_condition(object, claim)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let line = |object: &&Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let said = conditions.map(|one| {
                let text = |field: &str| one[field].as_str().unwrap_or_default();
                format!("{}={} {} {:?}", text("type"), text("status"), text("reason"), text("message"))
            });
            let said: Vec<String> = said.collect();
            format!("{}: {}", object["metadata"]["name"].as_str().unwrap_or_default(), said.join("; "))
        };
        Err(format!("{}{}", wanted(claim), some(wrong.iter().map(line))))
    }

    fn event(&self, claim: &EventClaim) -> Result<(), String> {
        let namespace = self.world.real_namespace(&claim.namespace);
        let about = self.seen.events.iter().filter(|event| {
            let about = &event.involved_object;
            // Events about objects outside namespaces stand in the namespace default.
            about.kind.as_deref() == Some(&claim.kind)
                && about.namespace.as_deref().is_none_or(|one| one.is_empty() || one == namespace)
                && claim.name.matches(about.name.as_deref().unwrap_or_default())
        });
        let about: Vec<_> = about.collect();
        let is_meant = about.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(&claim.reason)
                && claim.contains.as_ref().is_none_or(|part| message.contains(part.as_str()))
        });
        if is_meant {
            return Ok(());
        }
        let contains = claim.contains.as_ref().map(|part| format!(" with {part:?}")).unwrap_or_default();
        Err(format!("none{contains} among {}{}", about.len(), some(about.iter().map(|event| event_line(event)))))
    }
}

/// The first place where an object is not as it is said to be.
fn difference(object: &Value, said: &Value, path: &str) -> Option<String> {
    match (object, said) {
        (_, Value::Null) => None,
        (Value::Object(fields), Value::Object(said)) => {
            said.iter().find_map(|(key, said)| match (fields.get(key), said) {
                // Said to be left out.
                (None, Value::Null) => None,
                (Some(there), Value::Null) => Some(format!("{path}.{key}: {there}, and it should not be there")),
                (there, said) => difference(there.unwrap_or(&Value::Null), said, &format!("{path}.{key}")),
            })
        }
        (Value::Array(entries), Value::Array(said)) if entries.len() == said.len() => {
            let pairs = entries.iter().zip(said).enumerate();
            pairs.into_iter().find_map(|(index, (entry, said))| difference(entry, said, &format!("{path}[{index}]")))
        }
        (there, said) if there == said => None,
        (there, said) => Some(format!("{path}: {there}, not {said}")),
    }
}

fn has_condition(object: &Value, claim: &ConditionClaim) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().filter(|one| one["type"] == claim.condition.as_str()).any(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        claim.status.is_none_or(|status| text("status") == status_text(status))
            && claim.reason.as_ref().is_none_or(|reason| text("reason") == reason)
            && claim.contains.as_ref().is_none_or(|part| text("message").contains(part.as_str()))
    })
}

fn status_text(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

fn wanted(claim: &ConditionClaim) -> String {
    let parts = [
        Some("wanted".to_owned()),
        claim.status.map(|status| format!("status {}", status_text(status))),
        claim.reason.as_ref().map(|reason| format!("reason {reason}")),
        claim.contains.as_ref().map(|part| format!("with {part:?}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
