//! What the webhook answers: a pure function of the request, without a lookup.
//!
//! | object | when | what |
//! |---|---|---|
//! | JobSet | made, changed | notes on its Job templates whose pods are one gang; refuses what cannot be, and a change of mode |
//! | Job | made, changed | its pods name their group; a reference that an update would drop is put back |
//! | Pod of a LeaderWorkerSet | made | names the group of its replica |
//!
//! Invariants: an object that is as it should be is left alone, so asking twice changes nothing; nothing else is written,
//! so a dry run is one. It must not know TLS or HTTP.

mod job_sets;
mod jobs;
mod patch;
mod pods;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::providers::SchedulerProvider;
use crate::settings::Settings;
use patch::Patch;

/// What it has to be asked about: group, version and plural, and the operations.
pub const ASKED_ABOUT: [([&str; 3], &[&str]); 3] = [
    (["jobset.x-k8s.io", "v1alpha2", "jobsets"], &["CREATE", "UPDATE"]),
    (["batch", "v1", "jobs"], &["CREATE", "UPDATE"]),
    (["", "v1", "pods"], &["CREATE"]),
];

/// What the webhook answers from.
#[derive(Debug)]
pub struct Admission {
    settings: Settings,
    provider: Option<Box<dyn SchedulerProvider>>,
}

/// What becomes of an object.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    /// What is changed.
    patch: Vec<Value>,
    /// Why it is refused.
    denial: Option<String>,
    /// What its author should know.
    warnings: Vec<String>,
}

impl Verdict {
    fn patched(patch: Patch) -> Self {
        Self { patch: patch.into_operations(), ..Self::default() }
    }

    fn denied(why: String) -> Self {
        Self { denial: Some(why), ..Self::default() }
    }
}

/// What is asked.
struct Request<'a> {
    is_update: bool,
    object: &'a Value,
    old: &'a Value,
}

impl Admission {
    /// An answer for these settings.
    pub fn new(settings: Settings) -> Self {
        let provider = settings.provider();
        Self { settings, provider }
    }

    /// Answers an AdmissionReview of `admission.k8s.io/v1`.
    pub fn review(&self, review: &Value) -> Value {
        let request = &review["request"];
        let verdict = self.verdict(request);
        let mut response = json!({"uid": request["uid"], "allowed": verdict.denial.is_none()});
        if let Some(why) = verdict.denial {
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": why});
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
        let asked = Request {
            is_update: request["operation"] == "UPDATE",
            object: &request["object"],
            old: &request["oldObject"],
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = &request["resource"];
        let known = matches!(text(&request["operation"]).as_str(), "CREATE" | "UPDATE");
        let is_main = text(&request["subResource"]).is_empty();
        if !known || !is_main || asked.object["metadata"]["deletionTimestamp"].is_string() {
            return Verdict::default();
        }
        match (text(&resource["group"]).as_str(), text(&resource["resource"]).as_str()) {
            ("jobset.x-k8s.io", "jobsets") if self.settings.has_job_sets() => self.job_set(&asked),
            ("batch", "jobs") => self.job(&asked),
            ("", "pods") if !asked.is_update => self.pod(&asked),
            _ => Verdict::default(),
        }
    }
}

#[cfg(test)]
mod tests;
