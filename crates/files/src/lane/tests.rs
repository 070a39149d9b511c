//! Connections change threads without affecting their bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, ThreadId};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::*;

/// A connection and the other end of its socket.
fn pair() -> (Wire, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Wire::new(ours), theirs)
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 251) as u8).collect()
}

/// The thread short work runs on.
async fn worker() -> ThreadId {
    blocking(|| thread::current().id()).await.unwrap()
}

async fn wait_until_all_are_free() {
    let all = tokio::time::timeout(Duration::from_secs(60), FREE.acquire_many(LANES as u32));
    drop(
        all.await
            .expect("nobody keeps a thread for a silent peer")
            .unwrap(),
    );
}

/// A single test, because all connections of a process share the threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_blocks_only_where_it_may() {
    with_a_seat_the_work_is_done_here().await;
    a_silent_peer_costs_no_thread().await;
    without_room_the_work_is_handed_over().await;
}

async fn with_a_seat_the_work_is_done_here() {
    let (wire, _peer) = pair();
    run(wire.lane(), async move {
        let _wire = wire;
        assert_ne!(
            worker().await,
            thread::current().id(),
            "nobody asked for a thread"
        );
        let thread = LaneRequest::take();
        assert!(thread.reach().await);
        let here = thread::current().id();
        assert_eq!(worker().await, here);
        assert!(thread.reach().await, "it is there already");
        assert_eq!(thread::current().id(), here);
        drop(thread);
        tokio::task::yield_now().await;
        assert_eq!(worker().await, here, "the next request may want it too");
        let request = LANE.with(Lane::serve);
        tokio::task::yield_now().await;
        assert!(
            !LANE.with(|lane| lane.is_here()),
            "this one waits for something else"
        );
        assert_ne!(worker().await, thread::current().id());
        drop(request);
    })
    .await;
    wait_until_all_are_free().await;
}

async fn a_silent_peer_costs_no_thread() {
    let (mut wire, mut peer) = pair();
    let (arrived, has_arrived) = oneshot::channel();
    let connection = tokio::spawn(run(wire.lane(), async move {
        let thread = LaneRequest::take();
        assert!(thread.reach().await);
        arrived.send(()).unwrap();
        assert_eq!(wire.read_u8().await.unwrap(), 7);
        assert!(!LANE.with(|lane| lane.is_here()), "it went back while it waited");
        assert!(thread.reach().await, "and may come again");
    }));
    has_arrived.await.unwrap();
    wait_until_all_are_free().await;
    peer.write_all(&[7]).unwrap();
    connection.await.unwrap();
}

async fn without_room_the_work_is_handed_over() {
    let all = FREE.acquire_many(LANES as u32).await.unwrap();
    let (wire, _peer) = pair();
    run(wire.lane(), async move {
        let _wire = wire;
        let thread = LaneRequest::take();
        assert!(!thread.reach().await);
        assert_ne!(worker().await, thread::current().id());
    })
    .await;
    drop(all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_whole_wherever_they_are_moved() {
    let bytes = noise(3 << 20);
    let (mut wire, mut peer) = pair();
    let sent = bytes.clone();
    let peer = thread::spawn(move || {
        peer.write_all(&sent).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        peer.read_to_end(&mut back).unwrap();
        back
    });
    run(wire.lane(), async move {
        let mut received = Vec::new();
        let mut thread = None;
        loop {
            // On both kinds of threads, and across the changes.
            match received.len() >> 19 & 1 {
                0 => thread = None,
                _ => drop(thread.get_or_insert_with(LaneRequest::take).reach().await),
            }
            if wire.read_buf(&mut received).await.unwrap() == 0 {
                break;
            }
        }
        let thread = LaneRequest::take();
        let (first, second) = received.split_at(received.len() / 2);
        thread.reach().await;
        wire.write_all(first).await.unwrap();
        drop(thread);
        wire.write_all(second).await.unwrap();
        wire.shutdown().await.unwrap();
    })
    .await;
    assert_eq!(peer.join().unwrap(), bytes);
}

#[tokio::test]
async fn outside_of_a_connection_work_is_handed_over() {
    assert!(!LaneRequest::take().reach().await);
    assert_ne!(worker().await, thread::current().id());
}
