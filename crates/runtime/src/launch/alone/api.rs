//! The two requests of a pod of a hand-written Job to the Kubernetes API: list pods, and wait for a change.
//!
//! Each request has its own connection and uses HTTP/1.0: the reply ends with the connection, so no more of HTTP is
//! needed. The cluster's certificate is verified.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::LaunchError;

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long one watch lasts before the pods are listed again.
const WATCH: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(1);
/// How long to try before saying that nothing answers.
const COMPLAIN_AFTER: Duration = Duration::from_secs(6);
/// A list of ten thousand pods has about 50 MB.
const MOST_BYTES: usize = 256 << 20;

/// A pod in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPod {
    pub name: String,
    pub phase: String,
    /// Only for a running pod that is not being deleted.
    pub address: Option<Ipv4Addr>,
    /// Its completion index in an Indexed Job.
    pub index: Option<u32>,
}

pub struct PodList {
    pub pods: Vec<ListedPod>,
    /// The resource version of this list.
    pub version: String,
    /// The local address of the request's connection.
    pub local: Ipv4Addr,
}

/// The API with the rights of this pod's account.
pub struct Api {
    host: String,
    port: u16,
    token: String,
    tls: TlsConnector,
}

impl Api {
    pub fn of_this_pod() -> Result<Api, LaunchError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(host), Some(port)) = (
            variable("KUBERNETES_SERVICE_HOST"),
            variable("KUBERNETES_SERVICE_PORT"),
        ) else {
            return Err(LaunchError::new(
                "`KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT` are not set: this is not a pod",
            ));
        };
        let port = super::flags::number("KUBERNETES_SERVICE_PORT", &port)?;
        let folder = Path::new(ACCOUNT);
        let token = std::fs::read_to_string(folder.join("token")).map_err(|error| {
            LaunchError::new(format!(
                "this pod has no API token (`{ACCOUNT}/token`: {error}); set `automountServiceAccountToken: true`"
            ))
        })?;
        Ok(Api {
            host,
            port,
            token: token.trim().to_owned(),
            tls: connector(&folder.join("ca.crt"))?,
        })
    }

    /// The pods with a label. Retries until the deadline, unless the request is refused; if that takes long, `complain` gets
    /// the reason once.
    pub async fn pods(
        &self,
        namespace: &str,
        label: &str,
        deadline: Instant,
        complain: impl Fn(&str),
    ) -> Result<PodList, LaunchError> {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector={}",
            label.replace('=', "%3D")
        );
        let mut problem = "no answer".to_owned();
        let mut complaint = pin!(sleep(COMPLAIN_AFTER));
        let mut complained = false;
        loop {
            let mut asked = pin!(timeout(REQUEST_LIMIT, self.get(&path)));
            let answer = loop {
                tokio::select! {
                    answer = &mut asked => break answer,
                    () = &mut complaint, if !complained => {
                        complained = true;
                        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
                        complain(&format!("{}; trying again for {left} s\n{}", self.no_list(&problem), hint(namespace)));
                    }
                }
            };
            problem = match answer {
                Ok(Ok((200, body, local))) => match parse(&body) {
                    Some((pods, version)) => return Ok(PodList { pods, version, local }),
                    None => "the reply is truncated".to_owned(),
                },
                Ok(Ok((status @ (401 | 403 | 404), body, _))) => {
                    return Err(refused(status, &body, namespace));
                }
                Ok(Ok((status, ..))) => format!("the status is {status}"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() >= deadline {
                return Err(LaunchError::new(format!(
                    "{}\n{}",
                    self.no_list(&problem),
                    hint(namespace)
                )));
            }
            sleep(PAUSE).await;
        }
    }

    fn no_list(&self, problem: &str) -> String {
        format!(
            "the cluster's API at {}:{}, which lists the pods of this job, cannot be reached: {problem}",
            self.host, self.port
        )
    }

    /// Returns when a pod of the namespace has changed, or after `WATCH`.
    pub async fn wait_for_change(&self, namespace: &str, version: &str, deadline: Instant) {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?watch=true&resourceVersion={version}&timeoutSeconds={}",
            WATCH.as_secs()
        );
        let started = Instant::now();
        let limit = deadline.min(started + WATCH);
        let watched = timeout_at(limit, self.first_event(&path)).await;
        if !matches!(watched, Ok(Ok(true))) {
            // Pause if the cluster replies immediately with an error.
            tokio::time::sleep_until((started + PAUSE).min(deadline)).await;
        }
    }

    /// Reads up to the first byte after the head. True if there is one and the status is 200.
    async fn first_event(&self, path: &str) -> std::io::Result<bool> {
        let (mut stream, _) = self.ask(path).await?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let length = stream.read(&mut buffer).await?;
            answer.extend_from_slice(&buffer[..length]);
            match split(&answer) {
                Some((status, body)) if length == 0 || !body.is_empty() => {
                    return Ok(status == 200 && !body.is_empty());
                }
                None if length == 0 => return Ok(false),
                _ => {}
            }
        }
    }

    async fn get(&self, path: &str) -> std::io::Result<(u16, Vec<u8>, Ipv4Addr)> {
        let (stream, local) = self.ask(path).await?;
        let mut answer = Vec::new();
        // Closing without TLS `close_notify` is not an error: the body is JSON, so truncation is detected.
        if let Err(error) = stream.take(MOST_BYTES as u64).read_to_end(&mut answer).await
            && error.kind() != std::io::ErrorKind::UnexpectedEof
        {
            return Err(error);
        }
        let (status, body) = split(&answer).ok_or_else(|| std::io::Error::other("the reply is not HTTP"))?;
        Ok((status, body.to_vec(), local))
    }

    async fn ask(&self, path: &str) -> std::io::Result<(TlsStream<TcpStream>, Ipv4Addr)> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let IpAddr::V4(local) = stream.local_addr()?.ip().to_canonical() else {
            return Err(std::io::Error::other("pods need IPv4 addresses"));
        };
        let name = ServerName::try_from(self.host.clone()).map_err(std::io::Error::other)?;
        let mut stream = self.tls.connect(name, stream).await?;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: application/json\r\n\r\n",
            self.host, self.token
        );
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        Ok((stream, local))
    }
}

