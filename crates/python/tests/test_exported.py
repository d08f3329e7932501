"""Exported models give what PyTorch gives, from files and from live programs."""

import re
import shutil
from pathlib import Path

import numpy
import pytest

import rewire

ROOT = Path(__file__).parents[3]
CASE = ROOT / "tests/pt2/linear_relu"
ONNX = ROOT / "tests/onnx/test_leakyrelu_example/model.onnx"


def test_a_file_runs_on_arrays():
    model = rewire.Model(CASE / "model.pt2", kernel="cpu")
    (name,) = model.inputs
    x = numpy.linspace(-1, 1, 48, dtype="float32").reshape(3, 16)
    (y,) = model.run({name: x}).values()
    assert y.dtype == numpy.float32 and y.shape == (3, 4)
    again = rewire.Model.from_bytes((CASE / "model.pt2").read_bytes(), kernel="cpu")
    numpy.testing.assert_array_equal(next(iter(again.run({name: x}).values())), y)
    with pytest.raises(rewire.RunError):
        model.run({})
    with pytest.raises(TypeError):
        model.run({name: x.astype("int64") > 0})
    with pytest.raises(rewire.ModelError):
        rewire.Model("/nowhere.pt2")


def test_the_program_of_the_readme(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))

        def forward(self, x):
            return self.layers(x)

    model, x = Own().eval(), torch.randn(5, 8)
    code = re.search(r"```python export\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    guide = re.search(r"```python\n(.*?)```", (ROOT / "docs/from-pytorch.md").read_text(), re.S)[1]
    assert all(line.split("  ")[0] in code for line in guide.splitlines())
    names = {"torch": torch, "rewire": rewire, "model": model, "x": x}
    exec(compile(code, "README.md", "exec"), names)
    torch.testing.assert_close(names["y"], model(x).detach(), rtol=1e-4, atol=1e-5)
    own = rewire.Model("own.pt2", kernel="cpu")
    torch.testing.assert_close(next(iter(own.run({"x": x[:1]}).values())), names["y"][:1], rtol=1e-5, atol=1e-6)


def test_the_program_of_the_page_for_onnx_runtime(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/onnx/test_leakyrelu_example/model.onnx", "model.onnx")
    page = (ROOT / "docs/from-onnxruntime.md").read_text()
    exec(compile(re.search(r"```python onnx\n(.*?)```", page, re.S)[1], "from-onnxruntime.md", "exec"), {})
    assert capsys.readouterr().out == re.search(r"```text onnx\n(.*?)```", page, re.S)[1]
    names = {"rewire": rewire, "x": numpy.array([-1, 0, 1], dtype="float32")}
    exec(compile(re.search(r"```python\n(.*?)```", (ROOT / "docs/onnx.md").read_text(), re.S)[1], "onnx.md", "exec"), names)
    numpy.testing.assert_allclose(names["y"], [-0.1, 0, 1], rtol=1e-6)


def test_buffers_that_change_are_kept():
    torch = pytest.importorskip("torch")

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return self.total * 2

    own = rewire.from_export(torch.export.export(Counter(), (torch.ones(2, 3),)), kernel="cpu")
    for n in (1, 2):
        results = own.run({"x": torch.ones(2, 3)})
        assert results["total"].tolist() == [2.0 * n] * 3


class Proto:
    """What `from_onnx` asks of an `onnx.ModelProto`."""

    def SerializeToString(self):
        return ONNX.read_bytes()


@pytest.mark.parametrize("source", [ONNX, str(ONNX), Proto()], ids=["path", "text", "message"])
def test_onnx_models_run_on_arrays(source):
    model = rewire.from_onnx(source, kernel="cpu")
    (y,) = model.run({"x": numpy.array([-1, 0, 1], "float32")}).values()
    numpy.testing.assert_allclose(y, [-0.1, 0, 1], rtol=1e-6)
    with pytest.raises(rewire.ModelError):
        rewire.from_onnx("/nowhere.onnx")
