//! The child Jobs of a JobSet: names, labels and annotations, and their classification.
//!
//! The keys are set on Jobs and pods both as labels and as annotations. Must not depend on when Jobs are created.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::object::{self, JobSet, ReplicatedJob, ReplicatedJobStatus};
use super::template::DIRECTIVES;
use crate::digest;
use crate::owners;

const PREFIX: &str = "jobset.sigs.k8s.io";
/// The restart attempt that a Job belongs to.
const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// The replicated Job that a Job belongs to.
const REPLICATED: &str = "jobset.sigs.k8s.io/replicatedjob-name";

/// The name of a child Job.
pub(super) fn job_name(set: &JobSet, replicated: &ReplicatedJob, index: u32) -> String {
    format!("{}-{}-{index}", object::name(set), replicated.name)
}

/// The replicated Job that a Job belongs to.
pub(super) fn replicated_name(job: &Job) -> &str {
    job.labels().get(REPLICATED).map_or("", String::as_str)
}

/// The existing child Jobs by status.
#[derive(Debug, Default)]
pub(super) struct Children {
    pub(super) active: Vec<Arc<Job>>,
    pub(super) succeeded: Vec<Arc<Job>>,
    pub(super) failed: Vec<Arc<Job>>,
    /// Jobs of earlier restart attempts.
    pub(super) previous: Vec<Arc<Job>>,
}

impl Children {
    /// Classifies the Jobs of a set.
    pub(super) fn classify(set: &JobSet, jobs: impl Iterator<Item = Arc<Job>>) -> Self {
        let mut children = Self::default();
        for job in jobs {
            let attempt = job.labels().get(ATTEMPT).and_then(|text| text.parse::<u32>().ok());
            // A Job without a valid label cannot be distinguished from an old one.
            if attempt.is_none_or(|attempt| attempt < set.status.restarts) {
                children.previous.push(job);
            } else if end(&job, "Failed").is_some() {
                children.failed.push(job);
            } else if end(&job, "Complete").is_some() {
                children.succeeded.push(job);
            } else {
                children.active.push(job);
            }
        }
        children
    }

    /// The names of all child Jobs.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let all = [&self.active, &self.succeeded, &self.failed, &self.previous];
        all.into_iter().flatten().filter_map(|job| job.metadata.name.as_deref()).collect()
    }

    /// The counts per replicated Job. The real controller sorts names in descending order.
    pub(super) fn statuses(&self, set: &JobSet) -> Vec<ReplicatedJobStatus> {
        let mut statuses: Vec<ReplicatedJobStatus> =
            set.spec.replicated_jobs.iter().map(|replicated| self.status(&replicated.name)).collect();
        statuses.sort_by(|left, right| right.name.cmp(&left.name));
        statuses
    }

    fn status(&self, name: &str) -> ReplicatedJobStatus {
        let of = |jobs: &[Arc<Job>]| jobs.iter().filter(|job| replicated_name(job) == name).count() as u32;
        let active_with = |test: &dyn Fn(&Job) -> bool| {
            self.active.iter().filter(|job| replicated_name(job) == name && test(job)).count() as u32
        };
        ReplicatedJobStatus {
            name: name.to_owned(),
            ready: active_with(&is_ready),
            succeeded: of(&self.succeeded),
            failed: of(&self.failed),
            active: active_with(&|job| count(job, "active") > 0),
            suspended: active_with(&is_suspended),
        }
    }
}

fn count(job: &Job, which: &str) -> i32 {
    let Some(status) = &job.status else { return 0 };
    let number = match which {
        "active" => status.active,
        "ready" => status.ready,
        _ => status.succeeded,
    };
    number.unwrap_or(0)
}

/// Whether all pods that run in parallel are ready or have succeeded.
fn is_ready(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    let parallelism = spec.and_then(|spec| spec.parallelism).unwrap_or(1);
    let completions = spec.and_then(|spec| spec.completions).unwrap_or(parallelism);
    count(job, "succeeded") + count(job, "ready") >= parallelism.min(completions)
}

