//! Waiting for a server while it is logged in to: not for ever, and not after the line is gone. russh leaves some of
//! those who wait without an answer then.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::Failure;
use crate::sftp::peer::Line;
use crate::{Action, Kind};

/// How often somebody who waits looks whether the line is there.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer.
pub(super) enum Wait<E> {
    /// It is not the one that was hoped for.
    Failed(E),
    /// None came in time.
    Silent,
    /// None will come.
    Over,
}

/// What a server answers, if it does so in time.
pub(super) async fn within<T, E>(
    limit: Duration,
    line: &Line,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, Wait<E>> {
    let (mut answer, start) = (pin!(answer), Instant::now());
    loop {
        match timeout(LOOK.min(limit), &mut answer).await {
            Ok(answered) => return answered.map_err(Wait::Failed),
            Err(_) if line.is_over() => return Err(Wait::Over),
            Err(_) if start.elapsed() >= limit => return Err(Wait::Silent),
            Err(_) => {}
        }
    }
}

impl<E: std::fmt::Display> Wait<E> {
    /// For messages.
    pub(super) fn failure(self, limit: Duration) -> Failure {
        let cause = match self {
            Wait::Failed(error) => format!("the connection broke: {error}"),
            Wait::Over => "the connection broke".into(),
            Wait::Silent => format!("the server didn't answer within {} seconds", limit.as_secs()),
        };
        Failure::new(Kind::Transient, Action::LogIn, cause)
    }
}
