//! The earlier run whose training with parameter servers a job continues.
//!
//! The server chooses and checks it at submit; the parameter servers load its checkpoint.

use serde::{Deserialize, Serialize};

use crate::names::JobId;

/// An ended run of the same user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedRun {
    pub id: JobId,
    /// The folder of its results, below the user's home.
    pub output: String,
}

impl ResumedRun {
    /// The variables of every worker of the new run. `home` is the user's home as a worker sees it.
    pub fn variables(&self, home: &str) -> [(&'static str, String); 2] {
        [
            ("PADDLE_PS_RESUME", self.id.to_string()),
            ("PADDLE_PS_RESUME_OUTPUT", format!("{home}/{}", self.output)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;

    #[test]
    fn records_of_versions_without_it_are_read_and_written_as_before() {
        let mut spec = JobSpec::new("old".parse().unwrap());
        let old = serde_json::to_string(&spec).unwrap();
        assert!(!old.contains("resume"), "{old}");
        assert_eq!(serde_json::from_str::<JobSpec>(&old).unwrap(), spec);
        spec.resume = Some(ResumedRun {
            id: JobId::new(1, 0),
            output: ".paddlecloud/runs/j_1/a/output".into(),
        });
        let new = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&new).unwrap(), spec);
    }
}
