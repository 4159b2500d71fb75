//! Carriers: the group API in which a scenario's groups are written, and how pods join them.
//!
//! A scenario defines groups independently of the API. A scenario that a carrier cannot express is skipped, with the
//! reason. Must not depend on the cluster.

use std::collections::BTreeSet;

use muster_api::crds;
use muster_api::keys::annotations;
use muster_api::native::NativeVersion;
use muster_api::owners::ProviderName;
use muster_playground::NativeGroups;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::field_error::FieldError;
use super::model::{Action, DisruptionMode, Group, KubernetesVersion, Scenario};

/// The label with which pods join a group of scheduler-plugins.
const PLUGINS_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// The annotations with which pods join a group of Volcano and a task in it.
const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
const VOLCANO_TASK: &str = "volcano.sh/task-spec";

/// JobSet, whose Jobs create pods.
const JOB_SETS: &str = "jobset.x-k8s.io/v1alpha2";

/// The API in which groups are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Muster's PodGroup; its Workload for groups that are used with replica keys.
    Muster,
    /// Muster's Workload for every group.
    MusterWorkload,
    /// Kubernetes' own PodGroup, `scheduling.k8s.io/v1beta1` of 1.37.
    #[serde(rename = "v1beta1")]
    V1beta1,
    /// The same in `v1alpha3`, which 1.37 serves in addition to v1beta1.
    #[serde(rename = "v1alpha3")]
    V1alpha3,
    /// Kubernetes' own PodGroup of 1.36, `scheduling.k8s.io/v1alpha2`.
    #[serde(rename = "v1alpha2")]
    V1alpha2,
    /// Kubernetes' own Workload of 1.35, `scheduling.k8s.io/v1alpha1`, with one group of the same name.
    #[serde(rename = "v1alpha1")]
    V1alpha1,
    /// The PodGroup of scheduler-plugins, `scheduling.x-k8s.io/v1alpha1`.
    SchedulerPlugins,
    /// The PodGroup of Volcano, `scheduling.volcano.sh/v1beta1`.
    Volcano,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 8] = [
        Carrier::Muster,
        Carrier::MusterWorkload,
        Carrier::V1beta1,
        Carrier::V1alpha3,
        Carrier::V1alpha2,
        Carrier::V1alpha1,
        Carrier::SchedulerPlugins,
        Carrier::Volcano,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Muster => "muster",
            Carrier::MusterWorkload => "muster-workload",
            Carrier::V1beta1 => "v1beta1",
            Carrier::V1alpha3 => "v1alpha3",
            Carrier::V1alpha2 => "v1alpha2",
            Carrier::V1alpha1 => "v1alpha1",
            Carrier::SchedulerPlugins => "scheduler-plugins",
            Carrier::Volcano => "volcano",
        }
    }

    /// The group and version of Kubernetes' own API that it needs, if any.
    pub(super) fn native(self) -> Option<&'static str> {
        match self {
            Carrier::Muster | Carrier::MusterWorkload | Carrier::SchedulerPlugins | Carrier::Volcano => None,
            Carrier::V1beta1 => Some("scheduling.k8s.io/v1beta1"),
            Carrier::V1alpha3 => Some("scheduling.k8s.io/v1alpha3"),
            Carrier::V1alpha2 => Some("scheduling.k8s.io/v1alpha2"),
            Carrier::V1alpha1 => Some("scheduling.k8s.io/v1alpha1"),
        }
    }

    /// The group API that the playground's server has to serve.
    pub(super) fn server(self) -> NativeGroups {
        match self {
            Carrier::Muster
            | Carrier::MusterWorkload
            | Carrier::V1beta1
            | Carrier::SchedulerPlugins
            | Carrier::Volcano => NativeGroups::V1beta1,
            Carrier::V1alpha3 => NativeGroups::V1alpha3,
            Carrier::V1alpha2 => NativeGroups::V1alpha2,
            Carrier::V1alpha1 => NativeGroups::V1alpha1,
        }
    }

    /// The version of Kubernetes' own groups that is used for gangs of owners; Muster's own API if `None`.
    pub(super) fn native_version(self) -> Option<NativeVersion> {
        match self {
            Carrier::Muster | Carrier::MusterWorkload | Carrier::SchedulerPlugins | Carrier::Volcano => None,
            Carrier::V1beta1 => Some(NativeVersion::V1beta1),
            Carrier::V1alpha3 => Some(NativeVersion::V1alpha3),
            Carrier::V1alpha2 => Some(NativeVersion::V1alpha2),
            Carrier::V1alpha1 => Some(NativeVersion::V1alpha1),
        }
    }

    /// Whether its objects have a status. Otherwise assertions about groups cannot be checked.
    pub(super) fn has_status(self) -> bool {
        !matches!(self, Carrier::V1alpha1 | Carrier::SchedulerPlugins)
    }

    /// Whether it can express everything in a scenario.
    pub fn can_express(self, scenario: &Scenario) -> bool {
        ScenarioCarrier::of(self, scenario).is_ok()
    }

    /// Whether one object can define several replicas of a group.
    fn has_replica_keys(self) -> bool {
        matches!(self, Carrier::Muster | Carrier::MusterWorkload | Carrier::V1alpha1)
    }
}

