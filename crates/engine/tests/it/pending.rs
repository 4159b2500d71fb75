//! Who waits where, as metrics show it.

use std::sync::Arc;

use muster_engine::model::pod::{PodRefusal, RefusalKind};
use muster_engine::{Pending, Waiters};

use crate::world::World;

fn pending(world: &World) -> Pending {
    world.engine.engine().pending()
}

fn waiters(pods: usize, groups: usize) -> Waiters {
    Waiters { pods, groups }
}

#[test]
fn everybody_who_waits_is_counted_in_one_place() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pod("small", "", 1);
    world.gang("large", 2);
    world.pods_of("large", "large", 2, 2);
    assert_eq!(pending(&world), Pending { active: waiters(3, 1), ..Pending::default() });
    world.settle();
    assert_eq!(pending(&world), Pending { parked: waiters(2, 1), ..Pending::default() });
    // News of a group that was just refused: it is tried when its backoff is over.
    world.pod("large-2", "large", 2);
    assert_eq!(pending(&world), Pending { backoff: waiters(3, 1), ..Pending::default() });
    world.pass(60_000);
    assert_eq!(pending(&world), Pending { parked: waiters(3, 1), ..Pending::default() });
    world.node("n1", 6);
    world.pass(60_000);
    assert_eq!(pending(&world), Pending::default(), "who has a place waits no more");
}

#[test]
fn whoever_may_not_be_tried_is_held() {
    let mut world = World::new();
    world.gang("g", 3);
    world.pods_of("a", "g", 2, 1);
    assert_eq!(pending(&world).held, waiters(2, 1), "waits for members");
    world.pod_with("gated", "", 1, |pod| pod.gated = true);
    let refusal = PodRefusal {
        kind: RefusalKind::Unsupported,
        field: "spec.affinity".into(),
        value: "{}".into(),
        reason: String::new(),
    };
    world.pod_with("refused", "g", 1, |pod| pod.refused = Some(Arc::new(refusal)));
    world.subsets("s", &[("x", 1), ("y", 1)]);
    world.pod("stray", "s", 1);
    world.pod_with("bound", "", 1, |pod| pod.node = Some("n0".into()));
    world.pod_with("foreign", "", 1, |pod| pod.ours = false);
    assert_eq!(pending(&world), Pending { held: waiters(5, 1), ..Pending::default() });
}
