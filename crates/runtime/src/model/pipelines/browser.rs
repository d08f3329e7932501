//! Asynchronous pipeline creation in browsers.
//!
//! A browser that creates a pipeline synchronously blocks its GPU work, such as rendering the page. `wgpu` only
//! supports this, so its call of `createComputePipeline` is redirected to `createComputePipelineAsync`, and the result
//! is handed back to `wgpu`.

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

/// A pipeline under creation.
pub(super) struct Creation {
    create: Create,
    /// The result of `create`.
    created: wgpu::ComputePipeline,
    /// The browser's pipeline wrapped for `wgpu`, unless creation failed; `created` takes its place until then.
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

    /// The pipeline, once the browser has created it.
    pub async fn finish(self, gpu: &Gpu, what: &str) -> Result<wgpu::ComputePipeline, GpuError> {
        let Some(made) = self.made else { return Ok(self.created) };
        match made.await.map_err(GpuError::Dropped)? {
            Some(pipeline) => gpu.alive().map(|()| pipeline),
            // Creating the pipeline synchronously makes the device report the error.
            None => gpu.checked(what, || (self.create)()).await,
        }
    }
}

/// Starts asynchronous creation of a pipeline.
fn begun(device: &JsValue, arguments: &Array) -> Result<Promise, JsValue> {
    let method: Function = Reflect::get(device, &BESIDE.into())?.dyn_into()?;
    Reflect::apply(&method, device, arguments)?.dyn_into()
}

/// Calls `create` with synchronous pipeline creation replaced by `answer`; if that fails, the device creates the
/// pipeline.
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
    // Nothing else on this thread runs until the method is restored.
    let placed = traps.and_then(|_| Reflect::set(&devices, &AT_ONCE.into(), &Proxy::new(&method, &handler)));
    let created = create();
    if placed.is_ok() {
        let _ = Reflect::set(&devices, &AT_ONCE.into(), &method);
    }
    created
}

/// The prototype of all devices, and its method that creates a pipeline synchronously.
fn method() -> Result<(JsValue, Function), JsValue> {
    let devices = Reflect::get(&Reflect::get(&global(), &"GPUDevice".into())?, &"prototype".into())?;
    let method = Reflect::get(&devices, &AT_ONCE.into())?.dyn_into()?;
    Ok((devices, method))
}
