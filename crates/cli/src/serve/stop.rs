//! Signals that stop the server.

/// Waits for SIGTERM or an interrupt. Without a handler of the system it never ends, and signals end the process.
#[cfg(unix)]
pub async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let [term, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    match (term, interrupt) {
        (Ok(mut term), Ok(mut interrupt)) => tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        },
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!("signals end the server at once: {error}");
            std::future::pending().await
        }
    }
}

/// Waits for an interrupt.
#[cfg(not(unix))]
pub async fn signal() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!("signals end the server at once: {error}");
        std::future::pending().await
    }
}
