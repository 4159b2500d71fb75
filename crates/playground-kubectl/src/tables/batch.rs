//! Rows of Jobs and CronJobs.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{NONE, UNSET, containers, count, holds, name, number, selector, text, text_or};
use super::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, age, boolean, integer, text as column};

pub(super) static JOBS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Status", "The state of the Job."),
        column("Completions", "How many pods have succeeded, and how many must."),
        column("Duration", "How long the Job has run, or ran."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    job,
);

fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&job["spec"]["template"]);
    vec![
        name(job),
        json!(status(job)),
        json!(completions(job)),
        json!(duration(job, now)),
        age::of(job, now),
        names,
        images,
        json!(selector(&job["spec"]["selector"])),
    ]
}

fn status(job: &Value) -> &'static str {
    let is_going = !job["metadata"]["deletionTimestamp"].is_null();
    let first = |words: &[&'static str]| words.iter().copied().find(|word| holds(job, word));
    if let Some(end) = first(&["Complete", "Failed"]) {
        end
    } else if is_going {
        "Terminating"
    } else {
        first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
    }
}

fn completions(job: &Value) -> String {
    let done = number(&job["status"]["succeeded"]);
    match (job["spec"]["completions"].as_i64(), number(&job["spec"]["parallelism"])) {
        (Some(desired), _) => format!("{done}/{desired}"),
        (None, parallel @ 2..) => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let date = |field: &str| age::read(&job["status"][field]);
    date("startTime").map_or_else(String::new, |start| age::between(start, date("completionTime").unwrap_or(now)))
}

pub(super) static CRON_JOBS: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Schedule", "When Jobs are created, as a cron expression."),
        column("Timezone", "The time zone of the schedule."),
        boolean("Suspend", "Whether no further Jobs are created."),
        integer("Active", "How many of its Jobs are running."),
        column("Last Schedule", "The time since a Job was last created."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |cron, now| {
        let (spec, status) = (&cron["spec"], &cron["status"]);
        let job = &spec["jobTemplate"]["spec"];
        let [names, images] = containers(&job["template"]);
        let suspend = match spec["suspend"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => UNSET,
        };
        let last = &status["lastScheduleTime"];
        vec![
            name(cron),
            json!(text(&spec["schedule"])),
            json!(text_or(&spec["timeZone"], NONE)),
            json!(suspend),
            json!(count(&status["active"])),
            json!(if last.is_null() { NONE.to_owned() } else { age::since(last, now) }),
            age::of(cron, now),
            names,
            images,
            json!(selector(&job["selector"])),
        ]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_every_state() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut one = json!({
            "metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parallelism": 4, "selector": {"matchLabels": {"u": "1"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
            "status": {"succeeded": 1},
        });
        assert_eq!(job(&one, now), ["j", "Running", "1/1 of 4", "", "10m", "c", "i", "u=1"]);
        one["spec"]["completions"] = json!(8);
        one["status"]["startTime"] = json!("2026-01-01T00:01:00Z");
        assert_eq!(job(&one, now)[2..4], ["1/8", "9m"]);
        one["status"]["completionTime"] = json!("2026-01-01T00:02:30Z");
        one["status"]["conditions"] = json!([{"type": "SuccessCriteriaMet", "status": "True"}]);
        assert_eq!(job(&one, now)[1..4], ["SuccessCriteriaMet", "1/8", "90s"]);
        one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:09:00Z");
        assert_eq!(status(&one), "Terminating");
        one["status"]["conditions"] =
            json!([{"type": "Failed", "status": "True"}, {"type": "Complete", "status": "False"}]);
        assert_eq!(status(&one), "Failed");
    }

    #[test]
    fn cron_jobs() {
        let cron = json!({
            "metadata": {"name": "c"},
            "spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {}}},
            "status": {"active": [{}, {}]},
        });
        let cells = json!((CRON_JOBS.cells)(&cron, Timestamp::UNIX_EPOCH));
        let shown = json!(["c", "* * * * *", "<none>", "False", 2, "<none>", "<unknown>", "", "", "<none>"]);
        assert_eq!(cells, shown);
    }
}
