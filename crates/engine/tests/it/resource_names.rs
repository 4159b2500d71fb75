//! The names of resources that pods request: what one tenant introduces must not keep out others.

use std::sync::Arc;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{PodName, PodSpec};
use muster_engine::{Command, Config, Engine, Observation};

/// As many names as pods may introduce, but for those that are always known.
const NAMES: usize = 1021;

fn pod(name: &str, resources: impl Iterator<Item = String>) -> PodSpec {
    let class = ClassSpec { requests: resources.map(|resource| (resource, 1)).collect(), ..ClassSpec::default() };
    let id = PodName { namespace: "ns".into(), name: name.into(), uid: name.into() };
    PodSpec { id: Arc::new(id), class: Arc::new(class), ours: true, ..PodSpec::default() }
}

fn node(resource: &str) -> Observation {
    let amount = |name: &str| (name.to_owned(), 1000);
    let allocatable = [amount("cpu"), amount("memory"), amount("pods"), amount(resource)].into();
    Observation::NodeSeen(NodeSpec { name: "n0".into(), allocatable, ..NodeSpec::default() })
}

fn reports_and_binds(engine: &mut Engine) -> (Vec<String>, Vec<String>) {
    let (mut reports, mut binds) = (Vec::new(), Vec::new());
    while engine.next_wakeup().is_some_and(|due| due <= engine.now()) {
        for command in engine.decide(engine.now()) {
            match command {
                Command::Report(report) => reports.push(report.diagnosis.to_string()),
                Command::Bind { pod, .. } => binds.push(pod.name.clone()),
                _ => {}
            }
        }
    }
    (reports, binds)
}

#[test]
fn pod_with_very_many_resources_is_refused_with_its_field() {
    let mut engine = Engine::new(Config::default()).expect("the defaults are valid");
    let many = pod("many", (0..NAMES).map(|number| format!("example.com/r{number}")));
    let error = engine.observe(0, Observation::PodSeen(many)).expect_err("too many");
    assert!(error.to_string().contains("more than 64 different resources in one pod"), "{error}");
    let (reports, _) = reports_and_binds(&mut engine);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].contains("spec.containers[*].resources.requests (\"1021\")"), "{reports:?}");
    let new = pod("new", ["example.com/new".to_owned()].into_iter());
    engine.observe(0, Observation::PodSeen(new)).expect("there is room");
}

#[test]
fn names_of_pods_that_are_gone_leave_room_for_others() {
    let mut engine = Engine::new(Config::default()).expect("the defaults are valid");
    engine.observe(0, node("example.com/of-nodes")).expect("a node");
    let names: Vec<String> = (0..NAMES - 1).map(|number| format!("example.com/r{number}")).collect();
    for (number, part) in names.chunks(60).enumerate() {
        let spec = pod(&format!("p{number}"), part.iter().cloned());
        engine.observe(0, Observation::PodSeen(spec)).expect("there is room");
    }
    reports_and_binds(&mut engine);
    let late = pod("late", ["example.com/late".to_owned()].into_iter());
    engine.observe(0, Observation::PodSeen(late)).expect_err("no room for its name");
    let known = pod("known", ["example.com/of-nodes".to_owned()].into_iter());
    engine.observe(0, Observation::PodSeen(known)).expect("its name is known");
    let (reports, binds) = reports_and_binds(&mut engine);
    assert!(reports.iter().any(|report| report.contains("(\"example.com/late\")")), "{reports:?}");
    assert_eq!(binds, ["known"], "resources that nodes have are not concerned");
    engine.observe(0, Observation::PodGone { uid: "p0".into() }).expect("a pod may go");
    engine.observe(0, node("example.com/late")).expect("a node");
    assert_eq!(reports_and_binds(&mut engine).1, ["late"], "it was accepted without being seen again");
}
