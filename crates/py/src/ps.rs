//! `_native.PsClient`: a trainer's connection to the parameter servers, for `paddlecloud.ps`.
//!
//! Arrays are used in place, without copies; the GIL is released during network calls. The public signatures are defined in
//! Python.

mod arrays;
mod spec;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddlecloud_pserver::client::{Client, ClientError, Config, Gradients, Listener, read_parameter};
use paddlecloud_pserver::hello::RunSecret;
use paddlecloud_pserver::message::{Code, DenseSpec, Session};
use paddlecloud_pserver::optimizer::{Optimizer, Pace};
use paddlecloud_pserver::server::{self, Admission, Server};
use paddlecloud_pserver::steps::Mode;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use self::arrays::{Floats, FloatsMut, ids};
use self::spec::{OptimizerArgs, TableArgs};
use crate::fork;

create_exception!(
    paddlecloud.ps,
    PsError,
    PyException,
    "A parameter server refused a request or cannot be reached."
);
create_exception!(
    paddlecloud.ps,
    RolledBack,
    PsError,
    "Training was rolled back; `step` is where it resumes."
);
create_exception!(
    paddlecloud.ps,
    Fenced,
    PsError,
    "A later attempt of this trainer has taken its place."
);
create_exception!(
    paddlecloud.ps,
    OutOfMemory,
    PsError,
    "A parameter server has no memory left for a tensor."
);
create_exception!(
    paddlecloud.ps,
    NotFinite,
    PsError,
    "A gradient contains NaN or infinite values."
);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("PsError", py.get_type::<PsError>())?;
    module.add("PsRolledBack", py.get_type::<RolledBack>())?;
    module.add("PsFenced", py.get_type::<Fenced>())?;
    module.add("PsOutOfMemory", py.get_type::<OutOfMemory>())?;
    module.add("PsNotFinite", py.get_type::<NotFinite>())?;
    module.add_class::<PsClient>()?;
    module.add_function(wrap_pyfunction!(ps_serve, module)?)?;
    module.add_function(wrap_pyfunction!(ps_read_parameter, module)?)
}

/// Starts a server in this process and returns its address. It ends with the process.
#[pyfunction]
#[pyo3(signature = (trainers, secret, index=0, servers=1, memory=u64::MAX))]
fn ps_serve(trainers: u32, secret: &str, index: u32, servers: u32, memory: u64) -> PyResult<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let server = Server::new(server::Config {
        index,
        servers,
        trainers,
        cores,
        memory,
        secret: Some(RunSecret::new(secret)),
        ..server::Config::default()
    });
    let address = "127.0.0.1:0".parse().expect("an address");
    let listening = server::listen(&server, &[address], &Admission::BySecret, |_| None)
        .map_err(|error| PsError::new_err(error.to_string()))?;
    Ok(listening.addresses[0].to_string())
}

