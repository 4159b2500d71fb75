//! Rows of pod groups, priority classes, disruption budgets and leases.

use serde_json::{Value, json};

use super::cell_text::{NONE, condition, name, number, text, text_or, to_text};
use super::{AGE, NAME, TablePrinter, age, boolean, integer, text as column};

pub(super) static POD_GROUPS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Policy", "Whether the group is scheduled whole (gang) or pod by pod (basic)."),
        column("Workload", "The Workload that the group belongs to."),
        column("Status", "Whether the group has been scheduled."),
        AGE,
    ],
    |group, now| {
        let spec = &group["spec"];
        let policy = if spec["schedulingPolicy"]["gang"].is_object() { "Gang" } else { "Basic" };
        // The template of a group: the field of 1.37, or that of 1.36.
        let templates = [&spec["workloadRef"], &spec["podGroupTemplateRef"]["workload"]];
        let template = templates.into_iter().find(|template| template.is_object());
        let workload = template.map_or(NONE, |template| text(&template["workloadName"]));
        vec![name(group), json!(policy), json!(workload), json!(group_status(group)), age::of(group, now)]
    },
);

fn group_status(group: &Value) -> &str {
    if let Some(target) = condition(group, "DisruptionTarget") {
        return text(&target["reason"]);
    }
    let is_old = group["apiVersion"] == "scheduling.k8s.io/v1alpha2";
    let scheduled = if is_old { "PodGroupScheduled" } else { "PodGroupInitiallyScheduled" };
    match condition(group, scheduled) {
        Some(scheduled) if scheduled["status"] == "True" => "Scheduled",
        Some(_) => "Unschedulable",
        None => "Pending",
    }
}

pub(super) static PRIORITY_CLASSES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        integer("Value", "The priority of pods of the class."),
        boolean("Global-Default", "Whether pods that name no class are of this one."),
        AGE,
        column("PreemptionPolicy", "Whether pods of the class may take the place of others."),
    ],
    |class, now| {
        vec![
            name(class),
            json!(number(&class["value"])),
            json!(class["globalDefault"] == true),
            age::of(class, now),
            json!(text(&class["preemptionPolicy"])),
        ]
    },
);

pub(super) static BUDGETS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Min Available", "How many pods must stay available."),
        column("Max Unavailable", "How many pods may be unavailable."),
        integer("Allowed Disruptions", "How many pods may be disrupted now."),
        AGE,
    ],
    |budget, now| {
        let bound = |field: &str| budget["spec"].get(field).map_or_else(|| "N/A".to_owned(), to_text);
        vec![
            name(budget),
            json!(bound("minAvailable")),
            json!(bound("maxUnavailable")),
            json!(number(&budget["status"]["disruptionsAllowed"])),
            age::of(budget, now),
        ]
    },
);

pub(super) static LEASES: TablePrinter =
    TablePrinter::new(&[NAME, column("Holder", "The holder of the lease."), AGE], |lease, now| {
        vec![name(lease), json!(text(&lease["spec"]["holderIdentity"])), age::of(lease, now)]
    });

pub(super) static RUNTIME_CLASSES: TablePrinter =
    TablePrinter::new(&[NAME, column("Handler", "What runs the containers of the class."), AGE], |class, now| {
        vec![name(class), json!(text_or(&class["handler"], "")), age::of(class, now)]
    });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_before_and_after_their_start() {
        let now = "2026-01-01T00:00:09Z".parse().unwrap();
        let mut group = json!({
            "metadata": {"name": "g", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": {"workloadName": "w"}},
            "status": {},
        });
        assert_eq!((POD_GROUPS.cells)(&group, now), ["g", "Gang", "w", "Pending", "9s"]);
        group["status"]["conditions"] = json!([{"type": "PodGroupInitiallyScheduled", "status": "False"}]);
        assert_eq!(group_status(&group), "Unschedulable");
        group["status"]["conditions"][0]["status"] = json!("True");
        assert_eq!(group_status(&group), "Scheduled");
        let disrupted = json!({"type": "DisruptionTarget", "reason": "PreemptionByScheduler"});
        group["status"]["conditions"].as_array_mut().unwrap().push(disrupted);
        assert_eq!(group_status(&group), "PreemptionByScheduler");
    }

    #[test]
    fn budgets_in_numbers_and_parts() {
        let budget = json!({
            "metadata": {"name": "b"}, "spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2},
        });
        let cells = json!((BUDGETS.cells)(&budget, "2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(cells, json!(["b", "N/A", "25%", 2, "<unknown>"]));
    }
}
