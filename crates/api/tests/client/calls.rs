//! Retries, tokens and kinds of errors.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use paddlecloud_api::client::{
    Call, Client, ClientError, Credentials, JobFilter, Limits, UploadBody, upload_channel,
};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::jobs::{JobRequest, KillOptions};
use paddlecloud_api::{ALIVE_HEADER, RENEW_HEADER};
use tokio::net::TcpListener;

use crate::scripted::{Log, Reply, Seen, connection, early_reply, json, serve};

const PAGE: &str = r#"{"code":200,"msg":[]}"#;
const TOKEN: &str = r#"{"token":"fresh"}"#;
const REFUSED: &str = r#"{"code":401,"msg":"no","error":"unauthorized"}"#;

fn client(endpoint: &str) -> Client {
    Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        exchange: Duration::from_secs(20),
        ..Limits::default()
    })
}

fn job() -> &'static str {
    r#"{"name":"j","job_package":null,"parallelism":1,"cpu":1,"gpu":0,"memory":"1Gi","pservers":1,"pscpu":1,
        "psmemory":"1Gi","topology":null,"entry":"e","psentry":"p","passes":1,"image":null,"registry":null,
        "datacenter":"d","envs":{},"priority":0,"retries":0,"max_runtime":null,"start_limit":"10m","grace":"30s",
        "id":"j_1","user":"u","namespace":"u","status":"Pending","message":null,"output":null,
        "submitted":"2026-01-01T00:00:00Z","started":null,"completed":null,"succeeded":0,"failed":0,"active":0}"#
}

fn submit_reply() -> String {
    let job = job();
    format!(r#"{{"code":200,"msg":"OK","id":"j_1","engine":"local","job":{job}}}"#)
}

fn job_reply(status: &str) -> Vec<u8> {
    let job = job().replace("Pending", status);
    json(
        200,
        &format!(r#"{{"code":200,"msg":{{"job":{job},"workers":[],"events":[]}}}}"#),
    )
}

#[tokio::test]
async fn a_wait_outlasts_a_server_that_answers_and_is_restarted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(&format!("http://{address}"));
    let mut waiting = std::pin::pin!(client.job_wait("j_1", None));
    let answer_once = async |listener: TcpListener, status: &'static str| {
        let socket = listener.accept().await.unwrap().0;
        let script = move |_, _: &Seen| Reply::Cut(job_reply(status));
        connection(socket, Arc::new(script), Log::default()).await;
    };
    tokio::select! {
        _ = &mut waiting => panic!("the job runs"),
        () = answer_once(listener, "Running") => {}
    }
    let away = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(away.is_err(), "it waits while nobody listens");
    let listener = TcpListener::bind(address).await.unwrap();
    let (waited, ()) = tokio::join!(waiting, answer_once(listener, "Succeeded"));
    assert_eq!(waited.unwrap().job.status.to_string(), "Succeeded");
}

#[tokio::test]
async fn a_submit_whose_reply_is_lost_is_sent_again_with_the_same_key() {
    let reply = json(200, &submit_reply());
    let (endpoint, log) = serve(move |number, _| match number {
        0 => Reply::Cut(Vec::new()),
        1 => Reply::Cut(reply[..reply.len() / 2].to_vec()),
        _ => Reply::Keep(reply.clone()),
    })
    .await;
    let made = client(&endpoint)
        .job_submit(&JobRequest::default(), "key-1")
        .await
        .unwrap();
    assert_eq!(made.id, "j_1");
    let keys: Vec<_> = log
        .lock()
        .unwrap()
        .iter()
        .map(|seen| seen.header("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys, vec![Some("key-1".to_owned()); 3]);
}

#[tokio::test]
async fn a_slow_submit_is_awaited_and_its_result_reported() {
    let (endpoint, log) = serve(|number, _| match number {
        0 | 1 => early_reply(&submit_reply()),
        _ => early_reply(r#"{"code":409,"msg":"send it first","error":"package-missing"}"#),
    })
    .await;
    let client = client(&endpoint);
    let submit = async || client.job_submit(&JobRequest::default(), "key-1").await;
    assert_eq!(submit().await.unwrap().id, "j_1");
    let again = client.job_rerun("j", None, "key-2").await.unwrap();
    assert_eq!(again.id, "j_1");
    let refused = submit().await.unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::PackageMissing), "{refused}");
    let asked = log.lock().unwrap();
    assert!(asked.iter().all(|seen| seen.header(ALIVE_HEADER).is_some()));
}

/// Half an hour is for those who copy whole trees.
#[tokio::test]
async fn a_submit_to_a_silent_server_fails_soon() {
    let (endpoint, _) = serve(|_, _| Reply::Keep(Vec::new())).await;
    let client = Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        reply: Duration::from_millis(50),
        give_up: Duration::from_millis(50),
        ..Limits::default()
    });
    let submit = client.job_submit(&JobRequest::default(), "key-1").await;
    let message = submit.unwrap_err().to_string();
    assert!(message.contains("did not reply"), "{message}");
}

