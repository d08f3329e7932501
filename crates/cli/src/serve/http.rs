//! Paths of the server.

use super::App;
use super::error::{Fault, ServeError};
use super::models::Served;
use super::operations::{Body, Format, to_json};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the rest of a rejected body is read, so that the client can read the answer before the connection is reset.
const LINGER: Duration = Duration::from_secs(1);

/// The parts of an operation's path.
const OPERATION: usize = 4;

/// The label of requests that name no model or operation.
const NONE: &str = "";

/// An answer without an error.
struct Answer {
    content_type: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn of_text(text: &str) -> Self {
        Self { content_type: "text/plain", body: text.into() }
    }

    fn of_json(body: Vec<u8>) -> Self {
        Self { content_type: Format::Json.content_type(), body }
    }
}

/// Answers a request.
pub async fn respond(app: &App, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (begun, mut labels) = (Instant::now(), [NONE, NONE]);
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let expected = if parts.len() == OPERATION { Method::POST } else { Method::GET };
    let answer = match *request.method() == expected {
        true => answer(app, &parts, request, &mut labels).await,
        false => {
            Err(ServeError::Method { actual: request.method().to_string(), expected: expected.to_string() }.into())
        }
    };
    let (status, code) = match &answer {
        Ok(_) => (StatusCode::OK, None),
        Err(fault) => (fault.status, Some(fault.code)),
    };
    app.answered.fetch_add(1, Ordering::Relaxed);
    app.metrics.answered(labels, status.as_u16(), code, begun.elapsed());
    match answer {
        Ok(Answer { content_type, body }) => response(status, content_type, body),
        Err(fault) => refusal(&fault, &expected),
    }
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The answer with an error.
fn refusal(fault: &Fault, expected: &Method) -> Response<Full<Bytes>> {
    let body = json!({ "error": fault }).to_string().into_bytes();
    let mut response = response(fault.status, Format::Json.content_type(), body);
    let header: Option<(HeaderName, &'static str)> = match fault.status {
        StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
        StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, if *expected == Method::POST { "POST" } else { "GET" })),
        // The rest of the body was not read.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => Some((CONNECTION, "close")),
        _ => None,
    };
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn answer<'a>(
    app: &'a App,
    parts: &[&str],
    request: Request<Incoming>,
    labels: &mut [&'a str; 2],
) -> Result<Answer, Fault> {
    match *parts {
        ["healthz"] => Ok(Answer::of_text("ok\n")),
        ["readyz"] => app.models().map(|_| Answer::of_text("ready\n")).map_err(Fault::from),
        ["metrics"] => {
            let body = app.metrics.text().map_err(Fault::of_text)?;
            Ok(Answer { content_type: prometheus::TEXT_FORMAT, body })
        }
        ["v1", "models"] => {
            let models: Vec<_> = app.loaded()?.iter().map(Served::summary).collect();
            Ok(Answer::of_json(to_json(&json!({ "models": models }))?))
        }
        ["v1", "models", name] => Ok(Answer::of_json(to_json(&app.model(name)?.description)?)),
        ["v1", "models", name, operation] => {
            let model = app.model(name)?;
            labels[0] = &model.name;
            let unknown = || ServeError::Operation {
                model: name.to_owned(),
                operation: operation.to_owned(),
                known: model.known(),
            };
            let operation = model.operation(operation).ok_or_else(unknown)?;
            labels[1] = operation.name();
            let (format, accepted) = formats(request.headers())?;
            let bytes = read(app, request.into_body()).await?;
            let body = Body { bytes: &bytes, format, accepted, rows_limit: app.limits.rows };
            Ok(Answer { content_type: accepted.content_type(), body: operation.answer(body).await? })
        }
        _ => Err(ServeError::Path { path: request.uri().path().to_owned() }.into()),
    }
}

/// The type of the body, and that of the answer: the type that the client accepts, or that of the body.
fn formats(headers: &HeaderMap) -> Result<(Format, Format), ServeError> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("not ASCII"));
    let essence = |text: &str| text.split(';').next().map(|part| part.trim().to_ascii_lowercase());
    let format = match text(CONTENT_TYPE).and_then(essence).as_deref() {
        None | Some("application/json") => Format::Json,
        Some(Format::ARROW) => Format::Arrow,
        Some(other) => {
            let expected = "application/json or application/vnd.apache.arrow.stream";
            return Err(ServeError::ContentType { actual: other.to_owned(), expected });
        }
    };
    let accepted: Vec<String> = text(ACCEPT).map_or(vec![], |text| text.split(',').filter_map(essence).collect());
    let accepts = |name: &str| accepted.iter().any(|known| known == name);
    let accepted = match (accepts(Format::Json.content_type()), accepts(Format::ARROW)) {
        (true, false) => Format::Json,
        (false, true) => Format::Arrow,
        _ => format,
    };
    Ok((format, accepted))
}

/// Reads a body within the limits of its size and time.
async fn read(app: &App, mut body: Incoming) -> Result<Bytes, Fault> {
    let (limit, time) = (app.limits.body_bytes, app.limits.body_timeout);
    let is_large = body.size_hint().lower() > limit as u64;
    let collected = async {
        if is_large {
            return Err(ServeError::BodyLimit { limit });
        }
        Limited::new(&mut body, limit).collect().await.map(|body| body.to_bytes()).map_err(|error| {
            match error.is::<LengthLimitError>() {
                true => ServeError::BodyLimit { limit },
                false => ServeError::BodyLost,
            }
        })
    };
    let late = |_| Err(ServeError::BodyTimeout { seconds: time.as_secs_f64() });
    let collected = tokio::time::timeout(time, collected).await.unwrap_or_else(late);
    if let Err(ServeError::BodyLimit { .. }) = &collected {
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        // The answer is the same if the client continues.
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
    Ok(collected?)
}

impl App {
    /// The models, while requests are accepted.
    fn models(&self) -> Result<&[Served], ServeError> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(ServeError::ShuttingDown);
        }
        self.loaded()
    }

    fn loaded(&self) -> Result<&[Served], ServeError> {
        self.models.get().map(Vec::as_slice).ok_or(ServeError::Loading)
    }

    fn model(&self, name: &str) -> Result<&Served, ServeError> {
        let models = self.loaded()?;
        models.iter().find(|model| model.name == name).ok_or_else(|| ServeError::Model {
            name: name.to_owned(),
            known: models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}