/// One parameter of a saved model.
#[pyfunction]
fn ps_read_parameter(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, numpy::PyArray1<f32>>> {
    let values = py
        .detach(|| read_parameter(&path))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(numpy::PyArray1::from_vec(py, values))
}

/// Reports what a call waits for and what differs from an undisturbed run, and notices Ctrl-C meanwhile.
struct Watch {
    on_wait: Option<Py<PyAny>>,
    on_notice: Option<Py<PyAny>>,
    signal: Mutex<Option<PyErr>>,
}

impl Listener for Watch {
    fn waiting(&self, server: u32, message: &str) {
        Python::attach(|py| {
            if let Some(call) = &self.on_wait
                && let Err(error) = call.call1(py, (server, message))
            {
                error.write_unraisable(py, None);
            }
        });
    }

    fn notice(&self, message: &str) {
        Python::attach(|py| {
            if let Some(call) = &self.on_notice
                && let Err(error) = call.call1(py, (message,))
            {
                error.write_unraisable(py, None);
            }
        });
    }

    fn interrupted(&self) -> bool {
        let signal = Python::attach(|py| py.check_signals().err());
        let is_raised = signal.is_some();
        if is_raised {
            *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = signal;
        }
        is_raised
    }
}

#[pyclass(module = "paddlecloud._native", frozen)]
pub struct PsClient {
    client: Mutex<Client>,
    watch: Arc<Watch>,
    generation: u32,
}

#[pymethods]
impl PsClient {
    #[new]
    #[pyo3(signature = (
        addresses, trainer, trainers, attempt, secret, mode, staleness, mean, checkpoints, checkpoint_every, patience, on_wait, gradients="fp32", keep=0.01,
        shares_memory=true, on_notice=None, resume=String::new()
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "called from one place in Python, by name"
    )]
    fn new(
        py: Python<'_>,
        addresses: Vec<String>,
        trainer: u32,
        trainers: u32,
        attempt: u32,
        secret: Option<String>,
        mode: &str,
        staleness: u32,
        mean: bool,
        checkpoints: String,
        checkpoint_every: u64,
        patience: f64,
        on_wait: Option<Py<PyAny>>,
        gradients: &str,
        keep: f32,
        shares_memory: bool,
        on_notice: Option<Py<PyAny>>,
        resume: String,
    ) -> PyResult<PsClient> {
        let watch = Arc::new(Watch {
            on_wait,
            on_notice,
            signal: Mutex::default(),
        });
        let config = Config {
            addresses,
            trainer,
            trainers,
            attempt,
            secret: secret.as_deref().map(RunSecret::new),
            shares_memory,
            session: Session {
                mode: match mode {
                    "sync" => Mode::Sync,
                    "async" => Mode::Async,
                    _ => Mode::Bounded(staleness),
                },
                mean,
                checkpoints,
                checkpoint_every,
                resume,
            },
            gradients: match gradients {
                "bf16" => Gradients::Bf16,
                "fp16" => Gradients::F16,
                "topk" => Gradients::TopK(keep),
                _ => Gradients::F32,
            },
            patience: Duration::try_from_secs_f64(patience).map_err(|_| {
                PyValueError::new_err(format!(
                    "`patience` must be a number of seconds of at least 0, not {patience}"
                ))
            })?,
            listener: watch.clone(),
        };
        let client = py
            .detach(|| Client::connect(config))
            .map_err(|error| failure(&watch, error))?;
        Ok(PsClient {
            client: Mutex::new(client),
            watch,
            generation: fork::generation(),
        })
    }

    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |client| Ok(client.step()))
    }

    /// The step at which this run began, if it continues another one and had ended no step when this trainer joined.
    #[getter]
    fn first_step(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |client| Ok(client.first_step()))
    }

    /// Counts rollbacks.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |client| Ok(client.epoch()))
    }

    /// The state that this trainer gave to `finish_step` before the current step; empty if there is none.
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.call(py, Client::kept)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn create_dense(
        &self,
        py: Python<'_>,
        name: String,
        value: &Bound<'_, PyAny>,
        optimizer: OptimizerArgs,
    ) -> PyResult<()> {
        let shape = arrays::shape(value)?;
        let value = Floats::new(value)?;
        let spec = DenseSpec {
            name,
            shape,
            optimizer: optimizer.parse()?,
        };
        self.call(py, |client| client.create_dense(spec, value.as_slice()))
    }

    fn create_table(&self, py: Python<'_>, table: TableArgs) -> PyResult<()> {
        let spec = table.parse()?;
        self.call(py, |client| client.create_table(spec))
    }

    fn assign(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = Floats::new(value)?;
        self.call(py, |client| client.assign(name, value.as_slice(), true))
    }

    fn push(
        &self,
        py: Python<'_>,
        gradients: Vec<(String, Bound<'_, PyAny>)>,
        pace: (Option<f32>, u64),
        optimizer: Option<OptimizerArgs>,
    ) -> PyResult<()> {
        let (rate, samples) = pace;
        let optimizer = parse_optional(optimizer)?;
        let gradients = gradients
            .iter()
            .map(|(name, values)| Ok((name.as_str(), Floats::new(values)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.call(py, |client| {
            let slices: Vec<(&str, &[f32])> = gradients
                .iter()
                .map(|(name, values)| (*name, values.as_slice()))
                .collect();
            client.push_with(&slices, Pace { rate, samples }, optimizer)
        })
    }

    fn pull(&self, py: Python<'_>, into: Vec<(String, Bound<'_, PyAny>)>, averaged: bool) -> PyResult<()> {
        self.pull_by(py, &into, |client, slices| client.pull(slices, averaged))
    }

    #[pyo3(signature = (into, state=None))]
    fn finish_step(
        &self,
        py: Python<'_>,
        into: Vec<(String, Bound<'_, PyAny>)>,
        state: Option<&[u8]>,
    ) -> PyResult<()> {
        self.pull_by(py, &into, |client, slices| client.finish_step(slices, state))
    }

    fn lookup(
        &self,
        py: Python<'_>,
        name: &str,
        wanted: &Bound<'_, PyAny>,
        train: bool,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let wanted = ids(wanted)?;
        let mut out = FloatsMut::new(out)?;
        self.call(py, |client| {
            client.lookup(name, wanted.as_slice(), train, out.as_mut_slice())
        })
    }

    fn push_rows(
        &self,
        py: Python<'_>,
        name: &str,
        wanted: &Bound<'_, PyAny>,
        gradients: &Bound<'_, PyAny>,
        pace: (Option<f32>, u64),
        optimizer: Option<OptimizerArgs>,
    ) -> PyResult<()> {
        let (rate, samples) = pace;
        let optimizer = parse_optional(optimizer)?;
        let wanted = ids(wanted)?;
        let gradients = Floats::new(gradients)?;
        self.call(py, |client| {
            let pace = Pace { rate, samples };
            client.push_rows_with(name, wanted.as_slice(), gradients.as_slice(), pace, optimizer)
        })
    }

    /// Fills `state`, one slot after the other. Returns updates, samples, and the powers of Adam's betas.
    fn optimizer_state(
        &self,
        py: Python<'_>,
        name: &str,
        state: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64, (f32, f32))> {
        let mut state = FloatsMut::new(state)?;
        let progress = self.call(py, |client| client.optimizer_state(name, state.as_mut_slice()))?;
        let powers = (progress.beta1_power, progress.beta2_power);
        Ok((progress.updates, progress.samples, powers))
    }

    fn set_optimizer_state(
        &self,
        py: Python<'_>,
        name: &str,
        counts: (u64, u64),
        powers: Option<(f32, f32)>,
        state: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let state = Floats::new(state)?;
        self.call(py, |client| {
            client.set_optimizer_state(name, counts, powers, state.as_slice())
        })
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Client::barrier)
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Client::leave)
    }

    fn wait_for_end(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Client::wait_for_end)
    }

    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.call(py, |client| client.save(&folder))
    }

    fn load(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.call(py, |client| client.load(&folder))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, Client::stat)
    }
}

