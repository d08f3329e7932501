// Elements of the page: films, probabilities, and lists whose rows move to their new positions.

/** Hues are spread over genres by the golden angle, so that neighbours differ. */
const HUE_STEP = 137.5;
const MOVE = { duration: 350, easing: "ease-out" };

export function made(tag, fields, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children);
  return node;
}

export function button(title, label, onclick) {
  const node = made("button", { type: "button", textContent: title, onclick });
  node.ariaLabel = label;
  return node;
}

/** A row of a list: a film in the colour of its genre, with its buttons. */
export function row(film, ...rest) {
  const poster = made("span", { className: "poster", textContent: film.title.slice(0, 2), ariaHidden: "true" });
  const node = made("li", {}, poster, made("span", { className: "title", textContent: film.title }), ...rest);
  node.style.setProperty("--hue", (film.genre * HUE_STEP) % 360);
  node.dataset.key = film.id;
  return node;
}

const percent = (chance) => `${(100 * chance).toFixed(1)} %`;

/** A probability as a bar and a number. */
export function chance(name, value, of) {
  const meter = made("meter", { value, ariaLabel: `Chance of a ${name} on ${of}` });
  return made("span", { className: "chance" }, made("span", { textContent: name }), meter, made("span", { textContent: percent(value) }));
}

/** The change of a film's position since the last history; empty without a change, and for new films. */
export function moved(before, now) {
  const by = before === undefined ? 0 : before - now;
  const node = made("span", { className: by > 0 ? "moved up" : "moved", ariaHidden: "true" });
  if (by !== 0) node.textContent = `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}`;
  return node;
}

/** Replaces the rows of a list; existing rows slide to their new positions. */
export function replace(list, rows) {
  const tops = new Map([...list.children].map((node) => [node.dataset.key, node.getBoundingClientRect().top]));
  list.replaceChildren(...rows);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const node of rows) {
    const top = tops.get(node.dataset.key);
    const by = top === undefined ? 0 : top - node.getBoundingClientRect().top;
    if (by !== 0) node.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], MOVE);
    else if (top === undefined && tops.size > 0) node.animate([{ opacity: 0 }, { opacity: 1 }], MOVE);
  }
}
