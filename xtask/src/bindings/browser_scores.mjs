// What the library computes in a page, against the reference's scores. `page` has what `prepare` leaves there.

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";

const TOLERANCE = 2e-4;
export const ROOT = new URL("../../../", import.meta.url);

const lines = (name) =>
  readFileSync(new URL(`crates/cli/demo/${name}`, ROOT), "utf8").trim().split("\n").map((line) => JSON.parse(line));
export const [users, expected] = [lines("interactions.jsonl"), lines("expected.jsonl")];

/** What tests share: the library, users, and workers in which something goes wrong. */
export async function prepare() {
  window.rewire = await import("./rewire.js");
  const text = await (await fetch("users.jsonl")).text();
  window.users = text.trim().split("\n").map((line) => JSON.parse(line));
  const Plain = window.Worker;
  // `auto` takes no adapter of software.
  const hardware = () => Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false });
  if (navigator.gpu) hardware();
  /** Opens a ranker in a worker that runs `fault` before its own module, and takes SwiftShader for hardware. */
  window.faulty = (fault, options) => {
    const module = (code) => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    window.Worker = class extends Plain {
      constructor(address) {
        const own = module(`(${hardware})(); (${fault})()`);
        super(module(`import "${own}"; import "${address}";`), { type: "module" });
      }
    };
    const loaded = rewire.Ranker.load("demo.rewire", options);
    const settled = loaded.then((ranker) => ranker.settled);
    settled.catch(() => {}).finally(() => (window.Worker = Plain));
    return loaded;
  };
  /** The code of an error that has to come. */
  window.codeOf = (promise) =>
    promise.then(
      () => "no error",
      (error) => (error instanceof rewire.RewireError && error.message ? error.code : `no RewireError: ${error}`),
    );
}

/** Ranks all users on a kernel, and some alone and as typed arrays. */
async function rankAll(kernel) {
  let progress = 0;
  const ranker = await rewire.Ranker.load("demo.rewire", { kernel, onProgress: ({ loaded, total }) => (progress = loaded / total) });
  const times = [];
  const timed = async (work) => {
    const begun = performance.now();
    const result = await work();
    times.push(performance.now() - begun);
    return result;
  };
  let [latest, longest] = [performance.now(), 0];
  const watch = setInterval(() => {
    longest = Math.max(longest, performance.now() - latest);
    latest = performance.now();
  }, 5);
  await timed(() => ranker.rank(users.slice(2, 3)));
  await timed(() => ranker.rank(users.slice(2, 3)));
  const all = await timed(() => ranker.rank(users));
  clearInterval(watch);

  const of = (name) => ({
    offsets: Uint32Array.from([0, ...users.map(({ [name]: group }) => group.item_id.length)].map(((sum) => (n) => (sum += n))(0))),
  });
  const lists = (name) => {
    const { offsets } = of(name);
    const columns = Object.keys(users[0][name]);
    const values = (column) => BigInt64Array.from(users.flatMap((user) => user[name][column]).map(BigInt));
    return Object.fromEntries(columns.map((column) => [column, { offsets, values: values(column) }]));
  };
  const contextual = (name) => Int32Array.from(users.map((user) => user[name]));
  const columns = await ranker.rankColumns({
    users: users.map(({ user }) => user),
    contextual: { age_bucket: contextual("age_bucket"), country: contextual("country") },
    history: lists("history"),
    candidates: lists("candidates"),
  });
  const flat = all.flatMap(({ candidates }) => candidates);
  const sameColumns = flat.every(({ item, score }, n) => Number(columns.items[n]) === item && columns.scores[n] === score);
  const alone = [];
  for (const at of [0, 2, 17, 255]) alone.push(...(await ranker.rank([users[at]])));
  const sameAlone = alone.every((one) => JSON.stringify(one) === JSON.stringify(all.find(({ user }) => user === one.user)));
  const report = await ranker.report();
  ranker.dispose();
  const after = await codeOf(ranker.rank(users.slice(0, 1)));
  return { all, progress, times, longest, sameColumns: sameColumns && flat.length === columns.items.length, sameAlone, report, opened: ranker.about.milliseconds, after };
}

/** The largest difference of a logit to the reference's. */
function difference(all) {
  assert.equal(all.length, users.length);
  let largest = 0;
  all.forEach(({ user, candidates }, n) => {
    assert.equal(user, users[n].user);
    assert.equal(candidates.length, users[n].candidates.item_id.length);
    candidates.forEach(({ item, position, logits, score }, rank) => {
      assert.equal(item, users[n].candidates.item_id[position]);
      assert.ok(rank === 0 || candidates[rank - 1].score >= score);
      for (const task of ["is_click", "is_like"]) {
        largest = Math.max(largest, Math.abs(logits[task] - expected[n][task][position]));
      }
    });
  });
  return largest;
}

