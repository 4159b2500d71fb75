//! What a pod counts for: the room it takes on a node, and its weight in scores.
//!
//! The rule is that of Kubernetes 1.37: what the containers need together, pod-wide requests in
//! their place where there are any, and the runtime's overhead on top. While a pod is resized in
//! place, the highest of what is wanted, set aside and in force counts; a wanted size that the node
//! has refused for good does not.
//! Amounts are combined exactly and rounded up once, at the end.
//!
//! Left out: resources that a dynamic claim takes from the node itself (`DRANodeAllocatableResources`,
//! alpha and off by default).
//! It must not know nodes or scores.

use crate::container_demand::{Share, add, aggregate, raise};
use crate::invalid::{FieldPath, Invalid, InvalidField};
use crate::pod_demand::{ContainerDemand, PodDemand, Reported, too_much};
use crate::quantity::Quantity;
use crate::resources::{BaseUnits, CPU, MEMORY, ResourceList, base_units, is_pod_level, list_in_base_units};
use crate::wire::Pod;

/// What a container that names no cpu weighs in scores.
pub const SCORING_CPU_MILLI: i64 = 100;
/// What a container that names no memory weighs in scores.
pub const SCORING_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// What a pod counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// The room it takes, in base units, without zeros.
    pub requests: BaseUnits,
    /// Its cpu in scores while it is being placed.
    ///
    /// kube-scheduler leaves pod-wide requests out here (its score of fullness never learns that they are on), and so
    /// do we: its numbers are what users know.
    pub scoring_cpu_milli: i64,
    /// Its memory in scores while it is being placed; see `scoring_cpu_milli`.
    pub scoring_memory_bytes: i64,
    /// Its cpu in scores once it is on a node.
    ///
    /// Kubernetes reckons the two apart: if pod-wide requests are set, a pod on a node is not given
    /// the stand-in for a resource of which any container or the pod has named an amount.
    pub placed_scoring_cpu_milli: i64,
    /// Its memory in scores once it is on a node; see `placed_scoring_cpu_milli`.
    pub placed_scoring_memory_bytes: i64,
}

/// What the pod counts for.
///
/// With `use_status`, what the node reports about a resize in place counts too.
pub fn pod_requests(pod: &Pod, use_status: bool) -> Result<PodRequests, Invalid> {
    PodDemand::read(pod, use_status).and_then(|demand| demand.reckon()).map_err(|error| error.on(pod.object_name()))
}

impl PodDemand {
    fn reckon(&self) -> Result<PodRequests, InvalidField> {
        let stand_ins: ResourceList = [
            (CPU.to_owned(), Quantity::from_millis(SCORING_CPU_MILLI)),
            (MEMORY.to_owned(), Quantity::from_millis(SCORING_MEMORY_BYTES * 1000)),
        ]
        .into();
        let requests = self.total(&ResourceList::new())?;
        let incoming = self.with_overhead(self.sum(&stand_ins, |container| &container.requests)?)?;
        let mut missing = stand_ins;
        if !self.pod_level.is_empty() {
            missing.retain(|name, _| !requests.contains_key(name));
        }
        let placed = self.total(&missing)?;
        let (scoring_cpu_milli, scoring_memory_bytes) = scoring_pair(&incoming)?;
        let (placed_scoring_cpu_milli, placed_scoring_memory_bytes) = scoring_pair(&placed)?;
        Ok(PodRequests {
            requests: list_in_base_units(&requests, &FieldPath::Root("spec"))?,
            scoring_cpu_milli,
            scoring_memory_bytes,
            placed_scoring_cpu_milli,
            placed_scoring_memory_bytes,
        })
    }

    /// The whole pod, with `fill` for what a container leaves out.
    fn total(&self, fill: &ResourceList) -> Result<ResourceList, InvalidField> {
        let mut total = self.containers_total(fill)?;
        if !self.pod_level.is_empty() {
            total.extend(self.pod_level_in_force());
        }
        self.with_overhead(total)
    }

    fn with_overhead(&self, mut total: ResourceList) -> Result<ResourceList, InvalidField> {
        add(&mut total, &self.overhead, &ResourceList::new()).map_err(|overflow| too_much(&overflow))?;
        Ok(total)
    }

