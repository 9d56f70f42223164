//! What ssh is spoken over: a TCP connection, a program (`ProxyCommand`), or a connection to the host before.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use russh::client::Handle;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::Failure;
use super::route::Hop;
use super::server::Client;
use super::wait::{Wait, within};
use crate::sftp::peer::Line;
use crate::sftp::program::shell;
use crate::{Action, Kind, dial};

/// Bytes in both directions.
pub(super) trait Both: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Both for S {}

/// A stream that takes note when something comes in: as long as it is the last one on the way. Hosts before that answer
/// by themselves, whether the one behind them does or not.
pub(super) struct Heard {
    inner: Box<dyn Both>,
    line: Arc<Line>,
    is_last: Arc<AtomicBool>,
}

impl Heard {
    fn new(inner: Box<dyn Both>, line: &Arc<Line>) -> Self {
        Heard { inner, line: line.clone(), is_last: Arc::new(AtomicBool::new(true)) }
    }

    pub(super) fn line(&self) -> Arc<Line> {
        self.line.clone()
    }

    /// Whether it is the last one, to be changed once there is another behind it.
    pub(super) fn is_last(&self) -> Arc<AtomicBool> {
        self.is_last.clone()
    }
}

/// To the first host.
pub(super) async fn first(hop: &Hop, line: &Arc<Line>) -> Result<Heard, Failure> {
    let inner: Box<dyn Both> = match &hop.proxy_command {
        Some(command) => program(command, line).map_err(|e| {
            Failure::new(Kind::Io, Action::Connect, format!("the ProxyCommand '{command}' can't be run: {e}"))
        })?,
        None => Box::new(connect(hop, line).await?),
    };
    Ok(Heard::new(inner, line))
}

/// To the next host, through the one before.
pub(super) async fn through(before: &Handle<Client>, hop: &Hop, line: &Arc<Line>) -> Result<Heard, Failure> {
    let told = |why: String| {
        let cause = format!("the jump host before it can't reach {}: {why}", hop.shown());
        Failure::new(Kind::Transient, Action::Connect, cause)
    };
    let opening = before.channel_open_direct_tcpip(hop.host.clone(), hop.port.into(), "127.0.0.1", 0);
    let opened = within(hop.answer_timeout(), line, opening).await;
    let channel = opened.map_err(|wait| match wait {
        Wait::Failed(error) => told(error.to_string()),
        Wait::Silent | Wait::Over => told("it doesn't answer".into()),
    })?;
    Ok(Heard::new(Box::new(channel.into_stream()), line))
}

async fn connect(hop: &Hop, line: &Arc<Line>) -> Result<TcpStream, Failure> {
    let within = hop.connect_timeout();
    let connected =
        timeout(within, async { dial::any_of(lookup_host((hop.host.as_str(), hop.port)).await?.collect()).await });
    let connected = connected.await;
    let told = |cause: String| {
        Failure::new(
            Kind::Transient,
            Action::Connect,
            format!("{} can't be reached: {cause}{}", hop.shown(), hop.notes(false)),
        )
    };
    let stream = match connected {
        Err(_) => return Err(told(format!("it didn't answer within {} seconds", within.as_secs()))),
        Ok(Err(error)) => return Err(told(plain(&error))),
        Ok(Ok(stream)) => stream,
    };
    // Small requests shall not wait for company.
    let _ = stream.set_nodelay(true);
    // A descriptor of its own, to end the connection by from any thread.
    if let Ok(end) = std::os::fd::AsFd::as_fd(&stream).try_clone_to_owned() {
        let end = std::net::TcpStream::from(end);
        line.ends_by(move || {
            let _ = end.shutdown(std::net::Shutdown::Both);
        });
    }
    Ok(stream)
}

fn program(command: &str, line: &Arc<Line>) -> io::Result<Box<dyn Both>> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let output: OwnedFd = theirs.try_clone()?.into();
    let mut child = shell(&format!("exec {command}"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(output))
        .spawn()?;
    let end = ours.try_clone()?;
    line.ends_by(move || {
        let _ = end.shutdown(std::net::Shutdown::Both);
        let _ = child.kill();
        let _ = child.wait();
    });
    ours.set_nonblocking(true)?;
    Ok(Box::new(UnixStream::from_std(ours)?))
}

/// An error without its number.
fn plain(error: &io::Error) -> String {
    let words = error.to_string();
    words.split(" (os error").next().unwrap_or(&words).to_owned()
}

impl AsyncRead for Heard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut *self.inner).poll_read(cx, buf);
        let came = buf.filled().len() > before;
        if came && self.is_last.load(Ordering::Relaxed) {
            self.line.hear();
        } else if !came && polled.is_ready() && buf.remaining() > 0 {
            self.line.close();
        }
        polled
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(cx)
    }
}
