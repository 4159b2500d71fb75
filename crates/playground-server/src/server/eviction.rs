//! Eviction: a delete that asks the disruption budgets first.

use muster_api::selector::WrittenLabelSelector;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::answer::Answer;
use super::binding::set_condition;
use super::body;
use super::delete::{preconditions, remove};
use super::failure::Failure;
use super::query::{DeleteOptions, Query, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use crate::kinds::{About, Kind, deny_further_disruptions, is_finished, is_ready, phase};

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const CAUSE: &str = "DisruptionBudget";
/// The most evictions that a budget's controller may not have seen yet.
const UNCONFIRMED_MAX: usize = 2000;
/// When to come back while a budget is being processed.
const RETRY_SECONDS: u32 = 10;

/// Evicts the pod that the path names.
pub(crate) fn evict(
    state: &mut State,
    pods: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    let write = WriteOptions::read(query, Write::Create)?;
    let accepted = [("policy", "v1"), ("policy", "v1beta1")];
    let (eviction, _) = body::read_part(&state.registry, bytes, &accepted, "Eviction")?;
    let namespace = eviction["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    admission::namespace_is_open(state, pods, target, &eviction)?;
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::from_body(&eviction["deleteOptions"])?;
    options.dry_run |= write.dry_run;
    let old = state.get(pods, &target.namespace, &target.name);
    let old = old.ok_or_else(|| Failure::not_found(pods.about(), &target.name))?;
    let pod = old.value();
    if !ignores_budgets(&pod) {
        ask_budget(state, &old, &pod, &options)?;
    }
    take_away(state, pods, &old, pod, options)?;
    Ok(Answer::success(201, None))
}

/// Pods that do not run disturb nobody when they go.
fn ignores_budgets(pod: &Value) -> bool {
    is_finished(pod) || phase(pod) == "Pending" || pod["metadata"]["deletionTimestamp"].is_string()
}

/// Uses up one disruption of the pod's budget, if it has one.
fn ask_budget(state: &mut State, old: &Object, pod: &Value, options: &DeleteOptions) -> Result<(), Failure> {
    let budgets = std::sync::Arc::clone(state.registry.builtin("policy", "poddisruptionbudgets"));
    let found = state.store.list(budgets.table, Some(&old.key.namespace)).map(|budget| budget.value());
    let found: Vec<Value> = found.filter(|budget| selects(&budget["spec"]["selector"], old)).collect();
    let mut budget = match <[Value; 1]>::try_from(found) {
        Ok([only]) => only,
        Err(found) if found.is_empty() => return Ok(()),
        Err(_) => {
            return Err(Failure::plain(
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let status = &budget["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let healthy_enough = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    if !is_ready(pod) && (always || healthy_enough) {
        return Ok(());
    }
    allows(&budget)?;
    if options.dry_run {
        return Ok(());
    }
    let now = state.time();
    let left = count("disruptionsAllowed") - 1;
    budget["status"]["disruptionsAllowed"] = json!(left);
    budget["status"]["disruptedPods"][&*old.key.name] = json!(now);
    if left == 0 {
        deny_further_disruptions(&mut budget, &now);
    }
    state.write(&budgets, budget);
    Ok(())
}

fn selects(selector: &Value, pod: &Object) -> bool {
    // A budget whose selector cannot be read guards nothing.
    let written = serde_json::from_value::<Option<WrittenLabelSelector>>(selector.clone());
    let root = muster_api::invalid::FieldPath::Root("spec.selector");
    written.is_ok_and(|written| {
        WrittenLabelSelector::validate(written.as_ref(), &root).is_ok_and(|selector| selector.matches(&pod.labels))
    })
}

/// Whether a budget allows one more disruption.
fn allows(budget: &Value) -> Result<(), Failure> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let status = &budget["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let about = About { group: "policy", resource: "poddisruptionbudget" };
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Failure::too_many_requests(REFUSED, RETRY_SECONDS).because(CAUSE, cause, ""));
    }
    let beginning = format!("The disruption budget {name} does not allow evicting pods currently");
    if count("disruptionsAllowed") < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Failure::forbidden(about, name, why).because(CAUSE, format!("{beginning}: {why}"), ""));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > UNCONFIRMED_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        let cause = format!("{beginning}: too many pending evictions not confirmed by PDB controller");
        return Err(Failure::forbidden(about, name, why).because(CAUSE, cause, ""));
    }
    if count("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let denied = conditions.into_iter().find(|condition| {
        condition["type"] == "DisruptionAllowed" && condition["status"] == "False" && condition["message"] != ""
    });
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let cause = match denied {
        Some(condition) if condition["reason"] == "SyncFailed" => {
            format!("{beginning} because it failed sync: {}", text(condition, "message"))
        }
        _ if count("currentHealthy") <= count("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            count("desiredHealthy"),
            count("currentHealthy")
        ),
        Some(condition) => {
            format!("{beginning} ({}): {}", text(condition, "reason"), text(condition, "message"))
        }
        None => beginning,
    };
    Err(Failure::too_many_requests(REFUSED, 0).because(CAUSE, cause, ""))
}

/// Says on the pod why it goes, and deletes it.
fn take_away(
    state: &mut State,
    pods: &Kind,
    old: &Object,
    mut pod: Value,
    mut options: DeleteOptions,
) -> Result<(), Failure> {
    preconditions(pods, old, &options)?;
    // Our own note on the pod makes a new revision.
    options.revision = None;
    if options.dry_run {
        return Ok(());
    }
    let now = state.time();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    set_condition(&mut pod, &condition, &now);
    let told = if pod == old.value() { None } else { Some(state.write(pods, pod)) };
    remove(state, pods, told.as_deref().unwrap_or(old), &options).map(drop)
}
