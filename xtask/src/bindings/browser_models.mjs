// What models of the library do in a page, beside their scores. `page` has what `browser.mjs` prepares.

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";

/** With `auto`, where there is a GPU. */
export async function theCpuAnswersUntilWebGpuIsReady(page) {
  const outcome = await page.call(async () => {
    const begun = performance.now();
    const ranker = await faulty(() => {}, { kernel: "auto" });
    const [first] = await ranker.rank(users.slice(2, 3));
    const scoredAfter = performance.now() - begun;
    const { gpuSteps: before } = await ranker.report();
    const waiting = ranker.rank(users.slice(2, 3));
    await ranker.settled;
    const [last] = await ranker.rank(users.slice(2, 3));
    const { gpuSteps: after } = await ranker.report();
    const between = await waiting.then(([ranked]) => ranked.candidates.length);
    ranker.dispose();
    const order = ({ candidates }) => candidates.map(({ position }) => position).join();
    return { scoredAfter, before, after, between, same: order(first) === order(last) };
  });
  console.log(`the CPU's first scores come after ${outcome.scoredAfter.toFixed(0)} ms`);
  const { before, after, between, same } = outcome;
  assert.ok(before === 0 && after > 0 && between > 0 && same, JSON.stringify(outcome));
}

export async function whatIsAbortedEnds(page) {
  const outcome = await page.call(async () => {
    const reasonOf = (promise) => promise.then(() => "no error", (error) => error.name);
    const load = (signal, options) => reasonOf(rewire.Ranker.load("demo.rewire", { kernel: "cpu", signal, ...options }));
    const midway = new AbortController();
    const ranker = await rewire.Ranker.load("demo.rewire", { kernel: "cpu" });
    const own = new AbortController();
    const asks = [ranker.rank(users), ranker.rank(users.slice(0, 1), { signal: own.signal }), ranker.rank(users.slice(1, 3))];
    own.abort();
    const aborted = await reasonOf(asks[1]);
    const others = (await Promise.all([asks[0], asks[2]])).map((ranked) => ranked.length);
    const ended = reasonOf(ranker.rank(users));
    ranker.dispose();
    return {
      before: await load(AbortSignal.abort()),
      midway: await load(midway.signal, { onProgress: () => midway.abort() }),
      aborted,
      others,
      ended: await ended,
    };
  });
  const abort = "AbortError";
  assert.deepEqual(outcome, { before: abort, midway: abort, aborted: abort, others: [256, 2], ended: "RewireError" });
}

export async function asksThatWaitGoTogether(page) {
  const outcome = await page.call(async () => {
    const ranker = await rewire.Ranker.load("demo.rewire", { kernel: "cpu" });
    const chosen = users.slice(0, 24);
    const alone = [];
    for (const user of chosen) alone.push(...(await ranker.rank([user])));
    const together = await Promise.all([...chosen.map((user) => ranker.rank([user])), codeOf(ranker.rank([7])), ranker.rank([])]);
    ranker.dispose();
    return { same: JSON.stringify(together.slice(0, 24).flat()) === JSON.stringify(alone), rest: together.slice(24) };
  });
  assert.deepEqual(outcome, { same: true, rest: ["request.text", []] });
}

/** Items and their scores are those of `tests/decoders/qwen3`, on each kernel. */
export async function aDecoderGeneratesItems(page, kernels = ["cpu", "wgpu"]) {
  const read = (name) => readFileSync(new URL(`../../../tests/decoders/qwen3/${name}`, import.meta.url), "utf8");
  const lines = (name) => read(name).trim().split("\n").map((line) => JSON.parse(line));
  const { items } = JSON.parse(read("trie.json"));
  const prompts = lines("prompts.jsonl");
  const expected = prompts.map(({ id }) => lines("beams.jsonl").find((line) => line.id === id && line.beams === 4));
  for (const kernel of kernels) {
    const outcome = await page.call(async (kernel, prompts, items) => {
      const decoder = await rewire.Decoder.load("decoder.rewire", { kernel });
      const found = await decoder.generate(prompts, { items, numBeams: 4 });
      const heard = [];
      const onToken = (prompt, tokens) => heard.push([prompt, tokens.length]) && prompt !== 0;
      const drawn = await decoder.generate([[3, 1, 7], [9]], { maxNewTokens: 3, onToken });
      const stop = new AbortController();
      const long = { maxNewTokens: 5000, signal: stop.signal, onToken: () => stop.abort() };
      const aborted = await decoder.generate([[3, 1, 7]], long).then(() => "no error", (error) => error.name);
      const codes = [await codeOf(decoder.generate([[400]])), await codeOf(decoder.generate([[1]], { beams: 3 }))];
      const after = await decoder.generate([[9]], { maxNewTokens: 3 });
      const { vocabSize } = decoder.about;
      decoder.dispose();
      return { found, drawn, same: JSON.stringify(after[0]) === JSON.stringify(drawn[1]), heard: heard.length, aborted, codes, vocabSize };
    }, kernel, prompts.map(({ tokens }) => tokens), items);
    const { found, drawn, heard, ...rest } = outcome;
    for (const [n, one] of found.entries()) {
      assert.deepEqual(one.map(({ tokens }) => tokens), expected[n].items);
      one.forEach(({ score }, k) => assert.ok(Math.abs(score - expected[n].scores[k]) < 1e-4, `${score}`));
    }
    assert.ok(drawn[0].length === 0 && drawn[1][0].tokens.length === 3 && heard >= 4, JSON.stringify({ drawn, heard }));
    assert.deepEqual(rest, { same: true, aborted: "AbortError", codes: ["generate.token", "option"], vocabSize: 400 });
  }
}

export async function aModelRunsOnNamedTensors(page) {
  const outcome = await page.call(async () => {
    const model = await rewire.Model.load("model.pt2.rewire", { kernel: "cpu" });
    const { name, dtype, shape } = model.about.inputs[0];
    const data = Float32Array.from({ length: 48 }, (_, n) => Math.sin(n));
    const whole = Object.values(await model.run({ [name]: { data, shape: [3, 16] } }))[0];
    const last = Object.values(await model.run({ [name]: { data: data.subarray(32), shape: [1, 16] } }))[0];
    const codes = {
      name: await codeOf(model.run({ other: data })),
      type: await codeOf(model.run({ [name]: { data: new Int32Array(16), shape: [1, 16] } })),
      shape: await codeOf(model.run({ [name]: { data, shape: [3, 17] } })),
      none: await codeOf(model.run({ [name]: [1, 2] })),
    };
    const described = await model.describe();
    model.dispose();
    return { dtype, axes: shape.length, result: [whole.dtype, whole.shape], same: whole.data.slice(8).join() === last.data.join(), kept: data.length, codes, described };
  });
  const { described, ...rest } = outcome;
  assert.match(described, /: f32 \[/);
  assert.deepEqual(rest, {
    dtype: "f32",
    axes: 2,
    result: ["f32", [3, 4]],
    same: true,
    kept: 48,
    codes: { name: "run.unknown_name", type: "rank.tensor_type", shape: "request.tensor", none: "request.tensor" },
  });
}
