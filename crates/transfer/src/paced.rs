//! Request bodies that limit their rate and count the bytes that leave.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use paddlecloud_api::client::UploadBody;
use tokio::time::{Instant, Sleep};

/// A rate limit shared by all connections of a transfer. Unused time is not made up for.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_second: u64,
    /// When everything admitted so far will have been sent at that rate.
    busy_until: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(bytes_per_second: u64) -> Throttle {
        Throttle {
            bytes_per_second: bytes_per_second.max(1),
            busy_until: Mutex::new(Instant::now()),
        }
    }

    /// Admits bytes and returns how long to wait first.
    pub(super) fn delay(&self, bytes: u64) -> Duration {
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let start = (*busy_until).max(now);
        *busy_until = start + self.time_of(bytes);
        start - now
    }

    /// Returns bytes that were admitted but are not sent, so that others do not wait for them.
    fn take_back(&self, bytes: u64) {
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        let before = busy_until.checked_sub(self.time_of(bytes));
        *busy_until = before.unwrap_or_else(Instant::now);
    }

    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }

    /// Bytes per piece: a tenth of a second's worth. Each connection waits for a piece of every other one, and a server or client
    /// that sees no progress for a while gives up.
    fn piece(&self) -> usize {
        usize::try_from(self.bytes_per_second / 10)
            .unwrap_or(PACED_PIECE)
            .clamp(1, PACED_PIECE)
    }
}

/// Bytes per piece without a rate limit: small enough for smooth progress.
const PIECE: usize = 256 << 10;
/// Shorter waits are skipped: a timer with millisecond ticks would prolong them, and high rates would never be reached.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// The largest piece with a rate limit, so that the rate holds over every fraction of a second.
const PACED_PIECE: usize = 32 << 10;

/// A body in memory or a stream, with a rate limit.
pub(super) struct PacedBody {
    stream: Option<UploadBody>,
    /// The rest of the body in memory, or of the stream's last frame.
    left: Bytes,
    throttle: Option<Arc<Throttle>>,
    waiting: Option<(Pin<Box<Sleep>>, Bytes)>,
    sent: Arc<AtomicU64>,
    content: u64,
}

impl PacedBody {
    pub(super) fn whole(bytes: Bytes, throttle: Option<Arc<Throttle>>) -> PacedBody {
        PacedBody {
            content: bytes.len() as u64,
            stream: None,
            left: bytes,
            throttle,
            waiting: None,
            sent: Arc::default(),
        }
    }

    /// A stream with this many bytes of content, plus framing.
    pub(super) fn stream(body: UploadBody, content: u64, throttle: Option<Arc<Throttle>>) -> PacedBody {
        PacedBody {
            content,
            stream: Some(body),
            left: Bytes::new(),
            throttle,
            waiting: None,
            sent: Arc::default(),
        }
    }

    /// Adds the bytes that leave to a shared counter.
    pub(super) fn counted_by(mut self, sent: &Arc<AtomicU64>) -> PacedBody {
        self.sent = sent.clone();
        self
    }

    /// Bytes of file content in it.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    /// The counter of bytes that left.
    pub(super) fn progress(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }

