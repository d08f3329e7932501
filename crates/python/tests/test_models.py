"""Models that are traced from Python compute what numpy does, and say what is wrong with them."""

import re
import threading
from pathlib import Path

import numpy
import pytest

import rewire

RANDOM = numpy.random.default_rng(7)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype("float32")


def run(scope, outputs, parameters, inputs):
    model = rewire.Model(scope.finish(outputs), parameters, kernel="cpu")
    return model, model.session().run(inputs)


def silu(x):
    return x / (1 + numpy.exp(-x))


def test_a_layer_is_one_kernel_and_right_at_any_number_of_rows():
    scope = rewire.Scope()
    x = scope.input("x", numpy.float32, [scope.size("rows"), 25])
    def layer(scope):
        normed = x.layer_norm(scope.parameter("norm.weight", [25]), scope.parameter("norm.bias", [25]))
        return normed.linear(scope.parameter("weight", [7, 25]), scope.parameter("bias", [7])).silu() * 0.5 + 1
    y = scope.module("layer", layer)
    assert y.shape[1] == 7 and y.dtype == "f32"
    parameters = {
        "layer.norm.weight": normal(25), "layer.norm.bias": normal(25), "layer.weight": normal(7, 25), "layer.bias": normal(7),
    }
    model = rewire.Model(scope.finish({"y": y}), parameters, kernel="cpu")
    assert len(model.kernels) == 1 and model.device == "cpu" and model.inputs == {"x": "f32"}
    assert model.parameters == {name: "f32" for name in parameters}
    session = model.session()
    for rows in (0, 1, 33):
        values = normal(rows, 25) if rows else numpy.empty((0, 25))
        normed = (values - values.mean(1, keepdims=True)) / numpy.sqrt(values.var(1, keepdims=True) + 1e-5)
        normed = normed * parameters["layer.norm.weight"] + parameters["layer.norm.bias"]
        product = normed @ parameters["layer.weight"].T + parameters["layer.bias"]
        expected = silu(product) * 0.5 + 1
        result = session.run({"x": values})["y"]
        assert result.shape == (rows, 7) and result.dtype == numpy.float32
        numpy.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    model.update({"layer.bias": parameters["layer.bias"] + 2})
    numpy.testing.assert_allclose(session.run({"x": values})["y"], silu(product + 2) * 0.5 + 1, rtol=1e-5, atol=1e-5)
    result[0, 0] = 0  # The caller's.


def test_attention_under_a_mask_of_the_models_own():
    heads, width = 2, 3
    scope = rewire.Scope()
    rows = scope.lengths("lengths", scope.size("users"))
    q, k, v = (scope.input(name, "f32", [rows.total, heads, width]) for name in "qkv")
    distance = rows.row_index(rows, heads) - rows.key_index(rows, heads)
    keep = (distance >= 0) & ~(distance > 2)
    y = (q.scores(k, rows, rows) * 0.3).softmax_scores(rows, rows, keep).weighted_sum(v, rows, rows)
    lengths = [4, 0, 1, 6]
    values = {name: normal(sum(lengths), heads, width) for name in "qkv"}
    model, results = run(scope, {"y": y}, None, {"lengths": lengths, **values})
    assert len(model.kernels) == 1
    expected, at = numpy.zeros((sum(lengths), heads, width)), 0
    for length in lengths:
        for query in range(at, at + length):
            keys = slice(max(at, query - 2), query + 1)
            weights = numpy.exp(0.3 * numpy.einsum("hd,khd->kh", values["q"][query], values["k"][keys]))
            expected[query] = numpy.einsum("kh,khd->hd", weights / weights.sum(0), values["v"][keys])
        at += length
    numpy.testing.assert_allclose(results["y"], expected, rtol=1e-5, atol=1e-6)


