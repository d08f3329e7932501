// Runs a test program of the target wasm32-wasip1: node wasi.mjs FILE ARGUMENTS...
import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";
import { WASI } from "node:wasi";

const [, , file, ...rest] = argv;
const wasi = new WASI({ version: "preview1", args: [file, ...rest], preopens: { "/": "/" } });
const module = await WebAssembly.compile(await readFile(file));
const imports = wasi.getImportObject();
// What is linked for browsers and never called.
for (const { module: from, name } of WebAssembly.Module.imports(module)) {
  imports[from] ??= {};
  imports[from][name] ??= () => {
    throw new Error(`${from} has no ${name} here`);
  };
}
exit(wasi.start(await WebAssembly.instantiate(module, imports)));
