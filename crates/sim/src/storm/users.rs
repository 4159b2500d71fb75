//! Users: they make, change, finish and delete groups, pods and sets at random.
//!
//! What they choose from is what the server holds at that moment. They must not know what Muster thinks of it.

use http::Method;
use muster_playground::random::Random;
use serde_json::{Value, json};

use super::manifests::{self, Flaw, GroupPlan, PodPlan, Rank};
use super::rival;
use super::tap::Tap;
use super::truth::{Amounts, GroupKey, Kind, Truth};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// More than any node has.
const NEVER_FITS: i64 = 50;

/// A group that users have made, or will make.
#[derive(Clone, Debug)]
struct Family {
    key: GroupKey,
    plan: GroupPlan,
    timeout_seconds: Option<u64>,
    /// What members ask for; a mixed group has several.
    asks: Vec<Amounts>,
    pool: Option<&'static str>,
    controlled: bool,
    members_made: u64,
    rank: Rank,
}

/// The users.
pub(super) struct Users {
    tap: Tap,
    random: Random,
    rival: bool,
    families: Vec<Family>,
    made: u64,
}

impl Users {
    pub(super) fn new(tap: Tap, random: Random, rival: bool) -> Self {
        Self { tap, random, rival, families: Vec::new(), made: 0 }
    }

