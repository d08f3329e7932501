// One model, away from the page's thread: takes `{ id, method, args }` and answers `{ id, value }`, `{ id, error }` or `{ id, progress }`.

import init, { Model } from "./rewire_web.js";

const library = init();
// A library that does not load is an answer to whoever asks.
library.catch(() => {});
let model;

const methods = {
  async open({ source, kernel }, progress) {
    const begun = performance.now();
    const [bytes] = await Promise.all([typeof source === "string" ? fetched(source, progress) : source, library]);
    const arrived = performance.now();
    model = await Model.open(new Uint8Array(bytes), kernel);
    return { ...report(), milliseconds: { arrived: arrived - begun, opened: performance.now() - arrived } };
  },
  rank: ({ lines }) => model.rank(lines),
  rankColumns: ({ columns }) => model.rankColumns(columns),
  report,
};

function report() {
  return JSON.parse(model.report());
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
