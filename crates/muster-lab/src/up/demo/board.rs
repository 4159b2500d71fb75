//! The two halves of the demo `deadlock` side by side: a line for every change, and a summary.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use muster_api::wire::Pod;
use muster_playground::Server;
use tokio::time::Instant;

use super::super::throttle;
use super::deadlock::{GANGS, POD_GPUS, Side};

pub(super) const SIDE_LABEL: &str = "demo-side";
pub(super) const GANG_LABEL: &str = "demo-gang";
/// How long changes are collected before they are printed.
const COLLECT: Duration = Duration::from_millis(500);
const COLUMN: usize = 52;

/// The number of pods of a gang by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PodCounts {
    holds: u32,
    done: u32,
}

/// All pods of the demo and their state.
#[derive(Debug)]
struct Board {
    nodes: u32,
    /// By the pod's name: side, gang, whether it holds GPUs, whether it has finished its work.
    pods: BTreeMap<String, (Side, String, bool, bool)>,
    /// The last printed line.
    shown: String,
}

/// Prints the demo until it is over.
pub(in crate::up) async fn show(server: &Server, nodes: u32, began: Instant) {
    let mut board = Board { nodes, pods: BTreeMap::new(), shown: String::new() };
    println!("       {:<COLUMN$} Muster", "pod by pod");
    let print_changes = |board: &mut Board| board.print_changes(began);
    throttle::listen(super::pods_of(server), COLLECT, &mut board, Board::observe, print_changes).await;
}

impl Board {
    /// Prints changes, and a summary at the end.
    fn print_changes(&mut self, began: Instant) -> ControlFlow<()> {
        let line = self.line();
        if line != self.shown {
            let passed = began.elapsed().as_secs();
            println!("{:>3}:{:02} {line}", passed / 60, passed % 60);
            self.shown = line;
        }
        if !self.is_over() {
            return ControlFlow::Continue(());
        }
        println!("\n{}", self.summary());
        ControlFlow::Break(())
    }

    fn observe(&mut self, event: Event<Pod>) {
        let pod = match event {
            Event::Apply(pod) | Event::InitApply(pod) => pod,
            Event::Delete(pod) => return drop(self.pods.remove(&pod.name_any())),
            Event::Init | Event::InitDone => return,
        };
        let Some(side) =
            Side::ALL.into_iter().find(|side| pod.labels().get(SIDE_LABEL).is_some_and(|name| name == side.name()))
        else {
            return;
        };
        let gang = pod.labels().get(GANG_LABEL).cloned().unwrap_or_default();
        let holds = !pod.spec.node_name.is_empty() && !matches!(&*pod.status.phase, "Succeeded" | "Failed");
        self.pods.insert(pod.name_any(), (side, gang, holds, pod.status.phase == "Succeeded"));
    }

    fn counts(&self, side: Side, gang: &str) -> PodCounts {
        let mut counts = PodCounts::default();
        for (_, _, holds, done) in self.pods.values().filter(|pod| pod.0 == side && pod.1 == gang) {
            counts.holds += u32::from(*holds);
            counts.done += u32::from(*done);
        }
        counts
    }

    fn gpus_held(&self, side: Side) -> u32 {
        GANGS.map(|gang| self.counts(side, gang).holds * POD_GPUS).into_iter().sum()
    }

    fn side(&self, side: Side) -> String {
        let size = side.gang_size(self.nodes);
        let gangs = GANGS.map(|gang| match self.counts(side, gang) {
            PodCounts { done, .. } if done == size => format!("{gang} is done"),
            PodCounts { holds, .. } if holds == size => format!("{gang} runs all {size}"),
            PodCounts { holds: 0, .. } => format!("{gang} is pending"),
            PodCounts { holds, .. } => format!("{gang} has {holds} of {size}"),
        });
        format!("{}; {} of {} GPUs held", gangs.join(", "), self.gpus_held(side), side.slots(self.nodes) * POD_GPUS)
    }

    fn line(&self) -> String {
        let [left, right] = Side::ALL.map(|side| self.side(side));
        format!("{left:<COLUMN$} {right}")
    }

    /// How many gangs have finished their work.
    fn done(&self, side: Side) -> usize {
        GANGS.iter().filter(|gang| self.counts(side, gang).done == side.gang_size(self.nodes)).count()
    }

    /// All gangs of Muster's side have finished.
    fn is_over(&self) -> bool {
        let mut own = self.pods.values().filter(|pod| pod.0 == Side::Muster).peekable();
        own.peek().is_some() && own.all(|pod| pod.3)
    }

    fn summary(&self) -> String {
        let [left, right] =
            Side::ALL.map(|side| format!("{} of {} gangs have done their work", self.done(side), GANGS.len()));
        format!(
            "Muster: {right}, one after the other.\n\
             Pod by pod: {left}, and {} GPUs are held by pods that wait for the rest of theirs.",
            self.gpus_held(Side::PodByPod)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn board_distinguishes_deadlock_from_work() {
        let mut board = Board { nodes: 4, pods: BTreeMap::new(), shown: String::new() };
        // Capacity for four pods and gangs of three on each side.
        for (side, gang, holding, ended) in [
            (Side::PodByPod, "a", 2, 0),
            (Side::PodByPod, "b", 2, 0),
            (Side::Muster, "a", 3, 0),
            (Side::Muster, "b", 0, 0),
        ] {
            for number in 0..3 {
                let pod = (side, gang.to_owned(), number < holding, number < ended);
                board.pods.insert(format!("{}-{gang}-{number}", side.name()), pod);
            }
        }
        assert_eq!(board.side(Side::PodByPod), "a has 2 of 3, b has 2 of 3; 16 of 16 GPUs held");
        assert_eq!(board.side(Side::Muster), "a runs all 3, b is pending; 12 of 16 GPUs held");
        assert!(!board.is_over());
        board.pods.values_mut().filter(|pod| pod.0 == Side::Muster).for_each(|pod| (pod.2, pod.3) = (false, true));
        assert!(board.is_over());
        assert!(
            board.summary().contains("0 of 2 gangs have done their work, and 16 GPUs are held"),
            "{}",
            board.summary()
        );
    }
}
