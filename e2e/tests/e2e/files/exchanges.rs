//! Requests and replies as a wire sees them: how many there were, and how many at a time.
//!
//! HTTP/1.1 without pipelining: bytes from the client after a reply are the next request, and a reply says how long it is.

use std::sync::{Mutex, PoisonError};

/// All requests on a wire.
#[derive(Default)]
pub struct Exchanges(Mutex<Counts>);

#[derive(Default, Clone, Copy)]
struct Counts {
    requests: u64,
    running: u64,
    most: u64,
}

/// One connection of it.
#[derive(Default)]
pub struct Conversation(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Quiet,
    /// A request is on its way, or being worked at.
    Asked,
    /// So many bytes of the reply are still to come.
    Replying(u64),
    /// The reply says itself where it ends.
    ReplyingInPieces,
}

impl Exchanges {
    pub fn requests(&self) -> u64 {
        self.counts(|counts| counts.requests)
    }

    /// The most that ran at a time since this was last asked.
    pub fn take_most(&self) -> u64 {
        self.counts(|counts| std::mem::replace(&mut counts.most, counts.running))
    }

    /// Says whether a request begins with this.
    pub fn on_up(&self, conversation: &Conversation) -> bool {
        let mut state = conversation.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = matches!(*state, State::Quiet);
        if begins {
            *state = State::Asked;
            self.counts(|counts| {
                counts.requests += 1;
                counts.running += 1;
                counts.most = counts.most.max(counts.running);
            });
        }
        begins
    }

    pub fn on_down(&self, conversation: &Conversation, bytes: &[u8]) {
        let mut state = conversation.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match *state {
            State::Quiet => return,
            State::Asked => parse_reply_head(bytes),
            State::Replying(left) => State::Replying(left.saturating_sub(bytes.len() as u64)),
            State::ReplyingInPieces => State::ReplyingInPieces,
        };
        let is_over = match *state {
            State::Replying(left) => left == 0,
            _ => bytes.ends_with(b"0\r\n\r\n"),
        };
        if is_over {
            self.end(&mut state);
        }
    }

    /// A connection that is gone carries no request any more.
    pub fn on_end(&self, conversation: &Conversation) {
        let mut state = conversation.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, State::Quiet) {
            self.end(&mut state);
        }
    }

    fn end(&self, state: &mut State) {
        *state = State::Quiet;
        self.counts(|counts| counts.running -= 1);
    }

    fn counts<T>(&self, work: impl FnOnce(&mut Counts) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The head of a reply comes in one piece.
fn parse_reply_head(bytes: &[u8]) -> State {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse::<u64>().ok()) {
        Some(length) => {
            let here = bytes.len() - end.map_or(bytes.len(), |end| end + 4);
            State::Replying(length.saturating_sub(here as u64))
        }
        None => State::ReplyingInPieces,
    }
}

#[test]
fn requests_are_counted_from_their_first_byte_to_the_last_of_their_reply() {
    let all = Exchanges::default();
    let (one, other) = (Conversation::default(), Conversation::default());
    all.on_up(&one);
    all.on_up(&one);
    all.on_down(&one, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na");
    all.on_up(&other);
    all.on_down(&one, b"bc");
    assert_eq!((all.requests(), all.take_most()), (2, 2));
    all.on_up(&one);
    all.on_down(
        &one,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    );
    all.on_down(&one, b"0\r\n\r\n");
    all.on_end(&other);
    all.on_up(&one);
    assert_eq!((all.requests(), all.take_most()), (4, 2));
    assert_eq!(all.take_most(), 1, "the one that still runs");
}
