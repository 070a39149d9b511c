//! The text of a worker's private `/etc/hosts`. Pure.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

const LOCALHOST: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

const HOST_NAME_MAX: usize = 64;

/// The worker's host name: its name, truncated to the kernel's limit.
pub fn host_name(worker: &str) -> &str {
    let mut end = worker.len().min(HOST_NAME_MAX);
    while !worker.is_char_boundary(end) {
        end -= 1;
    }
    worker[..end].trim_end_matches(['-', '.'])
}

/// The hosts file of a worker that does not inherit the machine's entries.
pub fn hosts_text(workers: &[(String, Ipv4Addr)]) -> String {
    render("", workers)
}

/// Localhost, then the workers, then the machine's own entries except those that name a worker: the C library would
/// otherwise return both addresses.
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
    fn a_host_name_is_cut_where_the_kernel_would_refuse_it() {
        assert_eq!(host_name("job-trainer-3s4nz"), "job-trainer-3s4nz");
        assert_eq!(host_name(&"j".repeat(99)), "j".repeat(64));
        assert_eq!(
            host_name(&format!("{}-trainer-0", "j".repeat(63))),
            "j".repeat(63),
            "no dash at the end"
        );
    }

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
