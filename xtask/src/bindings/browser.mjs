// The page and its library in headless Chromium: `node browser.mjs ADDRESS`.

import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync } from "node:zlib";
import { exportedModelsGiveTheResultsOfPyTorch } from "./browser_exported.mjs";
import { aDecoderGeneratesItems, aModelRunsOnNamedTensors, asksThatWaitGoTogether, theCpuAnswersUntilWebGpuIsReady, whatIsAbortedEnds } from "./browser_models.mjs";
import { ROOT, mistakesAreErrorsWithCodes, prepare, scoresAreTheReferences, tablesArePredicted } from "./browser_scores.mjs";
import {
  everyoneCanUseThePage,
  thePageRanksAHistoryThatIsClickedTogether,
  theKeyboardIsEnough,
  withoutAnAdapterThePageTakesTheCpu,
  withoutWebGpuThePageTakesTheCpu,
} from "./browser_page.mjs";
import { Chromium } from "./chromium.mjs";

/** Bytes of the modules at most, with gzip: of the page's, and of the one for `Predictor` and `Model`. */
const MOST = { rewire_web: 800_000, rewire_web_models: 850_000 };

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
      counts.looks = 0;
      const submit = GPUQueue.prototype.submit;
      GPUQueue.prototype.submit = function (commands) {
        counts.looks += commands.length ? 0 : 1;
        return submit.call(this, commands);
      };
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
  const { createComputePipeline, createComputePipelineAsync, looks } = outcome.counts;
  // Results do not wait for the browser to look whether work has ended.
  assert.ok(looks > 0);
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
      const channel = new BroadcastChannel("lose");
      channel.onmessage = async ({ data }) => {
        refuses = data === "for good";
        const { lost } = device;
        device.destroy();
        await lost;
        channel.postMessage("lost");
      };
    };
    const channel = new BroadcastChannel("lose");
    const lose = (how) => {
      const lost = new Promise((resolve) => (channel.onmessage = resolve));
      channel.postMessage(how);
      return lost;
    };
    const scores = async (ranker) => JSON.stringify(await ranker.rank(users.slice(0, 40)));

    const ranker = await faulty(losing, { kernel: "wgpu" });
    const whole = await scores(ranker);
    const isSame = (result) => result.then((text) => text === whole, (error) => error.message);
    await lose("once");
    const same = [await isSame(scores(ranker))];
    // In the middle of a run.
    const running = isSame(scores(ranker));
    const lost = lose("once");
    same.push(await running);
    await lost;
    same.push(await isSame(scores(ranker)));
    await lose("for good");
    const forGood = await codeOf(ranker.rank(users.slice(0, 1)));
    ranker.dispose();

    const auto = await faulty(losing, { kernel: "auto" });
    await auto.settled;
    await auto.rank(users.slice(0, 40));
    const steps = [(await auto.report()).gpuSteps > 0];
    await lose("for good");
    const onCpu = await auto.rank(users.slice(0, 40)).then((ranked) => ranked.length, (error) => error.message);
    steps.push((await auto.report()).gpuSteps > 0);
    auto.dispose();

    // Before the first run.
    const fresh = await faulty(losing, { kernel: "auto" });
    await fresh.settled;
    await lose("for good");
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

/** The other programs of the page, which are served as `programs.js`. */
async function theProgramsOfThePageRun(page) {
  const outcome = await page.call(async () => {
    const { ranked, scores, y, found } = await import("./programs.js");
    return { items: ranked.candidates.map(({ item }) => item), scores: [...scores.scores], shape: y.shape, found: found.map(({ items }) => items.length) };
  });
  assert.deepEqual(outcome.items, [12, 99, 5]);
  assert.ok([0.408, 0.317, 0.185].every((score, n) => Math.abs(outcome.scores[n] - score) < 1e-3), outcome.scores);
  assert.deepEqual(outcome.shape, [2, 4]);
  assert.ok(outcome.found.length > 0 && outcome.found.every((count) => count > 0));
}

async function theLibraryIsSmall() {
  // The standard library was compiled with it where there is one with threads, and is larger otherwise.
  const isSmall = existsSync(new URL("target/page/rewire_web_threads.js", ROOT));
  for (const [name, most] of Object.entries(MOST)) {
    const file = new URL(`target/page/${name}_bg.wasm`, ROOT);
    const library = readFileSync(file);
    // As servers and GNU gzip compress; Node's own zlib finds fewer matches, and its result is 1 % larger.
    const compressed = execFileSync("gzip", ["-9", "-c", file.pathname], { maxBuffer: library.length }).length;
    console.log(`${name} has ${library.length} bytes, ${compressed} with gzip, ${brotliCompressSync(library).length} with brotli`);
    assert.ok(!isSmall || compressed < most, `${name}: ${compressed} bytes`);
  }
}

const TESTS = [
  theLibraryIsSmall,
  thePageRanksAHistoryThatIsClickedTogether,
  theKeyboardIsEnough,
  everyoneCanUseThePage,
  scoresAreTheReferences,
  threadsOfTheCpuRankAsOneDoes,
  mistakesAreErrorsWithCodes,
  tablesArePredicted,
  aRejectedKernelIsAnError,
  kernelsAreMadeBesideOtherWork,
  aLostDeviceRecovers,
  theProgramOfTheReadmePrintsItsScores,
  theProgramsOfThePageRun,
  withoutAnAdapterThePageTakesTheCpu,
  withoutWebGpuThePageTakesTheCpu,
  theCpuAnswersUntilWebGpuIsReady,
  whatIsAbortedEnds,
  asksThatWaitGoTogether,
  aDecoderGeneratesItems,
  aModelRunsOnNamedTensors,
  exportedModelsGiveTheResultsOfPyTorch,
];

const page = await Chromium.open(process.argv[2]);
let failed = 0;
try {
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
