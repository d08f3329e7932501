use crate::Profiled;
use rewire_runtime::{Lane, Span};
use serde_json::{Value, json};
use std::time::Duration;

/// A run as a Chrome trace, for `chrome://tracing`, Perfetto and similar tools. It has one track for the host, one for CPU kernels and
/// one for GPU kernels. Kernels are nested in regions of their modules, and have bytes, operations and predicted time as
/// arguments.
///
/// ```
/// use rewire_measure::{Profiled, chrome_trace};
/// use rewire::runtime::{Lane, Profile, Span};
/// use std::time::Duration;
/// let span = Span {
///     lane: Lane::Gpu,
///     name: "addmm".into(),
///     path: "stu.0".into(),
///     step: Some(0),
///     start: Duration::ZERO,
///     duration: Duration::from_micros(5),
/// };
/// let profile = Profile { spans: vec![span], ..Profile::default() };
/// let trace = chrome_trace("a layer", &Profiled { profile, ..Profiled::default() });
/// let names: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().map(|event| &event["name"]).collect();
/// assert_eq!(names[4..], ["stu", "0", "addmm"]);
/// ```
pub fn chrome_trace(name: &str, run: &Profiled) -> Value {
    let profile = &run.profile;
    let mut events = vec![json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": name } })];
    for (lane, title) in [(Lane::Host, "host"), (Lane::Cpu, "kernels on the CPU"), (Lane::Gpu, "kernels on the GPU")] {
        let args = json!({ "name": title });
        events.push(json!({ "ph": "M", "pid": 1, "tid": track(lane), "name": "thread_name", "args": args }));
    }
    let steps: Vec<&Span> = profile.spans.iter().filter(|span| span.step.is_some()).collect();
    // Nested events must follow their parent.
    events.extend(profile.spans.iter().filter(|span| span.step.is_none()).map(|span| event(span, run)));
    for lane in [Lane::Cpu, Lane::Gpu] {
        let steps: Vec<&Span> = steps.iter().copied().filter(|span| span.lane == lane).collect();
        regions(&steps, 0, run, &mut events);
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

/// Groups consecutive steps that share `depth + 1` modules within a region.
fn regions(steps: &[&Span], depth: usize, run: &Profiled, events: &mut Vec<Value>) {
    let module = |span: &&Span| span.path.split('.').filter(|part| !part.is_empty()).nth(depth).map(str::to_owned);
    for group in steps.chunk_by(|a, b| module(a).is_some() && module(a) == module(b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let Some(name) = module(first) else {
            events.extend(group.iter().map(|span| event(span, run)));
            continue;
        };
        let duration = (last.start + last.duration).saturating_sub(first.start);
        events.push(complete(first.lane, &name, (first.start, duration), "module", json!({})));
        regions(group, depth + 1, run, events);
    }
}

fn event(span: &Span, run: &Profiled) -> Value {
    let Some(step) = span.step else {
        return complete(span.lane, &span.name, (span.start, span.duration), "run", json!({}));
    };
    let mut args = json!({ "step": step, "path": span.path });
    if let Some(count) = run.counts.get(step) {
        args["bytes"] = count.bytes().into();
        args["operations"] = count.operations().into();
        args["predicted_us"] = (run.machine.seconds(count) * 1e6).into();
    }
    complete(span.lane, &span.name, (span.start, span.duration), "kernel", args)
}

fn complete(lane: Lane, name: &str, (start, duration): (Duration, Duration), category: &str, args: Value) -> Value {
    json!({
        "ph": "X", "pid": 1, "tid": track(lane), "name": name, "cat": category, "args": args,
        "ts": micros(start), "dur": micros(duration),
    })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn track(lane: Lane) -> u32 {
    match lane {
        Lane::Host => 1,
        Lane::Cpu => 2,
        Lane::Gpu => 3,
    }
}
