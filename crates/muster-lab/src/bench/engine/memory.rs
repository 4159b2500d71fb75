//! The peak memory of this process.

/// The peak resident set in MiB; zero where the system does not report it.
pub(crate) fn peak_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    kib / 1024
}
