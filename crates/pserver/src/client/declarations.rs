//! The tensors that a client has declared: declared again after a rollback, because servers forget constants and places.

use std::collections::HashSet;

use crate::message::{DenseSpec, Request, TableSpec, TensorId};
use crate::wire::Reader;

use super::{Client, ClientError, Sink};

/// What a program declared under a name.
#[derive(Debug, Clone)]
pub(super) enum Declaration {
    Dense(DenseSpec),
    Table(TableSpec),
}

impl Declaration {
    /// The request that declares the tensor to a server.
    pub(super) fn request(&self, place: Option<TensorId>) -> Request {
        match self.clone() {
            Declaration::Dense(spec) => Request::CreateDense { spec, place },
            Declaration::Table(spec) => Request::CreateTable { spec, place },
        }
    }
}

impl Client {
    /// Declares the tensors again that servers have loaded, and forgets the others: the program will create them again.
    pub(super) fn declare_again(&mut self) -> Result<(), ClientError> {
        let loaded = self.loaded()?;
        self.tensors.retain(|name, _| loaded.contains(name));
        self.declarations.retain(|(name, _)| loaded.contains(name));
        for at in 0..self.declarations.len() {
            let (name, declaration) = self.declarations[at].clone();
            let place = self.declare(&declaration)?;
            if let Some(known) = self.tensors.get_mut(&name) {
                known.place = place;
            }
        }
        Ok(())
    }

    fn loaded(&mut self) -> Result<HashSet<String>, ClientError> {
        let mut names = Vec::new();
        self.links[0].ask(&Request::Tensors, &[], Sink::Collect(&mut names))?;
        let names = String::from_utf8_lossy(&names);
        Ok(names.split_terminator('\0').map(str::to_owned).collect())
    }

    /// Server 0 chooses the place. Does not join again after a rollback.
    fn declare(&mut self, declaration: &Declaration) -> Result<TensorId, ClientError> {
        let head = self.links[0].ask(&declaration.request(None), &[], Sink::Nothing)?;
        let mut head = Reader::new(&head);
        let place = TensorId {
            id: head.u32()?,
            first: head.u32()?,
        };
        for link in &mut self.links[1..] {
            link.ask(&declaration.request(Some(place)), &[], Sink::Nothing)?;
        }
        Ok(place)
    }

    /// Declares a tensor to all servers.
    pub(super) fn create(&mut self, name: &str, declaration: Declaration) -> Result<TensorId, ClientError> {
        let declared = self.declare(&declaration);
        let place = self.handle_rollback(declared)?;
        self.declarations.retain(|(known, _)| known != name);
        self.declarations.push((name.to_owned(), declaration));
        Ok(place)
    }
}
