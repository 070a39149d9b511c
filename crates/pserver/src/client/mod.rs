//! The client of a trainer: presents all servers of a job as one.
//!
//! Dense tensors are divided into blocks, and rows by id, as `placement` defines. A step's parts go to all servers that
//! hold a portion of them. The client reports `ready` only when all of them have acknowledged, so that no server is
//! more than one step ahead of another (see `steps`).

mod agreement;
mod compress;
mod declarations;
mod link;
mod model;
mod pushing;
mod rows;
mod stat;
mod states;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::hello::{HelloError, Identity, RunSecret};
use crate::message::{DenseSpec, NameError, Refused, Request, Session, TableSpec, TensorId, check_name};
use crate::optimizer::OutOfRange;
use crate::placement::Layout;
use crate::steps::Mode;
use crate::wire::{MAX_HEAD, WireError, bytes_of, bytes_of_mut};

pub use compress::Gradients;
use declarations::Declaration;
pub use link::{Link, LinkConfig, Listener, Sink};
pub use model::{
    ModelError, is_table, parameter_path, parameters, read_parameter, read_table, shapes, write_parameter,
    write_table,
};
pub use rows::Rows;
pub use stat::stat;

/// From this many bytes on, each server gets its own thread.
const PARALLEL_FROM: usize = 4 << 20;

/// Why a client's call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("a parameter server sent a message that cannot be read: {0}")]
    Wire(#[from] WireError),
    #[error("{}", .0.message)]
    Refused(Refused),
    #[error("parameter server {server} at {address} cannot be reached: {source}")]
    Unreachable {
        server: u32,
        address: String,
        source: io::Error,
    },
    #[error("parameter server {server} was restarted and has lost its parameters")]
    Restarted { server: u32 },
    #[error("training was rolled back to step {step}")]
    RolledBack { step: u64 },
    #[error(
        "a parameter server was restarted without a checkpoint: training restarts at step 0, \
         and this trainer must be restarted too"
    )]
    Lost,
    #[error("parameter server {server} sent an unexpected reply of {bytes} bytes")]
    Size { server: u32, bytes: u64 },
    #[error("there is no tensor `{0}`; create it first")]
    NoSuchTensor(String),
    #[error("`{name}` has {expected} elements, not {found}")]
    Elements { name: String, expected: u64, found: u64 },
    #[error("`{name}` is a {is}, not a {wanted}")]
    Kind {
        name: String,
        is: &'static str,
        wanted: &'static str,
    },
    #[error("{found} ids need {expected} numbers, not {numbers}")]
    RowCount {
        found: usize,
        expected: usize,
        numbers: usize,
    },
    #[error(transparent)]
    Constant(#[from] OutOfRange),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("`{name}` has {expected} floats of optimizer state, not {found}")]
    State { name: String, expected: u64, found: u64 },
    #[error("a request names too many tensors: {bytes} bytes are more than {MAX_HEAD}")]
    Head { bytes: usize },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl ClientError {
    /// The step at which training resumes after a rollback.
    pub fn rolled_back_to(&self) -> Option<u64> {
        match self {
            ClientError::RolledBack { step } => Some(*step),
            _ => None,
        }
    }
}

/// The configuration of a client.
#[derive(Clone)]
pub struct Config {
    /// All servers, in the same order for every client.
    pub addresses: Vec<String>,
    pub trainer: u32,
    pub trainers: u32,
    pub attempt: u32,
    pub secret: Option<RunSecret>,
    /// Uses shared memory with servers of this machine. Needs a secret.
    pub shares_memory: bool,
    pub session: Session,
    /// How gradients are encoded.
    pub gradients: Gradients,
    /// How long a server may be unreachable.
    pub patience: Duration,
    pub listener: Arc<dyn Listener>,
}

/// A tensor as this client knows it.
#[derive(Debug, Clone)]
pub struct Known {
    pub place: TensorId,
    pub kind: KnownKind,
}

#[derive(Debug, Clone)]
pub enum KnownKind {
    Dense(Layout, DenseSpec),
    Table(TableSpec),
}

/// A trainer's connection to all servers.
pub struct Client {
    config: Config,
    links: Vec<Link>,
    tensors: HashMap<String, Known>,
    /// In the order of the program.
    declarations: Vec<(String, Declaration)>,
    epoch: u64,
    /// The epoch in which training last began without a checkpoint.
    start_epoch: u64,
    step: u64,
    first_step: u64,
    /// Per server: the number of the next part of this step.
    parts: Vec<u32>,
    barriers: u32,
    /// With [`Gradients::TopK`]: per tensor, the gradient that has not been sent yet.
    unsent: HashMap<String, Vec<f32>>,
    /// The server that has this trainer's state at the start of `step`.
    keeper: Option<usize>,
    /// For the rows of the next call, a buffer per server.
    row_buffers: Vec<Vec<f32>>,
}

/// One request to one server.
struct Exchange<'a> {
    request: Request,
    body: Vec<&'a [u8]>,
    sink: Sink<'a>,
}

