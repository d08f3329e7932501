// The demo's users and what a model makes of them.

import { Ranker } from "./rewire.js";

const PACKAGE = "demo.rewire";
const NAMES = { wgpu: "WebGPU", cpu: "the CPU" };
const CLICK = 1;
const LIKE = 2;

const element = (id) => document.getElementById(id);
const form = document.querySelector("form");
/** Rankers by kernel, as promises. */
const rankers = new Map();
let shown = 0;

const text = async (address) => {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`cannot fetch ${address}: ${response.status}`);
  return response.text();
};

/** The lines of a table without quotes, by its first column. */
function parseItems(csv) {
  const rows = csv.trim().split("\n").slice(1);
  return new Map(rows.map((row) => row.split(",")).map(([id, title, genre]) => [Number(id), { title, genre }]));
}

function open(kernel) {
  if (!rankers.has(kernel)) {
    const opened = Ranker.open(PACKAGE, { kernel, onProgress });
    // Another try may go better.
    opened.catch(() => rankers.delete(kernel)).finally(() => (element("progress").hidden = true));
    rankers.set(kernel, opened);
  }
  return rankers.get(kernel);
}

function onProgress({ loaded, total }) {
  const bar = element("progress");
  bar.hidden = false;
  if (total) bar.value = loaded / total;
}

function fill(table, columns, rows) {
  const cells = (tag, values) =>
    values.map((value, n) => {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      if (columns[n].number) cell.className = "number";
      cell.textContent = value;
      return cell;
    });
  const row = (tag, values) => {
    const line = document.createElement("tr");
    line.append(...cells(tag, values));
    return line;
  };
  table.tHead.replaceChildren(row("th", columns.map(({ name }) => name)));
  table.tBodies[0].replaceChildren(...rows.map((values) => row("td", values)));
}

function showHistory({ history }, items) {
  const columns = [{ name: "Title" }, { name: "Action" }, { name: "Seconds", number: true }, { name: "When (UTC)" }];
  const action = (bits) => [bits & CLICK && "click", bits & LIKE && "like"].filter(Boolean).join(", ") || "none";
  const when = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const rows = history.item_id.map((id, n) => [
    items.get(id)?.title ?? id,
    action(history.action[n]),
    history.watchtime[n],
    when(history.timestamp[n]),
  ]);
  fill(element("history"), columns, rows.reverse());
}

function showCandidates({ candidates }, items, tasks) {
  const probability = (logit) => (1 / (1 + Math.exp(-logit))).toFixed(4);
  const columns = [{ name: "Rank", number: true }, { name: "Title" }, ...tasks.map((name) => ({ name, number: true }))];
  const row = ({ item, logits }, n) => [
    n + 1,
    items.get(item)?.title ?? item,
    ...tasks.map((task) => probability(logits[task])),
  ];
  fill(element("candidates"), columns, candidates.map(row));
}

async function show(users, items) {
  const [user, kernel] = [users[Number(element("user").value)], form.elements.kernel.value];
  const turn = ++shown;
  const isLatest = () => turn === shown;
  document.body.dataset.shown = "";
  element("error").textContent = "";
  element("status").textContent = `Ranking on ${NAMES[kernel]}`;
  showHistory(user, items);
  try {
    const ranker = await open(kernel);
    const begun = performance.now();
    const [ranked] = await ranker.rank([user]);
    const time = performance.now() - begun;
    const { adapter, gpuSteps, cpuSteps } = await ranker.report();
    if (!isLatest()) return;
    showCandidates(ranked, items, ranker.about.tasks);
    const opened = ranker.about.milliseconds.opened.toFixed(0);
    // Some browsers do not tell the name of an adapter.
    const name = adapter?.replace(/ ?\(webgpu\)$/, "");
    const place = adapter ? [NAMES.wgpu, name].filter(Boolean).join(", ") : NAMES.cpu;
    element("status").textContent =
      `${ranked.candidates.length} candidates in ${time.toFixed(1)} ms on ${place}: ` +
      `${adapter ? gpuSteps : cpuSteps} kernels, opened in ${opened} ms`;
    document.body.dataset.shown = `${user.user} ${kernel}`;
  } catch (error) {
    if (!isLatest()) return;
    fill(element("candidates"), [], []);
    element("status").textContent = `Nothing is ranked on ${NAMES[kernel]}`;
    element("error").textContent = `${error.message} (${error.code ?? error.name})`;
    document.body.dataset.shown = "error";
  }
}

async function start() {
  // Browsers have `navigator.gpu` also where there is no adapter.
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  if (!adapter) {
    form.elements.kernel.value = "cpu";
    form.querySelector("[value=wgpu]").disabled = true;
  }
  const [lines, csv] = await Promise.all([text("users.jsonl"), text("items.csv")]);
  const users = lines.trim().split("\n").map((line) => JSON.parse(line));
  const items = parseItems(csv);
  element("user").replaceChildren(
    ...users.map(({ user, history }, n) => new Option(`${user} (${history.item_id.length} events)`, n)),
  );
  element("user").selectedIndex = users.findIndex(({ history }) => history.item_id.length > 0);
  element("user").disabled = false;
  form.addEventListener("change", () => show(users, items));
  form.addEventListener("submit", (event) => event.preventDefault());
  await show(users, items);
}

start().catch((error) => (element("error").textContent = error.message));
