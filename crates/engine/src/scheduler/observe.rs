//! Applies observations: updates the state of the cluster and reviews the affected entities.
//!
//! The API is authoritative, with two exceptions for late events: a pod that is known to be bound does not become
//! unbound, and a finished pod does not come back.

use std::sync::Arc;

use super::Engine;
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::{Awaited, Counted, Pod, PodState, StartRole};
use crate::cluster::storage::{StorageDemand, Unusable};
use crate::model::class::ClassSpec;
use crate::model::group::{GroupKey, GroupSpec, Policy};
use crate::model::ids::{ClassId, GroupId, LabelSetId, NodeId, PodId};
use crate::model::labels::Labels;
use crate::model::node::NodeSpec;
use crate::model::pod::{Phase, PodRefusal, PodSpec, RefusalKind};
use crate::model::resources::{AMOUNT_MAX, NAMES_PER_POD_MAX, POD_NAMES_MAX, RESOURCE_NAMES_MAX};
use crate::model::subject::Subject;
use crate::model::topology::GroupTopology;
use crate::model::tree::{GroupTree, TreeNode};
use crate::observation::Observation;
use crate::queue::{Entity, QueueState};
use crate::validate;
use crate::validation_error::ValidationError;

/// Where pods request resources.
const REQUESTS: &str = "spec.containers[*].resources.requests";

impl Engine {
    pub(super) fn apply_observation(&mut self, observation: Observation) -> Result<(), ValidationError> {
        let verdict = self.apply(observation);
        self.reclassify_moved_pods();
        self.accept_refused_requests();
        verdict
    }

    /// There is room for resource names again: pods that were refused for lack of it are accepted.
    fn accept_refused_requests(&mut self) {
        if !self.cluster.resources.take_forgotten() {
            return;
        }
        let refused: Vec<PodSpec> = self.refused_requests.values().cloned().collect();
        for spec in refused {
            if self.check_requests(&spec).is_ok() {
                self.pod_seen(&spec).expect("its requests were what was refused");
            }
        }
    }

    fn apply(&mut self, observation: Observation) -> Result<(), ValidationError> {
        match observation {
            Observation::NodeSeen(spec) => self.node_seen(&spec),
            Observation::NodeGone { name } => {
                self.cluster.remove_node(&name);
                Ok(())
            }
            Observation::PodSeen(spec) => self.pod_seen(&spec),
            Observation::PodGone { uid } => {
                self.refused_requests.remove(&uid);
                self.pod_gone(&uid);
                Ok(())
            }
            Observation::GroupSeen(spec) => self.group_or_part_seen(spec),
            Observation::GroupGone { key } => {
                self.group_or_part_gone(&key);
                Ok(())
            }
            Observation::BudgetSeen(spec) => {
                self.cluster.set_budget(&spec);
                Ok(())
            }
            Observation::BudgetGone { namespace, name } => {
                self.cluster.remove_budget(namespace, name);
                Ok(())
            }
            Observation::NamespaceSeen { name, labels } => {
                self.namespace_seen(&name, Some(labels));
                Ok(())
            }
            Observation::NamespaceGone { name } => {
                self.namespace_seen(&name, None);
                Ok(())
            }
            Observation::Storage(observation) => {
                validate::storage(&observation)?;
                self.storage_seen(*observation);
                Ok(())
            }
            Observation::StorageWriteDone { claim, outcome } => {
                self.storage_write_done(&claim, &outcome);
                Ok(())
            }
            Observation::BindDone { pod, node, outcome } => {
                self.bind_done(&pod, &node, outcome);
                Ok(())
            }
            Observation::EvictDone { pod, outcome } => {
                self.evict_done(&pod, &outcome);
                Ok(())
            }
            Observation::RollBackDone { pod, outcome } => {
                self.roll_back_done(&pod, &outcome);
                Ok(())
            }
        }
    }