export async function scoresAreTheReferences(page, kernels = ["cpu", "wgpu"]) {
  for (const kernel of kernels) {
    const { all, progress, times, longest, report, opened, ...same } = await page.call(rankAll, kernel);
    const largest = difference(all);
    const [first, second, whole] = times.map((time) => time.toFixed(1));
    console.log(
      `${kernel}: ${report.adapter ?? "cpu"}, ${report.gpuSteps} + ${report.cpuSteps} kernels, library and package after ` +
        `${opened.arrived.toFixed(0)} ms, opened in ${opened.opened.toFixed(0)}, first scores in ${first}, then ${second}, all in ${whole}; ` +
        `the page waited ${longest.toFixed(0)} at most; largest difference ${largest.toExponential(2)}`,
    );
    assert.ok(largest < TOLERANCE, `${kernel}: ${largest}`);
    assert.deepEqual(same, { sameColumns: true, sameAlone: true, after: "disposed" });
    assert.equal(progress, 1);
    assert.equal(report.kernel, kernel);
    assert.equal(kernel === "cpu" ? report.gpuSteps : report.cpuSteps, 0);
  }
}

export async function mistakesAreErrorsWithCodes(page) {
  const codes = await page.call(async () => {
    const { Ranker } = rewire;
    const bytes = new Uint8Array(await (await fetch("demo.rewire")).arrayBuffer());
    const changed = bytes.slice();
    changed[changed.length >> 1] ^= 1;
    const ranker = await Ranker.load(bytes.buffer, { kernel: "cpu" });
    const { candidates, ...rest } = users[2];
    const codes = {
      address: await codeOf(Ranker.load("none.rewire")),
      kernel: await codeOf(Ranker.load(bytes.buffer, { kernel: "npu" })),
      cut: await codeOf(Ranker.load(bytes.slice(0, -1).buffer)),
      changed: await codeOf(Ranker.load(changed.buffer)),
      other: await codeOf(Ranker.load(new ArrayBuffer(64))),
      missing: await codeOf(ranker.rank([rest])),
      range: await codeOf(ranker.rank([{ ...rest, candidates: { ...candidates, item_id: candidates.item_id.map(() => 1 << 20) } }])),
      text: await codeOf(ranker.rank([7])),
      arrays: await codeOf(ranker.rankColumns({ users: ["u"], contextual: { country: [1] } })),
      users: await codeOf(ranker.rankColumns({})),
      columns: await codeOf(ranker.rankColumns({ users: ["u"], contextual: { country: new Int32Array(2) } })),
    };
    const example = (await ranker.describe()).split("\n").pop();
    const [described] = await ranker.rank([JSON.parse(example)]);
    const [{ candidates: left }] = await ranker.rank([users[2]]);
    ranker.dispose();
    return { ...codes, described: described.candidates.length > 0, left: left.length };
  });
  assert.deepEqual(codes, {
    address: "fetch",
    kernel: "option",
    cut: "package.length",
    changed: "package.changed",
    other: "package.not_package",
    missing: "rank.request",
    described: true,
    range: "rank.request",
    text: "request.text",
    arrays: "request.columns",
    users: "request.columns",
    columns: "request.columns",
    left: users[2].candidates.item_id.length,
  });
}

export async function tablesArePredicted(page) {
  const outcome = await page.call(async () => {
    const { predictor, counts, columns } = await import("./predict.js");
    const table = {
      user: BigInt64Array.of(1n, 2n, 3n),
      price: [0.5, 1.5, 2.5],
      tags: [[1], Int32Array.of(2, 3), []],
      clicks: { offsets: Uint32Array.of(0, 2, 2, 3), keys: Int32Array.of(1, 2, 3), values: Float32Array.of(0.5, 2, 1) },
    };
    const { columns: typed } = await predictor.predict(table);
    const codes = {
      missing: await codeOf(predictor.predict({ ...table, user: undefined })),
      rows: await codeOf(predictor.predict({ ...table, user: [1] })),
      beyond: await codeOf(predictor.predict({ ...table, user: [1, 2, 4] })),
      kind: await codeOf(predictor.predict({ ...table, user: [[1], 2, 3] })),
      offsets: await codeOf(predictor.predict({ ...table, tags: 7 })),
      other: await codeOf(rewire.Predictor.load("demo.rewire", { kernel: "cpu" })),
    };
    const example = JSON.parse((await predictor.describe()).split("\n").pop());
    const row = Object.fromEntries(Object.entries(example).map(([name, value]) => [name, [value]]));
    const described = await predictor.predict(row);
    const { about } = predictor;
    predictor.dispose();
    const after = await codeOf(predictor.predict(table));
    return { counts: [...counts], logits: [...columns.logits], typed: [...typed.logits], codes, described: [...described.counts], reads: about.columns, after };
  });
  // Every parameter is 1, and a table has four columns.
  assert.deepEqual(outcome.counts, [1, 1, 1]);
  assert.deepEqual(outcome.logits, [4 * 4.5 + 0.5, 4 * 3 + 1.5, 4 * 1 + 2.5]);
  assert.deepEqual(outcome.typed, [4 * 4.5 + 0.5, 4 * 3 + 1.5, 4 * 2 + 2.5]);
  assert.deepEqual(outcome.codes, {
    missing: "rank.columns",
    rows: "request.columns",
    beyond: "rank.columns",
    kind: "request.columns",
    offsets: "request.columns",
    other: "rank.not_imported",
  });
  assert.deepEqual([outcome.described, outcome.reads, outcome.after], [[1], ["clicks", "price", "tags", "user"], "disposed"]);
}