/// The kind of object that defines a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    PodGroup,
    Workload,
    /// A native PodGroup of 1.36 or 1.37, by its version.
    Native(&'static str),
    /// The native Workload of 1.35, by its version.
    NativeWorkload(&'static str),
    /// A PodGroup of scheduler-plugins.
    SchedulerPlugins,
    /// A PodGroup of Volcano.
    Volcano,
}

impl Form {
    /// Group and version, and the kind.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Form::PodGroup => ("muster.dev/v1alpha1", "PodGroup"),
            Form::Workload => ("muster.dev/v1alpha1", "Workload"),
            Form::Native(version) => (version, "PodGroup"),
            Form::NativeWorkload(version) => (version, "Workload"),
            Form::SchedulerPlugins => ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
            Form::Volcano => ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        }
    }

    /// The features that it cannot express.
    fn unsupported(self) -> &'static [Feature] {
        match self {
            Form::PodGroup => &[],
            Form::Workload => &[Feature::Subsets, Feature::Timeout],
            Form::Native(_) => &[Feature::Subsets, Feature::DesiredCount, Feature::Timeout],
            Form::NativeWorkload(_) => &[
                Feature::Subsets,
                Feature::DesiredCount,
                Feature::Timeout,
                Feature::DisruptionMode,
                Feature::PriorityClass,
                Feature::Topology,
            ],
            Form::SchedulerPlugins => {
                &[Feature::Subsets, Feature::Basic, Feature::DisruptionMode, Feature::PriorityClass, Feature::Topology]
            }
            Form::Volcano => &[Feature::DesiredCount, Feature::Timeout, Feature::DisruptionMode, Feature::Topology],
        }
    }

    /// The name of the policy field.
    fn policy_field(self) -> &'static str {
        if matches!(self, Form::Native(_)) { "schedulingPolicy" } else { "policy" }
    }
}

/// A feature of a group that not every form has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Subsets,
    Basic,
    DesiredCount,
    DisruptionMode,
    PriorityClass,
    Timeout,
    Topology,
}

impl Feature {
    /// The features that a group uses, each with its name.
    fn used_by(group: &Group) -> impl Iterator<Item = (Self, &'static str)> {
        let has_desired_count = group.basic.is_some_and(|basic| basic.desired_count.is_some());
        let all = [
            (group.subsets.is_some(), Self::Subsets, "subsets"),
            (group.basic.is_some(), Self::Basic, "a basic policy"),
            (has_desired_count, Self::DesiredCount, "a desiredCount"),
            (group.disruption_mode.is_some(), Self::DisruptionMode, "a disruptionMode"),
            (group.priority_class_name.is_some(), Self::PriorityClass, "a priorityClassName"),
            (group.schedule_timeout_seconds.is_some(), Self::Timeout, "a scheduleTimeoutSeconds"),
            (group.topology_key.is_some(), Self::Topology, "a topologyKey"),
        ];
        all.into_iter().filter_map(|(is_used, feature, name)| is_used.then_some((feature, name)))
    }
}

/// A carrier for one scenario: it selects the form of each of its groups.
#[derive(Clone, Debug)]
pub(super) struct ScenarioCarrier {
    carrier: Carrier,
    /// Groups that are used with replica keys.
    replicated: BTreeSet<String>,
}

impl ScenarioCarrier {
    /// A carrier without replica keys.
    #[cfg(test)]
    pub(super) fn plain(carrier: Carrier) -> Self {
        Self { carrier, replicated: BTreeSet::new() }
    }

