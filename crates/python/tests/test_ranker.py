"""Rankings and predictions are those of the program."""

import importlib.metadata
import json
import os
import subprocess
import threading

import numpy
import pandas
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet
from users import MODEL, PACKAGES, USERS, dotted, nested

import rewire
from rewire import tables

DEMO = PACKAGES.parents[1] / "demo"
DEMO_USERS = [json.loads(line) for line in (DEMO / "interactions.jsonl").read_text().splitlines()[:8]]
EXPECTED = [json.loads(line) for line in (PACKAGES / "format-1.jsonl").read_text().splitlines()]
EXPECTED = {line["user"]: line for line in EXPECTED if "user" in line}


@pytest.fixture(scope="module")
def ranker():
    return rewire.Ranker(MODEL, kernel="cpu")


def test_requests_are_ranked_as_by_the_program(ranker):
    results = ranker.rank(USERS)
    assert [result["user"] for result in results] == [user["user"] for user in USERS]
    for result in results:
        expected = EXPECTED[result["user"]]["candidates"]
        assert [one["item"] for one in result["candidates"]] == [one["item"] for one in expected]
        for one, other in zip(result["candidates"], expected):
            assert one["logits"] == pytest.approx(other["logits"], abs=1e-5)
    assert ranker.rank(USERS[0]) == results[0]
    assert ranker.rank(json.dumps(USERS[0])) == results[0]
    assert ranker.rank([]) == []
    assert ranker.device == "cpu" and "item_id" in ranker.schema["candidates"]


def test_a_package_is_loaded_from_bytes(tmp_path):
    rewire.package(DEMO / "model", tmp_path / "model.rewire")
    loaded = rewire.Ranker.from_bytes((tmp_path / "model.rewire").read_bytes(), kernel="cpu")
    assert loaded.rank(DEMO_USERS) == rewire.Ranker(DEMO / "model", kernel="cpu").rank(DEMO_USERS)
    with pytest.raises(rewire.ModelError) as caught:
        rewire.Ranker.from_bytes(b"rewire", kernel="cpu")
    assert caught.value.code.startswith("package.")
    with pytest.raises(OSError, match="nowhere"):
        rewire.package(MODEL, tmp_path / "nowhere/model.rewire")
    with pytest.raises(rewire.ModelError, match="nowhere"):
        rewire.package(tmp_path / "nowhere", tmp_path / "model.rewire")


@pytest.mark.parametrize("options", [{"tables": "int8"}, {"dtype": "f16", "activations": "f16"}])
def test_floats_are_stored_as_they_are_asked_for(tmp_path, options):
    loaded = rewire.Ranker(DEMO / "model", kernel="cpu", table_placement="host", refining="never", **options)
    rewire.package(DEMO / "model", tmp_path / "model.rewire", **options)
    results, expected = loaded.rank(DEMO_USERS), rewire.Ranker(DEMO / "model", kernel="cpu").rank(DEMO_USERS)
    assert results == rewire.Ranker(tmp_path / "model.rewire", kernel="cpu").rank(DEMO_USERS) and results != expected
    for one, other in zip(results, expected):
        logits = [{candidate["item"]: candidate["logits"] for candidate in result["candidates"]} for result in (one, other)]
        for item, expected_logits in logits[1].items():
            assert logits[0][item] == pytest.approx(expected_logits, abs=0.05)


def test_compiled_kernels_are_kept_in_a_folder(tmp_path, ranker):
    try:
        kept = rewire.Ranker(MODEL, kernel="wgpu", pipelines=tmp_path / "kernels")
    except rewire.RewireError as error:
        pytest.skip(f"there is no adapter: {error}")
    users = [result["user"] for result in kept.rank(USERS)]
    assert users == [result["user"] for result in ranker.rank(USERS)] and any((tmp_path / "kernels").iterdir())


def test_the_version_is_that_of_the_package():
    assert rewire.__version__ == importlib.metadata.version("rewire-engine")


