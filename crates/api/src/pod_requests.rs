//! Computes the requests of a pod: the capacity it takes on a node, and the amounts used for scoring.
//!
//! The rules are those of Kubernetes 1.37: the aggregate of the containers, replaced by pod-level requests where set,
//! plus the runtime's overhead. During an in-place resize the maximum of the desired, allocated and actuated amounts
//! counts; a desired size that is infeasible on the node does not. Amounts are combined exactly and rounded up once, at
//! the end.
//!
//! Not covered: node resources that are allocated through DRA claims (`DRANodeAllocatableResources`, alpha and off by
//! default). Must not depend on nodes or scores.

use crate::container_demand::{ContainerResources, add, aggregate, raise};
use crate::invalid::{FieldPath, Invalid, InvalidField};
use crate::pod_demand::{ContainerDemand, PodDemand, Reported, total_overflow};
use crate::quantity::Quantity;
use crate::resources::{BaseUnits, CPU, MEMORY, ResourceList, base_units, is_pod_level, list_in_base_units};
use crate::wire::Pod;

/// The cpu that scoring assumes for a container without a cpu request.
pub const SCORING_CPU_MILLI: i64 = 100;
/// The memory that scoring assumes for a container without a memory request.
pub const SCORING_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// The computed requests of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// The capacity it takes, in base units, without zeros.
    pub requests: BaseUnits,
    /// The cpu used for scoring while the pod is pending.
    ///
    /// kube-scheduler ignores pod-level requests here (the NodeResourcesFit score is not configured with them), and so
    /// does Muster, for the same scores.
    pub scoring_cpu_milli: i64,
    /// The memory used for scoring while the pod is pending; see `scoring_cpu_milli`.
    pub scoring_memory_bytes: i64,
    /// The cpu used for scoring once the pod is on a node.
    ///
    /// Kubernetes computes the two differently: if pod-level requests are set, a pod on a node does not get the default
    /// for a resource that any container or the pod itself requests.
    pub placed_scoring_cpu_milli: i64,
    /// The memory used for scoring once the pod is on a node; see `placed_scoring_cpu_milli`.
    pub placed_scoring_memory_bytes: i64,
}

/// Computes the requests of a pod.
///
/// With `use_status`, the status of an in-place resize is taken into account.
pub fn pod_requests(pod: &Pod, use_status: bool) -> Result<PodRequests, Invalid> {
    PodDemand::read(pod, use_status).and_then(|demand| demand.compute()).map_err(|error| error.on(pod.object_name()))
}

impl PodDemand {
    fn compute(&self) -> Result<PodRequests, InvalidField> {
        let defaults: ResourceList = [
            (CPU.to_owned(), Quantity::from_millis(SCORING_CPU_MILLI)),
            (MEMORY.to_owned(), Quantity::from_millis(SCORING_MEMORY_BYTES * 1000)),
        ]
        .into();
        let requests = self.total(&ResourceList::new())?;
        let incoming = self.with_overhead(self.sum(&defaults, |container| &container.requests)?)?;
        let mut missing = defaults;
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

    /// The total of the pod, with `fill` as defaults for containers.
    fn total(&self, fill: &ResourceList) -> Result<ResourceList, InvalidField> {
        let mut total = self.containers_total(fill)?;
        if !self.pod_level.is_empty() {
            total.extend(self.effective_pod_level());
        }
        self.with_overhead(total)
    }

    fn with_overhead(&self, mut total: ResourceList) -> Result<ResourceList, InvalidField> {
        add(&mut total, &self.overhead, &ResourceList::new()).map_err(|overflow| total_overflow(&overflow))?;
        Ok(total)
    }

    fn containers_total(&self, fill: &ResourceList) -> Result<ResourceList, InvalidField> {
        let desired = self.sum(fill, |container| &container.requests)?;
        let Some(reported) = &self.reported else {
            return Ok(desired);
        };
        let infeasible = reported.resize_is_infeasible;
        let mut total = if infeasible { ResourceList::new() } else { desired };
        if let (Some(allocated), Some(actuated)) = (&reported.allocated, &reported.actuated) {
            // The kubelet reports the totals of the containers.
            raise(&mut total, allocated);
            raise(&mut total, actuated);
        } else {
            raise(&mut total, &self.sum(fill, |one| one.allocated_or_desired(infeasible))?);
            raise(&mut total, &self.sum(fill, |one| one.actuated_or_desired(infeasible))?);
        }
        Ok(total)
    }

    fn sum<'a>(
        &'a self,
        fill: &ResourceList,
        list: impl Fn(&'a ContainerDemand) -> &'a ResourceList,
    ) -> Result<ResourceList, InvalidField> {
        let resources =
            self.containers.iter().map(|container| ContainerResources { role: container.role, list: list(container) });
        aggregate(resources, fill).map_err(|overflow| total_overflow(&overflow))
    }

    /// The effective pod-level amounts, which replace those of the containers.
    fn effective_pod_level(&self) -> ResourceList {
        let Some(reported) = self.reported.as_ref().filter(|one| one.has_resources) else {
            return self.pod_level.clone();
        };
        reported.pod_level(&self.pod_level)
    }
}

impl Reported {
    fn pod_level(&self, desired: &ResourceList) -> ResourceList {
        let mut list = if self.resize_is_infeasible { ResourceList::new() } else { desired.clone() };
        for known in [&self.actuated, &self.allocated].into_iter().flatten() {
            raise(&mut list, known);
        }
        list.retain(|name, _| is_pod_level(name));
        list
    }
}

static NOTHING: ResourceList = ResourceList::new();

impl ContainerDemand {
    fn allocated_or_desired(&self, infeasible: bool) -> &ResourceList {
        let desired = if infeasible { &NOTHING } else { &self.requests };
        self.allocated.as_ref().unwrap_or(desired)
    }

