"""Times ONNX models by rewire and by ONNX Runtime on the CPU, in turns.

usage: runtime.py REWIRE FOLDER [--int8] [--batch N] [--rounds N] [--seconds S]

FOLDER/NAME/{model.onnx,inputs_2.safetensors}. One line per model: medians of the rounds in milliseconds with two threads, processor time of a run with
one thread, kernels beside nodes, and the largest difference of the results, relative to the largest element. With --int8 models are quantized
dynamically by onnxruntime.quantization first, and both runtimes are compared with the f32 results as well.
"""
import argparse, json, os, resource, subprocess, tempfile, time
from pathlib import Path
import numpy as np, onnx, onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file, save_file


def session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def median_of(run, seconds):
    times, begun = [], time.perf_counter()
    run()
    while time.perf_counter() - begun < seconds or not times:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def rewire(program, model, inputs, out, seconds, threads):
    command = [program, "run", model, "--kernel", "cpu", "--json", "--inputs", inputs, "--out", out, "--seconds", str(seconds)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "REWIRE_THREADS": str(threads)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = json.loads(done.stdout)
    record["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return record


def difference(actual, expected):
    return float(max(np.abs(actual[name] - x).max() / max(np.abs(x).max(), 1e-30) for name, x in expected.items()))


def measure(program, folder, options, scratch):
    model, feeds = folder / "model.onnx", load_file(folder / "inputs_2.safetensors")
    single = model
    if options.int8:
        model = scratch / "int8.onnx"
        quantize_dynamic(single, model, weight_type=QuantType.QInt8)
    feeds = {name: np.concatenate([x] * options.batch) if x.ndim else x for name, x in feeds.items()}
    inputs, out = scratch / "inputs.safetensors", scratch / "outputs.safetensors"
    save_file(feeds, inputs)
    two, one = session(model, 2), session(model, 1)
    names = [output.name for output in two.get_outputs()]
    expected = dict(zip(names, two.run(None, feeds)))
    own, other = [], []
    for _ in range(options.rounds):
        other.append(median_of(lambda: two.run(None, feeds), options.seconds))
        record = rewire(program, model, inputs, out, options.seconds, 2)
        own.append(record["seconds"])
    actual = load_file(out)
    exact = dict(zip(names, session(single, 2).run(None, feeds))) if options.int8 else expected
    least, more = [rewire(program, model, inputs, out, seconds, 1) for seconds in (0, options.seconds)]
    own_cpu = (more["cpu"] - least["cpu"]) / max(more["runs"] - least["runs"], 1)
    runs, begun = 0, time.process_time()
    while time.process_time() - begun < options.seconds:
        one.run(None, feeds)
        runs += 1
    other_cpu = (time.process_time() - begun) / runs
    return {
        "model": folder.name,
        "rewire_ms": float(np.median(own)) * 1e3,
        "ort_ms": float(np.median(other)) * 1e3,
        "ratio": float(np.median(other) / np.median(own)),
        "rewire_cpu_ms": own_cpu * 1e3,
        "ort_cpu_ms": other_cpu * 1e3,
        "cpu_ratio": other_cpu / own_cpu,
        "kernels": record["kernels"],
        "nodes": len(onnx.load(model).graph.node),
        "differs": difference(actual, expected),
        **({"from_f32": difference(actual, exact), "ort_from_f32": difference(expected, exact)} if options.int8 else {}),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rewire")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--batch", type=int, default=1, help="repeat the samples of the inputs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    print(json.dumps({"load": os.getloadavg()}), flush=True)
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(path.parent for path in options.folder.glob("*/model.onnx")):
            records.append(measure(options.rewire, folder, options, Path(scratch)))
            print(json.dumps(records[-1]), flush=True)
    ratios = [[record[name] for record in records] for name in ("ratio", "cpu_ratio")]
    print(json.dumps({"load": os.getloadavg(), "median ratios": [float(np.median(x)) for x in ratios]}))


if __name__ == "__main__":
    main()
