// Models that PyTorch exported, as packages in a page, against its results. `page` has what `browser.mjs` prepares.

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";

const ROOT = new URL("../../../", import.meta.url);

/** A decoder, an encoder, and convolutions. */
const MODELS = ["pt2/hf_qwen3", "browser/hf_bert", "browser/resnet_small"];

const ARRAYS = { F32: Float32Array, I64: BigInt64Array };

/** `[[name, { dtype, shape, data }]]` of a file of safetensors. */
function tensorsOf(file) {
  const bytes = readFileSync(new URL(`tests/${file}.safetensors`, ROOT));
  const begin = 8 + Number(bytes.readBigUInt64LE());
  const entries = Object.entries(JSON.parse(bytes.subarray(8, begin))).filter(([name]) => name !== "__metadata__");
  return entries.map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
    const data = new ARRAYS[dtype](bytes.buffer.slice(bytes.byteOffset + begin + from, bytes.byteOffset + begin + to));
    return [name, { dtype, shape, data: Array.from(data, Number) }];
  });
}

/** Runs all sets of inputs of a model on a kernel: the results, what ran them, and the time of each run. */
async function runAll(name, kernel, sets) {
  const model = await rewire.Model.load(`${name}.rewire`, { kernel });
  const of = ({ dtype, shape, data }) => ({ shape, data: dtype === "I64" ? BigInt64Array.from(data, BigInt) : Float32Array.from(data) });
  const [results, times] = [[], []];
  for (const inputs of sets) {
    const tensors = Object.fromEntries(inputs.map(([name, tensor]) => [name, of(tensor)]));
    const begun = performance.now();
    const outputs = await model.run(tensors);
    times.push(performance.now() - begun);
    results.push(model.about.outputs.map((name) => ({ shape: outputs[name].shape, data: [...outputs[name].data] })));
  }
  const { gpuSteps, cpuSteps } = await model.report();
  model.dispose();
  return { results, times, gpuSteps, cpuSteps };
}

/** The largest error as a part of the tolerance. */
function errorOf(actual, expected, { rtol, atol }) {
  assert.deepEqual(actual.shape, expected.shape);
  assert.equal(actual.data.length, expected.data.length);
  return Math.max(...expected.data.map((value, n) => Math.abs(actual.data[n] - value) / (atol + rtol * Math.abs(value))));
}

export async function exportedModelsGiveTheResultsOfPyTorch(page, kernels = ["cpu", "wgpu"]) {
  for (const folder of MODELS) {
    const name = folder.split("/").pop();
    const { outputs, sets, tolerance } = JSON.parse(readFileSync(new URL(`tests/${folder}/meta.json`, ROOT)));
    const inputs = sets.map((_, n) => tensorsOf(`${folder}/inputs_${n}`));
    const expected = sets.map((_, n) => Object.fromEntries(tensorsOf(`${folder}/outputs_${n}`)));
    for (const kernel of kernels) {
      const { results, times, gpuSteps, cpuSteps } = await page.call(runAll, name, kernel, inputs);
      const errors = results.map((result, n) => {
        assert.equal(result.length, outputs.length);
        return Math.max(...outputs.map((output, place) => errorOf(result[place], expected[n][output.name], tolerance)));
      });
      const shown = times.map((time) => time.toFixed(1)).join(", ");
      console.log(`${name}, ${kernel}: ${gpuSteps} + ${cpuSteps} kernels, ${shown} ms, error of the tolerance ${Math.max(...errors).toFixed(2)}`);
      assert.ok(errors.every((error) => error <= 1), `${name}, ${kernel}: ${errors}`);
      assert.equal(kernel === "cpu" ? gpuSteps : cpuSteps, 0);
    }
  }
}
