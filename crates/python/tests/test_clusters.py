"""Tables that clusters score have the rows of one process, bit for bit."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from users import MODEL, USERS, nested

import rewire
from rewire import tables

COLUMNS = ["country", "candidates.timestamp"]
PAGE = (Path(__file__).parents[3] / "docs/python.md").read_text()


def scores_of_the_page(engine, folder, monkeypatch):
    """The rows that the page's program for an engine writes."""
    monkeypatch.chdir(folder)
    shutil.copy(MODEL, "model.rewire")
    parquet.write_table(nested(USERS), "users.parquet")
    exec(compile(re.search(rf"```python {engine}\n(.*?)```", PAGE, re.S)[1], "python.md", "exec"), {})
    return rows(parquet.read_table("scores"))


@pytest.fixture(scope="module")
def expected_of_the_page():
    return rows(tables.predict(rewire.Ranker(MODEL, kernel="cpu"), nested(USERS), ["country"]))


@pytest.fixture(scope="module")
def table():
    """Many requests, all different."""
    users = [{**user, "user": f"{user['user']}-{at}", "country": at % 3} for at in range(100) for user in USERS]
    return nested(users)


@pytest.fixture(scope="module")
def expected(table):
    return rows(tables.predict(rewire.Ranker(MODEL, kernel="cpu"), table, COLUMNS))


def rows(table):
    return sorted(map(json.dumps, table.to_pylist()))


@pytest.fixture(scope="module")
def spark():
    pyspark = pytest.importorskip("pyspark.sql")
    builder = pyspark.SparkSession.builder.master("local-cluster[2,1,1024]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p),
        "spark.task.maxFailures": "4",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def test_spark_scores_what_one_process_scores(spark, table, expected):
    import rewire.spark

    for frame in [spark.createDataFrame(table).repartition(4), spark.createDataFrame(table.flatten())]:
        scores = rewire.spark.predict(frame, str(MODEL), columns=COLUMNS, kernel="cpu")
        assert rows(scores.toArrow()) == expected


def test_spark_runs_the_program_of_the_page(spark, expected_of_the_page, tmp_path, monkeypatch):
    assert scores_of_the_page("spark", tmp_path, monkeypatch) == expected_of_the_page


def test_spark_goes_on_when_a_worker_is_killed(spark, table, expected, tmp_path):
    import rewire.spark

    marker = str(tmp_path / "killed")

    def kill_once(batches):
        for batch in batches:
            if not os.path.exists(marker):
                with open(marker, "w"):
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    frame = spark.createDataFrame(table).repartition(4)
    frame = frame.mapInArrow(kill_once, frame.schema)
    scores = rewire.spark.predict(frame, str(MODEL), columns=COLUMNS, kernel="cpu")
    assert rows(scores.toArrow()) == expected and os.path.exists(marker)


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_ray_scores_what_one_process_scores(cluster, table, expected):
    import rewire.ray

    dataset = cluster.data.from_arrow(table).repartition(8)
    scores = rewire.ray.predict(dataset, str(MODEL), columns=COLUMNS, kernel="cpu", workers=2, batch_size=32)
    assert rows(pa.concat_tables(scores.iter_batches(batch_format="pyarrow"))) == expected


def test_ray_runs_the_program_of_the_page(cluster, expected_of_the_page, tmp_path, monkeypatch):
    assert scores_of_the_page("ray", tmp_path, monkeypatch) == expected_of_the_page


def test_ray_shares_a_block_among_workers(cluster, table, expected):
    import rewire.ray

    dataset = cluster.data.from_arrow(table)
    scores = rewire.ray.predict(dataset, str(MODEL), columns=COLUMNS, kernel="cpu", workers=2, batch_size=32).materialize()
    assert rows(pa.concat_tables(scores.iter_batches(batch_format="pyarrow"))) == expected
    assert dataset.materialize().num_blocks() == 1 and scores.num_blocks() > 1


def test_ray_scores_from_and_into_files(cluster, table, expected, tmp_path):
    import rewire.ray

    paths = [str(tmp_path / f"{at}.parquet") for at in range(8)]
    for at, path in enumerate(paths):
        parquet.write_table(table.take(list(range(at, len(table), len(paths)))), path)
    dataset = cluster.data.read_parquet(paths)
    scores = rewire.ray.predict(dataset, str(MODEL), columns=COLUMNS, kernel="cpu", workers=2)
    scores.write_parquet(str(tmp_path / "scores"))
    assert rows(parquet.read_table(tmp_path / "scores")) == expected


def test_ray_goes_on_when_a_worker_is_killed(cluster, table, expected, tmp_path):
    import rewire.ray

    marker = str(tmp_path / "killed")

    def kill_once(part):
        if not os.path.exists(marker):
            with open(marker, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        return part

    dataset = cluster.data.from_arrow(table).repartition(8).map_batches(kill_once, batch_format="pyarrow")
    scores = rewire.ray.predict(dataset, str(MODEL), columns=COLUMNS, kernel="cpu", workers=2, batch_size=32)
    assert rows(pa.concat_tables(scores.iter_batches(batch_format="pyarrow"))) == expected
    assert os.path.exists(marker)
