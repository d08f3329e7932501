"""How much sooner two workers score than one, on the CPU of this machine.

    python crates/python/benches/clusters.py processes ray spark --repeats 3

scores the demo's users, over and over, from and into Parquet files, by workers of one thread each, with the demo's model or one with its layers repeated.
A line has the seconds of the table without those of an eighth of it, so without what any table takes, and the processors' seconds that went to workers,
to Spark's executors, to the engine besides and to others. `processes` are programs of Python with a share of the files each: what the machine gives.
Runs wait for an idle machine, ten minutes at most.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

DEMO = Path(__file__).parents[2] / "cli/demo"
FILES = 64
FEWER = 8
TICK = os.sysconf("SC_CLK_TCK")
ONE_THREAD = {"REWIRE_THREADS": "1", "OMP_NUM_THREADS": "1"}
ROLES = {"MapBatches(Scorer)": "workers", "pyspark.daemon": "workers", "--share": "workers", "CoarseGrainedExecutorBackend": "executors"}


def write_users(folder, users):
    """Files with similar content; every user has a unique name."""
    demo = [json.loads(line) for line in (DEMO / "interactions.jsonl").read_text().splitlines()]
    folder.mkdir()
    for file in range(FILES):
        # Neighbours in the demo are alike: steps that share no factor with their number give every file of all.
        part = [demo[at * 37 % len(demo)] | {"user": f"{at:07}"} for at in range(file, users, FILES)]
        parquet.write_table(pa.Table.from_pylist(part), folder / f"{file:02}.parquet")


def write_model(folder, layers):
    """The demo's model with its layers repeated in turn."""
    folder.mkdir()
    config = json.loads((DEMO / "model/config.json").read_text())
    of_demo = config["hstu"]["attn_num_layers"]
    config["hstu"]["attn_num_layers"] = layers
    (folder / "config.json").write_text(json.dumps(config))
    stored = (DEMO / "model/model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(stored[:8], "little")
    header = {name: tensor for name, tensor in json.loads(stored[8:begin]).items() if name != "__metadata__"}
    named = {}
    for name, tensor in header.items():
        before, _, rest = name.partition("._stu_layers.")
        own, _, parameter = rest.partition(".")
        names = [f"{before}._stu_layers.{at}.{parameter}" for at in range(int(own), layers, of_demo)] if rest else [name]
        named |= dict.fromkeys(names, tensor)
    written, values = {}, b""
    for name, tensor in named.items():
        first, last = tensor["data_offsets"]
        written[name] = tensor | {"data_offsets": [len(values), len(values) + last - first]}
        values += stored[begin + first : begin + last]
    text = json.dumps(written).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + values)


def score_share(model, out, paths):
    import rewire
    from rewire import tables

    ranker = rewire.Ranker(model, kernel="cpu")
    out.mkdir(exist_ok=True)
    for path in paths:
        parquet.write_table(tables.predict(ranker, parquet.read_table(path), ["country"]), out / Path(path).name)


def processes(model, workers, _):
    def score(paths, out):
        parts = [paths[at::workers] for at in range(workers)]
        started = [subprocess.Popen([sys.executable, __file__, "--share", model, out, *part]) for part in parts]
        if any([one.wait() for one in started]):
            sys.exit("a process failed")

    return score


def ray(model, workers, _):
    import ray
    import rewire.ray

    # Reading and writing are tasks in addition to the workers.
    ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False)

    def score(paths, out):
        users = ray.data.read_parquet(paths, override_num_blocks=len(paths))
        rewire.ray.predict(users, model, columns=["country"], kernel="cpu", workers=workers).write_parquet(out)

    return score


def spark(model, workers, paths):
    import rewire.spark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # One task per file.
    largest = max(map(os.path.getsize, paths))
    settings = {"spark.ui.enabled": False, "spark.sql.files.openCostInBytes": 0, "spark.sql.files.maxPartitionBytes": largest}
    settings |= {f"spark.executorEnv.{name}": value for name, value in ONE_THREAD.items()}
    builder = SparkSession.builder.master(f"local-cluster[{workers},1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()

    def score(paths, out):
        users = session.read.parquet(*paths)
        rewire.spark.predict(users, model, columns=["country"], kernel="cpu").write.parquet(out)

    return score


class Processors:
    """CPU seconds of this process and its children, while they run, and of others."""

    def __init__(self):
        self.seconds = {}
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            self.look()
            time.sleep(0.5)

    def look(self):
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                found[int(stat.parent.name)] = fields, (stat.parent / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        ours = {os.getpid()}
        while more := {pid for pid, (fields, _) in found.items() if int(fields[1]) in ours} - ours:
            ours |= more
        for pid in ours & found.keys():
            fields, line = found[pid]
            # A process that has ended has no more lines.
            if not line:
                continue
            role = next((role for part, role in ROLES.items() if part in line), "engine")
            self.seconds[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / TICK, role

    def by_role(self):
        self.look()
        used = {role: sum(s for s, r in list(self.seconds.values()) if r == role) for role in ["workers", "executors", "engine"]}
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
        return used | {"others": (user + nice + system + sum(interrupts)) / TICK - sum(used.values())}


def measure(way, workers, folder):
    paths = sorted(map(str, (folder / "users").glob("*.parquet")))
    score = {"processes": processes, "ray": ray, "spark": spark}[way](str(folder / "model"), workers, paths)
    used = Processors()
    spent = []
    # The extra time of the first table is not counted.
    for count in [FEWER, FEWER, FILES]:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            before, begin = used.by_role(), time.monotonic()
            score(paths[:count], os.path.join(out, "scores"))
            seconds, after = time.monotonic() - begin, used.by_role()
            rows = sum(parquet.read_metadata(path).num_rows for path in Path(out).glob("scores/*.parquet"))
        spent.append({"seconds": seconds, "rows": rows} | {role: after[role] - before[role] for role in after})
    print(json.dumps({"way": way, "of": workers} | {name: round(spent[2][name] - spent[1][name], 2) for name in spent[2]}))


def wait_until_idle():
    for _ in range(120):
        if os.getloadavg()[0] < 0.5:
            return
        time.sleep(5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*")
    parser.add_argument("--users", type=int, default=24576)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--share", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share:
        model, out, *paths = given.share
        return score_share(model, Path(out), paths)
    if given.measure:
        way, workers, folder = given.measure
        return measure(way, int(workers), Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        write_users(Path(folder) / "users", given.users)
        write_model(Path(folder) / "model", given.layers)
        for way in given.ways * given.repeats:
            took = []
            for workers in ["1", "2"]:
                wait_until_idle()
                command = [sys.executable, __file__, "--measure", way, workers, folder]
                text = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True).stdout
                line = next(line for line in text.splitlines() if line.startswith('{"way"'))
                print(line, flush=True)
                took.append(json.loads(line)["seconds"])
            print(f"{way}: {took[0] / took[1]:.2f} times as fast by two", flush=True)


if __name__ == "__main__":
    main()
