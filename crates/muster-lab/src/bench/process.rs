//! A child process, mostly this program with other arguments, and its memory and CPU time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// Ticks per second of CPU time, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts this program with these arguments; its logs go to standard error.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::spawn(&own_program()?, arguments)
    }

    /// Starts the scheduler, `muster run` with these flags, from the binary next to this one.
    pub(crate) fn start_muster(flags: &[&str]) -> anyhow::Result<Self> {
        let program = own_program()?.with_file_name("muster");
        if !program.is_file() {
            let shown = program.display();
            bail!(
                "{shown}: does not exist; build it with the profile of this program, e.g. cargo build --release -p muster"
            );
        }
        Self::spawn(&program, &[&["run"], flags].concat())
    }

    fn spawn(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let name = format!("{} {}", program.display(), arguments.join(" "));
        let mut command = Command::new(program);
        let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child })
    }

    /// Starts another program with these arguments; its logs go to a file.
    pub(crate) fn start_program(program: &Path, arguments: &[&str], log: &Path) -> anyhow::Result<Self> {
        let name = format!("{} {} (see {})", program.display(), arguments.join(" "), log.display());
        let log = File::create(log).with_context(|| format!("writing {}", log.display()))?;
        let mut command = Command::new(program);
        let command = command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child })
    }

    /// Starts this program as a server that prints its address.
    pub(crate) fn serve(arguments: &[&str]) -> anyhow::Result<(Self, SocketAddr)> {
        let name = format!("muster-lab {}", arguments.join(" "));
        let mut command = Command::new(own_program()?);
        let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let output = child.stdout.take().context("its output")?;
        let process = Self { name, child };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("{} printed {line:?}", process.name))?;
        Ok((process, address))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has ended: {status}", self.name);
        }
        Ok(())
    }

    /// Memory and time so far.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let status = read(self.id(), "status")?;
        let cpu_seconds = cpu_seconds(self.id()).context("reading its CPU time")?;
        Ok(Usage { rss_mib: mib(&status, "VmRSS:"), rss_mib_peak: mib(&status, "VmHWM:"), cpu_seconds })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("finding this program")
}

/// The resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) rss_mib: f64,
    pub(crate) rss_mib_peak: f64,
    pub(crate) cpu_seconds: f64,
}

/// The CPU time of a process and of all its threads.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = read(pid, "stat").ok()?;
    // The name is in parentheses and may contain anything; the state and ten numbers precede the two of interest.
    let mut numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || numbers.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(Path::new(&path)).with_context(|| format!("{path}: this benchmark needs Linux"))
}

fn mib(status: &str, field: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib: f64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_not_zero() {
        let mut sum = 0_u64;
        let used = |pid| cpu_seconds(pid).unwrap();
        while used(std::process::id()) == 0.0 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(mib(&read(std::process::id(), "status").unwrap(), "VmRSS:") > 0.5);
    }
}
