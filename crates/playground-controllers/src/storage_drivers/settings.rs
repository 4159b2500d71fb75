//! The parameters of a StorageClass and the annotations of a claim that say what the fake provisioner does.
//!
//! Like the annotations of simulated pods, an unknown key or a value that cannot be read is an error: a simulation that
//! silently does something else is useless.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use muster_api::names::check_label_key;
use muster_api::quantity::Quantity;

/// The prefix of all keys.
const PREFIX: &str = "playground.muster.dev/";
/// The provisioner whose classes need no parameters.
pub const FAKE_PROVISIONER: &str = "fake.muster.dev";
/// How long it takes to make a volume, or to refuse.
pub const DELAY_SECONDS: &str = "playground.muster.dev/delay-seconds";
/// Where volumes can be used: `none`, `zone`, `hostname` or the key of a node label.
pub const TOPOLOGY: &str = "playground.muster.dev/topology";
/// A value of the topology label that is used instead of that of the selected node.
pub const PLACE: &str = "playground.muster.dev/place";
/// How often each claim is refused, or `always`.
pub const REFUSE: &str = "playground.muster.dev/refuse";
/// The nodes for which claims are always refused, separated by commas.
pub const REFUSE_ON: &str = "playground.muster.dev/refuse-on";
/// `true`: it never answers.
pub const STUCK: &str = "playground.muster.dev/stuck";
/// The size of each pool of the class.
pub const POOL_SIZE: &str = "playground.muster.dev/pool-size";
/// The largest volume of the class.
pub const VOLUME_SIZE_MAX: &str = "playground.muster.dev/volume-size-max";
/// On a claim: how often it was refused so far.
pub const REFUSALS: &str = "playground.muster.dev/refusals";
/// On a volume or driver: how long it takes until a volume is attached.
pub const ATTACH_SECONDS: &str = "playground.muster.dev/attach-seconds";
/// On a volume or driver: how long it takes until a volume is detached.
pub const DETACH_SECONDS: &str = "playground.muster.dev/detach-seconds";

/// The keys of claims and classes.
const OF_CLAIMS: [&str; 6] = [DELAY_SECONDS, TOPOLOGY, PLACE, REFUSE, REFUSE_ON, STUCK];
/// The further keys of classes.
const OF_CLASSES: [&str; 2] = [POOL_SIZE, VOLUME_SIZE_MAX];

const DELAY: Duration = Duration::from_secs(1);
/// About thirty years; longer times are taken for mistakes.
const SECONDS_MAX: f64 = 1e9;

/// How often a claim is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusals {
    Times(u32),
    Always,
}

/// What the provisioner does with a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) delay: Duration,
    /// The label that ties volumes to nodes, if any.
    pub(super) topology: Option<String>,
    pub(super) place: Option<String>,
    pub(super) refuse: Refusals,
    pub(super) refuse_on: Vec<String>,
    pub(super) stuck: bool,
    pub(super) pool_size: Option<Quantity>,
    pub(super) volume_size_max: Option<Quantity>,
}

/// The CSI driver of a provisioner's volumes. A driver's name is a DNS name.
pub(super) fn driver_of(class: &StorageClass) -> String {
    class.provisioner.replace('/', ".")
}

/// Whether the fake provisioner acts for this class.
pub(super) fn is_ours(class: &StorageClass) -> bool {
    class.provisioner == FAKE_PROVISIONER || class.parameters.iter().flatten().any(|(key, _)| key.starts_with(PREFIX))
}

impl Settings {
    /// The settings of a class.
    pub(super) fn of_class(class: &StorageClass) -> Result<Self, String> {
        Self::read(class, &BTreeMap::new())
    }

    /// The settings for a claim: its annotations take precedence over the class.
    pub(super) fn of_claim(class: &StorageClass, claim: &PersistentVolumeClaim) -> Result<Self, String> {
        Self::read(class, claim.annotations())
    }

    fn read(class: &StorageClass, annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let none = BTreeMap::new();
        let parameters = class.parameters.as_ref().unwrap_or(&none);
        check_keys("parameter", parameters, |key| OF_CLAIMS.contains(&key) || OF_CLASSES.contains(&key))?;
        check_keys("annotation", annotations, |key| OF_CLAIMS.contains(&key) || key == REFUSALS)?;
        let text = |key: &'static str| {
            let written = annotations.get(key).or_else(|| parameters.get(key));
            Written { key, text: written.map(String::as_str) }
        };
        Ok(Self {
            delay: text(DELAY_SECONDS).seconds()?.unwrap_or(DELAY),
            topology: text(TOPOLOGY).topology()?,
            place: text(PLACE).text.map(str::to_owned),
            refuse: text(REFUSE).refusals()?,
            refuse_on: text(REFUSE_ON).text.map(names).unwrap_or_default(),
            stuck: text(STUCK).flag()?,
            pool_size: text(POOL_SIZE).amount()?,
            volume_size_max: text(VOLUME_SIZE_MAX).amount()?,
        })
    }
}

