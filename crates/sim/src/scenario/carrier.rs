//! Carriers: in which objects groups are written, and how pods join them.
//!
//! A scenario says what groups there are; each carrier says how it writes them and where the answer stands. What a
//! carrier has no words for makes a scenario skipped, with the reason.
//! It must not know the cluster.

use std::collections::BTreeSet;

use muster_api::keys::{annotations, conditions};
use muster_playground::NativeGroups;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::model::{Action, DisruptionMode, Group, KubernetesVersion, Scenario};

/// How groups are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Our PodGroup; our Workload for groups that are used with replica keys.
    Muster,
    /// Our Workload for every group.
    MusterWorkload,
    /// Kubernetes' own PodGroup, `scheduling.k8s.io/v1beta1` of 1.37.
    #[serde(rename = "v1beta1")]
    V1beta1,
    /// The same in `v1alpha3`, which 1.37 has beside v1beta1.
    #[serde(rename = "v1alpha3")]
    V1alpha3,
    /// Kubernetes' own PodGroup of 1.36, `scheduling.k8s.io/v1alpha2`.
    #[serde(rename = "v1alpha2")]
    V1alpha2,
    /// Kubernetes' own Workload of 1.35, `scheduling.k8s.io/v1alpha1`, with one group of the same name.
    #[serde(rename = "v1alpha1")]
    V1alpha1,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 6] = [
        Carrier::Muster,
        Carrier::MusterWorkload,
        Carrier::V1beta1,
        Carrier::V1alpha3,
        Carrier::V1alpha2,
        Carrier::V1alpha1,
    ];

    /// The name by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Muster => "muster",
            Carrier::MusterWorkload => "muster-workload",
            Carrier::V1beta1 => "v1beta1",
            Carrier::V1alpha3 => "v1alpha3",
            Carrier::V1alpha2 => "v1alpha2",
            Carrier::V1alpha1 => "v1alpha1",
        }
    }

    /// Group and version of Kubernetes' own API that it needs, if it needs one.
    pub(super) fn native(self) -> Option<&'static str> {
        match self {
            Carrier::Muster | Carrier::MusterWorkload => None,
            Carrier::V1beta1 => Some("scheduling.k8s.io/v1beta1"),
            Carrier::V1alpha3 => Some("scheduling.k8s.io/v1alpha3"),
            Carrier::V1alpha2 => Some("scheduling.k8s.io/v1alpha2"),
            Carrier::V1alpha1 => Some("scheduling.k8s.io/v1alpha1"),
        }
    }

    /// What the playground's server has to be like for it.
    pub(super) fn server(self) -> NativeGroups {
        match self {
            Carrier::Muster | Carrier::MusterWorkload | Carrier::V1beta1 => NativeGroups::V1beta1,
            Carrier::V1alpha3 => NativeGroups::V1alpha3,
            Carrier::V1alpha2 => NativeGroups::V1alpha2,
            Carrier::V1alpha1 => NativeGroups::V1alpha1,
        }
    }

    /// Whether its objects say how their groups fare. Where they do not, claims about groups cannot be judged.
    pub(super) fn has_status(self) -> bool {
        self != Carrier::V1alpha1
    }
}

/// The kind of object that a group is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    PodGroup,
    Workload,
    /// A native PodGroup of 1.36 or 1.37, by its version.
    Native(&'static str),
    /// The native Workload of 1.35, by its version.
    NativeWorkload(&'static str),
}

impl Form {
    /// Group and version, and the kind.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Form::PodGroup => ("muster.dev/v1alpha1", "PodGroup"),
            Form::Workload => ("muster.dev/v1alpha1", "Workload"),
            Form::Native(version) => (version, "PodGroup"),
            Form::NativeWorkload(version) => (version, "Workload"),
        }
    }

    /// What a field is called that a group has in every form.
    fn policy_field(self) -> &'static str {
        if matches!(self, Form::Native(_)) { "schedulingPolicy" } else { "policy" }
    }
}

