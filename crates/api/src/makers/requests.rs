//! What the pods of a template will ask for.
//!
//! The API server fills in requests from limits when a pod is made; a template in another object has not been through
//! that, so it is done here. What admission adds from elsewhere (limit ranges, runtime classes) cannot be seen.

use crate::invalid::Invalid;
use crate::pod_requests::pod_requests;
use crate::resources::{BaseUnits, CPU, WrittenResources};
use crate::wire::Pod;
use crate::wire::container::Requirements;
use crate::wire::pod::PodSpec;

/// What a pod with this spec asks for, in base units.
pub fn requests_of(spec: &PodSpec) -> Result<BaseUnits, Invalid> {
    let mut spec = spec.clone();
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        fill_in(&mut container.resources);
    }
    let pod = Pod { spec, ..Pod::default() };
    pod_requests(&pod, false).map(|reckoned| reckoned.requests)
}

fn fill_in(resources: &mut Requirements) {
    for (name, amount) in resources.limits.iter().flatten() {
        resources.requests.get_or_insert_default().entry(name.clone()).or_insert_with(|| amount.clone());
    }
}

/// So many times these amounts on top.
pub fn add_times(sum: &mut BaseUnits, amounts: &BaseUnits, times: i64) {
    for (name, amount) in amounts {
        let entry = sum.entry(name.clone()).or_insert(0);
        *entry = entry.saturating_add(amount.saturating_mul(times));
    }
}

/// Amounts as they are written in an object.
pub fn written(amounts: &BaseUnits) -> WrittenResources {
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
    fn limits_stand_in_for_requests_as_they_will_on_the_pod() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1500m"}}},
            {"name": "b", "resources": {"requests": {"cpu": "1", "memory": "1Ki"}, "limits": {"cpu": "4"}}},
        ]}))
        .unwrap();
        let mut sum = requests_of(&spec).unwrap();
        add_times(&mut sum, &requests_of(&spec).unwrap(), 3);
        let expected = json!({"cpu": "10", "memory": "4096", "nvidia.com/gpu": "32"});
        assert_eq!(serde_json::to_value(written(&sum)).unwrap(), expected);
        assert_eq!(serde_json::to_value(written(&requests_of(&spec).unwrap())).unwrap()["cpu"], "2500m");
    }
}
