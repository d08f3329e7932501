//! Checks training runs of 2 and 4 MPI processes.

use crate::shell::{cargo, root, run as run_command, succeeds};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until all ranks have exited after one of them died or hung.
const END: Duration = Duration::from_secs(30);
/// The script that starts a rank: it writes the process id to a file, limits the memory and runs the program.
const SCRIPT: &str = "echo $$ > \"$RANKS/$OMPI_COMM_WORLD_RANK\"; ulimit -d \"$MEMORY\"; exec \"$@\"";
/// Rows of a large table; each has 64 floats.
const ROWS: u64 = 2_000_000;
/// Memory limit in KiB of a rank that holds a shard of the large table: less than the whole table needs.
const MEMORY: u64 = ROWS * 256 / 1024 * 9 / 10;

/// Builds the program with MPI and checks its training runs.
pub(crate) fn run() -> Result<(), String> {
    if !succeeds("mpirun", &["--version"]) {
        return Err("there is no Open MPI: `apt-get install openmpi-bin libopenmpi-dev libclang-dev`".to_owned());
    }
    run_command(cargo(&["build", "--workspace", "--bin", "rewire", "--features", "rewire-cli/mpi"]))?;
    let trainings = Trainings::new()?;
    trainings.are_those_of_one_process()?;
    trainings.do_not_depend_on_the_division_of_tables()?;
    trainings.resume_with_another_number_of_ranks()?;
    trainings.train_a_table_larger_than_the_memory_of_a_rank()?;
    trainings.write_a_checkpoint_of_the_reference()?;
    trainings.end_with_a_rank("KILL", "process rank 1 with PID")?;
    trainings.end_with_a_rank("STOP", "rank 1 has not answered for 4 s")?;
    eprintln!("trainings of 2 and 4 processes are right");
    Ok(())
}

/// Training runs with a separate folder.
struct Trainings {
    folder: PathBuf,
}

