//! Connections, from accepting them to closing them.

use super::{App, http};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::IntGauge;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

/// The pause after the system refused a connection, for instance because there are too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stop`, then answers all accepted requests, for at most the grace period. Returns the number of connections
/// that were cut off.
pub async fn serve(listener: TcpListener, app: &Arc<App>, stop: impl Future<Output = ()>) -> usize {
    let (closing, is_closing) = watch::channel(false);
    let permits = Arc::new(Semaphore::new(app.limits.connections));
    let (mut connections, mut stop) = (JoinSet::new(), pin!(stop));
    let accepted = async |connections: &mut JoinSet<()>| {
        let permit = permits.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, app.clone(), is_closing.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("a connection is not accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    };
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = accepted(&mut connections) => {}
        }
        while connections.try_join_next().is_some() {}
    }
    app.is_stopping.store(true, Ordering::Relaxed);
    // Connections that the system accepted before the stop.
    while let Ok(Ok((stream, _))) = timeout(Duration::ZERO, listener.accept()).await {
        connections.spawn(connection(stream, app.clone(), is_closing.clone()));
    }
    drop(listener);
    closing.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(app.limits.grace, ended).await;
    let cut_off = connections.len();
    connections.shutdown().await;
    cut_off
}

/// Counts a connection while it exists.
struct Open(IntGauge);

impl Open {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Answers the requests of a connection until it ends, or until the end of the current request once the server closes.
async fn connection(stream: TcpStream, app: Arc<App>, mut is_closing: watch::Receiver<bool>) {
    let _open = Open::new(&app.metrics.connections);
    // Answers are written completely.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(app.limits.body_timeout));
    let limits = app.limits;
    let service = service_fn(move |request| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(http::respond(&app, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
    let mut connection = pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = is_closing.wait_for(|is_closing| *is_closing) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
