//! Inter-pod affinity: gangs with affinity and anti-affinity, and which pods are activated, rejected and preempted
//! because of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::diagnosis::Proof;
use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::inter_pod::{InterPodConstraints, PodSelector, PodTerm, PreferredPodTerm};
use muster_engine::model::labels::{LabelOperator, Labels, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::PodSpec;
use muster_engine::{Diagnosis, PreemptionRules};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, key};

pub(crate) const HOST: &str = "host";
pub(crate) const ZONE: &str = "zone";

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A term that selects pods of the test namespace by this label.
pub(crate) fn app(value: &str, topology_key: &str) -> PodTerm {
    let labels = vec![Requirement { key: "app".to_owned(), operator: LabelOperator::In(vec![value.to_owned()]) }];
    let pods = PodSelector { namespaces: ["ns".to_owned()].into(), namespace_selector: None, labels };
    PodTerm { pods, topology_key: topology_key.to_owned() }
}

fn required_anti_affinity(term: PodTerm) -> InterPodConstraints {
    InterPodConstraints { required_anti_affinity: vec![term], ..InterPodConstraints::default() }
}

fn required_affinity(term: PodTerm) -> InterPodConstraints {
    InterPodConstraints { required_affinity: vec![term], ..InterPodConstraints::default() }
}

/// Sets the `app` label and the inter-pod constraints of a pod.
pub(crate) fn set_app(pod: &mut PodSpec, app: &str, inter_pod: Option<InterPodConstraints>) {
    pod.labels = Arc::new(labels(&[("app", app)]));
    let class = (*pod.class).clone();
    pod.class = Arc::new(muster_engine::model::class::ClassSpec { inter_pod: inter_pod.map(Arc::new), ..class });
}

