//! Topology spread constraints: gangs spread over zones, which pods count, and which are activated and preempted
//! because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::Diagnosis;
use muster_engine::diagnosis::Proof;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::inter_pod::{InterPodConstraints, PodTerm, Spread, SpreadTerm};
use muster_engine::model::taint::{Effect, Taint};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, cpus};
use crate::inter_pod_affinity::{HOST, ZONE, app, gang_with, node, nodes_of, preemption_enabled, set_app, zone_of};

fn spread_term(of: &str, key: &str, max_skew: u32) -> SpreadTerm {
    let PodTerm { pods, topology_key } = app(of, key);
    SpreadTerm { pods, topology_key, max_skew, min_domains: 1, honors_node_affinity: true, honors_node_taints: false }
}

fn do_not_schedule(term: SpreadTerm) -> InterPodConstraints {
    InterPodConstraints {
        spread: Spread { do_not_schedule: vec![term], ..Spread::default() },
        ..InterPodConstraints::default()
    }
}

fn schedule_anyway(term: SpreadTerm) -> InterPodConstraints {
    InterPodConstraints {
        spread: Spread { schedule_anyway: vec![term], ..Spread::default() },
        ..InterPodConstraints::default()
    }
}

/// Creates a bound pod with an `app` label.
fn bound_pod(fake: &mut FakeCluster, name: &str, app: &str, node: &str) {
    fake.pod_with(name, "", 1, |pod| {
        pod.node = Some(node.to_owned());
        set_app(pod, app, None);
    });
}

/// How many pods of a gang are in each zone.
fn by_zone(fake: &FakeCluster, gang: &str, count: u32) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for node in nodes_of(fake, gang, count) {
        *zones.entry(zone_of(fake, &node)).or_default() += 1;
    }
    zones
}

fn zones(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

#[test]
fn gang_is_spread_over_zones_or_not_placed() {
    let mut fake = FakeCluster::new();
    for (name, zone, cpu) in [("n0", "a", 8), ("n1", "a", 8), ("n2", "b", 8), ("n3", "c", 1)] {
        node(&mut fake, name, zone, cpu);
    }
    gang_with(&mut fake, "g", 6, &do_not_schedule(spread_term("g", ZONE, 1)));
    fake.advance(2_000);
    assert_eq!(fake.bound_count("g"), 0, "zone c holds one, so the others may hold two each");
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!((shortfall.would_fit, shortfall.proof), (5, Proof::Impossible));
    let text = shortfall.to_string();
    assert!(text.contains("3 node(s) didn't match pod topology spread constraints"), "{text}");
    node(&mut fake, "n4", "c", 1);
    fake.advance(2_000);
    assert_eq!(by_zone(&fake, "g", 6), zones(&[("a", 2), ("b", 2), ("c", 2)]));
}

#[test]
fn node_without_the_topology_key_is_infeasible() {
    let mut fake = FakeCluster::new();
    fake.node("bare", 8);
    fake.pod_with("p", "", 1, |pod| set_app(pod, "p", Some(do_not_schedule(spread_term("p", ZONE, 1)))));
    fake.advance(2_000);
    assert_eq!(fake.node_of("p"), None);
    let text = fake.pod_diagnosis("p").to_string();
    assert!(text.contains("topology spread constraints (missing required label)"), "{text}");
    node(&mut fake, "n0", "a", 8);
    fake.advance(2_000);
    assert_eq!(fake.node_of("p").as_deref(), Some("n0"));
}

#[test]
fn global_minimum_is_zero_with_too_few_domains() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 8);
    gang_with(&mut fake, "g", 2, &do_not_schedule(SpreadTerm { min_domains: 2, ..spread_term("g", ZONE, 1) }));
    fake.advance(2_000);
    assert_eq!(fake.bound_count("g"), 0);
    node(&mut fake, "n1", "b", 8);
    fake.advance(2_000);
    assert_eq!(by_zone(&fake, "g", 2), zones(&[("a", 1), ("b", 1)]));
}

#[test]
fn pods_placed_elsewhere_or_leaving_activate_a_blocked_pod() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 8);
    node(&mut fake, "n1", "b", 1);
    bound_pod(&mut fake, "full", "other", "n1");
    bound_pod(&mut fake, "x0", "x", "n0");
    fake.pod_with("p", "", 1, |pod| set_app(pod, "x", Some(do_not_schedule(spread_term("x", ZONE, 1)))));
    fake.advance(2_000);
    assert_eq!(fake.node_of("p"), None, "a has one, b none");
    // A terminating pod does not count.
    let x0 = fake.uid("x0");
    fake.change(&x0, |pod| pod.terminating = true);
    fake.advance(2_000);
    assert_eq!(fake.node_of("p").as_deref(), Some("n0"));
    fake.pod_with("q", "", 1, |pod| set_app(pod, "x", Some(do_not_schedule(spread_term("x", ZONE, 1)))));
    fake.advance(2_000);
    assert_eq!(fake.node_of("q"), None);
    // Another scheduler places a matching pod in the other zone.
    bound_pod(&mut fake, "x1", "x", "n1");
    fake.advance(2_000);
    assert_eq!(fake.node_of("q").as_deref(), Some("n0"));
}

