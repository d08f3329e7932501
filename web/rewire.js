// Ranks in a worker, so that nothing blocks the page.

/** What went wrong: `code` stays the same from version to version, `message` is for people. */
export class RewireError extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = "RewireError";
    this.code = code;
  }
}

/** A model, ready to rank, in a worker of its own. */
export class Ranker {
  #worker;
  #asked = new Map();
  #asks = 0;
  #ended = null;
  /** Hears of threads that fail while the worker waits for them. */
  #failures = new BroadcastChannel(`rewire ${Math.random()}`);

  constructor() {
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#answered(data);
    this.#failures.onmessage = ({ data }) => this.#end({ code: "crashed", message: data });
    this.#worker.onerror = (event) => this.#end({ code: "library", message: event.message || "the worker does not load" });
  }

  /**
   * Opens a package: its address, or its bytes.
   *
   * `kernel` is `auto` (WebGPU where there is some, the CPU otherwise), `wgpu` or `cpu`; `onProgress` is told `{ loaded, total }` in
   * bytes, `total` null where it is not known.
   */
  static async open(source, { kernel = "auto", onProgress = () => {} } = {}) {
    const ranker = new Ranker();
    const address = typeof source === "string" || source instanceof URL;
    try {
      const from = address ? new URL(source, document.baseURI).href : source;
      ranker.about = await ranker.#ask("open", { source: from, kernel, failures: ranker.#failures.name }, onProgress);
      return ranker;
    } catch (error) {
      ranker.close();
      throw error;
    }
  }

  /**
   * Ranks requests, objects as lines of `rewire rank`: `{ user, ...contextual, history: {...}, candidates: {...} }`.
   * For each: `{ user, candidates: [{ item, position, score, logits: { task } }], droppedEvents }`, the best candidate first.
   */
  async rank(requests) {
    const lines = requests.map((request) => JSON.stringify(request)).join("\n");
    const { users, offsets, items, positions, scores, logits, droppedEvents } = await this.#ask("rank", { lines });
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
   * Ranks requests of typed arrays: `{ users, contextual: { name: values }, history: { name: { offsets, values } }, candidates }`, with
   * Int32Array, Uint32Array or BigInt64Array. Returns `{ users, offsets, items, positions, scores, logits, droppedEvents }`: the
   * candidates of user n, best first, are those from `offsets[n]` to `offsets[n + 1]`; logits are one a candidate and task.
   */
  rankColumns(columns) {
    return this.#ask("rankColumns", { columns });
  }

  /** What the model reads and gives, for people: features of requests with their ranges, tasks, and an example request as JSON. */
  describe() {
    return this.#ask("describe");
  }

  /** What it is and what runs it now. */
  report() {
    return this.#ask("report");
  }

  /** Ends it, with all that is under way. */
  close() {
    this.#end({ code: "closed", message: "the ranker is closed" });
  }

  #ask(method, args, onProgress) {
    if (this.#ended) return Promise.reject(new RewireError(this.#ended));
    const id = this.#asks++;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { resolve, reject, onProgress });
      this.#worker.postMessage({ id, method, args });
    });
  }

  #answered({ id, value, error, progress }) {
    const asked = this.#asked.get(id);
    if (progress) return asked?.onProgress?.(progress);
    this.#asked.delete(id);
    if (!error) return asked?.resolve(value);
    asked?.reject(new RewireError(error));
    if (error.code === "crashed") this.#end(error);
  }

  #end(error) {
    this.#ended ??= error;
    this.#worker.terminate();
    this.#failures.close();
    for (const { reject } of this.#asked.values()) reject(new RewireError(this.#ended));
    this.#asked.clear();
  }
}