pub(crate) fn node(fake: &mut FakeCluster, name: &str, zone: &str, cpu: i64) {
    let allocatable = [("cpu".to_owned(), cpu * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    let labels = labels(&[(HOST, name), (ZONE, zone)]);
    fake.put_node(NodeSpec { name: name.into(), labels, allocatable: allocatable.into(), ..NodeSpec::default() });
}

pub(crate) fn gang_with(fake: &mut FakeCluster, name: &str, count: u32, inter_pod: &InterPodConstraints) {
    fake.gang(name, count);
    for number in 0..count {
        fake.pod_with(&format!("{name}-{number}"), name, 1, |pod| set_app(pod, name, Some(inter_pod.clone())));
    }
}

pub(crate) fn nodes_of(fake: &FakeCluster, prefix: &str, count: u32) -> Vec<String> {
    (0..count).filter_map(|number| fake.node_of(&format!("{prefix}-{number}"))).collect()
}

pub(crate) fn zone_of(fake: &FakeCluster, node: &str) -> String {
    fake.nodes[node].labels[ZONE].clone()
}

#[test]
fn gang_with_anti_affinity_gets_a_node_for_each_pod_or_none() {
    let mut fake = FakeCluster::new();
    for number in 0..3 {
        node(&mut fake, &format!("n{number}"), "a", 8);
    }
    gang_with(&mut fake, "g", 4, &required_anti_affinity(app("g", HOST)));
    fake.settle();
    assert_eq!(fake.bound_count("g"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!((shortfall.would_fit, shortfall.proof), (3, Proof::NeverFits));
    let text = shortfall.to_string();
    assert!(text.contains("3 node(s) didn't match pod anti-affinity rules"), "{text}");
    node(&mut fake, "n3", "a", 8);
    fake.advance(2_000);
    assert_eq!(nodes_of(&fake, "g", 4).into_iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn gang_with_affinity_goes_where_all_of_it_fits() {
    let mut fake = FakeCluster::new();
    // The scores prefer the large empty nodes of the small zone.
    node(&mut fake, "n0", "small", 4);
    for number in 1..4 {
        node(&mut fake, &format!("n{number}"), "large", 2);
    }
    gang_with(&mut fake, "g", 6, &required_affinity(app("g", ZONE)));
    fake.settle();
    let places = nodes_of(&fake, "g", 6);
    assert_eq!(places.len(), 6);
    assert!(places.iter().all(|place| zone_of(&fake, place) == "large"), "{places:?}");
}

#[test]
fn gang_that_fits_no_zone_is_proven_impossible() {
    let mut fake = FakeCluster::new();
    for (name, zone) in [("n0", "a"), ("n1", "a"), ("n2", "b")] {
        node(&mut fake, name, zone, 2);
    }
    gang_with(&mut fake, "g", 5, &required_affinity(app("g", ZONE)));
    fake.settle();
    assert_eq!(fake.bound_count("g"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!(shortfall.proof, Proof::Impossible);
    node(&mut fake, "n3", "b", 3);
    fake.advance(2_000);
    assert!(nodes_of(&fake, "g", 5).iter().all(|place| zone_of(&fake, place) == "b"));
}

#[test]
fn pod_with_required_affinity_waits_for_a_match() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 4);
    node(&mut fake, "n1", "b", 4);
    fake.pod_with("w", "", 1, |pod| set_app(pod, "web", Some(required_affinity(app("db", ZONE)))));
    fake.settle();
    assert_eq!(fake.node_of("w"), None);
    let text = fake.pod_diagnosis("w").to_string();
    assert!(text.contains("2 node(s) didn't match pod affinity rules"), "{text}");
    assert!(!text.contains("empty nodes"), "a match may still be created: {text}");
    fake.pod_with("d", "", 1, |pod| {
        set_app(pod, "db", None);
        pod.class = Arc::new(muster_engine::model::class::ClassSpec {
            node_selector: labels(&[(ZONE, "b")]),
            ..(*pod.class).clone()
        });
    });
    fake.advance(2_000);
    assert_eq!(fake.node_of("w").as_deref(), Some("n1"), "the match was placed in the other zone");
}

#[test]
fn anti_affinity_of_existing_pod_blocks_until_it_leaves() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 4);
    node(&mut fake, "n1", "a", 4);
    fake.pod_with("victim", "", 1, |pod| set_app(pod, "victim", Some(required_anti_affinity(app("web", ZONE)))));
    fake.settle();
    let web = fake.pod_with("w", "", 1, |pod| set_app(pod, "web", None));
    fake.settle();
    assert_eq!(fake.node_of("w"), None);
    let text = fake.pod_diagnosis("w").to_string();
    assert!(text.contains("2 node(s) didn't satisfy existing pods anti-affinity rules"), "{text}");
    // With another label it does not match any more.
    fake.change(&web, |pod| pod.labels = Arc::new(labels(&[("app", "other")])));
    fake.advance(2_000);
    assert!(fake.node_of("w").is_some());
    fake.pod_with("w2", "", 1, |pod| set_app(pod, "web", None));
    fake.settle();
    assert_eq!(fake.node_of("w2"), None);
    fake.remove("victim");
    fake.advance(2_000);
    assert!(fake.node_of("w2").is_some());
}

#[test]
fn namespace_selector_matches_a_newly_labelled_namespace() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 4);
    let like = vec![Requirement { key: "team".to_owned(), operator: LabelOperator::Exists }];
    let mut term = app("web", HOST);
    term.pods = PodSelector { namespaces: [].into(), namespace_selector: Some(like), labels: Vec::new() };
    fake.put_namespace("ns", Labels::new());
    fake.pod_with("w", "", 1, |pod| set_app(pod, "web", None));
    fake.settle();
    fake.put_namespace("ns", labels(&[("team", "x")]));
    fake.pod_with("victim", "", 1, |pod| set_app(pod, "victim", Some(required_anti_affinity(term))));
    fake.settle();
    assert_eq!(fake.node_of("victim"), None);
    fake.put_namespace("ns", Labels::new());
    fake.advance(2_000);
    assert!(fake.node_of("victim").is_some());
}

#[test]
fn unselected_namespace_label_activates_nothing() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 1);
    fake.pod_with("large", "", 2, |pod| set_app(pod, "web", Some(required_anti_affinity(app("web", HOST)))));
    fake.settle();
    let before = fake.engine.engine().next_wakeup();
    fake.put_namespace("ns", labels(&[("team", "x")]));
    assert_eq!(fake.engine.engine().next_wakeup(), before, "its queue position and backoff are unchanged");
}