#[test]
fn deleted_zone_blocks_no_pod() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 8);
    node(&mut fake, "n1", "b", 1);
    bound_pod(&mut fake, "full", "other", "n1");
    gang_with(&mut fake, "g", 2, &do_not_schedule(spread_term("g", ZONE, 1)));
    fake.advance(2_000);
    assert_eq!(fake.bound_count("g"), 0);
    fake.remove_node("n1");
    fake.advance(2_000);
    assert_eq!(fake.bound_count("g"), 2);
}

#[test]
fn node_inclusion_policies_decide_which_nodes_count() {
    for (honors_node_affinity, honors_node_taints) in [(true, true), (false, true), (true, false)] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", "a", 8);
        node(&mut fake, "n1", "b", 8);
        let mut tainted = fake.nodes["n1"].clone();
        tainted.name = "n2".into();
        tainted.labels.insert(ZONE.to_owned(), "c".to_owned());
        tainted.taints = vec![Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule }];
        fake.put_node(tainted);
        let inter_pod =
            do_not_schedule(SpreadTerm { honors_node_affinity, honors_node_taints, ..spread_term("g", ZONE, 1) });
        fake.gang("g", 2);
        for number in 0..2 {
            fake.pod_with(&format!("g-{number}"), "g", 1, |pod| {
                pod.class =
                    Arc::new(ClassSpec { node_selector: [(ZONE.to_owned(), "a".to_owned())].into(), ..cpus(1) });
                set_app(pod, "g", Some(inter_pod.clone()));
            });
        }
        fake.advance(2_000);
        // Zone b is not selected, zone c is tainted and not selected.
        let fits = honors_node_affinity;
        assert_eq!(fake.bound_count("g"), if fits { 2 } else { 0 }, "{honors_node_affinity} {honors_node_taints}");
    }
}

#[test]
fn tainted_nodes_count_unless_taints_are_honored() {
    for honors_node_taints in [true, false] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", "a", 8);
        let mut tainted = fake.nodes["n0"].clone();
        tainted.name = "n1".into();
        tainted.labels.insert(ZONE.to_owned(), "b".to_owned());
        tainted.taints = vec![Taint { key: "t".into(), value: String::new(), effect: Effect::NoExecute }];
        fake.put_node(tainted);
        gang_with(&mut fake, "g", 2, &do_not_schedule(SpreadTerm { honors_node_taints, ..spread_term("g", ZONE, 1) }));
        fake.advance(2_000);
        assert_eq!(fake.bound_count("g"), if honors_node_taints { 2 } else { 0 });
    }
}

#[test]
fn schedule_anyway_prefers_the_emptiest_zone_and_never_blocks() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 8);
    node(&mut fake, "n1", "b", 2);
    bound_pod(&mut fake, "x0", "g", "n0");
    let inter_pod = schedule_anyway(spread_term("g", ZONE, 1));
    gang_with(&mut fake, "g", 4, &inter_pod);
    fake.advance(2_000);
    assert_eq!(by_zone(&fake, "g", 4), zones(&[("a", 2), ("b", 2)]), "b first, until it is full");
}

#[test]
fn pod_in_a_full_domain_is_preempted_for_a_spread_pod() {
    let mut fake = preemption_enabled();
    node(&mut fake, "n0", "a", 8);
    node(&mut fake, "n1", "b", 0);
    bound_pod(&mut fake, "x", "x", "n0");
    bound_pod(&mut fake, "bystander", "other", "n0");
    fake.pod_with("p", "", 1, |pod| {
        pod.priority = 10;
        set_app(pod, "x", Some(do_not_schedule(spread_term("x", ZONE, 1))));
    });
    fake.advance(2_000);
    assert_eq!(fake.evicted(), ["x"], "there is room, and b stays empty");
    assert_eq!(fake.node_of("p").as_deref(), Some("n0"));
}

#[test]
fn reprieved_victims_keep_the_gang_spread() {
    let mut fake = preemption_enabled();
    for (name, zone) in [("n0", "a"), ("n1", "b")] {
        node(&mut fake, name, zone, 2);
    }
    // Two matching pods are in a, two others in b: one of each must be evicted.
    bound_pod(&mut fake, "x0", "g", "n0");
    bound_pod(&mut fake, "x1", "g", "n0");
    bound_pod(&mut fake, "y0", "other", "n1");
    bound_pod(&mut fake, "y1", "other", "n1");
    fake.gang("g", 2);
    for number in 0..2 {
        fake.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            pod.priority = 10;
            set_app(pod, "g", Some(do_not_schedule(spread_term("g", ZONE, 1))));
        });
    }
    fake.advance(2_000);
    assert_eq!(fake.bound_count("g-"), 2);
    let left: Vec<(String, usize)> = by_zone(&fake, "g", 2).into_iter().collect();
    let like_left = ["x0", "x1"].iter().filter(|name| !fake.evicted().contains(&(**name).to_owned())).count();
    let in_a = like_left + left.iter().find(|(zone, _)| zone == "a").map_or(0, |(_, count)| *count);
    let in_b = left.iter().find(|(zone, _)| zone == "b").map_or(0, |(_, count)| *count);
    assert!(in_a.abs_diff(in_b) <= 1, "{in_a} in a, {in_b} in b, evicted {:?}", fake.evicted());
    assert!(fake.evicted().len() <= 2, "{:?}", fake.evicted());
}