/// A carrier for one scenario: it knows which of its groups need which form.
#[derive(Clone, Debug)]
pub(super) struct Carriage {
    carrier: Carrier,
    /// Groups that are used with replica keys.
    replicated: BTreeSet<String>,
}

impl Carriage {
    /// The carrier for this scenario, or why it has no words for it.
    pub(super) fn of(carrier: Carrier, scenario: &Scenario) -> Result<Self, String> {
        if !scenario.carriers.is_empty() && !scenario.carriers.contains(&carrier) {
            let names: Vec<_> = scenario.carriers.iter().map(|carrier| carrier.name()).collect();
            return Err(format!("written for {} only", names.join(", ")));
        }
        let creates = scenario.steps.iter().filter_map(|step| match &step.action {
            Action::Create(create) if !create.replica_key.is_empty() => Some(create.group.clone()),
            _ => None,
        });
        let carriage = Self { carrier, replicated: creates.collect() };
        if let Some(why) = scenario.except.get(&carrier) {
            return Err(why.clone());
        }
        if let Some(native) = carrier.native() {
            if scenario.config.stock {
                return Err(format!("a stock cluster does not serve {native}"));
            }
            let is_of_1_37 = matches!(carrier, Carrier::V1beta1 | Carrier::V1alpha3);
            if scenario.config.kubernetes_version == Some(KubernetesVersion::V1_37) && !is_of_1_37 {
                return Err(format!("a story of Kubernetes 1.37, which does not serve {native}"));
            }
            if let Some(group) = carriage.replicated.first().filter(|_| carrier != Carrier::V1alpha1) {
                return Err(format!("group {group} is used with replica keys, which {} does not have", carrier.name()));
            }
        }
        let mut made = BTreeSet::new();
        for step in &scenario.steps {
            if let Action::Group(group) = &step.action {
                carriage.check(group, made.insert(group.name.clone()))?;
            } else if let Action::Delete(deleted) = &step.action {
                for name in deleted.iter().filter_map(|one| one.group()) {
                    made.remove(name);
                }
            }
        }
        Ok(carriage)
    }