fn connector(authority: &Path) -> Result<TlsConnector, LaunchError> {
    let bad = |error: &dyn std::fmt::Display| {
        LaunchError::new(format!("cannot use `{}`: {error}", authority.display()))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).map_err(|error| bad(&error))? {
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The status and the body, once the head is complete.
fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, &answer[end + 4..]))
}

fn parse(body: &[u8]) -> Option<(Vec<ListedPod>, String)> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let version = list["metadata"]["resourceVersion"].as_str()?.to_owned();
    let over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let pods = list["items"].as_array()?;
    Some((
        pods.iter().filter(|pod| !over(pod)).map(listed).collect(),
        version,
    ))
}

fn listed(pod: &Value) -> ListedPod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let leaving = pod["metadata"]["deletionTimestamp"].is_string();
    let phase = match leaving {
        true => "Terminating".to_owned(),
        false => text(&pod["status"]["phase"]),
    };
    let address = pod["status"]["podIP"]
        .as_str()
        .and_then(|address| address.parse().ok());
    ListedPod {
        name: text(&pod["metadata"]["name"]),
        address: address.filter(|_| phase == "Running"),
        index: pod["metadata"]["labels"][INDEX_LABEL]
            .as_str()
            .and_then(|index| index.parse().ok()),
        phase,
    }
}

/// What to check if the API does not answer.
fn hint(namespace: &str) -> String {
    format!(
        "hint: check that Services work on the pod's node (`kubectl get pods -n kube-system -o wide` shows kube-proxy or what \
         replaces it), and that no NetworkPolicy keeps pods from the API (`kubectl get networkpolicies -n {namespace}`); an \
         Indexed Job with a headless Service needs no API: `paddle launch --service`"
    )
}

