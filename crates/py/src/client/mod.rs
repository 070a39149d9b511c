//! `_native.Connection`: the typed client, and how it finds its server, for the Python classes in `paddlecloud/`.
//!
//! Operations and replies are JSON; the public signatures are defined in Python. The GIL is released while an
//! operation is in progress.

mod failure;
mod files;
mod lines;
mod log;
mod operation;
mod runtime;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_api::client::Endpoint;
use paddlecloud_connect::config::{self, Choice, ConfigOverrides, Datacenter};
use paddlecloud_connect::session::{self, Host};
use paddlecloud_connect::{ConnectError, Environment, Program, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use self::failure::Failure;
use self::log::LogStream;
use self::operation::{Operation, Reply};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Connection>()?;
    module.add_class::<LogStream>()?;
    module.add_class::<Started>()
}

/// The server to use.
#[derive(Clone)]
enum Address {
    /// What the configuration chooses, else the embedded one.
    Configured(ConfigOverrides),
    /// The one that was named.
    Named(Box<Datacenter>),
}

/// A server that was found, and the process that found it: a forked child cannot use its connections.
struct Opened {
    process: u32,
    session: Arc<Session>,
}

/// One caller's connection to one server; opened by the first operation.
#[pyclass(module = "paddlecloud._native", frozen)]
pub struct Connection {
    address: Address,
    /// The wheel's own program, if it has one.
    program: Option<PathBuf>,
    /// Touched only while the GIL is held, so that a fork never copies it locked.
    opened: Mutex<Option<Opened>>,
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (
        *, config=None, datacenter=None, endpoint=None, username=None, password=None, token=None,
        usercert=None, userkey=None, cacert=None, program=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of its own in Python")]
    fn new(
        config: Option<PathBuf>,
        datacenter: Option<String>,
        endpoint: Option<&str>,
        username: Option<String>,
        password: Option<String>,
        token: Option<String>,
        usercert: Option<PathBuf>,
        userkey: Option<PathBuf>,
        cacert: Option<PathBuf>,
        program: Option<PathBuf>,
    ) -> PyResult<Self> {
        let address = match endpoint {
            None => Address::Configured(ConfigOverrides { config, datacenter }),
            Some(endpoint) => {
                let endpoint: Endpoint = endpoint
                    .parse()
                    .map_err(|error| PyValueError::new_err(format!("{error}")))?;
                let name = datacenter.unwrap_or_else(|| endpoint.to_string());
                Address::Named(Box::new(Datacenter {
                    username,
                    password,
                    token,
                    usercert,
                    userkey,
                    cacert,
                    ..Datacenter::at(&name, endpoint)
                }))
            }
        };
        Ok(Connection {
            address,
            program,
            opened: Mutex::default(),
        })
    }

    /// Finds the server, starting the embedded one if no other is configured: its datacenter, its endpoint and
    /// whether it is the embedded one.
    fn open(&self, py: Python<'_>) -> PyResult<(String, String, bool)> {
        let way = self.way();
        let found = runtime::wait(py, async move { way.session().await })?;
        let session = found.map_err(|failure| failure.into_error(py))?;
        self.keep(&session);
        Ok((
            session.datacenter.clone(),
            session.client.endpoint().to_string(),
            session.is_embedded,
        ))
    }

    /// Whether the server is this machine's own one, as the configuration says. Starts nothing.
    fn is_embedded(&self, py: Python<'_>) -> PyResult<bool> {
        self.way().is_embedded().map_err(|failure| failure.into_error(py))
    }

    /// Does one operation and returns its reply.
    fn run(&self, py: Python<'_>, operation: &str) -> PyResult<Py<PyAny>> {
        let (operation, way) = (parse(operation)?, self.way());
        let done = runtime::wait(py, way.run(operation))?;
        match self.take(done) {
            Ok(reply) => Ok(reply.into_object(py)),
            Err(failure) => Err(failure.into_error(py)),
        }
    }

    /// Begins one operation; `done(reply, error)` is called on a thread of this module when it has ended.
    fn start(slf: Bound<'_, Self>, operation: &str, done: Py<PyAny>) -> PyResult<Started> {
        let connection = slf.get();
        let (operation, way) = (parse(operation)?, connection.way());
        let this = slf.clone().unbind();
        Started::begin(way.run(operation), done, move |py, outcome| {
            this.get().take(outcome).map(|reply| reply.into_object(py))
        })
    }

    /// Begins to read a job's log.
    fn logs(&self, py: Python<'_>, job: String, query: &str) -> PyResult<LogStream> {
        let query = serde_json::from_str(query).map_err(|error| PyValueError::new_err(error.to_string()))?;
        LogStream::open(py, self.way(), job, query)
    }
}

impl Connection {
    fn way(&self) -> Way {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let known = opened
            .as_ref()
            .filter(|opened| opened.process == std::process::id())
            .map(|opened| opened.session.clone());
        Way {
            address: self.address.clone(),
            program: self.program.clone(),
            environment: Environment::of_this_process(),
            known,
        }
    }

