//! Trainings of 2 and 4 processes of MPI.

use crate::shell::{cargo, root, run as run_command, succeeds};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The most time until all ranks have ended after one died or hung.
const END: Duration = Duration::from_secs(30);
/// The script that a rank starts as: it leaves its process id.
const SCRIPT: &str = "echo $$ > \"$RANKS/$OMPI_COMM_WORLD_RANK\"; exec \"$@\"";

/// Builds the program with MPI and checks its trainings.
pub(crate) fn run() -> Result<(), String> {
    if !succeeds("mpirun", &["--version"]) {
        return Err("there is no Open MPI: `apt-get install openmpi-bin libopenmpi-dev libclang-dev`".to_owned());
    }
    run_command(cargo(&["build", "--workspace", "--bin", "rewire", "--features", "rewire-cli/mpi"]))?;
    let trainings = Trainings::new()?;
    trainings.are_those_of_one_process()?;
    trainings.do_not_depend_on_the_division_of_tables()?;
    trainings.resume_with_another_number_of_ranks()?;
    trainings.end_with_a_rank("KILL", "process rank 1 with PID")?;
    trainings.end_with_a_rank("STOP", "rank 1 has not answered for 4 s")?;
    eprintln!("trainings of 2 and 4 processes are right");
    Ok(())
}

/// Trainings in a folder of their own.
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
        // Dropout draws other numbers for other batches.
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

    /// The arguments of a training in batches of a size, with more keys of the configuration.
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

    /// The program in one process.
    fn alone(arguments: &[String], ranks: usize) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).args(["--ranks", &ranks.to_string()]);
        command
    }

    /// The program as processes of MPI, one thread each.
    fn processes(&self, arguments: &[String], ranks: usize) -> Command {
        let mut command = Command::new("mpirun");
        command
            .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), "sh", "-c", SCRIPT, "sh"])
            .arg(program())
            .args(arguments)
            .env("REWIRE_THREADS", "1")
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

    /// Sends a signal to a rank of four, after which the others end with an error that names it.
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

/// The lines of the steps that a training prints.
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
