// The films and requests of the demo's model.

const [CLICK, LIKE] = [1, 2];
/** How long a visitor watched, and how long ago one film was after the other, in seconds. */
const [WATCHED, BETWEEN] = [700, 600];
/** Every film that this divides the id of is a candidate for all. */
const EVERY = 25;

/** Films by id, of a table without quotes; users tell the numbers of genres. */
export function parseFilms(csv, users) {
  const rows = csv.trim().split("\n").slice(1).map((row) => row.split(","));
  const genres = new Map(users.flatMap(({ candidates, history }) => [candidates, history]).flatMap(({ item_id, genre }) => item_id.map((id, n) => [id, genre[n]])));
  const byName = new Map(rows.filter(([id]) => genres.has(Number(id))).map(([id, , name]) => [name, genres.get(Number(id))]));
  return new Map(rows.map(([id, title, name]) => [Number(id), { id: Number(id), title, name, genre: genres.get(Number(id)) ?? byName.get(name) ?? 0 }]));
}

/** A request of a user whose history was changed: events of their own are as they were, those that a visitor added come after. */
export function requestOf({ user, history, films }) {
  const own = user.history;
  let latest = own.timestamp.at(-1) ?? user.candidates.timestamp[0] - BETWEEN;
  const event = ({ item, liked, n }) =>
    n === undefined
      ? { item_id: item, genre: films.get(item).genre, action: liked ? CLICK | LIKE : CLICK, watchtime: WATCHED, timestamp: (latest += BETWEEN) }
      : Object.fromEntries(Object.entries(own).map(([column, values]) => [column, values[n]]));
  const events = history.map(event);
  const columns = Object.keys(own).map((column) => [column, events.map((event) => event[column])]);
  // Labels are of the user's own candidates.
  return { ...user, labels: undefined, history: Object.fromEntries(columns), candidates: candidatesOf(user, history, films, latest) };
}

/** The user's own candidates and those for all, without films that a visitor added. */
function candidatesOf({ candidates }, history, films, latest) {
  const added = new Set(history.filter(({ n }) => n === undefined).map(({ item }) => item));
  const all = new Set([...candidates.item_id, ...[...films.keys()].filter((id) => id % EVERY === 0)]);
  const ids = [...all].filter((id) => !added.has(id));
  const now = Math.max(latest, ...candidates.timestamp);
  return { item_id: ids, genre: ids.map((id) => films.get(id).genre), timestamp: ids.map(() => now) };
}
