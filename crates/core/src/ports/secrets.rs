//! The port for secrets: values in the environment of workers and credentials for images, which no one else may see.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use super::PrepareError;
use crate::job::Job;

/// The secrets of a worker: variables, and access to its image. `Debug` shows only the number of variables.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretEnv {
    variables: BTreeMap<String, String>,
    image: ImageAccess,
}

/// How the image of a job may be pulled.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ImageAccess {
    /// The credentials of the stored registry that the job names; `None` if it names none, or the registry was deleted.
    pub login: Option<RegistryLogin>,
    /// Credentials for the image's registry are stored: a node's copy of the image is only for jobs that have some.
    pub is_private: bool,
}

/// The credentials of an image registry. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryLogin {
    pub server: String,
    pub username: String,
    pub password: String,
}

impl SecretEnv {
    pub fn new(variables: BTreeMap<String, String>, image: ImageAccess) -> SecretEnv {
        SecretEnv { variables, image }
    }

    /// The variables, for the engine only.
    pub fn reveal(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// How the image is pulled, for engines that pull images.
    pub fn image(&self) -> &ImageAccess {
        &self.image
    }

    /// Whether there is no secret variable.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

impl fmt::Debug for SecretEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretEnv({})", self.variables.len())
    }
}

/// Provides the secrets of a job when its workers start.
pub trait SecretSource: Send + Sync {
    /// The secrets of a job's workers, or an error that contains no secret. Secrets that cannot be read now are a
    /// [`PrepareError::Shortage`]: the worker waits.
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
