//! Packages with tunings that were measured on a device.

use super::*;
use crate::program::{Folder, command, finish, run};
use rewire::emit::emit;
use rewire::graph_rewrite::device::Tuning;
use rewire::package::Package;
use rewire::{DeviceTunings, Gpu, TuningStore};

fn gpu() -> Option<Gpu> {
    Gpu::for_kernel(Kernel::Wgpu, None).ok().flatten()
}

/// How the users of the tests are ranked on a device, and how many steps have tunings there.
fn on_device(file: &Path, gpu: &Gpu) -> (Vec<u32>, usize) {
    let options = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..RankOptions::default() };
    let ranker = Ranker::load(file, &options).unwrap();
    let mut batch = ranker.batch();
    let users = std::fs::read(kept("users.jsonl")).unwrap();
    users.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(|line| batch.push_json(line).unwrap());
    let ranked = ranker.rank_batch(&batch).unwrap();
    let logits = ranked.iter().flat_map(|ranked| &ranked.candidates).flat_map(|one| &one.logits);
    (logits.map(|logit| logit.to_bits()).collect(), ranker.report().tuned_steps)
}

#[test]
fn what_was_measured_on_a_device_goes_into_its_package() {
    let Some(gpu) = gpu() else { return };
    let (folder, caches) = (Folder::new(), Folder::new());
    let [plain, tuned] = ["plain.rewire", "tuned.rewire"].map(|name| folder.0.join(name));
    let model = kept("format-1.rewire");
    package(&plain, &["--model", &model, "--dtype", "f16"]);
    let on_cpu = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let ranker = Ranker::load(&plain, &on_cpu).unwrap();
    let (mut known, mut expected) = (DeviceTunings::new(&gpu), vec![]);
    for (position, step) in ranker.model().plan().steps.iter().enumerate() {
        let candidates = rewire::emit::candidates(&Tuning::default(), &step.computation, gpu.target());
        let Some(&tuning) = candidates.get(1) else { continue };
        for power in 0..4 {
            known.insert(&step.computation, |_| Some(1 << power), tuning);
        }
        expected.push((position, tuning));
    }
    assert!(expected.len() > 10 && known.count() > 10, "{expected:?}");
    let path = TuningStore::at(caches.0.join("rewire/tunings")).file(&gpu);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, serde_json::to_vec(&known).unwrap()).unwrap();

    let (name, file) = (known.device().to_owned(), tuned.display().to_string());
    let args = ["package", "--json", "--model", &model, "--dtype", "f16", "--for", &name, "--out", &file];
    let told = finish(command(&args).env("XDG_CACHE_HOME", &caches.0));
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert_eq!(told.json()[0]["tunings"], known.count());

    let package = Package::read(&tuned).unwrap();
    assert_eq!(package.tunings().unwrap(), [known]);
    let kernels = package.kernels().unwrap().pop().unwrap();
    for (position, tuning) in &expected {
        let step = &ranker.model().plan().steps[*position];
        let kernel = emit(&step.computation, gpu.target(), tuning).unwrap();
        let found = kernels.tuned.iter().filter(|tuned| tuned.step == *position);
        let found: Vec<_> = found.map(|tuned| (tuned.tuning, &tuned.kernel)).collect();
        assert!(!found.is_empty() && found.iter().all(|own| *own == (*tuning, &kernel)), "{position}");
    }
    let (logits, steps) = on_device(&tuned, &gpu);
    assert_eq!(steps, expected.len());
    assert_eq!((logits, 0), on_device(&plain, &gpu));
}

#[test]
fn tunings_are_measured_on_adapters() {
    let folder = Folder::new();
    let target = serde_json::to_string(&rewire::graph_rewrite::device::Target::BASELINE).unwrap();
    let (file, out) = (folder.write("device.json", target), folder.0.join("x.rewire").display().to_string());
    let tune = ["package", "--tune", &kept("users.jsonl"), "--out", &out];
    run(&[&tune[..], &["--for", &file]].concat()).refused_with(&["measured on adapters, but --for names none"]);
    assert!(!Path::new(&out).exists());
    assert_eq!(run(&tune).code, Some(2));
}
