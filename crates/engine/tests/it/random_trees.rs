//! Random runs with trees of groups: whatever fails, no leaf rests below its minimum by an act of the engine, and none
//! runs
//! whose tree has not started.

use std::collections::BTreeMap;

use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec};
use muster_engine::model::tree::{GroupTree, TreeMinimum, TreeNode};
use muster_engine::{BindOutcome, Command, Observation};
use muster_oracle::random::Random;
use muster_oracle::seeds::for_each_seed;

use crate::fake_cluster::{FakeCluster, key};
use crate::trees::{inner, leaf, pod, tree_spec};

/// A tree of two or three levels.
fn random_tree(random: &mut Random) -> Vec<TreeNode> {
    let mut nodes = vec![inner("", 0, 1)];
    let children = 1 + random.below(3);
    for child in 0..children {
        let name = format!("t{child}");
        if random.below(3) == 0 {
            let at = nodes.len();
            let leaves = 1 + random.below(3);
            nodes.push(inner(&name, 0, 1 + random.below(leaves) as u32));
            for number in 0..leaves {
                nodes.push(leaf(&format!("{name}x{number}"), at, 1 + random.below(3) as u32));
            }
        } else {
            nodes.push(leaf(&name, 0, 1 + random.below(3) as u32));
        }
    }
    nodes[0].minimum = TreeMinimum::Groups(1 + random.below(children) as u32);
    nodes
}

/// Executes a command, or lets a bind fail.
fn execute(fake: &mut FakeCluster, random: &mut Random, command: Command, fails: bool) {
    match &command {
        Command::Bind { pod, node, .. } if fails && random.below(5) == 0 => {
            let outcome = match random.below(2) {
                0 => BindOutcome::Transient { message: "busy".into() },
                _ => BindOutcome::Refused { message: "no".into() },
            };
            fake.observe(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
        }
        _ => fake.execute(command),
    }
}

fn settle(fake: &mut FakeCluster, random: &mut Random, fails: bool) {
    for _ in 0..200 {
        fake.decide_all();
        if fake.in_flight.is_empty() {
            return;
        }
        for command in std::mem::take(&mut fake.in_flight) {
            execute(fake, random, command, fails);
        }
    }
}

/// What the leaves of a tree have on nodes.
fn check(fake: &FakeCluster, name: &str, nodes: &[TreeNode]) {
    let tree = GroupTree::from(nodes.to_vec());
    let mut bound: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in fake.pods.values().filter(|pod| pod.node.is_some() && !pod.terminating) {
        let membership = pod.membership.as_ref().filter(|membership| membership.group == key(name));
        if let Some(membership) = membership {
            *bound.entry(&membership.subset).or_default() += 1;
        }
    }
    let rules = tree.rules();
    let has = |subset: usize| bound.get(rules[subset].name.as_str()).copied().unwrap_or(0);
    for (subset, rule) in rules.iter().enumerate() {
        let have = has(subset);
        assert!(have == 0 || have >= rule.min_member, "{name}: {} has {have} of {}", rule.name, rule.min_member);
    }
    let complete = tree.complete(|subset| has(subset) >= rules[subset].min_member);
    for (subset, complete) in complete.iter().enumerate() {
        assert!(*complete || has(subset) == 0, "{name}: {} runs without what is above it", rules[subset].name);
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut fake = FakeCluster::new();
    for number in 0..=random.below(4) {
        fake.node(&format!("n{number}"), 1 + random.below(4) as i64);
    }
    let mut trees = Vec::new();
    for number in 0..=random.below(3) {
        let name = format!("g{number}");
        let nodes = random_tree(&mut random);
        let spec = GroupSpec {
            priority: GroupPriority::Own(random.below(3) as i32),
            // Then a preemptor takes all or nothing of it.
            disruption_mode: DisruptionMode::Group,
            ..tree_spec(&name, nodes.clone())
        };
        fake.put_group(spec);
        trees.push((name, nodes));
    }
    let mut pods = 0;
    for _ in 0..30 {
        let (name, nodes) = &trees[random.below(trees.len())];
        let leaves: Vec<&TreeNode> = nodes.iter().filter(|node| matches!(node.minimum, TreeMinimum::Pods(_))).collect();
        let leaf = leaves[random.below(leaves.len())];
        pods += 1;
        pod(&mut fake, &format!("p{pods}"), name, &leaf.name, 1 + random.below(2) as i64);
        match random.below(6) {
            0 => settle(&mut fake, &mut random, true),
            1 => fake.now += random.below(400_000) as u64,
            2 => fake.node(&format!("m{pods}"), 1 + random.below(3) as i64),
            _ => {}
        }
    }
    // In the end everything works again: starts that cannot be completed are rolled back.
    for _ in 0..400 {
        settle(&mut fake, &mut random, false);
        let Some(due) = fake.engine.engine().next_wakeup() else { break };
        fake.now = fake.now.max(due);
    }
    for (name, nodes) in &trees {
        check(&fake, name, nodes);
    }
}

#[test]
fn trees_rest_whole_or_not_at_all() {
    for_each_seed(300, run);
}

/// Whether pods of these sizes fit on nodes with this much free.
fn fit(sizes: &[i64], free: &mut [i64]) -> bool {
    let Some((size, rest)) = sizes.split_first() else { return true };
    (0..free.len()).any(|node| {
        if free[node] < *size {
            return false;
        }
        free[node] -= size;
        let fits = fit(rest, free);
        free[node] += size;
        fits
    })
}

/// A tree whose pods are all there starts if any choice of its leaves that the root accepts fits, by brute force.
fn starts_if_possible(seed: u64) {
    let mut random = Random::new(seed);
    let mut fake = FakeCluster::new();
    let mut free: Vec<i64> = (0..=random.below(3)).map(|_| 1 + random.below(5) as i64).collect();
    for (number, cpus) in free.iter().enumerate() {
        fake.node(&format!("n{number}"), *cpus);
    }
    let nodes = random_tree(&mut random);
    let tree = GroupTree::from(nodes.clone());
    let rules = tree.rules();
    let sizes: Vec<i64> = rules.iter().map(|_| 1 + random.below(3) as i64).collect();
    fake.put_group(tree_spec("g", nodes.clone()));
    for (rule, size) in rules.iter().zip(&sizes) {
        for number in 0..rule.min_member {
            pod(&mut fake, &format!("{}-{number}", rule.name), "g", &rule.name, *size);
        }
    }
    fake.advance(60_000);
    let possible = (1_u32..1 << rules.len()).any(|chosen| {
        let is_chosen = |subset: usize| chosen & (1 << subset) != 0;
        let mut pods: Vec<i64> = Vec::new();
        for (subset, rule) in rules.iter().enumerate().filter(|(subset, _)| is_chosen(*subset)) {
            pods.extend(std::iter::repeat_n(sizes[subset], rule.min_member as usize));
        }
        pods.sort_unstable_by(|one, other| other.cmp(one));
        tree.is_met(is_chosen) && fit(&pods, &mut free)
    });
    assert_eq!(!fake.bound().is_empty(), possible, "{:?}", fake.group_diagnosis("g"));
    check(&fake, "g", &nodes);
}

#[test]
fn tree_starts_exactly_if_a_choice_of_its_leaves_fits() {
    for_each_seed(400, starts_if_possible);
}
