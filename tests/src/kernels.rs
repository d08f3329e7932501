//! The page of kernel counts: the savings of the pipeline, and of every pass, in models and stored graphs.

use crate::exported;
use crate::golden::{Golden, stored};
use rewire::predict::Imported;
use rewire::rank;
use rewire_graph::op::{Input, Parameter};
use rewire_graph::{DType, Graph, Layout, NodeId, Scope, Seed, Tensor, Type, differentiate};
use rewire_graph_rewrite::cost::{ASSUMED_ROWS, ASSUMED_SAMPLES, HardwareModel, Sizes, kernels, operators, traffic};
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::recompute::{Timeline, recompute};
use rewire_graph_rewrite::{RewriteError, optimize};
use rewire_hstu::modules::ranking::MmoeConfig;
use rewire_hstu::modules::{StuConfig, StuInput, StuLayer, StuStack};
use rewire_hstu::ops::SeqLen;
use rewire_tzrec::Pipeline as TorchEasyRec;
use serde_json::json;
use std::fmt::Write;
use std::iter::Sum;
use std::path::Path;

/// The passes without which an operator may have no kernel.
const VERTICAL: [&str; 2] = ["separate", "fuse"];

/// A graph to count.
struct Example {
    name: String,
    graph: Graph,
}

/// Kernels of a graph, and the bytes that a run moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    kernels: usize,
    bytes: u64,
}

impl Figures {
    fn of(graph: &Graph) -> Result<Self, String> {
        let failed = |error: RewriteError| error.to_string();
        Ok(Self { kernels: kernels(graph).map_err(failed)?, bytes: traffic(graph).map_err(failed)? })
    }

    fn after(pipeline: &Pipeline, graph: &Graph) -> Result<Self, String> {
        let (rewritten, _) = pipeline.run(graph.clone()).map_err(|error| error.to_string())?;
        Self::of(&rewritten)
    }
}

impl Sum for Figures {
    fn sum<I: Iterator<Item = Self>>(figures: I) -> Self {
        let none = Self { kernels: 0, bytes: 0 };
        figures.fold(none, |a, b| Self { kernels: a.kernels + b.kernels, bytes: a.bytes + b.bytes })
    }
}

/// The demo model.
pub fn demo() -> Result<Graph, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo/model");
    let config = rank::read_config(&folder, rewire::Mapping::default()).map_err(|error| error.to_string())?;
    rank::trace(&config).map_err(|error| error.to_string())
}

fn golden(path: &Path) -> Result<Example, String> {
    let golden = Golden::read(path);
    Ok(Example { graph: golden.trace()?.graph, name: format!("`{}`", golden.name) })
}

fn mmoe(experts: usize) -> Result<Graph, String> {
    let config = json!({ "expert_mlp": { "hidden_units": [64, 32] }, "num_expert": experts, "num_task": 2 });
    let config: MmoeConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    let tasks = config.forward(&scope, &x);
    let names: Vec<String> = (0..tasks.len()).map(|task| format!("task{task}")).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(tasks).collect();
    scope.finish(&named).map_err(|error| error.to_string())
}

fn models() -> Result<Vec<Example>, String> {
    let case = |path: &str| golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(path));
    Ok(vec![
        Example { name: "the demo model".to_owned(), graph: demo()? },
        case("STULayer/layer_norm.safetensors")?,
        case("STULayer/group_norm.safetensors")?,
        case("HSTUTransducer/full_embeddings_timestamp_norm.safetensors")?,
        Example { name: "MMoE, 8 experts of 2 layers, 2 tasks".to_owned(), graph: mmoe(8)? },
    ])
}

/// The stored fusion graphs.
fn fusions() -> Result<Vec<Example>, String> {
    let paths = stored().into_iter().filter(|path| path.to_string_lossy().contains("/fusion_"));
    paths.map(|path| golden(&path)).collect()
}

/// The TorchEasyRec pipelines, one per model family.
fn imported() -> Result<Vec<Example>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tzrec");
    let entries = std::fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let example = |name: String| {
        let config =
            TorchEasyRec::read(&folder.join(&name).join("pipeline.config")).map_err(|error| error.to_string())?;
        let imported = Imported::new(config.json()).map_err(|error| format!("{name}: {error}"))?;
        Ok(Example { name: format!("`{name}`"), graph: imported.graph().clone() })
    };
    names.into_iter().map(example).collect()
}

/// The exported models, as written by `torch.export` and after its decompositions.
fn exported() -> Result<Vec<Example>, String> {
    let mut examples = vec![];
    for model in exported::models()? {
        let files =
            [("model.pt2", ""), ("model_core.pt2", ", decomposed")].map(|(file, what)| (model.join(file), what));
        for (file, what) in files.into_iter().filter(|(file, what)| what.is_empty() || file.is_file()) {
            let read = rewire::import::read(&file);
            let graph = read.map_err(|error| format!("{}: {error}", model.display()))?.graph;
            let name = model.file_name().unwrap_or_default().to_string_lossy();
            examples.push(Example { name: format!("`{name}`{what}"), graph });
        }
    }
    Ok(examples)
}

