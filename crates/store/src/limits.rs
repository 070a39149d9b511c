//! A user's limits, with the names by which the configuration and commands refer to them.

use std::fmt;
use std::str::FromStr;

use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Guarantee, Quota};
use serde::{Deserialize, Serialize};

/// Limits of a user, a group, or all users. `None`: not set here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Concurrent trainers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Concurrently running jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_jobs: Option<u32>,
    /// Waiting jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The highest priority of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The share relative to other users: twice the weight, twice the share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Resources that are guaranteed to the user; use above them is borrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_memory: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpu: Option<u32>,
}

/// The names of all limits, in display order.
const NAMES: [&str; 13] = [
    "cpu",
    "memory",
    "gpu",
    "parallelism",
    "running_jobs",
    "queued_jobs",
    "storage",
    "files",
    "priority",
    "weight",
    "guaranteed_cpu",
    "guaranteed_memory",
    "guaranteed_gpu",
];

/// The limits that a group can have for all members together.
const OF_A_TOTAL: [&str; 5] = ["cpu", "memory", "gpu", "parallelism", "running_jobs"];

/// Why a limit cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("`{}` is not a limit: use {}", .0.escape_debug(), NAMES.join(", "))]
    Unknown(String),
    #[error("`{}` cannot be limited for all members together: use {}", .0.escape_debug(), OF_A_TOTAL.join(", "))]
    NotOfATotal(String),
    #[error("`{name}`: `{}` is not a value: {problem}", .value.escape_debug())]
    Value {
        name: String,
        value: String,
        problem: String,
    },
}

impl Limits {
    /// Sets the limit of this name; `none` removes it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
        match name {
            "cpu" => self.cpu = parsed(name, value)?,
            "memory" => self.memory = parsed(name, value)?,
            "gpu" => self.gpu = parsed(name, value)?,
            "parallelism" => self.parallelism = parsed(name, value)?,
            "running_jobs" => self.running_jobs = parsed(name, value)?,
            "queued_jobs" => self.queued_jobs = parsed(name, value)?,
            "storage" => self.storage = parsed(name, value)?,
            "files" => self.files = parsed(name, value)?,
            "priority" => self.priority = parsed(name, value)?,
            "weight" => self.weight = parsed(name, value)?.filter(|weight| *weight > 0),
            "guaranteed_cpu" => self.guaranteed_cpu = parsed(name, value)?,
            "guaranteed_memory" => self.guaranteed_memory = parsed(name, value)?,
            "guaranteed_gpu" => self.guaranteed_gpu = parsed(name, value)?,
            other => return Err(LimitError::Unknown(other.to_owned())),
        }
        Ok(())
    }

    /// Sets a limit for all members of a group together.
    pub fn set_total(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
        match OF_A_TOTAL.contains(&name) || !NAMES.contains(&name) {
            true => self.set(name, value),
            false => Err(LimitError::NotOfATotal(name.to_owned())),
        }
    }

    /// The limits that are set, by name.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let rows = NAMES.map(|name| {
            let value = match name {
                "cpu" => text(self.cpu),
                "memory" => text(self.memory),
                "gpu" => text(self.gpu),
                "parallelism" => text(self.parallelism),
                "running_jobs" => text(self.running_jobs),
                "queued_jobs" => text(self.queued_jobs),
                "storage" => text(self.storage),
                "files" => text(self.files),
                "priority" => text(self.priority),
                "weight" => text(self.weight),
                "guaranteed_cpu" => text(self.guaranteed_cpu),
                "guaranteed_memory" => text(self.guaranteed_memory),
                _ => text(self.guaranteed_gpu),
            };
            value.map(|value| (name, value))
        });
        rows.into_iter().flatten().collect()
    }

    /// These limits, with unset ones taken from `other`.
    pub fn or(self, other: &Limits) -> Limits {
        Limits {
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
            gpu: self.gpu.or(other.gpu),
            parallelism: self.parallelism.or(other.parallelism),
            running_jobs: self.running_jobs.or(other.running_jobs),
            queued_jobs: self.queued_jobs.or(other.queued_jobs),
            storage: self.storage.or(other.storage),
            files: self.files.or(other.files),
            priority: self.priority.or(other.priority),
            weight: self.weight.or(other.weight),
            guaranteed_cpu: self.guaranteed_cpu.or(other.guaranteed_cpu),
            guaranteed_memory: self.guaranteed_memory.or(other.guaranteed_memory),
            guaranteed_gpu: self.guaranteed_gpu.or(other.guaranteed_gpu),
        }
    }

    /// The limits that the scheduler enforces.
    pub fn quota(&self) -> Quota {
        Quota {
            cpu: self.cpu,
            memory: self.memory,
            gpu: self.gpu,
            parallelism: self.parallelism,
            jobs: self.running_jobs,
            queued: self.queued_jobs,
            priority: self.priority,
            weight: self.weight,
            guarantee: self.guarantee(),
        }
    }

    /// The guaranteed resources, at most the limit.
    pub fn guarantee(&self) -> Guarantee {
        let (cpu, memory) = (
            self.guaranteed_cpu.unwrap_or_default(),
            self.guaranteed_memory.unwrap_or_default(),
        );
        let gpu = self.guaranteed_gpu.unwrap_or_default();
        Guarantee {
            cpu: self.cpu.map_or(cpu, |limit| limit.min(cpu)),
            memory: self.memory.map_or(memory, |limit| limit.min(memory)),
            gpu: self.gpu.map_or(gpu, |limit| limit.min(gpu)),
        }
    }
}