    /// The same carrier, or why the playground cannot show this scenario: its controllers are those of 1.37, and make
    /// pods without `workloadRef`.
    pub(super) fn in_process(self, scenario: &Scenario) -> Result<Self, String> {
        let made_by_controllers = scenario.steps.iter().find_map(|step| match &step.action {
            Action::Create(create) if !create.group.is_empty() => {
                let kind = create.manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
                (kind != "Pod").then_some((kind, &create.group))
            }
            _ => None,
        });
        match made_by_controllers.filter(|_| self.carrier == Carrier::V1alpha1) {
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
        let is_native = matches!(form, Form::Native(_) | Form::NativeWorkload(_));
        let unknown = |what: &str, whose: &str| Err(format!("group {name} has {what}, which {whose} does not have"));
        match form {
            Form::Workload if group.subsets.is_some() => unknown("subsets", "a Workload"),
            Form::Workload if !is_new => Err(format!("group {name} is changed, and a Workload's groups are fixed")),
            _ if is_native && group.subsets.is_some() => unknown("subsets", carrier),
            _ if is_native && group.basic.is_some_and(|basic| basic.desired_count.is_some()) => {
                unknown("a desiredCount", carrier)
            }
            Form::NativeWorkload(_) if group.disruption_mode.is_some() => unknown("a disruptionMode", carrier),
            Form::NativeWorkload(_) if group.priority_class_name.is_some() => unknown("a priorityClassName", carrier),
            _ if !is_new && matches!(self.carrier, Carrier::V1alpha1 | Carrier::V1alpha2) => {
                Err(format!("group {name} is changed, and groups of {carrier} are fixed"))
            }
            _ => Ok(()),
        }
    }

    /// What the playground's server has to be like.
    pub(super) fn server(&self) -> NativeGroups {
        self.carrier.server()
    }

    /// Whether the objects of groups say how they fare.
    pub(super) fn has_status(&self) -> bool {
        self.carrier.has_status()
    }

    /// In which kind of object a group is written.
    pub(super) fn form(&self, group: &str) -> Form {
        match (self.carrier, self.carrier.native()) {
            (Carrier::V1alpha1, Some(version)) => Form::NativeWorkload(version),
            (_, Some(version)) => Form::Native(version),
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

    /// What makes a pod, or the pods of a template, a member of a group. `metadata` and `spec` are the pod's.
    pub(super) fn join(
        &self,
        member: &Member<'_>,
        metadata: &mut Map<String, Value>,
        spec: &mut Map<String, Value>,
    ) -> Result<(), String> {
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
            Form::PodGroup | Form::Workload => {}
        }
        let notes = metadata.entry("annotations").or_insert_with(|| json!({}));
        let Value::Object(notes) = notes else { return Err(format!("metadata.annotations: {notes} is no map")) };
        let mut note = |key: &str, value: &str| drop(notes.insert(key.to_owned(), value.into()));
        note(annotations::POD_GROUP, member.group);
        if self.form(member.group) == Form::Workload {
            note(annotations::WORKLOAD, member.group);
        }
        if !member.replica_key.is_empty() {
            note(annotations::REPLICA_KEY, member.replica_key);
        }
        if !member.subset.is_empty() {
            note(annotations::SUBSET, member.subset);
        }
        Ok(())
    }

    fn spec(&self, group: &Group, form: Form) -> Value {
        let mut spec = Map::new();
        if let Some(subsets) = &group.subsets {
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
        if matches!(form, Form::Workload | Form::NativeWorkload(_)) {
            spec.insert("name".to_owned(), json!(group.name));
            return json!({"podGroups": [spec]});
        }
        Value::Object(spec)
    }

    /// What the object of a group says about it: whether it has its place, and why. `key` is a replica key.
    pub(super) fn verdict(&self, group: &str, key: &str, object: &Value) -> Verdict {
        let status = &object["status"];
        let scheduled = conditions::POD_GROUP_SCHEDULED;
        match self.form(group) {
            Form::PodGroup => Verdict::of(&[find(&status["conditions"], scheduled)]),
            Form::Workload => {
                let instances = status["podGroups"].as_array().into_iter().flatten();
                let is_meant = |one: &&Value| one["name"] == group && one["replicaKey"].as_str().unwrap_or("") == key;
                // A group that no pod names is not listed; the object speaks for it.
                let conditions = instances.into_iter().find(is_meant).unwrap_or(status);
                Verdict::of(&[find(&conditions["conditions"], scheduled)])
            }
            Form::Native(_) => {
                let ours = format!("{}{scheduled}", conditions::NATIVE_PREFIX);
                let upstream = match self.carrier {
                    Carrier::V1alpha2 => scheduled,
                    _ => conditions::POD_GROUP_INITIALLY_SCHEDULED,
                };
                let upstream = find(&status["conditions"], upstream);
                match find(&status["conditions"], &ours) {
                    None => Verdict::of(&[upstream]),
                    Some(ours) => Verdict::of(&[Some(ours), upstream]),
                }
            }
            Form::NativeWorkload(_) => Verdict::default(),
        }
    }
}

/// Who joins which group, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) group: &'a str,
    pub(super) replica_key: &'a str,
    pub(super) subset: &'a str,
}

/// What is said about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether it has its place; nothing if nobody has said so.
    pub(super) scheduled: Option<bool>,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    /// The first condition gives the reason. A group has its place if all say so; it has none if the first says so.
    fn of(conditions: &[Option<&Value>]) -> Self {
        let Some(Some(first)) = conditions.first() else { return Self::default() };
        let says = |condition: Option<&Value>, status: &str| condition.is_some_and(|one| one["status"] == status);
        let scheduled = match () {
            () if conditions.iter().all(|one| says(*one, "True")) => Some(true),
            () if says(Some(first), "False") => Some(false),
            () => None,
        };
        let text = |field: &str| first[field].as_str().unwrap_or_default().to_owned();
        Self { scheduled, reason: text("reason"), message: text("message") }
    }
}

fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|one| one["type"] == kind)
}
