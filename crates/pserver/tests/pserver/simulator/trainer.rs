//! A simulated trainer: it follows the protocol of `client`.

use paddlecloud_pserver::placement::mix;
use paddlecloud_pserver::steps::{Sender, Standing};

use super::{Answer, Ask, Bug, EARLY, Job, PARTS, Reply, Request, SERVERS, STEPS};

/// What a trainer does; each phase ends when all servers have answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Joining,
    Recovering,
    RollingBack,
    CatchingUp,
    Pulling,
    Pushing,
    Readying,
    Leaving,
    Finishing,
    /// Reads the model at the end.
    Reading,
    Done,
    /// It learned that training cannot continue.
    Failed,
}

pub struct Trainer {
    number: u32,
    pub attempt: u32,
    job: Job,
    epoch: u64,
    step: u64,
    pub phase: Phase,
    pub models: [u64; SERVERS],
    incarnations: [Option<u64>; SERVERS],
    standings: [Option<Standing>; SERVERS],
    /// Asked and not answered.
    pub open: Vec<Request>,
    questions: u64,
}

impl Trainer {
    pub fn new(number: usize, attempt: u32, job: Job) -> Trainer {
        let mut trainer = Trainer {
            number: number as u32,
            attempt,
            job,
            epoch: 0,
            step: 0,
            phase: Phase::Joining,
            models: [0; SERVERS],
            incarnations: [None; SERVERS],
            standings: [None; SERVERS],
            open: Vec::new(),
            questions: u64::from(attempt) << 32,
        };
        trainer.begin(Phase::Joining);
        trainer
    }

    fn begin(&mut self, phase: Phase) {
        self.open.clear();
        self.phase = phase.clone();
        let step = self.step;
        match phase {
            Phase::Joining => {
                self.incarnations = [None; SERVERS];
                self.ask_all(|_| vec![Ask::Join]);
            }
            Phase::Pulling | Phase::Reading => self.ask_all(|_| vec![Ask::Pull { step }]),
            Phase::Pushing => {
                let value = |server: usize, part: u32| {
                    let seen = self.models.iter().fold(step, |sum, model| mix(sum ^ model));
                    mix(seen ^ (u64::from(self.number) << 8) ^ (server as u64) << 4 ^ u64::from(part))
                };
                let asks: Vec<Vec<Ask>> = (0..SERVERS)
                    .map(|server| {
                        let push = |part| Ask::Push {
                            step,
                            part,
                            value: value(server, part),
                        };
                        (0..PARTS).map(push).collect()
                    })
                    .collect();
                self.ask_all(|server| asks[server].clone());
            }
            Phase::Readying => self.ask_all(|_| vec![Ask::Ready { step }]),
            Phase::Leaving => self.ask_all(|_| vec![Ask::Leave { step }]),
            Phase::Finishing => self.ask_all(|_| vec![Ask::Finish]),
            Phase::Recovering | Phase::RollingBack | Phase::CatchingUp | Phase::Done | Phase::Failed => {}
        }
    }

    fn ask_all(&mut self, asks: impl Fn(usize) -> Vec<Ask>) {
        for server in 0..SERVERS {
            for ask in asks(server) {
                self.ask(server, ask);
            }
        }
    }

    fn ask(&mut self, server: usize, ask: Ask) {
        self.questions += 1;
        self.open.push(Request {
            server,
            incarnation: self.incarnations[server],
            sender: Sender {
                trainer: self.number,
                attempt: self.attempt,
                epoch: self.epoch,
            },
            number: self.questions,
            ask,
        });
    }

    pub fn hear(&mut self, reply: &Reply, bug: Option<Bug>) {
        let Some(at) = self
            .open
            .iter()
            .position(|request| request.number == reply.request.number)
        else {
            return;
        };
        let request = self.open.remove(at);
        match reply.answer {
            Answer::RolledBack => return self.begin(Phase::Joining),
            Answer::CannotRepeat => return self.begin(Phase::Failed),
            Answer::Joined {
                standing,
                incarnation,
            } => {
                self.standings[request.server] = Some(standing);
                self.incarnations[request.server] = Some(incarnation);
            }
            Answer::Recovered { epoch, step } => {
                self.phase = Phase::RollingBack;
                for server in 1..SERVERS {
                    let seen = self.standings[server].map_or(0, |standing| standing.epoch);
                    self.ask(server, Ask::RollBack { epoch, step, seen });
                }
            }
            Answer::Model(model) => self.models[request.server] = model,
            Answer::Done => {}
        }
        let of_server = |request: &Request| request.server == reply.request.server;
        if bug == Some(Bug::ReadyTooEarly) && self.phase == Phase::Pushing && !self.open.iter().any(of_server)
        {
            self.ask(request.server, Ask::Ready { step: self.step });
            if matches!(request.ask, Ask::Ready { .. }) {
                self.open.pop();
            }
        }
        if self.open.is_empty() {
            self.advance(bug);
        }
    }

    fn advance(&mut self, bug: Option<Bug>) {
        match self.phase {
            Phase::Joining => self.agree(),
            Phase::RollingBack => self.begin(Phase::Joining),
            Phase::CatchingUp => self.next_step(),
            Phase::Pulling => self.begin(Phase::Pushing),
            Phase::Pushing if bug != Some(Bug::ReadyTooEarly) => self.begin(Phase::Readying),
            Phase::Pushing | Phase::Readying => {
                self.step += 1;
                self.next_step();
            }
            Phase::Leaving if self.leaves_early() => self.begin(Phase::Done),
            Phase::Leaving => self.begin(Phase::Finishing),
            Phase::Finishing => self.begin(Phase::Reading),
            Phase::Reading => self.begin(Phase::Done),
            Phase::Recovering | Phase::Done | Phase::Failed => {}
        }
    }

    fn agree(&mut self) {
        let standings: Vec<Standing> = self.standings.iter().map(|standing| standing.unwrap()).collect();
        self.epoch = standings.iter().map(|standing| standing.epoch).max().unwrap();
        if standings.iter().any(|standing| standing.epoch != self.epoch) || self.epoch == 0 {
            self.phase = Phase::Recovering;
            let incarnations = self.incarnations.map(|incarnation| incarnation.unwrap());
            let (above, seen) = (self.epoch, standings[0].epoch);
            return self.ask(
                0,
                Ask::Recover {
                    above,
                    seen,
                    incarnations,
                },
            );
        }
        self.step = standings.iter().map(|standing| standing.next).max().unwrap();
        self.phase = Phase::CatchingUp;
        for (server, standing) in standings.iter().enumerate() {
            let step = standing.next;
            if step < self.step {
                self.ask(server, Ask::Ready { step });
            } else if standing.parts > 0 {
                self.ask(server, Ask::Discard { step });
            }
        }
        if self.open.is_empty() {
            self.next_step();
        }
    }

    fn next_step(&mut self) {
        let steps = if self.leaves_early() { EARLY } else { STEPS };
        self.begin(match self.step < steps {
            true => Phase::Pulling,
            false => Phase::Leaving,
        });
    }

    pub fn leaves_early(&self) -> bool {
        self.job == Job::OneLeavesEarly && self.number == 1
    }

    /// Whether the next replies are its last ones.
    pub fn is_ending(&self) -> bool {
        self.phase == Phase::Reading || (self.phase == Phase::Leaving && self.leaves_early())
    }
}