fn check_keys(what: &str, written: &BTreeMap<String, String>, is_known: impl Fn(&str) -> bool) -> Result<(), String> {
    let unknown = written.keys().find(|key| key.starts_with(PREFIX) && !is_known(key));
    unknown.map_or(Ok(()), |key| Err(format!("{what} {key}: is not known")))
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The time in an annotation of a volume or driver; nothing if there is none or it cannot be read.
pub(super) fn time_of<K: ResourceExt>(object: &K, key: &'static str) -> Option<Duration> {
    Written { key, text: object.annotations().get(key).map(String::as_str) }.seconds().ok().flatten()
}

/// The amount in an annotation of a pool; nothing if there is none or it cannot be read.
pub(super) fn pool_size_of<K: ResourceExt>(object: &K) -> Option<Quantity> {
    let text = object.annotations().get(POOL_SIZE).map(String::as_str);
    Written { key: POOL_SIZE, text }.amount().ok().flatten()
}

/// The value of a key, if it is written.
struct Written<'a> {
    key: &'static str,
    text: Option<&'a str>,
}

impl Written<'_> {
    fn invalid<T>(&self, rule: &str) -> Result<T, String> {
        Err(format!("{}: {:?}: {rule}", self.key, self.text.unwrap_or_default()))
    }

    fn seconds(&self) -> Result<Option<Duration>, String> {
        let Some(text) = self.text else { return Ok(None) };
        match text.parse::<f64>().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds)) {
            Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            None => self.invalid("must be a number of seconds from 0 to 1000000000"),
        }
    }

    fn topology(&self) -> Result<Option<String>, String> {
        match self.text {
            None | Some("none") => Ok(None),
            Some("zone") => Ok(Some("topology.kubernetes.io/zone".to_owned())),
            Some("hostname") => Ok(Some("kubernetes.io/hostname".to_owned())),
            Some(key) if check_label_key(key).is_ok() => Ok(Some(key.to_owned())),
            Some(_) => self.invalid("must be none, zone, hostname or the key of a node label"),
        }
    }

    fn refusals(&self) -> Result<Refusals, String> {
        match self.text {
            None => Ok(Refusals::Times(0)),
            Some("always") => Ok(Refusals::Always),
            Some(text) => match text.parse() {
                Ok(times) => Ok(Refusals::Times(times)),
                Err(_) => self.invalid("must be a number or always"),
            },
        }
    }

    fn flag(&self) -> Result<bool, String> {
        match self.text {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => self.invalid("must be true or false"),
        }
    }

    fn amount(&self) -> Result<Option<Quantity>, String> {
        let Some(text) = self.text else { return Ok(None) };
        match text.parse::<Quantity>() {
            Ok(amount) if !amount.is_negative() => Ok(Some(amount)),
            _ => self.invalid("must be a quantity such as 100Gi"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn key(name: &str) -> String {
        format!("{PREFIX}{name}")
    }

    fn class(parameters: Value) -> StorageClass {
        let class = json!({"metadata": {"name": "c"}, "provisioner": "a.example", "parameters": parameters});
        serde_json::from_value(class).unwrap()
    }

    fn settings(parameters: Value, annotations: Value) -> Result<Settings, String> {
        let claim = json!({"metadata": {"name": "c", "annotations": annotations}});
        Settings::of_claim(&class(parameters), &serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn annotations_of_the_claim_take_precedence() {
        let parameters = json!({
            key("delay-seconds"): "5", key("topology"): "zone", key("refuse"): "2", key("pool-size"): "1Gi",
        });
        let read = settings(parameters.clone(), json!({key("delay-seconds"): "0.5", key("refuse"): "always"})).unwrap();
        assert_eq!((read.delay, read.refuse), (Duration::from_millis(500), Refusals::Always));
        assert_eq!(read.topology.as_deref(), Some("topology.kubernetes.io/zone"));
        assert_eq!(read.pool_size.map(Quantity::value), Some(1 << 30));
        let read = settings(parameters, json!({key("refusals"): "7", "example.com/x": "y"})).unwrap();
        assert_eq!((read.delay, read.refuse), (Duration::from_secs(5), Refusals::Times(2)));
        assert!(!read.stuck);
    }

    #[test]
    fn classes_with_a_parameter_are_ours() {
        assert!(!is_ours(&class(json!({"type": "ssd"}))));
        assert!(is_ours(&class(json!({key("delay-seconds"): "1"}))));
        assert!(is_ours(&StorageClass { provisioner: FAKE_PROVISIONER.to_owned(), ..class(json!({})) }));
    }

    #[test]
    fn errors_name_the_key_and_the_value() {
        for (parameters, annotations, expected) in [
            (json!({key("delay")  : "1"}), json!({}), "parameter playground.muster.dev/delay: is not known"),
            (json!({}), json!({key("pool-size"): "1Gi"}), "annotation playground.muster.dev/pool-size: is not known"),
            (
                json!({key("delay-seconds"): "soon"}),
                json!({}),
                "playground.muster.dev/delay-seconds: \"soon\": must be",
            ),
            (json!({key("topology"): "a b"}), json!({}), "playground.muster.dev/topology: \"a b\": must be none"),
            (json!({key("refuse"): "-1"}), json!({}), "playground.muster.dev/refuse: \"-1\": must be a number"),
            (json!({key("stuck"): "yes"}), json!({}), "playground.muster.dev/stuck: \"yes\": must be true"),
            (
                json!({key("pool-size"): "big"}),
                json!({}),
                "playground.muster.dev/pool-size: \"big\": must be a quantity",
            ),
        ] {
            let why = settings(parameters, annotations).unwrap_err();
            assert!(why.starts_with(expected), "{why}\nexpected {expected}");
        }
    }
}