#[test]
fn preferred_affinity_decides_among_feasible_nodes() {
    for (weight, expected) in [(50, "n1"), (-50, "n0")] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", "a", 8);
        node(&mut fake, "n1", "b", 8);
        let there = labels(&[(ZONE, "b")]);
        fake.pod_with("d", "", 1, |pod| {
            set_app(pod, "db", None);
            pod.class =
                Arc::new(muster_engine::model::class::ClassSpec { node_selector: there, ..(*pod.class).clone() });
        });
        fake.settle();
        let preferred = vec![PreferredPodTerm { weight, term: app("db", ZONE) }];
        let inter_pod = InterPodConstraints { preferred, ..InterPodConstraints::default() };
        fake.pod_with("w", "", 1, |pod| set_app(pod, "web", Some(inter_pod)));
        fake.settle();
        assert_eq!(fake.node_of("w").as_deref(), Some(expected));
    }
}

pub(crate) fn preemption_enabled() -> FakeCluster {
    let preemption = PreemptionRules { on: true, ..PreemptionRules::default() };
    FakeCluster::with(muster_engine::Config { preemption, ..muster_engine::Config::default() })
}

#[test]
fn pod_with_anti_affinity_to_a_higher_priority_pod_is_preempted() {
    let mut fake = preemption_enabled();
    node(&mut fake, "n0", "a", 4);
    fake.pod_with("victim", "", 1, |pod| set_app(pod, "victim", Some(required_anti_affinity(app("web", HOST)))));
    fake.pod_with("bystander", "", 1, |pod| set_app(pod, "by", None));
    fake.settle();
    fake.pod_with("w", "", 1, |pod| {
        set_app(pod, "web", None);
        pod.priority = 10;
    });
    fake.advance(3_000);
    assert_eq!(fake.evicted(), ["victim"], "there is room next to the bystander");
    assert!(fake.node_of("w").is_some());
}

#[test]
fn gang_preempts_anti_affinity_matches_in_its_whole_domain() {
    let mut fake = preemption_enabled();
    node(&mut fake, "n0", "a", 2);
    node(&mut fake, "n1", "a", 2);
    for (name, on) in [("x", "n0"), ("y", "n1")] {
        fake.pod_with(name, "", 2, |pod| {
            set_app(pod, name, None);
            pod.node = Some(on.to_owned());
        });
    }
    fake.settle();
    // There must be room on one node, and no pod labelled x in the whole zone.
    let inter_pod = required_anti_affinity(app("x", ZONE));
    fake.gang("g", 2);
    for number in 0..2 {
        fake.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            set_app(pod, "g", Some(inter_pod.clone()));
            pod.priority = 10;
        });
    }
    fake.advance(10_000);
    assert_eq!(fake.evicted(), ["x"]);
    assert_eq!(nodes_of(&fake, "g", 2), ["n0", "n0"]);
}

/// All ways to distribute this many identical pods over nodes, as counts by node.
fn ways(nodes: usize, pods: usize, so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if so_far.len() == nodes {
        if pods == 0 {
            all.push(so_far.clone());
        }
        return;
    }
    for here in 0..=pods {
        so_far.push(here);
        ways(nodes, pods - here, so_far, all);
        so_far.pop();
    }
}