    fn node_seen(&mut self, spec: &NodeSpec) -> Result<(), ValidationError> {
        validate::node(spec)?;
        let object = format!("Node {}", spec.name);
        self.check_resource_names(&object, "allocatable", spec.allocatable.keys(), RESOURCE_NAMES_MAX)?;
        self.cluster.set_node(spec);
        Ok(())
    }

    fn check_resource_names<'a>(
        &self,
        object: &str,
        field: &str,
        names: impl Iterator<Item = &'a String> + Clone,
        limit: usize,
    ) -> Result<(), ValidationError> {
        if self.cluster.resources.has_room_for(names.clone().map(String::as_str), limit) {
            return Ok(());
        }
        let new = names.map(String::as_str).filter(|name| self.cluster.resources.get(name).is_none());
        let reason = format!("more than {limit} different resource names in one cluster");
        Err(ValidationError::new(object, field, new.collect::<Vec<&str>>().join(", "), reason))
    }

    fn has_profile(&self, spec: &PodSpec) -> Result<(), ValidationError> {
        let (profile, known) = (spec.class.profile, self.config.profiles.len());
        if usize::from(profile) < known {
            return Ok(());
        }
        let reason = format!("there are {known} profiles, and numbers begin at 0");
        Err(ValidationError::new(format!("Pod {}", spec.id), "class.profile", profile, reason))
    }

    fn pod_seen(&mut self, spec: &PodSpec) -> Result<(), ValidationError> {
        self.refused_requests.remove(&spec.id.uid);
        if let Err(error) = validate::pod(spec).and_then(|()| self.has_profile(spec)) {
            // A running pod uses capacity even if it is invalid: the part of it that can be counted is.
            if spec.node.is_some() && !spec.id.uid.is_empty() {
                let class = Arc::new(self.countable(&spec.class));
                self.apply_pod(&PodSpec { class, membership: None, ..spec.clone() });
            }
            return Err(error);
        }
        if let Err(error) = self.check_requests(spec) {
            let class = Arc::new(self.countable(&spec.class));
            let (field, value, reason) = (REQUESTS.to_owned(), error.value.clone(), error.reason.clone());
            let refusal = PodRefusal { kind: RefusalKind::Invalid, field, value, reason };
            self.refused_requests.insert(spec.id.uid.clone(), spec.clone());
            self.apply_pod(&PodSpec { class, refused: Some(Arc::new(refusal)), ..spec.clone() });
            return Err(error);
        }
        self.apply_pod(spec).map_or(Ok(()), Err)
    }

    /// Whether there is room for the names of all resources that a pod requests.
    fn check_requests(&self, spec: &PodSpec) -> Result<(), ValidationError> {
        let (object, requests) = (format!("Pod {}", spec.id), &spec.class.requests);
        if requests.len() > NAMES_PER_POD_MAX {
            let reason = format!("more than {NAMES_PER_POD_MAX} different resources in one pod");
            return Err(ValidationError::new(object, "requests", requests.len(), reason));
        }
        self.check_resource_names(&object, "requests", requests.keys(), POD_NAMES_MAX)
    }

    /// The part of an invalid class that can be counted on a node.
    fn countable(&self, class: &ClassSpec) -> ClassSpec {
        let known = |name: &str| !name.is_empty() && self.cluster.resources.get(name).is_some();
        let amount = |amount: i64| amount.clamp(0, AMOUNT_MAX);
        let requests = class.requests.iter().filter(|(name, _)| known(name));
        ClassSpec {
            requests: requests.map(|(name, asked)| (name.clone(), amount(*asked))).collect(),
            scoring_cpu_milli: amount(class.scoring_cpu_milli),
            scoring_memory_bytes: amount(class.scoring_memory_bytes),
            host_ports: class.host_ports.clone(),
            ..ClassSpec::default()
        }
    }

    fn apply_pod(&mut self, spec: &PodSpec) -> Option<ValidationError> {
        let known = self.cluster.pod_id(&spec.id.uid);
        let was_marked = known.is_some_and(|id| self.cluster.pod(id).marked);
        let (id, error) = match known {
            Some(id) => (id, self.check_immutable_fields(id, spec)),
            None => (self.new_pod(spec), None),
        };
        self.update_claims(id, spec);
        self.update_class(id, spec);
        let was_terminating = self.cluster.pod(id).terminating;
        self.update_flags(id, spec);
        self.update_state(id, spec, was_terminating);
        self.update_nomination(id, spec);
        self.review_after_change(id);
        if spec.marked {
            if !was_marked {
                self.schedule_unmark(id);
            }
            if let Some(group) = self.cluster.pod(id).group {
                self.resume_unit_eviction(group);
            }
        }
        error
    }

    pub(super) fn new_pod(&mut self, spec: &PodSpec) -> PodId {
        let home = spec.membership.as_ref().map(|membership| self.home_of(membership));
        let group = home.as_ref().map(|(group, _)| self.cluster.ensure_group(group));
        let subset = home.map_or_else(|| "".into(), |(_, subset)| Box::from(&*subset));
        let label_set = self.cluster.acquire_labels(&spec.id.namespace, &spec.labels);
        let class = self.acquire_class(&spec.class, label_set, None);
        self.cluster.add_pod(Pod {
            id: spec.id.clone(),
            class,
            priority: spec.priority,
            group,
            subset,
            attempt: spec.membership.as_ref().and_then(|membership| membership.attempt.clone()),
            ours: spec.ours,
            gated: spec.gated,
            refused: spec.refused.clone(),
            terminating: spec.terminating,
            rolling_back: false,
            is_static: spec.is_static,
            labels: spec.labels.clone(),
            label_set,
            started_ms: spec.started_ms,
            preemption_cost: spec.preemption_cost,
            eviction: None,
            without_place: false,
            marked: spec.marked,
            not_preempted_before: 0,
            never_preempts: spec.never_preempts,
            grace_period_ends_ms: spec.grace_period_ends_ms,
            controlled: spec.controlled,
            is_running: false,
            ran: false,
            start_role: StartRole::None,
            start: None,
            stateful_set: spec.stateful_set.clone(),
            rank: spec.rank,
            lifetime: spec.lifetime,
            created_ms: spec.created_ms,
            schedulable_since: (!spec.gated && spec.refused.is_none()).then_some(spec.created_ms),
            state: PodState::Waiting,
            nominated: None,
            shows_nomination: false,
            awaited_nomination: Awaited::default(),
            bind: None,
            counted: Counted::Not,
            claims: Arc::default(),
            claim_ids: Vec::new(),
            unusable: None,
            volume_plan: None,
            volume_binding: None,
            counted_live: false,
            counted_taking: false,
        })
    }

    /// Refuses changes of fields that are fixed when a pod is first seen; the rest of the observation is applied.
    fn check_immutable_fields(&self, id: PodId, spec: &PodSpec) -> Option<ValidationError> {
        let pod = self.cluster.pod(id);
        let object = || format!("Pod {}", pod.id);
        let group_was = pod.group.map(|group| self.cluster.group(group).key.clone());
        let home = spec.membership.as_ref().map(|membership| self.home_of(membership));
        let group_is = home.as_ref().map(|(group, _)| group.clone());
        if group_was != group_is {
            let shown = group_is.map_or_else(|| "none".to_owned(), |key| key.to_string());
            return Some(ValidationError::new(
                object(),
                "membership.group",
                shown,
                "a pod's group is fixed when it is first seen",
            ));
        }
        let subset = home.as_ref().map_or("", |(_, subset)| subset);
        if *pod.subset != *subset {
            return Some(ValidationError::new(
                object(),
                "membership.subset",
                subset,
                "a pod's subset is fixed when it is first seen",
            ));
        }
        let attempt = spec.membership.as_ref().and_then(|membership| membership.attempt.as_ref());
        if pod.attempt.as_ref() != attempt {
            return Some(ValidationError::new(
                object(),
                "membership.attempt",
                format!("{attempt:?}"),
                "a pod's attempt is fixed when it is first seen",
            ));
        }
        if pod.priority != spec.priority {
            return Some(ValidationError::new(
                object(),
                "priority",
                spec.priority,
                "a pod's priority is fixed when it is first seen",
            ));
        }
        None
    }

    /// Updates the claims that a pod uses, and the classes of the pods that it shares them with.
    fn update_claims(&mut self, id: PodId, spec: &PodSpec) {
        if spec.claims.is_empty() && self.cluster.pod(id).claim_ids.is_empty() {
            return;
        }
        let finished = matches!(spec.phase, Phase::Succeeded | Phase::Failed | Phase::Rejected);
        let claims = if finished { Arc::default() } else { spec.claims.clone() };
        for pod in self.cluster.set_claims(id, &claims) {
            self.refresh_demand(pod);
        }
    }

    /// Updates the class of a pod to what its claims require now.
    pub(super) fn refresh_demand(&mut self, id: PodId) {
        let Some(pod) = self.cluster.pod_if_any(id) else { return };
        let spec = self.cluster.class(pod.class).spec.clone();
        if self.replace_class(id, &spec) {
            self.review_after_change(id);
        }
    }

    /// Updates why the claims of a pod cannot be used. Returns whether that has changed.
    fn update_usability(&mut self, id: PodId, unusable: Option<Unusable>) -> bool {
        let (pod, now) = (self.cluster.pod(id), self.now);
        if pod.unusable == unusable {
            return false;
        }
        self.cluster.change_pod(id, |pod| {
            pod.unusable = unusable;
            if pod.refusal().is_none() && !pod.gated {
                pod.schedulable_since.get_or_insert(now.max(pod.created_ms));
            }
        });
        true
    }

    /// The class of a pod with these labels. Reclassifies other pods if its terms bring a new selector.
    fn acquire_class(
        &mut self,
        spec: &Arc<ClassSpec>,
        labels: LabelSetId,
        storage: Option<Arc<StorageDemand>>,
    ) -> ClassId {
        let class = self.cluster.acquire_class_with(spec, labels, storage);
        self.reclassify_moved_pods();
        class
    }

    /// Updates the classes of pods that other selectors match now, or that do not differ from others any more.
    fn reclassify_moved_pods(&mut self) {
        for id in self.cluster.take_moved_pods() {
            let old = self.cluster.pod(id).class;
            self.remove_from_queue(Entity::Pod(id));
            self.cluster.reclassify(id);
            self.forget_class(old);
            if let Some(group) = self.cluster.pod(id).group {
                self.unpark(group);
            }
            self.review_after_change(id);
        }
    }

    fn namespace_seen(&mut self, name: &str, labels: Option<Labels>) {
        self.cluster.set_namespace(name, labels);
        self.reclassify_moved_pods();
    }

    fn update_class(&mut self, id: PodId, spec: &PodSpec) {
        if self.cluster.pod(id).labels != spec.labels {
            self.cluster.set_labels(id, &spec.labels);
        }
        self.replace_class(id, &spec.class);
    }

    /// Gives a pod the class of this spec and of what its claims require. Returns whether it was another one, or
    /// whether the claims can be used is another answer.
    fn replace_class(&mut self, id: PodId, spec: &Arc<ClassSpec>) -> bool {
        let (storage, unusable) = self.cluster.demand_of(id);
        let is_other = self.assign_class(id, spec, storage);
        self.update_usability(id, unusable) || is_other
    }

    fn assign_class(&mut self, id: PodId, spec: &Arc<ClassSpec>, storage: Option<Arc<StorageDemand>>) -> bool {
        let new = self.acquire_class(spec, self.cluster.pod(id).label_set, storage);
        let old = self.cluster.pod(id).class;
        if new == old {
            self.cluster.release_class(new);
            return false;
        }
        let entity = Entity::Pod(id);
        // A single pod that is parked under the old shape must leave it first.
        self.remove_from_queue(entity);
        self.cluster.set_class(id, new);
        self.forget_class(old);
        if let Some(group) = self.cluster.pod(id).group {
            self.unpark(group);
        }
        true
    }

    fn update_flags(&mut self, id: PodId, spec: &PodSpec) {
        let ran = spec.phase == Phase::Running;
        let pod = self.cluster.pod_mut(id);
        pod.started_ms = spec.started_ms;
        pod.preemption_cost = spec.preemption_cost;
        pod.lifetime = spec.lifetime;
        pod.is_static = spec.is_static;
        pod.never_preempts = spec.never_preempts;
        pod.grace_period_ends_ms = spec.grace_period_ends_ms;
        pod.marked = spec.marked;
        pod.is_running = ran;
        pod.start.clone_from(&spec.start);
        let same = pod.gated == spec.gated
            && pod.refused == spec.refused
            && pod.ours == spec.ours
            && pod.controlled == spec.controlled
            && (pod.terminating || !spec.terminating)
            && (pod.ran || !ran);
        if same {
            // A parked group is not retried if nothing relevant changed.
            return;
        }
        let now = self.now;
        self.cluster.change_pod(id, |pod| {
            if !spec.gated && spec.refused.is_none() {
                pod.schedulable_since.get_or_insert(now.max(pod.created_ms));
            }
            pod.gated = spec.gated;
            pod.refused.clone_from(&spec.refused);
            pod.ours = spec.ours;
            pod.controlled = spec.controlled;
            pod.terminating |= spec.terminating;
            pod.ran |= ran;
        });
    }

    fn update_state(&mut self, id: PodId, spec: &PodSpec, was_terminating: bool) {
        let pod = self.cluster.pod(id);
        let (old, ran, group, role) = (pod.state, pod.ran, pod.group, pod.start_role);
        if matches!(old, PodState::Finished { .. }) {
            return;
        }
        let new = match (spec.phase, &spec.node) {
            (Phase::Succeeded, _) => PodState::Finished { succeeded: true },
            (Phase::Failed | Phase::Rejected, _) => PodState::Finished { succeeded: false },
            (_, Some(name)) => PodState::Bound(self.cluster.node_for_pod(name)),
            (_, None) => old,
        };
        if matches!(new, PodState::Bound(_) | PodState::Finished { .. }) {
            self.cluster.pod_mut(id).bind = None;
            self.end_volume_binding(id);
            self.reports.forget(Entity::Pod(id));
        } else if self.cluster.pod(id).terminating && self.cluster.pod(id).volume_binding.is_some() {
            self.give_up_place(id);
            return;
        }
        self.cluster.set_state(id, new);
        match (old, new) {
            // A founder whose bind was given up, and which is bound after all, may be left of a start that has ended.
            (PodState::Waiting, PodState::Bound(_)) if role != StartRole::Tentative => self.adopt(id),
            (PodState::Waiting | PodState::Assumed(_), PodState::Bound(_)) => self.on_member_bound(id),
            _ => {}
        }
        if ran && let Some(group) = group {
            self.limit_deadline(group, id);
        }
        // A pod that was terminating before was lost then, not refused.
        let refused = spec.phase == Phase::Rejected && !ran && !was_terminating;
        if let (true, Some(_), Some(group)) = (refused, old.node(), group) {
            self.rejected_by_kubelet(group, role);
        }
    }

    /// A kubelet that rejects a founder before it ran is a late bind failure: the start is open again. Rejecting a
    /// member that joined later does not reopen it.
    fn rejected_by_kubelet(&mut self, id: GroupId, role: StartRole) {
        let gang_started = self.cluster.group(id).lifecycle.reached().iter().any(|minimum| *minimum > 0);
        if gang_started && role == StartRole::Founder {
            self.reopen_start(id);
        }
    }

    fn update_nomination(&mut self, id: PodId, spec: &PodSpec) {
        let waiting = self.cluster.pod(id).state == PodState::Waiting && !spec.terminating;
        self.cluster.pod_mut(id).shows_nomination |= spec.nominated.is_some();
        // The awaited update may arrive while a bind is in flight.
        let is_external = self.is_external_nomination(id, spec);
        if waiting && !is_external {
            return;
        }
        let named = spec.nominated.as_deref().filter(|_| waiting);
        let node = named.map(|name| self.cluster.node_for_pod(name));
        let new = node.is_some() && node != self.cluster.pod(id).nominated;
        self.set_nomination(id, node);
        if !new || !self.cluster.pod(id).ours {
            return;
        }
        // Without a plan the nomination is cleared, so that no capacity is held for nothing.
        let pod = self.cluster.pod(id);
        match pod.group {
            _ if pod.gated || pod.refusal().is_some() || pod.counted == Counted::Excluded => self.clear_nomination(id),
            Some(group) => self.queue.activate_parked(Entity::Group(group), self.now),
            None => self.queue.activate_parked(Entity::Pod(id), self.now),
        }
    }

    /// Whether the nomination in the API was set by another component. An own decision is not reverted by an older
    /// state.
    fn is_external_nomination(&mut self, id: PodId, spec: &PodSpec) -> bool {
        let awaited = &mut self.cluster.pod_mut(id).awaited_nomination;
        let has_arrived = match awaited {
            Awaited::Nothing => return true,
            Awaited::Cleared => spec.nominated.is_none(),
            Awaited::Node(node) => spec.nominated.as_deref() == Some(&**node),
        };
        if has_arrived {
            *awaited = Awaited::Nothing;
        }
        false
    }

    /// Sets or clears a nomination; activates entities that the old one blocked.
    pub(super) fn set_nomination(&mut self, id: PodId, node: Option<NodeId>) {
        self.cluster.set_nominated(id, node);
        self.handle_events();
    }

    fn pod_gone(&mut self, uid: &str) {
        let Some(id) = self.cluster.pod_id(uid) else { return };
        let entity = Entity::Pod(id);
        self.remove_from_queue(entity);
        self.reports.forget(entity);
        self.evictions_to_retry.remove(&id);
        self.record_gone_before_outcome(id);
        let node = self.cluster.pod(id).state.node();
        self.end_volume_binding(id);
        let others = self.cluster.left_alone_without(id);
        let pod = self.cluster.remove_pod(id);
        for other in others {
            self.refresh_demand(other);
        }
        if pod.ours && node.is_none() {
            self.cancel_evictions_for(&Subject::Pod(pod.id.clone()));
        }
        if let Some(group) = pod.group {
            self.review_group(group);
        }
        self.forget_class(pod.class);
    }

    pub(super) fn group_seen(&mut self, spec: GroupSpec) -> Result<(), ValidationError> {
        validate::group(&spec)?;
        self.check_later_pods(&spec)?;
        let spec = self.in_topology_levels(spec);
        let id = self.cluster.ensure_group(&spec.key);
        let group = self.cluster.group_mut(id);
        if group.definition.current() == Some(&spec) {
            return Ok(());
        }
        let former = std::mem::replace(&mut group.owner, spec.owner.clone());
        if former.is_some() && spec.owner.is_some() && former != spec.owner {
            group.lifecycle.apply(Cause::Replaced);
            group.preempted_by = None;
            self.reports.forget(Entity::Group(id));
        }
        let group = self.cluster.group_mut(id);
        let (first, known) = (!group.definition.was_seen(), group.definition.last());
        let replaced = !first && known.is_some_and(|known| known.uid != spec.uid);
        if first {
            group.lifecycle.apply(Cause::Recorded(spec.recorded.clone()));
        }
        let mode = self.cluster.group(id).definition.last().map(|spec| spec.disruption_mode);
        let other_mode = mode != Some(spec.disruption_mode);
        let family = self.family_of(id);
        self.cluster.set_group(id, spec);
        if replaced {
            self.keep_members_of_replaced_object(id);
        } else if first {
            self.adopt_members(id);
        }
        self.review_group(id);
        if let Some(former) = family.filter(|former| self.family_of(id).as_ref() != Some(former)) {
            self.review_kept_room(&former);
        }
        if first || other_mode {
            self.resume_unit_eviction(id);
        }
        Ok(())
    }

    /// The same group with its constraint on the tree of the declared levels. Without a constraint ranks follow that
    /// tree.
    fn in_topology_levels(&self, spec: GroupSpec) -> GroupSpec {
        let levels = &self.config.topology_levels;
        let topology = match spec.topology.as_deref() {
            Some(topology) => Some(topology.in_levels(levels)),
            None => GroupTopology::without_constraint(levels),
        };
        let policy = match &spec.policy {
            Policy::Tree(tree) => {
                let mut nodes: Vec<TreeNode> = tree.nodes().to_vec();
                for node in &mut nodes {
                    node.topology = node.topology.take().map(|topology| Arc::new(topology.in_levels(levels)));
                }
                Policy::Tree(Arc::new(GroupTree::from(nodes)))
            }
            policy => policy.clone(),
        };
        GroupSpec { topology: topology.map(Arc::new), policy, ..spec }
    }

    /// Refuses later pods of an unknown profile, or with more resources than there is room for.
    fn check_later_pods(&self, spec: &GroupSpec) -> Result<(), ValidationError> {
        let object = || format!("group {}", spec.key);
        let known = self.config.profiles.len();
        if let Some(part) = spec.later.iter().flatten().find(|part| usize::from(part.class.profile) >= known) {
            let reason = format!("there are {known} profiles, and numbers begin at 0");
            return Err(ValidationError::new(object(), "later.class.profile", part.class.profile, reason));
        }
        if !self.knows_later_resources(&spec.later) {
            let reason = "too many different resource names";
            return Err(ValidationError::new(object(), "later.class.requests", spec.later.len(), reason));
        }
        Ok(())
    }

    pub(super) fn group_gone(&mut self, key: &GroupKey) {
        let Some(id) = self.cluster.group_id(key) else { return };
        self.cluster.group_mut(id).withdraw_definition();
        self.review_group(id);
    }

    /// Reviews the entity of a pod that has changed.
    pub(super) fn review_after_change(&mut self, id: PodId) {
        self.review_refusal(id);
        match self.cluster.pod(id).group {
            Some(group) => self.review_group(group),
            None => self.review_pod(id),
        }
    }

    /// Removes an entity from the queue. If it was the first of its shape, the next one is activated.
    pub(super) fn remove_from_queue(&mut self, entity: Entity) {
        let shape = match entity {
            Entity::Pod(id) => Some(self.shape_of(id)),
            Entity::Group(_) => None,
        };
        if self.queue.remove(entity).is_some()
            && let Some(shape) = shape
        {
            self.queue.activate_next_pod(shape, self.now);
        }
    }

    pub(super) fn shape_of(&self, id: PodId) -> (ClassId, i32) {
        (self.cluster.pod(id).class, self.cluster.effective_priority(id))
    }

    /// Removes a parked group from the shapes of its old classes; it keeps its rank and its backoff.
    fn unpark(&mut self, group: GroupId) {
        let entity = Entity::Group(group);
        if self.queue.entry(entity).is_some() {
            self.queue.move_to(entity, QueueState::Held);
        }
    }
}