    fn next_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let most = self.throttle.as_ref().map_or(PIECE, |throttle| throttle.piece());
        while self.left.is_empty()
            && let Some(stream) = &mut self.stream
        {
            match ready!(Pin::new(stream).poll_frame(context)) {
                Some(Ok(frame)) => self.left = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let len = self.left.len().min(most);
        Poll::Ready((len > 0).then(|| Ok(self.left.split_to(len))))
    }

    /// Hands a piece over; only now it counts as sent.
    fn leave(&self, piece: Bytes) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Drop for PacedBody {
    fn drop(&mut self) {
        if let (Some(throttle), Some((_, piece))) = (&self.throttle, &self.waiting) {
            throttle.take_back(piece.len() as u64);
        }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some((sleep, _)) = &mut self.waiting {
                ready!(sleep.as_mut().poll(context));
                let (_, piece) = self.waiting.take().expect("just looked at");
                return self.leave(piece);
            }
            let piece = match ready!(self.next_piece(context)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            let delay = self
                .throttle
                .as_ref()
                .map(|throttle| throttle.delay(piece.len() as u64));
            match delay {
                None => return self.leave(piece),
                // The piece was still booked, so the next one waits for both.
                Some(delay) if delay < SHORTEST_WAIT => return self.leave(piece),
                Some(delay) => self.waiting = Some((Box::pin(tokio::time::sleep(delay)), piece)),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_over = self.stream.as_ref().is_none_or(Body::is_end_stream);
        is_over && self.left.is_empty() && self.waiting.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.stream.is_some() {
            return SizeHint::default();
        }
        let waiting = self.waiting.as_ref().map_or(0, |(_, piece)| piece.len());
        SizeHint::with_exact((self.left.len() + waiting) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use http_body_util::BodyExt;
    use paddlecloud_api::client::upload_channel;

    #[test]
    fn all_connections_share_one_rate() {
        let throttle = Throttle::new(1000);
        assert_eq!(throttle.delay(500_000), Duration::ZERO);
        let second = throttle.delay(500_000);
        assert!(
            second > Duration::from_secs(400) && second <= Duration::from_secs(500),
            "{second:?}"
        );
    }

    #[test]
    fn unused_rate_of_a_pause_is_not_caught_up() {
        let throttle = Throttle::new(1000);
        *throttle.busy_until.lock().unwrap() -= Duration::from_secs(60);
        assert_eq!(throttle.delay(3_600_000), Duration::ZERO);
        assert!(throttle.delay(1) > Duration::from_secs(1800));
    }

    #[tokio::test]
    async fn a_body_without_a_rate_is_sent_in_pieces_too() {
        let mut body = PacedBody::whole(Bytes::from(vec![7; 4 << 20]), None);
        let sent = body.progress();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sent.load(Ordering::Relaxed), first.len() as u64);
        assert!(first.len() <= PIECE, "{}", first.len());
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(first.len() + rest.len(), 4 << 20);
    }

    #[tokio::test]
    async fn a_paced_body_is_whole_and_counted() {
        let bytes = Bytes::from(vec![7; 100 << 10]);
        let body = PacedBody::whole(bytes.clone(), Some(Arc::new(Throttle::new(100 << 20))));
        assert_eq!(body.size_hint().exact(), Some(100 << 10));
        let sent = body.progress();
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        assert_eq!(sent.load(Ordering::Relaxed), 100 << 10);
    }

    #[test]
    fn the_slower_the_rate_the_smaller_the_pieces() {
        for (rate, piece) in [
            (1, 1),
            (9, 1),
            (1000, 100),
            (100 << 20, PACED_PIECE),
            (u64::MAX, PACED_PIECE),
        ] {
            assert_eq!(Throttle::new(rate).piece(), piece, "{rate}");
        }
    }

    /// A pack that is being sent: frames of 256 KiB, written by another thread.
    fn stream(len: usize, throttle: Option<Arc<Throttle>>) -> PacedBody {
        let (mut writer, body) = upload_channel();
        std::thread::spawn(move || {
            // A test may drop the body before its end.
            let _ = writer.write_all(&vec![7; len]).and_then(|()| writer.finish());
        });
        PacedBody::stream(body, len as u64, throttle)
    }

    #[tokio::test]
    async fn a_stream_is_cut_too_and_counted_as_it_leaves() {
        let throttle = Arc::new(Throttle::new(100_000));
        let mut body = stream(300_000, Some(throttle));
        let sent = body.progress();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), sent.load(Ordering::Relaxed)), (10_000, 10_000));
        let whole = stream(300_000, None);
        let sent = whole.progress();
        assert_eq!(whole.collect().await.unwrap().to_bytes().len(), 300_000);
        assert_eq!(sent.load(Ordering::Relaxed), 300_000);
    }

    /// The longest pause between pieces, over some pieces.
    async fn longest_silence(mut body: PacedBody) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let before = Instant::now();
            body.frame().await.unwrap().unwrap();
            longest = longest.max(before.elapsed());
        }
        longest
    }

    #[tokio::test(start_paused = true)]
    async fn however_slow_the_rate_no_connection_is_silent_for_long() {
        for (rate, connections) in [(100, 64), (1000, 256), (10_000, 256)] {
            let throttle = Arc::new(Throttle::new(rate));
            let body = || PacedBody::whole(Bytes::from(vec![7; 4 << 20]), Some(throttle.clone()));
            let all = (0..connections).map(|_| longest_silence(body()));
            let silences = futures_util::future::join_all(all).await;
            let longest = silences.into_iter().max().unwrap();
            assert!(longest < Duration::from_secs(30), "{rate}: {longest:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unsent_piece_does_not_delay_others() {
        let throttle = Arc::new(Throttle::new(1000));
        assert_eq!(throttle.delay(100), Duration::ZERO);
        for _ in 0..1000 {
            let mut abandoned = PacedBody::whole(Bytes::from(vec![7; 1000]), Some(throttle.clone()));
            let soon = Duration::from_millis(0);
            tokio::time::timeout(soon, abandoned.frame()).await.unwrap_err();
        }
        assert!(throttle.delay(100) <= Duration::from_millis(100));
    }
}