    /// Does something.
    pub(super) async fn act(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..=24 => self.new_family().await,
            25..=39 => self.more_members().await,
            40..=54 => self.single_pods().await,
            55..=64 => self.delete_pod().await,
            65..=70 => self.open_gate().await,
            71..=79 => self.change_minimum().await,
            80..=85 => self.delete_group().await,
            86..=90 => self.make_group_again().await,
            91..=95 => self.scale_set().await,
            _ => self.delete_set().await,
        }
    }

    fn name(&mut self, start: &str) -> String {
        self.made += 1;
        format!("{start}{}", self.made)
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        (!list.is_empty()).then(|| list[self.random.below(list.len() as u64) as usize].clone())
    }

    fn look<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        let mut book = self.tap.book.borrow();
        book.catch_up();
        look(&book.truth)
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<(), String> {
        let (code, answer) = self.tap.ask(method.clone(), path, Some(body)).await?;
        // Users are late too: what they mean may be gone or have changed.
        if code < 300 || code == 404 || code == 409 {
            return Ok(());
        }
        Err(format!("{method} {path}: {code} {}\n{body}", answer["message"]))
    }

    fn asks(&mut self) -> Amounts {
        let gpu = i64::from(self.random.per_mille(150));
        Amounts { cpu: 1 + self.random.below(3) as i64, gpu }
    }

    fn pool(&mut self) -> Option<&'static str> {
        self.random.per_mille(150).then(|| if self.random.per_mille(500) { "a" } else { "b" })
    }

    /// A group, its members, or both, in either order, complete or not.
    async fn new_family(&mut self) -> Result<(), String> {
        let kind = [Kind::PodGroup, Kind::PodGroup, Kind::Workload, Kind::Native][self.random.below(4) as usize];
        let name = self.name("g");
        let plan = match (kind, self.random.below(10)) {
            (_, 0..=1) => GroupPlan::Basic,
            (Kind::PodGroup, 2..=4) => {
                GroupPlan::Subsets(vec![("ps".to_owned(), 1), ("worker".to_owned(), 1 + self.random.below(3))])
            }
            _ => GroupPlan::Gang(1 + self.random.below(4)),
        };
        let mixed = self.random.per_mille(250);
        let asks = (0..if mixed { 3 } else { 1 }).map(|_| self.asks()).collect();
        let rank = Rank {
            class: self.random.per_mille(450).then_some("high"),
            // Our own basic groups have no such mode.
            whole: self.random.per_mille(400) && (kind == Kind::Native || !matches!(plan, GroupPlan::Basic)),
        };
        let family = Family {
            rank,
            key: GroupKey {
                kind,
                group: if kind == Kind::Workload { "w".to_owned() } else { String::new() },
                object: name,
                replica: String::new(),
            },
            plan,
            timeout_seconds: self.random.per_mille(300).then(|| 5 + self.random.below(40)),
            asks,
            pool: self.pool(),
            controlled: self.random.per_mille(500),
            members_made: 0,
        };
        self.families.push(family);
        let number = self.families.len() - 1;
        let group_first = self.random.per_mille(700);
        if group_first {
            self.make_group(number).await?;
        }
        if self.random.per_mille(850) {
            self.make_members(number).await?;
        }
        if !group_first && self.random.per_mille(700) {
            self.make_group(number).await?;
        }
        Ok(())
    }

    async fn make_group(&self, number: usize) -> Result<(), String> {
        let family = &self.families[number];
        let object = manifests::group(&family.key, &family.plan, family.timeout_seconds, family.rank);
        self.send(Method::POST, manifests::folder(family.key.kind), &object).await
    }

    /// About as many members as the group needs, for one replica of it.
    async fn make_members(&mut self, number: usize) -> Result<(), String> {
        let family = self.families[number].clone();
        let mut key = family.key.clone();
        if key.kind == Kind::Workload && self.random.per_mille(600) {
            key.replica = format!("r{}", self.random.below(3));
        }
        let lots = match &family.plan {
            GroupPlan::Subsets(subsets) => subsets.clone(),
            GroupPlan::Gang(minimum) => vec![(String::new(), *minimum)],
            GroupPlan::Basic => vec![(String::new(), 1 + self.random.below(3))],
        };
        for (subset, minimum) in lots {
            let count = match self.random.below(10) {
                0..=1 => minimum.saturating_sub(1),
                2..=6 => minimum,
                _ => minimum + 1 + self.random.below(2),
            };
            let subset = if subset.is_empty() || self.random.per_mille(970) { subset } else { "unknown".to_owned() };
            self.make_lot(number, &key, &subset, count).await?;
        }
        Ok(())
    }

    async fn make_lot(&mut self, number: usize, key: &GroupKey, subset: &str, count: u64) -> Result<(), String> {
        let family = self.families[number].clone();
        let mut plan = PodPlan {
            scheduler: "muster",
            asks: family.asks[0],
            pool: family.pool,
            gated: self.random.per_mille(60),
            run_seconds: None,
            group: Some((key.clone(), subset.to_owned())),
            flaw: None,
            priority_class: family.rank.class,
        };
        if family.controlled {
            let name = self.name("s");
            return self.send(Method::POST, SETS, &plan.replica_set(&name, count)).await;
        }
        for _ in 0..count {
            let made = self.families[number].members_made;
            self.families[number].members_made += 1;
            plan.asks = family.asks[made as usize % family.asks.len()];
            plan.gated = self.random.per_mille(60);
            plan.run_seconds = self.random.per_mille(250).then(|| 1 + self.random.below(60));
            plan.flaw = self.random.per_mille(15).then_some(Flaw::Claim);
            let name = self.name(&format!("{}-p", key.object));
            self.send(Method::POST, PODS, &plan.pod(&name)).await?;
        }
        Ok(())
    }

    async fn more_members(&mut self) -> Result<(), String> {
        if self.families.is_empty() {
            return Ok(());
        }
        let number = self.random.below(self.families.len() as u64) as usize;
        self.make_members(number).await
    }

    async fn single_pods(&mut self) -> Result<(), String> {
        for _ in 0..=self.random.below(3) {
            let rival = self.rival && self.random.per_mille(500);
            let mut plan = PodPlan {
                scheduler: if rival { rival::NAME } else { "muster" },
                asks: self.asks(),
                pool: self.pool(),
                gated: self.random.per_mille(100),
                run_seconds: self.random.per_mille(400).then(|| 1 + self.random.below(90)),
                group: None,
                flaw: None,
                priority_class: self.random.per_mille(300).then_some("high"),
            };
            match self.random.below(25) {
                0 => plan.asks.cpu = NEVER_FITS,
                1 => plan.flaw = Some(Flaw::Claim),
                2 => plan.flaw = Some(Flaw::TwoGroups),
                _ => {}
            }
            let name = self.name("p");
            self.send(Method::POST, PODS, &plan.pod(&name)).await?;
        }
        Ok(())
    }

    async fn delete_pod(&mut self) -> Result<(), String> {
        let names: Vec<String> = self.look(|truth| truth.pods.values().map(|pod| pod.name.clone()).collect());
        let Some(name) = self.one_of(&names) else { return Ok(()) };
        let grace = if self.random.per_mille(300) { 0 } else { 2 };
        self.send(Method::DELETE, &format!("{PODS}/{name}"), &json!({"gracePeriodSeconds": grace})).await
    }

    async fn open_gate(&mut self) -> Result<(), String> {
        let gated = |truth: &Truth| {
            let gated = truth.pods.values().filter(|pod| pod.gated && !pod.terminating);
            gated.map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        let names = self.look(gated);
        let Some(name) = self.one_of(&names) else { return Ok(()) };
        self.send(Method::PATCH, &format!("{PODS}/{name}"), &json!({"spec": {"schedulingGates": []}})).await
    }

    async fn change_minimum(&mut self) -> Result<(), String> {
        let changeable: Vec<usize> = (0..self.families.len())
            .filter(|number| {
                let family = &self.families[*number];
                family.key.kind != Kind::Workload && !matches!(family.plan, GroupPlan::Basic)
            })
            .collect();
        let Some(number) = self.one_of(&changeable) else { return Ok(()) };
        let up = self.random.per_mille(500);
        let moved = |count: u64| if up { count + 1 } else { (count - 1).max(1) };
        let family = &mut self.families[number];
        match &mut family.plan {
            GroupPlan::Gang(minimum) => *minimum = moved(*minimum),
            GroupPlan::Subsets(subsets) => {
                for (_, minimum) in subsets {
                    *minimum = moved(*minimum);
                }
            }
            GroupPlan::Basic => {}
        }
        let path = format!("{}/{}", manifests::folder(family.key.kind), family.key.object);
        let change = manifests::change(family.key.kind, &family.plan);
        self.send(Method::PATCH, &path, &change).await
    }

    async fn delete_group(&mut self) -> Result<(), String> {
        let objects: Vec<(Kind, String)> = self.look(|truth| truth.objects.keys().cloned().collect());
        let Some((kind, name)) = self.one_of(&objects) else { return Ok(()) };
        self.send(Method::DELETE, &format!("{}/{name}", manifests::folder(kind)), &json!({})).await
    }

    async fn make_group_again(&mut self) -> Result<(), String> {
        if self.families.is_empty() {
            return Ok(());
        }
        let number = self.random.below(self.families.len() as u64) as usize;
        self.make_group(number).await
    }

    async fn scale_set(&mut self) -> Result<(), String> {
        let sets: Vec<(String, i64)> =
            self.look(|truth| truth.sets.values().map(|set| (set.name.clone(), set.replicas)).collect());
        let Some((name, replicas)) = self.one_of(&sets) else { return Ok(()) };
        let replicas = if self.random.per_mille(500) { replicas + 1 } else { (replicas - 1).max(0) };
        self.send(Method::PATCH, &format!("{SETS}/{name}"), &json!({"spec": {"replicas": replicas}})).await
    }

    async fn delete_set(&mut self) -> Result<(), String> {
        let sets: Vec<String> = self.look(|truth| truth.sets.keys().cloned().collect());
        let Some(name) = self.one_of(&sets) else { return Ok(()) };
        self.send(Method::DELETE, &format!("{SETS}/{name}"), &json!({"propagationPolicy": "Background"})).await
    }
}
