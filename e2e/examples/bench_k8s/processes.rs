//! When the processes of a pod were started, as the kernel of this machine recorded it.
//!
//! The kubelet reports a container up to a second after its start, so its own times are too coarse here.

use std::fs;

/// The kernel counts starts in hundredths of a second.
const TICK_MILLISECONDS: f64 = 10.0;

/// The start of the first process of a pod whose command line contains these words, in milliseconds since boot.
///
/// `None` where the pod does not run on this machine.
pub fn first_start(uid: &str, words: &str) -> Option<f64> {
    // The runtime writes a pod's uid with `-` or `_`, depending on its cgroup driver.
    let spellings = [uid.to_owned(), uid.replace('-', "_")];
    let entries = fs::read_dir("/proc").ok()?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let of_pod = names.filter(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let groups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        spellings.iter().any(|uid| groups.contains(uid.as_str())) && line.contains(words)
    });
    of_pod.filter_map(|pid| start(&pid)).min_by(f64::total_cmp)
}

fn start(pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything but ends with a parenthesis.
    let ticks = stat.rsplit_once(") ")?.1.split(' ').nth(19)?;
    Some(ticks.parse::<f64>().ok()? * TICK_MILLISECONDS)
}

/// The current time on the same clock.
pub fn milliseconds_since_boot() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text
        .split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(f64::NAN);
    seconds * 1000.0
}
