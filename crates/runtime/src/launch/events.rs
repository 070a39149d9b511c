//! All events of the launcher, in one queue: its loop handles one after the other.

use paddlecloud_worker::link::{Frame, FromServer};
use paddlecloud_worker::protocol::Report;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::LaunchError;
use super::link::Link;

/// An event.
pub enum LaunchEvent {
    /// A connection to the server is open.
    Connected(Link),
    /// The server sent a frame on this connection.
    Received(u64, Frame<FromServer>),
    /// This connection is closed, for this reason.
    Cut(u64, String),
    /// The supervisor sent a report.
    Report(Report),
    SupervisorGone,
    /// The kubelet is ending the pod.
    Terminate,
    /// An orphaned process has exited.
    ChildEnded,
    /// One second has passed.
    Tick,
}

/// Sends signals and ticks as events.
pub fn watch(events: &mpsc::UnboundedSender<LaunchEvent>) -> Result<(), LaunchError> {
    let listen =
        |kind| signal(kind).map_err(|error| LaunchError::new(format!("cannot watch signals: {error}")));
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        forward(listen(kind)?, events.clone(), || LaunchEvent::Terminate);
    }
    forward(listen(SignalKind::child())?, events.clone(), || {
        LaunchEvent::ChildEnded
    });
    let events = events.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while events.send(LaunchEvent::Tick).is_ok() {
            ticks.tick().await;
        }
    });
    Ok(())
}

fn forward(mut signals: Signal, events: mpsc::UnboundedSender<LaunchEvent>, event: fn() -> LaunchEvent) {
    tokio::spawn(async move { while signals.recv().await.is_some() && events.send(event()).is_ok() {} });
}
