//! `muster replay`: replays the decisions of an engine from its record.
//!
//! The record holds all inputs of the engine, so the commands are the same as in the original run. Lines are read one
//! by one: records may be larger than memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use muster_engine::record::{Line, commands_json};
use muster_engine::{Command, Engine};

/// The record, and what to print of it.
#[derive(clap::Args)]
pub struct Options {
    /// A record that `muster run --record-dir` wrote.
    file: PathBuf,
    /// Print the commands of every decision that had any, as a line of JSON, instead of a summary.
    #[arg(long)]
    commands: bool,
    /// Count and print only from this line of the record on; earlier lines are replayed without output.
    #[arg(long, value_name = "LINE", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    observations: u64,
    refused: u64,
    decisions: u64,
    binds: u64,
    volumes_reserved: u64,
    nodes_selected: u64,
    rollbacks: u64,
    nominations: u64,
    evictions: u64,
    spared: u64,
    nominations_cleared: u64,
    reports: u64,
    /// The first and the last time, in milliseconds since 1970.
    span_ms: Option<(u64, u64)>,
}

/// Replays a record.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let name = options.file.display();
    let file = File::open(&options.file).with_context(|| format!("{name}"))?;
    let mut out = std::io::stdout().lock();
    let summary = replay(BufReader::new(file), options, &mut out).with_context(|| format!("{name}"))?;
    if !options.commands {
        summary.print(&mut out)?;
    }
    Ok(())
}

fn replay(mut lines: impl BufRead, options: &Options, out: &mut impl Write) -> anyhow::Result<Summary> {
    let (mut engine, mut summary): (Option<Engine>, _) = (None, Summary::default());
    let (mut number, mut text) = (0_u64, String::new());
    loop {
        text.clear();
        number += 1;
        if lines.read_line(&mut text).with_context(|| format!("line {number}"))? == 0 {
            break;
        }
        let line: Line = match serde_json::from_str(&text) {
            Ok(line) => line,
            Err(error) if !text.ends_with('\n') && error.is_eof() => {
                eprintln!("line {number}: is truncated: the process ended while writing it");
                break;
            }
            Err(error) => bail!("line {number}: {error}"),
        };
        let shown = number >= options.from;
        match (line, &mut engine) {
            (Line::Start(config), None) => {
                engine = Some(Engine::new(*config).with_context(|| format!("line {number}"))?);
            }
            (Line::Start(_), Some(_)) => bail!("line {number}: a second start; a record has one"),
            (_, None) => bail!("line {number}: a record begins with its configuration"),
            (Line::Observe(now_ms, observation), Some(engine)) => {
                let taken = engine.observe(now_ms, *observation);
                if shown {
                    summary.observed(now_ms, taken.is_err());
                }
            }
            (Line::Decide(now_ms), Some(engine)) => {
                let commands = engine.decide(now_ms);
                if shown {
                    summary.decided(now_ms, &commands);
                    if options.commands && !commands.is_empty() {
                        writeln!(
                            out,
                            "{{\"line\":{number},\"now_ms\":{now_ms},\"commands\":{}}}",
                            commands_json(&commands)
                        )?;
                    }
                }
            }
        }
    }
    if engine.is_none() {
        bail!("line 1: the record is empty");
    }
    Ok(summary)
}

impl Summary {
    fn at(&mut self, now_ms: u64) {
        let (first, _) = self.span_ms.unwrap_or((now_ms, now_ms));
        self.span_ms = Some((first, now_ms));
    }

    fn observed(&mut self, now_ms: u64, refused: bool) {
        self.at(now_ms);
        self.observations += 1;
        self.refused += u64::from(refused);
    }