    fn keep(&self, session: &Arc<Session>) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Opened {
            process: std::process::id(),
            session: session.clone(),
        });
    }

    fn take(&self, outcome: Outcome) -> Result<Reply, Failure> {
        if let Some(session) = &outcome.session {
            self.keep(session);
        }
        outcome.reply
    }
}

fn parse(operation: &str) -> PyResult<Operation> {
    serde_json::from_str(operation).map_err(|error| {
        // The position in the JSON means nothing to users, who never see it.
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        PyValueError::new_err(words.to_owned())
    })
}

/// Everything an operation needs, without Python objects.
pub struct Way {
    address: Address,
    program: Option<PathBuf>,
    environment: Environment,
    known: Option<Arc<Session>>,
}

/// A reply, and the session it came through.
struct Outcome {
    session: Option<Arc<Session>>,
    reply: Result<Reply, Failure>,
}

impl Way {
    async fn session(&self) -> Result<Arc<Session>, Failure> {
        if let Some(session) = &self.known {
            return Ok(session.clone());
        }
        let session = match &self.address {
            Address::Named(datacenter) => Session {
                client: session::remote(datacenter, &self.environment),
                datacenter: datacenter.name.clone(),
                is_embedded: false,
            },
            Address::Configured(overrides) => {
                let program = self.program();
                let host = Host {
                    program: program.as_ref(),
                    note: |_: &str| {},
                };
                Session::open(overrides, &self.environment, host).await?
            }
        };
        Ok(Arc::new(session))
    }

    fn is_embedded(&self) -> Result<bool, Failure> {
        match (&self.known, &self.address) {
            (Some(session), _) => Ok(session.is_embedded),
            (None, Address::Named(_)) => Ok(false),
            (None, Address::Configured(overrides)) => {
                let choice = config::choice(overrides, &self.environment).map_err(ConnectError::from)?;
                Ok(matches!(choice, Choice::Embedded))
            }
        }
    }

    fn program(&self) -> Option<Program> {
        Program::found(&self.environment, self.program.as_deref())
    }

    async fn run(mut self, operation: Operation) -> Outcome {
        let again = self.may_be_gone(&operation).then(|| operation.clone());
        let outcome = self.once(operation).await;
        match (outcome.reply, again) {
            // The embedded server was stopped since it was found: nothing was sent, so it is located again.
            (Err(failure), Some(operation)) if failure.is_unreachable() => {
                self.known = None;
                self.once(operation).await
            }
            (reply, _) => Outcome { reply, ..outcome },
        }
    }

    /// Whether the server may have been stopped meanwhile, and should run again for this operation.
    fn may_be_gone(&self, operation: &Operation) -> bool {
        let is_embedded = self.known.as_ref().is_some_and(|session| session.is_embedded);
        is_embedded && !matches!(operation, Operation::ServerStop)
    }

    async fn once(&self, operation: Operation) -> Outcome {
        match self.session().await {
            Err(failure) => Outcome {
                session: None,
                reply: Err(failure),
            },
            Ok(session) => Outcome {
                reply: operation.run(&session, &self.environment).await,
                session: Some(session),
            },
        }
    }

    /// Restarts the embedded server; a failure shows at the next attempt to connect.
    async fn revive(&self, session: &Session) {
        #[cfg(target_os = "linux")]
        if session.is_embedded
            && let Some(program) = self.program()
        {
            drop(paddlecloud_connect::embedded::revive(&self.environment, &program).await);
        }
    }
}

/// Work in progress that can be cancelled.
#[pyclass(module = "paddlecloud._native", frozen)]
pub struct Started {
    task: AbortHandle,
}

#[pymethods]
impl Started {
    /// Cancels it; `done` is then not called.
    fn cancel(&self) {
        self.task.abort();
    }
}

impl Started {
    /// Runs `work` and calls `done(value, None)` or `done(None, error)` at its end.
    fn begin<T, V>(
        work: impl Future<Output = T> + Send + 'static,
        done: Py<PyAny>,
        read: impl FnOnce(Python<'_>, T) -> Result<V, Failure> + Send + 'static,
    ) -> PyResult<Started>
    where
        T: Send + 'static,
        V: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        let task = runtime::handle()?.spawn(async move {
            let outcome = work.await;
            // When the interpreter exits, there is no one left to notify.
            Python::try_attach(|py| {
                let called = match read(py, outcome) {
                    Ok(value) => done.call1(py, (value, py.None())),
                    Err(failure) => done.call1(py, (py.None(), failure.into_error(py))),
                };
                if let Err(error) = called {
                    error.write_unraisable(py, None);
                }
            });
        });
        Ok(Started {
            task: task.abort_handle(),
        })
    }
}
