//! Limits silence in a request's body: a client that vanished does not hold its upload forever.
//!
//! The whole body may take any time; only the time without data is limited.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use paddlecloud_accounts::refusals::{Limit, Refusals};
use tokio::time::{Instant, Sleep};

/// A body that ends with an error if its next piece does not arrive in time.
pub struct Limited<B> {
    body: B,
    limit: Duration,
    refusals: Arc<Refusals>,
    /// Created at the first wait and reset at each.
    alarm: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<B> Limited<B> {
    pub fn new(body: B, limit: Duration, refusals: Arc<Refusals>) -> Limited<B> {
        Limited {
            body,
            limit,
            refusals,
            alarm: None,
            is_waiting: false,
        }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            alarm.as_mut().reset(Instant::now() + limit);
        }
        alarm.as_mut().poll(context)
    }
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => {
                this.is_waiting = false;
                Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
            }
            Poll::Pending => this.wait(context).map(|()| {
                this.refusals.count(Limit::SlowBody);
                let problem = format!("nothing came for {} seconds", this.limit.as_secs());
                Some(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt;

    use super::*;

    /// Pieces after this many seconds each, and then nothing forever.
    struct Slow(VecDeque<u64>, Option<Pin<Box<dyn Future<Output = ()>>>>);

    /// The clock of this test moves only in such waits.
    async fn nothing_for(seconds: u64) {
        let limit = Duration::from_secs(seconds);
        let _ = tokio::time::timeout(limit, std::future::pending::<()>()).await;
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
            let Some(seconds) = self.0.front().copied() else {
                return Poll::Pending;
            };
            let pause = self.1.get_or_insert_with(|| Box::pin(nothing_for(seconds)));
            std::task::ready!(pause.as_mut().poll(context));
            self.1 = None;
            self.0.pop_front();
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_passes_and_a_silent_one_does_not() {
        let slow = Slow([1, 100, 119, 0, 119].into(), None);
        let mut body = Limited::new(slow, Duration::from_secs(120), Arc::default());
        for _ in 0..5 {
            body.frame().await.unwrap().unwrap();
        }
        let silent = body.frame().await.unwrap().unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut, "{silent}");
    }
}