pub(super) fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// The final condition of a Job, if it is true.
pub(super) fn end<'a>(job: &'a Job, kind: &str) -> Option<&'a k8s_openapi::api::batch::v1::JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == kind && one.status == "True")
}

/// A Job as it is sent to the server: the template, with labels and annotations that give its position.
pub(super) fn job(set: &JobSet, replicated: &ReplicatedJob, index: u32) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": replicated.template["metadata"], "spec": replicated.template["spec"],
    });
    if !job["metadata"].is_object() {
        job["metadata"] = json!({});
    }
    job["metadata"]["name"] = json!(job_name(set, replicated, index));
    job["metadata"]["namespace"] = json!(set.metadata.namespace);
    job["metadata"]["ownerReferences"] = json!([owners::controlled_by(set)]);
    let keys = keys(set, replicated, index);
    add_keys(&mut job, &keys);
    add_keys(&mut job["spec"]["template"], &keys);
    if set.spec.network.enable_dns_hostnames {
        job["spec"]["template"]["spec"]["subdomain"] = json!(object::subdomain(set));
    }
    job["spec"]["suspend"] = json!(set.spec.is_suspended());
    job
}

/// The counts that an elastic Job should have instead of its own: those of the template, if they are equal.
pub(super) fn scaled_counts(set: &JobSet, job: &Job) -> Option<Value> {
    let replicated = set.spec.replicated_jobs.iter().find(|one| one.name == replicated_name(job))?;
    let desired = ["parallelism", "completions"].map(|field| replicated.template["spec"][field].as_i64());
    let spec = job.spec.as_ref()?;
    let current = [spec.parallelism, spec.completions].map(|count| count.map(i64::from));
    let is_elastic = desired[0] == desired[1] && desired[0].is_some();
    (is_elastic && current != desired).then(|| json!({"parallelism": desired[0], "completions": desired[1]}))
}

/// The change of a Job's spec that resumes it. What may have changed in the set's template while it was suspended is
/// added to what the Job has.
pub(super) fn resumed(replicated: &ReplicatedJob, job: &Job) -> Value {
    let mut spec = json!({"suspend": false});
    let new = &replicated.template["spec"]["template"];
    let old = json!(job.spec.as_ref().map(|spec| &spec.template));
    for path in DIRECTIVES {
        let pointer = format!("/{}", path.replace('.', "/"));
        let Some((new, (part, field))) = new.pointer(&pointer).zip(path.split_once('.')) else { continue };
        // A merge patch adds to an object, and replaces a list.
        let merged = match (old.pointer(&pointer).and_then(Value::as_array), new.as_array()) {
            (Some(old), Some(new)) => {
                let added = new.iter().filter(|entry| !old.contains(entry));
                json!(old.iter().chain(added).collect::<Vec<_>>())
            }
            _ => new.clone(),
        };
        spec["template"][part][field] = merged;
    }
    spec
}

fn add_keys(object: &mut Value, keys: &[(String, String)]) {
    for field in ["labels", "annotations"] {
        for (key, value) in keys {
            object["metadata"][field][key] = json!(value);
        }
    }
}

