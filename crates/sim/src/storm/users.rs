//! Users: they create, change, finish and delete groups, pods and ReplicaSets at random.
//!
//! They choose from what the server holds at that moment. Must not depend on Muster's internal state.

use http::Method;
use muster_playground::random::Random;
use serde_json::{Value, json};

use super::RunError;
use super::faults::RunProfile;
use super::manifests::{self, GroupPlan, PodPlan, Preemptibility, UnsupportedField};
use super::other_scheduler;
use super::recorder::Recorder;
use super::server_state::{Amounts, GroupKey, Kind, ServerState};
use super::volumes::{CLAIMS, ClaimPlan, PodVolume, VolumeClass};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// More CPUs than any node has.
const NEVER_FITS: i64 = 50;

/// A group that users have created or will create.
#[derive(Clone, Debug)]
struct UserGroup {
    key: GroupKey,
    plan: GroupPlan,
    timeout_seconds: Option<u64>,
    /// The requests of members; a heterogeneous group has several.
    requests: Vec<Amounts>,
    pool: Option<&'static str>,
    controlled: bool,
    members_created: u64,
    preemptibility: Preemptibility,
    /// Each member has a claim of its own.
    own_claims: bool,
    /// The claim that all members share.
    shared_claim: Option<String>,
}

/// The users.
pub(super) struct Users {
    recorder: Recorder,
    random: Random,
    other_scheduler: bool,
    volumes: bool,
    groups: Vec<UserGroup>,
    created: u64,
}

impl Users {
    pub(super) fn new(recorder: Recorder, random: Random, profile: &RunProfile) -> Self {
        let RunProfile { other_scheduler, volumes, .. } = *profile;
        Self { recorder, random, other_scheduler, volumes, groups: Vec::new(), created: 0 }
    }

    /// Performs a random action.
    pub(super) async fn act_randomly(&mut self) -> Result<(), RunError> {
        match self.random.below(100) {
            0..=24 => self.new_group().await,
            25..=39 => self.more_members().await,
            40..=54 => self.single_pods().await,
            55..=64 => self.delete_pod().await,
            65..=70 => self.remove_scheduling_gate().await,
            71..=79 => self.change_minimum().await,
            80..=85 => self.delete_group().await,
            86..=90 => self.recreate_group().await,
            91..=95 => self.scale_set().await,
            _ => self.delete_set().await,
        }
    }

    fn name(&mut self, start: &str) -> String {
        self.created += 1;
        format!("{start}{}", self.created)
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        (!list.is_empty()).then(|| list[self.random.below(list.len() as u64) as usize].clone())
    }

    fn inspect<T>(&self, inspect: impl FnOnce(&ServerState) -> T) -> T {
        let mut ledger = self.recorder.ledger.borrow();
        ledger.catch_up();
        inspect(&ledger.state)
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<(), RunError> {
        let (code, answer) = self.recorder.send(method.clone(), path, Some(body)).await?;
        // Users act on stale state too: the object may be gone or changed.
        if code < 300 || code == 404 || code == 409 {
            return Ok(());
        }
        let message = answer["message"].clone();
        Err(RunError::UserRequest { method, path: path.to_owned(), code, message, body: body.clone() })
    }

    fn requests(&mut self) -> Amounts {
        let gpu = i64::from(self.random.per_mille(150));
        Amounts { cpu: 1 + self.random.below(3) as i64, gpu }
    }

    fn pool(&mut self) -> Option<&'static str> {
        self.random.per_mille(150).then(|| if self.random.per_mille(500) { "a" } else { "b" })
    }

    /// Creates a group, its members, or both, in either order, complete or incomplete.
    async fn new_group(&mut self) -> Result<(), RunError> {
        let kind = [Kind::PodGroup, Kind::PodGroup, Kind::Workload, Kind::Native][self.random.below(4) as usize];
        let name = self.name("g");
        let plan = match (kind, self.random.below(10)) {
            (_, 0..=1) => GroupPlan::Basic,
            (Kind::PodGroup, 2..=4) => {
                GroupPlan::Subsets(vec![("ps".to_owned(), 1), ("worker".to_owned(), 1 + self.random.below(3))])
            }
            _ => GroupPlan::Gang(1 + self.random.below(4)),
        };
        let mixed = self.random.per_mille(250);
        let requests = (0..if mixed { 3 } else { 1 }).map(|_| self.requests()).collect();
        let preemptibility = Preemptibility {
            class: self.random.per_mille(450).then_some("high"),
            // Muster's own basic groups have no disruption mode.
            whole: self.random.per_mille(400) && (kind == Kind::Native || !matches!(plan, GroupPlan::Basic)),
            // The server drops the topology of native groups.
            one_pool: self.random.per_mille(300) && kind != Kind::Native,
        };
        let group = UserGroup {
            preemptibility,
            key: GroupKey {
                kind,
                group: if kind == Kind::Workload { "w".to_owned() } else { String::new() },
                object: name,
                replica: String::new(),
            },
            plan,
            timeout_seconds: self.random.per_mille(300).then(|| 5 + self.random.below(40)),
            requests,
            pool: self.pool(),
            controlled: self.random.per_mille(500),
            members_created: 0,
            own_claims: self.volumes && self.random.per_mille(400),
            shared_claim: self.shared_claim().await?,
        };
        self.groups.push(group);
        let number = self.groups.len() - 1;
        let group_first = self.random.per_mille(700);
        if group_first {
            self.create_group(number).await?;
        }
        if self.random.per_mille(850) {
            self.create_members(number).await?;
        }
        if !group_first && self.random.per_mille(700) {
            self.create_group(number).await?;
        }
        Ok(())
    }

