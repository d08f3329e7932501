// What the page shows, to whom, and on what. `page` has what `prepare` leaves there.

import { strict as assert } from "node:assert";
import { users } from "./browser_scores.mjs";
import { Chromium } from "./chromium.mjs";

export async function thePageRanksAHistoryThatIsClickedTogether(page) {
  const shown = await page.call(async () => {
    const until = async (count) => {
      for (let turn = 0; ["wgpu", "cpu"].some((kernel) => document.body.dataset[kernel] !== count); turn++) {
        if (turn > 6000) throw new Error(`the page shows ${JSON.stringify(document.body.dataset)}: ${document.getElementById("error").textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const titles = (id) => [...document.querySelectorAll(`#${id} .title`)].map(({ textContent }) => textContent);
      return { history: titles("history"), candidates: titles("candidates") };
    };
    const user = document.getElementById("user");
    while (user.disabled) await new Promise((resolve) => setTimeout(resolve, 50));
    user.value = 17;
    user.dispatchEvent(new Event("change"));
    const count = users[17].history.item_id.length;
    const before = await until(String(count));
    const film = document.getElementById("film");
    film.value = "animation";
    film.dispatchEvent(new Event("input"));
    document.querySelector("#films button").click();
    const added = await until(String(count + 1));
    document.querySelector("#history button").click();
    const removed = await until(String(count));
    const times = [...document.querySelectorAll("#times .time")].map(({ textContent }) => textContent);
    return { before, added, removed, times, error: document.getElementById("error").textContent };
  });
  const { before, added, removed, times, error } = shown;
  assert.equal(error, "");
  assert.match(added.history[0], /^Animation film/);
  assert.notDeepEqual(added.candidates, before.candidates);
  assert.deepEqual(removed, before);
  assert.ok(times.every((time) => /^[\d.]+ ms$/.test(time)), times.join());
}

/** Phones and desks, light and dark, with nothing to scroll sideways for and no barrier. */
export async function everyoneCanUseThePage(page) {
  const looks = [360, 1200].flatMap((width) => ["dark", "light"].map((scheme) => ({ width, scheme })));
  const backgrounds = new Set();
  for (const look of looks) {
    await page.show(look);
    const seen = await page.call(async () => {
      const axe = await fetch("axe.js");
      if (axe.ok && !window.axe) (0, eval)(await axe.text());
      const { violations } = (await window.axe?.run(document)) ?? { violations: [] };
      return {
        violations: violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`),
        overflow: document.documentElement.scrollWidth - innerWidth,
        background: getComputedStyle(document.body).backgroundColor,
      };
    });
    backgrounds.add(seen.background);
    assert.deepEqual([seen.violations, Math.max(0, seen.overflow)], [[], 0], JSON.stringify(look));
  }
  assert.equal(backgrounds.size, 2);
}

/** A film is added without a mouse. */
export async function theKeyboardIsEnough(page) {
  const films = () => page.call(() => document.querySelectorAll("#history li").length);
  const before = await films();
  await page.call(() => document.getElementById("film").focus());
  await page.press("Tab");
  const label = await page.call(() => document.activeElement.ariaLabel);
  assert.match(label, /^Like /);
  await page.press("Enter");
  assert.equal(await films(), before + 1);
}

/** The page in a browser that has WebGPU and no adapter. */
export async function withoutAnAdapterThePageTakesTheCpu(page) {
  const shown = await page.call(async () => {
    const html = await (await fetch("index.html")).text();
    const fault = "GPU.prototype.requestAdapter = async () => null";
    const frame = document.createElement("iframe");
    frame.srcdoc = html.replace("<script", `<base href="${location}"><script>${fault}</script><script`);
    document.body.append(frame);
    for (let turn = 0; !(frame.contentDocument?.body?.dataset.cpu > 0); turn++) {
      if (turn > 1200) throw new Error("the page shows nothing");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const text = (selector) => frame.contentDocument.querySelector(selector).textContent;
    const shown = { wgpu: text("[data-kernel=wgpu] dd"), cpu: text("[data-kernel=cpu] dd"), error: text("#error") };
    frame.remove();
    return shown;
  });
  assert.match(shown.cpu, /^[\d.]+ ms$/);
  assert.deepEqual([shown.wgpu, shown.error], ["not available", ""]);
}

/** The page and its library in a browser without WebGPU. */
export async function withoutWebGpuThePageTakesTheCpu() {
  const plain = await Chromium.open(process.argv[2], { webgpu: false });
  try {
    const shown = await plain.call(async () => {
      for (let turn = 0; !(document.body?.dataset.cpu > 0); turn++) {
        if (turn > 1200) throw new Error(`the page shows nothing: ${document.getElementById("error")?.textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      const adapter = await navigator.gpu?.requestAdapter();
      return { hasAdapter: !!adapter, cpu: document.querySelector("[data-kernel=cpu] dd").textContent, error: document.getElementById("error").textContent };
    });
    assert.match(shown.cpu, /^[\d.]+ ms$/);
    assert.deepEqual([shown.hasAdapter, shown.error, plain.uncaught], [false, "", []]);
  } finally {
    await plain.close();
  }
}