/// The keys that give a Job and its pods their position in the set.
fn keys(set: &JobSet, replicated: &ReplicatedJob, index: u32) -> Vec<(String, String)> {
    let all = || set.spec.replicated_jobs.iter();
    let group = || all().filter(|one| one.group_name == replicated.group_name);
    let sum = |jobs: &mut dyn Iterator<Item = &ReplicatedJob>| jobs.map(|one| u64::from(one.replicas)).sum::<u64>();
    let before = |jobs: &mut dyn Iterator<Item = &ReplicatedJob>| {
        sum(&mut jobs.take_while(|one| one.name != replicated.name)) + u64::from(index)
    };
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let mut keys = vec![
        ("jobset-name", object::name(set).to_owned()),
        ("jobset-uid", set.metadata.uid.clone().unwrap_or_default()),
        ("replicatedjob-name", replicated.name.clone()),
        ("replicatedjob-replicas", replicated.replicas.to_string()),
        ("restart-attempt", set.status.restarts.to_string()),
        ("global-replicas", sum(&mut all()).to_string()),
        ("job-index", index.to_string()),
        ("job-global-index", before(&mut all()).to_string()),
        ("job-key", digest::sha1(&format!("{namespace}/{}", job_name(set, replicated, index)))),
        ("group-name", replicated.group_name.clone()),
        ("group-replicas", sum(&mut group()).to_string()),
        ("job-group-index", before(&mut group()).to_string()),
    ];
    if let Some(pod) = &set.spec.coordinator {
        let host = format!("{}-{}-{}-{}", object::name(set), pod.replicated_job, pod.job_index, pod.pod_index);
        keys.push(("coordinator", format!("{host}.{}", object::subdomain(set))));
    }
    keys.into_iter().map(|(key, value)| (format!("{PREFIX}/{key}"), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_job_gets_what_changed_in_the_template() {
        let replicated: ReplicatedJob = serde_json::from_value(json!({"name": "x", "template": {"spec": {"template": {
            "metadata": {"labels": {"a": "new"}},
            "spec": {"containers": [], "nodeSelector": {"pool": "b"}, "tolerations": [{"key": "k"}, {"key": "own"}]},
        }}}}))
        .unwrap();
        let job: Job = serde_json::from_value(json!({"spec": {"suspend": true, "template": {
            "metadata": {"labels": {"a": "old", "b": "c"}},
            "spec": {"containers": [], "tolerations": [{"key": "own"}]},
        }}}))
        .unwrap();
        let expected = json!({"suspend": false, "template": {
            "metadata": {"labels": {"a": "new"}},
            "spec": {"nodeSelector": {"pool": "b"}, "tolerations": [{"key": "own"}, {"key": "k"}]},
        }});
        assert_eq!(resumed(&replicated, &job), expected);
    }

    #[test]
    fn job_and_pods_get_their_position() {
        let replicated = |name: &str, group: &str, replicas: u32| {
            json!({"name": name, "groupName": group, "replicas": replicas, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"completions": 2, "template": {"spec": {"containers": []}}}}})
        };
        let set: JobSet = serde_json::from_value(json!({
            "metadata": {"name": "js", "namespace": "default", "uid": "u"},
            "spec": {
                "replicatedJobs": [replicated("x", "g", 2), replicated("y", "h", 3), replicated("z", "g", 4)],
                "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
                "coordinator": {"replicatedJob": "x", "podIndex": 1},
            },
            "status": {"restarts": 5},
        }))
        .unwrap();
        let built = job(&set, &set.spec.replicated_jobs[2], 1);
        let expected = json!({
            "a": "b",
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": "u",
            "jobset.sigs.k8s.io/replicatedjob-name": "z", "jobset.sigs.k8s.io/replicatedjob-replicas": "4",
            "jobset.sigs.k8s.io/restart-attempt": "5", "jobset.sigs.k8s.io/global-replicas": "9",
            "jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/job-global-index": "6",
            "jobset.sigs.k8s.io/job-key": digest::sha1("default/js-z-1"),
            "jobset.sigs.k8s.io/group-name": "g", "jobset.sigs.k8s.io/group-replicas": "6",
            "jobset.sigs.k8s.io/job-group-index": "3", "jobset.sigs.k8s.io/coordinator": "js-x-0-1.js",
        });
        assert_eq!((&built["metadata"]["name"], &built["metadata"]["labels"]), (&json!("js-z-1"), &expected));
        assert_eq!(built["spec"]["template"]["metadata"]["annotations"]["jobset.sigs.k8s.io/job-index"], "1");
        assert_eq!(built["spec"]["template"]["spec"]["subdomain"], "js");
        assert_eq!(built["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
    }
}