    /// Sometimes creates a claim that many pods can use.
    async fn shared_claim(&mut self) -> Result<Option<String>, RunError> {
        if !self.volumes || self.random.per_mille(750) {
            return Ok(None);
        }
        let name = self.name("shared");
        let plan = ClaimPlan::of(VolumeClass::Network, &mut self.random);
        self.send(Method::POST, CLAIMS, &plan.claim(&name)).await?;
        Ok(Some(name))
    }

    /// The volumes of a new pod of a group; one that controllers create has its own claim made for it.
    async fn volumes_of(&mut self, number: usize) -> Result<Vec<PodVolume>, RunError> {
        let UserGroup { own_claims, shared_claim, controlled, .. } = self.groups[number].clone();
        let mut volumes: Vec<PodVolume> = shared_claim.into_iter().map(PodVolume::Claim).collect();
        if own_claims {
            volumes.push(self.own_volume(controlled).await?);
        }
        Ok(volumes)
    }

    async fn own_volume(&mut self, controlled: bool) -> Result<PodVolume, RunError> {
        let plan = ClaimPlan::random(&mut self.random);
        if controlled {
            return Ok(PodVolume::Ephemeral(plan));
        }
        let name = self.name("claim");
        self.send(Method::POST, CLAIMS, &plan.claim(&name)).await?;
        Ok(PodVolume::Claim(name))
    }

    async fn create_group(&self, number: usize) -> Result<(), RunError> {
        let group = &self.groups[number];
        let object = manifests::group(&group.key, &group.plan, group.timeout_seconds, group.preemptibility);
        self.send(Method::POST, manifests::collection_path(group.key.kind), &object).await
    }

    /// Creates about as many members as the group needs, for one replica of it.
    async fn create_members(&mut self, number: usize) -> Result<(), RunError> {
        let group = self.groups[number].clone();
        let mut key = group.key.clone();
        if key.kind == Kind::Workload && self.random.per_mille(600) {
            key.replica = format!("r{}", self.random.below(3));
        }
        let lots = match &group.plan {
            GroupPlan::Subsets(subsets) => subsets.clone(),
            GroupPlan::Gang(minimum) => vec![(String::new(), *minimum)],
            GroupPlan::Basic => vec![(String::new(), 1 + self.random.below(3))],
        };
        for (subset, minimum) in lots {
            let count = match self.random.below(10) {
                0..=1 => minimum.saturating_sub(1),
                2..=6 => minimum,
                _ => minimum + 1 + self.random.below(2),
            };
            let subset = if subset.is_empty() || self.random.per_mille(970) { subset } else { "unknown".to_owned() };
            self.create_lot(number, &key, &subset, count).await?;
        }
        Ok(())
    }

    async fn create_lot(&mut self, number: usize, key: &GroupKey, subset: &str, count: u64) -> Result<(), RunError> {
        let group = self.groups[number].clone();
        let mut plan = PodPlan {
            scheduler: "muster",
            requests: group.requests[0],
            pool: group.pool,
            gated: self.random.per_mille(60),
            run_seconds: None,
            group: Some((key.clone(), subset.to_owned())),
            volumes: Vec::new(),
            unsupported_field: None,
            priority_class: group.preemptibility.class,
        };
        if group.controlled {
            plan.volumes = self.volumes_of(number).await?;
            let name = self.name("s");
            return self.send(Method::POST, SETS, &plan.replica_set(&name, count)).await;
        }
        for _ in 0..count {
            let created = self.groups[number].members_created;
            self.groups[number].members_created += 1;
            plan.requests = group.requests[created as usize % group.requests.len()];
            plan.gated = self.random.per_mille(60);
            plan.run_seconds = self.random.per_mille(250).then(|| 1 + self.random.below(60));
            plan.unsupported_field = self.random.per_mille(15).then_some(UnsupportedField::Claim);
            plan.volumes = self.volumes_of(number).await?;
            let name = self.name(&format!("{}-p", key.object));
            self.send(Method::POST, PODS, &plan.pod(&name)).await?;
        }
        Ok(())
    }

