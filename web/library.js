// The compiled library, which all models of a page share.

import { RewireError } from "./connection.js";

/** Modules by class. */
const FILES = {
  Ranker: "./rewire_web_bg.wasm",
  Predictor: "./rewire_web_models_bg.wasm",
  Model: "./rewire_web_models_bg.wasm",
  Decoder: "./rewire_web_decoder_bg.wasm",
};

/** Promises of modules by address. */
const modules = new Map();

/**
 * The module for a class of models, compiled while it arrives; undefined if the worker compiles another one. Browsers cache the code of
 * modules that they compile this way.
 */
export function compiled(kind, kernel) {
  const hasThreads = kernel === "cpu" && kind !== "Decoder" && self.crossOriginIsolated;
  if (hasThreads) return undefined;
  const { href } = new URL(FILES[kind], import.meta.url);
  if (!modules.has(href)) {
    const module = compile(href);
    modules.set(href, module);
    module.catch(() => modules.delete(href));
  }
  return modules.get(href);
}

async function compile(address) {
  try {
    const response = await fetch(address);
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    const isStreamed = response.headers.get("content-type") === "application/wasm";
    return await (isStreamed ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer()));
  } catch (cause) {
    throw new RewireError({ code: "library", message: `cannot load ${address}: ${cause.message}` });
  }
}
