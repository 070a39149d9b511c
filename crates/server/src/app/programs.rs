//! Whether the workers' machine has the programs that a job's commands need, and which Python they start.

use paddlecloud_core::spec::{JobSpec, SpecError};

use super::{App, AppError};
use crate::programs::{Lookup, default_path, look_up, python_of};

/// What the reply to a submit says about the programs that will run.
#[derive(Default)]
pub(super) struct FoundPrograms {
    pub note: Option<String>,
    /// The Python that trainers start by name.
    pub python: Option<String>,
}

impl App {
    /// The programs that will run; nothing where other machines have them. Refuses a job that this machine cannot run, before any
    /// of its files are sent. Blocks.
    pub(super) fn programs_look_up(&self, spec: &JobSpec) -> Result<FoundPrograms, AppError> {
        if !self.config.engine.uses_own_machine() {
            return Ok(FoundPrograms::default());
        }
        if spec.package.is_none() {
            let problem =
                "`-image` alone does not say what to run: this server runs the programs of its own machine";
            let refused = SpecError::sentence("image", problem);
            return Err(refused
                .with_hint("name the folder that contains your program")
                .into());
        }
        let path = default_path(self.config.python.as_deref());
        let note = match look_up(spec, &path) {
            Lookup::Missing { program, path } => {
                let problem = format!("there is no program `{program}` on the machine that runs the workers");
                let hint =
                    format!("searched in PATH ({path}); write `./{program}` if it is part of the package");
                return Err(SpecError::sentence("entry", problem).with_hint(hint).into());
            }
            Lookup::PythonIsPython3 => {
                Some("the workers' machine has no `python`: `python3` is used under that name".to_owned())
            }
            Lookup::Found => None,
        };
        let python = python_of(spec, &path);
        Ok(FoundPrograms {
            note,
            python: python.map(|python| python.to_string_lossy().into_owned()),
        })
    }

    /// Searches the `PATH` of a job's workers.
    pub(super) async fn with_programs<T: Send + 'static>(
        &self,
        spec: &JobSpec,
        search: impl FnOnce(&JobSpec, &str) -> T + Send + 'static,
    ) -> Result<T, AppError> {
        let (spec, path) = (spec.clone(), default_path(self.config.python.as_deref()));
        let searched = tokio::task::spawn_blocking(move || search(&spec, &path)).await;
        searched.map_err(|_| AppError::Internal)
    }
}