/// The names of the optional passes, each once, in order.
fn passes() -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for pass in Pipeline::default().passes() {
        if !VERTICAL.contains(&pass.name()) && !names.iter().any(|name| name == pass.name()) {
            names.push(pass.name().to_owned());
        }
    }
    names
}

/// The pipeline without the optional passes that `keep` rejects.
fn pipeline(keep: impl Fn(&str) -> bool) -> Result<Pipeline, String> {
    passes()
        .iter()
        .filter(|name| !keep(name))
        .try_fold(Pipeline::default(), |pipeline, name| pipeline.without(name).map_err(|error| error.to_string()))
}

/// The page.
pub fn page() -> Result<String, String> {
    let (models, fusions, imported) = (models()?, fusions()?, imported()?);
    let mut page = format!(
        "# Kernels\n\nWritten by `cargo xtask reference` from the pipeline; a test fails if it is stale.\n\n\
         Kernels are the dispatches of one run. In the traced graph, every operator that computes on the device is a kernel. \
         Bytes are\nthe device memory that the kernels of one run read and write, as predicted by \
         `rewire_graph_rewrite::cost::traffic`\nfor {ASSUMED_SAMPLES} sequences with {ASSUMED_ROWS} rows in all; they are not \
         measured.\n\nVertical fusion consists of the passes {}.\nThe pipeline consists of all passes:\n{}.\n",
        code(&VERTICAL),
        code(&Pipeline::default().passes().map(|pass| pass.name()).collect::<Vec<_>>()),
    );
    let exported = exported()?;
    let sections = [
        ("Models and layers", &models),
        ("TorchEasyRec pipelines", &imported),
        ("Exported models", &exported),
        ("Stored fusion graphs", &fusions),
    ];
    for (title, examples) in sections {
        let _ = write!(page, "\n## {title}\n\n");
        page.push_str("| graph | traced | vertical fusion | pipeline | bytes traced | vertical fusion | pipeline |\n");
        page.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
        for example in examples {
            write_totals(&mut page, example)?;
        }
    }
    write_gradients(&mut page, &models)?;
    page.push_str(
        "\n## What each pass contributes\n\nWithout: the pipeline without the pass. Alone: vertical fusion and the pass. \
         Some passes only have an effect\ntogether with another one, or have the same effect as another one.\n",
    );
    for example in &models {
        write_contributions(&mut page, &example.name, std::slice::from_ref(example))?;
    }
    write_contributions(&mut page, "All stored fusion graphs", &fusions)?;
    Ok(page)
}

/// STU layers of the width of the demo model, with flags of their configuration.
fn layers(flags: &[&str]) -> Result<Graph, String> {
    let mut config = json!({ "embedding_dim": 64, "num_heads": 2, "hidden_dim": 32, "attention_dim": 32 });
    flags.iter().for_each(|flag| config[*flag] = json!(true));
    let config: StuConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let layers = vec![StuLayer { config }; 5];
    let scope = Scope::new();
    let rows = scope.lengths("rows", scope.size("samples"));
    let x = scope.input("x", DType::F32, [rows.total.clone(), 64.into()]);
    let stack = StuStack { layers, truncate_split_layer: 0, truncate_tail_len: 0 };
    let y = stack.forward(&scope, &StuInput { x, rows, num_targets: None, max_seq_len: SeqLen::Fixed(256) }).x;
    scope.finish(&[("y", y)]).map_err(|error| error.to_string())
}

