//! Optimizers, schedules and tables as Python passes them: dictionaries of numbers.

use std::collections::HashMap;

use paddlecloud_pserver::message::{Init, Limits, MAX_ROW, TableSpec};
use paddlecloud_pserver::optimizer::{Optimizer, OutOfRange, Rule};
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
        self.whole_up_to(name, u64::MAX)
    }

    fn whole_up_to(&self, name: &str, most: u64) -> PyResult<u64> {
        let number = self.number(name)?;
        match number.fract() == 0.0 && number >= 0.0 && number <= most as f64 {
            true => Ok(number as u64),
            false => Err(PyValueError::new_err(format!(
                "`{name}` must be a whole number of at least 0, not {number}"
            ))),
        }
    }
}

fn refused(error: OutOfRange) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Rule, schedule, the schedule's pieces, and what is common to all rules.
#[derive(FromPyObject)]
pub struct OptimizerArgs(Named, Named, Vec<(u64, f64)>, Named);

impl OptimizerArgs {
    /// An optimizer whose constants are in their ranges.
    pub fn parse(self) -> PyResult<Optimizer> {
        let OptimizerArgs(rule, schedule, pieces, common) = self;
        let unknown = || PyValueError::new_err(format!("there is no optimizer `{}`", rule.0));
        let optimizer = Optimizer {
            rule: Rule::named(&rule.0, |name| rule.number(name)).ok_or_else(unknown)??,
            schedule: parse_schedule(&schedule, pieces)?,
            l1: common.float("l1")?,
            l2: common.float("l2")?,
            proximal_l1: common.float("proximal_l1")?,
            clip: common.float("clip")?,
            average: common.whole_up_to("average", u64::from(u32::MAX))? as u32,
            double: common.number("double")? != 0.0,
        };
        optimizer.check().map_err(refused)?;
        Ok(optimizer)
    }
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
pub struct TableArgs(String, i64, OptimizerArgs, Named, u64, Named);

impl TableArgs {
    pub fn parse(self) -> PyResult<TableSpec> {
        let TableArgs(name, row, optimizer, init, seed, limits) = self;
        let wrong = || PyValueError::new_err(format!("`row` must be between 1 and {MAX_ROW}, not {row}"));
        let row = u32::try_from(row).ok().filter(|row| (1..=MAX_ROW).contains(row));
        let row = row.ok_or_else(wrong)?;
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
        init.check().map_err(refused)?;
        let optimizer = optimizer.parse()?;
        let rows = match limits.whole("max_bytes")? {
            0 => limits.whole("max_rows")?,
            bytes => bytes / bytes_of_row(row, &optimizer),
        };
        Ok(TableSpec {
            name,
            row,
            optimizer,
            init,
            seed,
            limits: Limits {
                admit_after: limits.whole_up_to("admit_after", u64::from(u32::MAX))? as u32,
                rows,
                evict: limits.number("evict")? != 0.0,
                idle_steps: limits.whole("idle_steps")?,
            },
        })
    }
}
