// A model in a worker of its own. One ask at a time is with the worker: those that wait can be joined or taken back.

/** What went wrong: `code` stays the same from version to version, `message` is for people. */
export class RewireError extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = "RewireError";
    this.code = code;
  }
}

/** Errors after which asks alone go no better. */
const FINAL = new Set(["crashed", "library", "device.lost"]);

export class Connection {
  #worker = startWorker();
  /** Hears of threads that fail while the worker waits for them. */
  #failures = new BroadcastChannel(`rewire ${Math.random()}`);
  #waiting = [];
  #asked = null;
  #ended = null;

  constructor() {
    this.#worker.onmessage = ({ data }) => this.#answered(data);
    this.#failures.onmessage = ({ data }) => this.end({ code: "crashed", message: data });
    this.#worker.onerror = (event) => this.end({ code: "library", message: event.message || "the worker does not load" });
  }

  /** The channel for threads that fail. */
  get failures() {
    return this.#failures.name;
  }

  /**
   * Asks the worker. `joined` makes the arguments of several asks one, and their answer several; `onProgress` gets what the worker tells
   * before it answers, and a function that ends a prompt.
   */
  ask(method, args, { signal, transfer = [], joined, onProgress } = {}) {
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.#ended) return Promise.reject(new RewireError(this.#ended));
    const ask = { method, args, transfer, joined, onProgress };
    const answer = new Promise((resolve, reject) => Object.assign(ask, { resolve, reject }));
    const onAbort = () => {
      this.#waiting = this.#waiting.filter((other) => other !== ask);
      if (onProgress && this.#asked?.includes(ask)) this.#worker.postMessage({ end: null });
      ask.reject(signal.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#waiting.push(ask);
    this.#next();
    return answer.finally(() => signal?.removeEventListener("abort", onAbort));
  }

  #next() {
    if (this.#asked || !this.#waiting.length) return;
    const [{ method, joined }] = this.#waiting;
    const other = this.#waiting.findIndex((ask) => !joined || ask.method !== method);
    const count = joined && other !== 0 ? (other < 0 ? this.#waiting.length : other) : 1;
    this.#asked = this.#waiting.splice(0, count);
    const all = this.#asked.map(({ args }) => args);
    const args = count > 1 ? joined.join(all) : all[0];
    this.#worker.postMessage({ method, args }, this.#asked[0].transfer);
  }

  #answered({ progress, value, error }) {
    const asked = this.#asked;
    if (progress) return asked[0].onProgress(progress, (prompt) => this.#worker.postMessage({ end: prompt }));
    this.#asked = null;
    if (error && asked.length > 1 && !FINAL.has(error.code)) {
      // One of them is to blame; each goes alone.
      this.#waiting.unshift(...asked.map((ask) => ({ ...ask, joined: null })));
    } else if (error) {
      asked.forEach(({ reject }) => reject(new RewireError(error)));
    } else {
      const values = asked.length > 1 ? asked[0].joined.split(value, asked.map(({ args }) => args)) : [value];
      asked.forEach(({ resolve }, n) => resolve(values[n]));
    }
    if (error?.code === "crashed") this.end(error);
    this.#next();
  }

  end(error) {
    this.#ended ??= error;
    this.#worker.terminate();
    this.#failures.close();
    const left = [...(this.#asked ?? []), ...this.#waiting];
    [this.#asked, this.#waiting] = [null, []];
    left.forEach(({ reject }) => reject(new RewireError(this.#ended)));
  }
}

function startWorker() {
  if (new URL(import.meta.url).origin === location.origin) {
    // Bundlers look for these words.
    return new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  }
  // A page starts workers of its own origin alone, which may import from another.
  const module = `import ${JSON.stringify(new URL("./worker.js", import.meta.url).href)};`;
  const own = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  return new Worker(own, { type: "module" });
}
