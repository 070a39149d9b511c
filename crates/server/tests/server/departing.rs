//! Requests whose client disconnects early: work that was started is completed, and no other request interferes.

use std::future::poll_fn;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::jobs::JobRequest;
use tokio::time::timeout;

use crate::engine::wait_until;
use crate::packages::upload;
use crate::stage::{Stage, home};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

/// What comes of a request whose client goes after this many polls; `None` when that was too early.
async fn dropped_after<F: Future>(steps: usize, request: F) -> Option<F::Output> {
    let mut request = Box::pin(request);
    let mut done = 0;
    poll_fn(move |context| {
        done += 1;
        match request.as_mut().poll(context) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending if done == steps => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The server shares the only thread with this test: between two of its steps it does nothing.
#[tokio::test]
async fn a_disconnect_after_a_submit_stores_no_job_while_packages_are_removed() {
    let users = "users:\n- {name: me, password_file: word, system_user: a}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    let package = upload(&stage).await.id().to_string();
    let locks = stage.app.storage.locks(&me().user);
    let is_known = |name: &str| {
        let jobs = stage.app.jobs.active();
        jobs.iter().any(|job| job.spec.name.as_str() == name)
    };
    // How many steps it takes varies with the threads that look at files: until one went while its job was on its way.
    for round in 0.. {
        assert!(round < 200, "nobody went at the right moment");
        let name = format!("gone-{round}");
        let request = JobRequest {
            name: Some(name.clone()),
            package_id: Some(package.clone()),
            package_name: Some("job".to_owned()),
            parallelism: Some(6),
            pservers: Some(0),
            ..JobRequest::default()
        };
        let (caller, steps) = (me(), 1 + round % 6);
        let submitted = dropped_after(steps, stage.app.job_submit(&caller, request, None)).await;
        if let Some(submitted) = submitted {
            submitted.unwrap();
            continue;
        }
        let was_stored = is_known(&name);
        let alone = timeout(LIMIT, locks.packages.write()).await.unwrap();
        let was_known = is_known(&name);
        drop(alone);
        // Jobs are stored one after the other: whatever was on its way is there when this one is.
        stage.submit(&format!("after-{round}")).await;
        assert_eq!(is_known(&name), was_known, "its client went after {steps} steps");
        if was_known && !was_stored {
            break;
        }
    }
    stage.finish().await;
}

#[tokio::test]
async fn removing_packages_keeps_its_lock_after_the_client_disconnects() {
    let stage = Stage::new().await;
    let package = upload(&stage).await.id();
    let packages = home(stage.folder.path(), "me").join(".paddlecloud/packages");
    let list = packages.join(format!("{package}.json"));
    let locks = stage.app.storage.locks(&me().user);
    let (release, waits) = channel::<()>();
    let (report_held, is_held) = channel();
    let publishing = std::sync::Arc::clone(&locks);
    // Who removes packages waits in the middle for who gives one its place.
    let holder = std::thread::spawn(move || {
        let _held = publishing.publishing.lock().unwrap();
        report_held.send(()).unwrap();
        let _ = waits.recv_timeout(LIMIT);
    });
    is_held.recv_timeout(LIMIT).unwrap();
    let caller = me();
    let prune = stage
        .app
        .job_prune(&caller, SignedDuration::ZERO, Default::default());
    tokio::select! {
        pruned = prune => panic!("it did not wait: {pruned:?}"),
        () = wait_until("the package's list goes", || !list.exists()) => {}
    }
    assert!(locks.packages.try_read().is_err(), "it is still being removed");
    release.send(()).unwrap();
    drop(timeout(LIMIT, locks.packages.read()).await.expect("it ends"));
    holder.join().unwrap();
    stage.finish().await;
}
