//! The address and credentials of a store. They are checked here, so that callers need not.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Stores a secret without surrounding blanks, which editors add.
    pub fn new(text: &str) -> SecretText {
        SecretText(text.trim().to_owned())
    }

    /// The secret itself, for signing.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What is wrong with a store's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

/// A cluster and the service's folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HdfsSettings {
    pub url: HdfsUrl,
    /// The server's user in the cluster; `None`: Hadoop's own rules (`HADOOP_USER_NAME`, Kerberos, the system user).
    pub user: Option<String>,
    /// The folder of `core-site.xml` and `hdfs-site.xml`; `None`: `HADOOP_CONF_DIR`.
    pub config: Option<PathBuf>,
    /// Replicas of every block; `None`: the cluster's default.
    pub replication: Option<u32>,
}

/// `hdfs://<name node or name service>[:port]/<folder>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HdfsUrl {
    cluster: String,
    folder: String,
}

impl HdfsUrl {
    /// The address without the folder.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The folder, beginning with a slash and not ending with one; empty for the root.
    pub fn folder(&self) -> &str {
        &self.folder
    }
}

impl FromStr for HdfsUrl {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let wrong = |problem: &str| SettingsError(format!("`{text}` is not an HDFS address: {problem}"));
        let rest = text
            .strip_prefix("hdfs://")
            .ok_or_else(|| wrong("it must begin with `hdfs://`"))?;
        let (host, folder) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong(
                "it names no host, as in `hdfs://namenode:8020/paddlecloud`",
            ));
        }
        let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(wrong("the folder must be written without `.` and `..`"));
        }
        Ok(HdfsUrl {
            cluster: format!("hdfs://{host}"),
            folder: parts.iter().map(|part| format!("/{part}")).collect(),
        })
    }
}

impl fmt::Display for HdfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cluster, self.folder)
    }
}

/// A bucket and the service's prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Settings {
    pub bucket: String,
    /// Names joined by slashes, without a slash at either end; may be empty.
    pub prefix: String,
    /// `None`: Amazon's own, by region.
    pub endpoint: Option<String>,
    pub region: String,
    /// The longest key in bytes; some services allow fewer than Amazon's 1024.
    pub longest_key: usize,
    pub access_key: Option<String>,
    /// `None`, together with `access_key`: credentials of the environment or of the machine's role.
    pub secret_key: Option<SecretText>,
}

impl S3Settings {
    /// Reads `s3://<bucket>/<prefix>`.
    pub fn from_url(url: &str) -> Result<S3Settings, SettingsError> {
        let wrong = |problem: &str| SettingsError(format!("`{url}` is not an S3 address: {problem}"));
        let rest = url
            .strip_prefix("s3://")
            .ok_or_else(|| wrong("it must begin with `s3://`"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong("it names no bucket, as in `s3://bucket/paddlecloud`"));
        }
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(wrong("the prefix must be written without `.` and `..`"));
        }
        Ok(S3Settings {
            bucket: bucket.to_owned(),
            prefix: parts.join("/"),
            endpoint: None,
            region: "us-east-1".to_owned(),
            longest_key: 1024,
            access_key: None,
            secret_key: None,
        })
    }
}

impl fmt::Display for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, " at {endpoint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let url: HdfsUrl = "hdfs://nn:8020//a/b/".parse().unwrap();
        assert_eq!((url.cluster(), url.folder()), ("hdfs://nn:8020", "/a/b"));
        assert_eq!("hdfs://ha".parse::<HdfsUrl>().unwrap().folder(), "");
        let s3 = S3Settings::from_url("s3://bucket/a//b/").unwrap();
        assert_eq!((s3.bucket.as_str(), s3.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(s3.to_string(), "s3://bucket/a/b");
    }

    #[test]
    fn an_invalid_address_is_explained() {
        let message = |url: &str| url.parse::<HdfsUrl>().unwrap_err().to_string();
        assert_eq!(
            message("http://nn"),
            "`http://nn` is not an HDFS address: it must begin with `hdfs://`"
        );
        assert!(message("hdfs:///x").contains("names no host"));
        assert!(message("hdfs://nn/a/../b").contains("without `.` and `..`"));
        assert!(S3Settings::from_url("s3:///x").is_err());
    }

    #[test]
    fn a_secret_is_not_printed() {
        let mut settings = S3Settings::from_url("s3://b").unwrap();
        settings.secret_key = Some(SecretText::new(" hush\n"));
        assert!(!format!("{settings:?}").contains("hush"));
        assert_eq!(settings.secret_key.unwrap().reveal(), "hush");
    }
}
