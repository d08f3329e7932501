//! Checks that the header matches the source, and that programs in C and C++ rank with it.
#![allow(clippy::unwrap_used, clippy::panic)]

#[cfg(target_os = "linux")]
use rewire::predict::{Column, Evaluated, Evaluator, OwnedCell};
#[cfg(target_os = "linux")]
use rewire::rank::RankOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_header_is_that_of_the_source() {
    let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file(here("cbindgen.toml")).unwrap());
    for name in [
        "border",
        "options",
        "ranker",
        "batch",
        "ranking",
        "cancellation",
        "arrow",
        "predictor",
        "evaluator",
        "model",
        "decoder",
        "vulkan",
        "metal",
    ] {
        builder = builder.with_src(here("src").join(name).with_extension("rs"));
    }
    let mut text = vec![];
    builder.generate().unwrap().write(&mut text);
    let (header, text) = (here("include/rewire.h"), String::from_utf8(text).unwrap());
    if std::env::var_os("REWIRE_WRITE_REFERENCE").is_some() {
        std::fs::write(&header, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&header).unwrap();
    assert!(kept == text, "rewire.h is not that of the source: REWIRE_WRITE_REFERENCE=1 writes it");
}

/// The folder of this build's libraries.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    assert!(folder.join("librewire_c.so").exists(), "no librewire_c.so in {}", folder.display());
    folder.to_owned()
}

/// Builds a program under the address sanitizer.
fn build(compiler: &str, flags: &[&str], source: &Path, library: &[&str], program: &Path) {
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-fsanitize=address", "-I"]);
    command.arg(here("include")).arg(source).arg("-o").arg(program).arg("-L").arg(libraries()).args(library);
    let built = command.args(["-lpthread", "-ldl", "-lm"]).output().unwrap();
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
}

/// Builds a program and runs it with a stored package, in an environment.
fn run_in(environment: &[(&str, &str)], compiler: &str, flags: &[&str], source: &str, library: &[&str]) -> String {
    run_with(&here("../cli/tests/packages/format-1.rewire"), environment, compiler, flags, source, library)
}

