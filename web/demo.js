// The films and requests of the demo's model.

const [CLICK, LIKE] = [1, 2];
/** How long a visitor watched, and how long ago one film was after the other, in seconds. */
const [WATCHED, BETWEEN] = [700, 600];

/** Films by id, of a table without quotes; users tell the numbers of genres. */
export function parseFilms(csv, users) {
  const rows = csv.trim().split("\n").slice(1).map((row) => row.split(","));
  const genres = new Map(users.flatMap(({ candidates, history }) => [candidates, history]).flatMap(({ item_id, genre }) => item_id.map((id, n) => [id, genre[n]])));
  const byName = new Map(rows.filter(([id]) => genres.has(Number(id))).map(([id, , name]) => [name, genres.get(Number(id))]));
  return new Map(rows.map(([id, title, name]) => [Number(id), { id: Number(id), title, genre: genres.get(Number(id)) ?? byName.get(name) ?? 0 }]));
}

/** A request of a user whose history was changed: events of their own are as they were, those that a visitor added come after. */
export function requestOf({ user, history, films }) {
  const { history: own, candidates } = user;
  let latest = own.timestamp.at(-1) ?? candidates.timestamp[0] - BETWEEN;
  const event = ({ item, liked, n }) =>
    n === undefined
      ? { item_id: item, genre: films.get(item).genre, action: liked ? CLICK | LIKE : CLICK, watchtime: WATCHED, timestamp: (latest += BETWEEN) }
      : Object.fromEntries(Object.entries(own).map(([column, values]) => [column, values[n]]));
  const events = history.map(event);
  const columns = Object.keys(own).map((column) => [column, events.map((event) => event[column])]);
  const now = Math.max(latest, ...candidates.timestamp);
  return { ...user, history: Object.fromEntries(columns), candidates: { ...candidates, timestamp: candidates.timestamp.map(() => now) } };
}
