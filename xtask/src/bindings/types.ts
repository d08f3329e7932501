import { Decoder, Model, Predictor, Ranker, RewireError, type Kernel } from "./rewire.js";
const stop = new AbortController();
const kernel: Kernel = "auto";
const ranker = await Ranker.load("a.rewire", { kernel, signal: stop.signal, onProgress: ({ loaded, total }) => loaded / (total ?? 1) });
const [first] = await ranker.rank([{ user: "u1", country: 3, history: { item_id: [1] }, candidates: { item_id: [2] } }], { signal: stop.signal });
const score: number = first.candidates[0].score;
const tasks: string[] = ranker.about.tasks;
const columns = await ranker.rankColumns({ users: ["u"], contextual: { country: Int32Array.of(1) } });
const part: Float64Array = columns.scores.subarray(0, columns.offsets[1]);
const predictor = await Predictor.load(new Uint8Array(3));
const { counts } = await predictor.predict({ user: [1, 2, null], tags: { offsets: Int32Array.of(0, 1), values: Int32Array.of(1) }, clicks: [{ 1: 0.5 }, null] });
const model = await Model.load(new Blob());
const { y } = await model.run({ x: { data: new Float32Array(4), shape: [2, 2] }, ids: BigInt64Array.of(1n) });
if (y.data instanceof Float32Array) y.data.fill(0);
const decoder = await Decoder.load("a.rewire");
const [[generated]] = await decoder.generate([[1, 2], Uint32Array.of(3)], { items: [[4, 5]], numBeams: 2, onToken: (prompt, tokens) => prompt > tokens[0], signal: stop.signal });
const total: number = generated.score + generated.items[0] + decoder.about.vocabSize;
const error = new RewireError({ code: "a", message: "b" });
const code: string = error.code;
// @ts-expect-error: there is no such kernel
Ranker.load("a", { kernel: "npu" });
// @ts-expect-error: models are loaded
new Model();
model.dispose();
export { total, score, tasks, part, counts, code };
