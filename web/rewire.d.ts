/** What went wrong: `code` stays the same from version to version, `message` is for people. */
export class RewireError extends Error {
  readonly code: string;
  constructor(error: { code: string; message: string });
}

/** What runs a model; `auto` takes WebGPU where there is some, and the CPU until it is ready and otherwise. */
export type Kernel = "auto" | "wgpu" | "cpu";

/** Where a package is: an address, or its bytes, which are copied. */
export type Source = string | URL | Blob | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
  kernel?: Kernel;
  /** Ends the loading. */
  signal?: AbortSignal;
  /** Bytes that have come; `total` is null where it is not known. */
  onProgress?: (progress: { loaded: number; total: number | null }) => void;
}

export interface AskOptions {
  /** Rejects the promise with its reason; what waits for its turn is not begun. */
  signal?: AbortSignal;
}

/** What runs a model now. */
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
  /** What it is and ran on when it was loaded. */
  readonly about: About<T>;
  /** Ends when what runs the model stays: with kernel `auto` the CPU answers until WebGPU is ready. */
  readonly settled: Promise<void>;
  /** What the model reads and gives, for people. */
  describe(): Promise<string>;
  /** What it is and what runs it now. */
  report(): Promise<Report & T>;
  /** Ends it, with all that is under way. */
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
  /** The best first. */
  candidates: { item: number; position: number; score: number; logits: Record<string, number> }[];
  droppedEvents: number;
}

export type Integers = Int32Array | Uint32Array | BigInt64Array;

/** A list a user: that of user n goes from `offsets[n]` to `offsets[n + 1]`. */
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

/** Candidates of user n, best first, are those from `offsets[n]` to `offsets[n + 1]`; logits are one a candidate and task. */
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
  /** Ranks requests; those that wait for their turn run together. */
  rank(requests: RankRequest[], options?: AskOptions): Promise<Ranked[]>;
  /** Ranks requests of typed arrays. */
  rankColumns(columns: RankColumns, options?: AskOptions): Promise<RankedColumns>;
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
  /** Predictions a row. */
  counts: Uint32Array;
  columns: Record<string, Float32Array | { offsets: Uint32Array; values: Float32Array }>;
}

/** A model that was imported from TorchEasyRec. */
export class Predictor extends Loaded<PredictorReport> {
  static load(source: Source, options?: LoadOptions): Promise<Predictor>;
  private constructor();
  /** Predicts the rows of a table. */
  predict(columns: Record<string, TableColumn | undefined>, options?: AskOptions): Promise<Predicted>;
}

export type TensorData = NumberArray | BigUint64Array;

/** A typed array of one axis, or one with its shape. */
export type TensorInput = TensorData | { data: TensorData; shape: number[] };

/** Booleans are a `Uint8Array`, floats of 16 bits a `Uint16Array`. */
export interface Tensor {
  dtype: string;
  shape: number[];
  data: TensorData;
}

export interface ModelReport {
  /** Extents are numbers, or formulas of what a run tells. */
  inputs: { name: string; dtype: string; shape: (number | string)[] }[];
  outputs: string[];
}

/** A model of any kind on named tensors. */
export class Model extends Loaded<ModelReport> {
  static load(source: Source, options?: LoadOptions): Promise<Model>;
  private constructor();
  /** Runs it. States keep what a run set them to. */
  run(tensors: Record<string, TensorInput>, options?: AskOptions): Promise<Record<string, Tensor>>;
  /** Gives states the values that they begin with. */
  reset(): Promise<void>;
}

export interface DecoderReport {
  /** Tokens of the vocabulary. */
  vocabSize: number;
}

export type Tokens = ArrayLike<number>;

export interface GenerateOptions extends AskOptions {
  /** Valid sequences; without, tokens are drawn. */
  items?: Tokens[];
  numBeams?: number;
  maxNewTokens?: number;
  temperature?: number;
  topK?: number | null;
  topP?: number;
  seed?: number;
  /** Tokens that end a sequence, beside those of the model. */
  stop?: number[];
  /** Gets the place of a prompt and the tokens of its best beginning. Where it returns `false`, that prompt ends with no result. */
  onToken?: (prompt: number, tokens: number[]) => boolean | void;
}

export interface Generated {
  tokens: number[];
  /** The sum of the logarithms of the tokens' probabilities. */
  score: number;
  /** The places in `items` of those with these tokens. */
  items: number[];
}

/** A language model. */
export class Decoder extends Loaded<DecoderReport> {
  static load(source: Source, options?: LoadOptions): Promise<Decoder>;
  private constructor();
  /** The best sequences for each prompt, best first. */
  generate(prompts: Tokens[], options?: GenerateOptions): Promise<Generated[][]>;
}
