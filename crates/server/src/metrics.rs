//! Metrics for Prometheus. Numbers only: no names of users or jobs.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paddlecloud_accounts::refusals::{Limit, Refusals};
use paddlecloud_core::job::Job;
use paddlecloud_store::WriterCounts;

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// By the first digit of the status code.
    requests: [AtomicU64; 6],
    in_flight: AtomicU64,
    submits: AtomicU64,
    repeated: AtomicU64,
    /// What the limits refused; counted where they are enforced.
    pub refusals: Arc<Refusals>,
}

/// A request in flight, counted until this is dropped.
pub struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn begin_request(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    pub fn count_request(&self, status: u16) {
        let class = usize::from(status / 100).min(self.requests.len() - 1);
        self.requests[class].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts an accepted job.
    pub fn count_submit(&self) {
        self.submits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a repeated submit of an accepted job.
    pub fn count_repeated_submit(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    /// All metrics in Prometheus' text format.
    pub fn text<'a>(&self, jobs: impl Iterator<Item = &'a Job>, store: WriterCounts) -> String {
        let mut text = String::new();
        head(
            &mut text,
            "paddlecloud_info",
            "gauge",
            "The version of the server.",
        );
        line(
            &mut text,
            "paddlecloud_info",
            &format!("version=\"{}\"", crate::VERSION),
            1,
        );
        self.request_lines(&mut text);
        self.refusal_lines(&mut text);
        head(
            &mut text,
            "paddlecloud_submits_total",
            "counter",
            "Accepted jobs.",
        );
        line(
            &mut text,
            "paddlecloud_submits_total",
            "",
            self.submits.load(Ordering::Relaxed),
        );
        head(
            &mut text,
            "paddlecloud_submits_repeated_total",
            "counter",
            "Submits that repeated an earlier one.",
        );
        line(
            &mut text,
            "paddlecloud_submits_repeated_total",
            "",
            self.repeated.load(Ordering::Relaxed),
        );
        job_lines(&mut text, jobs);
        head(
            &mut text,
            "paddlecloud_store_commits_total",
            "counter",
            "Durable transactions.",
        );
        line(&mut text, "paddlecloud_store_commits_total", "", store.commits);
        head(
            &mut text,
            "paddlecloud_store_rows_total",
            "counter",
            "Rows written.",
        );
        line(&mut text, "paddlecloud_store_rows_total", "", store.rows);
        text
    }

    fn refusal_lines(&self, text: &mut String) {
        let name = "paddlecloud_limit_refusals_total";
        head(text, name, "counter", "Refusals by limit.");
        for (limit, label) in Limit::ALL {
            line(text, name, &format!("limit=\"{label}\""), self.refusals.of(limit));
        }
    }

    fn request_lines(&self, text: &mut String) {
        head(
            text,
            "paddlecloud_http_requests_total",
            "counter",
            "Replies by class of status.",
        );
        for (class, count) in self.requests.iter().enumerate().skip(1) {
            let label = format!("code=\"{class}xx\"");
            line(
                text,
                "paddlecloud_http_requests_total",
                &label,
                count.load(Ordering::Relaxed),
            );
        }
        head(
            text,
            "paddlecloud_http_requests_in_flight",
            "gauge",
            "Requests being served.",
        );
        line(text, "paddlecloud_http_requests_in_flight", "", self.in_flight());
    }
}

fn job_lines<'a>(text: &mut String, jobs: impl Iterator<Item = &'a Job>) {
    let mut counts = [("Pending", 0), ("Starting", 0), ("Running", 0), ("Stopping", 0)];
    for job in jobs {
        let phase = job.phase.to_string();
        if let Some((_, count)) = counts.iter_mut().find(|(name, _)| *name == phase) {
            *count += 1;
        }
    }
    head(text, "paddlecloud_jobs", "gauge", "Unfinished jobs by status.");
    for (status, count) in counts {
        line(text, "paddlecloud_jobs", &format!("status=\"{status}\""), count);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a string cannot fail");
}

fn line(text: &mut String, name: &str, labels: &str, value: u64) {
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    writeln!(text, "{name}{labels} {value}").expect("writing to a string cannot fail");
}
