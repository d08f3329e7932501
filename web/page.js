// The visitor selects a history by clicks; the page shows the model's ranking on WebGPU and on the CPU.

import { Ranker } from "./rewire.js";
import { parseFilms, requestOf } from "./demo.js";
import { button, chance, made, moved, replace, row } from "./view.js";

const PACKAGE = "demo.rewire";
const KERNELS = ["wgpu", "cpu"];
/** Maximum number of films in search results and of recommendations on the page. */
const [OFFERED, SHOWN] = [6, 16];
/** Milliseconds after which the result of one kernel is shown without that of the other one. */
const PATIENCE = 50;

const sigmoid = (logit) => 1 / (1 + Math.exp(-logit));

const element = (id) => document.getElementById(id);
const state = { user: null, history: [], films: null };
/** Loaded rankers by kernel. */
const rankers = {};
/** Times by kernel in milliseconds, and positions of films for the previous and the current history. */
const took = {};
const places = { before: new Map(), now: new Map(), turn: 0 };
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

const like = (film) => button("Like", `Like ${film.title}`, () => change([...state.history, { item: film.id, liked: true }]));

function showHistory() {
  const events = state.history.map((event, n) => {
    const film = state.films.get(event.item);
    return row(film, button("×", `Remove ${film.title}`, () => change(state.history.toSpliced(n, 1))));
  });
  element("history").replaceChildren(...events.reverse());
}

function showFilms() {
  const wanted = element("film").value.trim().toLowerCase();
  const found = [...state.films.values()].filter(({ title }) => title.toLowerCase().includes(wanted)).slice(0, OFFERED);
  element("films").replaceChildren(...found.map((film) => row(film, like(film))));
}

function showCandidates({ candidates }, tasks) {
  if (places.turn !== turn) Object.assign(places, { before: places.now, turn });
  places.now = new Map(candidates.map(({ item }, place) => [item, place]));
  const rows = candidates.slice(0, SHOWN).map(({ item, logits }, place) => {
    const film = state.films.get(item);
    const chances = tasks.map((task) => chance(task.replace("is_", ""), sigmoid(logits[task]), film.title));
    return row(film, made("span", { className: "chances" }, ...chances), moved(places.before.get(item), place), like(film));
  });
  replace(element("candidates"), rows);
  showGenres(candidates, tasks[0]);
}

/** Genres by the mean probability of their candidates. */
function showGenres(candidates, task) {
  const chances = Map.groupBy(candidates, ({ item }) => state.films.get(item).genre);
  const genres = [...chances].map(([genre, of]) => ({
    genre,
    id: genre,
    title: state.films.get(of[0].item).name,
    mean: of.reduce((sum, { logits }) => sum + sigmoid(logits[task]), 0) / of.length,
  }));
  const rows = genres.toSorted((a, b) => b.mean - a.mean).map((genre) => row(genre, chance("click", genre.mean, genre.title)));
  replace(element("genres"), rows);
}

const part = (kernel, name) => document.querySelector(`[data-kernel=${kernel}] .${name}`);

/** A time, and bars proportional to the times of both kernels. */
function showTime(kernel, milliseconds) {
  took[kernel] = milliseconds;
  part(kernel, "time").textContent = `${milliseconds.toFixed(1)} ms`;
  const longest = Math.max(...Object.values(took));
  for (const [kernel, milliseconds] of Object.entries(took)) part(kernel, "bar").style.setProperty("--share", milliseconds / longest);
}

/** Waits until changes are rendered, or for a short time if the page is hidden. */
const painted = () => new Promise((resolve) => (requestAnimationFrame(() => setTimeout(resolve)), setTimeout(resolve, 50)));

/** Ranks on one kernel; returns a function that shows the result. */
async function rankOn(kernel, request) {
  const ranker = rankers[kernel];
  const begun = performance.now();
  const [ranked] = await ranker.rank([request]);
  const milliseconds = performance.now() - begun;
  return () => {
    showTime(kernel, milliseconds);
    showCandidates(ranked, ranker.about.tasks);
    document.body.dataset[kernel] = String(state.history.length);
    element("status").textContent = `${ranked.candidates.length} candidates ranked for ${state.history.length} films`;
  };
}

/** Ranks for a new history: on one kernel after the other, and not during the layout of the page, which would distort the times. */
async function change(history) {
  const own = ++turn;
  state.history = history;
  showHistory();
  const request = requestOf(state);
  await painted();
  const begun = performance.now();
  const shows = [];
  for (const kernel of Object.keys(rankers)) {
    if (own !== turn) return;
    const show = await rankOn(kernel, request).catch((error) => fail(kernel, error));
    if (show) shows.push(show);
    if (own === turn && performance.now() - begun > PATIENCE) shows.splice(0).forEach((show) => show());
  }
  if (own === turn) shows.forEach((show) => show());
}

function fail(kernel, error) {
  part(kernel, "time").textContent = "not available";
  part(kernel, "detail").textContent = error.message;
  document.body.dataset[kernel] = "error";
  // Without WebGPU the CPU ranks.
  if (kernel === "cpu") element("error").textContent = `${error.message} (${error.code ?? error.name})`;
}

async function load(kernel) {
  const adapter = kernel === "wgpu" ? await navigator.gpu?.requestAdapter().catch(() => null) : null;
  if (kernel === "wgpu" && !adapter) throw new Error("the browser has no WebGPU");
  const ranker = await Ranker.load(PACKAGE, { kernel, onProgress: kernel === "cpu" ? onProgress : undefined });
  if (kernel === "cpu") element("progress").hidden = true; // A server that compresses sends no total.
  const { threads, milliseconds } = ranker.about;
  const { vendor, architecture, description } = adapter?.info ?? {};
  const by = adapter ? description || `${vendor} ${architecture}`.trim() || "a GPU" : `${threads} ${threads > 1 ? "threads" : "thread"}`;
  part(kernel, "time").textContent = "ready";
  part(kernel, "detail").textContent = `${by}, ready in ${(milliseconds.arrived + milliseconds.opened).toFixed(0)} ms`;
  return ranker;
}

/** Loads a kernel's ranker and adds it to the others. */
async function add(kernel) {
  try {
    rankers[kernel] = await load(kernel);
  } catch (error) {
    return fail(kernel, error);
  }
  if (state.user) await change(state.history);
}

async function start() {
  KERNELS.forEach(add);
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
