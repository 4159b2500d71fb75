//! The labels and annotations of LeaderWorkerSets.

pub(crate) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
pub(crate) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
pub(crate) const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
pub(crate) const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
pub(crate) const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
pub(crate) const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
pub(crate) const REPLICAS: &str = "leaderworkerset.sigs.k8s.io/replicas";
pub(crate) const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
pub(crate) const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
pub(crate) const SUBGROUP_EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
pub(crate) const SUBGROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/subgroup-size";
pub(crate) const SUBGROUP_POLICY_TYPE: &str = "leaderworkerset.sigs.k8s.io/subgroup-policy-type";
pub(crate) const SUBGROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/subgroup-index";
pub(crate) const SUBGROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/subgroup-key";
pub(crate) const SUBDOMAIN_POLICY: &str = "leaderworkerset.sigs.k8s.io/subdomainPolicy";
pub(crate) const RECREATE_AFTER_START: &str = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start";