def test_a_description_has_a_request(ranker):
    description = ranker.describe()
    assert "ids 0 to" in description and "is_like" in description
    assert ranker.rank(description.splitlines()[-1])["candidates"]


@pytest.mark.parametrize("array", [numpy.array, pandas.Series, polars.Series, pa.array])
def test_requests_hold_arrays(ranker, array):
    user = USERS[0]
    groups = {group: {name: array(values) for name, values in user[group].items()} for group in ("history", "candidates")}
    assert ranker.rank({**user, "country": numpy.int32(user["country"]), **groups}) == ranker.rank(user)
    with pytest.raises(TypeError, match="a request holds `object`"):
        ranker.rank({**user, "country": object()})


@pytest.mark.parametrize("table", [dotted, nested])
def test_tables_are_scored_in_their_order(ranker, table):
    table = table(USERS)
    scores = pa.table(ranker.predict(table))
    by_user = {result["user"]: result for result in ranker.rank(USERS)}
    at = 0
    for user in USERS:
        candidates = sorted(by_user[user["user"]]["candidates"], key=lambda one: one["position"])
        for one in candidates:
            row = scores.slice(at, 1).to_pylist()[0]
            assert (row["user"], row["item"], row["score"]) == (user["user"], one["item"], one["score"])
            assert [row[f"logit_{task}"] for task in ranker.tasks] == list(one["logits"].values())
            at += 1
    assert scores.num_rows == at
    # Parts, and parts of parts, are scored as the whole.
    cut = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert pa.table(ranker.predict(cut)).equals(scores)
    assert len(ranker.predict(table.slice(0, 0))) == 0


def test_a_batch_is_a_table(ranker):
    table = nested(USERS)
    batch = table.combine_chunks().to_batches()[0]
    assert pa.table(ranker.predict(batch)).equals(pa.table(ranker.predict(table)))
    assert pa.table(ranker.predict(batch.slice(1))).equals(pa.table(ranker.predict(table.slice(1))))


def test_tables_of_polars_and_pandas_are_scored_alike(ranker):
    table = dotted(USERS)
    expected = pa.table(ranker.predict(table))
    for other in (polars.from_arrow(table), table.to_pandas(types_mapper=pandas.ArrowDtype)):
        assert pa.table(ranker.predict(other)).equals(expected)
    assert polars.DataFrame(ranker.predict(table))["score"].to_list() == expected["score"].to_pylist()


@pytest.mark.skipif("REWIRE_PROGRAM" not in os.environ, reason="REWIRE_PROGRAM names no program to compare with")
def test_predictions_have_the_bits_of_the_program(ranker, tmp_path):
    users, scores = tmp_path / "users.parquet", tmp_path / "scores.parquet"
    parquet.write_table(dotted(USERS), users)
    command = [os.environ["REWIRE_PROGRAM"], "predict", "--kernel", "cpu"]
    subprocess.run([*command, "--model", MODEL, "--data", users, "--out", scores], check=True, capture_output=True)
    expected, found = parquet.read_table(scores), pa.table(ranker.predict(dotted(USERS)))
    assert found.num_rows == expected.num_rows and {"user", "item", "score"} <= set(expected.column_names)
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


def test_columns_are_carried_along(ranker):
    table = dotted(USERS).append_column("note", pa.array([f"n{at}" for at in range(len(USERS))]))
    scores = tables.predict(ranker, table, ["note", "candidates.item_id"])
    assert scores["candidates.item_id"].equals(scores["item"])
    notes = [f"n{at}" for at, user in enumerate(USERS) for _ in user["candidates"]["item_id"]]
    assert scores["note"].to_pylist() == notes
    assert scores.schema.equals(tables.fields(ranker, table.schema, ["note", "candidates.item_id"]))
    with pytest.raises(ValueError, match="history.item_id"):
        tables.predict(ranker, table, ["history.item_id"])


