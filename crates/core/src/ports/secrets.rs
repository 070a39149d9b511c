//! The port of secrets: what workers find in their environment and nobody else sees.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use super::PrepareError;
use crate::job::Job;

/// Secret variables of a worker. Printing them shows how many there are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretEnv(BTreeMap<String, String>);

impl SecretEnv {
    pub fn new(variables: BTreeMap<String, String>) -> SecretEnv {
        SecretEnv(variables)
    }

    /// The variables themselves: for the engine only.
    pub fn reveal(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecretEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretEnv({})", self.0.len())
    }
}

/// Opens the secrets of a job when its workers start.
pub trait SecretSource: Send + Sync {
    /// The secret variables of a job's workers, or why there are none, in words without any secret. Secrets that cannot be
    /// read now are a shortage: the worker waits.
    fn secrets<'a>(
        &'a self,
        job: &'a Job,
    ) -> Pin<Box<dyn Future<Output = Result<SecretEnv, PrepareError>> + Send + 'a>>;
}

/// For servers without secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn secrets<'a>(
        &'a self,
        _: &'a Job,
    ) -> Pin<Box<dyn Future<Output = Result<SecretEnv, PrepareError>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(SecretEnv::default())))
    }
}
