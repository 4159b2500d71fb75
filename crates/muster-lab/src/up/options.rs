//! The flags of `muster-lab up` and the resulting plan. All errors are reported before anything starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use muster_playground::components::Shape;
use serde_json::{Value, json};

use super::demo::Demo;

/// The default number of nodes.
const NODES: u32 = 16;
/// The file in the state folder that stores the nodes.
const SHAPE_FILE: &str = "shape.json";
/// An upper limit against typing errors.
const NODES_MAX: u32 = 10_000;
const SPEED_RANGE: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// The cluster to start.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many nodes, each with 8 GPUs, in 4 racks and 2 zones; 16, or those of the state.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=i64::from(NODES_MAX)))]
    nodes: Option<u32>,
    /// Other nodes: a YAML file with pools of nodes, their capacity, labels, taints and racks (docs/playground.md).
    /// Such a cluster starts without a demo.
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    shape: Option<PathBuf>,
    /// The port of the API server; 0 selects a free one.
    #[arg(long, default_value_t = 8001)]
    port: u16,
    /// The factor by which containers start, run and stop faster than specified.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    speed: f64,
    /// Keep the cluster in this folder: the next start with it continues where this one ended, even after a crash.
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Start without a demo.
    #[arg(long, conflicts_with = "demo")]
    empty: bool,
    /// The demo to show.
    #[arg(long, value_enum)]
    demo: Option<DemoName>,
    /// Where to write the kubeconfig; without it a file in the folder of --state, or in the system's folder for
    /// temporary files.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// INSECURE: listen on this address instead of 127.0.0.1. There is no authentication and no encryption: everyone
    /// who can reach the address has full access to this cluster.
    #[arg(long, value_name = "ADDRESS")]
    insecure_listen: Option<IpAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
enum DemoName {
    /// A gang that runs, one that is pending until there is capacity for all of it, and plain pods.
    Training,
    /// Two gangs and capacity for one: scheduling pod by pod and scheduling by Muster, side by side.
    Deadlock,
    /// A gang in one zone, one in one rack, and one that finds no free rack; shows which rank is on which rack.
    Topology,
}

/// The validated flags.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shape: Shape,
    /// The shape as it was written, to be stored in the state folder.
    pub(super) written: Value,
    pub(super) address: SocketAddr,
    pub(super) speed: f64,
    pub(super) state: Option<PathBuf>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) demo: Option<Demo>,
    /// Whether the demo was requested by name.
    pub(super) demo_is_wanted: bool,
}

impl Options {
    /// Validates the flags.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        if !SPEED_RANGE.contains(&self.speed) {
            bail!("--speed {}: must be from {} to {}", self.speed, SPEED_RANGE.start(), SPEED_RANGE.end());
        }
        let written = self.written()?;
        let (shape, nodes) = match written["nodes"].as_u64().and_then(|nodes| u32::try_from(nodes).ok()) {
            Some(nodes) => (Shape::of_nodes(nodes), Some(nodes)),
            None => (Shape::from_value(written.clone()).with_context(|| self.source())?, None),
        };
        let address = self.insecure_listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(Plan {
            shape,
            written,
            address: SocketAddr::new(address, self.port),
            speed: self.speed,
            state: self.state.clone(),
            kubeconfig: self.kubeconfig.clone(),
            demo: self.demo(nodes)?,
            demo_is_wanted: self.demo.is_some(),
        })
    }

    /// The nodes as they are written: by a flag, in the state, or not at all.
    fn written(&self) -> anyhow::Result<Value> {
        if let Some(nodes) = self.nodes {
            return Ok(json!({"nodes": nodes}));
        }
        let saved = self.state.as_ref().map(|folder| folder.join(SHAPE_FILE)).filter(|file| file.exists());
        let Some(path) = self.shape.as_ref().or(saved.as_ref()) else { return Ok(json!({"nodes": NODES})) };
        let text = std::fs::read_to_string(path).with_context(|| self.source())?;
        let value: Value = serde_saphyr::from_str(&text).with_context(|| self.source())?;
        if !value.is_object() {
            bail!(
                "{}: must be a map with pools, such as {{pools: [{{name: a, count: 1, capacity: {{...}}}}]}}",
                self.source()
            );
        }
        Ok(value)
    }

    /// Where the nodes are written, for messages.
    fn source(&self) -> String {
        match (&self.shape, &self.state) {
            (Some(path), _) => format!("--shape {}", path.display()),
            (None, Some(folder)) => folder.join(SHAPE_FILE).display().to_string(),
            (None, None) => "--nodes".to_owned(),
        }
    }

    /// The demo for so many nodes, or for those of a shape.
    fn demo(&self, nodes: Option<u32>) -> anyhow::Result<Option<Demo>> {
        let nodes = match (nodes, self.demo) {
            (None, Some(_)) => bail!("--demo: the demos are for the nodes of --nodes, not for those of a shape"),
            (Some(nodes), Some(_)) if nodes < Demo::NODES_MIN => {
                bail!("--nodes {nodes}: a demo needs at least {}", Demo::NODES_MIN)
            }
            (None, None) => return Ok(None),
            (Some(nodes), None) if self.empty || nodes < Demo::NODES_MIN => return Ok(None),
            (Some(nodes), _) => nodes,
        };
        let demo = match self.demo.unwrap_or(DemoName::Training) {
            DemoName::Training => Demo::Training { nodes },
            DemoName::Deadlock => Demo::Deadlock { nodes },
            DemoName::Topology => Demo::Topology { nodes },
        };
        match demo.unsuitable() {
            Some(why) => bail!("--nodes {nodes}: {why}"),
            None => Ok(Some(demo)),
        }
    }
}

