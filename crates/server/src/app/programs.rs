//! Whether the workers' machine has the programs that a job's commands need.

use paddlecloud_core::spec::{JobSpec, SpecError};

use super::{App, AppError};
use crate::programs::{Lookup, look_up};

impl App {
    /// Refuses a job that this machine cannot run, before any of its files are sent.
    pub(super) async fn programs_check(&self, spec: &JobSpec) -> Result<(), AppError> {
        if !self.config.engine.uses_own_machine() {
            return Ok(());
        }
        if spec.package.is_none() {
            let problem =
                "`-image` alone does not say what to run: this server runs the programs of its own machine";
            let refused = SpecError::sentence("image", problem);
            return Err(refused
                .with_hint("name the folder that contains your program")
                .into());
        }
        match self.programs_look_up(spec).await? {
            Lookup::Missing { program, path } => {
                let problem = format!("there is no program `{program}` on the machine that runs the workers");
                let hint =
                    format!("searched in PATH ({path}); write `./{program}` if it is part of the package");
                Err(SpecError::sentence("entry", problem).with_hint(hint).into())
            }
            Lookup::Found | Lookup::PythonIsPython3 => Ok(()),
        }
    }

    /// Notes for the submitter about the programs that will run.
    pub(super) async fn programs_note(&self, spec: &JobSpec) -> Option<String> {
        if !self.config.engine.uses_own_machine() {
            return None;
        }
        let looked_up = self.programs_look_up(spec).await.ok()?;
        (looked_up == Lookup::PythonIsPython3)
            .then(|| "the workers' machine has no `python`: `python3` is used under that name".to_owned())
    }

    async fn programs_look_up(&self, spec: &JobSpec) -> Result<Lookup, AppError> {
        let spec = spec.clone();
        let looked_up = tokio::task::spawn_blocking(move || look_up(&spec)).await;
        looked_up.map_err(|_| AppError::Internal)
    }
}
