// One model, outside the page's thread. Receives `{ method, args }`; answers with `{ value }` or `{ error }`, after any
// `{ progress }`. `{ end }` ends a prompt, or all prompts.

let library;
let model;

/** Prompts to end; `null` ends all. */
let ended = new Set();

/** Milliseconds between checks for messages while tokens are generated. */
const PAUSE = 10;

const methods = {
  async library({ kind, kernel, failures }) {
    library = await (kernel === "cpu" && kind !== "Decoder" ? withThreads(kind, failures) : plain[kind]());
  },
  async open({ kind, bytes, module, kernel }) {
    await library.default({ module_or_path: module });
    const begun = performance.now();
    model = await library[kind].open(new Uint8Array(bytes), kernel);
    return { ...report(), opened: performance.now() - begun };
  },
  rank: ({ lines }) => model.rank(lines.join("\n")),
  rankColumns: ({ columns }) => model.rankColumns(columns),
  predict: ({ columns }) => model.predict(columns),
  run: ({ tensors }) => model.run(tensors),
  reset: () => model.reset(),
  generate,
  describe: () => model.describe(),
  report,
};

async function generate({ asked }) {
  ended = new Set();
  let looked = performance.now();
  const onToken = async (prompt, tokens) => {
    self.postMessage({ progress: { prompt, tokens: [...tokens] } });
    if (performance.now() - looked > PAUSE) {
      await new Promise((resolve) => setTimeout(resolve));
      looked = performance.now();
    }
    return !ended.has(prompt) && !ended.has(null);
  };
  return JSON.parse(await model.generate(JSON.stringify(asked), onToken));
}

function report() {
  return JSON.parse(model.report());
}

/** The libraries with one thread, by class. */
const plain = {
  Ranker: () => import("./rewire_web.js"),
  Predictor: () => import("./rewire_web_models.js"),
  Model: () => import("./rewire_web_models.js"),
  Decoder: () => import("./rewire_web_decoder.js"),
};

/** The library for the CPU, with threads if the page is isolated. */
async function withThreads(kind, failures) {
  const helpers = self.crossOriginIsolated ? navigator.hardwareConcurrency - 1 : 0;
  if (helpers < 1) return plain[kind]();
  try {
    return await started(helpers, failures);
  } catch (cause) {
    console.warn(`the CPU uses one thread: ${cause.message}`);
    return plain[kind]();
  }
}

async function started(helpers, failures) {
  const address = new URL("./rewire_web_threads_bg.wasm", import.meta.url);
  const [threaded, module] = await Promise.all([import("./rewire_web_threads.js"), WebAssembly.compileStreaming(fetch(address))]);
  const { memory } = await threaded.default({ module_or_path: module });
  const start = () =>
    new Promise((resolve) => {
      const helper = new Worker(new URL("./helper.js", import.meta.url), { type: "module" });
      // A helper that does not start is ignored.
      helper.onmessage = helper.onerror = resolve;
      helper.postMessage({ module, memory, failures });
    });
  await Promise.all(Array.from({ length: helpers }, start));
  return threaded;
}

/** The buffers of typed arrays in an answer, which are transferred to the page without a copy. */
function buffers(value) {
  if (ArrayBuffer.isView(value)) return [value.buffer];
  const isPlain = value !== null && typeof value === "object" && !Array.isArray(value);
  return isPlain ? Object.values(value).flatMap(buffers) : [];
}

self.onmessage = async ({ data: { method, args, end } }) => {
  if (end !== undefined) return ended.add(end);
  try {
    const value = await methods[method](args);
    self.postMessage({ value }, buffers(value));
  } catch (error) {
    // After a trap, the library's memory may be inconsistent.
    const crashed = error instanceof WebAssembly.RuntimeError;
    const code = crashed ? "crashed" : (error.code ?? "library");
    self.postMessage({ error: { code, message: error.message ?? String(error) } });
    if (crashed) self.close();
  }
};
