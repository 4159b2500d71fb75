//! Carriers: in which objects groups are written, and how pods join them.
//!
//! A scenario says what groups there are; each carrier says how it writes them and where the answer stands. What a
//! carrier has no words for makes a scenario skipped, with the reason.
//! It must not know the cluster.

use std::collections::BTreeSet;

use muster_api::keys::{annotations, conditions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::model::{Action, DisruptionMode, Group, Scenario};

/// How groups are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Our PodGroup; our Workload for groups that are used with replica keys.
    Muster,
    /// Our Workload for every group.
    MusterWorkload,
    /// Kubernetes' own PodGroup, `scheduling.k8s.io/v1beta1`.
    #[serde(rename = "v1beta1")]
    V1beta1,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 3] = [Carrier::Muster, Carrier::MusterWorkload, Carrier::V1beta1];

    /// The name by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Muster => "muster",
            Carrier::MusterWorkload => "muster-workload",
            Carrier::V1beta1 => "v1beta1",
        }
    }
}

/// The kind of object that a group is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    PodGroup,
    Workload,
    Native,
}

impl Form {
    /// Group and version, and the kind.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Form::PodGroup => ("muster.dev/v1alpha1", "PodGroup"),
            Form::Workload => ("muster.dev/v1alpha1", "Workload"),
            Form::Native => ("scheduling.k8s.io/v1beta1", "PodGroup"),
        }
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
        if carrier == Carrier::V1beta1 {
            if scenario.config.stock {
                return Err("a stock cluster does not serve scheduling.k8s.io/v1beta1".to_owned());
            }
            if let Some(group) = carriage.replicated.first() {
                return Err(format!("group {group} is used with replica keys, which v1beta1 does not have"));
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

    fn check(&self, group: &Group, is_new: bool) -> Result<(), String> {
        let name = &group.name;
        match self.form(name) {
            Form::Workload if group.subsets.is_some() => {
                Err(format!("group {name} has subsets, which a Workload does not have"))
            }
            Form::Workload if !is_new => Err(format!("group {name} is changed, and a Workload's groups are fixed")),
            Form::Native if group.subsets.is_some() => {
                Err(format!("group {name} has subsets, which v1beta1 does not have"))
            }
            Form::Native if group.basic.is_some_and(|basic| basic.desired_count.is_some()) => {
                Err(format!("group {name} has a desiredCount, which v1beta1 does not have"))
            }
            Form::PodGroup | Form::Workload | Form::Native => Ok(()),
        }
    }

    /// In which kind of object a group is written.
    pub(super) fn form(&self, group: &str) -> Form {
        match self.carrier {
            Carrier::V1beta1 => Form::Native,
            Carrier::MusterWorkload => Form::Workload,
            Carrier::Muster if self.replicated.contains(group) => Form::Workload,
            Carrier::Muster => Form::PodGroup,
        }
    }

    /// The object of a group.
    pub(super) fn object(&self, group: &Group, namespace: &str) -> Value {
        let form = self.form(&group.name);
        let (api_version, kind) = form.kind();
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": group.name, "namespace": namespace},
            "spec": spec(group, form),
        })
    }

    /// What makes a pod, or the pods of a template, a member of a group. `metadata` and `spec` are the pod's.
    pub(super) fn join(
        &self,
        member: &Member<'_>,
        metadata: &mut Map<String, Value>,
        spec: &mut Map<String, Value>,
    ) -> Result<(), String> {
        if self.carrier == Carrier::V1beta1 {
            spec.insert("schedulingGroup".to_owned(), json!({"podGroupName": member.group}));
            return Ok(());
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

    /// What the object of a group says about it: whether it has its place, and why. `key` is a replica key.
    pub(super) fn verdict(&self, group: &str, key: &str, object: &Value) -> Verdict {
        let status = &object["status"];
        let scheduled = conditions::POD_GROUP_SCHEDULED;
        match self.form(group) {
            Form::PodGroup => Verdict::of(&[find(&status["conditions"], scheduled)]),
            Form::Workload => {
                let instances = status["podGroups"].as_array().into_iter().flatten();
                let is_meant = |one: &&Value| one["name"] == group && one["replicaKey"].as_str().unwrap_or("") == key;
                Verdict::of(&[instances.into_iter().find(is_meant).and_then(|one| find(&one["conditions"], scheduled))])
            }
            Form::Native => {
                let ours = format!("{}{scheduled}", conditions::NATIVE_PREFIX);
                let initially = find(&status["conditions"], conditions::POD_GROUP_INITIALLY_SCHEDULED);
                match find(&status["conditions"], &ours) {
                    None => Verdict::of(&[initially]),
                    Some(ours) => Verdict::of(&[Some(ours), initially]),
                }
            }
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

fn spec(group: &Group, form: Form) -> Value {
    let mut spec = Map::new();
    if let Some(subsets) = &group.subsets {
        let subsets: Vec<_> = subsets.iter().map(|(name, least)| json!({"name": name, "minMember": least})).collect();
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
        spec.insert(if form == Form::Native { "schedulingPolicy" } else { "policy" }.to_owned(), policy);
    }
    if let Some(mode) = group.disruption_mode {
        let mode = match (mode, form) {
            (DisruptionMode::Pod, Form::Native) => json!({"single": {}}),
            (DisruptionMode::PodGroup, Form::Native) => json!({"all": {}}),
            (DisruptionMode::Pod, _) => json!("Pod"),
            (DisruptionMode::PodGroup, _) => json!("PodGroup"),
        };
        spec.insert("disruptionMode".to_owned(), mode);
    }
    if let Some(class) = &group.priority_class_name {
        spec.insert("priorityClassName".to_owned(), json!(class));
    }
    if form == Form::Workload {
        spec.insert("name".to_owned(), json!(group.name));
        return json!({"podGroups": [spec]});
    }
    Value::Object(spec)
}
