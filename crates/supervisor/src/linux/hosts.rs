//! The text of a worker's private `/etc/hosts`. Pure.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

const LOCALHOST: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/// Localhost, then the workers, then the machine's own entries except where they name a worker:
/// the C library would otherwise give both addresses.
pub fn render(machine: &str, workers: &[(String, Ipv4Addr)]) -> String {
    let mut text = LOCALHOST.to_owned();
    for (name, address) in workers {
        let _ = writeln!(text, "{address}\t{name}");
    }
    for line in machine.lines() {
        let entry = line.split('#').next().unwrap_or_default();
        let mut words = entry.split_whitespace();
        let Some(address) = words.next() else { continue };
        let names: Vec<_> = words.filter(|name| !is_taken(name, workers)).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "{address}\t{}", names.join(" "));
        }
    }
    text
}

fn is_taken(name: &str, workers: &[(String, Ipv4Addr)]) -> bool {
    name == "localhost"
        || workers
            .iter()
            .any(|(worker, _)| worker.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_win_over_the_machines_own_entries() {
        let machine = "127.0.0.1 localhost\n# a comment\n10.0.0.7\tfiles job-trainer-1 # two names\n127.0.1.1 JOB-trainer-0\n";
        let workers = [
            ("job-trainer-0".into(), [127, 1, 0, 1].into()),
            ("job-trainer-1".into(), [127, 1, 0, 2].into()),
        ];
        assert_eq!(
            render(machine, &workers),
            format!("{LOCALHOST}127.1.0.1\tjob-trainer-0\n127.1.0.2\tjob-trainer-1\n10.0.0.7\tfiles\n")
        );
    }
}
