//! The decisions of the admission webhook: a pure function of the request and, for priorities, of the PriorityClasses.
//!
//! | object | operation | effect |
//! |---|---|---|
//! | JobSet | create, update | annotates its Job templates with the gang scope; denies invalid sets and a change of mode |
//! | Job | create, update | adds the group reference to its pod template; restores a reference that an update would drop |
//! | Pod of a LeaderWorkerSet | create | adds the reference to the group of its replica |
//! | Muster's PodGroup, Workload | create, update | fills in the priority; denies a number that is not the resolved one |
//!
//! Invariants: a correct object is not changed, so reinvocation changes nothing; there are no side effects, so dry runs
//! need no special case. Must not depend on TLS or HTTP.

mod group_priorities;
mod job_sets;
mod jobs;
mod patch;
mod pods;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_api::keys;
use serde_json::{Value, json};

use crate::priority_classes::PriorityClasses;
use crate::providers::SchedulerProvider;
use crate::settings::Settings;
use patch::Patch;

/// The rules of the webhook: group, version and plural, and the operations.
pub const WEBHOOK_RULES: [([&str; 3], &[&str]); 5] = [
    (["jobset.x-k8s.io", "v1alpha2", "jobsets"], &["CREATE", "UPDATE"]),
    (["batch", "v1", "jobs"], &["CREATE", "UPDATE"]),
    (["", "v1", "pods"], &["CREATE"]),
    (["muster.dev", "v1alpha1", "podgroups"], &["CREATE", "UPDATE"]),
    (["muster.dev", "v1alpha1", "workloads"], &["CREATE", "UPDATE"]),
];

/// The admission webhook, without its server.
#[derive(Debug)]
pub struct Admission {
    settings: Settings,
    provider: Option<Box<dyn SchedulerProvider>>,
    classes: PriorityClasses,
}

/// The decision about an object.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    /// The JSON patch operations.
    patch: Vec<Value>,
    /// Why it is denied.
    denial: Option<String>,
    /// Warnings for the client.
    warnings: Vec<String>,
}

impl Verdict {
    fn patched(patch: Patch) -> Self {
        Self { patch: patch.into_operations(), ..Self::default() }
    }

    fn denied(reason: String) -> Self {
        Self { denial: Some(reason), ..Self::default() }
    }
}

/// An admission request.
struct Request<'a> {
    is_update: bool,
    object: &'a Value,
    old: &'a Value,
}

impl Admission {
    /// A webhook with these settings, which resolves priorities from these classes.
    pub fn new(settings: Settings, classes: PriorityClasses) -> Self {
        let provider = settings.provider();
        Self { settings, provider, classes }
    }

    /// Answers an AdmissionReview of `admission.k8s.io/v1`.
    pub fn review(&self, review: &Value) -> Value {
        let request = &review["request"];
        let verdict = self.verdict(request);
        let mut response = json!({"uid": request["uid"], "allowed": verdict.denial.is_none()});
        if let Some(reason) = verdict.denial {
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": reason});
        } else if !verdict.patch.is_empty() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(json!(verdict.patch).to_string()));
        }
        if !verdict.warnings.is_empty() {
            response["warnings"] = json!(verdict.warnings);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    fn verdict(&self, request: &Value) -> Verdict {
        let request_data = Request {
            is_update: request["operation"] == "UPDATE",
            object: &request["object"],
            old: &request["oldObject"],
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = &request["resource"];
        let known = matches!(text(&request["operation"]).as_str(), "CREATE" | "UPDATE");
        let is_main = text(&request["subResource"]).is_empty();
        if !known || !is_main || request_data.object["metadata"]["deletionTimestamp"].is_string() {
            return Verdict::default();
        }
        match (text(&resource["group"]).as_str(), text(&resource["resource"]).as_str()) {
            ("jobset.x-k8s.io", "jobsets") if self.settings.has_job_sets() => self.job_set(&request_data),
            ("batch", "jobs") => self.job(&request_data),
            ("", "pods") if !request_data.is_update => self.pod(&request_data),
            (keys::GROUP, "podgroups") => self.pod_group(&request_data),
            (keys::GROUP, "workloads") => self.workload(&request_data),
            _ => Verdict::default(),
        }
    }
}

#[cfg(test)]
mod tests;
