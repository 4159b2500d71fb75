//! Counts of pending pods and groups by queue, as exposed by metrics.

use std::sync::Arc;

use muster_engine::model::pod::{PodRefusal, RefusalKind};
use muster_engine::{Pending, PendingCount};

use crate::fake_cluster::FakeCluster;

fn pending(fake: &FakeCluster) -> Pending {
    fake.engine.engine().pending()
}

fn counts(pods: usize, groups: usize) -> PendingCount {
    PendingCount { pods, groups }
}

#[test]
fn every_pending_pod_is_counted_once() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod("small", "", 1);
    fake.gang("large", 2);
    fake.pods_of("large", "large", 2, 2);
    assert_eq!(pending(&fake), Pending { active: counts(3, 1), ..Pending::default() });
    fake.settle();
    assert_eq!(pending(&fake), Pending { parked: counts(2, 1), ..Pending::default() });
    // An event for a group that was just unschedulable: it is retried after its backoff.
    fake.pod("large-2", "large", 2);
    assert_eq!(pending(&fake), Pending { backoff: counts(3, 1), ..Pending::default() });
    fake.advance(60_000);
    assert_eq!(pending(&fake), Pending { parked: counts(3, 1), ..Pending::default() });
    fake.node("n1", 6);
    fake.advance(60_000);
    assert_eq!(pending(&fake), Pending::default(), "bound pods are not pending");
}

#[test]
fn pods_that_may_not_be_scheduled_are_held() {
    let mut fake = FakeCluster::new();
    fake.gang("g", 3);
    fake.pods_of("a", "g", 2, 1);
    assert_eq!(pending(&fake).held, counts(2, 1), "waits for members");
    fake.pod_with("gated", "", 1, |pod| pod.gated = true);
    let refusal = PodRefusal {
        kind: RefusalKind::Unsupported,
        field: "spec.affinity".into(),
        value: "{}".into(),
        reason: String::new(),
    };
    fake.pod_with("refused", "g", 1, |pod| pod.refused = Some(Arc::new(refusal)));
    fake.subsets("s", &[("x", 1), ("y", 1)]);
    fake.pod("stray", "s", 1);
    fake.pod_with("bound", "", 1, |pod| pod.node = Some("n0".into()));
    fake.pod_with("foreign", "", 1, |pod| pod.ours = false);
    assert_eq!(pending(&fake), Pending { held: counts(5, 1), ..Pending::default() });
}
