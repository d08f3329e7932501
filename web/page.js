// A history that a visitor clicks together, and what a model makes of it on WebGPU and on the CPU.

import { Ranker } from "./rewire.js";
import { parseFilms, requestOf } from "./demo.js";

const PACKAGE = "demo.rewire";
const KERNELS = ["wgpu", "cpu"];
/** Films that a search offers, and recommendations on the page, at most. */
const [OFFERED, SHOWN] = [8, 20];

const element = (id) => document.getElementById(id);
const state = { user: null, history: [], films: null };
/** Rankers by kernel, as promises. */
const rankers = {};
let turn = 0;

const text = async (address) => {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`cannot fetch ${address}: ${response.status}`);
  return response.text();
};

function onProgress({ loaded, total }) {
  const bar = element("progress");
  bar.hidden = loaded === total;
  if (total) bar.value = loaded / total;
}

function made(tag, fields, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children);
  return node;
}

function button(title, label, onclick) {
  const node = made("button", { type: "button", textContent: title, onclick });
  node.ariaLabel = label;
  return node;
}

const like = (film) => button("Like", `Like ${film.title}`, () => change([...state.history, { item: film.id, liked: true }]));

/** A film with what a click on it does. */
function row(film, ...rest) {
  return made("li", {}, made("span", { className: "title", textContent: film.title }), ...rest);
}

function showHistory() {
  const events = state.history.map((event, n) =>
    row(state.films.get(event.item), button("×", `Remove ${state.films.get(event.item).title}`, () => change(state.history.toSpliced(n, 1)))),
  );
  element("history").replaceChildren(...events.reverse());
}

function showFilms() {
  const wanted = element("film").value.trim().toLowerCase();
  const found = [...state.films.values()].filter(({ title }) => title.toLowerCase().includes(wanted)).slice(0, OFFERED);
  element("films").replaceChildren(...found.map((film) => row(film, like(film))));
}

function showCandidates({ candidates }, tasks) {
  const chance = (logit) => 1 / (1 + Math.exp(-logit));
  const percent = (logit) => `${(100 * chance(logit)).toFixed(1)} %`;
  const rows = candidates.slice(0, SHOWN).map(({ item, logits }) => {
    const film = state.films.get(item);
    const meter = made("meter", { value: chance(logits[tasks[0]]), ariaLabel: `Chance of a click on ${film.title}` });
    const chances = tasks.map((task) => `${task.replace("is_", "")} ${percent(logits[task])}`).join(", ");
    return row(film, made("span", { className: "chances" }, meter, chances), like(film));
  });
  element("candidates").replaceChildren(...rows);
}

const time = (kernel) => document.querySelector(`[data-kernel=${kernel}] dd`);
const detail = (kernel) => document.querySelector(`[data-kernel=${kernel}] .detail`);

async function rankOn(kernel, request, isLatest) {
  const ranker = await rankers[kernel];
  if (!ranker || !isLatest()) return;
  const begun = performance.now();
  const [ranked] = await ranker.rank([request]);
  const took = performance.now() - begun;
  if (!isLatest()) return;
  time(kernel).textContent = `${took.toFixed(1)} ms`;
  showCandidates(ranked, ranker.about.tasks);
  document.body.dataset[kernel] = String(state.history.length);
  element("status").textContent = `${ranked.candidates.length} candidates ranked for ${state.history.length} films`;
}

/** Ranks for another history. */
async function change(history) {
  const own = ++turn;
  state.history = history;
  showHistory();
  const request = requestOf(state);
  await Promise.all(KERNELS.map((kernel) => rankOn(kernel, request, () => own === turn).catch((error) => fail(kernel, error))));
}

function fail(kernel, error) {
  time(kernel).textContent = "not to be had";
  document.body.dataset[kernel] = "error";
  // Without WebGPU the CPU ranks.
  if (kernel === "cpu") element("error").textContent = `${error.message} (${error.code ?? error.name})`;
}

async function load(kernel) {
  if (kernel === "wgpu" && !(await navigator.gpu?.requestAdapter().catch(() => null))) throw new Error("the browser has no WebGPU");
  const ranker = await Ranker.load(PACKAGE, { kernel, onProgress: kernel === "cpu" ? onProgress : undefined });
  if (kernel === "cpu") element("progress").hidden = true; // Servers that compress tell no total.
  const { adapter, threads, milliseconds } = ranker.about;
  const by = adapter ?? `${threads} ${threads > 1 ? "threads" : "thread"}`;
  time(kernel).textContent = "ready";
  detail(kernel).textContent = `${by}, ready in ${(milliseconds.arrived + milliseconds.opened).toFixed(0)} ms`;
  return ranker;
}

async function start() {
  for (const kernel of KERNELS) {
    rankers[kernel] = load(kernel);
    rankers[kernel].catch((error) => {
      fail(kernel, error);
      rankers[kernel] = null;
    });
  }
  const [lines, csv] = await Promise.all([text("users.jsonl"), text("items.csv")]);
  const users = lines.trim().split("\n").map((line) => JSON.parse(line));
  state.films = parseFilms(csv, users);
  const choose = () => {
    state.user = users[Number(element("user").value)];
    const { item_id: items, action } = state.user.history;
    return change(items.map((item, n) => ({ item, liked: action[n] > 1, n })));
  };
  element("user").replaceChildren(...users.map(({ user, history }, n) => new Option(`${user} (${history.item_id.length} films)`, n)));
  element("user").selectedIndex = users.findIndex(({ history }) => history.item_id.length > 0);
  element("user").onchange = choose;
  element("film").oninput = showFilms;
  element("user").disabled = element("film").disabled = false;
  document.querySelector("form").onsubmit = (event) => event.preventDefault();
  showFilms();
  await choose();
}

start().catch((error) => (element("error").textContent = error.message));
