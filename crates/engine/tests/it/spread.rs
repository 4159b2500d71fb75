//! Pods that are to be spread: gangs over zones, who counts and who does not, and who is woken and evicted for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::Diagnosis;
use muster_engine::diagnosis::Proof;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::company::{Company, PodTerm, Spread, SpreadTerm};
use muster_engine::model::taint::{Effect, Taint};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::company::{HOST, ZONE, app, gang_of, keeps, node, preempting, where_is, zone_of};
use crate::world::{World, cpus};

fn evenly(of: &str, key: &str, skew_max: u32) -> SpreadTerm {
    let PodTerm { pods, topology_key } = app(of, key);
    SpreadTerm { pods, topology_key, skew_max, domains_min: 1, minds_affinity: true, minds_taints: false }
}

fn must(term: SpreadTerm) -> Company {
    Company { spread: Spread { must: vec![term], ..Spread::default() }, ..Company::default() }
}

fn should(term: SpreadTerm) -> Company {
    Company { spread: Spread { should: vec![term], ..Spread::default() }, ..Company::default() }
}

/// A pod of an application, on a node from the start.
fn there(world: &mut World, name: &str, app: &str, node: &str) {
    world.pod_with(name, "", 1, |pod| {
        pod.node = Some(node.to_owned());
        keeps(pod, app, None);
    });
}

/// How many of a gang are in each zone.
fn by_zone(world: &World, gang: &str, count: u32) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for node in where_is(world, gang, count) {
        *zones.entry(zone_of(world, &node)).or_default() += 1;
    }
    zones
}

fn zones(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

#[test]
fn a_gang_is_spread_over_zones_or_waits_whole() {
    let mut world = World::new();
    for (name, zone, cpu) in [("n0", "a", 8), ("n1", "a", 8), ("n2", "b", 8), ("n3", "c", 1)] {
        node(&mut world, name, zone, cpu);
    }
    gang_of(&mut world, "g", 6, &must(evenly("g", ZONE, 1)));
    world.pass(2_000);
    assert_eq!(world.bound_count("g"), 0, "zone c holds one, so the others hold two each");
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!((shortfall.would_fit, shortfall.proof), (5, Proof::Impossible));
    let text = shortfall.to_string();
    assert!(text.contains("3 node(s) didn't match pod topology spread constraints"), "{text}");
    node(&mut world, "n4", "c", 1);
    world.pass(2_000);
    assert_eq!(by_zone(&world, "g", 6), zones(&[("a", 2), ("b", 2), ("c", 2)]));
}

#[test]
fn a_node_without_the_label_will_not_do() {
    let mut world = World::new();
    world.node("bare", 8);
    world.pod_with("p", "", 1, |pod| keeps(pod, "p", Some(must(evenly("p", ZONE, 1)))));
    world.pass(2_000);
    assert_eq!(world.node_of("p"), None);
    let text = world.why_pod("p").to_string();
    assert!(text.contains("topology spread constraints (missing required label)"), "{text}");
    node(&mut world, "n0", "a", 8);
    world.pass(2_000);
    assert_eq!(world.node_of("p").as_deref(), Some("n0"));
}

#[test]
fn with_too_few_domains_the_last_counts_as_empty() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 8);
    gang_of(&mut world, "g", 2, &must(SpreadTerm { domains_min: 2, ..evenly("g", ZONE, 1) }));
    world.pass(2_000);
    assert_eq!(world.bound_count("g"), 0);
    node(&mut world, "n1", "b", 8);
    world.pass(2_000);
    assert_eq!(by_zone(&world, "g", 2), zones(&[("a", 1), ("b", 1)]));
}

#[test]
fn whoever_is_ahead_is_woken_by_those_who_come_elsewhere_and_leave_here() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 8);
    node(&mut world, "n1", "b", 1);
    there(&mut world, "full", "other", "n1");
    there(&mut world, "x0", "x", "n0");
    world.pod_with("p", "", 1, |pod| keeps(pod, "x", Some(must(evenly("x", ZONE, 1)))));
    world.pass(2_000);
    assert_eq!(world.node_of("p"), None, "a has one, b none");
    // Who is on his way out does not count.
    let x0 = world.uid("x0");
    world.change(&x0, |pod| pod.terminating = true);
    world.pass(2_000);
    assert_eq!(world.node_of("p").as_deref(), Some("n0"));
    world.pod_with("q", "", 1, |pod| keeps(pod, "x", Some(must(evenly("x", ZONE, 1)))));
    world.pass(2_000);
    assert_eq!(world.node_of("q"), None);
    // One like it comes to the other zone, by somebody else's hand.
    there(&mut world, "x1", "x", "n1");
    world.pass(2_000);
    assert_eq!(world.node_of("q").as_deref(), Some("n0"));
}