    /// The carrier for this scenario, or why it cannot express it.
    pub(super) fn of(carrier: Carrier, scenario: &Scenario) -> Result<Self, String> {
        if !scenario.carriers.is_empty() && !scenario.carriers.contains(&carrier) {
            let names: Vec<_> = scenario.carriers.iter().map(|carrier| carrier.name()).collect();
            return Err(format!("written for {} only", names.join(", ")));
        }
        let creates = scenario.steps.iter().filter_map(|step| match &step.action {
            Action::Create(create) if !create.replica_key.is_empty() => Some(create.group.clone()),
            _ => None,
        });
        let scenario_carrier = Self { carrier, replicated: creates.collect() };
        if let Some(why) = scenario.except.get(&carrier) {
            return Err(why.clone());
        }
        if let Some(native) = carrier.native() {
            if scenario.config.stock {
                return Err(format!("a stock cluster does not serve {native}"));
            }
            let is_of_1_37 = matches!(carrier, Carrier::V1beta1 | Carrier::V1alpha3);
            if scenario.config.kubernetes_version == Some(KubernetesVersion::V1_37) && !is_of_1_37 {
                return Err(format!("the scenario is about Kubernetes 1.37, which does not serve {native}"));
            }
        }
        if let Some(group) = scenario_carrier.replicated.first().filter(|_| !carrier.has_replica_keys()) {
            return Err(format!("group {group} is used with replica keys, which {} does not have", carrier.name()));
        }
        let mut created = BTreeSet::new();
        for step in &scenario.steps {
            if let Action::Group(group) = &step.action {
                let gates = scenario.config.kubernetes_feature_gates;
                let needs_gate = group.topology_key.is_some() && carrier.native().is_some();
                if needs_gate && !gates.topology_aware_workload_scheduling {
                    let name = &group.name;
                    return Err(format!(
                        "the topologyKey of group {name} needs TopologyAwareWorkloadScheduling in kubernetesFeatureGates"
                    ));
                }
                scenario_carrier.check(group, created.insert(group.name.clone()))?;
            } else if let Action::Delete(deleted) = &step.action {
                for name in deleted.iter().filter_map(|one| one.group()) {
                    created.remove(name);
                }
            }
        }
        Ok(scenario_carrier)
    }

    /// The same carrier, or why the playground cannot run this scenario: its controllers are those of 1.37 and create
    /// pods without `workloadRef`.
    pub(super) fn in_process(self, scenario: &Scenario) -> Result<Self, String> {
        if self.carrier == Carrier::V1alpha1 && scenario.writes(JOB_SETS) {
            return Err("Jobs in the process are those of 1.37, whose pods have no workloadRef".to_owned());
        }
        let created_by_controllers = scenario.steps.iter().find_map(|step| match &step.action {
            Action::Create(create) if !create.group.is_empty() => {
                let kind = create.manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
                (kind != "Pod").then_some((kind, &create.group))
            }
            _ => None,
        });
        match created_by_controllers.filter(|_| self.carrier == Carrier::V1alpha1) {
            Some((kind, group)) => Err(format!(
                "a {kind} makes members of group {group}, and controllers in the process are those of 1.37, without \
                 workloadRef"
            )),
            None => Ok(self),
        }
    }

    fn check(&self, group: &Group, is_new: bool) -> Result<(), String> {
        let (name, carrier) = (&group.name, self.carrier.name());
        let form = self.form(name);
        let owner = if form == Form::Workload { "a Workload" } else { carrier };
        if let Some((_, what)) = Feature::used_by(group).find(|(feature, _)| form.unsupported().contains(feature)) {
            return Err(format!("group {name} has {what}, which {owner} does not have"));
        }
        let fixed = matches!(self.carrier, Carrier::V1alpha1 | Carrier::V1alpha2);
        if fixed && !is_new {
            return Err(format!("group {name} is changed, and groups of {carrier} are fixed"));
        }
        Ok(())
    }

