// Ranks and predicts in a worker, so that nothing blocks the page.

/** What went wrong: `code` stays the same from version to version, `message` is for people. */
export class RewireError extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = "RewireError";
    this.code = code;
  }
}

/** A model in a worker of its own. */
class Connection {
  #worker;
  #asked = new Map();
  #asks = 0;
  #ended = null;
  /** Hears of threads that fail while the worker waits for them. */
  #failures = new BroadcastChannel(`rewire ${Math.random()}`);

  constructor() {
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#answered(data);
    this.#failures.onmessage = ({ data }) => this.end({ code: "crashed", message: data });
    this.#worker.onerror = (event) => this.end({ code: "library", message: event.message || "the worker does not load" });
  }

  /** Opens a package of one kind: `Model` or `Predictor`. */
  async open(kind, source, { kernel = "auto", onProgress = () => {} }) {
    const address = typeof source === "string" || source instanceof URL;
    try {
      const from = address ? new URL(source, document.baseURI).href : source;
      return await this.ask("open", { kind, source: from, kernel, failures: this.#failures.name }, onProgress);
    } catch (error) {
      this.end({ code: "closed", message: "the model is closed" });
      throw error;
    }
  }

  ask(method, args, onProgress) {
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
    if (error.code === "crashed") this.end(error);
  }

  end(error) {
    this.#ended ??= error;
    this.#worker.terminate();
    this.#failures.close();
    for (const { reject } of this.#asked.values()) reject(new RewireError(this.#ended));
    this.#asked.clear();
  }
}

/** A model, ready to rank, in a worker of its own. */
export class Ranker {
  #connection = new Connection();

  /**
   * Opens a package: its address, or its bytes.
   *
   * `kernel` is `auto` (WebGPU where there is some, the CPU otherwise), `wgpu` or `cpu`; `onProgress` is told `{ loaded, total }` in
   * bytes, `total` null where it is not known.
   */
  static async open(source, options = {}) {
    const ranker = new Ranker();
    ranker.about = await ranker.#connection.open("Model", source, options);
    return ranker;
  }

  /**
   * Ranks requests, objects as lines of `rewire rank`: `{ user, ...contextual, history: {...}, candidates: {...} }`.
   * For each: `{ user, candidates: [{ item, position, score, logits: { task } }], droppedEvents }`, the best candidate first.
   */
  async rank(requests) {
    const lines = requests.map((request) => JSON.stringify(request)).join("\n");
    const { users, offsets, items, positions, scores, logits, droppedEvents } = await this.#connection.ask("rank", { lines });
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
    return this.#connection.ask("rankColumns", { columns });
  }

  /** What the model reads and gives, for people: features of requests with their ranges, tasks, and an example request as JSON. */
  describe() {
    return this.#connection.ask("describe");
  }

  /** What it is and what runs it now. */
  report() {
    return this.#connection.ask("report");
  }

  /** Ends it, with all that is under way. */
  close() {
    this.#connection.end({ code: "closed", message: "the ranker is closed" });
  }
}

/** A model that was imported from TorchEasyRec, ready to predict, in a worker of its own. */
export class Predictor {
  #connection = new Connection();

  /** Opens a package of an imported model; arguments as for `Ranker.open`. */
  static async open(source, options = {}) {
    const predictor = new Predictor();
    predictor.about = await predictor.#connection.open("Predictor", source, options);
    return predictor;
  }

  /**
   * Predicts the rows of a table: an object with a column a feature, by its full name. A column is a typed array; an array of numbers, bigints,
   * strings, null, arrays, or objects from ids to weights; lists of typed arrays `{ offsets, values }`, whose values may be lists again; or
   * `{ offsets, keys, values }` with ids and weights. The list of row n goes from `offsets[n]` to `offsets[n + 1]`.
   *
   * Returns `{ counts, columns }`: predictions a row of the table, and by the reference's name a Float32Array, or lists
   * `{ offsets, values }` of classes or vectors.
   */
  predict(columns) {
    return this.#connection.ask("predict", { columns });
  }

  /** What the model reads and gives, for people: columns with their ranges, and an example row as JSON. */
  describe() {
    return this.#connection.ask("describe");
  }

  /** What it is and what runs it now. */
  report() {
    return this.#connection.ask("report");
  }

  /** Ends it, with all that is under way. */
  close() {
    this.#connection.end({ code: "closed", message: "the predictor is closed" });
  }
}
