// Models in workers, so that nothing blocks the page.

import { Connection, RewireError } from "./connection.js";
import { compiled } from "./library.js";
import { bytesOf } from "./source.js";

export { RewireError };

const KERNELS = ["auto", "wgpu", "cpu"];
const DISPOSED = { code: "disposed", message: "the model is disposed of" };

/** True if there is a GPU that `auto` can use. */
async function hasDevice() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return !!adapter && !adapter.info?.isFallbackAdapter;
}

/** The base class of all models. */
class Loaded {
  /** The name of the class in the library. */
  static kind;
  /** True for models without states: any worker may answer any call. */
  static hasNoState = true;
  #connection;
  #disposed = new AbortController();
  /** Properties of the model, and its device when it was loaded. */
  about;
  /** Resolves when the device is final: with kernel `auto` the CPU answers until WebGPU is ready. */
  settled = Promise.resolve();

  /**
   * Loads a package from a URL, a Blob, or bytes.
   *
   * `kernel` is `auto`, `wgpu` or `cpu`; `auto` uses WebGPU if the browser has it, and the CPU until WebGPU is ready or without it.
   * `onProgress` receives `{ loaded, total }` in bytes; `total` is null if it is unknown. `signal` aborts loading.
   */
  static async load(source, { kernel = "auto", signal, onProgress } = {}) {
    if (!KERNELS.includes(kernel)) throw new RewireError({ code: "option", message: `kernel: expected auto, wgpu or cpu, got \`${kernel}\`` });
    const model = new this();
    const onAbort = () => model.dispose();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      await model.#load(source, { kernel, signal, onProgress });
      return model;
    } catch (error) {
      model.dispose();
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #load(source, { kernel, signal, onProgress }) {
    signal?.throwIfAborted();
    const { hasNoState } = this.constructor;
    // The browser starts its GPU process while the library and the package arrive.
    const hasGpu = kernel === "cpu" ? Promise.resolve(false) : hasDevice();
    const bytes = bytesOf(source, { signal, onProgress });
    bytes.catch(() => {}); // reported by `#open`
    const first = kernel === "auto" && (hasNoState || !(await hasGpu)) ? "cpu" : kernel;
    const { connection, about } = await this.#open(bytes, first);
    [this.#connection, this.about] = [connection, about];
    if (kernel === "auto" && hasNoState) this.settled = hasGpu.then((found) => (found ? this.#takeOver(bytes) : undefined));
  }

  async #open(source, kernel) {
    const begun = performance.now();
    const connection = new Connection();
    const { signal } = this.#disposed;
    signal.addEventListener("abort", () => connection.end(DISPOSED));
    if (signal.aborted) connection.end(DISPOSED);
    try {
      const { kind } = this.constructor;
      const library = connection.ask("library", { kind, kernel, failures: connection.failures });
      const [bytes, module] = await Promise.all([source, compiled(kind, kernel), library]);
      const arrived = performance.now() - begun;
      const { opened, ...about } = await connection.ask("open", { kind, bytes, module, kernel });
      return { connection, about: { ...about, milliseconds: { arrived, opened } } };
    } catch (error) {
      connection.end(DISPOSED);
      throw error;
    }
  }

  /** Opens the package on the GPU, which answers all later calls. */
  async #takeOver(source) {
    try {
      const { connection, about } = await this.#open(source, "auto");
      if (!about.gpuSteps) return connection.end(DISPOSED);
      const cpu = this.#connection;
      [this.#connection, this.about] = [connection, about];
      // Earlier calls run first.
      cpu.ask("report").catch(() => {}).finally(() => cpu.end(DISPOSED));
    } catch (error) {
      if (!this.#disposed.signal.aborted) console.warn(`the CPU continues: ${error.message}`);
    }
  }

  /** Returns the device of the model. */
  _ask(method, args, options) {
    return this.#connection.ask(method, args, options);
  }

  /** A readable description of the model's inputs and outputs, with an example. */
  describe() {
    return this.#connection.ask("describe");
  }

  /** Properties of the model, and its current device. */
  report() {
    return this.#connection.ask("report");
  }

  /** Terminates the worker, with all running calls. */
  dispose() {
    this.#disposed.abort();
  }
}

/** Queued requests run as one batch, and each call gets its part of the scores. */
const RANKS = {
  join: (all) => ({ lines: all.flatMap(({ lines }) => lines) }),
  split(scores, all) {
    const { users, offsets, items, positions, scores: best, logits, droppedEvents } = scores;
    const tasks = items.length ? logits.length / items.length : 0;
    let begin = 0;
    return all.map(({ lines }) => {
      const end = begin + lines.length;
      const [from, to] = [offsets[begin], offsets[end]];
      const part = {
        users: users.slice(begin, end),
        offsets: offsets.slice(begin, end + 1).map((offset) => offset - from),
        items: items.slice(from, to),
        positions: positions.slice(from, to),
        scores: best.slice(from, to),
        logits: logits.slice(from * tasks, to * tasks),
        droppedEvents: droppedEvents.slice(begin, end),
      };
      begin = end;
      return part;
    });
  },
};

/** A model that ranks candidates for users. */
export class Ranker extends Loaded {
  static kind = "Ranker";

  /**
   * Ranks requests, objects in the format of `rewire rank`: `{ user, ...contextual, history: {...}, candidates: {...} }`. Returns for each
   * request `{ user, candidates: [{ item, position, score, logits: { task } }], droppedEvents }`, best candidate first.
   */
  async rank(requests, { signal } = {}) {
    const lines = requests.map((request) => JSON.stringify(request));
    const ranked = await this._ask("rank", { lines }, { signal, joined: RANKS });
    const { users, offsets, items, positions, scores, logits, droppedEvents } = ranked;
    const { tasks } = this.about;
    const candidate = (n) => ({
      item: Number(items[n]),
      position: positions[n],
      score: scores[n],
      logits: Object.fromEntries(tasks.map((task, t) => [task, logits[n * tasks.length + t]])),
    });
    return users.map((user, n) => ({
      user,
      candidates: Array.from({ length: offsets[n + 1] - offsets[n] }, (_, k) => candidate(offsets[n] + k)),
      droppedEvents: droppedEvents[n],
    }));
  }

  /**
   * Ranks requests given as typed arrays: `{ users, contextual: { name: values }, history: { name: { offsets, values } }, candidates }`,
   * with Int32Array, Uint32Array or BigInt64Array. Returns `{ users, offsets, items, positions, scores, logits, droppedEvents }`: the
   * candidates of user n, best first, are `offsets[n]` to `offsets[n + 1]`; there is one logit per candidate and task.
   */
  rankColumns(columns, { signal } = {}) {
    return this._ask("rankColumns", { columns }, { signal });
  }
}

/** A model imported from TorchEasyRec. */
export class Predictor extends Loaded {
  static kind = "Predictor";

  /**
   * Predicts the rows of a table: an object with one column per feature, by its full name. A column is a typed array; an array of numbers,
   * bigints, strings, null, arrays, or objects from ids to weights; lists `{ offsets, values }`, whose values may be lists again; or `{
   * offsets, keys, values }` with ids and weights. The list of row n is `offsets[n]` to `offsets[n + 1]`.
   *
   * Returns `{ counts, columns }`: the number of predictions per row of the table, and by the reference's name a Float32Array, or lists `{
   * offsets, values }` for classes and vectors.
   */
  predict(columns, { signal } = {}) {
    return this._ask("predict", { columns }, { signal });
  }
}

/** A model of any kind on named tensors. */
export class Model extends Loaded {
  static kind = "Model";
  static hasNoState = false;

  /**
   * Runs the model on tensors by name: a typed array with one axis, or `{ data, shape }`. Bools are a Uint8Array, 16-bit floats a
   * Uint16Array. Returns `{ name: { dtype, shape, data } }`. States keep their values for the next run.
   */
  run(tensors, { signal } = {}) {
    return this._ask("run", { tensors }, { signal });
  }

  /** Resets states to their initial values. */
  reset() {
    return this._ask("reset");
  }
}

/** The defaults of `generate`. */
const GENERATE = { items: null, numBeams: 10, maxNewTokens: 32, temperature: 0, topK: null, topP: 1, seed: 0, stop: [] };

/** A language model. */
export class Decoder extends Loaded {
  static kind = "Decoder";

  /**
   * The best sequences for each prompt, a list of tokens: `[{ tokens, score, items }]`, best first. With `items`, lists of tokens of any
   * length, it finds items by beam search with `numBeams` beams, and `items` of a result are indices. Without, it samples up to
   * `maxNewTokens` tokens; `temperature` 0 selects the most likely ones. After each token, `onToken` receives the index of a prompt and the
   * tokens of its best prefix; if it returns `false`, the prompt ends without a result. `signal` ends all prompts.
   */
  async generate(prompts, { signal, onToken = () => true, ...options } = {}) {
    const asked = { ...GENERATE, ...options, prompts: lists(prompts), items: options.items ? lists(options.items) : null };
    const ended = new Set();
    const onProgress = ({ prompt, tokens }, end) => {
      if (ended.has(prompt) || signal?.aborted || onToken(prompt, tokens) !== false) return;
      ended.add(prompt);
      end(prompt);
    };
    const found = await this._ask("generate", { asked }, { signal, onProgress });
    return found.map((found, prompt) => (ended.has(prompt) ? [] : found));
  }
}

/** Lists of numbers, from typed or plain arrays. */
function lists(all) {
  return all.map((list) => Array.from(list));
}