    fn containers_total(&self, fill: &ResourceList) -> Result<ResourceList, InvalidField> {
        let wanted = self.sum(fill, |container| &container.requests)?;
        let Some(reported) = &self.reported else {
            return Ok(wanted);
        };
        let refused = reported.resize_is_infeasible;
        let mut total = if refused { ResourceList::new() } else { wanted };
        if let (Some(allocated), Some(actuated)) = (&reported.allocated, &reported.actuated) {
            // The node has added up its containers itself.
            raise(&mut total, allocated);
            raise(&mut total, actuated);
        } else {
            raise(&mut total, &self.sum(fill, |one| one.allocated_or_wanted(refused))?);
            raise(&mut total, &self.sum(fill, |one| one.actuated_or_wanted(refused))?);
        }
        Ok(total)
    }

    fn sum<'a>(
        &'a self,
        fill: &ResourceList,
        list: impl Fn(&'a ContainerDemand) -> &'a ResourceList,
    ) -> Result<ResourceList, InvalidField> {
        let shares = self.containers.iter().map(|container| Share { role: container.role, list: list(container) });
        aggregate(shares, fill).map_err(|overflow| too_much(&overflow))
    }

    /// The pod-wide amounts that count, which replace those of the containers.
    fn pod_level_in_force(&self) -> ResourceList {
        let Some(reported) = self.reported.as_ref().filter(|one| one.has_resources) else {
            return self.pod_level.clone();
        };
        reported.pod_level(&self.pod_level)
    }
}

impl Reported {
    fn pod_level(&self, wanted: &ResourceList) -> ResourceList {
        let mut list = if self.resize_is_infeasible { ResourceList::new() } else { wanted.clone() };
        for known in [&self.actuated, &self.allocated].into_iter().flatten() {
            raise(&mut list, known);
        }
        list.retain(|name, _| is_pod_level(name));
        list
    }
}

static NOTHING: ResourceList = ResourceList::new();

impl ContainerDemand {
    fn allocated_or_wanted(&self, refused: bool) -> &ResourceList {
        let wanted = if refused { &NOTHING } else { &self.requests };
        self.allocated.as_ref().unwrap_or(wanted)
    }

    fn actuated_or_wanted(&self, refused: bool) -> &ResourceList {
        self.actuated.as_ref().unwrap_or_else(|| self.allocated_or_wanted(refused))
    }
}