def test_users_may_be_numbers_or_none(ranker):
    table = dotted(USERS).drop_columns(["user"])
    counts = [len(user["candidates"]["item_id"]) for user in USERS]
    expected = [at for at, count in enumerate(counts) for _ in range(count)]
    assert pa.table(ranker.predict(table))["user"].to_pylist() == expected
    numbered = table.append_column("user", pa.array([10 * at for at in range(len(USERS))], pa.int32()))
    assert pa.table(ranker.predict(numbered))["user"].to_pylist() == [10 * at for at in expected]


def test_faults_are_errors_with_codes(ranker, tmp_path):
    with pytest.raises(rewire.ModelError) as caught:
        rewire.Ranker(tmp_path / "none", kernel="cpu")
    assert caught.value.code.startswith("rank.") and "none" in str(caught.value)
    with pytest.raises(ValueError, match="kernel"):
        rewire.Ranker(MODEL, kernel="cuda")
    with pytest.raises(ValueError, match="mapping: expected large or never, got `always`"):
        rewire.Ranker(MODEL, kernel="cpu", mapping="always")
    assert rewire.Ranker(MODEL, kernel="cpu", mapping="never").device == "cpu"
    with pytest.raises(rewire.ModelError, match="no such adapter"):
        rewire.Ranker(MODEL, kernel="wgpu", adapter="no such adapter")
    with pytest.raises(rewire.RequestError, match="column"):
        ranker.rank("{")
    with pytest.raises(rewire.RequestError):
        ranker.rank({"user": "u"})
    with pytest.raises(TypeError):
        ranker.rank(7)
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        ranker.predict([1])
    table = dotted(USERS)
    nulls = table.set_column(table.column_names.index("country"), "country", pa.array([None] * len(USERS), pa.int64()))
    with pytest.raises(rewire.RequestError, match="`country`: expected no nulls"):
        ranker.predict(nulls)
    floats = table.set_column(table.column_names.index("country"), "country", pa.array([0.5] * len(USERS)))
    with pytest.raises(rewire.RequestError, match="Arrow format `g`"):
        ranker.predict(floats)
    with pytest.raises(rewire.RequestError, match="missing"):
        ranker.predict(table.drop_columns(["country"]))


def test_a_producer_that_fails_is_an_error(ranker):
    def batches():
        yield from dotted(USERS).to_batches()
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(dotted(USERS).schema, batches())
    with pytest.raises(rewire.RequestError, match="the disk is gone"):
        ranker.predict(reader)


def test_threads_share_a_ranker_and_python_goes_on(ranker):
    table, results = dotted(USERS * 50), []
    expected = pa.table(ranker.predict(table))
    threads = [threading.Thread(target=lambda: results.append(pa.table(ranker.predict(table)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    ticks = 0
    while any(thread.is_alive() for thread in threads):
        ticks += 1
    for thread in threads:
        thread.join()
    assert ticks > 100 and len(results) == 3 and all(result.equals(expected) for result in results)


def test_a_with_block_frees_the_model(ranker):
    with rewire.Ranker(MODEL, kernel="cpu") as opened:
        assert opened.rank(USERS[0]) == ranker.rank(USERS[0])
    assert repr(opened) == "<rewire.Ranker, closed>"
    for use in (lambda: opened.rank(USERS[0]), lambda: opened.device, opened.describe, lambda: opened.predict(dotted(USERS))):
        with pytest.raises(ValueError, match="the model is closed"):
            use()
    opened.close()
    with pytest.raises(ZeroDivisionError), rewire.Ranker(MODEL, kernel="cpu") as opened:
        1 / 0
    with pytest.raises(ValueError, match="closed"):
        opened.tasks


def test_results_outlive_the_ranker():
    scores = rewire.Ranker(MODEL, kernel="cpu").predict(dotted(USERS))
    table = pa.table(scores)
    copy = table.to_pylist()
    del scores
    assert table.to_pylist() == copy