#[test]
fn identical_pods_are_placed_whenever_possible() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(400, |seed| {
        let mut random = Random::new(seed);
        let mut fake = FakeCluster::new();
        let count = 2 + random.below(4);
        let mut sizes = Vec::new();
        for number in 0..count {
            let (zone, size) = (["a", "b", "c"][random.below(3)], random.below(4) as i64);
            node(&mut fake, &format!("n{number}"), zone, size);
            sizes.push((zone, size as usize));
        }
        let pods = 1 + random.below(5);
        let (apart, together) = (random.chance(50), random.chance(50));
        let key = *[HOST, ZONE].get(random.below(2)).unwrap();
        let inter_pod = InterPodConstraints {
            required_anti_affinity: if apart { vec![app("g", if together { HOST } else { key })] } else { Vec::new() },
            required_affinity: if together { vec![app("g", ZONE)] } else { Vec::new() },
            ..InterPodConstraints::default()
        };
        gang_with(&mut fake, "g", pods as u32, &inter_pod);
        fake.settle();
        let mut all = Vec::new();
        ways(count, pods, &mut Vec::new(), &mut all);
        let is_way = |way: &Vec<usize>| {
            let used: Vec<usize> = (0..count).filter(|node| way[*node] > 0).collect();
            let zones: Vec<&str> = used.iter().map(|node| sizes[*node].0).collect();
            let distinct: BTreeSet<&str> = zones.iter().copied().collect();
            let by_zone = apart && !together && key == ZONE;
            way.iter().zip(&sizes).all(|(here, (_, size))| here <= size && (!apart || *here <= 1))
                && (!by_zone || distinct.len() == zones.len())
                && (!together || distinct.len() == 1)
        };
        let possible = all.iter().any(is_way);
        assert_eq!(fake.bound_count("g"), if possible { pods } else { 0 }, "{sizes:?} {pods} {inter_pod:?}");
        if !possible {
            let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else {
                panic!("not unschedulable")
            };
            assert!(matches!(shortfall.proof, Proof::Impossible | Proof::NeverFits), "{:?}", shortfall.proof);
        }
        *(if possible { &mut placed } else { &mut refused }) += 1;
    });
    assert!(placed + refused < 100 || (placed > 50 && refused > 50), "{placed} placed, {refused} refused");
}

#[test]
fn plan_keeps_the_pod_of_lower_priority_that_the_preemptor_has_affinity_to() {
    for alone in [false, true] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", "a", 4);
        for (name, label, cpu) in [("cache", "cache", 1), ("batch", "batch", 3)] {
            fake.pod_with(name, "", cpu, |pod| {
                pod.node = Some("n0".into());
                set_app(pod, label, None);
            });
        }
        let terms = required_affinity(app("cache", HOST));
        if alone {
            fake.pod_with("h", "", 2, |pod| {
                pod.priority = 100;
                set_app(pod, "h", Some(terms));
            });
        } else {
            fake.put_group(GroupSpec { priority: GroupPriority::Own(100), ..GroupSpec::gang(key("h"), 2) });
            for name in ["h-0", "h-1"] {
                fake.pod_with(name, "h", 1, |pod| set_app(pod, "h", Some(terms.clone())));
            }
        }
        fake.decide_all();
        assert_eq!(fake.evicted(), ["batch"], "alone: {alone}");
    }
}

#[test]
fn nothing_is_claimed_about_plans_that_keep_some_of_the_pods_with_affinity() {
    for alone in [false, true] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", "a", 2);
        // Two of these are too many beside it, and one has to stay.
        for name in ["cache-0", "cache-1"] {
            fake.pod_with(name, "", 1, |pod| {
                pod.node = Some("n0".into());
                set_app(pod, "cache", None);
            });
        }
        let terms = required_affinity(app("cache", HOST));
        let text = if alone {
            fake.pod_with("h", "", 1, |pod| {
                pod.priority = 100;
                set_app(pod, "h", Some(terms));
            });
            fake.decide_all();
            fake.pod_diagnosis("h").to_string()
        } else {
            fake.put_group(GroupSpec { priority: GroupPriority::Own(100), ..GroupSpec::gang(key("h"), 1) });
            fake.pod_with("h", "h", 1, |pod| set_app(pod, "h", Some(terms)));
            fake.decide_all();
            fake.group_diagnosis("h").to_string()
        };
        assert!(text.contains("does not prove that there is none"), "{text}");
    }
}