    async fn more_members(&mut self) -> Result<(), RunError> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let number = self.random.below(self.groups.len() as u64) as usize;
        self.create_members(number).await
    }

    async fn single_pods(&mut self) -> Result<(), RunError> {
        for _ in 0..=self.random.below(3) {
            let other_scheduler = self.other_scheduler && self.random.per_mille(500);
            let mut plan = PodPlan {
                scheduler: if other_scheduler { other_scheduler::NAME } else { "muster" },
                requests: self.requests(),
                pool: self.pool(),
                gated: self.random.per_mille(100),
                run_seconds: self.random.per_mille(400).then(|| 1 + self.random.below(90)),
                group: None,
                volumes: Vec::new(),
                unsupported_field: None,
                priority_class: self.random.per_mille(300).then_some("high"),
            };
            match self.random.below(25) {
                0 => plan.requests.cpu = NEVER_FITS,
                1 => plan.unsupported_field = Some(UnsupportedField::Claim),
                2 => plan.unsupported_field = Some(UnsupportedField::TwoGroups),
                _ => {}
            }
            if self.volumes && !other_scheduler && self.random.per_mille(300) {
                plan.volumes = vec![self.own_volume(false).await?];
            }
            let name = self.name("p");
            self.send(Method::POST, PODS, &plan.pod(&name)).await?;
        }
        Ok(())
    }

    async fn delete_pod(&mut self) -> Result<(), RunError> {
        let names: Vec<String> = self.inspect(|state| state.pods.values().map(|pod| pod.name.clone()).collect());
        let Some(name) = self.one_of(&names) else { return Ok(()) };
        let grace = if self.random.per_mille(300) { 0 } else { 2 };
        self.send(Method::DELETE, &format!("{PODS}/{name}"), &json!({"gracePeriodSeconds": grace})).await
    }

    async fn remove_scheduling_gate(&mut self) -> Result<(), RunError> {
        let gated = |state: &ServerState| {
            let gated = state.pods.values().filter(|pod| pod.gated && !pod.terminating);
            gated.map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        let names = self.inspect(gated);
        let Some(name) = self.one_of(&names) else { return Ok(()) };
        self.send(Method::PATCH, &format!("{PODS}/{name}"), &json!({"spec": {"schedulingGates": []}})).await
    }

    async fn change_minimum(&mut self) -> Result<(), RunError> {
        let changeable: Vec<usize> = (0..self.groups.len())
            .filter(|number| {
                let group = &self.groups[*number];
                group.key.kind != Kind::Workload && !matches!(group.plan, GroupPlan::Basic)
            })
            .collect();
        let Some(number) = self.one_of(&changeable) else { return Ok(()) };
        let up = self.random.per_mille(500);
        let moved = |count: u64| if up { count + 1 } else { (count - 1).max(1) };
        let group = &mut self.groups[number];
        match &mut group.plan {
            GroupPlan::Gang(minimum) => *minimum = moved(*minimum),
            GroupPlan::Subsets(subsets) => {
                for (_, minimum) in subsets {
                    *minimum = moved(*minimum);
                }
            }
            GroupPlan::Basic => {}
        }
        let path = format!("{}/{}", manifests::collection_path(group.key.kind), group.key.object);
        let change = manifests::change(group.key.kind, &group.plan);
        self.send(Method::PATCH, &path, &change).await
    }

    async fn delete_group(&mut self) -> Result<(), RunError> {
        let objects: Vec<(Kind, String)> = self.inspect(|state| state.objects.keys().cloned().collect());
        let Some((kind, name)) = self.one_of(&objects) else { return Ok(()) };
        self.send(Method::DELETE, &format!("{}/{name}", manifests::collection_path(kind)), &json!({})).await
    }

    async fn recreate_group(&mut self) -> Result<(), RunError> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let number = self.random.below(self.groups.len() as u64) as usize;
        self.create_group(number).await
    }

    async fn scale_set(&mut self) -> Result<(), RunError> {
        let sets: Vec<(String, i64)> =
            self.inspect(|state| state.sets.values().map(|set| (set.name.clone(), set.replicas)).collect());
        let Some((name, replicas)) = self.one_of(&sets) else { return Ok(()) };
        let replicas = if self.random.per_mille(500) { replicas + 1 } else { (replicas - 1).max(0) };
        self.send(Method::PATCH, &format!("{SETS}/{name}"), &json!({"spec": {"replicas": replicas}})).await
    }

    async fn delete_set(&mut self) -> Result<(), RunError> {
        let sets: Vec<String> = self.inspect(|state| state.sets.keys().cloned().collect());
        let Some(name) = self.one_of(&sets) else { return Ok(()) };
        self.send(Method::DELETE, &format!("{SETS}/{name}"), &json!({"propagationPolicy": "Background"})).await
    }
}
