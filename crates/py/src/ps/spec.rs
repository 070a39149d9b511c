//! Optimizers, schedules and tables as Python passes them: dictionaries of numbers.

use std::collections::HashMap;

use paddlecloud_pserver::message::{Init, Limits, TableSpec, is_name};
use paddlecloud_pserver::optimizer::{Optimizer, Rule, Scale};
use paddlecloud_pserver::schedule::{Counts, Schedule, Shape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A word and its numbers.
#[derive(FromPyObject)]
pub struct Named(String, HashMap<String, f64>);

impl Named {
    fn number(&self, name: &str) -> PyResult<f64> {
        let number = self.1.get(name).copied();
        number.ok_or_else(|| PyValueError::new_err(format!("`{}` needs `{name}`", self.0)))
    }

    fn float(&self, name: &str) -> PyResult<f32> {
        Ok(self.number(name)? as f32)
    }

    fn whole(&self, name: &str) -> PyResult<u64> {
        Ok(self.number(name)? as u64)
    }
}

/// Rule, schedule, the schedule's pieces, and what is common to all rules.
#[derive(FromPyObject)]
pub struct OptimizerArgs(Named, Named, Vec<(u64, f64)>, Named);

impl OptimizerArgs {
    pub fn parse(self) -> PyResult<Optimizer> {
        let OptimizerArgs(rule, schedule, pieces, common) = self;
        Ok(Optimizer {
            rule: parse_rule(&rule)?,
            schedule: parse_schedule(&schedule, pieces)?,
            l1: common.float("l1")?,
            l2: common.float("l2")?,
            proximal_l1: common.float("proximal_l1")?,
            clip: common.float("clip")?,
            average: common.whole("average")? as u32,
        })
    }
}

fn parse_rule(rule: &Named) -> PyResult<Rule> {
    let float = |name| rule.float(name);
    Ok(match rule.0.as_str() {
        "sgd" => Rule::Sgd,
        "momentum" => Rule::Momentum {
            momentum: float("momentum")?,
            nesterov: float("nesterov")? != 0.0,
        },
        "adagrad" => Rule::Adagrad {
            epsilon: float("epsilon")?,
        },
        "row_adagrad" => Rule::RowAdagrad {
            epsilon: float("epsilon")?,
        },
        "adam" => Rule::Adam {
            beta1: float("beta1")?,
            beta2: float("beta2")?,
            epsilon: float("epsilon")?,
        },
        "adamw" => Rule::AdamW {
            beta1: float("beta1")?,
            beta2: float("beta2")?,
            epsilon: float("epsilon")?,
            decay: float("decay")?,
        },
        "rmsprop" => Rule::RmsProp {
            rho: float("rho")?,
            momentum: float("momentum")?,
            epsilon: float("epsilon")?,
        },
        "adadelta" => Rule::AdaDelta {
            rho: float("rho")?,
            epsilon: float("epsilon")?,
        },
        "ftrl" => Rule::Ftrl {
            beta: float("beta")?,
            l1: float("l1")?,
            l2: float("l2")?,
        },
        "adamax" => Rule::Adamax {
            beta1: float("beta1")?,
            beta2: float("beta2")?,
            epsilon: float("epsilon")?,
        },
        other => Rule::Velocity {
            scale: parse_scale(rule, other)?,
            momentum: float("momentum")?,
        },
    })
}

/// The optimizers of 2017, which differ in the rate of each element.
fn parse_scale(rule: &Named, kind: &str) -> PyResult<Scale> {
    let (rho, epsilon) = (|| rule.float("rho"), || rule.float("epsilon"));
    Ok(match kind {
        "velocity" => Scale::One,
        "velocity_adagrad" => Scale::Adagrad { epsilon: epsilon()? },
        "velocity_decayed_adagrad" => Scale::DecayedAdagrad {
            rho: rho()?,
            epsilon: epsilon()?,
        },
        "velocity_rmsprop" => Scale::RmsProp {
            rho: rho()?,
            epsilon: epsilon()?,
        },
        "velocity_adadelta" => Scale::AdaDelta {
            rho: rho()?,
            epsilon: epsilon()?,
        },
        other => return Err(PyValueError::new_err(format!("there is no optimizer `{other}`"))),
    })
}

fn parse_schedule(schedule: &Named, pieces: Vec<(u64, f64)>) -> PyResult<Schedule> {
    let number = |name| schedule.number(name);
    let shape = match schedule.0.as_str() {
        "constant" => Shape::Constant,
        "exponential" => Shape::Exponential {
            decay: number("decay")?,
            every: number("every")?,
            staircase: number("staircase")? != 0.0,
        },
        "inverse_time" => Shape::InverseTime {
            decay: number("decay")?,
            every: schedule.whole("every")?,
        },
        "inverse_power" => Shape::InversePower {
            decay: number("decay")?,
            power: number("power")?,
        },
        "linear" => Shape::Linear {
            slope: number("slope")?,
            end: number("end")?,
        },
        "polynomial" => Shape::Polynomial {
            end: number("end")?,
            steps: schedule.whole("steps")?,
            power: number("power")?,
        },
        "cosine" => Shape::Cosine {
            end: number("end")?,
            steps: schedule.whole("steps")?,
        },
        "piecewise" => Shape::Piecewise(pieces),
        other => return Err(PyValueError::new_err(format!("there is no schedule `{other}`"))),
    };
    Ok(Schedule {
        base: number("base")?,
        shape,
        counts: match number("by_samples")? {
            0.0 => Counts::Updates,
            _ => Counts::Samples,
        },
        warmup: schedule.whole("warmup")?,
    })
}

/// A row with its state, its id and what finds it.
fn bytes_of_row(row: u32, optimizer: &Optimizer) -> u64 {
    let floats = row as usize * (1 + optimizer.state_per_element()) + optimizer.state_per_row();
    4 * floats as u64 + 20
}

/// Name, length of a row, optimizer, initial values, seed, limits.
#[derive(FromPyObject)]
pub struct TableArgs(String, u32, OptimizerArgs, Named, u64, Named);

impl TableArgs {
    pub fn parse(self) -> PyResult<TableSpec> {
        let TableArgs(name, row, optimizer, init, seed, limits) = self;
        if !is_name(&name) {
            return Err(PyValueError::new_err(format!(
                "`{name}` cannot be the name of a table: it is also a file name"
            )));
        }
        let init = match init.0.as_str() {
            "uniform" => Init::Uniform {
                low: init.float("low")?,
                high: init.float("high")?,
            },
            "normal" => Init::Normal {
                mean: init.float("mean")?,
                deviation: init.float("deviation")?,
            },
            _ => Init::Zero,
        };
        let optimizer = optimizer.parse()?;
        let rows = match limits.whole("bytes")? {
            0 => limits.whole("rows")?,
            bytes => bytes / bytes_of_row(row, &optimizer),
        };
        Ok(TableSpec {
            name,
            row,
            optimizer,
            init,
            seed,
            limits: Limits {
                admit_after: limits.whole("admit_after")? as u32,
                rows,
                evict: limits.number("evict")? != 0.0,
                idle_steps: limits.whole("idle_steps")?,
            },
        })
    }
}
