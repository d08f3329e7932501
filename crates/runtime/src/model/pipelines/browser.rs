//! Pipelines that a browser makes beside its other work.
//!
//! A browser does nothing else on its GPU while it makes a pipeline at once, such as showing the page. `wgpu` has no other way, so
//! `createComputePipelineAsync` is given what `wgpu` hands to `createComputePipeline`, and `wgpu` what came of it.

use crate::{Gpu, GpuError, WorkDropped, device};
use js_sys::futures::spawn_local;
use js_sys::{Array, Function, Object, Promise, Proxy, Reflect, global};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};

const AT_ONCE: &str = "createComputePipeline";
const BESIDE: &str = "createComputePipelineAsync";

type Create = Arc<dyn Fn() -> wgpu::ComputePipeline + Send + Sync>;

/// A pipeline that is being made.
pub(super) struct Creation {
    create: Create,
    /// What `create` gave.
    created: wgpu::ComputePipeline,
    /// The browser's own pipeline as one of `wgpu`, unless it is refused: `created` stands for it until then.
    made: Option<Pin<Box<dyn Future<Output = Result<Option<wgpu::ComputePipeline>, WorkDropped>> + Send>>>,
}

impl Creation {
    pub fn begin(create: impl Fn() -> wgpu::ComputePipeline + Send + Sync + 'static) -> Self {
        let create: Create = Arc::new(create);
        let promised = Rc::new(Cell::new(None));
        let promises = promised.clone();
        let created = answered(&create, move |device, arguments| {
            promises.set(Some(begun(device, arguments)?));
            Ok(JsValue::UNDEFINED)
        });
        let made = promised.take().map(|promise: Promise| {
            let (kept, made) = device::promise();
            let create = create.clone();
            spawn_local(async move {
                let pipeline = promise.await.ok();
                kept.keep(pipeline.map(|pipeline| answered(&create, move |_, _| Ok(pipeline.clone()))));
            });
            Box::pin(made) as _
        });
        Self { create, created, made }
    }

    /// The pipeline, once the browser has it.
    pub async fn finish(self, gpu: &Gpu, what: &str) -> Result<wgpu::ComputePipeline, GpuError> {
        let Some(made) = self.made else { return Ok(self.created) };
        match made.await.map_err(GpuError::Dropped)? {
            Some(pipeline) => gpu.alive().map(|()| pipeline),
            // The device says why to who has the pipeline made at once.
            None => gpu.checked(what, || (self.create)()).await,
        }
    }
}

/// Asks the device for a pipeline that it makes beside other work.
fn begun(device: &JsValue, arguments: &Array) -> Result<Promise, JsValue> {
    let method: Function = Reflect::get(device, &BESIDE.into())?.dyn_into()?;
    Reflect::apply(&method, device, arguments)?.dyn_into()
}

/// Calls `create`. What it asks of a device to make at once is answered by `answer`, or by the device where that fails.
fn answered(
    create: &Create,
    answer: impl Fn(&JsValue, &Array) -> Result<JsValue, JsValue> + 'static,
) -> wgpu::ComputePipeline {
    let Ok((devices, method)) = method() else { return create() };
    let own = method.clone();
    let trap = Closure::<dyn Fn(JsValue, JsValue, Array) -> Result<JsValue, JsValue>>::new(
        move |_: JsValue, device: JsValue, arguments: Array| {
            answer(&device, &arguments).or_else(|_| Reflect::apply(&own, &device, &arguments))
        },
    );
    let handler = Object::new();
    let traps = Reflect::set(&handler, &"apply".into(), trap.as_ref());
    // Nothing else of this thread runs until the method is back in its place.
    let placed = traps.and_then(|_| Reflect::set(&devices, &AT_ONCE.into(), &Proxy::new(&method, &handler)));
    let created = create();
    if placed.is_ok() {
        let _ = Reflect::set(&devices, &AT_ONCE.into(), &method);
    }
    created
}

/// What all devices inherit from, and their method that makes a pipeline at once.
fn method() -> Result<(JsValue, Function), JsValue> {
    let devices = Reflect::get(&Reflect::get(&global(), &"GPUDevice".into())?, &"prototype".into())?;
    let method = Reflect::get(&devices, &AT_ONCE.into())?.dyn_into()?;
    Ok((devices, method))
}