impl Client {
    /// Connects to every server and joins the job.
    pub fn connect(config: Config) -> Result<Client, ClientError> {
        let servers = config.addresses.len() as u32;
        let links = config.addresses.iter().enumerate().map(|(index, address)| {
            Link::new(LinkConfig {
                address: address.clone(),
                identity: Identity {
                    trainer: config.trainer,
                    trainers: config.trainers,
                    attempt: config.attempt,
                    server: index as u32,
                    servers,
                    lane: 0,
                },
                secret: config.secret.clone(),
                patience: config.patience,
                follows_restarts: config.session.mode != Mode::Sync,
                shares_memory: config.shares_memory && config.secret.is_some(),
                listener: Arc::clone(&config.listener),
            })
        });
        let mut client = Client {
            links: links.collect(),
            parts: vec![0; config.addresses.len()],
            config,
            tensors: HashMap::new(),
            declarations: Vec::new(),
            epoch: 0,
            start_epoch: 0,
            step: 0,
            first_step: 0,
            barriers: 0,
            unsent: HashMap::new(),
            keeper: None,
            row_buffers: Vec::new(),
        };
        client.agree()?;
        client.report_lost_remainders();
        Ok(client)
    }

    fn ask(
        &mut self,
        server: usize,
        request: &Request,
        body: &[&[u8]],
        sink: Sink<'_>,
    ) -> Result<Vec<u8>, ClientError> {
        let result = self.links[server].ask(request, body, sink);
        self.handle_rollback(result)
    }

    pub fn trainer(&self) -> u32 {
        self.config.trainer
    }

    pub fn trainers(&self) -> u32 {
        self.config.trainers
    }

    pub fn servers(&self) -> u32 {
        self.links.len() as u32
    }

    /// Whether every server is reached through shared memory.
    pub fn uses_shared_memory(&self) -> bool {
        self.links.iter().all(Link::uses_shared_memory)
    }

    pub fn session(&self) -> &Session {
        &self.config.session
    }

    /// Increases with every rollback.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The current step of this trainer.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The step at which this run began, if it continues another one and had ended no step when this client joined; else 0.
    pub fn first_step(&self) -> u64 {
        self.first_step
    }

    pub fn tensor(&self, name: &str) -> Result<&Known, ClientError> {
        self.tensors
            .get(name)
            .ok_or_else(|| ClientError::NoSuchTensor(name.to_owned()))
    }

    pub fn tensors(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.tensors.iter()
    }

    /// Creates a dense tensor. Trainer 0 provides its initial values; those of other trainers are ignored.
    pub fn create_dense(&mut self, spec: DenseSpec, values: &[f32]) -> Result<(), ClientError> {
        check_name(&spec.name)?;
        spec.optimizer.check()?;
        let elements = spec.elements();
        if values.len() as u64 != elements {
            return Err(ClientError::Elements {
                name: spec.name,
                expected: elements,
                found: values.len() as u64,
            });
        }
        let name = spec.name.clone();
        let place = self.create(&name, Declaration::Dense(spec.clone()))?;
        let layout = Layout {
            elements,
            first: place.first,
            servers: self.servers(),
        };
        let kind = KnownKind::Dense(layout, spec);
        self.tensors.insert(name.clone(), Known { place, kind });
        match self.config.trainer {
            0 => self.assign(&name, values, false),
            _ => Ok(()),
        }
    }