/// The most pods that can be placed one by one, given the current count and the free room by zone.
fn most(zones: &BTreeMap<&str, (usize, usize)>, skew: usize, min_domains: usize) -> usize {
    let start: Vec<usize> = vec![0; zones.len()];
    let (mut seen, mut heap, mut most) = (BTreeSet::from([start.clone()]), vec![start], 0);
    while let Some(placed) = heap.pop() {
        most = most.max(placed.iter().sum());
        let now: Vec<usize> = placed.iter().zip(zones.values()).map(|(more, (there, _))| more + there).collect();
        let least = if zones.len() < min_domains { 0 } else { *now.iter().min().expect("there are zones") };
        for (zone, (_, room)) in zones.values().enumerate() {
            if placed[zone] < *room && now[zone] < least + skew {
                let mut next = placed.clone();
                next[zone] += 1;
                if seen.insert(next.clone()) {
                    heap.push(next);
                }
            }
        }
    }
    most
}

#[test]
fn identical_spread_pods_are_placed_whenever_possible() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(400, |seed| {
        let mut random = Random::new(seed);
        let mut fake = FakeCluster::new();
        let apart = random.chance(40);
        let mut by_zone: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for number in 0..2 + random.below(4) {
            let (zone, size) = (["a", "b", "c"][random.below(3)], random.below(5));
            let name = format!("n{number}");
            node(&mut fake, &name, zone, size as i64);
            let there_already = random.below(size.min(2) + 1);
            for number in 0..there_already {
                bound_pod(&mut fake, &format!("x{number}-{name}"), "g", &name);
            }
            let free = size - there_already;
            let room = if apart { usize::from(free > 0 && there_already == 0) } else { free };
            let zone = by_zone.entry(zone).or_default();
            *zone = (zone.0 + there_already, zone.1 + room);
        }
        let (pods, skew, min_domains) = (1 + random.below(8), 1 + random.below(2), 1 + random.below(3));
        let mut inter_pod =
            do_not_schedule(SpreadTerm { min_domains: min_domains as u32, ..spread_term("g", ZONE, skew as u32) });
        if apart {
            inter_pod.required_anti_affinity.push(app("g", HOST));
        }
        gang_with(&mut fake, "g", pods as u32, &inter_pod);
        fake.advance(2_000);
        let possible = most(&by_zone, skew, min_domains) >= pods;
        assert_eq!(fake.bound_count("g-"), if possible { pods } else { 0 }, "{by_zone:?} {pods} {skew} {min_domains}");
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
fn gang_blocked_by_full_zones_would_fit_empty_ones() {
    let mut fake = FakeCluster::new();
    for (name, zone) in [("n0", "a"), ("n1", "b"), ("n2", "c")] {
        node(&mut fake, name, zone, 8);
        fake.pod_with(&format!("full-{name}"), "", 8, |pod| pod.node = Some(name.to_owned()));
    }
    gang_with(&mut fake, "g", 12, &do_not_schedule(spread_term("g", ZONE, 1)));
    fake.advance(2_000);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!(shortfall.proof, Proof::Impossible, "four pods per zone have a skew of at most one");
}

#[test]
fn pod_with_new_labels_and_terms_is_counted_once() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 8);
    node(&mut fake, "n1", "b", 8);
    // A selector by host already refers to the new label.
    fake.pod_with("q", "", 1, |pod| set_app(pod, "other", Some(do_not_schedule(spread_term("new", HOST, 1)))));
    bound_pod(&mut fake, "x", "old", "n0");
    fake.advance(2_000);
    let x = fake.uid("x");
    fake.change(&x, |pod| set_app(pod, "new", Some(do_not_schedule(spread_term("new", ZONE, 1)))));
    fake.check("labels and terms changed at once");
    fake.pod_with("p", "", 1, |pod| set_app(pod, "new", Some(do_not_schedule(spread_term("new", ZONE, 1)))));
    fake.advance(2_000);
    assert_eq!(fake.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn pods_with_different_preferences_have_equal_requirements() {
    let mut fake = FakeCluster::new();
    node(&mut fake, "n0", "a", 3);
    fake.gang("g", 4);
    for number in 0..4 {
        fake.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            let image = format!("image-{number}").as_str().into();
            let inter_pod = schedule_anyway(spread_term(&format!("s{number}"), ZONE, 1));
            pod.class = Arc::new(ClassSpec { images: vec![image], ..cpus(1) });
            set_app(pod, &format!("s{number}"), Some(inter_pod));
        });
    }
    fake.advance(2_000);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert!(matches!(shortfall.proof, Proof::Impossible | Proof::NeverFits), "{:?}", shortfall.proof);
}
