//! Metrics in the Prometheus text format.

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, exponential_buckets,
};
use std::time::Duration;

/// The metrics of a server.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    errors: IntCounterVec,
    seconds: HistogramVec,
    depth: IntGaugeVec,
    batch: HistogramVec,
    cancelled: IntCounterVec,
    version: IntGaugeVec,
    pub connections: IntGauge,
}

/// The metrics of a model's queue.
#[derive(Clone)]
pub struct QueueMetrics {
    pub depth: IntGauge,
    pub batch: Histogram,
    pub cancelled: IntCounter,
}

impl Metrics {
    pub fn new() -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new("rewire_request_seconds", "Time from the head of a request to its answer")
            .buckets(exponential_buckets(0.0005, 2.0, 16)?);
        let batch = HistogramOpts::new("rewire_batch_requests", "Requests that ran together")
            .buckets(exponential_buckets(1.0, 2.0, 9)?);
        let metrics = Self {
            registry: Registry::new(),
            requests: IntCounterVec::new(
                Opts::new("rewire_requests_total", "Answered requests"),
                &["model", "operation", "status"],
            )?,
            errors: IntCounterVec::new(Opts::new("rewire_errors_total", "Errors by code"), &["code"])?,
            seconds: HistogramVec::new(seconds, &["model", "operation"])?,
            depth: IntGaugeVec::new(Opts::new("rewire_queue_depth", "Requests that wait for the model"), &["model"])?,
            batch: HistogramVec::new(batch, &["model"])?,
            cancelled: IntCounterVec::new(
                Opts::new("rewire_cancelled_total", "Requests whose client was gone before they ran"),
                &["model"],
            )?,
            version: IntGaugeVec::new(
                Opts::new("rewire_model_delta", "Number of the latest delta that was applied while serving"),
                &["model"],
            )?,
            connections: IntGauge::new("rewire_connections", "Open connections")?,
        };
        let Self { registry, requests, errors, seconds, depth, batch, cancelled, version, connections } = &metrics;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(depth.clone()))?;
        registry.register(Box::new(batch.clone()))?;
        registry.register(Box::new(cancelled.clone()))?;
        registry.register(Box::new(version.clone()))?;
        registry.register(Box::new(connections.clone()))?;
        Ok(metrics)
    }

    /// The number of the latest delta of a model.
    pub fn version(&self, model: &str) -> IntGauge {
        self.version.with_label_values(&[model])
    }

    pub fn of_queue(&self, model: &str) -> QueueMetrics {
        let labels = &[model];
        QueueMetrics {
            depth: self.depth.with_label_values(labels),
            batch: self.batch.with_label_values(labels),
            cancelled: self.cancelled.with_label_values(labels),
        }
    }

    /// Counts an answer, and its error if there is one.
    pub fn answered(&self, [model, operation]: [&str; 2], status: u16, code: Option<&str>, time: Duration) {
        self.requests.with_label_values(&[model, operation, status.to_string().as_str()]).inc();
        self.seconds.with_label_values(&[model, operation]).observe(time.as_secs_f64());
        if let Some(code) = code {
            self.errors.with_label_values(&[code]).inc();
        }
    }

    /// All metrics as text.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = vec![];
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