    /// Creates a sparse table.
    pub fn create_table(&mut self, spec: TableSpec) -> Result<(), ClientError> {
        check_name(&spec.name)?;
        spec.optimizer.check()?;
        spec.init.check()?;
        let place = self.create(&spec.name, Declaration::Table(spec.clone()))?;
        let kind = KnownKind::Table(spec.clone());
        self.tensors.insert(spec.name, Known { place, kind });
        Ok(())
    }

    /// Sets the values of a tensor; without `replace`, only if it has none.
    pub fn assign(&mut self, name: &str, values: &[f32], replace: bool) -> Result<(), ClientError> {
        let (place, layout) = self.dense(name, values.len())?;
        let exchanges = (0..self.servers()).map(|server| {
            let body = pieces(values, &layout, server);
            let tensor = place.id;
            Some(exchange(Request::Assign { tensor, replace }, body))
        });
        let exchanges = exchanges.collect();
        self.run(exchanges, values.len() * 4)?;
        Ok(())
    }

    /// Reads the values of dense tensors at this trainer's step.
    pub fn pull(&mut self, into: &mut [(&str, &mut [f32])], averaged: bool) -> Result<(), ClientError> {
        let (epoch, step) = (self.epoch, self.step);
        self.pull_by(into, None, |tensors| Request::Pull {
            epoch,
            step,
            averaged,
            tensors,
        })
    }

    /// Ends this trainer's step and pulls the values after it. `state` is kept for an attempt of this trainer that begins
    /// with the next step: see [`Client::kept`].
    pub fn finish_step(
        &mut self,
        into: &mut [(&str, &mut [f32])],
        state: Option<&[u8]>,
    ) -> Result<(), ClientError> {
        let (epoch, step) = (self.epoch, self.step);
        self.pull_by(into, state, |pull| Request::Ready { epoch, step, pull })?;
        self.step += 1;
        self.keeper = state.filter(|state| !state.is_empty()).map(|_| 0);
        self.parts.fill(0);
        self.barriers = 0;
        Ok(())
    }

    fn pull_by(
        &mut self,
        into: &mut [(&str, &mut [f32])],
        body: Option<&[u8]>,
        request: impl Fn(Vec<u32>) -> Request,
    ) -> Result<(), ClientError> {
        let mut known = Vec::new();
        for (name, values) in into.iter() {
            known.push(self.dense(name, values.len())?);
        }
        let bytes = into.iter().map(|(_, values)| values.len() * 4).sum();
        let servers = self.servers();
        let mut scattered: Vec<Vec<&mut [u8]>> = (0..servers).map(|_| Vec::new()).collect();
        for ((_, values), (_, layout)) in into.iter_mut().zip(&known) {
            scatter(values, layout, &mut scattered);
        }
        let exchanges = scattered.into_iter().enumerate().map(|(server, slices)| {
            let held = known
                .iter()
                .filter(|(_, layout)| layout.local_elements(server as u32) > 0);
            let tensors: Vec<u32> = held.map(|(place, _)| place.id).collect();
            let request = request(tensors);
            // A pull of no tensors is skipped, but the end of a step goes to every server.
            let is_idle = matches!(&request, Request::Pull { tensors, .. } if tensors.is_empty());
            (!is_idle).then_some(Exchange {
                request,
                body: body.into_iter().collect(),
                sink: Sink::Into(slices),
            })
        });
        let exchanges = exchanges.collect();
        self.run(exchanges, bytes)?;
        Ok(())
    }

    /// Waits for all trainers that have not left.
    pub fn barrier(&mut self) -> Result<(), ClientError> {
        self.barriers += 1;
        let request = Request::Barrier {
            epoch: self.epoch,
            step: self.step,
            number: self.barriers,
        };
        self.ask(0, &request, &[], Sink::Nothing)?;
        Ok(())
    }

    /// The bytes that this trainer, or an earlier attempt of it, gave to `finish_step` before the current step. Empty if
    /// there are none: it gave none, or the step is the first.
    ///
    /// In asynchronous modes, a server that was lost has older ones; the others have them as long as one was not lost. If
    /// all were lost, the step is that of the checkpoint, and so are the bytes.
    pub fn kept(&mut self) -> Result<Vec<u8>, ClientError> {
        let Some(keeper) = self.keeper else {
            return Ok(Vec::new());
        };
        let mut bytes = Vec::new();
        let request = Request::Kept { step: self.step };
        self.ask(keeper, &request, &[], Sink::Collect(&mut bytes))?;
        Ok(bytes)
    }

