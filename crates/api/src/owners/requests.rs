//! The requests that pods of a template will have.
//!
//! The API server defaults requests from limits when a pod is created; templates in other objects are not defaulted, so
//! it is done here. What admission adds from elsewhere (LimitRanges, RuntimeClasses) is unknown.

use crate::invalid::Invalid;
use crate::pod_requests::pod_requests;
use crate::resources::{BaseUnits, CPU, WrittenResources};
use crate::wire::Pod;
use crate::wire::container::Requirements;
use crate::wire::pod::PodSpec;

/// The requests of a pod with this spec, in base units.
pub fn requests_of(spec: &PodSpec) -> Result<BaseUnits, Invalid> {
    let mut spec = spec.clone();
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        default_requests(&mut container.resources);
    }
    let pod = Pod { spec, ..Pod::default() };
    pod_requests(&pod, false).map(|computed| computed.requests)
}

fn default_requests(resources: &mut Requirements) {
    for (name, amount) in resources.limits.iter().flatten() {
        resources.requests.get_or_insert_default().entry(name.clone()).or_insert_with(|| amount.clone());
    }
}

/// Adds a multiple of amounts to a sum.
pub fn add_multiple(sum: &mut BaseUnits, amounts: &BaseUnits, times: i64) {
    for (name, amount) in amounts {
        let entry = sum.entry(name.clone()).or_insert(0);
        *entry = entry.saturating_add(amount.saturating_mul(times));
    }
}

/// Amounts as quantities for an object.
pub fn to_quantities(amounts: &BaseUnits) -> WrittenResources {
    let write = |(name, amount): (&String, &i64)| {
        let text = match amount {
            amount if name == CPU && amount % 1000 != 0 => format!("{amount}m"),
            amount if name == CPU => (amount / 1000).to_string(),
            amount => amount.to_string(),
        };
        (name.clone(), text.as_str().into())
    };
    amounts.iter().filter(|(_, amount)| **amount > 0).map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_default_to_limits_as_on_the_pod() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1500m"}}},
            {"name": "b", "resources": {"requests": {"cpu": "1", "memory": "1Ki"}, "limits": {"cpu": "4"}}},
        ]}))
        .unwrap();
        let mut sum = requests_of(&spec).unwrap();
        add_multiple(&mut sum, &requests_of(&spec).unwrap(), 3);
        let expected = json!({"cpu": "10", "memory": "4096", "nvidia.com/gpu": "32"});
        assert_eq!(serde_json::to_value(to_quantities(&sum)).unwrap(), expected);
        assert_eq!(serde_json::to_value(to_quantities(&requests_of(&spec).unwrap())).unwrap()["cpu"], "2500m");
    }
}
