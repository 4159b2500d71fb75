//! The condition of owners on the in-process server. There is no scheduler: the tests write the status of groups.

use std::time::Duration;

use axum::http::Method;
use muster_playground_server::faults::{Fault, Faults};
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, job, job_set, leader_worker_set, pass};

const TYPE: &str = "muster.dev/GangScheduled";
const JOB: (&str, &str) = ("batch/v1", "Job");
const JOB_SET: (&str, &str) = ("jobset.x-k8s.io/v1alpha2", "JobSet");
const LEADER_WORKER_SET: (&str, &str) = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");

fn scheduled(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "PodGroupScheduled", "status": status, "reason": reason, "message": message}])
}

/// The only owner of a kind that does not belong to another.
async fn only(cluster: &TestCluster, (version, kind): (&str, &str)) -> Value {
    cluster.list(version, kind).await.into_iter().find(|one| one["metadata"]["ownerReferences"].is_null()).unwrap()
}

/// The condition of the only owner of a kind: status, reason and message.
async fn shown(cluster: &TestCluster, kind: (&str, &str)) -> Option<(String, String, String)> {
    let owner = only(cluster, kind).await;
    let conditions = owner["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == TYPE)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// The reasons of events about a kind, in the order of their times.
async fn events(cluster: &TestCluster, kind: &str) -> Vec<String> {
    let events = cluster.list("events.k8s.io/v1", "Event").await;
    let ours = |one: &&Value| one["regarding"]["kind"] == *kind && one["reportingController"] == "muster-controllers";
    let mut found: Vec<_> = events.iter().filter(ours).collect();
    found.sort_by_key(|one| one["eventTime"].to_string());
    found.iter().map(|one| one["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

fn triple(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

#[tokio::test(start_paused = true)]
async fn job_says_why_it_waits_until_it_has_started() {
    let faults = Faults::none();
    let mut cluster = TestCluster::new(faults.clone(), None).await;
    cluster.create(&job("j")).await;
    pass(30).await;
    assert_eq!(shown(&cluster, JOB).await, None, "nothing was reported yet");
    let group = ("muster.dev/v1alpha1", "PodGroup", "job-j");
    cluster.set_conditions(group, &scheduled("False", "Unschedulable", "There is no room.")).await;
    pass(5).await;
    assert_eq!(shown(&cluster, JOB).await, Some(triple("False", "Unschedulable", "There is no room.")));
    cluster.set_conditions(group, &scheduled("False", "Unschedulable", "There is some room.")).await;
    pass(5).await;
    assert_eq!(shown(&cluster, JOB).await, Some(triple("False", "Unschedulable", "There is some room.")));
    assert_eq!(events(&cluster, "Job").await, ["Unschedulable"], "one for the reason");
    // A write of what is there would not change the object.
    faults.schedule(Method::PATCH, "/apis/batch/v1/namespaces/default/jobs/j/status", Fault::Conflict);
    cluster.restart();
    pass(60).await;
    assert_eq!(faults.pending(), 1, "another process sends nothing");
    cluster.set_conditions(group, &scheduled("True", "Scheduled", "")).await;
    pass(5).await;
    assert_eq!(shown(&cluster, JOB).await, Some(triple("True", "Scheduled", "All gangs are scheduled.")));
    assert_eq!(events(&cluster, "Job").await, ["Unschedulable", "Scheduled"]);
}

#[tokio::test(start_paused = true)]
async fn owner_that_starts_at_once_is_not_written() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    cluster.create(&job("j")).await;
    pass(5).await;
    let group = ("muster.dev/v1alpha1", "PodGroup", "job-j");
    cluster.set_conditions(group, &scheduled("True", "Scheduled", "")).await;
    pass(60).await;
    assert_eq!(shown(&cluster, JOB).await, None);
    assert!(events(&cluster, "Job").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn conditions_of_others_stay_and_one_that_is_removed_again_and_again_is_written_less_often() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    cluster.create(&job_set("s", "Gang", "")).await;
    pass(5).await;
    let theirs = json!({"type": "Theirs", "status": "True", "reason": "Because", "message": "m",
        "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let set = ("jobset.x-k8s.io/v1alpha2", "JobSet", "s");
    cluster.set_conditions(set, &json!([theirs])).await;
    let no_room = scheduled("False", "Unschedulable", "There is no room.");
    let groups = json!([{"name": "pg-s", "total": 4, "conditions": no_room}]);
    let status = json!({"instances": {"total": 1, "scheduled": 0}, "podGroups": groups});
    cluster.set_status(("muster.dev/v1alpha1", "Workload", "w-s"), &status).await;
    pass(5).await;
    assert_eq!(shown(&cluster, JOB_SET).await, Some(triple("False", "Unschedulable", "There is no room.")));
    let conditions = || async { only(&cluster, JOB_SET).await["status"]["conditions"].clone() };
    assert!(conditions().await.as_array().unwrap().contains(&theirs), "{}", conditions().await);
    let mut written = 0;
    for _ in 0..600 {
        if shown(&cluster, JOB_SET).await.is_some() {
            written += 1;
            cluster.set_conditions(set, &json!([theirs])).await;
        }
        pass(1).await;
    }
    assert!((10..60).contains(&written), "{written} times in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn refused_status_is_tried_rarely_and_stops_nothing_else() {
    let faults = Faults::none();
    let cluster = TestCluster::new(faults.clone(), None).await;
    cluster.create(&job("j")).await;
    pass(5).await;
    for _ in 0..20 {
        faults.schedule(Method::PATCH, "/apis/batch/v1/namespaces/default/jobs/j/status", Fault::Forbidden);
    }
    let group = ("muster.dev/v1alpha1", "PodGroup", "job-j");
    for number in 0..180 {
        cluster.set_conditions(group, &scheduled("False", "Unschedulable", &format!("{number} nodes."))).await;
        pass(1).await;
    }
    let refused = 20 - faults.pending();
    assert!((2..=5).contains(&refused), "{refused} requests in three minutes");
    assert!(events(&cluster, "Job").await.is_empty(), "an event would be repeated with every change");
    while faults.pending() > 0 {
        pass(60).await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        shown(&cluster, JOB).await,
        Some(triple("False", "Unschedulable", "179 nodes.")),
        "it is allowed at last"
    );
}

#[tokio::test(start_paused = true)]
async fn condition_that_is_invalid_is_not_sent_again_before_the_object_changes() {
    let faults = Faults::none();
    let cluster = TestCluster::new(faults.clone(), None).await;
    cluster.create(&job("j")).await;
    pass(5).await;
    for _ in 0..3 {
        faults.schedule(Method::PATCH, "/apis/batch/v1/namespaces/default/jobs/j/status", Fault::Invalid);
    }
    let group = ("muster.dev/v1alpha1", "PodGroup", "job-j");
    for number in 0..180 {
        cluster.set_conditions(group, &scheduled("False", "Unschedulable", &format!("{number} nodes."))).await;
        pass(1).await;
    }
    assert_eq!(faults.pending(), 2, "one request in three minutes");
    assert!(events(&cluster, "Job").await.is_empty(), "an event would be repeated with every change");
    for left in [1, 0] {
        cluster.annotate(&job("j"), "changed", &left.to_string()).await;
        pass(120).await;
        assert_eq!(faults.pending(), left, "one request for each change of the Job");
    }
    cluster.annotate(&job("j"), "changed", "at last").await;
    pass(5).await;
    assert_eq!(shown(&cluster, JOB).await, Some(triple("False", "Unschedulable", "179 nodes.")));
}

#[tokio::test(start_paused = true)]
async fn replicas_of_a_leader_worker_set_are_counted() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    cluster.create(&leader_worker_set("l")).await;
    pass(5).await;
    let groups = cluster.list("muster.dev/v1alpha1", "PodGroup").await;
    let names: Vec<String> = groups.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let set = |index: usize, conditions: Value| {
        let name = names.iter().find(|name| name.starts_with(&format!("l-{index}-"))).unwrap().clone();
        let cluster = &cluster;
        async move { cluster.set_conditions(("muster.dev/v1alpha1", "PodGroup", &name), &conditions).await }
    };
    set(0, scheduled("True", "Scheduled", "")).await;
    set(1, scheduled("False", "NeverFits", "No node is so large.")).await;
    pass(5).await;
    let message = "1 of 2 replicas are scheduled; l-1: No node is so large.";
    assert_eq!(shown(&cluster, LEADER_WORKER_SET).await, Some(triple("False", "NeverFits", message)));
    set(1, scheduled("True", "Scheduled", "")).await;
    pass(5).await;
    assert_eq!(shown(&cluster, LEADER_WORKER_SET).await, Some(triple("True", "Scheduled", "All gangs are scheduled.")));
}

#[tokio::test(start_paused = true)]
async fn sets_that_contradict_themselves_say_so() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    let mut set = leader_worker_set("l");
    let template = &mut set["spec"]["leaderWorkerTemplate"];
    template["leaderTemplate"] = template["workerTemplate"].clone();
    template["leaderTemplate"]["metadata"] = json!({"annotations": {"muster.dev/gang-mode": "Off"}});
    cluster.create(&set).await;
    cluster.create(&job_set("s", "Gang", "Gang")).await;
    let mut other = job("j");
    other["spec"]["template"]["spec"]["schedulerName"] = json!("other");
    cluster.create(&other).await;
    pass(10).await;
    for (kind, field) in [
        (LEADER_WORKER_SET, "spec.leaderWorkerTemplate.leaderTemplate.metadata.annotations[muster.dev/gang-mode]"),
        (JOB_SET, "spec.replicatedJobs[0].template.metadata.annotations[muster.dev/gang-mode]"),
        (JOB, "spec.template.spec.schedulerName"),
    ] {
        let (status, reason, message) = shown(&cluster, kind).await.unwrap_or_else(|| panic!("{kind:?}"));
        assert_eq!((&*status, &*reason), ("False", "InvalidGangMode"));
        assert!(message.contains(field), "{message}");
        assert_eq!(events(&cluster, kind.1).await, ["InvalidGangMode"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn workload_of_a_user_that_no_pod_names_is_reported() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    let spec = json!({"controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": "s"},
        "podGroups": [{"name": "mine", "policy": {"gang": {"minCount": 5}}}]});
    let workload = |name: &str| json!({"apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name}, "spec": spec});
    cluster.create(&workload("mine")).await;
    cluster.create(&job_set("s", "Gang", "")).await;
    pass(10).await;
    let (_, reason, message) = shown(&cluster, JOB_SET).await.unwrap();
    assert_eq!(reason, "UserWorkloadUnused");
    assert!(message.contains("Workload mine") && message.contains("call it so, with groups pg-s"), "{message}");
    cluster.delete(&workload("mine")).await;
    pass(60).await;
    assert_eq!(shown(&cluster, JOB_SET).await, None, "nothing is known of its new group yet");
}

#[tokio::test(start_paused = true)]
async fn members_that_are_never_created_are_named() {
    let cluster = TestCluster::new(Faults::none(), None).await;
    let spec = json!({"controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": "s"},
        "podGroups": [{"name": "pg-s", "policy": {"gang": {"minCount": 5}}}]});
    let workload =
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w-s"}, "spec": spec});
    cluster.create(&workload).await;
    cluster.create(&job_set("s", "Gang", "")).await;
    cluster.create(&job("j")).await;
    pass(10).await;
    assert_eq!(shown(&cluster, JOB_SET).await, None);
    let waits = scheduled("False", "WaitingForMembers", "4 of 5 are there.");
    let status = json!({"instances": {"total": 1}, "podGroups": [{"name": "pg-s", "conditions": waits}]});
    cluster.set_status(("muster.dev/v1alpha1", "Workload", "w-s"), &status).await;
    pass(5).await;
    let message = "4 of 5 members, and the set creates no more: the set has 4 pods for group pg-s. Lower its minCount.";
    assert_eq!(shown(&cluster, JOB_SET).await, Some(triple("False", "MembersNeverCreated", message)));
}