fn run_with(
    package: &Path,
    environment: &[(&str, &str)],
    compiler: &str,
    flags: &[&str],
    source: &str,
    library: &[&str],
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("rank");
    build(compiler, flags, &here(source), library, &program);
    let mut command = Command::new(&program);
    command.arg(package).env("LD_LIBRARY_PATH", libraries());
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{source}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Without GPUs: leaks of their drivers are not ours to find.
fn run(compiler: &str, flags: &[&str], source: &str, library: &[&str]) -> String {
    run_in(&[("VK_DRIVER_FILES", "/nowhere")], compiler, flags, source, library)
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_ranks_with_the_shared_library() {
    let text = run("cc", &["-std=c11"], "tests/c/rank.c", &["-lrewire_c"]);
    assert_eq!(text, "4 candidates of 2 requests\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_cpp_ranks_with_the_static_library() {
    let text = run("c++", &["-std=c++17"], "tests/c/rank.cpp", &["-l:librewire_c.a"]);
    assert!(text.starts_with("3 of 3 threads, 2 items, cannot read /nowhere"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_hands_tables_over() {
    let text = run("cc", &["-std=c11"], "tests/c/arrow.c", &["-lrewire_c"]);
    assert_eq!(text, "2 rows\n");
}

/// A package of a pipeline with columns of several kinds.
#[cfg(target_os = "linux")]
fn write_imported(path: &Path) {
    let pipeline = rewire_tzrec::Pipeline::read(&here("../../tests/columns/pipeline.config")).unwrap();
    let stored = rewire::weights::Weights::read(&here("../../tests/columns/model.safetensors")).unwrap();
    let own = |name: String| name.strip_prefix("model.").map_or_else(|| name.clone(), str::to_owned);
    let tensors = stored.tensors().unwrap().into_iter().map(|(name, tensor)| (own(name), tensor)).collect();
    let weights = rewire::weights::serialize(&tensors, &Default::default()).unwrap();
    let weights = rewire::weights::Weights::parse(weights).unwrap();
    let config = serde_json::json!({ "pipeline": pipeline.json() }).to_string();
    let package = rewire::rank::pack("the pipeline", &config, &weights, &rewire::rank::PackOptions::default()).unwrap();
    std::fs::write(path, package.bytes()).unwrap();
}

/// The metrics and losses of the rows of `tests/c/predict.c`.
#[cfg(target_os = "linux")]
fn evaluated(package: &Path) -> String {
    use OwnedCell::{Float, Int, Map, Null, Text};
    let options = RankOptions { kernel: rewire::Kernel::Cpu, ..RankOptions::default() };
    let (evaluator, weights) = Evaluator::load(package, &options).unwrap();
    let click = |id: i64, weight: f64| (Int(id), Float(weight));
    let columns = [
        ("user", [1, 2, 3].map(Int)),
        ("price", [0.5, 1.5, 2.5].map(Float)),
        ("tags", [Text("1|2".into()), Text("3".into()), Null]),
        ("clicks", [vec![click(1, 0.5), click(2, 2.0)], vec![], vec![click(3, 1.0)]].map(Map)),
        ("label", [1, 0, 1].map(Int)),
    ];
    let columns = columns.map(|(name, cells)| (name, Column::of_cells(cells.into()).unwrap()));
    let mut evaluation = evaluator.begin(&weights).unwrap();
    evaluation.add(3, &columns, None).unwrap();
    let Evaluated { metrics, losses, .. } = evaluation.evaluated();
    assert!(metrics.len() == 3 && losses.len() == 1);
    let line = |(name, value): (String, Option<f64>)| match value {
        Some(value) => format!("{name} {value:.9}\n"),
        None => format!("{name} nan\n"),
    };
    metrics.into_iter().chain(losses).map(line).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_predicts_and_evaluates_tables() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("imported.rewire");
    write_imported(&package);
    let without_gpus = [("VK_DRIVER_FILES", "/nowhere")];
    let text = run_with(&package, &without_gpus, "cc", &["-std=c11"], "tests/c/predict.c", &["-lrewire_c"]);
    assert_eq!(text, format!("{}3 rows\n", evaluated(&package)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_runs_an_exported_model() {
    use rewire::program::{ModelFile, Program};
    let source = here("../../tests/pt2/linear_relu/model.pt2");
    let file = ModelFile::open(&source, rewire::Mapping::Large).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("model.rewire");
    std::fs::write(&package, file.pack(&rewire::rank::PackOptions::default()).unwrap().bytes()).unwrap();
    let onnx = here("../../tests/onnx/test_leakyrelu_example/model.onnx").to_string_lossy().into_owned();
    let environment = [("VK_DRIVER_FILES", "/nowhere"), ("ONNX_MODEL", &onnx)];
    let ran = |model: &Path| run_with(model, &environment, "cc", &["-std=c11"], "tests/c/model.c", &["-lrewire_c"]);
    let text = ran(&package);
    assert_eq!(text, ran(&source), "an archive gives the results of its package");
    let options = RankOptions { kernel: rewire::Kernel::Cpu, ..RankOptions::default() };
    let mut program = Program::load(&file, &options).unwrap();
    let values: Vec<f32> = (0..32).map(|n| n as f32 / 8.0).collect();
    let x = rewire::HostTensor::f32([2, 16], &values).unwrap();
    let results = program.run([(program.inputs()[0].name.clone(), x.into())].into()).unwrap().tensors();
    let expected = results.values().next().unwrap().tensor.to_f32();
    assert_eq!(text.lines().count(), expected.len());
    for (line, expected) in text.lines().zip(expected) {
        assert!((line.parse::<f32>().unwrap() - expected).abs() < 2e-5, "{line}, expected {expected}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_generates_items() {
    use rewire::generate::{Trie, decoder::Decoder};
    let folder = here("../../tests/decoders/qwen3");
    let without_gpus = [("VK_DRIVER_FILES", "/nowhere")];
    let text = run_with(&folder, &without_gpus, "cc", &["-std=c11"], "tests/c/decode.c", &["-lrewire_c"]);
    let on_cpu = RankOptions { kernel: rewire::Kernel::Cpu, ..RankOptions::default() };
    let mut decoder = Decoder::open(&folder, &on_cpu).unwrap();
    let items = [vec![319, 360, 366], vec![7, 21], vec![319, 338, 370]];
    let trie = Trie::of_tokens(400, (0..).zip(items)).unwrap();
    let found = decoder.search(&[&[87, 173, 158], &[9]], &trie, 2).unwrap().concat();
    let line = |one: rewire::generate::Found| {
        let tokens: String = one.codes.iter().map(|token| format!(" {token}")).collect();
        format!("{} {:.5}{tokens}\n", one.items[0], one.score)
    };
    assert_eq!(text, found.into_iter().map(line).collect::<String>());
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_c_ranks_on_its_own_vulkan_device() {
    if rewire::Gpu::open(None).is_err() || !Path::new("/usr/include/vulkan/vulkan.h").exists() {
        return eprintln!("skipped: there is no adapter, or no header of Vulkan");
    }
    // Leaks of drivers are not ours to find.
    let without_leaks = [("ASAN_OPTIONS", "detect_leaks=0")];
    let libraries = ["-lrewire_c", "-l:libvulkan.so.1"];
    let text = run_in(&without_leaks, "cc", &["-std=c11"], "tests/c/vulkan.c", &libraries);
    assert!(text.starts_with("ranked on "), "{text}");
}

/// A code block of a page, by what follows its fence.
#[cfg(target_os = "linux")]
fn block(page: &str, fence: &str) -> String {
    let text = std::fs::read_to_string(here("../..").join(page)).unwrap();
    let (_, from) = text.split_once(&format!("```{fence}\n")).unwrap();
    from.split_once("```").unwrap().0.to_owned()
}

/// A folder as written by `cargo xtask capi`, with the program of the C page in it.
#[cfg(target_os = "linux")]
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path();
    std::fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
    std::fs::create_dir(prefix.join("include")).unwrap();
    std::fs::copy(here("include/rewire.h"), prefix.join("include/rewire.h")).unwrap();
    std::fs::copy(here("rewire.pc.in"), prefix.join("lib/pkgconfig/rewire.pc")).unwrap();
    std::os::unix::fs::symlink(libraries().join("librewire_c.so"), prefix.join("lib/librewire_c.so")).unwrap();
    std::fs::write(prefix.join("rank.c"), block("docs/c.md", "c")).unwrap();
    folder
}

/// The demo's model as `model.rewire`.
#[cfg(target_os = "linux")]
fn write_package(folder: &Path) {
    let demo = here("../cli/demo/model");
    let config = std::fs::read_to_string(demo.join("config.json")).unwrap();
    let weights = std::fs::read(demo.join("model.safetensors")).unwrap();
    let weights = rewire::weights::Weights::parse(&weights).unwrap();
    let package = rewire::rank::pack("the demo", &config, &weights, &rewire::rank::PackOptions::default()).unwrap();
    std::fs::write(folder.join("model.rewire"), package.bytes()).unwrap();
}

/// Compiles the program of the C page as described there, and runs it without its model, and with it.
#[cfg(target_os = "linux")]
#[test]
fn the_program_of_the_page_prints_its_scores() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no pkg-config");
    }
    let folder = installed();
    for compiler in ["cc -std=c11", "c++ -std=c++17 -x c++"] {
        let line = format!("{compiler} -Wall -Wextra -Werror rank.c $(pkg-config --cflags --libs rewire) -o rank");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(&folder).env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig"));
        let built = command.output().unwrap();
        assert!(built.status.success(), "{line}: {}", String::from_utf8_lossy(&built.stderr));
        // The program finds the library by itself.
        let run =
            || Command::new(folder.path().join("rank")).current_dir(&folder).env_remove("LD_LIBRARY_PATH").output();
        let missing = run().unwrap();
        let text = String::from_utf8_lossy(&missing.stderr);
        assert!(missing.status.code() == Some(1) && text.contains("model.rewire"), "{}: {text}", missing.status);
        write_package(folder.path());
        let ranked = run().unwrap();
        let text = String::from_utf8_lossy(&ranked.stdout);
        assert!(ranked.status.success() && text == block("README.md", "text scores"), "{compiler}: {ranked:?}");
        std::fs::remove_file(folder.path().join("model.rewire")).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_program_of_the_page_leaves_nothing_allocated() {
    let folder = installed();
    write_package(folder.path());
    let (source, program) = (folder.path().join("rank.c"), folder.path().join("rank"));
    build("cc", &["-std=c11"], &source, &["-lrewire_c"], &program);
    let mut command = Command::new(&program);
    command.current_dir(&folder).env("LD_LIBRARY_PATH", libraries()).env("VK_DRIVER_FILES", "/nowhere");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn the_fragment_of_the_page_prints_the_best_items() {
    let folder = installed();
    std::os::unix::fs::symlink(here("../../tests/decoders/qwen3"), folder.path().join("model")).unwrap();
    let (source, program) = (folder.path().join("generate.c"), folder.path().join("generate"));
    let fragment = block("docs/c.md", "c fragment");
    let text = format!("#include <rewire.h>\n#include <stdio.h>\n\nint main(void) {{\n{fragment}return 0;\n}}\n");
    std::fs::write(&source, text).unwrap();
    build("cc", &["-std=c11"], &source, &["-lrewire_c"], &program);
    let mut command = Command::new(&program);
    command.current_dir(&folder).env("LD_LIBRARY_PATH", libraries()).env("VK_DRIVER_FILES", "/nowhere");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block("docs/c.md", "text fragment"));
}
