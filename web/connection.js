// A model in its own worker. The worker executes one call at a time; queued calls can be joined or aborted.

/** An error. `code` identifies its kind and is stable between versions; `message` is readable. */
export class RewireError extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = "RewireError";
    this.code = code;
  }
}

/** Errors after which separate calls would fail, too. */
const FINAL = new Set(["crashed", "library", "device.lost"]);

export class Connection {
  #worker = startWorker();
  /** Receives the errors of threads that fail while the worker waits for them. */
  #failures = new BroadcastChannel(`rewire ${Math.random()}`);
  #waiting = [];
  #asked = null;
  #ended = null;

  constructor() {
    this.#worker.onmessage = ({ data }) => this.#answered(data);
    this.#failures.onmessage = ({ data }) => this.end({ code: "crashed", message: data });
    this.#worker.onerror = (event) => this.end({ code: "library", message: event.message || "the worker does not load" });
  }

  /** The channel for errors of threads. */
  get failures() {
    return this.#failures.name;
  }

  /**
   * Calls the worker. `joined` combines the arguments of several calls into one call and splits its answer; `onProgress` receives the
   * worker's progress messages, and a function that ends a prompt.
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
      // One of the joined calls failed: each runs again, alone.
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
    // Bundlers search for this expression.
    return new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  }
  // A page can only start workers from its own origin, but these may import modules from another one.
  const module = `import ${JSON.stringify(new URL("./worker.js", import.meta.url).href)};`;
  const own = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  return new Worker(own, { type: "module" });
}
