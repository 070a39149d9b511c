//! Whether a failed worker's Python lacked a module, and how its user gets one that has it.

use paddlecloud_api::jobs::{FailureView, WhyView};
use paddlecloud_core::job::Job;

use super::App;
use crate::programs::python_of;

impl App {
    /// Adds the missing module to the reason, if the last lines of the failed worker name one.
    pub(super) async fn add_missing_module(&self, answer: &mut WhyView, job: &Job) {
        let Some(module) = answer.first_failure.as_ref().and_then(missing_module) else {
            return;
        };
        let module = module.to_owned();
        let found = match self.config.engine.uses_own_machine() {
            true => self.with_programs(&job.spec, python_of).await.ok().flatten(),
            false => None,
        };
        let python = match &found {
            Some(python) => format!("`{}`", python.display()),
            None => "the Python of the workers".to_owned(),
        };
        let advice = if !self.config.engine.uses_own_machine() {
            let image = match &job.spec.image {
                Some(image) => format!("the image `{image}`"),
                None => "the image of the workers".to_owned(),
            };
            format!("{image} has no module `{module}`: submit with an image that has it (`-image IMAGE`)")
        } else if self.config.embedded {
            format!(
                "{python} has no module `{module}`: install it there, or activate a virtual environment that has it, and \
                 submit again"
            )
        } else {
            format!(
                "{python} on the server's machine has no module `{module}`: name a Python there that has it \
                 (`-entry \"ENV/bin/python …\"`), or ask your administrator for `python: ENV` in the server's configuration"
            )
        };
        answer.reason.push_str("; ");
        answer.reason.push_str(&advice);
    }
}

fn missing_module(failure: &FailureView) -> Option<&str> {
    failure
        .last_lines
        .iter()
        .rev()
        .find_map(|line| named_module(line))
}

/// The module that a line of Python's says it lacks.
fn named_module(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("No module named ")?;
    let rest = rest.trim_start_matches(['\'', '"', '`']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.')).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_module_is_read_from_every_form_of_the_message() {
        for (line, module) in [
            ("ModuleNotFoundError: No module named 'numpy'", Some("numpy")),
            (
                "ModuleNotFoundError: No module named 'yaml.nodes'; 'yaml' is not a package",
                Some("yaml.nodes"),
            ),
            (
                "/usr/bin/python3: No module named torch.distributed.run",
                Some("torch.distributed.run"),
            ),
            ("ImportError: No module named cPickle", Some("cPickle")),
            ("No module named \u{1b}[31mx", None),
            ("all modules are here", None),
        ] {
            assert_eq!(named_module(line), module, "{line}");
        }
    }
}
