//! Pods that mind who is near: gangs that stand apart or together, and who is woken, refused and evicted for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::diagnosis::Proof;
use muster_engine::model::company::{Company, PodSelector, PodTerm, PreferredPodTerm};
use muster_engine::model::labels::{Demand, Labels, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::PodSpec;
use muster_engine::{Diagnosis, PreemptionRules};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::world::{World, cpus};

pub(crate) const HOST: &str = "host";
pub(crate) const ZONE: &str = "zone";

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Pods of the test's namespace with this label.
pub(crate) fn app(value: &str, topology_key: &str) -> PodTerm {
    let labels = vec![Requirement { key: "app".to_owned(), demand: Demand::In(vec![value.to_owned()]) }];
    let pods = PodSelector { namespaces: ["ns".to_owned()].into(), namespaces_like: None, labels };
    PodTerm { pods, topology_key: topology_key.to_owned() }
}

fn shuns(term: PodTerm) -> Company {
    Company { shuns: vec![term], ..Company::default() }
}

fn seeks(term: PodTerm) -> Company {
    Company { seeks: vec![term], ..Company::default() }
}

/// Gives a pod a label and company.
pub(crate) fn keeps(pod: &mut PodSpec, app: &str, company: Option<Company>) {
    pod.labels = Arc::new(labels(&[("app", app)]));
    let class = (*pod.class).clone();
    pod.class = Arc::new(muster_engine::model::class::ClassSpec { company: company.map(Arc::new), ..class });
}

pub(crate) fn node(world: &mut World, name: &str, zone: &str, cpu: i64) {
    let allocatable = [("cpu".to_owned(), cpu * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    let labels = labels(&[(HOST, name), (ZONE, zone)]);
    world.put_node(NodeSpec { name: name.into(), labels, allocatable: allocatable.into(), ..NodeSpec::default() });
}

pub(crate) fn gang_of(world: &mut World, name: &str, count: u32, company: &Company) {
    world.gang(name, count);
    for number in 0..count {
        world.pod_with(&format!("{name}-{number}"), name, 1, |pod| keeps(pod, name, Some(company.clone())));
    }
}

pub(crate) fn where_is(world: &World, prefix: &str, count: u32) -> Vec<String> {
    (0..count).filter_map(|number| world.node_of(&format!("{prefix}-{number}"))).collect()
}

pub(crate) fn zone_of(world: &World, node: &str) -> String {
    world.nodes[node].labels[ZONE].clone()
}

#[test]
fn a_gang_that_stands_apart_has_a_node_for_each_or_waits_whole() {
    let mut world = World::new();
    for number in 0..3 {
        node(&mut world, &format!("n{number}"), "a", 8);
    }
    gang_of(&mut world, "g", 4, &shuns(app("g", HOST)));
    world.settle();
    assert_eq!(world.bound_count("g"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!((shortfall.would_fit, shortfall.proof), (3, Proof::NeverFits));
    let text = shortfall.to_string();
    assert!(text.contains("3 node(s) didn't match pod anti-affinity rules"), "{text}");
    node(&mut world, "n3", "a", 8);
    world.pass(2_000);
    assert_eq!(where_is(&world, "g", 4).into_iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn a_gang_that_stands_together_goes_where_all_of_it_fits() {
    let mut world = World::new();
    // Scores like the empty large nodes of the small zone best.
    node(&mut world, "n0", "small", 4);
    for number in 1..4 {
        node(&mut world, &format!("n{number}"), "large", 2);
    }
    gang_of(&mut world, "g", 6, &seeks(app("g", ZONE)));
    world.settle();
    let places = where_is(&world, "g", 6);
    assert_eq!(places.len(), 6);
    assert!(places.iter().all(|place| zone_of(&world, place) == "large"), "{places:?}");
}

#[test]
fn a_gang_that_fits_into_no_zone_is_proven_impossible() {
    let mut world = World::new();
    for (name, zone) in [("n0", "a"), ("n1", "a"), ("n2", "b")] {
        node(&mut world, name, zone, 2);
    }
    gang_of(&mut world, "g", 5, &seeks(app("g", ZONE)));
    world.settle();
    assert_eq!(world.bound_count("g"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!(shortfall.proof, Proof::Impossible);
    node(&mut world, "n3", "b", 3);
    world.pass(2_000);
    assert!(where_is(&world, "g", 5).iter().all(|place| zone_of(&world, place) == "b"));
}

#[test]
fn whoever_insists_on_company_waits_for_it() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 4);
    node(&mut world, "n1", "b", 4);
    world.pod_with("w", "", 1, |pod| keeps(pod, "web", Some(seeks(app("db", ZONE)))));
    world.settle();
    assert_eq!(world.node_of("w"), None);
    let text = world.why_pod("w").to_string();
    assert!(text.contains("2 node(s) didn't match pod affinity rules"), "{text}");
    assert!(!text.contains("empty nodes"), "its company may come: {text}");
    world.pod_with("d", "", 1, |pod| {
        keeps(pod, "db", None);
        pod.class = Arc::new(muster_engine::model::class::ClassSpec {
            node_selector: labels(&[(ZONE, "b")]),
            ..(*pod.class).clone()
        });
    });
    world.pass(2_000);
    assert_eq!(world.node_of("w").as_deref(), Some("n1"), "its company came to the other zone");
}

#[test]
fn nobody_goes_near_one_who_shuns_him_until_that_one_leaves() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 4);
    node(&mut world, "n1", "a", 4);
    world.pod_with("hermit", "", 1, |pod| keeps(pod, "hermit", Some(shuns(app("web", ZONE)))));
    world.settle();
    let web = world.pod_with("w", "", 1, |pod| keeps(pod, "web", None));
    world.settle();
    assert_eq!(world.node_of("w"), None);
    let text = world.why_pod("w").to_string();
    assert!(text.contains("2 node(s) didn't satisfy existing pods anti-affinity rules"), "{text}");
    // Another label, and it is not meant any more.
    world.change(&web, |pod| pod.labels = Arc::new(labels(&[("app", "other")])));
    world.pass(2_000);
    assert!(world.node_of("w").is_some());
    world.pod_with("w2", "", 1, |pod| keeps(pod, "web", None));
    world.settle();
    assert_eq!(world.node_of("w2"), None);
    world.remove("hermit");
    world.pass(2_000);
    assert!(world.node_of("w2").is_some());
}

#[test]
fn a_namespace_that_gets_a_label_is_meant_from_then_on() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 4);
    let like = vec![Requirement { key: "team".to_owned(), demand: Demand::Exists }];
    let mut term = app("web", HOST);
    term.pods = PodSelector { namespaces: [].into(), namespaces_like: Some(like), labels: Vec::new() };
    world.put_namespace("ns", Labels::new());
    world.pod_with("w", "", 1, |pod| keeps(pod, "web", None));
    world.settle();
    world.put_namespace("ns", labels(&[("team", "x")]));
    world.pod_with("hermit", "", 1, |pod| keeps(pod, "hermit", Some(shuns(term))));
    world.settle();
    assert_eq!(world.node_of("hermit"), None);
    world.put_namespace("ns", Labels::new());
    world.pass(2_000);
    assert!(world.node_of("hermit").is_some());
}

#[test]
fn a_label_of_a_namespace_that_nobody_asks_about_wakes_nobody() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 1);
    world.pod_with("large", "", 2, |pod| keeps(pod, "web", Some(shuns(app("web", HOST)))));
    world.settle();
    let before = world.engine.engine().next_wakeup();
    world.put_namespace("ns", labels(&[("team", "x")]));
    assert_eq!(world.engine.engine().next_wakeup(), before, "its turn and its backoff are as they were");
}

#[test]
fn welcome_company_decides_among_nodes_that_will_do() {
    for (weight, expected) in [(50, "n1"), (-50, "n0")] {
        let mut world = World::new();
        node(&mut world, "n0", "a", 8);
        node(&mut world, "n1", "b", 8);
        let there = labels(&[(ZONE, "b")]);
        world.pod_with("d", "", 1, |pod| {
            keeps(pod, "db", None);
            pod.class =
                Arc::new(muster_engine::model::class::ClassSpec { node_selector: there, ..(*pod.class).clone() });
        });
        world.settle();
        let prefers = vec![PreferredPodTerm { weight, term: app("db", ZONE) }];
        let company = Company { prefers, ..Company::default() };
        world.pod_with("w", "", 1, |pod| keeps(pod, "web", Some(company)));
        world.settle();
        assert_eq!(world.node_of("w").as_deref(), Some(expected));
    }
}

pub(crate) fn preempting() -> World {
    let preemption = PreemptionRules { on: true, ..PreemptionRules::default() };
    World::with(muster_engine::Config { preemption, ..muster_engine::Config::default() })
}

#[test]
fn one_who_shuns_a_pod_of_higher_priority_is_evicted_for_it() {
    let mut world = preempting();
    node(&mut world, "n0", "a", 4);
    world.pod_with("hermit", "", 1, |pod| keeps(pod, "hermit", Some(shuns(app("web", HOST)))));
    world.pod_with("bystander", "", 1, |pod| keeps(pod, "by", None));
    world.settle();
    world.pod_with("w", "", 1, |pod| {
        keeps(pod, "web", None);
        pod.priority = 10;
    });
    world.pass(3_000);
    assert_eq!(world.evicted(), ["hermit"], "there is room beside the bystander");
    assert!(world.node_of("w").is_some());
}

#[test]
fn a_gang_evicts_whom_it_shuns_wherever_he_stands_near_it() {
    let mut world = preempting();
    node(&mut world, "n0", "a", 2);
    node(&mut world, "n1", "a", 2);
    for (name, on) in [("x", "n0"), ("y", "n1")] {
        world.pod_with(name, "", 2, |pod| {
            keeps(pod, name, None);
            pod.node = Some(on.to_owned());
        });
    }
    world.settle();
    // There must be room on one node, and nobody called x in all the zone.
    let company = shuns(app("x", ZONE));
    world.gang("g", 2);
    for number in 0..2 {
        world.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            keeps(pod, "g", Some(company.clone()));
            pod.priority = 10;
        });
    }
    world.pass(10_000);
    assert_eq!(world.evicted(), ["x"]);
    assert_eq!(where_is(&world, "g", 2), ["n0", "n0"]);
}

