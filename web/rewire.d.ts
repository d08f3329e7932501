/** An error. `code` identifies its kind and is stable between versions; `message` is readable. */
export class RewireError extends Error {
  readonly code: string;
  constructor(error: { code: string; message: string });
}

/** The backend of a model. `auto` uses WebGPU if the browser has it, and the CPU until WebGPU is ready or without it. */
export type Kernel = "auto" | "wgpu" | "cpu";

/** A package: its URL, or its bytes, which are copied. */
export type Source = string | URL | Blob | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
  kernel?: Kernel;
  /** Aborts loading. */
  signal?: AbortSignal;
  /** Called with the number of received bytes; `total` is null if it is unknown. */
  onProgress?: (progress: { loaded: number; total: number | null }) => void;
}

export interface CallOptions {
  /** Aborts the call: its promise is rejected with the signal's reason. A queued call does not start. */
  signal?: AbortSignal;
}

/** The device of a model. */
export interface Report {
  kernel: Kernel;
  adapter: string | null;
  gpuSteps: number;
  cpuSteps: number;
  threads: number;
  deviceBytes: number;
  hostBytes: number;
}

export type About<T> = Report & T & { milliseconds: { arrived: number; opened: number } };

declare abstract class Loaded<T> {
  /** Properties of the model, and its device when it was loaded. */
  readonly about: About<T>;
  /** Resolves when the device is final: with kernel `auto` the CPU answers until WebGPU is ready. */
  readonly settled: Promise<void>;
  /** A readable description of the model's inputs and outputs. */
  describe(): Promise<string>;
  /** Properties of the model, and its current device. */
  report(): Promise<Report & T>;
  /** Terminates the worker, with all running calls. */
  dispose(): void;
}

/** A column of requests. */
export interface RequestColumn {
  name: string;
  rows: number | null;
  required: boolean;
}

export interface RankerReport {
  tasks: string[];
  maxSeqLen: number;
  contextual: RequestColumn[];
  history: RequestColumn[];
  candidates: RequestColumn[];
}

export interface RankRequest {
  user: string | number;
  history?: Record<string, number[]>;
  candidates: Record<string, number[]>;
  [contextual: string]: unknown;
}

export interface Ranked {
  user: string | number;
  /** Best first. */
  candidates: { item: number; position: number; score: number; logits: Record<string, number> }[];
  droppedEvents: number;
}

export type Integers = Int32Array | Uint32Array | BigInt64Array;

/** One list per user: the list of user n is `offsets[n]` to `offsets[n + 1]`. */
export interface Lists {
  offsets: Integers;
  values: Integers;
}

export interface RankColumns {
  users: (string | number)[];
  contextual?: Record<string, Integers>;
  history?: Record<string, Lists>;
  candidates?: Record<string, Lists>;
}

/** The candidates of user n, best first, are `offsets[n]` to `offsets[n + 1]`; there is one logit per candidate and task. */
export interface RankedColumns {
  users: (string | number)[];
  offsets: Uint32Array;
  items: BigInt64Array;
  positions: Uint32Array;
  scores: Float64Array;
  logits: Float32Array;
  droppedEvents: Uint32Array;
}

/** A model that ranks candidates for users. */
export class Ranker extends Loaded<RankerReport> {
  static load(source: Source, options?: LoadOptions): Promise<Ranker>;
  private constructor();
  /** Ranks requests. Queued calls run together. */
  rank(requests: RankRequest[], options?: CallOptions): Promise<Ranked[]>;
  /** Ranks requests given as typed arrays. */
  rankColumns(columns: RankColumns, options?: CallOptions): Promise<RankedColumns>;
}

export type NumberArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

/** A value of a row. */
export type Cell = number | bigint | string | boolean | null | undefined | NumberArray | Cell[] | Map<Cell, Cell> | { [id: string]: Cell };

/** A column of a table: values, lists, or maps from ids to weights. */
export type TableColumn =
  | NumberArray
  | Cell[]
  | { offsets: NumberArray; values: TableColumn }
  | { offsets: NumberArray; keys: TableColumn; values: TableColumn };

export interface PredictorReport {
  columns: string[];
  outputs: { name: string; is_list: boolean }[];
}

export interface Predicted {
  /** Number of predictions per row. */
  counts: Uint32Array;
  columns: Record<string, Float32Array | { offsets: Uint32Array; values: Float32Array }>;
}

/** A model imported from TorchEasyRec. */
export class Predictor extends Loaded<PredictorReport> {
  static load(source: Source, options?: LoadOptions): Promise<Predictor>;
  private constructor();
  /** Predicts the rows of a table. */
  predict(columns: Record<string, TableColumn | undefined>, options?: CallOptions): Promise<Predicted>;
}

export type TensorData = NumberArray | BigUint64Array;

/** A typed array with one axis, or an array with its shape. */
export type TensorInput = TensorData | { data: TensorData; shape: number[] };

/** `data` is a `Uint8Array` for bools, and a `Uint16Array` for 16-bit floats. */
export interface Tensor {
  dtype: string;
  shape: number[];
  data: TensorData;
}

export interface ModelReport {
  /** An extent is a number, or a formula of sizes that a run determines. */
  inputs: { name: string; dtype: string; shape: (number | string)[] }[];
  outputs: string[];
}

/** A model of any kind on named tensors. */
export class Model extends Loaded<ModelReport> {
  static load(source: Source, options?: LoadOptions): Promise<Model>;
  private constructor();
  /** Runs the model. States keep their values for the next run. */
  run(tensors: Record<string, TensorInput>, options?: CallOptions): Promise<Record<string, Tensor>>;
  /** Resets states to their initial values. */
  reset(): Promise<void>;
}

export interface DecoderReport {
  /** Number of tokens of the vocabulary. */
  vocabSize: number;
}

export type Tokens = ArrayLike<number>;

export interface GenerateOptions extends CallOptions {
  /** Valid items as tokens, found by beam search. Without them, tokens are sampled. */
  items?: Tokens[];
  numBeams?: number;
  maxNewTokens?: number;
  temperature?: number;
  topK?: number | null;
  topP?: number;
  seed?: number;
  /** Tokens that end a sequence, in addition to those of the model. */
  stop?: number[];
  /** Receives the index of a prompt and the tokens of its best prefix. If it returns `false`, the prompt ends without a result. */
  onToken?: (prompt: number, tokens: number[]) => boolean | void;
}

export interface Generated {
  tokens: number[];
  /** The sum of the tokens' log-probabilities. */
  score: number;
  /** Indices in `items` of the items with these tokens. */
  items: number[];
}

/** A language model. */
export class Decoder extends Loaded<DecoderReport> {
  static load(source: Source, options?: LoadOptions): Promise<Decoder>;
  private constructor();
  /** The best sequences for each prompt, best first. */
  generate(prompts: Tokens[], options?: GenerateOptions): Promise<Generated[][]>;
}
