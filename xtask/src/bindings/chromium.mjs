// Headless Chromium, driven through a pipe.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--no-first-run",
  "--disable-extensions",
  "--disable-background-networking",
  "--remote-debugging-pipe",
];

const KEYS = { Tab: { code: 9 }, Enter: { code: 13, text: "\r" } };

/** What gives it an adapter; without it there is none. */
const SWIFTSHADER = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

/** A browser with one page. */
export class Chromium {
  #asks = 0;
  #asked = new Map();
  #heard = [];
  #onLoad;

  constructor(flags) {
    this.folder = mkdtempSync(join(tmpdir(), "rewire-chromium-"));
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
    this.process = spawn("chromium", [...FLAGS, ...flags, `--user-data-dir=${this.folder}`], { stdio });
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    let rest = "";
    this.process.stdio[4].setEncoding("utf8").on("data", (text) => {
      const messages = (rest + text).split("\0");
      rest = messages.pop();
      messages.forEach((message) => this.#take(JSON.parse(message)));
    });
  }

  static async open(address, { webgpu = true } = {}) {
    const browser = new Chromium(webgpu ? SWIFTSHADER : ["--disable-gpu"]);
    const { targetId } = await browser.#ask("Target.createTarget", { url: "about:blank" });
    ({ sessionId: browser.session } = await browser.#ask("Target.attachToTarget", { targetId, flatten: true }));
    await Promise.all(["Runtime.enable", "Page.enable"].map((method) => browser.#ask(method)));
    await browser.#ask("Emulation.setDeviceMetricsOverride", { width: 1200, height: 900, deviceScaleFactor: 1, mobile: false });
    const loaded = new Promise((resolve) => (browser.#onLoad = resolve));
    await browser.#ask("Page.navigate", { url: address });
    await loaded;
    return browser;
  }

  /** What a function, called in the page, returns in the end. */
  async call(work, ...args) {
    const expression = `(${work})(...${JSON.stringify(args)})`;
    const { result, exceptionDetails } = await this.#ask("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Shows the page in a window of this width, dark or light. */
  async show({ width, scheme }) {
    await this.#ask("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
    await this.#ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  async press(key) {
    const { code, text } = KEYS[key];
    for (const type of ["keyDown", "keyUp"]) await this.#ask("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode: code, text });
  }

  async screenshot() {
    const { data } = await this.#ask("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }

  /** Errors that nothing in the page has caught. */
  get uncaught() {
    return this.#heard;
  }

  async close() {
    await this.#ask("Browser.close").catch(() => {});
    await this.ended;
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  #ask(method, params = {}) {
    const id = ++this.#asks;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    return new Promise((resolve, reject) => this.#asked.set(id, { resolve, reject }));
  }

  #take({ id, method, params, result, error }) {
    if (method === "Runtime.exceptionThrown") this.#heard.push(params.exceptionDetails.text);
    if (method === "Page.loadEventFired") this.#onLoad?.();
    const asked = this.#asked.get(id);
    this.#asked.delete(id);
    if (error) asked?.reject(new Error(error.message));
    else asked?.resolve(result);
  }
}
