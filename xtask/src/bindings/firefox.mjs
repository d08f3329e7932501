// Firefox without a window, and what a test asks of it: a page takes functions from a server and posts what they return.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };

const PREFERENCES = {
  "app.update.enabled": false,
  "browser.shell.checkDefaultBrowser": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "dom.webgpu.enabled": true,
  "dom.webgpu.workers.enabled": true,
  "gfx.webgpu.ignore-blocklist": true,
  "toolkit.telemetry.reportingpolicy.firstRun": false,
};

/** Takes one function after the other, for as long as the server has some. */
async function serve() {
  const failed = (error) => ({ error: `${error?.stack ?? error}` });
  const report = (body) => fetch("/uncaught", { method: "POST", body: JSON.stringify(body) });
  addEventListener("error", ({ message }) => report(message));
  addEventListener("unhandledrejection", ({ reason }) => report(String(reason)));
  for (;;) {
    const code = await (await fetch("/next")).text();
    const answer = await Promise.resolve().then(() => (0, eval)(code)).then((value) => ({ value }), failed);
    await fetch("/answer", { method: "POST", body: JSON.stringify(answer) });
  }
}

/** A browser with one page of a folder. */
export class Firefox {
  /** Errors that nothing in the page has caught. */
  uncaught = [];
  #waiting = null;
  #asked = null;
  #code = null;

  static async open(folder) {
    const browser = new Firefox();
    browser.server = createServer((ask, answer) => browser.#answer(folder, ask, answer));
    await new Promise((resolve) => browser.server.listen(0, "localhost", resolve));
    browser.folder = mkdtempSync(join(tmpdir(), "rewire-firefox-"));
    const preferences = Object.entries(PREFERENCES).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${value});\n`);
    writeFileSync(join(browser.folder, "user.js"), preferences.join(""));
    const address = `http://localhost:${browser.server.address().port}/drive.html`;
    browser.process = spawn("firefox-esr", ["--headless", "--no-remote", "--profile", browser.folder, address], { stdio: "ignore" });
    browser.ended = new Promise((resolve) => browser.process.once("exit", resolve));
    browser.ended.then(() => browser.#asked?.reject(new Error("Firefox has ended")));
    return browser;
  }

  /** What a function, called in the page, returns in the end. */
  call(work, ...args) {
    const code = `(${work})(...${JSON.stringify(args)})`;
    const answer = new Promise((resolve, reject) => (this.#asked = { resolve, reject }));
    if (this.#waiting) this.#waiting.end(code);
    else this.#code = code;
    this.#waiting = null;
    return answer;
  }

  async close() {
    this.process.kill();
    await this.ended;
    this.server.closeAllConnections();
    this.server.close();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  async #answer(folder, ask, answer) {
    const { pathname } = new URL(ask.url, "http://localhost");
    const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
    if (ask.method === "POST") {
      const parts = [];
      for await (const part of ask) parts.push(part);
      answer.end();
      const body = JSON.parse(Buffer.concat(parts));
      if (pathname === "/uncaught") return this.uncaught.push(body);
      return body.error ? this.#asked.reject(new Error(body.error)) : this.#asked.resolve(body.value);
    }
    if (pathname === "/next") {
      if (this.#code === null) return (this.#waiting = answer);
      answer.end(this.#code);
      return (this.#code = null);
    }
    if (pathname === "/drive.html") {
      return answer.writeHead(200, { ...headers, "Content-Type": TYPES[".html"] }).end(`<!doctype html><script>(${serve})()</script>`);
    }
    const file = join(folder, normalize(pathname));
    if (!existsSync(file)) return answer.writeHead(404).end();
    const content = readFileSync(file);
    const type = TYPES[extname(file)] ?? "application/octet-stream";
    answer.writeHead(200, { ...headers, "Content-Type": type, "Content-Length": content.length }).end(content);
  }
}