#[tokio::test]
async fn time_spent_on_a_lost_request_does_not_count_as_waiting() {
    let give_up = Duration::from_millis(300);
    let (endpoint, log) = serve(move |number, _| {
        if number > 1 {
            return Reply::Keep(json(200, PAGE));
        }
        wait_until_passed(give_up);
        Reply::Cut(Vec::new())
    })
    .await;
    let client = Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up,
        pause: Duration::from_millis(1),
        ..Limits::default()
    });
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 3);
}

fn wait_until_passed(time: Duration) {
    let began = Instant::now();
    while began.elapsed() <= time {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_removal_whose_reply_is_lost_is_not_sent_again() {
    let (endpoint, log) = serve(|_, _| Reply::Cut(Vec::new())).await;
    let removal = KillOptions {
        remove: true,
        ..KillOptions::default()
    };
    let error = client(&endpoint).job_kill("j", removal).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn one_connection_serves_many_calls_and_may_close() {
    let (endpoint, log) = serve(|number, _| match number {
        1 => Reply::Cut(json(200, PAGE)),
        _ => Reply::Keep(json(200, PAGE)),
    })
    .await;
    let client = client(&endpoint);
    for _ in 0..4 {
        client.jobs_list(&JobFilter::default()).await.unwrap();
    }
    assert_eq!(client.server_version().as_deref(), Some("9.9.9"));
    assert_eq!(log.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_handed_to_the_keeper() {
    let (endpoint, log) = serve(|_, seen| {
        if seen.line.contains("/api-token-auth") {
            return Reply::Keep(json(200, TOKEN));
        }
        match seen.header("authorization") {
            Some("Token fresh") => Reply::Keep(json(200, PAGE)),
            _ => Reply::Keep(json(401, REFUSED)),
        }
    })
    .await;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = kept.clone();
    let client = client(&endpoint)
        .with_credentials(Credentials {
            login: Some(("me".into(), "secret".into())),
            token: Some("stale".into()),
        })
        .on_new_token(Box::new(move |token| {
            keeper.lock().unwrap().push(token.to_owned())
        }));
    client.jobs_list(&JobFilter::default()).await.unwrap();
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(*kept.lock().unwrap(), ["fresh"]);
    assert_eq!(log.lock().unwrap().len(), 4, "refused, token, two lists");
}

/// The server of these tests: `old` is past half of its life, `new` is not, others are rejected.
fn of_two_tokens(line: &str, token: Option<&str>) -> Reply {
    let new = r#"{"code":200,"msg":{"token":"new","id":"1","name":"login","user":"me","scopes":"read",
        "created":"2026-01-01T00:00:00Z","expires":"2026-01-02T00:00:00Z"}}"#;
    match token {
        Some("Token old") if line.contains("/tokens/renew?keep_old=true") => Reply::Keep(json(200, new)),
        Some("Token old") => {
            let due = String::from_utf8(json(200, PAGE)).unwrap();
            let due = due.replacen("\r\n", &format!("\r\n{RENEW_HEADER}: 1\r\n"), 1);
            Reply::Keep(due.into_bytes())
        }
        Some("Token new") => Reply::Keep(json(200, PAGE)),
        _ => Reply::Keep(json(401, REFUSED)),
    }
}

#[tokio::test]
async fn a_saved_token_is_exchanged_when_the_server_says_so_and_another_one_is_not() {
    let (endpoint, log) = serve(|_, seen| of_two_tokens(&seen.line, seen.header("authorization"))).await;
    let saved = Arc::new(Mutex::new("old".to_owned()));
    let with_old = || {
        client(&endpoint).with_credentials(Credentials {
            login: None,
            token: Some("old".into()),
        })
    };
    let configured = with_old();
    for _ in 0..2 {
        configured.jobs_list(&JobFilter::default()).await.unwrap();
    }
    assert_eq!(log.lock().unwrap().len(), 2);
    let (to, from) = (saved.clone(), saved.clone());
    let renewing = with_old()
        .on_new_token(Box::new(move |token| *to.lock().unwrap() = token.to_owned()))
        .with_saved_token(Box::new(move || Some(from.lock().unwrap().clone())));
    for _ in 0..2 {
        renewing.jobs_list(&JobFilter::default()).await.unwrap();
    }
    assert_eq!(*saved.lock().unwrap(), "new");
    assert_eq!(
        log.lock().unwrap().len(),
        5,
        "two lists and the exchange between them"
    );
}

#[tokio::test]
async fn a_rejected_token_that_another_process_has_replaced_is_read_again() {
    let (endpoint, log) = serve(|_, seen| of_two_tokens(&seen.line, seen.header("authorization"))).await;
    let with_saved = |saved: &'static str| {
        let credentials = Credentials {
            login: None,
            token: Some("expired".into()),
        };
        let client = client(&endpoint).with_credentials(credentials);
        client.with_saved_token(Box::new(move || Some(saved.to_owned())))
    };
    with_saved("new").jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 2);
    let refused = with_saved("expired").jobs_list(&JobFilter::default()).await;
    assert_eq!(refused.unwrap_err().refusal(), Some(ErrorName::Unauthorized));
    assert_eq!(log.lock().unwrap().len(), 3, "the same token is not sent twice");
}

/// A client with the saved token `old`, and the tokens that it saves.
fn saving(endpoint: &str, saved: &Arc<Mutex<Option<String>>>, exchange: Duration) -> Client {
    *saved.lock().unwrap() = Some("old".to_owned());
    let (to, from) = (saved.clone(), saved.clone());
    client(endpoint)
        .with_limits(Limits {
            exchange,
            ..Limits::default()
        })
        .with_credentials(Credentials {
            login: None,
            token: Some("old".into()),
        })
        .on_new_token(Box::new(move |token| {
            *to.lock().unwrap() = Some(token.to_owned())
        }))
        .with_saved_token(Box::new(move || from.lock().unwrap().clone()))
}

#[tokio::test]
async fn a_token_that_was_deleted_during_its_exchange_is_not_saved_again() {
    let saved = Arc::new(Mutex::new(None));
    let file = saved.clone();
    let (endpoint, log) = serve(move |_, seen| {
        if seen.line.contains("/tokens/renew") {
            *file.lock().unwrap() = None;
        }
        of_two_tokens(&seen.line, seen.header("authorization"))
    })
    .await;
    let client = saving(&endpoint, &saved, Duration::from_secs(20));
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 2, "a list and an exchange");
    assert_eq!(*saved.lock().unwrap(), None);
}

