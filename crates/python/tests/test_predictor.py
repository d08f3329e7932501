"""Predictions of imported models are those of the program, whatever holds the columns."""

import functools
import json
import os
import subprocess
from pathlib import Path

import numpy
import pandas
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

import rewire
from rewire import tables

PIPELINES = Path(__file__).parents[3] / "tests/tzrec"
PROGRAM = os.environ.get("REWIRE_PROGRAM")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="REWIRE_PROGRAM names no program that imports")


class Imported:
    """A pipeline that was imported, and what the program predicts of its table."""

    def __init__(self, name, folder):
        source = PIPELINES / name
        self.model, scores = folder / f"{name}.rewire", folder / f"{name}.parquet"
        checkpoint = ["--checkpoint", source / "model.safetensors"]
        self.run("import", source / "pipeline.config", *checkpoint, "--out", self.model)
        self.run("predict", "--kernel", "cpu", "--model", self.model, "--data", source / "data.parquet", "--out", scores)
        self.table, self.expected = parquet.read_table(source / "data.parquet"), parquet.read_table(scores)
        self.predictor = rewire.Predictor(self.model, kernel="cpu")

    @staticmethod
    def run(*arguments):
        return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True)

    def check(self, predictions):
        found = pa.table(predictions)
        assert found.column_names == self.expected.column_names
        for name in self.expected.column_names:
            assert found[name].to_pylist() == self.expected[name].to_pylist(), name


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported")
    return functools.cache(lambda name: Imported(name, folder))


@pytest.mark.parametrize("name", ["mmoe_taobao", "multi_tower_taobao", "dssm_taobao", "dlrm_hstu_kuairand"])
def test_tables_of_every_library_are_predicted_alike(imported, name):
    model = imported(name)
    table, predictor = model.table, model.predictor
    model.check(predictor.predict(table))
    model.check(predictor.predict(table.combine_chunks().to_batches()[0]))
    model.check(predictor.predict(pa.concat_tables([table.slice(0, 7), table.slice(7)])))
    model.check(predictor.predict(polars.from_arrow(table)))
    model.check(predictor.predict(table.to_pandas(types_mapper=pandas.ArrowDtype)))
    part = pa.table(predictor.predict(table.slice(5, 9), index="row"))
    assert part["row"].to_pylist() == sorted(part["row"].to_pylist()) and part["row"].to_pylist()[-1] == 8
    assert len(predictor.predict(table.slice(0, 0))) == 0
    assert set(predictor.columns) <= set(table.column_names)


@pytest.mark.parametrize("name", ["mmoe_taobao", "multi_tower_taobao", "dlrm_hstu_kuairand"])
def test_mappings_of_columns_are_tables(imported, name):
    model = imported(name)
    columns = {name: model.table[name] for name in model.predictor.columns}
    model.check(model.predictor.predict(columns))
    model.check(model.predictor.predict({name: column.to_pylist() for name, column in columns.items()}))
    # pandas has no missing integers but as floats.
    frames = {name: column if column.null_count else column.to_pandas() for name, column in columns.items()}
    model.check(model.predictor.predict(frames))
    model.check(model.predictor.predict({name: polars.from_arrow(column) for name, column in columns.items()}))


def test_lists_and_matrices_are_rows_of_several_values(imported):
    model = imported("multi_tower_taobao")
    columns = {name: model.table[name].to_pylist() for name in model.predictor.columns}
    sequences = [name for name in columns if name.startswith("click_50_seq__")]
    arrays = {name: [numpy.array(steps or [], int if name != sequences[-1] else float) for steps in columns[name]] for name in sequences}
    model.check(model.predictor.predict({**columns, **arrays}))
    few = {name: values[:4] for name, values in columns.items()}
    few |= {name: numpy.full((4, 3), 2, "float32" if name == sequences[-1] else "int32") for name in sequences}
    lists = {name: few[name].tolist() if name in sequences else values for name, values in few.items()}
    assert pa.table(model.predictor.predict(few)).equals(pa.table(model.predictor.predict(lists)))


def test_predictions_are_arrays_by_name(imported):
    model = imported("dssm_taobao")
    predictions = model.predictor.predict(model.table)
    vectors = dict(predictions)["user_tower_emb"]
    assert vectors.shape == (model.table.num_rows, len(model.expected["user_tower_emb"][0]))
    assert vectors.tolist() == model.expected["user_tower_emb"].to_pylist()
    assert model.predictor.outputs == list(predictions.keys()) == model.predictor.list_outputs
    with pytest.raises(KeyError):
        predictions["none"]


def test_a_description_has_a_row(imported):
    for name in ("mmoe_taobao", "dlrm_hstu_kuairand"):
        predictor = imported(name).predictor
        description = predictor.describe()
        row = json.loads(description.splitlines()[-1])
        assert "ids 0 to" in description and all(output in description for output in predictor.outputs)
        assert len(predictor.predict({column: [value] for column, value in row.items()})) == 1