impl Trainings {
    fn new() -> Result<Self, String> {
        let folder = root().join("target/distributed");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        }
        let trainings = Self { folder };
        let mut model: Value = serde_json::from_str(include_str!("../../crates/cli/demo/model/config.json"))
            .map_err(|error| error.to_string())?;
        // Dropout would draw different numbers for different batch sizes.
        let mut parts = vec![&mut model];
        while let Some(part) = parts.pop() {
            for (key, value) in part.as_object_mut().into_iter().flatten() {
                if key.ends_with("dropout_ratio") {
                    *value = json!(0.0);
                }
                parts.push(value);
            }
        }
        std::fs::create_dir_all(trainings.folder.join("model")).map_err(|error| failed(&trainings.folder, &error))?;
        trainings.write("model/config.json", &model)?;
        Ok(trainings)
    }

    fn write(&self, name: &str, content: &Value) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, content.to_string()).map_err(|error| failed(&path, &error))?;
        Ok(path)
    }

    /// Arguments of a training run. `keys` are added to its configuration.
    fn arguments(&self, out: &str, batch_size: usize, keys: Value) -> Result<Vec<String>, String> {
        let mut config = json!({
            "batch_size": batch_size, "steps": 6, "shuffle_seed": 7, "ema": { "decay": 0.9 },
            "grad_clipping": { "clipping_type": "norm", "max_gradient": 0.5 },
            "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
            "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.01 } },
        });
        if let (Some(config), Value::Object(keys)) = (config.as_object_mut(), keys) {
            config.extend(keys);
        }
        let config = self.write("train.json", &config)?;
        let place = |path: PathBuf| path.display().to_string();
        let [model, out] = ["model", out].map(|name| place(self.folder.join(name)));
        let all = ["train", "--model", &model, "--config", &place(config), "--out", &out, "--json", "--kernel", "cpu"];
        Ok(all.map(str::to_owned).to_vec())
    }

    /// Runs the program in one process with `ranks` ranks.
    fn alone(arguments: &[String], ranks: usize) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).args(["--ranks", &ranks.to_string()]);
        command
    }

    /// Runs the program as MPI processes with one thread each.
    fn processes(&self, arguments: &[String], ranks: usize) -> Command {
        let mut command = Command::new("mpirun");
        command
            .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), "sh", "-c", SCRIPT, "sh"])
            .arg(program())
            .args(arguments)
            .env("REWIRE_THREADS", "1")
            .env("MEMORY", "unlimited")
            .env("RANKS", &self.folder);
        command
    }

    fn model(&self, out: &str) -> Result<Vec<u8>, String> {
        let path = self.folder.join(out).join("model.safetensors");
        std::fs::read(&path).map_err(|error| failed(&path, &error))
    }

    fn are_those_of_one_process(&self) -> Result<(), String> {
        let whole = steps(Self::alone(&self.arguments("whole", 4, json!({}))?, 1))?;
        for (ranks, batch_size) in [(2, 2), (4, 1)] {
            let threads = steps(Self::alone(&self.arguments("threads", batch_size, json!({}))?, ranks))?;
            for run in ["first", "second"] {
                let processes = steps(self.processes(&self.arguments(run, batch_size, json!({}))?, ranks))?;
                expect(processes == threads, &format!("{ranks} processes give the bits of as many threads"))?;
                expect(self.model(run)? == self.model("threads")?, "the models are equal")?;
            }
            let off =
                |(a, b): (&Value, &Value)| (a["loss"].as_f64().zip(b["loss"].as_f64())).map(|(a, b)| (a - b).abs());
            let is_near = threads.iter().zip(&whole).all(|pair| off(pair).is_some_and(|off| off < 1e-6));
            expect(threads.len() == whole.len() && is_near, "the losses are those of one rank with larger batches")?;
        }
        Ok(())
    }

    fn do_not_depend_on_the_division_of_tables(&self) -> Result<(), String> {
        let replicated = steps(self.processes(&self.arguments("replicated", 2, json!({}))?, 4))?;
        for sharding in ["table_wise", "row_wise"] {
            let arguments = self.arguments(sharding, 2, json!({ "sharding": sharding }))?;
            let divided = steps(self.processes(&arguments, 4))?;
            expect(divided == replicated, &format!("{sharding} tables give the bits of replicated ones"))?;
            expect(self.model(sharding)? == self.model("replicated")?, "the models are equal")?;
        }
        Ok(())
    }

    fn resume_with_another_number_of_ranks(&self) -> Result<(), String> {
        for out in ["processes", "ranks"] {
            steps(self.processes(&self.arguments(out, 2, json!({ "steps": 3 }))?, 4))?;
        }
        let resumed =
            |out: &str| Ok::<_, String>([self.arguments(out, 2, json!({}))?, vec!["--resume".to_owned()]].concat());
        let processes = steps(self.processes(&resumed("processes")?, 2))?;
        expect(processes.len() == 3, "2 processes make the rest of the steps of 4")?;
        expect(processes == steps(Self::alone(&resumed("ranks")?, 2))?, "with the bits of 2 threads")
    }

    fn train_a_table_larger_than_the_memory_of_a_rank(&self) -> Result<(), String> {
        let path = self.folder.join("model/config.json");
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let mut model: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        model["features"]["item_id"] = json!({ "num_embeddings": ROWS, "embedding_dim": 64 });
        std::fs::create_dir_all(self.folder.join("large")).map_err(|error| failed(&self.folder, &error))?;
        self.write("large/config.json", &model)?;
        let limited = |out: &str, ranks: usize, keys: Value, more: &[&str]| {
            let mut arguments = self.arguments(out, 2, keys)?;
            arguments[2] = self.folder.join("large").display().to_string();
            arguments.extend(more.iter().map(|one| (*one).to_owned()));
            let mut command = self.processes(&arguments, ranks);
            command.env("MEMORY", MEMORY.to_string());
            steps(command)
        };
        let divided = |steps: u64| json!({ "sharding": "row_wise", "steps": steps });
        let begun = limited("large-trained", 4, divided(2), &[])?;
        let rest = limited("large-trained", 4, divided(4), &["--resume"])?;
        let model = self.folder.join("large-trained/model.safetensors");
        let written = std::fs::metadata(&model).map_err(|error| failed(&model, &error))?.len();
        expect(
            begun.len() == 2 && rest.len() == 2,
            "4 ranks train a table and resume, with less memory than it takes",
        )?;
        expect(written > MEMORY * 1024, &format!("they write a model of {written} bytes within {MEMORY} KiB"))?;
        expect(limited("large-alone", 1, divided(2), &[]).is_err(), "one rank does not")?;
        ["large-trained", "large-alone"].into_iter().try_for_each(|out| {
            let path = self.folder.join(out);
            if path.exists() { std::fs::remove_dir_all(&path).map_err(|error| failed(&path, &error)) } else { Ok(()) }
        })
    }

    /// Compares checkpoints of sharded tables with the model, once read by this library and once by torch.
    fn write_a_checkpoint_of_the_reference(&self) -> Result<(), String> {
        let golden = root().join("tests/tzrec/deepfm_taobao");
        let source = golden.join("pipeline.config");
        let text = std::fs::read_to_string(&source).map_err(|error| failed(&source, &error))?;
        let place = |path: &Path| path.display().to_string();
        let data = place(&golden.join("data.parquet"));
        for (ranks, sharding) in [(4, "row_wise"), (2, "row_wise"), (3, "table_wise")] {
            let pipeline = self.folder.join("sharded.config");
            std::fs::write(&pipeline, text.replace("table_wise", sharding))
                .map_err(|error| failed(&pipeline, &error))?;
            let out = self.folder.join(format!("{sharding}-{ranks}"));
            let checkpoint = out.join("checkpoint");
            let [pipeline, out, exported] = [&pipeline, &out, &checkpoint].map(|path| place(path));
            let all =
                ["train", "--pipeline", &pipeline, "--data", &data, "--out", &out, "--export-dcp", &exported, "--json"];
            steps(self.processes(&all.map(str::to_owned), ranks))?;
            let imported = place(&self.folder.join("imported"));
            let mut import = Command::new(program());
            import.args(["import", &pipeline, "--checkpoint", &exported, "--out", &imported]);
            run_command(import)?;
            let (name, model) = (format!("{sharding}-{ranks}"), self.model("imported")?);
            expect(model == self.model(&name)?, &format!("{ranks} files of {sharding} tables hold the model"))?;
            let python = std::env::var("REWIRE_TORCH").unwrap_or_else(|_| "python3".to_owned());
            if !succeeds(&python, &["-c", "import torch"]) {
                eprintln!("torch does not read it: `{python}` has none; REWIRE_TORCH names a Python that does");
                continue;
            }
            let mut read = Command::new(python);
            let script = root().join("xtask/src/distributed/read.py");
            let written = std::fs::read_dir(&checkpoint).map_err(|error| failed(&checkpoint, &error))?.flatten();
            let written = written.map(|entry| entry.path()).next().unwrap_or_default();
            read.arg(script).args([&written, &PathBuf::from(out).join("model.safetensors")]).arg(ranks.to_string());
            read.arg(if sharding == "row_wise" { ranks } else { 1 }.to_string());
            run_command(read)?;
        }
        Ok(())
    }

    /// Sends a signal to one of four ranks. The others must exit with an error that names this rank.
    fn end_with_a_rank(&self, signal: &str, named: &str) -> Result<(), String> {
        let mut arguments = self.arguments("ended", 2, json!({ "steps": 1_000_000 }))?;
        arguments.extend(["--save-every", "1", "--rank-timeout", "4"].map(str::to_owned));
        let mut command = self.processes(&arguments, 4);
        let checkpoint = self.folder.join("ended/checkpoint.safetensors");
        let _ = std::fs::remove_file(&checkpoint);
        let training = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let training = training.map_err(|error| format!("mpirun does not start: {error}"))?;
        let begun = Instant::now();
        while !checkpoint.exists() && begun.elapsed() < 4 * END {
            std::thread::sleep(Duration::from_millis(20));
        }
        let place = self.folder.join("1");
        let process = std::fs::read_to_string(&place).map_err(|error| failed(&place, &error))?;
        expect(succeeds("kill", &[&format!("-{signal}"), process.trim()]), "a rank receives a signal")?;
        let since = Instant::now();
        let ended = training.wait_with_output().map_err(|error| format!("mpirun: {error}"))?;
        let text = String::from_utf8_lossy(&ended.stderr);
        expect(!ended.status.success() && since.elapsed() < END, "the others end in time")?;
        expect(text.contains(named), &format!("the error names the rank:\n{text}"))
    }
}

fn program() -> PathBuf {
    root().join("target/debug/rewire")
}

/// The JSON lines that a training run prints per step.
fn steps(mut command: Command) -> Result<Vec<Value>, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("a training does not start: {error}"))?;
    if !status.success() {
        return Err(format!("a training failed: {status}\n{}", String::from_utf8_lossy(&stderr)));
    }
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let lines = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>();
    let mut lines = lines.map_err(|error| format!("{error}: {text}"))?;
    lines.retain(|line| line.get("step").is_some());
    Ok(lines)
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    eprintln!("{}: {what}", if holds { "ok" } else { "wrong" });
    if holds { Ok(()) } else { Err(format!("it does not hold that {what}")) }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