#[test]
fn a_zone_that_is_gone_holds_nobody_back() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 8);
    node(&mut world, "n1", "b", 1);
    there(&mut world, "full", "other", "n1");
    gang_of(&mut world, "g", 2, &must(evenly("g", ZONE, 1)));
    world.pass(2_000);
    assert_eq!(world.bound_count("g"), 0);
    world.remove_node("n1");
    world.pass(2_000);
    assert_eq!(world.bound_count("g"), 2);
}

#[test]
fn nodes_that_the_pod_cannot_use_count_only_if_it_says_so() {
    for (minds_affinity, minds_taints) in [(true, true), (false, true), (true, false)] {
        let mut world = World::new();
        node(&mut world, "n0", "a", 8);
        node(&mut world, "n1", "b", 8);
        let mut tainted = world.nodes["n1"].clone();
        tainted.name = "n2".into();
        tainted.labels.insert(ZONE.to_owned(), "c".to_owned());
        tainted.taints = vec![Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule }];
        world.put_node(tainted);
        let company = must(SpreadTerm { minds_affinity, minds_taints, ..evenly("g", ZONE, 1) });
        world.gang("g", 2);
        for number in 0..2 {
            world.pod_with(&format!("g-{number}"), "g", 1, |pod| {
                pod.class =
                    Arc::new(ClassSpec { node_selector: [(ZONE.to_owned(), "a".to_owned())].into(), ..cpus(1) });
                keeps(pod, "g", Some(company.clone()));
            });
        }
        world.pass(2_000);
        // Zone b is not selected, zone c is tainted and not selected.
        let fits = minds_affinity;
        assert_eq!(world.bound_count("g"), if fits { 2 } else { 0 }, "{minds_affinity} {minds_taints}");
    }
}

#[test]
fn taints_count_only_if_the_pod_says_so() {
    for minds_taints in [true, false] {
        let mut world = World::new();
        node(&mut world, "n0", "a", 8);
        let mut tainted = world.nodes["n0"].clone();
        tainted.name = "n1".into();
        tainted.labels.insert(ZONE.to_owned(), "b".to_owned());
        tainted.taints = vec![Taint { key: "t".into(), value: String::new(), effect: Effect::NoExecute }];
        world.put_node(tainted);
        gang_of(&mut world, "g", 2, &must(SpreadTerm { minds_taints, ..evenly("g", ZONE, 1) }));
        world.pass(2_000);
        assert_eq!(world.bound_count("g"), if minds_taints { 2 } else { 0 });
    }
}

#[test]
fn whoever_should_be_spread_goes_where_fewest_are_and_anywhere_if_need_be() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 8);
    node(&mut world, "n1", "b", 2);
    there(&mut world, "x0", "g", "n0");
    let company = should(evenly("g", ZONE, 1));
    gang_of(&mut world, "g", 4, &company);
    world.pass(2_000);
    assert_eq!(by_zone(&world, "g", 4), zones(&[("a", 2), ("b", 2)]), "b first, until it is full");
}

#[test]
fn one_of_those_who_are_ahead_is_evicted_for_one_who_is_to_be_spread() {
    let mut world = preempting();
    node(&mut world, "n0", "a", 8);
    node(&mut world, "n1", "b", 0);
    there(&mut world, "x", "x", "n0");
    there(&mut world, "bystander", "other", "n0");
    world.pod_with("p", "", 1, |pod| {
        pod.priority = 10;
        keeps(pod, "x", Some(must(evenly("x", ZONE, 1))));
    });
    world.pass(2_000);
    assert_eq!(world.evicted(), ["x"], "there is room, and b stays empty");
    assert_eq!(world.node_of("p").as_deref(), Some("n0"));
}

#[test]
fn those_who_come_back_beside_a_gang_leave_it_spread() {
    let mut world = preempting();
    for (name, zone) in [("n0", "a"), ("n1", "b")] {
        node(&mut world, name, zone, 2);
    }
    // Two like the gang's are in a, two others in b: one of each has to go.
    there(&mut world, "x0", "g", "n0");
    there(&mut world, "x1", "g", "n0");
    there(&mut world, "y0", "other", "n1");
    there(&mut world, "y1", "other", "n1");
    world.gang("g", 2);
    for number in 0..2 {
        world.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            pod.priority = 10;
            keeps(pod, "g", Some(must(evenly("g", ZONE, 1))));
        });
    }
    world.pass(2_000);
    assert_eq!(world.bound_count("g-"), 2);
    let left: Vec<(String, usize)> = by_zone(&world, "g", 2).into_iter().collect();
    let like_left = ["x0", "x1"].iter().filter(|name| !world.evicted().contains(&(**name).to_owned())).count();
    let in_a = like_left + left.iter().find(|(zone, _)| zone == "a").map_or(0, |(_, count)| *count);
    let in_b = left.iter().find(|(zone, _)| zone == "b").map_or(0, |(_, count)| *count);
    assert!(in_a.abs_diff(in_b) <= 1, "{in_a} in a, {in_b} in b, evicted {:?}", world.evicted());
    assert!(world.evicted().len() <= 2, "{:?}", world.evicted());
}

