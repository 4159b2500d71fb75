//! The parser of scenarios: strict, with errors that name file, line, step, field and value.
//!
//! Invariant: an accepted scenario has no unknown field and no meaningless value. Must not depend on the cluster; of
//! carriers only on their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::carrier::Carrier;
use super::field_error::FieldError;
use super::manifest;
use super::model::{About, Action, Config, Create, Fault, Group, Nodes, Scenario, Step};
use super::nodes;
use super::yaml;

/// The maximum number of objects of one step.
const COUNT_MAX: u32 = 100_000;

/// Why a scenario cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The file.
    pub file: String,
    /// The line, if it is known.
    pub line: Option<u64>,
    /// The number of the step, from 1, if it is in one.
    pub step: Option<usize>,
    /// The path of the field, if it is known.
    pub field: String,
    /// What is wrong, with the value.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(step) = self.step {
            write!(f, ": step {step}")?;
        }
        if !self.field.is_empty() && self.field != "." {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The file as it is written; steps are read one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    #[allow(dead_code)] // for readers of the file
    description: String,
    #[serde(default)]
    about: BTreeSet<About>,
    #[serde(default)]
    config: Config,
    #[serde(default)]
    nodes: Vec<Nodes>,
    #[serde(default)]
    carriers: Vec<Carrier>,
    #[serde(default)]
    except: BTreeMap<Carrier, String>,
    steps: Vec<Value>,
}

/// The source positions of the steps.
#[derive(Deserialize)]
struct StepPositions {
    steps: Vec<Spanned<IgnoredAny>>,
}

/// Reads a scenario from a file.
pub fn load(path: &Path) -> Result<Scenario, ParseError> {
    let file = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => parse(&text, path),
        Err(error) => Err(ParseError { file, line: None, step: None, field: String::new(), reason: error.to_string() }),
    }
}

/// Reads a scenario from the text of a file. Paths in it are relative to its directory.
pub fn parse(text: &str, path: &Path) -> Result<Scenario, ParseError> {
    let file = path.display().to_string();
    let error = |FieldError { field, reason }| ParseError { file: file.clone(), line: None, step: None, field, reason };
    let document: Value = yaml::one(text).map_err(|why| ParseError {
        line: why.location().map(|location| location.line()),
        ..error(FieldError::new("", why.without_snippet().to_string()))
    })?;
    let written: Written = read(document).and_then(checked_head).map_err(error)?;
    let lines = lines_of_steps(text, written.steps.len());
    let mut steps = Vec::new();
    for (index, value) in written.steps.into_iter().enumerate() {
        let action = action(value, path).and_then(checked).map_err(|why| ParseError {
            line: lines.get(index).copied(),
            step: Some(index + 1),
            ..error(why)
        })?;
        let line = lines.get(index).copied().unwrap_or_default();
        let end = lines.get(index + 1).map(|next| *next as usize - 1);
        let text = text.lines().take(end.unwrap_or(usize::MAX)).skip((line as usize).saturating_sub(1));
        let text = text.collect::<Vec<_>>().join("\n").trim_end().to_owned();
        steps.push(Step { line, text, action });
    }
    let Written { name, about, config, nodes, carriers, except, .. } = written;
    Ok(Scenario { name, file, about, config, nodes, carriers, except, steps })
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| FieldError::new(error.path().to_string(), error.inner().to_string()))
}

/// Validates what is outside of the steps.
fn checked_head(written: Written) -> Result<Written, FieldError> {
    if written.name.is_empty() {
        return Err(FieldError::new("name", "\"\": must say what the scenario shows"));
    }
    if written.steps.is_empty() {
        return Err(FieldError::new("steps", "[]: a scenario without steps shows nothing"));
    }
    if let Some((carrier, _)) = written.except.iter().find(|(_, why)| why.is_empty()) {
        return Err(FieldError::new(format!("except.{}", carrier.name()), "\"\": must say why"));
    }
    nodes::shapes(&written.nodes)?;
    Ok(written)
}

/// The lines on which the steps begin. Steps that do not start on a line of their own have the line of the first step.
fn lines_of_steps(text: &str, count: usize) -> Vec<u64> {
    let Ok(places) = yaml::one::<StepPositions>(text) else { return Vec::new() };
    let lines: Vec<u64> = places.steps.iter().map(|step| step.referenced.line()).collect();
    if lines.len() == count && lines.is_sorted_by(|one, next| one < next) { lines } else { Vec::new() }
}

fn action(mut value: Value, path: &Path) -> Result<Action, FieldError> {
    if let Some(applied) = value.get_mut("apply").filter(|applied| !applied.is_string()) {
        *applied = file_named(applied, path)?.into();
    }
    read(value)
}

