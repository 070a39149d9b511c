//! Invalid requests, and what every reply has.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Request;
use crate::stage::{Stage, request};

#[tokio::test]
async fn every_reply_carries_the_version() {
    let stage = Stage::new().await;
    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/nowhere"),
        ("PATCH", "/api/v1/jobs"),
        ("GET", "/api/v1/jobs"),
    ] {
        let reply = Request::new(method, path).send(&stage.address).await;
        assert_eq!(
            reply.header("paddlecloud-version"),
            Some(paddlecloud_server::VERSION),
            "{method} {path}"
        );
        assert_eq!(reply.json()["code"], reply.status, "{method} {path}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn wrong_requests_are_answered_in_the_envelope() {
    let stage = Stage::new().await;
    let jobs = || Request::new("POST", "/api/v1/jobs");
    let cases = [
        (Request::new("GET", "/api/v1/nothing"), 404, "not-found"),
        (Request::new("PUT", "/api/v1/jobs"), 405, "method-not-allowed"),
        (jobs().body("{"), 400, "bad-request"),
        (jobs().body("{\"cpus\": 1}"), 400, "bad-request"),
        (
            jobs().json(json!({"name": "a", "parallelism": 0})),
            400,
            "bad-request",
        ),
        (
            jobs().json(json!({"name": "a", "datacenter": "moon", "image": "x"})),
            400,
            "bad-request",
        ),
        (
            jobs().json(json!({"name": "a", "job_package": "/pfs/dc1/home/me/nope"})),
            404,
            "not-found",
        ),
        (jobs().body(vec![b' '; 5 << 20]), 413, "payload-too-large"),
        (Request::new("GET", "/api/v1/jobs/a_b"), 404, "not-found"),
        (Request::new("GET", "/api/v1/jobs/%2e%2e%2f"), 404, "not-found"),
        (Request::new("GET", "/api/v1/jobs?limit=many"), 400, "bad-request"),
        (
            Request::new("GET", "/api/v1/jobs?all=perhaps"),
            400,
            "bad-request",
        ),
        (Request::new("DELETE", "/api/v1/jobs"), 400, "bad-request"),
        (Request::new("GET", "/api/v1/jobs/last"), 404, "not-found"),
        (
            Request::new("POST", "/api/v1/registry").json(json!({})),
            400,
            "bad-request",
        ),
        (Request::new("POST", "/api/v1/packages"), 400, "bad-request"),
    ];
    for (sent, status, name) in cases {
        let reply = stage.send(sent.clone()).await;
        let body = reply.json();
        assert_eq!(
            (reply.status, body["error"].as_str()),
            (status, Some(name)),
            "{sent:?}: {}",
            reply.text()
        );
        assert_eq!(body["code"], status);
        assert!(!body["msg"].as_str().unwrap().is_empty());
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_request_bigger_than_the_machine_is_refused_with_the_largest_that_fits() {
    let stage = Stage::with("inventory: {cpu: 4, memory: 8Gi}\n").await;
    let reply = stage.post("/api/v1/jobs", request("big")).await;
    assert_eq!(
        (reply.status, reply.json()["error"].as_str()),
        (400, Some("too-big")),
        "{}",
        reply.text()
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_type_of_gpus_and_labels_that_the_machine_lacks_are_refused_with_what_there_is() {
    let stage =
        Stage::with("inventory: {cpu: 6, memory: 6Gi, gpus: 3, gpu_model: NVIDIA A100-SXM4-80GB}\n").await;
    let refused = async |field: &str, value: serde_json::Value| {
        let mut body = request("which");
        body[field] = value;
        let reply = stage.post("/api/v1/jobs", body).await;
        let body = reply.json();
        assert_eq!(
            (reply.status, body["error"].as_str()),
            (400, Some("too-big")),
            "{body}"
        );
        body["msg"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        refused("gpu_type", json!("h100")).await,
        "no node has GPUs of type `h100`; there are `a100-sxm4-80gb` (1 node)"
    );
    assert_eq!(
        refused("node_labels", json!({"pool": "train"})).await,
        "no node has the label `pool=train`; the labels are `nvidia.com/gpu.product` (1 node)"
    );
    let mut body = request("typed");
    body["gpu_type"] = json!("A100");
    assert_eq!(stage.post("/api/v1/jobs", body).await.status, 200);
    let why = stage.get("/api/v1/jobs/typed/why").await.json();
    let why = &why["msg"];
    assert_eq!(
        (&why["job"]["gpu_type"], &why["job"]["gpu"]),
        (&json!("a100"), &json!(1))
    );
    let reason = why["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("; 1 of 1 node has GPUs of type `a100`"),
        "it waits for the other job: {reason}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_request_names_one_host() {
    let stage = Stage::new().await;
    let status = async |head: &str| {
        let mut stream = TcpStream::connect(&stage.address).await.unwrap();
        let request = format!("GET /healthz {head}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply[9..12].parse::<u16>().unwrap()
    };
    assert_eq!(status("HTTP/1.1\r\nhost: a\r\n").await, 200);
    assert_eq!(status("HTTP/1.0\r\n").await, 200);
    assert_eq!(status("HTTP/1.1\r\n").await, 400);
    assert_eq!(status("HTTP/1.1\r\nhost: a\r\nhost: b\r\n").await, 400);
    assert_eq!(status("HTTP/1.1\r\nhost: a\r\nhost: a\r\n").await, 400);
    stage.finish().await;
}

/// Values that the schema of a parameter forbids.
fn violations(schema: &serde_json::Value) -> Vec<String> {
    let number = |key: &str, by: i64| Some((schema[key].as_i64()? + by).to_string());
    let text = schema["pattern"].is_string().then(|| "%20%20".to_owned());
    [number("minimum", -1), number("maximum", 1), text]
        .into_iter()
        .flatten()
        .collect()
}

#[tokio::test]
async fn what_the_document_forbids_is_refused() {
    let stage = Stage::new().await;
    let document = stage.get("/openapi.json").await.json();
    let mut tried = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method = ["GET", "PUT", "POST", "DELETE", "PATCH"]
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(method))
                .unwrap();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let (place, name) = (
                    parameter["in"].as_str().unwrap(),
                    parameter["name"].as_str().unwrap(),
                );
                for value in violations(&parameter["schema"]) {
                    let target = match place {
                        "path" => path.replace(&format!("{{{name}}}"), &value),
                        "query" => format!("{path}?{name}={value}"),
                        _ => path.clone(),
                    };
                    let target = target.replace(['{', '}'], "");
                    let mut request = Request::new(method, &target).body("{}");
                    if place == "header" {
                        request = request.header(name, &"x".repeat(129));
                    }
                    let reply = stage.send(request).await;
                    assert!(
                        [400, 404].contains(&reply.status),
                        "{method} {target}: {}",
                        reply.text()
                    );
                    if place != "path" && reply.status == 400 {
                        let said = reply.text();
                        let about = [
                            name,
                            "does not start with",
                            "whole number",
                            "missing",
                            "empty",
                            "idempotency key",
                        ];
                        assert!(
                            about.iter().any(|word| said.contains(word)),
                            "{method} {target}: {said}"
                        );
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 20, "only {tried} were tried");
    stage.finish().await;
}