def test_rows_of_samples_and_tables():
    scope = rewire.Scope()
    users = scope.size("users")
    left, right = scope.lengths("left", users), scope.lengths("right", users)
    table = scope.parameter("table", [9, 4], "f16")
    rows = table.gather(scope.input("ids", "u32", [left.total]))
    both, divided = rows.jagged_concat(left, scope.input("more", "f32", [right.total, 4]), right)
    sums = both.jagged_sum(divided)
    largest, columns = scope.top_k(sums, 2)
    last = both.jagged_tail(divided, right)
    outputs = {"sums": sums, "largest": largest, "columns": columns, "last": last, "position": divided.position}
    values, more = normal(9, 4).astype("float16"), normal(3, 4)
    ids = [8, 0, 0, 5]
    _, results = run(scope, outputs, {"table": values}, {"left": [3, 1], "right": [1, 2], "ids": ids, "more": more})
    found = values[ids].astype("float32")
    expected = numpy.stack([found[:3].sum(0) + more[0], found[3] + more[1:].sum(0)])
    numpy.testing.assert_allclose(results["sums"], expected, rtol=1e-6, atol=1e-6)
    numpy.testing.assert_array_equal(results["columns"], numpy.argsort(-expected, 1)[:, :2])
    numpy.testing.assert_allclose(results["largest"], -numpy.sort(-expected, 1)[:, :2], rtol=1e-6, atol=1e-6)
    numpy.testing.assert_array_equal(results["last"], more)
    assert results["position"].tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_seen_items_are_left_out():
    scope = rewire.Scope()
    rows = scope.lengths("lengths", scope.size("users"))
    seen = scope.input("seen", "i64", [rows.total])
    best, items = scope.top_k_unseen(scope.input("scores", "f32", [rows.batch, 4]), 2, seen, rows)
    scores = [[0.4, 0.3, 0.2, 0.1], [1, 2, 3, 4], [1, 2, 3, 4]]
    _, results = run(scope, {"best": best, "items": items}, None, {"lengths": [2, 0, 4], "seen": [0, 2, 0, 1, 2, 3], "scores": scores})
    assert results["items"].tolist() == [[1, 3], [3, 2], [-1, -1]]
    numpy.testing.assert_allclose(results["best"][:2], [[0.3, 0.1], [4, 3]], rtol=1e-6)


def test_gradients():
    scope = rewire.Scope()
    x = scope.input("x", "f32", [scope.size("rows"), 5])
    weight = scope.parameter("weight", [5, 3])
    loss = ((x @ weight).tanh().square().sum(0).sum(1) * 0.5).reshape([])
    graph = scope.finish({"loss": loss})
    assert graph.outputs == ["loss"] and len(graph) > 4 and "tanh" in str(graph)
    assert repr(graph) == f"<rewire.Graph of loss with {len(graph)} operators>" and repr(scope) == '<rewire.Scope "">'
    graph = graph.differentiate("loss", of=["weight"])
    values, start = normal(11, 5), normal(5, 3)
    results = rewire.Model(graph, {"weight": start}, kernel="cpu").session().run({"x": values})
    hidden = numpy.tanh(values @ start)
    numpy.testing.assert_allclose(results["loss"], 0.5 * (hidden**2).sum(), rtol=1e-5)
    numpy.testing.assert_allclose(results["grad.weight"], values.T @ (hidden * (1 - hidden**2)), rtol=1e-4, atol=1e-5)


def test_parameters_are_stored_as_they_are_asked_for():
    scope = rewire.Scope()
    weight, given = normal(32, 16), normal(5, 32)
    graph = scope.finish({"y": scope.input("x", "f32", [scope.size("rows"), 32]) @ scope.parameter("weight", [32, 16])})
    model = rewire.Model(graph, {"weight": weight}, kernel="cpu", dtype="int8")
    assert repr(model) == "<rewire.Model of x on cpu>" and model.parameters == {"weight": "rows8"}
    numpy.testing.assert_allclose(model.session().run({"x": given})["y"], given @ weight, atol=0.2)


def test_types_come_and_go():
    scope = rewire.Scope()
    size = scope.size("rows")
    names = {"half": "f16", "wide": "i64", "small": "i32", "single": "f32", "brain": "bf16", "truth": "bool"}
    inputs = {name: scope.input(name, dtype, [size]) for name, dtype in names.items()}
    inputs["known"] = scope.constant(numpy.array([3, 4, 5]))
    inputs["swapped"] = scope.input("m", "f32", [2, 3]).transpose(0, 1)
    given = {
        "half": numpy.array([1, 65504, numpy.inf], "float16"), "wide": [-(2**60), 0, 2**62], "small": numpy.array([-1, 2, 3], "int8"),
        "single": [0.1, -0.2, 3.5], "brain": [1.0, -2.5, 3.0], "truth": [True, False, True], "m": numpy.arange(6.0).reshape(3, 2).T,
    }
    _, results = run(scope, inputs, None, given)
    assert {name: value.dtype.name for name, value in results.items()} == {
        "half": "float16", "wide": "int64", "small": "int32", "single": "float32", "brain": "float32", "truth": "bool",
        "known": "int64", "swapped": "float32",
    }
    for name in names:
        numpy.testing.assert_array_equal(results[name], numpy.asarray(given[name], results[name].dtype))
    assert results["known"].tolist() == [3, 4, 5]
    numpy.testing.assert_array_equal(results["swapped"], given["m"].T)


