"""Trainings are those of the program, also as several ranks."""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rewire
from rewire.distributed import RankError

ROOT = Path(__file__).parents[3]
RANKS = Path(__file__).parent / "ranks.py"

CONFIG = {
    "batch_size": 2,
    "steps": 4,
    "shuffle_seed": 7,
    "dense_optimizer": {"adam_optimizer": {"lr": 0.01}},
    "sparse_optimizer": {"rowwise_adagrad_optimizer": {"lr": 0.01}},
}


def config(folder, **keys):
    path = folder / "train.json"
    path.write_text(json.dumps(CONFIG | keys))
    return path


def model(out):
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    """The steps and the model of two ranks of one process."""
    folder, steps = tmp_path_factory.mktemp("ranks"), []
    summary = rewire.train(config(folder), [], folder / "out", kernel="cpu", ranks=2, progress=steps.append)
    assert (summary["steps"], summary["loss"], summary["device"]) == (4, steps[-1]["loss"], "cpu")
    return steps, model(folder / "out")


class Group:
    """Ranks as threads, with queues between each two of them."""

    def __init__(self, ranks, timeout):
        self.timeout = timeout
        self.queues = [[queue.Queue() for _ in range(ranks)] for _ in range(ranks)]

    def rank(self, rank):
        return Member(self, rank)


class Member:
    def __init__(self, group, rank):
        self.queues, self.timeout, self.rank, self.ranks = group.queues, group.timeout, rank, len(group.queues)

    def all_to_all(self, parts):
        for to, part in enumerate(parts):
            self.queues[self.rank][to].put(part)
        try:
            return [of[self.rank].get(timeout=self.timeout) for of in self.queues]
        except queue.Empty:
            raise RankError(1 - self.rank, self.timeout) from None


def test_an_object_of_collectives_gives_the_bits_of_ranks_of_one_process(tmp_path, of_two_ranks):
    path, group, steps, results = config(tmp_path), Group(2, timeout=60.0), [[], []], [None, None]

    def train(rank):
        collectives, progress = group.rank(rank), steps[rank].append
        results[rank] = rewire.train(path, [], tmp_path / "out", kernel="cpu", collectives=collectives, progress=progress)

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert steps == [of_two_ranks[0], []] and results[1]["steps"] == 4
    assert model(tmp_path / "out") == of_two_ranks[1]


def test_the_error_of_a_rank_that_does_not_answer_names_it(tmp_path):
    with pytest.raises(rewire.RunError, match="rank 1 has not answered for 0.5 s") as raised:
        rewire.train(config(tmp_path), [], tmp_path / "out", kernel="cpu", collectives=Group(2, timeout=0.5).rank(0))
    assert raised.value.code == "train.ranks"


def test_progress_ends_a_training_that_resumes(tmp_path, of_two_ranks):
    def stop(line):
        if line["step"] == 2:
            raise ValueError("enough")

    arguments = {"kernel": "cpu", "ranks": 2, "save_every": 1}
    with pytest.raises(ValueError, match="enough"):
        rewire.train(config(tmp_path), [], tmp_path / "out", progress=stop, **arguments)
    steps = []
    rewire.train(config(tmp_path), [], tmp_path / "out", progress=steps.append, resume=True, **arguments)
    assert steps == of_two_ranks[0][1:] and model(tmp_path / "out") == of_two_ranks[1]


def test_an_interrupt_ends_a_training(tmp_path):
    steps = []

    def interrupt(line):
        steps.append(line["step"])
        if line["step"] == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        rewire.train(config(tmp_path, steps=1_000_000), [], tmp_path / "out", kernel="cpu", save_every=1, progress=interrupt)
    assert steps[:2] == [1, 2]


def pipeline(folder):
    """The files that the programs of the page read."""
    source = ROOT / "tests/tzrec/dlrm_criteo"
    shutil.copy(source / "pipeline.config", folder / "dlrm.config")
    shutil.copy(source / "data.parquet", folder / "data.parquet")


def program(launcher):
    return re.search(rf"```python {launcher}\n(.*?)```", (ROOT / "docs/distributed.md").read_text(), re.S)[1]


def test_errors_have_the_reason(tmp_path):
    with pytest.raises(rewire.RunError, match="batch_size"):
        rewire.train(config(tmp_path, batch_size=0), [], tmp_path / "out", kernel="cpu")
    with pytest.raises(rewire.RunError, match="missing.config"):
        rewire.train("missing.config", "data.parquet", tmp_path / "out")
    with pytest.raises(ValueError, match="rank_timeout"):
        rewire.train(None, [], tmp_path / "out", rank_timeout=-1.0)


def torchrun(script, *arguments, folder=None):
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, [script, *arguments])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "REWIRE_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_torchrun_gives_the_bits_of_ranks_of_one_process(tmp_path, of_two_ranks):
    ended = torchrun(RANKS, config(tmp_path), tmp_path / "out", "60")
    assert ended.returncode == 0, ended.stderr
    assert model(tmp_path / "out") == of_two_ranks[1]


def test_a_rank_of_torchrun_that_hangs_ends_the_others(tmp_path):
    ended = torchrun(RANKS, config(tmp_path, steps=1_000_000), tmp_path / "out", "5", "hang")
    assert ended.returncode != 0 and "rank 0 has not answered for 5 s" in ended.stderr, ended.stderr


def test_a_rank_of_torchrun_that_dies_ends_the_others(tmp_path):
    ended = torchrun(RANKS, config(tmp_path, steps=1_000_000), tmp_path / "out", "60", "die")
    assert ended.returncode != 0 and "exitcode  : 9" in ended.stderr, ended.stderr


def test_torchrun_runs_the_program_of_the_page(tmp_path):
    pipeline(tmp_path)
    (tmp_path / "train.py").write_text(program("torchrun"))
    ended = torchrun("train.py", folder=tmp_path)
    assert ended.returncode == 0 and "'step': 1" in ended.stdout, ended.stderr
    assert model(tmp_path / "trained")


def test_ray_gives_the_bits_of_ranks_of_one_process(tmp_path, of_two_ranks):
    pytest.importorskip("torch")
    ray = pytest.importorskip("ray")
    import rewire.ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        summary = rewire.ray.train(config(tmp_path), [], tmp_path / "out", kernel="cpu", workers=2)
    finally:
        ray.shutdown()
    assert summary["steps"] == 4 and model(tmp_path / "out") == of_two_ranks[1]


def test_ray_runs_the_program_of_the_page(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    pipeline(tmp_path)
    ray.init(num_cpus=32, num_gpus=4, include_dashboard=False, log_to_driver=False)
    try:
        exec(program("ray").replace("/shared", str(tmp_path)).replace("dlrm.config", str(tmp_path / "dlrm.config")), {})
    finally:
        ray.shutdown()
    assert model(tmp_path / "trained")