/// The text of the file that `{file: …}` names.
fn file_named(applied: &Value, path: &Path) -> Result<String, FieldError> {
    let wrong = |reason: String| FieldError::new("apply", reason);
    let named = applied.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("file")?.as_str());
    let Some(named) = named else {
        return Err(wrong(format!("{applied}: write the manifests as text, or {{file: name.yaml}}")));
    };
    let file = path.parent().unwrap_or_else(|| Path::new("")).join(named);
    fs::read_to_string(&file).map_err(|error| wrong(format!("file {}: {error}", file.display())))
}

/// Validates what the types cannot express.
fn checked(action: Action) -> Result<Action, FieldError> {
    let wrong = |field: &str, reason: &str| Err(FieldError::new(field, reason));
    match &action {
        Action::Group(group) => check_group(group)?,
        Action::Create(create) => check_create(create)?,
        Action::Delete(list) if list.is_empty() => return wrong("delete", "[]: names nothing"),
        Action::Finish(finish) if finish.pods.is_empty() => {
            return wrong("finish.pods", "[]: names nothing");
        }
        Action::Refused(refused) if refused.apply.is_some() == refused.patch.is_some() => {
            return wrong("refused", "write one of apply and patch");
        }
        Action::Refused(refused) if refused.contains.is_empty() => {
            return wrong("refused.contains", "\"\": must be a part of the server's message");
        }
        Action::Nodes(list) => {
            nodes::shapes(list)?;
        }
        Action::Fault(Fault { answer, delay, times, path, .. }) => {
            if answer.is_some() == delay.is_some() {
                return wrong("fault", "write one of answer and delay");
            }
            if *times == 0 || *times > COUNT_MAX {
                return wrong("fault.times", &format!("{times}: must be from 1 to {COUNT_MAX}"));
            }
            if path.is_empty() {
                return wrong("fault.path", "\"\": must be a part of the requests' path");
            }
        }
        _ => {}
    }
    Ok(action)
}

fn check_group(group: &Group) -> Result<(), FieldError> {
    let kinds = [group.gang.is_some(), group.basic.is_some(), group.subsets.is_some()];
    if kinds.iter().filter(|is_set| **is_set).count() != 1 {
        return Err(FieldError::new("group", "write exactly one of gang, basic and subsets"));
    }
    if group.name.is_empty() {
        return Err(FieldError::new("group.name", "\"\": must be set"));
    }
    Ok(())
}