    /// Takes no part in further steps; other trainers no longer wait for this one.
    pub fn leave(&mut self) -> Result<(), ClientError> {
        let (epoch, step) = (self.epoch, self.step);
        self.each(|_| Request::Leave { epoch, step })
    }

    /// Waits until every trainer has left.
    pub fn wait_for_end(&mut self) -> Result<(), ClientError> {
        let epoch = self.epoch;
        self.each(|_| Request::Finish { epoch })
    }

    /// The statistics of each server, as JSON.
    pub fn stat(&mut self) -> Result<Vec<String>, ClientError> {
        let mut stats = Vec::new();
        for link in &mut self.links {
            let mut text = Vec::new();
            link.ask(&Request::Stat, &[], Sink::Collect(&mut text))?;
            stats.push(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(stats)
    }

    fn each(&mut self, request: impl Fn(u32) -> Request) -> Result<(), ClientError> {
        let exchanges = (0..self.servers()).map(|server| Some(exchange(request(server), Vec::new())));
        let exchanges = exchanges.collect();
        self.run(exchanges, 0)?;
        Ok(())
    }

    fn dense(&self, name: &str, elements: usize) -> Result<(TensorId, Layout), ClientError> {
        let known = self.tensor(name)?;
        let KnownKind::Dense(layout, _) = known.kind else {
            return Err(ClientError::Kind {
                name: name.to_owned(),
                is: "sparse table",
                wanted: "dense tensor",
            });
        };
        if layout.elements != elements as u64 {
            return Err(ClientError::Elements {
                name: name.to_owned(),
                expected: layout.elements,
                found: elements as u64,
            });
        }
        Ok((known.place, layout))
    }

    /// Runs one exchange per server, all concurrently. Reads every reply, even after a failure.
    fn run(
        &mut self,
        exchanges: Vec<Option<Exchange<'_>>>,
        bytes: usize,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let work = self.links.iter_mut().zip(exchanges);
        let work: Vec<_> = work
            .filter_map(|(link, exchange)| Some((link, exchange?)))
            .collect();
        let results: Vec<Result<Vec<u8>, ClientError>> = if work.len() > 1 && bytes >= PARALLEL_FROM {
            std::thread::scope(|scope| {
                let mut work = work.into_iter();
                let own = work.next();
                let others: Vec<_> = work
                    .map(|(link, exchange)| {
                        scope.spawn(move || link.ask(&exchange.request, &exchange.body, exchange.sink))
                    })
                    .collect();
                let own =
                    own.map(|(link, exchange)| link.ask(&exchange.request, &exchange.body, exchange.sink));
                let joined = others
                    .into_iter()
                    .map(|thread| thread.join().expect("transfers do not panic"));
                own.into_iter().chain(joined).collect()
            })
        } else {
            let mut sent = Vec::new();
            for (link, exchange) in work {
                let outcome = link.send(&exchange.request, &exchange.body);
                sent.push((link, exchange, outcome));
            }
            sent.into_iter()
                .map(|(link, mut exchange, outcome)| {
                    outcome?;
                    link.receive(&exchange.request, &exchange.body, &mut exchange.sink)
                })
                .collect()
        };
        let result = results.into_iter().collect();
        self.handle_rollback(result)
    }
}

fn exchange(request: Request, body: Vec<&[u8]>) -> Exchange<'_> {
    Exchange {
        request,
        body,
        sink: Sink::Nothing,
    }
}

/// A server's portion of a tensor, without copying.
fn pieces<'a>(values: &'a [f32], layout: &Layout, server: u32) -> Vec<&'a [u8]> {
    layout
        .ranges(server)
        .map(|range| bytes_of(&values[range.start as usize..range.end as usize]))
        .collect()
}

/// Distributes the blocks of a tensor to the servers' lists, without copying.
fn scatter<'a>(values: &'a mut [f32], layout: &Layout, to: &mut [Vec<&'a mut [u8]>]) {
    for (block, values) in values.chunks_mut(crate::placement::BLOCK as usize).enumerate() {
        let server = (u64::from(layout.first) + block as u64) % u64::from(layout.servers);
        to[server as usize].push(bytes_of_mut(values));
    }
}
