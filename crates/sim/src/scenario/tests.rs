//! Tests of whole scenarios with a minimal binder instead of Muster: each step and each assertion succeeds once and
//! fails once.

use std::path::Path;

use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use muster_api::wire::Pod;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::carrier::ScenarioCarrier;
use super::world::World;
use super::{
    Action, Carrier, Failure, Outcome, Place, Report, Scenario, await_true, parse, prepare, run, run_steps, step,
};

const NODES: &str = "nodes:
- {count: 2, name: \"n{i}\", capacity: {cpu: \"4\", memory: 16Gi, pods: \"110\"}, labels: {rack: \"r{i}\"}}
";

fn scenario(steps: &str) -> Scenario {
    let text = format!("name: a test\n{NODES}steps:\n{steps}");
    parse(&text, Path::new("test.yaml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Binds pods of the scheduler `tiny` to n0.
async fn bind_all(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    loop {
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            if pod.spec.node_name.is_empty() && pod.spec.scheduler_name == "tiny" {
                let namespace = pod.namespace().unwrap();
                let body = json!({"metadata": {"name": pod.name_any()}, "target": {"kind": "Node", "name": "n0"}});
                let binding: k8s_openapi::api::core::v1::Binding = serde_json::from_value(body).unwrap();
                let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                let (name, parameters) = (pod.name_any(), PostParams::default());
                pods.create_subresource::<_, Value>("binding", &name, &parameters, &binding).await.ok();
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}

#[test]
fn idle_hour_costs_little() {
    let steps = "
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {schedulerName: none}}}
- hold: {for: 2h, unbound: [default/b]}
";
    let report = run(&scenario(steps), Carrier::Muster, &Place::Process);
    assert!(matches!(report.outcome, Outcome::Passed), "{report}");
    assert!(report.scenario_time.as_secs() >= 7_200, "{report}");
}

/// An environment with two nodes, on its own runtime.
fn world() -> (Runtime, World) {
    let scenario = scenario("- restart: scheduler\n");
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let scenario_carrier = ScenarioCarrier::of(Carrier::Muster, &scenario).unwrap();
    let world = runtime.block_on(async {
        let mut world = World::in_process(&scenario, scenario_carrier).await.unwrap();
        prepare(&mut world, &scenario).await.unwrap();
        world
    });
    (runtime, world)
}

/// Runs the steps with the binder.
fn run_with_binder(steps: &str) -> Result<Report, Failure> {
    let scenario = scenario(steps);
    let (runtime, mut world) = world();
    runtime.block_on(async {
        let binder = tokio::spawn(bind_all(world.objects.client()));
        let mut report = run_nothing(&scenario);
        let outcome = run_steps(&mut world, &scenario, &mut report).await;
        binder.abort();
        outcome.map(|()| report)
    })
}

fn run_nothing(scenario: &Scenario) -> Report {
    Report {
        name: scenario.name.clone(),
        file: scenario.file.clone(),
        carrier: Carrier::Muster,
        steps: scenario.steps.len(),
        completed: Vec::new(),
        outcome: Outcome::Passed,
        unchecked: 0,
        is_interrupted: false,
        scenario_time: std::time::Duration::ZERO,
        wall_time: std::time::Duration::ZERO,
    }
}

fn passes(steps: &str) {
    if let Err(failure) = run_with_binder(steps) {
        panic!("{failure}");
    }
}

/// The failure of these steps, which must be in the last one.
fn fails(steps: &str) -> String {
    let failure = run_with_binder(steps).expect_err("must fail");
    let last = scenario(steps).steps.len();
    assert_eq!(failure.step.as_ref().map(|step| step.number), Some(last), "{failure}");
    failure.problems.join("\n")
}

/// Three pods of the binder and one that is never bound.
const PODS: &str = "
- create: {count: 3, manifest: {apiVersion: v1, kind: Pod, metadata: {name: \"a-{i}\"}, spec: {schedulerName: tiny}}}
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {schedulerName: none}}}
- expect: {boundCount: {\"default/a-*\": 3}}
";

#[test]
fn pods_are_created_bound_run_and_finish() {
    passes(&format!(
        "{PODS}
- expect:
    bound: [default/a-*]
    unbound: [default/b]
    boundCount: {{default/*: 3}}
    on: {{default/a-*: [n0, n9]}}
    oneDomain: {{default/a-*: rack}}
    nominated: {{default/b: \"\"}}
    present: [default/a-*]
    conditions: [{{kind: Pod, name: a-*, type: Ready, status: \"True\"}}]
- finish: {{pods: [default/a-0], phase: Succeeded}}
- finish: {{pods: [default/a-1], phase: Failed, reason: OutOfcpu}}
- hold: {{for: 5m, unbound: [default/b], present: [default/a-*]}}
- expect:
    within: 0s
    conditions:
    - {{kind: Pod, name: a-0, type: Ready, status: \"False\", reason: PodCompleted}}
    - {{kind: Pod, name: a-1, type: Ready, status: \"False\", reason: PodFailed}}
    - {{kind: Pod, name: a-2, type: Ready, status: \"True\"}}
- delete: [{{kind: Pod, namespace: default, name: a-*}}]
- expect: {{gone: [default/a-*]}}
"
    ));
}

#[test]
fn each_assertion_can_fail_and_reports_what_was_seen() {
    let (runtime, mut world) = world();
    runtime.spawn(bind_all(world.objects.client()));
    let pods = scenario(PODS);
    let mut report = run_nothing(&pods);
    runtime.block_on(run_steps(&mut world, &pods, &mut report)).unwrap();
    for (assertion, expected) in [
        ("bound: [default/*]", "bound default/*: 3 of 4 are bound\n  default/b not bound, Pending"),
        ("bound: [default/c-*]", "bound default/c-*: no pod matches"),
        ("unbound: [default/*]", "unbound default/*: 1 of 4 are not bound"),
        ("unbound: [default/c]", "unbound default/c: no pod matches"),
        ("boundCount: {default/*: 4}", "boundCount default/*: 4: 3 of 4 are bound"),
        ("gone: [default/b]", "gone default/b: 1 exist"),
        ("gone: [default/c]", "gone default/c: no pod of this name ever existed"),
        ("present: [default/c]", "present default/c: no pod of this name ever existed"),
        ("on: {default/a-0: [n1]}", "on default/a-0: [\"n1\"]: 0 of 1 are there\n  default/a-0 on n0, Running"),
        ("oneDomain: {default/*: rack}", "oneDomain default/*: rack: 3 of 4 are bound"),
        ("oneDomain: {default/a-*: zone}", "oneDomain default/a-*: zone: they are in 1 domains"),
        ("demand: [default/b]", "demand default/b: 0 of 1 are demand\n  default/b not bound"),
        ("nominated: {default/b: n0}", "nominated default/b: \"n0\": 0 of 1 are nominated so"),
        ("groups: {g: {scheduled: true}}", "group g: the group does not exist"),
        ("conditions: [{kind: Pod, name: z, type: Ready}]", "condition Ready of Pod z: the object does not exist"),
        ("conditions: [{kind: Pod, name: a-0, type: Ready, reason: X}]", "expected reason X\n  a-0: "),
        ("events: [{kind: Pod, name: b, reason: X}]", "event X of Pod b: none among 0"),
    ] {
        let steps = scenario(&format!("- expect: {{within: 3s, {assertion}}}\n")).steps;
        let Action::Expect(expect) = &steps[0].action else { panic!("{assertion}") };
        let message = runtime.block_on(await_true(&mut world, expect)).unwrap_err().join("\n");
        assert!(message.starts_with("not true after 3.0s:\n"), "{message}");
        assert!(message.contains(expected), "{assertion}\n{message}");
    }
}

#[test]
fn held_assertions_must_hold_all_the_time() {
    let message = fails(
        "
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {schedulerName: tiny}}}
- hold: {for: 10s, unbound: [default/a]}
",
    );
    assert!(message.starts_with("no longer true after"), "{message}");
    assert!(message.contains("default/a on n0"), "{message}");
}

#[test]
fn pod_of_the_same_name_is_another_pod() {
    let again = "
- apply: |
    apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {name: s}
    spec:
      replicas: 2
      selector: {matchLabels: {app: s}}
      template:
        metadata: {labels: {app: s}}
        spec: {schedulerName: tiny, terminationGracePeriodSeconds: 1}
- expect: {boundCount: {default/s-*: 2}}
- delete: [{kind: Pod, name: s-*}]
- expect: {boundCount: {default/s-*: 2}, gone: [default/s-x*], present: [default/s-*]}
";
    let message = fails(again);
    assert!(message.contains("gone default/s-x*: no pod of this name ever existed"), "{message}");
    passes(&again.replace(", gone: [default/s-x*]", ""));
    let lost = again.replace(
        "- delete: [{kind: Pod, name: s-*}]",
        "- patch: {apiVersion: apps/v1, kind: ReplicaSet, name: s, patch: {spec: {replicas: 1}}}",
    );
    let lost = lost.replace("boundCount: {default/s-*: 2}, gone: [default/s-x*], ", "within: 5s, ");
    let message = fails(&lost);
    assert!(message.contains("present default/s-*: 1 of 2 still exist"), "{message}");
}

#[test]
fn objects_are_applied_changed_and_deleted() {
    passes(
        "
- apply: |
    apiVersion: scheduling.k8s.io/v1
    kind: PriorityClass
    metadata: {name: high}
    value: 1000
    ---
    {\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"big\", \"labels\": {\"rack\": \"r9\"}},
     \"status\": {\"capacity\": {\"cpu\": \"64\", \"memory\": \"64Gi\", \"pods\": \"10\"}}}
- nodes: [{name: late, capacity: {cpu: \"1\", memory: 1Gi, pods: \"5\"}, taints: [{key: k, effect: NoSchedule}]}]
- expect:
    conditions:
    - {kind: Node, name: big, type: Ready, status: \"True\"}
    - {kind: Node, name: late, type: Ready, status: \"True\"}
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: big, priorityClassName: high}}}
- expect: {on: {default/p: [big]}, conditions: [{kind: Pod, name: p, type: Ready, status: \"True\"}]}
- patch: {kind: Pod, name: p, subresource: status, patch: {status: {conditions: [
    {type: example.com/Mine, status: \"Unknown\", reason: Why, message: some text}]}}}
- expect: {conditions: [{kind: Pod, name: p, type: example.com/Mine, status: Unknown, reason: Why, contains: e t}]}
- patch: {kind: Node, name: late, patch: {spec: {unschedulable: true}}}
- delete: [{kind: Node, name: big}]
- expect: {gone: [default/p]}
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n0}}}
- expect: {on: {default/p: [n0]}}
- delete: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, name: high}]
- nodes: [{name: big, capacity: {cpu: \"1\", memory: 1Gi, pods: \"5\"}}]
- expect: {conditions: [{kind: Node, name: big, type: Ready, status: \"True\"}]}
",
    );
}

#[test]
fn server_errors_name_the_object() {
    let (runtime, mut world) = world();
    for (step, expected) in [
        (
            "create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: UP}}}",
            "create Pod default/UP: Pod \"UP\" is invalid",
        ),
        ("create: {manifest: {apiVersion: v2, kind: Pod, metadata: {name: a}}}", "the cluster serves no Pod of v2"),
        ("delete: [{kind: Pod, name: z}]", "delete Pod z: there is none"),
        ("delete: [{group: z}]", "delete PodGroup z: there is none"),
        ("patch: {kind: Pod, name: z, patch: {}}", "patch Pod z: pods \"z\" not found"),
        ("finish: {pods: [default/z], phase: Failed}", "finish default/z: no pod matches"),
        ("nodes: [{name: n1, capacity: {cpu: \"1\"}}]", "node n1: a node of this name already exists"),
        (
            "apply: \"{apiVersion: v1, kind: Node, metadata: {name: x}}\"",
            "Node x: status.capacity: must be set: the simulated kubelet",
        ),
        ("group: {name: g, gang: 0}", "create PodGroup default/g: "),
        (
            "create: {group: g, manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}",
            "kind: \"ConfigMap\": has no pods that could join group g",
        ),
    ] {
        let steps = scenario(&format!("- {step}\n")).steps;
        let message = runtime.block_on(step::perform(&mut world, &steps[0].action)).unwrap_err().to_string();
        assert!(message.contains(expected), "{step}\n{message}");
    }
    let unbound = "
- create: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {schedulerName: none}}}
- finish: {pods: [default/b], phase: Failed}
";
    assert!(fails(unbound).contains("b has no node"));
}

#[test]
fn groups_are_created_changed_deleted_and_recreated() {
    passes(
        "
- group: {name: g, gang: 3, disruptionMode: PodGroup}
- group: {name: g, gang: 2, disruptionMode: PodGroup}
- delete: [{group: g}]
- group: {name: g, basic: {desiredCount: 4}}
- group: {name: s, subsets: {ps: 1, worker: 3}}
- group: {name: s, subsets: {ps: 1, worker: 4}}
- patch: {apiVersion: muster.dev/v1alpha1, kind: PodGroup, name: g, subresource: status, patch: {status: {conditions: [
    {type: PodGroupScheduled, status: \"False\", reason: Unschedulable, message: m,
     lastTransitionTime: \"2030-01-01T00:00:00Z\"}]}}}
- expect: {groups: {g: {scheduled: false, reason: Unschedulable}}}
",
    );
    let wrong = "
- group: {name: g, gang: 3}
- expect: {within: 1s, groups: {g: {scheduled: false, reason: Unschedulable}}}
";
    assert!(fails(wrong).contains("seen   scheduled: unknown, reason: "));
    let wrong = "
- group: {name: g, gang: 3}
- expect: {within: 1s, groups: {g: {degraded: false}}}
- expect: {within: 1s, groups: {g: {degraded: true, contains: lost}}}
";
    assert!(fails(wrong).contains("expected degraded: true, with \"lost\""));
}

#[test]
fn faults_that_no_request_meets_fail_the_scenario() {
    let result = run_with_binder("- fault: {method: POST, path: /pods/zzz/binding, answer: 503, times: 3}\n");
    assert!(result.unwrap_err().problems[0].contains("3 faults were injected and no request met one"));
}

#[test]
fn carrier_that_cannot_express_a_scenario_skips_it() {
    let skipped = |steps: &str, carrier: Carrier| match run(&scenario(steps), carrier, &Place::Process).outcome {
        Outcome::Skipped(why) => why,
        other => panic!("{other:?}"),
    };
    let subsets = "- group: {name: g, subsets: {a: 1}}\n";
    assert_eq!(skipped(subsets, Carrier::V1beta1), "group g has subsets, which v1beta1 does not have");
    assert_eq!(skipped(subsets, Carrier::MusterWorkload), "group g has subsets, which a Workload does not have");
    let desired = "- group: {name: g, basic: {desiredCount: 2}}\n";
    assert_eq!(skipped(desired, Carrier::V1beta1), "group g has a desiredCount, which v1beta1 does not have");
    let changed = "- group: {name: g, gang: 2}\n- group: {name: g, gang: 1}\n";
    assert_eq!(skipped(changed, Carrier::V1alpha2), "group g is changed, and groups of v1alpha2 are fixed");
    let keys = "
- group: {name: g, gang: 2}
- create: {count: 2, group: g, replicaKey: \"{i}\", manifest: {apiVersion: v1, kind: Pod, metadata: {name: \"a-{i}\"}}}
";
    for carrier in [Carrier::V1beta1, Carrier::V1alpha3, Carrier::V1alpha2] {
        assert!(skipped(keys, carrier).contains("replica keys"));
    }
    for carrier in [Carrier::Muster, Carrier::MusterWorkload, Carrier::V1alpha1] {
        let report = run(&scenario(keys), carrier, &Place::Process);
        assert!(matches!(report.outcome, Outcome::Passed), "{report}");
    }
    for carrier in [Carrier::V1alpha2, Carrier::V1alpha1] {
        let fixed = format!("group g is changed, and groups of {} are fixed", carrier.name());
        assert_eq!(skipped(changed, carrier), fixed);
    }
    let mode = "- group: {name: g, gang: 1, disruptionMode: PodGroup}\n";
    assert_eq!(skipped(mode, Carrier::V1alpha1), "group g has a disruptionMode, which v1alpha1 does not have");
    let class = "- group: {name: g, gang: 1, priorityClassName: system-node-critical}\n";
    assert_eq!(skipped(class, Carrier::V1alpha1), "group g has a priorityClassName, which v1alpha1 does not have");
    let others = [Carrier::SchedulerPlugins, Carrier::Volcano];
    for (carrier, steps, what) in [
        (Carrier::SchedulerPlugins, subsets, "has subsets"),
        (Carrier::SchedulerPlugins, "- group: {name: g, basic: {}}\n", "has a basic policy"),
        (Carrier::SchedulerPlugins, mode, "has a disruptionMode"),
        (Carrier::SchedulerPlugins, class, "has a priorityClassName"),
        (Carrier::SchedulerPlugins, keys, "is used with replica keys"),
        (Carrier::Volcano, desired, "has a desiredCount"),
        (Carrier::Volcano, mode, "has a disruptionMode"),
        (Carrier::Volcano, "- group: {name: g, gang: 1, scheduleTimeoutSeconds: 9}\n", "has a scheduleTimeoutSeconds"),
        (Carrier::Volcano, keys, "is used with replica keys"),
    ] {
        assert_eq!(skipped(steps, carrier), format!("group g {what}, which {} does not have", carrier.name()));
    }
    let can = [
        (Carrier::Volcano, "- group: {name: g, basic: {}}\n"),
        (Carrier::Volcano, subsets),
        (Carrier::Volcano, class),
        (Carrier::SchedulerPlugins, "- group: {name: g, gang: 1, scheduleTimeoutSeconds: 9}\n"),
    ];
    for (carrier, steps) in can.into_iter().chain(others.map(|carrier| (carrier, changed))) {
        let report = run(&scenario(steps), carrier, &Place::Process);
        assert!(matches!(report.outcome, Outcome::Passed), "{report}");
    }
    let mut excluded = scenario("- group: {name: g, gang: 1}\n");
    excluded.except.insert(Carrier::V1alpha2, "it is Tuesday".to_owned());
    let report = run(&excluded, Carrier::V1alpha2, &Place::Process);
    assert!(report.to_string().starts_with("skip a test") && report.to_string().ends_with("it is Tuesday"), "{report}");
}

/// Sets the reason why a pod is not scheduled, as a scheduler would.
fn unscheduled_because(pod: &str, reason: &str) -> String {
    format!(
        "- patch: {{kind: Pod, name: {pod}, subresource: status, patch: {{status: {{conditions: [\
         {{type: PodScheduled, status: \"False\", reason: {reason}}}]}}}}}}\n"
    )
}

#[test]
fn demand_is_counted_once_and_in_one_burst() {
    let pods = "
- create: {count: 2, manifest: {apiVersion: v1, kind: Pod, metadata: {name: \"g-{i}\"}, spec: {schedulerName: none}}}
- expect: {within: 0s, demand: []}
";
    let (first, second) = (unscheduled_because("g-0", "Unschedulable"), unscheduled_because("g-1", "Unschedulable"));
    let both = "- expect: {within: 1s, demand: [default/g-*]}\n";
    passes(&format!("{pods}{first}{second}{both}- hold: {{for: 1m, demand: [default/g-0, default/g-1]}}\n"));
    let waits = "- hold: {for: 6s, present: [default/g-*]}\n";
    let gated = unscheduled_because("g-0", "SchedulingGated");
    for (steps, expected) in [
        (both.to_owned(), "demand default/g-*: 0 of 2 are demand\n  default/g-0 not bound, Pending"),
        (format!("{first}{both}"), "demand default/g-*: 1 of 2 are demand\n  default/g-1 not bound"),
        (
            format!("{first}- expect: {{within: 1s, demand: []}}\n"),
            "demand: 1 more are demand\n  default/g-0 not bound",
        ),
        (
            format!("{first}{second}- expect: {{within: 1s, demand: [default/g-1]}}\n"),
            "demand: 1 more are demand\n  default/g-0",
        ),
        (
            format!("{first}- expect: {{within: 1s, demand: [default/g-0, default/h]}}\n"),
            "demand default/h: no pod matches",
        ),
        (
            format!("{first}{gated}{first}{second}{both}"),
            "1 became demand more than once\n  default/g-0 became demand 2 times",
        ),
        (format!("{first}{waits}{second}{both}"), "demand default/g-*: they became demand over 6."),
        (format!("{first}{second}{both}{gated}- hold: {{for: 1s, demand: [default/g-*]}}\n"), "1 of 2 are demand"),
    ] {
        let message = fails(&format!("{pods}{steps}"));
        assert!(message.contains(expected), "{steps}\n{message}");
    }
}

#[test]
fn taints_are_set_at_the_start_and_removed_later() {
    let steps = "
- nodes: [{name: late, capacity: {cpu: \"64\", memory: 1Gi, pods: \"5\"}, taints: [{key: boot, effect: NoSchedule}]}]
- create:
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: p}
      spec: {containers: [{name: main, image: busybox, resources: {requests: {cpu: \"50\"}}}]}
- hold: {for: 30s, unbound: [default/p]}
- patch: {kind: Node, name: late, patch: {spec: {taints: null}}}
- expect: {on: {default/p: [late]}}
- patch: {kind: Node, name: late, patch: {spec: {taints: [{key: boot, effect: NoExecute}]}}}
- expect: {gone: [default/p]}
";
    let report = run(&scenario(steps), Carrier::Muster, &Place::Process);
    assert!(matches!(report.outcome, Outcome::Passed), "{report}");
}

#[test]
fn deployments_have_pods_and_an_idle_day_passes_in_virtual_time() {
    let steps = "
- apply: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d}
    spec:
      replicas: 2
      selector: {matchLabels: {app: d}}
      template: {metadata: {labels: {app: d}}, spec: {}}
- expect:
    bound: [default/d-*]
    conditions: [{apiVersion: apps/v1, kind: Deployment, name: d, type: Available, status: \"True\"}]
- patch: {apiVersion: apps/v1, kind: Deployment, name: d, patch: {spec: {replicas: 3}}}
- expect: {boundCount: {default/d-*: 3}}
- hold: {for: 24h, bound: [default/d-*]}
";
    let report = run(&scenario(steps), Carrier::Muster, &Place::Process);
    assert!(matches!(report.outcome, Outcome::Passed), "{report}");
    assert!(report.scenario_time.as_secs() >= 24 * 3600, "{report}");
}

#[test]
fn assertions_about_groups_without_status_are_reported_as_unchecked() {
    let steps = "
- group: {name: g, gang: 2}
- create: {count: 1, group: g, manifest: {apiVersion: v1, kind: Pod, metadata: {name: \"a-{i}\"}}}
- expect: {groups: {g: {scheduled: true}}}
- expect: {unbound: [\"default/a-*\"], groups: {g: {scheduled: true}}}
";
    let report = run(&scenario(steps), Carrier::V1alpha1, &Place::Process);
    assert!(matches!(report.outcome, Outcome::Passed), "{report}");
    let expected = "; not checked, since v1alpha1 has no conditions: 2 assertions about groups";
    assert!(report.to_string().ends_with(expected), "{report}");
    assert!(report.scenario_time.as_secs() >= 10, "unchecked assertions still take their time: {report}");
    let wrong =
        format!("{steps}- expect: {{within: 1s, bound: [\"default/a-*\"], groups: {{g: {{scheduled: true}}}}}}\n");
    assert!(run(&scenario(&wrong), Carrier::V1alpha1, &Place::Process).is_failed(), "pods are checked all the same");
    let missing = "- expect: {within: 1s, unbound: [\"default/a\"], groups: {h: {scheduled: true}}}\n";
    assert!(run(&scenario(missing), Carrier::V1alpha1, &Place::Process).is_failed());
}
