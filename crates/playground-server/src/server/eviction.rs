//! The `eviction` subresource: a delete that respects disruption budgets.

use muster_api::selector::WrittenLabelSelector;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::binding::set_condition;
use super::body;
use super::delete::{preconditions, remove};
use super::query::{DeleteOptions, Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::{GroupResource, Kind, deny_further_disruptions, is_finished, is_ready, phase};

const BUDGET_MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const CAUSE: &str = "DisruptionBudget";
/// The most evictions that the disruption controller may not have observed yet.
const UNCONFIRMED_MAX: usize = 2000;
/// `Retry-After` while a budget is being processed.
const RETRY_SECONDS: u32 = 10;

/// Evicts the pod that the path names.
pub(crate) fn evict(
    state: &mut State,
    pods: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<ApiResponse, StatusError> {
    let write = WriteOptions::read(query, WriteVerb::Create)?;
    let accepted = [("policy", "v1"), ("policy", "v1beta1")];
    let (eviction, _) = body::decode_part(&state.registry, bytes, &accepted, "Eviction")?;
    let namespace = eviction["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    admission::check_namespace_lifecycle(state, pods, target, &eviction)?;
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != target.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::from_body(&eviction["deleteOptions"])?;
    options.dry_run |= write.dry_run;
    let old = state.get(pods, &target.namespace, &target.name);
    let old = old.ok_or_else(|| StatusError::not_found(pods.group_resource(), &target.name))?;
    let pod = old.value();
    if !is_exempt_from_budgets(&pod) {
        consume_budget(state, &old, &pod, &options)?;
    }
    evict_pod(state, pods, &old, pod, options)?;
    Ok(ApiResponse::success(201, None))
}

/// Evicting a pod that is not running disrupts nothing.
fn is_exempt_from_budgets(pod: &Value) -> bool {
    is_finished(pod) || phase(pod) == "Pending" || pod["metadata"]["deletionTimestamp"].is_string()
}

/// Consumes one disruption of the pod's budget, if it has one.
fn consume_budget(state: &mut State, old: &Object, pod: &Value, options: &DeleteOptions) -> Result<(), StatusError> {
    let budgets = std::sync::Arc::clone(state.registry.builtin("policy", "poddisruptionbudgets"));
    let found = state.store.list(budgets.table, Some(&old.key.namespace)).map(|budget| budget.value());
    let found: Vec<Value> = found.filter(|budget| selects(&budget["spec"]["selector"], old)).collect();
    let mut budget = match <[Value; 1]>::try_from(found) {
        Ok([only]) => only,
        Err(found) if found.is_empty() => return Ok(()),
        Err(_) => {
            return Err(StatusError::without_reason(
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
    check_budget(&budget)?;
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
    // A budget with an invalid selector protects nothing.
    let written = serde_json::from_value::<Option<WrittenLabelSelector>>(selector.clone());
    let root = muster_api::invalid::FieldPath::Root("spec.selector");
    written.is_ok_and(|written| {
        WrittenLabelSelector::validate(written.as_ref(), &root).is_ok_and(|selector| selector.matches(&pod.labels))
    })
}

/// Checks whether a budget allows one more disruption.
fn check_budget(budget: &Value) -> Result<(), StatusError> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let status = &budget["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let group_resource = GroupResource { group: "policy", resource: "poddisruptionbudget" };
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(StatusError::too_many_requests(BUDGET_MESSAGE, RETRY_SECONDS).with_cause(CAUSE, cause, ""));
    }
    let beginning = format!("The disruption budget {name} does not allow evicting pods currently");
    if count("disruptionsAllowed") < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(StatusError::forbidden(group_resource, name, why).with_cause(
            CAUSE,
            format!("{beginning}: {why}"),
            "",
        ));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > UNCONFIRMED_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        let cause = format!("{beginning}: too many pending evictions not confirmed by PDB controller");
        return Err(StatusError::forbidden(group_resource, name, why).with_cause(CAUSE, cause, ""));
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
    Err(StatusError::too_many_requests(BUDGET_MESSAGE, 0).with_cause(CAUSE, cause, ""))
}

/// Sets the `DisruptionTarget` condition and deletes the pod.
fn evict_pod(
    state: &mut State,
    pods: &Kind,
    old: &Object,
    mut pod: Value,
    mut options: DeleteOptions,
) -> Result<(), StatusError> {
    preconditions(pods, old, &options)?;
    // Setting the condition changes the resource version.
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
    let updated = if pod == old.value() { None } else { Some(state.write(pods, pod)) };
    remove(state, pods, updated.as_deref().unwrap_or(old), &options).map(drop)
}