    /// CRDs that the scenario needs and that are not part of Kubernetes.
    pub(super) fn definitions(&self, scenario: &Scenario) -> Vec<&'static str> {
        let mut needed = vec![crds::WORKLOADS, crds::PODGROUPS];
        for (carrier, form, provider, definition) in [
            (
                Carrier::SchedulerPlugins,
                Form::SchedulerPlugins,
                ProviderName::SchedulerPlugins,
                crds::dialects::SCHEDULER_PLUGINS,
            ),
            (Carrier::Volcano, Form::Volcano, ProviderName::Volcano, crds::dialects::VOLCANO),
        ] {
            let provided = scenario.config.settings.ganged.leader_worker_sets == Some(provider);
            if self.carrier == carrier || scenario.writes(form.kind().0) || provided {
                needed.push(definition);
            }
        }
        needed
    }

    /// The carrier.
    pub(super) fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// The group API that the playground's server has to serve.
    pub(super) fn server(&self) -> NativeGroups {
        self.carrier.server()
    }

    /// Whether the objects of groups have a status.
    pub(super) fn has_status(&self) -> bool {
        self.carrier.has_status()
    }

    /// The kind of object that defines a group.
    pub(super) fn form(&self, group: &str) -> Form {
        match (self.carrier, self.carrier.native()) {
            (Carrier::V1alpha1, Some(version)) => Form::NativeWorkload(version),
            (_, Some(version)) => Form::Native(version),
            (Carrier::SchedulerPlugins, None) => Form::SchedulerPlugins,
            (Carrier::Volcano, None) => Form::Volcano,
            (Carrier::Muster, None) if !self.replicated.contains(group) => Form::PodGroup,
            (_, None) => Form::Workload,
        }
    }

    /// The object of a group.
    pub(super) fn object(&self, group: &Group, namespace: &str) -> Value {
        let form = self.form(&group.name);
        let (api_version, kind) = form.kind();
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": group.name, "namespace": namespace},
            "spec": self.spec(group, form),
        })
    }

    /// Makes a pod, or the pods of a template, members of a group. `metadata` and `spec` are the pod's.
    pub(super) fn join(
        &self,
        member: &Member<'_>,
        metadata: &mut Map<String, Value>,
        spec: &mut Map<String, Value>,
    ) -> Result<(), FieldError> {
        match self.form(member.group) {
            Form::Native(_) => {
                spec.insert("schedulingGroup".to_owned(), json!({"podGroupName": member.group}));
                return Ok(());
            }
            Form::NativeWorkload(_) => {
                let mut reference = json!({"name": member.group, "podGroup": member.group});
                if !member.replica_key.is_empty() {
                    reference["podGroupReplicaKey"] = member.replica_key.into();
                }
                spec.insert("workloadRef".to_owned(), reference);
                return Ok(());
            }
            Form::SchedulerPlugins => return set_values(metadata, "labels", &[(PLUGINS_GROUP_LABEL, member.group)]),
            Form::Volcano => {
                let values = [(VOLCANO_GROUP, member.group), (VOLCANO_TASK, member.subset)];
                return set_values(metadata, "annotations", &values);
            }
            Form::PodGroup | Form::Workload => {}
        }
        let workload = if self.form(member.group) == Form::Workload { member.group } else { "" };
        let values = [
            (annotations::POD_GROUP, member.group),
            (annotations::WORKLOAD, workload),
            (annotations::REPLICA_KEY, member.replica_key),
            (annotations::SUBSET, member.subset),
        ];
        set_values(metadata, "annotations", &values)
    }

    fn spec(&self, group: &Group, form: Form) -> Value {
        let mut spec = Map::new();
        if matches!(form, Form::SchedulerPlugins | Form::Volcano) {
            let tasks = group.subsets.as_ref();
            let of_tasks = tasks.map(|tasks| tasks.values().map(|least| u64::from(*least)).sum());
            let least = of_tasks.or(group.gang.map(u64::from)).unwrap_or_default();
            spec.insert("minMember".to_owned(), least.into());
            if let Some(tasks) = tasks {
                spec.insert("minTaskMember".to_owned(), json!(tasks));
            }
        } else if let Some(subsets) = &group.subsets {
            let subsets: Vec<_> =
                subsets.iter().map(|(name, least)| json!({"name": name, "minMember": least})).collect();
            spec.insert("subsets".to_owned(), subsets.into());
        } else {
            let policy = match (group.gang, group.basic) {
                (Some(least), _) => json!({"gang": {"minCount": least}}),
                (None, Some(basic)) => match basic.desired_count {
                    Some(count) => json!({"basic": {"desiredCount": count}}),
                    None => json!({"basic": {}}),
                },
                (None, None) => json!({}),
            };
            spec.insert(form.policy_field().to_owned(), policy);
        }
        if let Some(mode) = group.disruption_mode {
            let is_choice = matches!(self.carrier, Carrier::V1beta1 | Carrier::V1alpha3);
            let mode = match (mode, is_choice) {
                (DisruptionMode::Pod, true) => json!({"single": {}}),
                (DisruptionMode::PodGroup, true) => json!({"all": {}}),
                (DisruptionMode::Pod, false) => json!("Pod"),
                (DisruptionMode::PodGroup, false) => json!("PodGroup"),
            };
            spec.insert("disruptionMode".to_owned(), mode);
        }
        if let Some(class) = &group.priority_class_name {
            spec.insert("priorityClassName".to_owned(), json!(class));
        }
        if let Some(seconds) = group.schedule_timeout_seconds {
            spec.insert("scheduleTimeoutSeconds".to_owned(), seconds.into());
        }
        if let Some(key) = &group.topology_key {
            let (field, constraint) = match form {
                Form::Native(_) => ("schedulingConstraints", json!({"topology": [{"key": key}]})),
                _ => ("topology", json!([{"key": key, "mode": "Required"}])),
            };
            spec.insert(field.to_owned(), constraint);
        }
        if matches!(form, Form::Workload | Form::NativeWorkload(_)) {
            spec.insert("name".to_owned(), json!(group.name));
            return json!({"podGroups": [spec]});
        }
        Value::Object(spec)
    }
}

