"""Writes an encoder of 4 layers, width 256, 128 rows, as FOLDER/encoder/{model.onnx,inputs_2.safetensors}, for runtime.py.

usage: encoder.py FOLDER
"""
import sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

WIDTH, HEADS, LAYERS, INNER, ROWS = 256, 4, 4, 1024, 128


class Builder:
    def __init__(self):
        self.random, self.nodes, self.constants = np.random.default_rng(5), [], []

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def normal(self, name, shape, scale, mean=0.0):
        values = mean + scale * self.random.standard_normal(shape)
        return self.constant(name, values.astype(np.float32))

    def linear(self, x, name, rows, columns):
        product = self.node("MatMul", [x, self.normal(f"{name}.weight", (rows, columns), rows**-0.5)], f"{name}.product")
        return self.node("Add", [product, self.normal(f"{name}.bias", (columns,), 0.05)], name)

    def norm(self, x, name):
        factors = [self.normal(f"{name}.weight", (WIDTH,), 0.1, 1.0), self.normal(f"{name}.bias", (WIDTH,), 0.1)]
        return self.node("LayerNormalization", [x, *factors], name, axis=-1)

    def attention(self, x, name):
        def heads(part, order):
            own = self.node("Reshape", [self.linear(x, f"{name}.{part}", WIDTH, WIDTH), "split"], f"{name}.{part}.split")
            return self.node("Transpose", [own], f"{name}.{part}.heads", perm=order)

        scores = self.node("MatMul", [heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1])], f"{name}.products")
        scores = self.node("Mul", [scores, "scale"], f"{name}.scores")
        weights = self.node("Softmax", [scores], f"{name}.weights", axis=-1)
        mixed = self.node("MatMul", [weights, heads("v", [0, 2, 1, 3])], f"{name}.mixed")
        mixed = self.node("Transpose", [mixed], f"{name}.rows", perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", [mixed, "merge"], f"{name}.merged"), f"{name}.out", WIDTH, WIDTH)


def encoder():
    builder = Builder()
    builder.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    builder.constant("merge", np.array([0, 0, WIDTH], np.int64))
    builder.constant("scale", np.array((WIDTH // HEADS) ** -0.5, np.float32))
    x = "x"
    for layer in range(LAYERS):
        name = f"layers.{layer}"
        x = builder.norm(builder.node("Add", [x, builder.attention(x, f"{name}.attention")], f"{name}.sum"), f"{name}.norm")
        inner = builder.node("Relu", [builder.linear(x, f"{name}.up", WIDTH, INNER)], f"{name}.relu")
        x = builder.node("Add", [x, builder.linear(inner, f"{name}.down", INNER, WIDTH)], f"{name}.whole")
        x = builder.norm(x, f"{name}.last")
    builder.node("Identity", [x], "y")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, ROWS, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(builder.nodes, "encoder", values[:1], values[1:], builder.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "encoder"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder(), folder / "model.onnx")
    x = np.random.default_rng(6).standard_normal((1, ROWS, WIDTH)).astype(np.float32)
    save_file({"x": x}, folder / "inputs_2.safetensors")