#[tokio::test]
async fn an_exchange_without_a_reply_does_not_hold_up_the_command() {
    let (endpoint, log) = serve(|_, seen| match seen.line.contains("/tokens/renew") {
        true => Reply::Keep(Vec::new()),
        false => of_two_tokens(&seen.line, seen.header("authorization")),
    })
    .await;
    let saved = Arc::default();
    let client = saving(&endpoint, &saved, Duration::from_secs(2));
    let begin = std::time::Instant::now();
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(50),
        "a reply has 60 seconds"
    );
    assert_eq!(log.lock().unwrap().len(), 2, "a list and an exchange");
    assert_eq!(saved.lock().unwrap().as_deref(), Some("old"));
}

#[tokio::test]
async fn a_password_is_preferred_to_a_saved_token() {
    let (endpoint, log) = serve(|_, seen| {
        if seen.line.contains("/api-token-auth") {
            return Reply::Keep(json(200, TOKEN));
        }
        match seen.header("authorization") {
            Some("Token fresh") => Reply::Keep(json(200, PAGE)),
            _ => Reply::Keep(json(401, REFUSED)),
        }
    })
    .await;
    let client = client(&endpoint)
        .with_credentials(Credentials {
            login: Some(("me".into(), "secret".into())),
            token: Some("stale".into()),
        })
        .with_saved_token(Box::new(|| Some("dead".to_owned())));
    client.jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 3, "refused, token, list");
}