    fn decided(&mut self, now_ms: u64, commands: &[Command]) {
        self.at(now_ms);
        self.decisions += 1;
        for command in commands {
            match command {
                Command::Bind { .. } => self.binds += 1,
                Command::ReserveVolume { .. } => self.volumes_reserved += 1,
                Command::SelectNode { .. } => self.nodes_selected += 1,
                Command::RollBack { .. } => self.rollbacks += 1,
                Command::Nominate { .. } => self.nominations += 1,
                Command::Evict { pods, .. } => self.evictions += pods.len() as u64,
                Command::ClearDisruptionMark { .. } => self.spared += 1,
                Command::ClearNomination { .. } => self.nominations_cleared += 1,
                Command::Report(_) => self.reports += 1,
            }
        }
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        if let Some((first_ms, last_ms)) = self.span_ms {
            let date = |ms: u64| {
                let date = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
                date.map_or_else(|| format!("{ms} ms"), |date| date.to_string())
            };
            writeln!(out, "from                 {}", date(first_ms))?;
            writeln!(out, "to                   {}", date(last_ms))?;
        }
        for (name, count) in [
            ("observations", self.observations),
            ("  refused", self.refused),
            ("decisions", self.decisions),
            ("  binds", self.binds),
            ("  volumes reserved", self.volumes_reserved),
            ("  nodes selected", self.nodes_selected),
            ("  pods rolled back", self.rollbacks),
            ("  pods nominated", self.nominations),
            ("  pods evicted", self.evictions),
            ("  pods spared", self.spared),
            ("  nominations cleared", self.nominations_cleared),
            ("  reports", self.reports),
        ] {
            writeln!(out, "{name:<20} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_engine::model::class::ClassSpec;
    use muster_engine::model::node::NodeSpec;
    use muster_engine::model::pod::{PodName, PodSpec};
    use muster_engine::record::Recorder;
    use muster_engine::{Config, Observation};

    use super::*;

    /// One node, one pod, one decision: four lines.
    fn record() -> String {
        let mut recorder = Recorder::new(Config::default()).unwrap();
        let room = [("cpu".to_owned(), 2000), ("pods".to_owned(), 10)].into();
        let node = NodeSpec { name: "n0".into(), allocatable: room, ..NodeSpec::default() };
        recorder.observe(1_000, Observation::NodeSeen(node)).unwrap();
        let id = PodName { namespace: "ml".into(), name: "a".into(), uid: "1".into() };
        let class = Arc::new(ClassSpec { requests: [("cpu".to_owned(), 1000)].into(), ..ClassSpec::default() });
        let pod = PodSpec { id: Arc::new(id), class, ours: true, ..PodSpec::default() };
        recorder.observe(1_500, Observation::PodSeen(pod)).unwrap();
        recorder.decide(2_000);
        recorder.take_lines().join("\n") + "\n"
    }

    fn replay_text(text: &str, commands: bool, from: u64) -> anyhow::Result<(Summary, String)> {
        let options = Options { file: PathBuf::new(), commands, from };
        let mut out = Vec::new();
        let summary = replay(text.as_bytes(), &options, &mut out)?;
        Ok((summary, String::from_utf8(out).unwrap()))
    }

    #[test]
    fn record_is_replayed() {
        let (summary, printed) = replay_text(&record(), true, 1).unwrap();
        assert_eq!((summary.observations, summary.decisions, summary.binds), (2, 1, 1));
        assert_eq!(summary.span_ms, Some((1_000, 2_000)));
        assert!(printed.starts_with("{\"line\":4,\"now_ms\":2000,\"commands\":[{\"Bind\":"), "{printed}");
        let (summary, printed) = replay_text(&record(), false, 4).unwrap();
        assert_eq!(
            (summary.observations, summary.binds, printed.as_str()),
            (0, 1, ""),
            "earlier lines are still replayed"
        );
        let mut table = Vec::new();
        summary.print(&mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("1970-01-01T00:00:02Z") && table.contains("  binds              1"), "{table}");
    }

    #[test]
    fn errors_name_the_line() {
        let good = record();
        let error = |text: &str| format!("{:#}", replay_text(text, false, 1).unwrap_err());
        assert!(error("").starts_with("line 1: the record is empty"));
        assert!(error(&good.replacen("{\"Decide\"", "{\"Decode\"", 1)).starts_with("line 4: unknown variant `Decode`"));
        assert!(error("{\"Decide\":1}\n").starts_with("line 1: a record begins with its configuration"));
        let start = good.lines().next().unwrap();
        assert!(error(&format!("{good}{start}\n")).starts_with("line 5: a second start"));
        let cut = &good[..good.len() - 5];
        assert_eq!(replay_text(cut, false, 1).unwrap().0.decisions, 0, "a truncated last line is no error");
    }
}