/// Stores the nodes in the state folder.
pub(super) fn save_shape(folder: &Path, written: &Value) -> anyhow::Result<()> {
    let file = folder.join(SHAPE_FILE);
    std::fs::write(&file, format!("{written}\n")).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("up").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.options.plan().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn default_is_sixteen_nodes_on_loopback_with_a_demo() {
        let plan = plan("").unwrap();
        assert_eq!(plan.shape.nodes().unwrap().len(), 16);
        assert_eq!(plan.address.to_string(), "127.0.0.1:8001");
        assert_eq!((plan.demo, plan.demo_is_wanted), (Some(Demo::Training { nodes: 16 }), false));
    }

    #[test]
    fn only_the_insecure_flag_opens_another_address() {
        assert_eq!(plan("--insecure-listen 0.0.0.0 --port 0").unwrap().address.to_string(), "0.0.0.0:0");
        assert!(plan("--listen 0.0.0.0").is_err());
    }

    #[test]
    fn errors_name_flag_and_value() {
        for (line, expected) in [
            ("--speed 0", "--speed 0: must be from 0.01 to 1000"),
            ("--speed NaN", "--speed NaN: must be"),
            ("--nodes 10001", "invalid value '10001' for '--nodes <COUNT>'"),
            ("--empty --demo deadlock", "cannot be used with"),
            ("--nodes 2 --demo deadlock", "--nodes 2: a demo needs at least 4"),
            ("--nodes 18 --demo topology", "--nodes 18: the demo topology needs 4 racks of the same size"),
            ("--shape /no/such/file", "--shape /no/such/file: No such file"),
            ("--shape Cargo.toml", "--shape Cargo.toml: "),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert_eq!(plan("--nodes 2").unwrap().demo, None);
        let shape = std::env::temp_dir().join(format!("muster-up-shape-{}.yaml", std::process::id()));
        std::fs::write(&shape, "pools: [{name: a, count: 1, capacity: {cpu: 4}}]\n").unwrap();
        let line = format!("--shape {}", shape.display());
        assert_eq!(plan(&line).unwrap().demo, None);
        let error = plan(&format!("{line} --demo training")).unwrap_err();
        std::fs::remove_file(&shape).unwrap();
        assert!(error.contains("not for those of a shape"), "{error}");
    }

    #[test]
    fn state_keeps_its_nodes_unless_a_flag_overrides_them() {
        let folder = std::env::temp_dir().join(format!("muster-up-options-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let line = format!("--state {}", folder.display());
        let count = |line: &str| plan(line).unwrap().shape.nodes().unwrap().len();
        assert_eq!(count(&line), 16);
        save_shape(&folder, &plan(&format!("{line} --nodes 5")).unwrap().written).unwrap();
        assert_eq!((count(&line), count(&format!("{line} --nodes 7"))), (5, 7));
        save_shape(&folder, &json!({"pools": [{"name": "a", "count": 3, "capacity": {"cpu": "4"}}]})).unwrap();
        assert_eq!((count(&line), plan(&line).unwrap().demo), (3, None));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
