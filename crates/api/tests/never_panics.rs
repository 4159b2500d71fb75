//! Fuzz test: reading and validating any object gives a value or an error, never a panic, and errors stay short. Real
//! examples are mutated at random, many thousand times.
//!
//! A failure prints the seed of its case; `MUSTER_SEED=<seed>` runs that case alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_api::group::WrittenGroup;
use muster_api::invalid::FieldPath;
use muster_api::names::{check_dns_label, check_dns_subdomain, check_label_key, check_label_value};
use muster_api::native::{self, Gates, v1alpha1, v1alpha2};
use muster_api::node_selector::{WrittenNodeSelector, WrittenPreferredTerm};
use muster_api::parents::check_parents;
use muster_api::pod_group::validate_pod_group_update;
use muster_api::pod_requests::pod_requests;
use muster_api::quantity::Quantity;
use muster_api::resources::{Place, WrittenResources, list_in_base_units, validate};
use muster_api::selector::{Labels, WrittenLabelSelector};
use muster_api::toleration::{WrittenTaint, WrittenToleration};
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_api::workload::{WrittenWorkload, validate_workload_update};
use serde_json::{Value, json};

const CASES: u64 = 20_000;
const ROOT: FieldPath<'static> = FieldPath::Root("spec");

/// A small random number generator (splitmix64): the cases must be the same on every machine.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const ODD_TEXTS: &[&str] = &[
    "",
    "0",
    "-",
    "+",
    ".",
    "..",
    "-1",
    "1e",
    "1e99",
    "1e-99",
    "1E2147483647",
    "1e-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "8Ei",
    "0.1Ei",
    "1n",
    "500m",
    "1.5Gi",
    "é",
    "١",
    "\u{0}",
    "a/b/c",
    "/",
    "a b",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Equal",
    "NoSchedule",
    "NoExecute",
    "Always",
    "PodGroup",
    "Pod",
    "Infeasible",
    "PodResizePending",
    "cpu",
    "memory",
    "hugepages-2Mi",
    "hugepages-",
    "nvidia.com/gpu",
    "metadata.name",
    "Required",
];

const ODD_KEYS: &[&str] = &[
    "cpu",
    "memory",
    "pods",
    "hugepages-2Mi",
    "hugepages-x",
    "nvidia.com/gpu",
    "requests",
    "limits",
    "resources",
    "overhead",
    "status",
    "key",
    "operator",
    "values",
    "unknown",
    "",
    "a b",
    "gang",
];

fn odd_text(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => ODD_TEXTS[rng.below(ODD_TEXTS.len())].repeat(rng.below(300)),
        1 => {
            let alphabet: Vec<char> = "0123456789.+-eEinumkKMGTPaZ/_ é".chars().collect();
            (0..rng.below(12)).map(|_| alphabet[rng.below(alphabet.len())]).collect()
        }
        _ => rng.pick(ODD_TEXTS).to_owned(),
    }
}

fn odd_value(rng: &mut Rng) -> Value {
    match rng.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!([]),
        3 => json!({}),
        4 => json!(-1),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => json!(1e300),
        8 => json!(0.1),
        9 => json!([odd_text(rng), odd_text(rng)]),
        _ => json!(odd_text(rng)),
    }
}

/// Changes a random part of a value.
fn mutate(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Object(map) if !map.is_empty() && rng.below(8) > 0 => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = &keys[rng.below(keys.len())];
            match rng.below(12) {
                0 => drop(map.remove(key)),
                1 => drop(map.insert(rng.pick(ODD_KEYS).to_owned(), odd_value(rng))),
                2 => {
                    let moved = map.remove(key).unwrap_or_default();
                    map.insert(odd_text(rng), moved);
                }
                _ => mutate(&mut map[key], rng),
            }
        }
        Value::Array(list) if !list.is_empty() && rng.below(8) > 0 => {
            let index = rng.below(list.len());
            match rng.below(8) {
                0 => drop(list.remove(index)),
                1 => list.push(list[index].clone()),
                _ => mutate(&mut list[index], rng),
            }
        }
        other => *other = odd_value(rng),
    }
}

