//! Rows of pods, with the status column that summarizes a pod's whole state.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{NONE, condition, containers, holds, labels, list, name, number, text, text_or};
use super::{AGE, Column, NAME, TablePrinter, age, text as column, wide};

pub(super) static PODS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Ready", "How many of the pod's containers are ready."),
        column("Status", "The state of the pod and its containers in a word."),
        column("Restarts", "How often containers of the pod were started again, and when the last one was."),
        AGE,
        wide("IP", "The address of the pod."),
        wide("Node", "The node that the pod is bound to."),
        wide("Nominated Node", "The node on which pods are preempted for the pod."),
        wide("Readiness Gates", "How many of the pod's readiness gates are open."),
    ],
    cells,
);

const TEMPLATE_COLUMNS: &[Column] = &[
    NAME,
    column("Containers", "The names of the containers in the template."),
    column("Images", "The images of the containers in the template."),
    column("Pod Labels", "The labels of pods created from the template."),
];

pub(super) static TEMPLATES: TablePrinter = TablePrinter::new(TEMPLATE_COLUMNS, |object, _| {
    let template = &object["template"];
    let [names, images] = containers(template);
    vec![name(object), names, images, json!(labels(&template["metadata"]["labels"]))]
});

/// Marks rows of terminated pods, for clients that filter them.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(&pod["status"]["phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sum = Summary::of(pod);
    let restarts = match (sum.restarts.count, sum.restarts.last) {
        (count @ 1.., Some(last)) => format!("{count} ({} ago)", age::between(last, now)),
        (count, _) => count.to_string(),
    };
    vec![
        name(pod),
        json!(format!("{}/{}", sum.ready, sum.containers)),
        json!(sum.reason),
        json!(restarts),
        age::of(pod, now),
        json!(text_or(&status["podIPs"][0]["ip"], NONE)),
        json!(text_or(&spec["nodeName"], NONE)),
        json!(text_or(&status["nominatedNodeName"], NONE)),
        json!(gates(pod)),
    ]
}

fn gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates.iter().filter(|gate| holds(pod, text(&gate["conditionType"]))).count();
    format!("{open}/{}", gates.len())
}

/// The summary of containers and conditions.
struct Summary {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: Restarts,
}

/// The number of container restarts, and when the last one was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(&container["restartCount"]);
        self.last = self.last.max(age::read(&container["lastState"]["terminated"]["finishedAt"]));
    }
}

/// Whether an init container is a sidecar.
fn is_sidecar(pod: &Value, of_name: &Value) -> bool {
    let containers = list(&pod["spec"]["initContainers"]).iter();
    containers.filter(|container| container["name"] == *of_name).any(|container| container["restartPolicy"] == "Always")
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let sidecars = list(&spec["initContainers"]).iter().filter(|container| container["restartPolicy"] == "Always");
        let gated = condition(pod, "PodScheduled").is_some_and(|condition| condition["reason"] == "SchedulingGated");
        let reason = if gated { "SchedulingGated" } else { text_or(&status["reason"], text(&status["phase"])) };
        let mut sum = Self {
            reason: reason.to_owned(),
            ready: 0,
            containers: list(&spec["containers"]).len() + sidecars.count(),
            restarts: Restarts::default(),
        };
        let (is_initialising, of_sidecars) = sum.add_init_containers(pod);
        if !is_initialising || holds(pod, "Initialized") {
            // Of the init containers only sidecars still count.
            sum.restarts = of_sidecars;
            sum.add_containers(pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let is_over = matches!(text(&status["phase"]), "Succeeded" | "Failed");
            match text(&status["reason"]) {
                "NodeLost" => "Unknown".clone_into(&mut sum.reason),
                _ if !is_over => "Terminating".clone_into(&mut sum.reason),
                _ => {}
            }
        }
        sum
    }

    /// Processes the init containers up to the first that blocks the others. Returns whether there is one, and the
    /// restarts of the sidecars.
    fn add_init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let total = list(&pod["spec"]["initContainers"]).len();
        let mut of_sidecars = Restarts::default();
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
            let is_sidecar = is_sidecar(pod, &container["name"]);
            self.restarts.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            let terminated = &container["state"]["terminated"];
            let waiting = text(&container["state"]["waiting"]["reason"]);
            if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.reason = if terminated.is_object() {
                format!("Init:{}", termination_text(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{total}")
            };
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    /// Processes the containers in reverse order: the first container with a reason wins.
    fn add_containers(&mut self, pod: &Value) {
        let (mut is_running, mut failure) = (false, None);
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if state["terminated"].is_object() {
                self.reason = termination_text(&state["terminated"]);
                if number(&state["terminated"]["exitCode"]) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state["running"].is_object() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            // A completed container does not complete the pod.
            if is_running && holds(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if is_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

/// How a container terminated.
fn termination_text(terminated: &Value) -> String {
    let (reason, signal) = (text(&terminated["reason"]), number(&terminated["signal"]));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", number(&terminated["exitCode"]))
    }
}

#[cfg(test)]
mod tests;