/// The gradients of the sum of a graph's float outputs with respect to its float parameters, rewritten.
fn with_gradients(graph: &Graph) -> Result<Graph, String> {
    let is_float = |ty: &Type| ty.layout == Layout::Device && ty.dtype.is_float() && ty.dtype.format().is_written();
    let outputs = graph.outputs().iter().filter(|(_, value)| graph.ty(*value).is_some_and(is_float));
    let seeds: Vec<(&str, Seed<'_>)> = outputs.map(|(name, _)| (name.as_str(), Seed::One)).collect();
    let named = |value: &dyn Fn(NodeId) -> Option<(String, Type)>| -> Vec<String> {
        graph.ids().filter_map(value).filter(|(_, ty)| is_float(ty)).map(|(name, _)| name).collect()
    };
    let parameters = named(&|id| graph.op::<Parameter>(id).map(|own| (own.name.clone(), own.ty.clone())));
    let inputs = named(&|id| graph.op::<Input>(id).map(|own| (own.name.clone(), own.ty.clone())));
    // Parameters of golden cases are inputs.
    let wanted = if parameters.is_empty() { inputs } else { parameters };
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let graph = differentiate(graph, &seeds, &wanted).map_err(|error| error.to_string())?;
    Ok(optimize(graph).map_err(|error| error.to_string())?.0)
}

fn write_gradients(page: &mut String, models: &[Example]) -> Result<(), String> {
    page.push_str(
        "\n## With gradients\n\nGradients of all parameters. Memory counts the tensors between kernels; tensors that are in use at \
         different\ntimes share it. `training` keeps all tensors that gradients read; `least` recomputes those that save memory, like \
         the memory\nlimit of a training, with the same bits. Predicted times are for a mid-range GPU.\n\n\
         | graph | kernels | training | least | memory | training | least | training | least |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let flags: [&[&str]; 4] =
        [&[], &["recompute_normed_x"], &["recompute_uvqk"], &["recompute_normed_x", "recompute_uvqk", "recompute_y"]];
    for flags in flags {
        let with = if flags.is_empty() { String::new() } else { format!(", {}", code(flags)) };
        write_memory(page, &format!("5 STU layers{with}"), &layers(flags)?)?;
    }
    models.iter().take(4).try_for_each(|example| write_memory(page, &example.name, &example.graph))
}

fn write_memory(page: &mut String, name: &str, graph: &Graph) -> Result<(), String> {
    let (forward, _) = optimize(graph.clone()).map_err(|error| error.to_string())?;
    let training = with_gradients(graph).map_err(|error| format!("{name}: {error}"))?;
    let sizes = Sizes::assumed(&training);
    let least = recompute(&training, &sizes, 0, &HardwareModel::TYPICAL).map_err(|error| error.to_string())?.graph;
    let row = memory_row([&forward, &training, &least], &sizes).map_err(|error| format!("{name}: {error}"))?;
    let _ = writeln!(page, "| {name} | {} |", row.join(" | "));
    Ok(())
}

/// The kernels of three graphs, their peak memory, and the predicted time of the last two.
fn memory_row(graphs: [&Graph; 3], sizes: &Sizes) -> Result<Vec<String>, RewriteError> {
    let kernels = graphs.iter().map(|graph| Ok(kernels(graph)?.to_string()));
    let memory = graphs.iter().map(|graph| Ok(bytes(Timeline::of(graph)?.bytes(sizes))));
    let time = graphs[1..].iter().map(|graph| {
        let counts = operators(graph, sizes)?;
        let seconds: f64 = counts.iter().map(|(_, count)| HardwareModel::TYPICAL.seconds(count)).sum();
        Ok(format!("{:.2} ms", seconds * 1e3))
    });
    kernels.chain(memory).chain(time).collect()
}

fn write_totals(page: &mut String, Example { name, graph }: &Example) -> Result<(), String> {
    let traced = Figures::of(graph).map_err(|error| format!("{name}: {error}"))?;
    let vertical = Figures::after(&pipeline(|_| false)?, graph).map_err(|error| format!("{name}: {error}"))?;
    let whole = Figures::after(&Pipeline::default(), graph).map_err(|error| format!("{name}: {error}"))?;
    let all = [traced, vertical, whole];
    let [a, b, c] = all.map(|figures| figures.kernels);
    let [d, e, f] = all.map(|figures| bytes(figures.bytes));
    let _ = writeln!(page, "| {name} | {a} | {b} | {c} | {d} | {e} | {f} |");
    Ok(())
}

fn write_contributions(page: &mut String, title: &str, examples: &[Example]) -> Result<(), String> {
    let figures = |pipeline: &Pipeline| -> Result<Figures, String> {
        examples.iter().map(|example| Figures::after(pipeline, &example.graph)).sum()
    };
    let row = |[without, alone]: [Figures; 2]| {
        let [a, b] = [without, alone].map(|figures| (figures.kernels, bytes(figures.bytes)));
        format!("{} | {} | {} | {} |", a.0, a.1, b.0, b.1)
    };
    let _ = write!(page, "\n### {title}\n\n");
    page.push_str(
        "| pass | kernels without | bytes without | kernels alone | bytes alone |\n|---|---:|---:|---:|---:|\n",
    );
    let limits = [figures(&Pipeline::default())?, figures(&pipeline(|_| false)?)?];
    let _ = writeln!(page, "| none | {}", row(limits));
    let mut idle = vec![];
    for pass in passes() {
        let failed = |error: String| format!("{title}, {pass}: {error}");
        let without = figures(&pipeline(|name| name != pass)?).map_err(failed)?;
        let alone = figures(&pipeline(|name| name == pass)?).map_err(failed)?;
        if [without, alone] == limits {
            idle.push(pass);
        } else {
            let _ = writeln!(page, "| `{pass}` | {}", row([without, alone]));
        }
    }
    if !idle.is_empty() {
        let _ = writeln!(page, "\nNo difference: {}.", code(&idle));
    }
    Ok(())
}

fn code(names: &[impl std::fmt::Display]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Bytes in the largest suitable unit.
fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.2} MiB", count as f64 / 1024.0 / 1024.0),
    }
}