fn examples() -> Vec<Value> {
    let list = json!({"cpu": "1.5", "memory": "1Gi", "nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi"});
    let both = json!({"requests": list, "limits": list});
    let container = json!({"name": "a", "restartPolicy": "Always", "resources": both});
    let state = json!({"name": "a", "allocatedResources": list, "resources": both});
    let term = json!({
        "matchExpressions": [
            {"key": "e.com/k", "operator": "In", "values": ["a", "b"]},
            {"key": "n", "operator": "Gt", "values": ["5"]},
        ],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    });
    vec![
        json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {
                "containers": [container, {"name": "b"}], "initContainers": [container],
                "resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi"}},
                "overhead": {"cpu": "1m"},
            },
            "status": {
                "containerStatuses": [state], "initContainerStatuses": [state],
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                "resources": both, "allocatedResources": list,
            },
        }),
        list.clone(),
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}),
        json!({"nodeSelectorTerms": [term, {}]}),
        json!([{"weight": 5, "preference": term}]),
        json!([{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}]),
        json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]),
        json!({
            "policy": {"gang": {"minCount": 4}}, "scheduleTimeoutSeconds": 60,
            "disruptionMode": "PodGroup", "priorityClassName": "high", "preemptionPolicy": "Never",
            "topology": [{"key": "zone", "mode": "Required"}],
        }),
        json!({"subsets": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]}),
        json!({
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"},
            "podGroups": [{"name": "a", "policy": {"basic": {}}}, {"name": "b", "policy": {"gang": {"minCount": 1}}}],
        }),
        json!({
            "metadata": {"name": "g"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": {"all": {}}, "priority": 5,
                "podGroupTemplates": [{"name": "a", "schedulingPolicy": {"basic": {}}}, {"name": "b"}],
                "resourceClaims": [{"name": "a", "resourceClaimName": "b"}], "workloadRef": {"workloadName": "w"},
                "schedulingConstraints": {"topology": [{"key": "rack"}]}, "taints": [], "selector": {},
            },
            "status": {
                "conditions": [{"type": "A", "status": "True", "reason": "B"}], "allocatable": list,
                "resourceClaimStatuses": [{"name": "a"}], "disruptionsAllowed": 1,
            },
        }),
        json!({"a": "b", "b": "c", "c": "a"}),
        json!("1.5Gi"),
    ]
}

/// Reads the value as every type; returns the errors as text.
fn read_as_everything(value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let mut note = |error: Option<String>| errors.extend(error);
    if let Ok(pod) = Pod::deserialize_from(value) {
        for use_status in [false, true] {
            note(pod_requests(&pod, use_status).err().map(|error| error.reason));
        }
    }
    if let Ok(list) = WrittenResources::deserialize_from(value) {
        for place in [Place::Container, Place::Pod, Place::Node, Place::Group] {
            let units = validate(&list, place, &ROOT).and_then(|list| list_in_base_units(&list, &ROOT));
            note(units.err().map(|error| error.to_string()));
        }
    }
    let labels = Labels::from([("k".to_owned(), "5".to_owned())]);
    if let Ok(selector) = Option::<WrittenLabelSelector>::deserialize_from(value) {
        let checked = WrittenLabelSelector::validate(selector.as_ref(), &ROOT);
        note(checked.map(|selector| selector.matches(&labels)).err().map(|error| error.to_string()));
    }
    if let Ok(selector) = WrittenNodeSelector::deserialize_from(value) {
        let matched = selector.validate(&ROOT).map(|selector| selector.matches(&labels, "n1"));
        note(matched.err().map(|error| error.to_string()));
    }
    if let Ok(terms) = Vec::<WrittenPreferredTerm>::deserialize_from(value) {
        note(WrittenPreferredTerm::validate_all(&terms, &ROOT).err().map(|error| error.to_string()));
    }
    if let Ok(list) = Vec::<WrittenToleration>::deserialize_from(value) {
        note(WrittenToleration::validate_all(&list, &ROOT).err().map(|error| error.to_string()));
    }
    if let Ok(list) = Vec::<WrittenTaint>::deserialize_from(value) {
        note(WrittenTaint::validate_all(&list, &ROOT).err().map(|error| error.to_string()));
    }
    if let Ok(group) = WrittenGroup::deserialize_from(value) {
        note(group.validate(&ROOT).err().map(|error| error.to_string()));
        note(validate_pod_group_update(&group, &WrittenGroup::default(), &ROOT).err().map(|error| error.to_string()));
    }
    if let Ok(workload) = WrittenWorkload::deserialize_from(value) {
        note(validate_workload_update(&workload, &workload, &ROOT).err().map(|error| error.to_string()));
    }
    read_as_native(value, &mut note);
    for written in [
        check_round_trip::<Pod>(value),
        check_round_trip::<Node>(value),
        check_round_trip::<PodDisruptionBudget>(value),
    ] {
        note(written);
    }
    if let Ok(parents) = BTreeMap::<String, String>::deserialize_from(value) {
        note(check_parents("a", &parents, &ROOT).err().map(|error| error.to_string()));
    }
    if let Value::String(text) = value {
        read_as_every_text(text, note);
    }
    errors
}

