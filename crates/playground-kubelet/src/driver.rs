//! Brings the kubelets' state machine together with the clock and the API.
//!
//! Watches become events, acts become calls of which only so many are under way at once. It decides nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use muster_api::wire::Node;
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::{Mirror, key_of, watch};
use muster_playground_client::seen::{SeenPod, slim};
use tokio::sync::{mpsc, oneshot};

use super::KubeletSettings;
use super::act::perform;
use super::machine::{Act, Event, Machine, Outcome, Task};
use crate::shape::NodeShape;

/// An order from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Kill(usize),
    Revive(usize),
}

type Commands = mpsc::UnboundedReceiver<(Command, oneshot::Sender<()>)>;
type Call = Pin<Box<dyn Future<Output = (Task, Outcome)> + Send>>;

/// Runs the state machine.
pub(super) struct Driver {
    client: Client,
    machine: Machine,
    clock: Clock,
    commands: Commands,
    requests_max: usize,
    pods: Mirror<SeenPod>,
    waiting: VecDeque<Act>,
    calls: FuturesUnordered<Call>,
}

/// What woke the driver.
enum Woken {
    Command(Command, oneshot::Sender<()>),
    Pod(watcher::Event<SeenPod>),
    Node(watcher::Event<Node>),
    Done(Task, Outcome),
    Time,
    End,
}

impl Driver {
    pub(super) fn new(
        client: Client,
        nodes: &[Arc<NodeShape>],
        settings: KubeletSettings,
        clock: Clock,
        commands: Commands,
    ) -> Self {
        Self {
            client,
            machine: Machine::new(nodes, settings, clock.now()),
            clock,
            commands,
            requests_max: settings.requests_max.max(1),
            pods: Mirror::default(),
            waiting: VecDeque::new(),
            calls: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let pods = watch(Api::<SeenPod>::all(self.client.clone()), bound);
        let mut pods = pods.map(|event| event.modify(slim));
        let mut nodes = watch(Api::<Node>::all(self.client.clone()), watcher::Config::default());
        loop {
            self.start_calls();
            match self.wait(&mut pods, &mut nodes).await {
                Woken::Command(command, done) => {
                    let event = match command {
                        Command::Kill(node) => Event::Kill(node),
                        Command::Revive(node) => Event::Revive(node),
                    };
                    self.machine.observe(self.clock.now(), event);
                    self.drop_calls_of(command);
                    done.send(()).ok();
                }
                Woken::Pod(event) => self.take_pod(event),
                Woken::Node(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                    self.machine.observe(self.clock.now(), Event::Node(Box::new(node)));
                }
                Woken::Node(watcher::Event::InitDone) => self.machine.observe(self.clock.now(), Event::NodesListed),
                Woken::Node(_) | Woken::Time => {}
                Woken::Done(task, outcome) => self.machine.observe(self.clock.now(), Event::Done(task, outcome)),
                Woken::End => return,
            }
        }
    }

    fn start_calls(&mut self) {
        self.waiting.extend(self.machine.tick(self.clock.now()));
        while self.calls.len() < self.requests_max
            && let Some(act) = self.waiting.pop_front()
        {
            let shape = match &act.task {
                Task::Node(node, _) => Some(Arc::clone(self.machine.shape(*node))),
                Task::Status(..) | Task::Remove(..) => None,
            };
            self.calls.push(Box::pin(perform(self.client.clone(), act, shape, self.clock.now())));
        }
    }

    /// A dead kubelet does not do what it had in mind either.
    fn drop_calls_of(&mut self, command: Command) {
        if let Command::Kill(node) = command {
            let machine = &self.machine;
            self.waiting.retain(|act| machine.node_of(&act.task) != Some(node));
        }
    }

    async fn wait(
        &mut self,
        pods: &mut (impl Stream<Item = watcher::Event<SeenPod>> + Unpin),
        nodes: &mut (impl Stream<Item = watcher::Event<Node>> + Unpin),
    ) -> Woken {
        let wakeup = self.machine.next_wakeup();
        let left = wakeup.map(|time| until(self.clock.now(), time));
        tokio::select! {
            biased;
            command = self.commands.recv() => command.map_or(Woken::End, |(command, done)| Woken::Command(command, done)),
            event = nodes.next() => event.map_or(Woken::End, Woken::Node),
            event = pods.next() => event.map_or(Woken::End, Woken::Pod),
            Some((task, outcome)) = self.calls.next(), if !self.calls.is_empty() => Woken::Done(task, outcome),
            () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => Woken::Time,
        }
    }

    fn take_pod(&mut self, event: watcher::Event<SeenPod>) {
        let now = self.clock.now();
        let listed = matches!(event, watcher::Event::InitDone);
        for change in self.pods.take(event) {
            match (change.new, change.old) {
                (Some(pod), _) => self.machine.observe(now, Event::Pod(pod)),
                (None, Some(pod)) => self.machine.observe(now, Event::PodGone(key_of(&*pod))),
                (None, None) => {}
            }
        }
        if listed {
            self.machine.observe(now, Event::PodsListed);
        }
    }
}

fn until(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}
