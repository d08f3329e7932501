// One model, away from the page's thread: takes `{ id, method, args }` and answers `{ id, value }`, `{ id, error }` or `{ id, progress }`.

let model;

const methods = {
  async open({ kind, source, kernel, failures }, progress) {
    const begun = performance.now();
    const [bytes, { [kind]: Model }] = await Promise.all([typeof source === "string" ? fetched(source, progress) : source, library(kernel, failures)]);
    const arrived = performance.now();
    model = await Model.open(new Uint8Array(bytes), kernel);
    return { ...report(), milliseconds: { arrived: arrived - begun, opened: performance.now() - arrived } };
  },
  rank: ({ lines }) => model.rank(lines),
  rankColumns: ({ columns }) => model.rankColumns(columns),
  predict: ({ columns }) => model.predict(columns),
  describe: () => model.describe(),
  report,
};

function report() {
  return JSON.parse(model.report());
}

/** The library: with threads where the model runs on the CPU and the page is isolated. */
async function library(kernel, failures) {
  const helpers = self.crossOriginIsolated ? navigator.hardwareConcurrency - 1 : 0;
  if (helpers > 0 && (kernel === "cpu" || (kernel === "auto" && !(await hasDevice())))) {
    try {
      return await withThreads(helpers, failures);
    } catch (cause) {
      console.warn(`the CPU runs one thread: ${cause.message}`);
    }
  }
  const plain = await import("./rewire_web.js");
  await plain.default();
  return plain;
}

/** True if there is a GPU that `auto` takes. */
async function hasDevice() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return !!adapter && !adapter.info?.isFallbackAdapter;
}

async function withThreads(helpers, failures) {
  const address = new URL("./rewire_web_threads_bg.wasm", import.meta.url);
  const [threaded, module] = await Promise.all([import("./rewire_web_threads.js"), WebAssembly.compileStreaming(fetch(address))]);
  const { memory } = await threaded.default({ module_or_path: module });
  const started = () =>
    new Promise((resolve) => {
      const helper = new Worker(new URL("./helper.js", import.meta.url), { type: "module" });
      // One that does not start is not waited for.
      helper.onmessage = helper.onerror = resolve;
      helper.postMessage({ module, memory, failures });
    });
  await Promise.all(Array.from({ length: helpers }, started));
  return threaded;
}

/** The bytes of an address, told of as they come. */
async function fetched(address, progress) {
  const response = await fetch(address).catch((cause) => fail("fetch", `cannot fetch ${address}: ${cause.message}`));
  if (!response.ok) fail("fetch", `cannot fetch ${address}: ${response.status} ${response.statusText}`);
  // A length of what was compressed on the way is not that of the bytes.
  const encoded = response.headers.has("content-encoding");
  const total = encoded ? null : Number(response.headers.get("content-length")) || null;
  const parts = [];
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    loaded += value.length;
    progress({ loaded, total });
  }
  return new Blob(parts).arrayBuffer();
}

function fail(code, message) {
  throw Object.assign(new Error(message), { name: "RewireError", code });
}

self.onmessage = async ({ data: { id, method, args } }) => {
  try {
    const value = await methods[method](args, (progress) => self.postMessage({ id, progress }));
    self.postMessage({ id, value });
  } catch (error) {
    // A trap leaves the library's memory as it was in the middle of something.
    const crashed = error instanceof WebAssembly.RuntimeError;
    const code = crashed ? "crashed" : (error.code ?? "library");
    self.postMessage({ id, error: { code, message: error.message ?? String(error) } });
    if (crashed) self.close();
  }
};