/// The most that can be placed one after the other, by zone: how many are there and how many more there is room for.
fn most(zones: &BTreeMap<&str, (usize, usize)>, skew: usize, domains_min: usize) -> usize {
    let start: Vec<usize> = vec![0; zones.len()];
    let (mut seen, mut heap, mut most) = (BTreeSet::from([start.clone()]), vec![start], 0);
    while let Some(placed) = heap.pop() {
        most = most.max(placed.iter().sum());
        let now: Vec<usize> = placed.iter().zip(zones.values()).map(|(more, (there, _))| more + there).collect();
        let least = if zones.len() < domains_min { 0 } else { *now.iter().min().expect("there are zones") };
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
fn like_pods_that_are_spread_are_placed_whenever_there_is_a_way() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(400, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new();
        let apart = random.chance(40);
        let mut by_zone: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for number in 0..2 + random.below(4) {
            let (zone, size) = (["a", "b", "c"][random.below(3)], random.below(5));
            let name = format!("n{number}");
            node(&mut world, &name, zone, size as i64);
            let there_already = random.below(size.min(2) + 1);
            for number in 0..there_already {
                there(&mut world, &format!("x{number}-{name}"), "g", &name);
            }
            let free = size - there_already;
            let room = if apart { usize::from(free > 0 && there_already == 0) } else { free };
            let zone = by_zone.entry(zone).or_default();
            *zone = (zone.0 + there_already, zone.1 + room);
        }
        let (pods, skew, domains_min) = (1 + random.below(8), 1 + random.below(2), 1 + random.below(3));
        let mut company = must(SpreadTerm { domains_min: domains_min as u32, ..evenly("g", ZONE, skew as u32) });
        if apart {
            company.shuns.push(app("g", HOST));
        }
        gang_of(&mut world, "g", pods as u32, &company);
        world.pass(2_000);
        let possible = most(&by_zone, skew, domains_min) >= pods;
        assert_eq!(world.bound_count("g-"), if possible { pods } else { 0 }, "{by_zone:?} {pods} {skew} {domains_min}");
        if !possible {
            let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
            assert!(matches!(shortfall.proof, Proof::Impossible | Proof::NeverFits), "{:?}", shortfall.proof);
        }
        *(if possible { &mut placed } else { &mut refused }) += 1;
    });
    assert!(placed + refused < 100 || (placed > 50 && refused > 50), "{placed} placed, {refused} refused");
}

#[test]
fn a_gang_that_full_zones_keep_out_would_fit_if_they_were_empty() {
    let mut world = World::new();
    for (name, zone) in [("n0", "a"), ("n1", "b"), ("n2", "c")] {
        node(&mut world, name, zone, 8);
        world.pod_with(&format!("full-{name}"), "", 8, |pod| pod.node = Some(name.to_owned()));
    }
    gang_of(&mut world, "g", 12, &must(evenly("g", ZONE, 1)));
    world.pass(2_000);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!(shortfall.proof, Proof::Impossible, "four in each zone are no more than one ahead");
}

#[test]
fn a_pod_that_gets_labels_and_terms_at_once_is_counted_once() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 8);
    node(&mut world, "n1", "b", 8);
    // Somebody asks about the new label already, by host.
    world.pod_with("q", "", 1, |pod| keeps(pod, "other", Some(must(evenly("new", HOST, 1)))));
    there(&mut world, "x", "old", "n0");
    world.pass(2_000);
    let x = world.uid("x");
    world.change(&x, |pod| keeps(pod, "new", Some(must(evenly("new", ZONE, 1)))));
    world.check("labels and terms changed at once");
    world.pod_with("p", "", 1, |pod| keeps(pod, "new", Some(must(evenly("new", ZONE, 1)))));
    world.pass(2_000);
    assert_eq!(world.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn pods_that_only_like_different_things_are_alike() {
    let mut world = World::new();
    node(&mut world, "n0", "a", 3);
    world.gang("g", 4);
    for number in 0..4 {
        world.pod_with(&format!("g-{number}"), "g", 1, |pod| {
            let image = format!("image-{number}").as_str().into();
            let company = should(evenly(&format!("s{number}"), ZONE, 1));
            pod.class = Arc::new(ClassSpec { images: vec![image], ..cpus(1) });
            keeps(pod, &format!("s{number}"), Some(company));
        });
    }
    world.pass(2_000);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert!(matches!(shortfall.proof, Proof::Impossible | Proof::NeverFits), "{:?}", shortfall.proof);
}
