//! Assigns addresses to workers at admission, before anything runs, so that every worker can be given the addresses of
//! all others.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use crate::job::{Job, WorkerKey, worker_name};

/// Gives every worker an address. Two live workers never share one.
pub trait Addresses: Send {
    /// Takes an address for the worker at this position of the job (parameter servers first).
    fn take(&mut self, job: &Job, position: u32) -> String;

    /// Marks an address as used by a running worker.
    fn keep(&mut self, address: &str);

    /// Releases the address of a worker whose job is final.
    fn give_back(&mut self, address: &str);
}

/// One machine: `127.x.y.z`, so that the same port serves every worker.
#[derive(Debug)]
pub struct Loopback {
    taken: HashSet<u32>,
    next: u32,
}

/// 127.0.0.0/16 is left to the system and its services.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 1]);
const LAST: u32 = u32::from_be_bytes([127, 254, 255, 254]);

impl Default for Loopback {
    fn default() -> Self {
        Loopback {
            taken: HashSet::new(),
            next: FIRST,
        }
    }
}

impl Loopback {
    /// Starts at a different address for each seed, so that two servers on one machine do not collide.
    pub fn from_seed(seed: u64) -> Loopback {
        let next = FIRST + u32::try_from(seed % u64::from(LAST - FIRST)).expect("smaller than the range");
        Loopback {
            next,
            ..Loopback::default()
        }
    }

    /// Wraps around, so that an address stays unused as long as possible. There are more than sixteen million
    /// addresses: more than the live workers of a machine.
    fn advance(&mut self) -> u32 {
        loop {
            let candidate = self.next;
            self.next = if candidate >= LAST { FIRST } else { candidate + 1 };
            let edge = matches!(candidate & 0xff, 0 | 0xff);
            if !edge && !self.taken.contains(&candidate) {
                return candidate;
            }
        }
    }
}

impl Addresses for Loopback {
    fn take(&mut self, _job: &Job, _position: u32) -> String {
        let address = self.advance();
        self.taken.insert(address);
        Ipv4Addr::from(address).to_string()
    }

    fn keep(&mut self, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>().map(u32::from) {
            self.taken.insert(address);
            if (FIRST..LAST).contains(&address) {
                self.next = self.next.max(address + 1);
            }
        }
    }

    fn give_back(&mut self, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            self.taken.remove(&u32::from(address));
        }
    }
}

/// A cluster with a name service: a worker's address is its name.
#[derive(Debug, Default)]
pub struct Hostnames;

impl Addresses for Hostnames {
    fn take(&mut self, job: &Job, position: u32) -> String {
        let key = match position.checked_sub(job.spec.pservers) {
            Some(index) => WorkerKey::trainer(index),
            None => WorkerKey::pserver(position),
        };
        worker_name(&job.spec.name, &job.id, key)
    }

    fn keep(&mut self, _address: &str) {}

    fn give_back(&mut self, _address: &str) {}
}