/// Sets labels or annotations in a pod's metadata; empty values are left out.
fn set_values(metadata: &mut Map<String, Value>, field: &str, values: &[(&str, &str)]) -> Result<(), FieldError> {
    let written = metadata.entry(field).or_insert_with(|| json!({}));
    let Value::Object(written) = written else {
        return Err(FieldError::new(format!("metadata.{field}"), format!("{written} is no map")));
    };
    let values = values.iter().filter(|(_, value)| !value.is_empty());
    written.extend(values.map(|(key, value)| ((*key).to_owned(), (*value).into())));
    Ok(())
}

/// The membership of pods in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) group: &'a str,
    pub(super) replica_key: &'a str,
    pub(super) subset: &'a str,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;
    use super::*;

    fn group(text: &str) -> Group {
        let scenario = scenario(&format!("- group: {text}"));
        let Action::Group(group) = &scenario.steps[0].action else { panic!("{text}") };
        group.clone()
    }

    fn scenario(steps: &str) -> Scenario {
        parse(&format!("name: a\nsteps:\n{steps}\n"), Path::new("a.yaml")).unwrap()
    }

    fn joined(carrier: Carrier, subset: &str) -> Value {
        let (mut metadata, mut spec) = (Map::new(), Map::new());
        let member = Member { group: "g", replica_key: "", subset };
        ScenarioCarrier::plain(carrier).join(&member, &mut metadata, &mut spec).unwrap();
        assert!(spec.is_empty(), "{spec:?}");
        Value::Object(metadata)
    }

    #[test]
    fn scheduler_plugins_groups_are_gangs_joined_by_label() {
        let written = ScenarioCarrier::plain(Carrier::SchedulerPlugins)
            .object(&group("{name: g, gang: 3, scheduleTimeoutSeconds: 10}"), "ns");
        let expected = json!({
            "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 10},
        });
        assert_eq!(written, expected);
        let expected = json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}});
        assert_eq!(joined(Carrier::SchedulerPlugins, ""), expected);
    }

    #[test]
    fn volcano_groups_have_tasks_a_class_and_an_optional_minimum() {
        let volcano = ScenarioCarrier::plain(Carrier::Volcano);
        let spec = |text: &str| volcano.object(&group(text), "ns")["spec"].clone();
        let gang = spec("{name: g, gang: 3, priorityClassName: high}");
        assert_eq!(gang, json!({"minMember": 3, "priorityClassName": "high"}));
        assert_eq!(spec("{name: g, basic: {}}"), json!({"minMember": 0}));
        let tasks = spec("{name: g, subsets: {ps: 1, worker: 3}}");
        assert_eq!(tasks, json!({"minMember": 4, "minTaskMember": {"ps": 1, "worker": 3}}));
        assert_eq!(joined(Carrier::Volcano, ""), json!({"annotations": {"scheduling.k8s.io/group-name": "g"}}));
        let values = json!({"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "ps"});
        assert_eq!(joined(Carrier::Volcano, "ps"), json!({"annotations": values}));
    }

    #[test]
    fn crds_of_others_are_installed_only_if_used() {
        use crds::dialects::{SCHEDULER_PLUGINS, VOLCANO};
        let (plain, own) = (scenario("- restart: scheduler"), [crds::WORKLOADS, crds::PODGROUPS]);
        assert_eq!(ScenarioCarrier::plain(Carrier::Muster).definitions(&plain), own);
        let plugins = ScenarioCarrier::plain(Carrier::SchedulerPlugins).definitions(&plain);
        assert_eq!(plugins, [own[0], own[1], SCHEDULER_PLUGINS]);
        let volcanos = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}}";
        for step in [format!("- apply: '{volcanos}'"), format!("- create: {{manifest: {volcanos}}}")] {
            let needed = ScenarioCarrier::plain(Carrier::Muster).definitions(&scenario(&step));
            assert_eq!(needed, [own[0], own[1], VOLCANO], "{step}");
        }
    }
}