/// The cluster's refusal, and the manifest that grants the right.
fn refused(status: u16, body: &[u8], namespace: &str) -> LaunchError {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = said["message"].as_str().unwrap_or("it gave no reason").to_owned();
    if status != 403 {
        return LaunchError::new(format!("the cluster refuses to list pods: {said}"));
    }
    let account = account(&said).unwrap_or_else(|| (namespace.to_owned(), "default".to_owned()));
    LaunchError::new(format!(
        "this pod may not list the pods of its job: {said}\nhint: apply this manifest, then start the job again\n{}",
        grant(namespace, &account)
    ))
}

/// Finds `system:serviceaccount:<namespace>:<name>` in the cluster's message.
fn account(said: &str) -> Option<(String, String)> {
    let (_, rest) = said.split_once("system:serviceaccount:")?;
    let (namespace, rest) = rest.split_once(':')?;
    let name = rest
        .split(|letter: char| letter == '"' || letter.is_whitespace())
        .next()?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn grant(namespace: &str, (account_namespace, account): &(String, String)) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: paddle-launch
  namespace: {namespace}
rules:
- apiGroups: [\"\"]
  resources: [pods]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: paddle-launch
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: paddle-launch
subjects:
- kind: ServiceAccount
  name: {account}
  namespace: {account_namespace}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_run_have_an_address() {
        let body = r#"{"metadata":{"resourceVersion":"7"},"items":[
            {"metadata":{"name":"a"},"status":{"phase":"Running","podIP":"10.0.0.1"}},
            {"metadata":{"name":"b"},"status":{"phase":"Pending"}},
            {"metadata":{"name":"c","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running","podIP":"10.0.0.3"}},
            {"metadata":{"name":"d"},"status":{"phase":"Failed","podIP":"10.0.0.4"}}]}"#;
        let (pods, version) = parse(body.as_bytes()).unwrap();
        let words: Vec<String> = pods
            .iter()
            .map(|pod| format!("{} {} {:?}", pod.name, pod.phase, pod.address))
            .collect();
        assert_eq!(
            words,
            ["a Running Some(10.0.0.1)", "b Pending None", "c Terminating None"]
        );
        assert_eq!(version, "7");
        assert_eq!(parse(&body.as_bytes()[..60]), None);
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(
            split(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"),
            Some((200, &b"{}"[..]))
        );
        assert_eq!(split(b"HTTP/1.0 200 OK\r\n"), None);
    }

    /// An API of which only the port exists.
    async fn silent() -> (tokio::net::TcpListener, Api) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let api = Api {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            token: String::new(),
            tls: TlsConnector::from(Arc::new(config)),
        };
        (listener, api)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_that_does_not_answer_is_reported_within_ten_seconds_with_what_to_check() {
        let (listener, api) = silent().await;
        let started = Instant::now();
        let said = std::cell::RefCell::new(Vec::new());
        let complain = |words: &str| said.borrow_mut().push((started.elapsed(), words.to_owned()));
        let deadline = started + Duration::from_secs(60);
        let end = api.pods("team", "job-name=a", deadline, complain).await;
        let port = listener.local_addr().unwrap().port().to_string();
        let [(after, words)] = said.into_inner().try_into().expect("it complains once");
        assert!(after < Duration::from_secs(10), "{after:?}");
        assert!(words.contains("trying again for 54 s"), "{words}");
        insta::assert_snapshot!(end.err().unwrap().to_string().replace(&port, "PORT"), @r"
        the cluster's API at 127.0.0.1:PORT, which lists the pods of this job, cannot be reached: no answer
        hint: check that Services work on the pod's node (`kubectl get pods -n kube-system -o wide` shows kube-proxy or what replaces it), and that no NetworkPolicy keeps pods from the API (`kubectl get networkpolicies -n team`); an Indexed Job with a headless Service needs no API: `paddle launch --service`
        ");
    }

    #[test]
    fn a_refusal_says_what_grants_the_right() {
        let body = br#"{"message":"pods is forbidden: User \"system:serviceaccount:team:worker\" cannot list resource \"pods\""}"#;
        insta::assert_snapshot!(refused(403, body, "team").to_string());
    }
}