def test_a_state_lives_as_long_as_its_session():
    scope = rewire.Scope()
    total = scope.state("total", "f32", [2])
    scope.set_state("total", total + scope.input("x", "f32", [2]))
    model = rewire.Model(scope.finish({"before": total * 1.0}), kernel="cpu")
    session = model.session()
    for at in range(3):
        assert session.run({"x": [1, 2.5]})["before"].tolist() == [at, 2.5 * at]
    assert session.state("total").tolist() == [3, 7.5]
    session.set_state("total", [10, 20])
    assert session.run({"x": [0.0, 0.0]})["before"].tolist() == [10, 20]
    assert model.session().state("total").tolist() == [0, 0]


def test_mistakes_are_named():
    scope = rewire.Scope()
    x = scope.input("x", "f32", [scope.size("rows"), 4])
    with pytest.raises(rewire.GraphError, match="head") as caught:
        scope.module("head", lambda scope: x @ scope.parameter("weight", [3, 2]))
    assert caught.value.code == "graph.type" and "src/" not in str(caught.value)
    assert "lambda" in str(caught.traceback[-1].statement)
    with pytest.raises(rewire.GraphError, match="head"):
        scope.finish({"y": x})
    with pytest.raises(TypeError):
        numpy.ones(4) * x
    with pytest.raises(TypeError, match="there is no option `kernels`"):
        rewire.Model("nowhere", kernels="cpu")
    with pytest.raises(ValueError, match="tables: expected one of f32"):
        rewire.Model("nowhere", tables="f8")
    with pytest.raises(ValueError, match="dtype: expected one of f32"):
        rewire.Scope().input("x", "float", [1])
    with pytest.raises(ValueError, match="Size"):
        rewire.Scope().input("x", "f32", [-1])
    with pytest.raises(ZeroDivisionError):
        rewire.Scope().module("m", lambda scope: 1 / 0)

    scope = rewire.Scope()
    ids, x = scope.input("ids", "u32", [scope.size("rows")]), scope.input("x", "f32", [scope.size("rows"), 2])
    graph = scope.finish({"y": x * scope.parameter("weight", [2]), "ids": ids})
    with pytest.raises(rewire.GraphError, match="none"):
        graph.differentiate("y", of=["none"])
    with pytest.raises(rewire.ModelError, match="weight"):
        rewire.Model(graph, kernel="cpu")
    with pytest.raises(rewire.ModelError, match="weight"):
        rewire.Model(graph, {"weight": [1.0, 2.0, 3.0]}, kernel="cpu")
    model = rewire.Model(graph, {"weight": [1.0, 2.0]}, kernel="cpu")
    with pytest.raises(rewire.ModelError, match="wei"):
        model.update({"wei": [1.0, 2.0]})
    session = model.session()
    good = {"ids": [1], "x": [[1.0, 2.0]]}
    assert session.run(good)["y"].tolist() == [[1, 4]]
    for name, value, expected in [
        ("ids", [-1], "from 0"), ("ids", [2**32], "from 0"), ("ids", [1.5], "fits u32"), ("x", [["a", "b"]], "fits f32"), ("x", [[True, False]], "fits f32"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"{name}: .*{expected}"):
            session.run({**good, name: value})
    for inputs in ({"ids": [1]}, {**good, "x": [[1.0, 2.0, 3.0]]}, {**good, "x": [[1.0, 2.0]] * 2}):
        with pytest.raises(rewire.RunError) as caught:
            session.run(inputs)
        assert caught.value.code.startswith("run.")
    with pytest.raises(rewire.RunError):
        session.state("none")


def test_a_with_block_frees_a_model_and_its_sessions_keep_it():
    scope = rewire.Scope()
    x = scope.input("x", "f32", [scope.size("rows"), 2])
    with rewire.Model(scope.finish({"y": x + 1.0}), kernel="cpu") as model:
        session = model.session()
    assert session.run({"x": [[1.0, 2.0]]})["y"].tolist() == [[2.0, 3.0]]
    with pytest.raises(ValueError, match="closed"):
        model.session()


def test_the_example_of_the_page(capsys):
    text = (Path(__file__).parents[3] / "docs/python.md").read_text()
    [example] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "rewire.Scope" in block]
    exec(example, {})
    assert capsys.readouterr().out == "['softmax_attention', 'matmul']\n(103, 128)\n"


def test_threads_share_a_model_and_python_goes_on():
    scope = rewire.Scope()
    x = scope.input("x", "f32", [scope.size("rows"), 256])
    for _ in range(4):
        x = (x @ scope.parameter("weight", [256, 256])).tanh()
    weight, given = normal(256, 256) / 16, normal(4000, 256)
    model, expected = run(scope, {"y": x}, {"weight": weight}, {"x": given})
    results = []
    threads = [threading.Thread(target=lambda: results.append(model.session().run({"x": given})["y"])) for _ in range(3)]
    for thread in threads:
        thread.start()
    ticks = 0
    while any(thread.is_alive() for thread in threads):
        ticks += 1
    assert ticks > 100 and all((result == expected["y"]).all() for result in results) and len(results) == 3