impl PsClient {
    fn pull_by(
        &self,
        py: Python<'_>,
        into: &[(String, Bound<'_, PyAny>)],
        pull: impl FnOnce(&mut Client, &mut [(&str, &mut [f32])]) -> Result<(), ClientError> + Send,
    ) -> PyResult<()> {
        let mut into = into
            .iter()
            .map(|(name, values)| Ok((name.as_str(), FloatsMut::new(values)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.call(py, |client| {
            let mut slices: Vec<(&str, &mut [f32])> = into
                .iter_mut()
                .map(|(name, values)| (*name, values.as_mut_slice()))
                .collect();
            pull(client, &mut slices)
        })
    }

    /// One call at a time, with the GIL released.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        if self.generation != fork::generation() {
            let message = "this connection belongs to the process that was forked; \
                           call `paddlecloud.ps.connect()` in the child";
            return Err(PyRuntimeError::new_err(message));
        }
        let done = py.detach(|| work(&mut self.lock()));
        done.map_err(|error| failure(&self.watch, error))
    }

    fn lock(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse_optional(optimizer: Option<OptimizerArgs>) -> PyResult<Option<Arc<Optimizer>>> {
    let parsed = optimizer.map(OptimizerArgs::parse).transpose()?;
    Ok(parsed.map(Arc::new))
}

fn failure(watch: &Watch, error: ClientError) -> PyErr {
    let message = error.to_string();
    match error {
        ClientError::Interrupted => {
            let signal = watch.signal.lock().unwrap_or_else(PoisonError::into_inner).take();
            signal.unwrap_or_else(|| PsError::new_err(message))
        }
        ClientError::RolledBack { step } => RolledBack::new_err((message, step)),
        ClientError::Refused(refused) => match refused.code {
            Code::RolledBack => RolledBack::new_err((message, refused.step)),
            Code::Fenced => Fenced::new_err(message),
            Code::Memory => OutOfMemory::new_err(message),
            Code::NotFinite => NotFinite::new_err(message),
            Code::Other | Code::NoCheckpoint | Code::Credentials | Code::Conflict => {
                PsError::new_err(message)
            }
        },
        ClientError::NoSuchTensor(_)
        | ClientError::Elements { .. }
        | ClientError::Kind { .. }
        | ClientError::Constant(_)
        | ClientError::Name(_)
        | ClientError::State { .. }
        | ClientError::Head { .. }
        | ClientError::RowCount { .. } => PyValueError::new_err(message),
        _ => PsError::new_err(message),
    }
}