/// All ways to put so many like pods on nodes, as numbers by node.
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
fn like_pods_are_placed_whenever_there_is_a_way() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(400, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new();
        let count = 2 + random.below(4);
        let mut sizes = Vec::new();
        for number in 0..count {
            let (zone, size) = (["a", "b", "c"][random.below(3)], random.below(4) as i64);
            node(&mut world, &format!("n{number}"), zone, size);
            sizes.push((zone, size as usize));
        }
        let pods = 1 + random.below(5);
        let (apart, together) = (random.chance(50), random.chance(50));
        let key = *[HOST, ZONE].get(random.below(2)).unwrap();
        let company = Company {
            shuns: if apart { vec![app("g", if together { HOST } else { key })] } else { Vec::new() },
            seeks: if together { vec![app("g", ZONE)] } else { Vec::new() },
            ..Company::default()
        };
        gang_of(&mut world, "g", pods as u32, &company);
        world.settle();
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
        assert_eq!(world.bound_count("g"), if possible { pods } else { 0 }, "{sizes:?} {pods} {company:?}");
        if !possible {
            let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
            assert!(matches!(shortfall.proof, Proof::Impossible | Proof::NeverFits), "{:?}", shortfall.proof);
        }
        *(if possible { &mut placed } else { &mut refused }) += 1;
    });
    assert!(placed + refused < 100 || (placed > 50 && refused > 50), "{placed} placed, {refused} refused");
}

#[test]
fn a_class_without_opinions_is_one_class_whatever_its_labels() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 4);
    for number in 0..3 {
        world.pod_with(&format!("p{number}"), "", 9, |pod| {
            pod.labels = Arc::new(labels(&[("index", &number.to_string())]));
            pod.class = Arc::new(cpus(9));
        });
    }
    world.settle();
    let cluster = world.engine.engine().cluster();
    let classes: BTreeSet<_> = cluster.pods().map(|(_, pod)| pod.class).collect();
    assert_eq!(classes.len(), 1, "nobody asks for their index");
}