@pytest.mark.parametrize("name", ["mmoe_taobao", "dlrm_hstu_kuairand", "hstu_match_cosine"])
def test_evaluations_are_those_of_the_program(imported, name):
    model, source = imported(name), PIPELINES / name
    options = ["--kernel", "cpu", "--json", "--model", model.model, "--data", source / "data.parquet", "--batch", "50"]
    sampled, negatives = source / "negatives.parquet", None
    if sampled.exists():
        options, negatives = [*options, "--negatives", sampled], parquet.read_table(sampled)
    expected = json.loads(model.run("eval", *options).stdout)
    evaluator = rewire.Evaluator(model.model, kernel="cpu")
    found = tables.evaluate(evaluator, model.table, negatives, batch_size=50)
    assert found == {key: expected[key] for key in ("metrics", "losses", "rows")}
    assert found["rows"] == model.table.num_rows and evaluator.metrics == list(found["metrics"])
    assert all(value is not None for value in found["losses"].values())

    evaluation = evaluator.begin()
    batch = {column: model.table[column].slice(0, 50).to_pylist() for column in evaluator.columns}
    row = None if negatives is None else negatives.slice(0, 1)
    losses = evaluation.add(batch, negatives=row)
    assert losses and losses == evaluator.begin().add(model.table.slice(0, 50).combine_chunks(), negatives=row)
    with pytest.raises(rewire.RequestError, match="combine its chunks"):
        evaluation.add(pa.concat_tables([model.table.slice(0, 7), model.table.slice(7, 3)]), negatives=row)
    with pytest.raises(rewire.RequestError, match="there is no column"):
        evaluation.add({}, negatives=row)


def test_kernels_are_chosen_by_module(imported):
    model = imported("mmoe_taobao")
    module = rewire.Predictor(model.model, kernel="auto", kernel_for={"*": "cpu"})
    assert module.device == "cpu"
    model.check(module.predict(model.table))
    for kind in (rewire.Predictor, rewire.Evaluator, rewire.load):
        with pytest.raises(ValueError, match="kernel: "):
            kind(model.model, kernel_for={"*": "gpu"})
    for load in (rewire.Predictor, rewire.load, lambda *path, **rules: rewire.Evaluator(*path, **rules).begin()):
        with pytest.raises(rewire.ModelError, match="nowhere"):
            load(model.model, kernel="cpu", kernel_for={"nowhere*": "cpu"})


def test_columns_are_carried_along(imported):
    for name, carried in (("mmoe_taobao", "user_id"), ("dlrm_hstu_kuairand", "user_id")):
        model = imported(name)
        scores = tables.predict(rewire.load(model.model, kernel="cpu"), model.table, [carried])
        assert scores.schema.equals(tables.fields(model.predictor, model.table.schema, [carried]))
        rows = pa.table(model.predictor.predict(model.table, index="row"))["row"]
        assert scores[carried].to_pylist() == model.table[carried].take(rows).to_pylist()


def test_the_example_of_the_docs_gives_the_sums_of_its_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = PIPELINES.parent / "columns"
    Imported.run("import", source / "pipeline.config", "--checkpoint", source / "model.safetensors", "--out", "model.rewire")
    page = (PIPELINES.parents[1] / "docs/tzrec.md").read_text()
    names = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    # Every parameter is 1, and a table has four columns.
    logits = [4 * (1 + 1 + 2.5) + 0.5, 4 * (1 + 2) + 1.5, 4 * (0 + 0 + 1) + 2.5]
    assert names["predictions"]["logits"].tolist() == pytest.approx(logits)
    assert names["predictions"]["probs"].tolist() == pytest.approx((1 / (1 + numpy.exp(-numpy.array(logits)))).tolist())


def test_faults_are_errors_with_codes(imported, tmp_path):
    model = imported("mmoe_taobao")
    columns = {name: model.table[name].to_pylist() for name in model.predictor.columns}
    first, second = model.predictor.columns[:2]
    with pytest.raises(rewire.RequestError, match=f"there is no column `{first}`") as caught:
        model.predictor.predict({name: values for name, values in columns.items() if name != first})
    assert caught.value.code.startswith("rank.")
    with pytest.raises(rewire.RequestError, match="equal numbers of rows"):
        model.predictor.predict({**columns, second: columns[second][1:]})
    with pytest.raises(rewire.RequestError, match=f"`{first}`, row 1"):
        model.predictor.predict({**columns, first: [1, -1, *columns[first][2:]]})
    with pytest.raises(rewire.RequestError, match=f"`{first}`: it has values in some rows"):
        model.predictor.predict({**columns, first: [[1], *columns[first][1:]]})
    with pytest.raises(TypeError, match=f"`{first}` holds `object`"):
        model.predictor.predict({**columns, first: [object(), *columns[first][1:]]})
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        model.predictor.predict([1])
    with pytest.raises(rewire.ModelError, match="imported"):
        rewire.Ranker(model.model, kernel="cpu")
    with pytest.raises(rewire.ModelError):
        rewire.Predictor(tmp_path / "none", kernel="cpu")