fn check_create(create: &Create) -> Result<(), FieldError> {
    let wrong = |field: &str, reason: &str| Err(FieldError::new(format!("create.{field}"), reason));
    if create.count == 0 || create.count > COUNT_MAX {
        return wrong("count", &format!("{}: must be from 1 to {COUNT_MAX}", create.count));
    }
    if create.group.is_empty() && !(create.replica_key.is_empty() && create.subset.is_empty()) {
        return wrong("group", "\"\": must be set with a replicaKey or a subset");
    }
    let manifest = Value::Object(create.manifest.clone());
    manifest::check(&manifest).or_else(|error| wrong("manifest", &error.to_string()))?;
    if create.count > 1 {
        let (first, second) = (manifest::numbered(&manifest, 0), manifest::numbered(&manifest, 1));
        let is_generated = manifest["metadata"]["name"].is_null();
        if !is_generated && first["metadata"]["name"] == second["metadata"]["name"] {
            let name = &manifest["metadata"]["name"];
            return wrong("manifest", &format!("metadata.name: {name}: needs {{i}}, since there are several"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::assertions::Expect;
    use super::*;

    const NODES: &str = "nodes: [{name: n, capacity: {cpu: \"1\"}}]\n";

    fn read_text(text: &str) -> Result<Scenario, ParseError> {
        parse(text, Path::new("dir/a.yaml"))
    }

    fn why(step: &str) -> String {
        read_text(&format!("name: a\n{NODES}steps:\n- group: {{name: g, gang: 1}}\n- {step}\n"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_whole_format_is_read() {
        let text = r#"
name: two gangs, room for one
description: what it shows
config: {featureGates: {GangScheduling: true}, kubernetesVersion: "1.37", stock: false}
carriers: [muster, muster-workload, v1beta1, v1alpha3, v1alpha2, v1alpha1, scheduler-plugins, volcano]
except: {v1alpha1: it has no status}
nodes:
- {count: 2, name: "n{i}", capacity: {cpu: "4", memory: 16Gi, pods: 110, nvidia.com/gpu: "8"}, labels: {rack: r0}, taints: []}
steps:
- group: {name: g, gang: 3, disruptionMode: PodGroup, priorityClassName: high, scheduleTimeoutSeconds: 10}
- create: {count: 3, group: g, replicaKey: "", subset: "", manifest: {apiVersion: v1, kind: Pod, metadata: {name: "a-{i}"}, spec: {}}}
# a comment
- apply: |
    apiVersion: v1
    kind: Pod
    metadata: {name: p}
- delete: [{kind: Pod, namespace: default, name: a-0}, {group: g}]
- patch: {apiVersion: muster.dev/v1alpha1, kind: PodGroup, namespace: default, name: g, patch: {spec: {}}}
- finish: {pods: ["default/a-*"], phase: Failed, reason: OutOfcpu}
- nodes: [{name: late, capacity: {cpu: "1"}}]
- restart: scheduler
- restart: {scheduler: gracefully}
- fault: {method: POST, path: /binding, answer: 503, times: 3}
- fault: {method: POST, path: /binding, answer: answerLost}
- fault: {method: PATCH, path: /status, delay: 2s}
- expect:
    within: 20s
    bound: ["default/a-*"]
    unbound: ["default/b-*"]
    boundCount: {"default/c-*": 3}
    gone: ["default/low-*"]
    present: ["default/mid-*"]
    on: {"default/a-0": [n0, n1]}
    oneDomain: {"default/a-*": rack}
    nominated: {"default/a-0": n0}
    demand: ["default/d-*"]
    groups: {g: {scheduled: true, reason: Scheduled, degraded: false, contains: "text"}}
    conditions: [{apiVersion: v1, kind: Pod, name: a-0, type: PodScheduled, status: "False", reason: Unschedulable, contains: "text"}]
    events: [{kind: Pod, name: a-0, reason: FailedScheduling, contains: "text"}]
- hold: {for: 30s, unbound: ["default/b-*"]}
"#;
        let scenario = read_text(text).unwrap();
        assert_eq!((scenario.steps.len(), scenario.file.as_str()), (14, "dir/a.yaml"));
        assert_eq!(scenario.steps[1].line, 11);
        assert_eq!(scenario.except[&Carrier::V1alpha1], "it has no status");
        assert!(scenario.steps[2].text.starts_with("- apply: |\n    apiVersion: v1"), "{}", scenario.steps[2].text);
        assert!(scenario.steps[13].text.ends_with("[\"default/b-*\"]}"));
        let Action::Expect(Expect { within, assertions }) = &scenario.steps[12].action else { panic!() };
        assert_eq!((within.as_millis(), assertions.on.len(), assertions.conditions.len()), (20_000, 1, 1));
    }

    #[test]
    fn errors_name_file_line_step_field_and_value() {
        for (step, expected) in [
            ("expct: {}", "dir/a.yaml:5: step 2: unknown variant `expct`, expected one of `group`, `create`"),
            ("expect: {withn: 5s}", "step 2: expect.withn: unknown field `withn`"),
            ("expect: {within: 5, bound: [default/a]}", "step 2: expect.within: invalid type: integer `5`"),
            ("expect: {within: soon, bound: [default/a]}", "step 2: expect.within: \"soon\" is not a duration"),
            ("expect: {within: 5s}", "step 2: expect: asserts nothing about the cluster"),
            ("expect: {for: 5s, bound: [default/a]}", "step 2: expect: `for` belongs to hold"),
            ("hold: {bound: [default/a]}", "step 2: hold: `for` must say how long"),
            ("hold: {for: 1s, within: 1s, bound: [default/a]}", "`within` belongs to expect"),
            ("expect: {bound: [a-0]}", "step 2: expect.bound[0]: \"a-0\" does not name pods"),
            ("expect: {boundCount: {default/a: many}}", "step 2: expect.boundCount.default/a: invalid type"),
            ("expect: {groups: {g: {}}}", "groups.g: write at least one of scheduled, reason"),
            ("expect: {groups: {g: {schedled: true}}}", "step 2: expect.groups.g.schedled: unknown field"),
            (
                "expect: {conditions: [{kind: Pod, name: a, type: T, status: Yes}]}",
                "step 2: expect.conditions[0].status: unknown variant `Yes`",
            ),
            ("group: {name: g}", "step 2: group: write exactly one of gang, basic and subsets"),
            ("group: {name: g, gang: 1, basic: {}}", "write exactly one of"),
            ("group: {name: g, gang: -1}", "step 2: group.gang: invalid value: integer `-1`"),
            ("group: {name: g, gang: 1, disruptionMode: All}", "unknown variant `All`"),
            ("create: {count: 0, manifest: {}}", "step 2: create.count: 0: must be from 1"),
            ("create: {manifest: {kind: Pod}}", "step 2: create.manifest: apiVersion: null: must be set"),
            (
                "create: {count: 2, manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}}}",
                "metadata.name: \"a\": needs {i}, since there are several",
            ),
            (
                "create: {subset: a, manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}}}",
                "step 2: create.group: \"\": must be set with a replicaKey or a subset",
            ),
            ("apply: \"kind: Pod\"", "step 2: apply: document 1: apiVersion: null: must be set"),
            ("apply: {file: no.yaml}", "step 2: apply: file dir/no.yaml: No such file"),
            ("apply: {fil: no.yaml}", "step 2: apply: {\"fil\":\"no.yaml\"}: write the manifests as text"),
            ("delete: []", "step 2: delete: []: names nothing"),
            ("delete: [{kind: Pod}]", "write kind and name of an object, or the name of a group alone"),
            ("finish: {pods: [default/a], phase: Done}", "step 2: finish.phase: unknown variant `Done`"),
            ("restart: muster", "step 2: restart: \"muster\": write scheduler"),
            ("fault: {method: POST, path: /a, answer: 404}", "step 2: fault.answer: 404: must be one of 409"),
            ("fault: {method: POST, path: /a}", "step 2: fault: write one of answer and delay"),
            ("fault: {method: HEAD, path: /a, answer: 500}", "unknown variant `HEAD`"),
            ("nodes: [{name: n, capacity: {cpu: many}}]", "step 2: nodes[0].capacity[cpu]: \"many\""),
            ("nodes: [{name: n, count: 2, capacity: {}}]", "step 2: nodes[0].name: \"n\": another node has this name"),
        ] {
            let message = why(step);
            assert!(message.contains(expected), "{step}\n{message}\n{expected}");
        }
    }

    #[test]
    fn field_is_a_value_of_the_error() {
        for (nodes, field) in [
            ("{name: A, capacity: {}}", "nodes[0].name"),
            ("{name: n, count: 10001, capacity: {}}", "nodes[0].count"),
            ("{name: n, capacity: {cpu: many}}", "nodes[0].capacity[cpu]"),
        ] {
            let error = read_text(&format!("name: a\nsteps: [{{restart: scheduler}}]\nnodes: [{nodes}]\n"));
            assert_eq!(error.unwrap_err().field, field);
        }
    }

    #[test]
    fn top_level_errors_are_named_too() {
        for (text, expected) in [
            ("name: [", "dir/a.yaml:1: "),
            ("name: a\nname: b\nsteps: []\n", "dir/a.yaml:2: "),
            ("name: a\nsteps: []\n", "dir/a.yaml: steps: []"),
            ("name: a\nstep: []\n", "dir/a.yaml: step: unknown field `step`"),
            ("name: a\nsteps: [{restart: scheduler}]\ncarriers: [v2]\n", "carriers[0]: unknown variant `v2`"),
            (
                "name: a\nsteps: [{expect: {objects: [{apiVersion: scheduling.k8s.io/$version, kind: PodGroup, name: g}]}}]\n",
                "objects: PodGroup: $version needs carriers",
            ),
            (
                "name: a\nsteps: [{restart: scheduler}]\nexcept: {v1alpha1: \"\"}\n",
                "dir/a.yaml: except.v1alpha1: \"\": must say why",
            ),
            (
                "name: a\nsteps: [{restart: scheduler}]\nconfig: {kubernetesVersion: \"1.12\"}\n",
                "dir/a.yaml: config: kubernetesVersion: \"1.12\" is not supported; there is 1.37",
            ),
            (
                "name: a\nsteps: [{restart: scheduler}]\nconfig: {featureGates: {Gangs: true}}\n",
                "dir/a.yaml: config: featureGates.Gangs: unknown feature gate",
            ),
            (
                "name: a\nsteps: [{restart: scheduler}]\nconfig: {backof: {}}\n",
                "dir/a.yaml: config: backof: unknown field `backof`, expected one of",
            ),
            (
                "name: a\nsteps: [{restart: scheduler}]\nconfig: {logLevel: debug}\n",
                "dir/a.yaml: config: logLevel: has no meaning in a scenario",
            ),
            ("name: a\nsteps: [{restart: scheduler}]\nnodes: [{name: A, capacity: {}}]\n", "nodes[0].name: \"A\""),
        ] {
            let message = read_text(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}\n{message}\n{expected}");
        }
    }
}
