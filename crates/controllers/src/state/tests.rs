//! How many reconciles a burst of changes of one JobSet costs, counted, for a set with a thousand gangs.

use std::collections::BTreeSet;

use muster_api::native::NativeVersion;
use muster_api::owners::{GangedOwners, GroupApi};
use serde_json::{Value, json};

use super::*;
use crate::write::Write;

const REPLICAS: usize = 1000;

fn job_set(status: &Value) -> JobSet {
    let job = json!({"name": "w", "replicas": REPLICAS, "template": {
        "metadata": {"annotations": {"muster.dev/gang-mode": "ReplicatedGang"}},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"schedulerName": "muster", "containers": []}}}}});
    serde_json::from_value(json!({
        "metadata": {"name": "js", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {"replicatedJobs": [job]}, "status": status,
    }))
    .unwrap()
}

/// The JobSet and all its objects, as the controllers create them.
struct Cluster {
    state: State,
    groups: Vec<DynamicObject>,
}

impl Cluster {
    fn new() -> Self {
        let ganged = GangedOwners { job_sets: Some(GroupApi::Native), jobs: None, leader_worker_sets: None };
        let version = Some(NativeVersion::V1beta1);
        let names = vec!["muster".to_owned()];
        let mut state = State::new(Settings::new(names, "muster".to_owned(), ganged, version).unwrap());
        let items = state.apply(ClusterEvent::JobSet(Delta::Applied(job_set(&json!({})))));
        let set = ("n".to_owned(), "js".to_owned());
        assert!(items.contains(&WorkItem::JobSet(set.clone())), "{items:?}");
        let mut cluster = Self { state, groups: Vec::new() };
        let mut items = BTreeSet::new();
        for write in cluster.state.reconcile(&WorkItem::JobSet(set.clone())).writes {
            let Write::Create { resource, mut object } = write else { panic!("{write:?}") };
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            items.extend(cluster.show(object.clone()));
            if resource.kind == "PodGroup" {
                cluster.groups.push(object);
            }
        }
        assert_eq!(cluster.groups.len(), REPLICAS);
        let of_set = items.iter().filter(|item| **item == WorkItem::JobSet(set.clone())).count();
        assert_eq!((of_set, items.len()), (1, REPLICAS + 2), "the set, its condition, and each group once");
        for item in items.iter().filter(|item| matches!(item, WorkItem::JobSetGroup(..))) {
            assert_eq!(cluster.state.reconcile(item), Plan::default(), "{item:?}");
        }
        cluster
    }

    /// The items for an event about a Workload or PodGroup.
    fn show(&mut self, object: DynamicObject) -> Vec<WorkItem> {
        let kind = object.types.as_ref().unwrap().kind.clone();
        let number = self.state.managed_kinds().position(|one| one.kind == kind).unwrap();
        self.state.apply(ClusterEvent::Managed(number, Delta::Applied(object)))
    }
}

fn condition() -> WorkItem {
    WorkItem::Condition(OwnerKind::JobSet, ("n".to_owned(), "js".to_owned()))
}

#[test]
fn burst_of_status_changes_costs_one_reconcile() {
    let mut cluster = Cluster::new();
    let mut items = BTreeSet::new();
    for mut group in cluster.groups.clone() {
        group.metadata.resource_version = Some("2".to_owned());
        group.data["status"] = json!({"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]});
        items.extend(cluster.show(group));
    }
    for ready in 0..REPLICAS {
        let status = json!({"replicatedJobsStatus": [{"name": "w", "ready": ready}]});
        items.extend(cluster.state.apply(ClusterEvent::JobSet(Delta::Applied(job_set(&status)))));
    }
    assert_eq!(items, [condition()].into());
}

#[test]
fn changed_group_is_corrected_without_the_others() {
    let mut cluster = Cluster::new();
    let of = |name: &str| WorkItem::JobSetGroup(("n".to_owned(), "js".to_owned()), name.to_owned());
    let mut changed = cluster.groups[7].clone();
    let name = changed.metadata.name.clone().unwrap();
    changed.data["spec"]["schedulingPolicy"]["gang"]["minCount"] = json!(9);
    assert_eq!(cluster.show(changed), [of(&name), condition()]);
    let writes = cluster.state.reconcile(&of(&name)).writes;
    let [Write::Patch { target, body }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((&target.name, &body["spec"]["schedulingPolicy"]["gang"]["minCount"]), (&name, &json!(2)));

    let mut leftover = cluster.groups[7].clone();
    leftover.metadata.name = Some("w-js.pg-w.1000".to_owned());
    assert_eq!(cluster.show(leftover), [of("w-js.pg-w.1000"), condition()]);
    let writes = cluster.state.reconcile(&of("w-js.pg-w.1000")).writes;
    assert!(matches!(&writes[..], [Write::Delete { .. }]), "{writes:?}");

    let gone = cluster.groups[8].clone();
    let name = gone.metadata.name.clone().unwrap();
    let items = cluster.state.apply(ClusterEvent::Managed(1, Delta::Deleted(gone)));
    assert_eq!(items, [of(&name), condition()]);
    let writes = cluster.state.reconcile(&of(&name)).writes;
    let [Write::Create { object, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(object["metadata"]["name"], name);
}

#[test]
fn groups_wait_for_a_workload_that_can_be_used() {
    let mut cluster = Cluster::new();
    let kind = NativeVersion::V1beta1.workloads();
    let mut workload = (**cluster.state.managed(&kind).find("n", "w-js").unwrap()).clone();
    let name = cluster.groups[3].metadata.name.clone().unwrap();
    let item = WorkItem::JobSetGroup(("n".to_owned(), "js".to_owned()), name);
    cluster.state.apply(ClusterEvent::Managed(1, Delta::Deleted(cluster.groups[3].clone())));
    assert_eq!(cluster.state.reconcile(&item).writes.len(), 1);
    workload.metadata.owner_references = None;
    assert!(cluster.show(workload.clone()).contains(&WorkItem::JobSet(("n".to_owned(), "js".to_owned()))));
    assert_eq!(cluster.state.reconcile(&item), Plan::default(), "it belongs to a user");
    cluster.state.apply(ClusterEvent::Managed(0, Delta::Deleted(workload)));
    assert_eq!(cluster.state.reconcile(&item), Plan::default(), "the set creates it first");
}
