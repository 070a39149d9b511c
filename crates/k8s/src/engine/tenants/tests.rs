//! What a server makes in users' namespaces, and which it uses: against a stand-in for the API server.

use std::time::Duration;

use paddlecloud_core::scheduler::Quota;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::engine::link_tests;

const PATIENCE: Duration = Duration::from_secs(1);
const ACCOUNT: &str = "system:serviceaccount:paddlecloud:server";

/// Keeps what is created, by path.
#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    calls: Vec<String>,
    /// How many calls are refused, as long as the API server does not know a binding.
    refusals: usize,
}

impl State {
    fn answer(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let short = path.rsplit_once("v1/").map_or(path, |(_, short)| short);
        self.calls.push(format!("{method} {short}"));
        let status = |code: u16, words: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "", "message": words, "code": code});
            (code, status)
        };
        if path.ends_with("/resourcequotas") && self.refusals > 0 {
            self.refusals -= 1;
            return status(403, "resourcequotas is forbidden: User \"server\" cannot create");
        }
        let object: Value = serde_json::from_str(body).unwrap_or_default();
        match method {
            "GET" => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => status(404, "not found"),
            },
            "POST" if path.ends_with("/selfsubjectreviews") => {
                let user = json!({"userInfo": {"username": ACCOUNT}});
                (201, json!({"metadata": {}, "status": user}))
            }
            "POST" => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                match self.objects.insert(format!("{path}/{name}"), object.clone()) {
                    Some(_) => status(409, "already exists"),
                    None => (201, object),
                }
            }
            "PATCH" => (200, json!({"metadata": {}})),
            _ => (200, object),
        }
    }
}

/// A stand-in for the API server: one call for each connection.
struct Api {
    state: Arc<Mutex<State>>,
    client: Client,
}

impl Api {
    async fn start() -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, &shared).await;
            }
        });
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        Api {
            state,
            client: Client::try_from(config).unwrap(),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster::new(self.client.clone(), PATIENCE)
    }

    fn has_namespace(&self, name: &str, server: Option<&str>) {
        let labels = server.map(|server| json!({ names::SERVER: server }));
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let mut state = self.state.lock().unwrap();
        state
            .objects
            .insert(format!("/api/v1/namespaces/{name}"), namespace);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let mut words = head[0].split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    let body = String::from_utf8(body).unwrap();
    let (code, reply) = state.lock().unwrap().answer(method, path, &body);
    let reply = reply.to_string();
    let text = format!(
        "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reply}",
        reply.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
}

fn settings() -> Settings {
    Settings {
        namespace_role: Some("users".into()),
        ..link_tests::settings()
    }
}

#[tokio::test]
async fn rights_are_bound_before_anything_else_is_made_in_a_namespace() {
    let api = Api::start().await;
    let grant = grant(&settings(), &api.client).await.unwrap();
    let granted = grant.as_ref().map(|grant| grant.account.name.clone());
    assert_eq!(granted.as_deref(), Some("server"), "which only the cluster knows");
    let tenant = tenancy::tenant(&settings(), grant.as_ref(), "ada", &Quota::default());
    api.calls();
    api.state.lock().unwrap().refusals = 2;
    let cluster = api.cluster();
    cluster.ensure_tenant(&tenant, Whose::Unknown).await.unwrap();
    let quota = "POST namespaces/ada/resourcequotas";
    let expected = [
        "GET namespaces/ada",
        "POST namespaces",
        "POST namespaces/ada/rolebindings",
        quota,
        quota,
        quota,
        "POST namespaces/ada/limitranges",
        "POST namespaces/ada/networkpolicies",
    ];
    assert_eq!(api.calls(), expected, "the API server learns of the binding late");

    let later = api.cluster();
    later.bind_existing(&tenant).await.unwrap();
    let expected = ["GET namespaces/ada", "POST namespaces/ada/rolebindings"];
    assert_eq!(api.calls(), expected, "and one that is there is fine");
}

#[tokio::test]
async fn a_namespace_that_did_not_exist_is_created_without_another_question() {
    let api = Api::start().await;
    let cluster = api.cluster();
    let tenant = tenancy::tenant(&settings(), None, "ada", &Quota::default());
    let found = choose(&cluster, "here", "ada").await.unwrap();
    assert_eq!(found.whose, Whose::Nobodys);
    api.calls();
    cluster.ensure_tenant(&tenant, found.whose).await.unwrap();
    assert_eq!(api.calls()[0], "POST namespaces");
    // Somebody else created it meanwhile: it is checked, and its quota is updated.
    cluster.ensure_tenant(&tenant, found.whose).await.unwrap();
    let expected = [
        "POST namespaces",
        "GET namespaces/ada",
        "PATCH namespaces/ada/resourcequotas/paddlecloud",
        "POST namespaces/ada/limitranges",
        "POST namespaces/ada/networkpolicies",
    ];
    assert_eq!(api.calls(), expected);
}

#[tokio::test]
async fn a_right_that_is_missing_for_long_is_reported() {
    let api = Api::start().await;
    api.has_namespace("ada", Some("test"));
    let tenant = tenancy::tenant(&settings(), None, "ada", &Quota::default());
    api.state.lock().unwrap().refusals = usize::MAX;
    let refused = api.cluster().post(&tenant.quota).await.unwrap_err();
    assert!(refused.lacking_right().is_some(), "{refused}");
    assert_eq!(api.calls().len(), 1, "nothing was bound, so nothing is awaited");
}

#[tokio::test]
async fn rights_are_bound_in_no_namespace_of_others() {
    let api = Api::start().await;
    let grant = Grant::new("users", ACCOUNT);
    let bind = async |name: &str| {
        let tenant = tenancy::tenant(&settings(), Some(&grant), name, &Quota::default());
        api.cluster().bind_existing(&tenant).await.unwrap();
        let all: Vec<String> = api.calls();
        all.len()
    };
    api.has_namespace("theirs", Some("another"));
    api.has_namespace("unknown", None);
    for name in ["theirs", "unknown", "absent"] {
        assert_eq!(bind(name).await, 1, "{name} is only looked at");
    }
}

#[tokio::test]
async fn a_namespace_of_another_server_is_left_alone() {
    let api = Api::start().await;
    let cluster = api.cluster();
    let chosen = async || choose(&cluster, "here", "ada").await.unwrap().name;
    assert_eq!(chosen().await, "ada", "it is free");
    api.has_namespace("ada", None);
    assert_eq!(chosen().await, "ada", "and refused later, with a hint");
    api.has_namespace("ada", Some("another"));
    assert_eq!(chosen().await, "ada--here");
    api.has_namespace("ada--here", Some("here"));
    api.state.lock().unwrap().objects.remove("/api/v1/namespaces/ada");
    assert_eq!(chosen().await, "ada--here", "the user has it already");
    api.has_namespace("ada", Some("here"));
    assert_eq!(chosen().await, "ada");
}