    fn actuated_or_desired(&self, infeasible: bool) -> &ResourceList {
        self.actuated.as_ref().unwrap_or_else(|| self.allocated_or_desired(infeasible))
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

    fn compute_with(pod: Value, use_status: bool) -> Result<PodRequests, String> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pod_requests(&pod, use_status).map_err(|error| error.to_string())
    }

    fn compute(spec: Value) -> PodRequests {
        compute_with(json!({ "spec": spec }), false).unwrap()
    }

    fn refused(pod: Value) -> String {
        compute_with(pod, true).unwrap_err()
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
        let pod = compute(json!({
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
        // The init container names no memory: the default 200Mi, the sidecar's 10Mi and the overhead.
        assert_eq!(scoring(&pod), [1055, 211, 1055, 211]);
    }

    #[test]
    fn pod_without_requests_has_scoring_defaults() {
        let pod = compute(json!({"containers": [{}, {}], "initContainers": null}));
        assert_eq!(pod.requests, BaseUnits::new());
        assert_eq!(scoring(&pod), [200, 400, 200, 400]);
    }

    #[test]
    fn explicit_zero_is_not_defaulted() {
        let pod = compute(json!({"containers": [asking(json!({"cpu": 0, "memory": "0"}))]}));
        assert_eq!(pod.requests, BaseUnits::new());
        assert_eq!(scoring(&pod), [0, 0, 0, 0]);
    }

    #[test]
    fn amounts_are_rounded_after_summing() {
        let half = || asking(json!({"cpu": "0.5m", "memory": "500m"}));
        let pod = compute(json!({"containers": [half(), half()]}));
        assert_eq!(pod.requests, units([("cpu", 1), ("memory", 1)]));
    }

    #[test]
    fn missing_requests_default_to_limits() {
        let container = json!({"resources": {
            "requests": {"cpu": "1"},
            "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 4},
        }});
        let pod = compute(json!({"containers": [container]}));
        assert_eq!(pod.requests, units([("cpu", 1000), ("memory", 1024 * MI), ("nvidia.com/gpu", 4)]));
    }

    #[test]
    fn pod_level_requests_replace_those_of_containers() {
        let pod = compute(json!({
            "containers": [asking(json!({"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": 1}))],
            "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
            "overhead": {"cpu": "10m"},
        }));
        assert_eq!(
            pod.requests,
            units([("cpu", 2010), ("memory", 64 * MI), ("nvidia.com/gpu", 1), ("hugepages-2Mi", 4 * MI),])
        );
        // While the pod is pending, only the containers' requests count for scoring.
        assert_eq!(scoring(&pod), [110, 64, 2010, 64]);
    }

    #[test]
    fn pod_level_defaults_come_from_containers_then_from_limits() {
        let pod = compute(json!({
            "containers": [
                {"resources": {"requests": {"cpu": "100m"}, "limits": {"hugepages-1Gi": "1Gi"}}},
                {},
            ],
            "resources": {"limits": {"cpu": "2", "memory": "512Mi"}},
        }));
        assert_eq!(pod.requests, units([("cpu", 100), ("memory", 512 * MI), ("hugepages-1Gi", 1024 * MI)]));
        // All resources have pod-level requests, so on a node the second container gets no scoring default.
        assert_eq!(scoring(&pod), [200, 400, 100, 512]);
    }

    #[test]
    fn pod_level_huge_pages_keep_defaults_for_cpu_and_memory() {
        let pod = compute(json!({
            "containers": [{}, {}],
            "resources": {"requests": {"hugepages-2Mi": "4Mi"}},
        }));
        assert_eq!(scoring(&pod), [200, 400, 200, 400]);
        // The overhead names cpu, so on a node the containers get no default.
        let pod = compute(json!({
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
        let requests = compute_with(pod.clone(), use_status).unwrap().requests;
        requests.get(CPU).copied().unwrap_or(0)
    }

    #[test]
    fn maximum_counts_during_resize() {
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
    fn infeasible_resize_does_not_count() {
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
    fn pod_level_status_counts_for_the_whole_pod() {
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
        assert!(error.contains("total of memory larger"), "{error}");
        let most = || asking(json!({"cpu": "9223372036854775"}));
        let error = refused(json!({"spec": {"containers": [most(), most()]}}));
        assert!(error.contains("spec[cpu]: \"18446744073709550\""), "{error}");
        // The default alone can overflow the total.
        let mut pod = json!({"spec": {"containers": [asking(json!({"memory": "9223372036854775807"}))]}});
        assert!(compute_with(pod.clone(), false).is_ok());
        pod["spec"]["containers"].as_array_mut().unwrap().push(json!({}));
        assert!(compute_with(pod, false).is_err());
    }
}
