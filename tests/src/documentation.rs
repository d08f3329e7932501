//! The programs of the pages in `docs`, compiled and run as examples of this crate.

#[doc = include_str!("../../docs/decoders.md")]
struct Decoders;

#[doc = include_str!("../../docs/deltas.md")]
struct Deltas;

#[doc = include_str!("../../docs/deploying.md")]
struct Deploying;

#[doc = include_str!("../../docs/distributed.md")]
struct Distributed;

#[doc = include_str!("../../docs/from-onnxruntime.md")]
struct FromOnnxRuntime;

#[doc = include_str!("../../docs/from-pytorch.md")]
struct FromPytorch;

#[doc = include_str!("../../docs/matrices.md")]
struct Matrices;

#[doc = include_str!("../../docs/measuring.md")]
struct Measuring;

#[doc = include_str!("../../docs/models.md")]
struct Models;

#[doc = include_str!("../../docs/onnx.md")]
struct Onnx;

#[doc = include_str!("../../docs/rewriting.md")]
struct Rewriting;

#[doc = include_str!("../../docs/sessions.md")]
struct Sessions;

#[doc = include_str!("../../docs/training.md")]
struct Training;

#[doc = include_str!("../../docs/tzrec.md")]
struct TorchEasyRec;
