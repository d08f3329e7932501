// The library in Firefox without a window: `node browser_firefox.mjs`.

import { strict as assert } from "node:assert";
import { fileURLToPath } from "node:url";
import { exportedModelsGiveTheResultsOfPyTorch } from "./browser_exported.mjs";
import { aModelRunsOnNamedTensors, asksThatWaitGoTogether, whatIsAbortedEnds } from "./browser_models.mjs";
import { ROOT, mistakesAreErrorsWithCodes, prepare, scoresAreTheReferences, tablesArePredicted } from "./browser_scores.mjs";
import { Firefox } from "./firefox.mjs";

const page = await Firefox.open(fileURLToPath(new URL("target/page", ROOT)));
let failed = 0;
try {
  await page.call(prepare);
  const adapter = await page.call(() => navigator.gpu?.requestAdapter().then((adapter) => adapter && [...adapter.features].join(", ")));
  console.log(`Firefox: ${adapter ? `WebGPU with ${adapter}` : "no adapter"}`);
  const kernels = adapter ? ["cpu", "wgpu"] : ["cpu"];
  const TESTS = [
    scoresAreTheReferences,
    exportedModelsGiveTheResultsOfPyTorch,
    mistakesAreErrorsWithCodes,
    tablesArePredicted,
    whatIsAbortedEnds,
    asksThatWaitGoTogether,
    aModelRunsOnNamedTensors,
  ];
  for (const test of TESTS) {
    const fault = await test(page, kernels).then(() => null, (error) => error);
    console.log(`Firefox, ${test.name}: ${fault ? fault.stack : "ok"}`);
    failed += fault ? 1 : 0;
  }
  assert.deepEqual(page.uncaught, []);
} finally {
  await page.close();
}
process.exitCode = failed ? 1 : 0;
