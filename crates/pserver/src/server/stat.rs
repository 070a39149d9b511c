//! The statistics of a server, as JSON and for Prometheus.

use std::fmt::Write as _;

use super::{Server, Tensor};

impl Server {
    /// The statistics as one JSON object.
    pub fn stat(&self) -> String {
        let (step, epoch, mode, pushes, progress) = {
            let state = self.state();
            let mode = state.session.as_ref().map(|session| session.mode.to_string());
            let steps = &state.steps;
            (steps.step(), steps.epoch(), mode, state.pushes, steps.progress())
        };
        let trainers: Vec<String> = progress
            .iter()
            .map(|(next, left)| format!(r#"{{"step":{next},"left":{}}}"#, left.is_some()))
            .collect();
        let outcome = self.checkpoint_outcome();
        let checkpoint = format!(
            r#"{{"step":{},"error":{}}}"#,
            outcome.written.map_or("null".to_owned(), |step| step.to_string()),
            outcome.error.map_or("null".to_owned(), |error| quoted(&error)),
        );
        let tensors: Vec<String> = self.all_tensors().iter().map(tensor_json).collect();
        format!(
            r#"{{"server":{},"servers":{},"mode":{},"step":{step},"epoch":{epoch},"pushes":{pushes},"memory":{{"used":{},"limit":{}}},"checkpoint":{checkpoint},"trainers":[{}],"tensors":[{}]}}"#,
            self.config.index,
            self.config.servers,
            mode.map_or("null".to_owned(), |mode| quoted(&mode)),
            self.budget.used(),
            self.budget.limit(),
            trainers.join(","),
            tensors.join(","),
        )
    }
}

fn tensor_json(tensor: &Tensor) -> String {
    match tensor {
        Tensor::Dense(dense) => format!(
            r#"{{"name":{},"elements":{},"here":{},"updates":{}}}"#,
            quoted(&dense.name),
            dense.layout.elements,
            dense.local_elements,
            dense.progress().updates.updates,
        ),
        Tensor::Table(table) => format!(
            r#"{{"name":{},"row":{},"rows":{},"updates":{}}}"#,
            quoted(&table.spec.name),
            table.spec.row,
            table.rows(),
            table.progress().updates,
        ),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
