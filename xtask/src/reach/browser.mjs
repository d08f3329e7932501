// The page and its library in headless Chromium: `node browser.mjs ADDRESS`.

import { strict as assert } from "node:assert";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { aModelRunsOnNamedTensors, asksThatWaitGoTogether, theCpuAnswersUntilWebGpuIsReady, whatIsAbortedEnds } from "./browser_models.mjs";
import { Chromium } from "./chromium.mjs";

const TOLERANCE = 2e-4;
const ROOT = new URL("../../../", import.meta.url);

const lines = (name) =>
  readFileSync(new URL(`crates/cli/demo/${name}`, ROOT), "utf8").trim().split("\n").map((line) => JSON.parse(line));
const [users, expected] = [lines("interactions.jsonl"), lines("expected.jsonl")];

/** What tests share: the library, users, and workers in which something goes wrong. */
async function prepare() {
  window.rewire = await import("./rewire.js");
  const text = await (await fetch("users.jsonl")).text();
  window.users = text.trim().split("\n").map((line) => JSON.parse(line));
  const Plain = window.Worker;
  // `auto` takes no adapter of software.
  const hardware = () => Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false });
  hardware();
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

async function scoresAreTheReferences(page) {
  for (const kernel of ["cpu", "wgpu"]) {
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

async function mistakesAreErrorsWithCodes(page) {
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

async function tablesArePredicted(page) {
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

async function aRejectedKernelIsAnError(page) {
  const outcome = await page.call(async () => {
    const broken = () => {
      const make = GPUDevice.prototype.createShaderModule;
      GPUDevice.prototype.createShaderModule = function (descriptor) {
        return make.call(this, { ...descriptor, code: descriptor.code.replace("fn main(", "fn other(") });
      };
    };
    const auto = await faulty(broken, { kernel: "auto" });
    await auto.settled;
    const ranked = await auto.rank(users.slice(2, 4));
    const { gpuSteps, cpuSteps } = await auto.report();
    auto.dispose();
    return { code: await codeOf(faulty(broken, { kernel: "wgpu" })), ranked, gpuSteps, cpuSteps };
  });
  assert.ok(["device.rejected", "load.step"].includes(outcome.code), outcome.code);
  assert.equal(outcome.gpuSteps, 0);
  assert.ok(outcome.cpuSteps > 0 && outcome.ranked.length === 2);
}

async function kernelsAreMadeBesideOtherWork(page) {
  const outcome = await page.call(async () => {
    const counting = () => {
      const counts = { createComputePipeline: 0, createComputePipelineAsync: 0 };
      for (const name of Object.keys(counts)) {
        const make = GPUDevice.prototype[name];
        GPUDevice.prototype[name] = function (descriptor) {
          counts[name]++;
          return make.call(this, descriptor);
        };
      }
      const channel = new BroadcastChannel("counts");
      channel.onmessage = () => channel.postMessage(counts);
    };
    const ranker = await faulty(counting, { kernel: "wgpu" });
    const beside = JSON.stringify(await ranker.rank(users.slice(0, 2)));
    const channel = new BroadcastChannel("counts");
    const counted = new Promise((resolve) => (channel.onmessage = ({ data }) => resolve(data)));
    channel.postMessage("ask");
    const counts = await counted;
    const { gpuSteps } = await ranker.report();
    ranker.dispose();
    // A browser that has no such method.
    const atOnce = await faulty(() => delete GPUDevice.prototype.createComputePipelineAsync, { kernel: "wgpu" });
    const same = JSON.stringify(await atOnce.rank(users.slice(0, 2))) === beside;
    atOnce.dispose();
    return { counts, gpuSteps, same };
  });
  const { createComputePipeline, createComputePipelineAsync } = outcome.counts;
  assert.equal(createComputePipeline, 0);
  assert.ok(createComputePipelineAsync > 0 && createComputePipelineAsync <= outcome.gpuSteps, JSON.stringify(outcome));
  assert.ok(outcome.same);
}

async function aLostDeviceRecovers(page) {
  const outcome = await page.call(async () => {
    const losing = () => {
      const open = GPUAdapter.prototype.requestDevice;
      let device;
      let refuses = false;
      GPUAdapter.prototype.requestDevice = async function (descriptor) {
        if (refuses) throw new DOMException("there is no device any more", "OperationError");
        return (device = await open.call(this, descriptor));
      };
      new BroadcastChannel("lose").onmessage = ({ data }) => {
        refuses = data === "for good";
        device.destroy();
      };
    };
    const channel = new BroadcastChannel("lose");
    const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
    const scores = async (ranker) => JSON.stringify(await ranker.rank(users.slice(0, 40)));

    const ranker = await faulty(losing, { kernel: "wgpu" });
    const whole = await scores(ranker);
    const isSame = (result) => result.then((text) => text === whole, (error) => error.message);
    channel.postMessage("once");
    await pause();
    const same = [await isSame(scores(ranker))];
    // In the middle of a run.
    const running = isSame(scores(ranker));
    channel.postMessage("once");
    same.push(await running);
    await pause();
    same.push(await isSame(scores(ranker)));
    channel.postMessage("for good");
    await pause();
    const forGood = await codeOf(ranker.rank(users.slice(0, 1)));
    ranker.dispose();

    const auto = await faulty(losing, { kernel: "auto" });
    await auto.settled;
    await auto.rank(users.slice(0, 40));
    const steps = [(await auto.report()).gpuSteps > 0];
    channel.postMessage("for good");
    await pause();
    const onCpu = await auto.rank(users.slice(0, 40)).then((ranked) => ranked.length, (error) => error.message);
    steps.push((await auto.report()).gpuSteps > 0);
    auto.dispose();

    // Before the first run.
    const fresh = await faulty(losing, { kernel: "auto" });
    await fresh.settled;
    channel.postMessage("for good");
    await pause();
    const first = await fresh.rank(users.slice(0, 40)).then((ranked) => ranked.length, (error) => error.message);
    fresh.dispose();
    return { same, forGood, onCpu, first, steps };
  });
  const expected = { same: [true, true, true], forGood: "device.lost", onCpu: 40, first: 40, steps: [true, false] };
  assert.deepEqual(outcome, expected);
}

async function threadsOfTheCpuRankAsOneDoes(page) {
  const outcome = await page.call(async () => {
    const timed = async (ranker) => {
      await ranker.rank(users.slice(0, 8));
      const begun = performance.now();
      const ranked = JSON.stringify(await ranker.rank(users));
      const [time, { threads, cpuSteps }] = [performance.now() - begun, await ranker.report()];
      ranker.dispose();
      return { ranked, time, threads, cpuSteps };
    };
    const several = await timed(await rewire.Ranker.load("demo.rewire", { kernel: "cpu" }));
    const alone = await timed(await faulty(() => Object.defineProperty(self, "crossOriginIsolated", { value: false }), { kernel: "cpu" }));
    const failing = () => {
      const fails = `self.onmessage = ({ data: { failures } }) => new BroadcastChannel(failures).postMessage("it fell")`;
      const helper = URL.createObjectURL(new Blob([fails], { type: "text/javascript" }));
      const Plain = self.Worker;
      self.Worker = class extends Plain {
        constructor() {
          super(helper);
        }
      };
    };
    const ranker = await faulty(failing, { kernel: "cpu" }).catch((error) => error);
    const pause = new Promise((resolve) => setTimeout(resolve, 200));
    const fallen = ranker instanceof rewire.RewireError ? ranker.code : await pause.then(() => codeOf(ranker.rank(users.slice(0, 1))));
    return { same: several.ranked === alone.ranked, several, alone, fallen, processors: navigator.hardwareConcurrency };
  });
  const { same, several, alone, fallen, processors } = outcome;
  console.log(`${several.threads} threads rank all users in ${several.time.toFixed(0)} ms, one in ${alone.time.toFixed(0)}`);
  assert.ok(same && several.cpuSteps > 0);
  assert.equal(alone.threads, 1);
  const isBuilt = existsSync(new URL("target/page/rewire_web_threads.js", ROOT));
  assert.equal(several.threads, isBuilt ? processors : 1);
  assert.equal(fallen, isBuilt && processors > 1 ? "crashed" : "no error");
}

async function thePageRanksAHistoryThatIsClickedTogether(page) {
  const shown = await page.call(async () => {
    const until = async (count) => {
      for (let turn = 0; ["wgpu", "cpu"].some((kernel) => document.body.dataset[kernel] !== count); turn++) {
        if (turn > 6000) throw new Error(`the page shows ${JSON.stringify(document.body.dataset)}: ${document.getElementById("error").textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const titles = (id) => [...document.querySelectorAll(`#${id} .title`)].map(({ textContent }) => textContent);
      return { history: titles("history"), candidates: titles("candidates") };
    };
    const user = document.getElementById("user");
    while (user.disabled) await new Promise((resolve) => setTimeout(resolve, 50));
    user.value = 17;
    user.dispatchEvent(new Event("change"));
    const count = users[17].history.item_id.length;
    const before = await until(String(count));
    const film = document.getElementById("film");
    film.value = "animation";
    film.dispatchEvent(new Event("input"));
    document.querySelector("#films button").click();
    const added = await until(String(count + 1));
    document.querySelector("#history button").click();
    const removed = await until(String(count));
    const times = [...document.querySelectorAll("#times dd")].map(({ textContent }) => textContent);
    return { before, added, removed, times, error: document.getElementById("error").textContent };
  });
  const { before, added, removed, times, error } = shown;
  assert.equal(error, "");
  assert.match(added.history[0], /^Animation film/);
  assert.notDeepEqual(added.candidates, before.candidates);
  assert.deepEqual(removed, before);
  assert.ok(times.every((time) => /^[\d.]+ ms$/.test(time)), times.join());
}

/** The program of the README, which is served as `readme.js`, and bundled where there is a bundler. */
async function theProgramOfTheReadmePrintsItsScores(page) {
  const readme = readFileSync(new URL("README.md", ROOT), "utf8");
  const programs = ["readme.js", "bundled.js"].filter((name) => existsSync(new URL(`target/page/${name}`, ROOT)));
  for (const program of programs) {
    const printed = await page.call(async (program) => {
      const [lines, log] = [[], console.log];
      console.log = (...values) => lines.push(values.join(" "));
      await import(`./${program}`).finally(() => (console.log = log));
      return lines.map((line) => `${line}\n`).join("");
    }, program);
    assert.equal(printed, readme.split("```text scores\n")[1].split("```")[0], program);
  }
}

/** The page in a browser that has WebGPU and no adapter. */
async function withoutAnAdapterThePageTakesTheCpu(page) {
  const shown = await page.call(async () => {
    const html = await (await fetch("index.html")).text();
    const fault = "GPU.prototype.requestAdapter = async () => null";
    const frame = document.createElement("iframe");
    frame.srcdoc = html.replace("<script", `<base href="${location}"><script>${fault}</script><script`);
    document.body.append(frame);
    for (let turn = 0; !(frame.contentDocument?.body?.dataset.cpu > 0); turn++) {
      if (turn > 1200) throw new Error("the page shows nothing");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const text = (selector) => frame.contentDocument.querySelector(selector).textContent;
    const shown = { wgpu: text("[data-kernel=wgpu] dd"), cpu: text("[data-kernel=cpu] dd"), error: text("#error") };
    frame.remove();
    return shown;
  });
  assert.match(shown.cpu, /^[\d.]+ ms$/);
  assert.deepEqual([shown.wgpu, shown.error], ["not to be had", ""]);
}

/** The page and its library in a browser without WebGPU. */
async function withoutWebGpuThePageTakesTheCpu() {
  const plain = await Chromium.open(process.argv[2], { webgpu: false });
  try {
    const shown = await plain.call(async () => {
      for (let turn = 0; !(document.body?.dataset.cpu > 0); turn++) {
        if (turn > 1200) throw new Error(`the page shows nothing: ${document.getElementById("error")?.textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const adapter = await navigator.gpu?.requestAdapter();
      return { hasAdapter: !!adapter, cpu: document.querySelector("[data-kernel=cpu] dd").textContent, error: document.getElementById("error").textContent };
    });
    assert.match(shown.cpu, /^[\d.]+ ms$/);
    assert.deepEqual([shown.hasAdapter, shown.error, plain.uncaught], [false, "", []]);
  } finally {
    await plain.close();
  }
}

const TESTS = [
  thePageRanksAHistoryThatIsClickedTogether,
  scoresAreTheReferences,
  threadsOfTheCpuRankAsOneDoes,
  mistakesAreErrorsWithCodes,
  tablesArePredicted,
  aRejectedKernelIsAnError,
  kernelsAreMadeBesideOtherWork,
  aLostDeviceRecovers,
  theProgramOfTheReadmePrintsItsScores,
  withoutAnAdapterThePageTakesTheCpu,
  withoutWebGpuThePageTakesTheCpu,
  theCpuAnswersUntilWebGpuIsReady,
  whatIsAbortedEnds,
  asksThatWaitGoTogether,
  aModelRunsOnNamedTensors,
];

const page = await Chromium.open(process.argv[2]);
let failed = 0;
try {
  const library = new URL("target/page/rewire_web_bg.wasm", ROOT);
  const compressed = gzipSync(readFileSync(library), { level: 9 }).length;
  console.log(`the library has ${statSync(library).size} bytes, ${compressed} with gzip`);
  await page.call(prepare);
  for (const test of TESTS) {
    const fault = await test(page).then(() => null, (error) => error);
    console.log(`${test.name}: ${fault ? fault.stack : "ok"}`);
    failed += fault ? 1 : 0;
  }
  assert.deepEqual(page.uncaught, []);
  writeFileSync(new URL("target/page.png", ROOT), await page.screenshot());
} finally {
  await page.close();
}
process.exitCode = failed ? 1 : 0;