#[tokio::test]
async fn concurrent_refusals_fetch_one_token() {
    let (endpoint, log) = serve(|_, seen| {
        if seen.line.contains("/api-token-auth") {
            return Reply::Keep(json(200, TOKEN));
        }
        match seen.header("authorization") {
            Some("Token fresh") => Reply::Keep(json(200, PAGE)),
            _ => Reply::Keep(json(401, REFUSED)),
        }
    })
    .await;
    for token in [Some("stale".to_owned()), None] {
        log.lock().unwrap().clear();
        let client = client(&endpoint).with_credentials(Credentials {
            login: Some(("me".into(), "secret".into())),
            token,
        });
        let filter = JobFilter::default();
        let (a, b, c) = tokio::join!(
            client.jobs_list(&filter),
            client.jobs_list(&filter),
            client.jobs_list(&filter)
        );
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        let log = log.lock().unwrap();
        let logins = log.iter().filter(|seen| seen.line.contains("/api-token-auth"));
        assert_eq!(logins.count(), 1);
    }
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_and_then_reported() {
    let (endpoint, log) = serve(|_, _| Reply::Keep(json(401, REFUSED))).await;
    let client = client(&endpoint).with_credentials(Credentials {
        login: Some(("me".into(), "wrong".into())),
        token: None,
    });
    let error = client.jobs_list(&JobFilter::default()).await.unwrap_err();
    assert_eq!(error.refusal(), Some(ErrorName::Unauthorized));
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => Reply::Keep(json(
            503,
            r#"{"code":503,"msg":"starting","error":"unavailable"}"#,
        )),
        _ => Reply::Keep(json(200, PAGE)),
    })
    .await;
    client(&endpoint).jobs_list(&JobFilter::default()).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_reply_of_another_program_is_quoted() {
    let (endpoint, _) = serve(|_, _| Reply::Keep(json(502, "<html>Bad Gateway</html>"))).await;
    let error = client(&endpoint).whoami_get().await.unwrap_err();
    let expected = format!(
        "the server at {endpoint} replied 502 Bad Gateway and may not be a PaddleCloud server: <html>Bad Gateway</html>"
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_port_without_a_listener_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&endpoint).ping().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

async fn put(client: &Client, body: UploadBody) -> Result<Bytes, ClientError> {
    let call = Call::new(Method::PUT, "/x".to_owned());
    client
        .send_body(&call, body.boxed_unsync(), &Arc::default())
        .await
}

#[tokio::test]
async fn an_upload_arrives_completely_or_is_aborted() {
    let (endpoint, log) = serve(|_, _| Reply::Keep(json(200, PAGE))).await;
    let client = client(&endpoint);
    let (mut writer, body) = upload_channel();
    let content: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let sent = content.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.finish().unwrap();
    });
    put(&client, body).await.unwrap();
    thread.join().unwrap();
    let arrived = log.lock().unwrap()[0].body.len();
    assert!(
        arrived > content.len(),
        "{arrived} bytes with the frames around them"
    );

    let (writer, body) = upload_channel();
    drop(writer);
    let error = put(&client, body).await.unwrap_err();
    assert!(!matches!(error, ClientError::Refused(_)), "{error}");
    assert_eq!(log.lock().unwrap().len(), 1, "half a stream is never a request");
}