fn read_as_native(value: &Value, mut note: impl FnMut(Option<String>)) {
    let mut value = value.clone();
    let mut errors = Vec::new();
    let gates = Gates::default();
    if let Ok(group) = v1alpha2::PodGroup::deserialize_from(&value) {
        errors.extend(v1alpha2::validate_pod_group(&group, gates));
        errors.extend(v1alpha2::validate_pod_group_update(&group, &v1alpha2::PodGroup::default(), gates));
    }
    if let Ok(workload) = v1alpha2::Workload::deserialize_from(&value) {
        errors.extend(v1alpha2::validate_workload(&workload, gates));
        errors.extend(v1alpha2::validate_workload_update(&workload, &v1alpha2::Workload::default(), gates));
    }
    if let Ok(workload) = v1alpha1::Workload::deserialize_from(&value) {
        errors.extend(v1alpha1::validate_workload(&workload));
        errors.extend(v1alpha1::validate_workload_update(&workload, &v1alpha1::Workload::default()));
    }
    for error in errors {
        note(Some(error.to_string()));
    }
    for gates in [Gates::default(), Gates { topology_aware_workload_scheduling: true, ..Gates::default() }] {
        native::set_pod_group_defaults(&mut value, gates);
        native::drop_disabled_workload(&mut value, None, gates);
        native::drop_disabled_pod_group(&mut value, None, gates);
        let mut errors = Vec::new();
        if let Ok(group) = native::PodGroup::deserialize_from(&value) {
            errors.extend(native::validate_pod_group(&group, gates));
            errors.extend(native::validate_pod_group_update(&group, &native::PodGroup::default(), gates));
            errors.extend(native::validate_pod_group_status_update(&group, &group));
        }
        if let Ok(workload) = native::Workload::deserialize_from(&value) {
            errors.extend(native::validate_workload(&workload, gates));
            errors.extend(native::validate_workload_update(&workload, &native::Workload::default(), gates));
        }
        for error in errors {
            note(Some(error.to_string()));
        }
    }
}

/// Checks that a value that can be read round-trips. Values that cannot be read are ignored.
fn check_round_trip<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &Value,
) -> Option<String> {
    let read = T::deserialize_from(value).ok()?;
    let written = serde_json::to_value(&read).expect("a read value can be serialized");
    assert_eq!(T::deserialize_from(&written).expect("a serialized value can be read"), read);
    None
}

fn read_as_every_text(text: &str, mut note: impl FnMut(Option<String>)) {
    match text.parse::<Quantity>() {
        Ok(quantity) => {
            assert_eq!(quantity.to_string().parse(), Ok(quantity));
            note(quantity.milli_value().err().map(|error| error.to_string()));
        }
        Err(error) => note(Some(error.to_string())),
    }
    for check in [check_dns_label, check_dns_subdomain, check_label_key, check_label_value] {
        note(check(text).err());
    }
}

trait FromValue: Sized {
    fn deserialize_from(value: &Value) -> Result<Self, serde_json::Error>;
}

impl<T: serde::de::DeserializeOwned> FromValue for T {
    fn deserialize_from(value: &Value) -> Result<T, serde_json::Error> {
        T::deserialize(value)
    }
}

fn run(seed: u64) {
    let mut rng = Rng(seed);
    let mut examples = examples();
    let mut value = examples.swap_remove(rng.below(examples.len()));
    for _ in 0..=rng.below(4) {
        mutate(&mut value, &mut rng);
    }
    for error in read_as_everything(&value) {
        assert!(error.len() < 4000, "an error of {} bytes", error.len());
    }
}

#[test]
fn mutated_objects_give_values_or_short_errors() {
    if let Some(seed) = std::env::var("MUSTER_SEED").ok().and_then(|text| text.parse().ok()) {
        run(seed);
        return;
    }
    for seed in 0..CASES {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
        assert!(outcome.is_ok(), "failed with MUSTER_SEED={seed}");
    }
}

#[test]
fn examples_are_mostly_valid_and_mutations_reach_deep_fields() {
    for example in examples() {
        let errors = read_as_everything(&example);
        assert!(errors.len() < 40, "{example}: {errors:?}");
    }
    // The mutations must reach nested fields: some pods still pass and some fail in a field.
    let (mut good, mut bad) = (0, 0);
    for seed in 0..500 {
        let mut pod = examples().swap_remove(0);
        mutate(&mut pod, &mut Rng(seed));
        if let Ok(pod) = Pod::deserialize_from(&pod) {
            match pod_requests(&pod, true) {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
    }
    assert!(good > 50 && bad > 20, "{good} good, {bad} bad");
}