fn parsed<T: FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<Option<T>, LimitError> {
    if value == "none" {
        return Ok(None);
    }
    value
        .parse()
        .map(Some)
        .map_err(|error: T::Err| LimitError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            problem: error.to_string(),
        })
}

fn text(value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_parses_as_shown_and_can_be_removed() {
        let mut limits = Limits::default();
        for (number, name) in NAMES.into_iter().enumerate() {
            let value = match name {
                "memory" | "storage" | "guaranteed_memory" => format!("{}Gi", number + 1),
                _ => (number + 1).to_string(),
            };
            limits.set(name, &value).unwrap();
            assert!(limits.rows().contains(&(name, value)), "{name}");
        }
        assert_eq!(limits.rows().len(), NAMES.len());
        let text = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits);
        for name in NAMES {
            limits.set(name, "none").unwrap();
        }
        assert_eq!(limits, Limits::default());
    }

    #[test]
    fn a_guarantee_never_exceeds_the_users_limit() {
        let mut limits = Limits::default();
        limits.set("guaranteed_cpu", "8").unwrap();
        limits.set("guaranteed_gpu", "1").unwrap();
        assert_eq!(limits.guarantee().cpu, Cpu::cores(8));
        limits.set("cpu", "4").unwrap();
        assert_eq!(limits.guarantee().cpu, Cpu::cores(4));
        assert_eq!(
            limits.guarantee().memory,
            Bytes::new(0),
            "not named, not guaranteed"
        );
        assert_eq!(limits.guarantee().gpu, 1);
    }

    #[test]
    fn a_wrong_limit_is_named() {
        let mut limits = Limits::default();
        let unknown = limits.set("cores", "1").unwrap_err().to_string();
        assert!(
            unknown.starts_with("`cores` is not a limit: use cpu, "),
            "{unknown}"
        );
        let total = limits.set_total("storage", "1Gi").unwrap_err().to_string();
        assert_eq!(
            total,
            "`storage` cannot be limited for all members together: use cpu, memory, gpu, parallelism, running_jobs"
        );
        assert_eq!(limits.set_total("cores", "1").unwrap_err().to_string(), unknown);
        let wrong = limits.set("gpu", "two").unwrap_err().to_string();
        assert!(wrong.starts_with("`gpu`: `two` is not a value: "), "{wrong}");
    }
}
