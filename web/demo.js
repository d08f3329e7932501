// The films and requests of the demo's model.

const [CLICK, LIKE] = [1, 2];
/** The watch time of an added film, and the time between two added films, in seconds. */
const [WATCHED, BETWEEN] = [700, 600];
/** Films whose id is divisible by it are candidates for all users. */
const EVERY = 25;

/** Films by id, from a table without quotes; genres are numbered by the users' data. */
export function parseFilms(csv, users) {
  const rows = csv.trim().split("\n").slice(1).map((row) => row.split(","));
  const genres = new Map(users.flatMap(({ candidates, history }) => [candidates, history]).flatMap(({ item_id, genre }) => item_id.map((id, n) => [id, genre[n]])));
  const byName = new Map(rows.filter(([id]) => genres.has(Number(id))).map(([id, , name]) => [name, genres.get(Number(id))]));
  return new Map(rows.map(([id, title, name]) => [Number(id), { id: Number(id), title, name, genre: genres.get(Number(id)) ?? byName.get(name) ?? 0 }]));
}

/** The request of a user with a changed history: original events first, then the films that the visitor added. */
export function requestOf({ user, history, films }) {
  const own = user.history;
  let latest = own.timestamp.at(-1) ?? user.candidates.timestamp[0] - BETWEEN;
  const event = ({ item, liked, n }) =>
    n === undefined
      ? { item_id: item, genre: films.get(item).genre, action: liked ? CLICK | LIKE : CLICK, watchtime: WATCHED, timestamp: (latest += BETWEEN) }
      : Object.fromEntries(Object.entries(own).map(([column, values]) => [column, values[n]]));
  const events = history.map(event);
  const columns = Object.keys(own).map((column) => [column, events.map((event) => event[column])]);
  // Labels belong to the user's original candidates.
  return { ...user, labels: undefined, history: Object.fromEntries(columns), candidates: candidatesOf(user, history, films, latest) };
}

/** The user's original candidates and the common ones, without films that the visitor added. */
function candidatesOf({ candidates }, history, films, latest) {
  const added = new Set(history.filter(({ n }) => n === undefined).map(({ item }) => item));
  const all = new Set([...candidates.item_id, ...[...films.keys()].filter((id) => id % EVERY === 0)]);
  const ids = [...all].filter((id) => !added.has(id));
  const now = Math.max(latest, ...candidates.timestamp);
  return { item_id: ids, genre: ids.map((id) => films.get(id).genre), timestamp: ids.map(() => now) };
}