fn scoring_pair(total: &ResourceList) -> Result<(i64, i64), InvalidField> {
    let amount = |name: &str| {
        let quantity = total.get(name).copied().unwrap_or_default();
        base_units(name, quantity).map_err(|error| {
            let spec = FieldPath::Root("spec");
            spec.key(name).invalid(&quantity.to_string(), error)
        })
    };
    Ok((amount(CPU)?, amount(MEMORY)?))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MI: i64 = 1024 * 1024;

    fn reckon_with(pod: Value, use_status: bool) -> Result<PodRequests, String> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pod_requests(&pod, use_status).map_err(|error| error.to_string())
    }

    fn reckon(spec: Value) -> PodRequests {
        reckon_with(json!({ "spec": spec }), false).unwrap()
    }

    fn refused(pod: Value) -> String {
        reckon_with(pod, true).unwrap_err()
    }

    fn units<const N: usize>(entries: [(&str, i64); N]) -> BaseUnits {
        entries.map(|(name, n)| (name.to_owned(), n)).into()
    }

    fn scoring(pod: &PodRequests) -> [i64; 4] {
        [
            pod.scoring_cpu_milli,
            pod.scoring_memory_bytes / MI,
            pod.placed_scoring_cpu_milli,
            pod.placed_scoring_memory_bytes / MI,
        ]
    }

    fn asking(requests: Value) -> Value {
        json!({"resources": {"requests": requests}})
    }

    #[test]
    fn containers_init_containers_and_overhead() {
        let mut sidecar = asking(json!({"cpu": "50m", "memory": "10Mi"}));
        sidecar["restartPolicy"] = json!("Always");
        let pod = reckon(json!({
            "containers": [
                asking(json!({"cpu": "100m", "memory": "100Mi", "nvidia.com/gpu": 1})),
                asking(json!({"cpu": 0.2, "memory": "28Mi"})),
            ],
            "initContainers": [sidecar, asking(json!({"cpu": 1, "example.com/fpga": "2"}))],
            "overhead": {"cpu": "5m", "memory": "1Mi"},
        }));
        assert_eq!(
            pod.requests,
            units([("cpu", 1055), ("memory", 139 * MI), ("nvidia.com/gpu", 1), ("example.com/fpga", 2),])
        );
        // The init container names no memory: 200Mi beside the sidecar's 10Mi, and the overhead.
        assert_eq!(scoring(&pod), [1055, 211, 1055, 211]);
    }

    #[test]
    fn a_pod_that_asks_for_nothing_still_weighs_something() {
        let pod = reckon(json!({"containers": [{}, {}], "initContainers": null}));
        assert_eq!(pod.requests, BaseUnits::new());
        assert_eq!(scoring(&pod), [200, 400, 200, 400]);
    }

    #[test]
    fn a_written_zero_is_not_missing() {
        let pod = reckon(json!({"containers": [asking(json!({"cpu": 0, "memory": "0"}))]}));
        assert_eq!(pod.requests, BaseUnits::new());
        assert_eq!(scoring(&pod), [0, 0, 0, 0]);
    }

    #[test]
    fn amounts_are_rounded_after_they_are_added() {
        let half = || asking(json!({"cpu": "0.5m", "memory": "500m"}));
        let pod = reckon(json!({"containers": [half(), half()]}));
        assert_eq!(pod.requests, units([("cpu", 1), ("memory", 1)]));
    }

    #[test]
    fn limits_stand_in_for_missing_requests() {
        let container = json!({"resources": {
            "requests": {"cpu": "1"},
            "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 4},
        }});
        let pod = reckon(json!({"containers": [container]}));
        assert_eq!(pod.requests, units([("cpu", 1000), ("memory", 1024 * MI), ("nvidia.com/gpu", 4)]));
    }

    #[test]
    fn pod_wide_requests_replace_those_of_the_containers() {
        let pod = reckon(json!({
            "containers": [asking(json!({"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": 1}))],
            "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
            "overhead": {"cpu": "10m"},
        }));
        assert_eq!(
            pod.requests,
            units([("cpu", 2010), ("memory", 64 * MI), ("nvidia.com/gpu", 1), ("hugepages-2Mi", 4 * MI),])
        );
        // While it is being placed, only what its containers ask for weighs.
        assert_eq!(scoring(&pod), [110, 64, 2010, 64]);
    }

    #[test]
    fn pod_wide_defaults_come_from_containers_then_from_limits() {
        let pod = reckon(json!({
            "containers": [
                {"resources": {"requests": {"cpu": "100m"}, "limits": {"hugepages-1Gi": "1Gi"}}},
                {},
            ],
            "resources": {"limits": {"cpu": "2", "memory": "512Mi"}},
        }));
        assert_eq!(pod.requests, units([("cpu", 100), ("memory", 512 * MI), ("hugepages-1Gi", 1024 * MI)]));
        // All is named pod-wide now, so on a node the second container weighs nothing of its own.
        assert_eq!(scoring(&pod), [200, 400, 100, 512]);
    }

    #[test]
    fn pod_wide_huge_pages_leave_the_stand_ins_for_cpu_and_memory() {
        let pod = reckon(json!({
            "containers": [{}, {}],
            "resources": {"requests": {"hugepages-2Mi": "4Mi"}},
        }));
        assert_eq!(scoring(&pod), [200, 400, 200, 400]);
        // The overhead names cpu, so on a node the containers' stand-in falls away.
        let pod = reckon(json!({
            "containers": [{}, {}],
            "resources": {"requests": {"hugepages-2Mi": "4Mi"}},
            "overhead": {"cpu": "7m"},
        }));
        assert_eq!(scoring(&pod), [207, 400, 7, 400]);
    }

    fn resizing(wanted: &str, status: Value) -> Value {
        let mut container = asking(json!({"cpu": wanted}));
        container["name"] = json!("main");
        json!({"spec": {"containers": [container]}, "status": status})
    }

    fn cpu_of(pod: &Value, use_status: bool) -> i64 {
        let requests = reckon_with(pod.clone(), use_status).unwrap().requests;
        requests.get(CPU).copied().unwrap_or(0)
    }

    #[test]
    fn while_resizing_the_highest_counts() {
        let report = |allocated: &str, actuated: &str| {
            json!({"containerStatuses": [{
                "name": "main",
                "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": actuated}},
            }]})
        };
        for (wanted, allocated, actuated, expected) in
            [("1", "2", "3", 3000), ("1", "3", "2", 3000), ("3", "1", "2", 3000)]
        {
            let pod = resizing(wanted, report(allocated, actuated));
            assert_eq!(cpu_of(&pod, true), expected);
            assert_eq!(cpu_of(&pod, false), wanted.parse::<i64>().unwrap() * 1000);
        }
        let only_allocated = json!({"containerStatuses": [
            {"name": "main", "allocatedResources": {"cpu": "4"}, "resources": {}}
        ]});
        assert_eq!(cpu_of(&resizing("1", only_allocated), true), 4000);
        let of_another = json!({"containerStatuses": [
            {"name": "other", "allocatedResources": {"cpu": "4"}}
        ]});
        assert_eq!(cpu_of(&resizing("1", of_another), true), 1000);
    }

    #[test]
    fn a_refused_resize_does_not_count() {
        for (reason, expected) in [("Infeasible", 1000), ("Deferred", 9000)] {
            let status = json!({
                "conditions": [{"type": "Ready"}, {"type": "PodResizePending", "reason": reason}],
                "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1"}}],
            });
            assert_eq!(cpu_of(&resizing("9", status), true), expected);
        }
        let no_report = json!({"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]});
        assert_eq!(cpu_of(&resizing("9", no_report), true), 0);
    }

    #[test]
    fn pod_wide_reports_count_for_the_whole_pod() {
        let status = json!({
            "allocatedResources": {"cpu": "4"},
            "resources": {"requests": {"cpu": "5"}},
            "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "50"}}],
        });
        let mut pod = resizing("1", status);
        assert_eq!(cpu_of(&pod, true), 5000);
        pod["spec"]["resources"] = json!({"requests": {"cpu": "6"}});
        assert_eq!(cpu_of(&pod, true), 6000);
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        assert_eq!(cpu_of(&pod, true), 5000);
    }

    #[test]
    fn errors_name_pod_field_and_value() {
        let named = |spec: Value, status: Value| json!({"metadata": {"namespace": "default", "name": "a-0"}, "spec": spec, "status": status});
        let bad = json!({"containers": [asking(json!({"cpu": "1x"}))]});
        assert_eq!(
            refused(named(bad, Value::Null)),
            r#"Pod default/a-0: spec.containers[0].resources.requests[cpu]: "1x": suffix "x" is not known"#
        );
        for (spec, status, field) in [
            (
                json!({"initContainers": [{}, {"resources": {"limits": {"cpu": "-1"}}}]}),
                json!({}),
                "spec.initContainers[1].resources.limits[cpu]: \"-1\"",
            ),
            (
                json!({"resources": {"requests": {"nvidia.com/gpu": 1}}}),
                json!({}),
                "spec.resources.requests[nvidia.com/gpu]: \"nvidia.com/gpu\"",
            ),
            (json!({"overhead": {"pods": 1}}), json!({}), "spec.overhead[pods]: \"pods\""),
            (
                json!({"initContainers": [{"name": "i"}]}),
                json!({"initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "?"}}]}),
                "status.initContainerStatuses[0].allocatedResources[cpu]: \"?\"",
            ),
            (
                json!({}),
                json!({"resources": {"requests": {"memory": true}}}),
                "status.resources.requests[memory]: true",
            ),
        ] {
            let error = refused(named(spec, status));
            assert!(error.starts_with(&format!("Pod default/a-0: {field}: ")), "{error}");
        }
    }

    #[test]
    fn sums_out_of_range_are_refused() {
        let most = || asking(json!({"memory": "9223372036854775807"}));
        let error = refused(json!({"spec": {"containers": [most(), most()]}}));
        assert!(error.contains("total of memory above"), "{error}");
        let most = || asking(json!({"cpu": "9223372036854775"}));
        let error = refused(json!({"spec": {"containers": [most(), most()]}}));
        assert!(error.contains("spec[cpu]: \"18446744073709550\""), "{error}");
        // The stand-in alone can break the bank.
        let mut pod = json!({"spec": {"containers": [asking(json!({"memory": "9223372036854775807"}))]}});
        assert!(reckon_with(pod.clone(), false).is_ok());
        pod["spec"]["containers"].as_array_mut().unwrap().push(json!({}));
        assert!(reckon_with(pod, false).is_err());
    }
}
