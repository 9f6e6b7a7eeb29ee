/** A model that runs in the browser: what the routes of the service compute, with onnxruntime. */

import * as ort from "onnxruntime-web/wasm";

import { Refused, type Encoded, type Guess, type Inspection, type Substitutes } from "../api.ts";
import { at } from "../maths/vectors.ts";
import { readFile, readPackedJson, type Progress, type SiteFile, type SiteModel } from "./files.ts";
import { Alphabet, Vocabulary } from "./inputs.ts";
import { Segmenter, type Dictionary } from "./segmenter.ts";
import { tokenizer, type Tokenize } from "./tokenizers.ts";

/** The same as in `elmokit.lm.substitutes`. */
const UNIGRAM_EXPONENT = 0.65;
const FIT_EXPONENT = 0.5;
const CANDIDATES = 50;
const NEIGHBOURS = 2;
/** The same as in `elmokit.server.inspect`. */
const SHOWN = 8;
const GATE_BINS = 10;

const BATCH_SENTENCES = 32;
const SOFTMAX_ROWS = 32;
const MOST_TOKENS = 5000;
const MOST_INSPECTED = 200;

type Direction = "forward" | "backward";
type Rows = Float32Array;

/** Initial or last states of all layers and directions. */
interface States {
  readonly cells: ort.Tensor;
  readonly hidden: ort.Tensor;
}

interface Words {
  readonly words: string[];
  readonly counts: number[] | null;
}

/** All outputs of the graph for one batch. */
interface Outputs extends States {
  /** (layers, batch, length, 2P) */
  readonly layers: ort.Tensor;
  readonly all: ort.InferenceSession.ReturnType;
}

/** Lets onnxruntime use its WASM file; one thread, since more need headers that few sites send. */
export function useRuntime(wasm: Uint8Array): void {
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = wasm.buffer as ArrayBuffer;
  ort.env.logLevel = "error";
}

export class BrowserModel {
  readonly #facts: SiteModel;
  readonly #base: URL;
  readonly #progress: Progress;
  readonly #session: ort.InferenceSession;
  readonly #vocabulary: Vocabulary | null;
  readonly #alphabet: Alphabet | null;
  readonly #split: Tokenize;
  readonly #directions: readonly Direction[];
  #softmax: Promise<ort.InferenceSession> | null = null;

  private constructor(
    facts: SiteModel,
    base: URL,
    progress: Progress,
    session: ort.InferenceSession,
    vocabulary: Vocabulary | null,
    split: Tokenize,
  ) {
    this.#facts = facts;
    this.#base = base;
    this.#progress = progress;
    this.#session = session;
    this.#vocabulary = vocabulary;
    this.#alphabet = facts.config.characters && new Alphabet(facts.config, facts.symbols);
    this.#split = split;
    const both = facts.dim === 2 * facts.config.lstm.width;
    this.#directions = both ? ["forward", "backward"] : ["forward"];
  }

  static async load(facts: SiteModel, base: URL, progress: Progress): Promise<BrowserModel> {
    const [session, words, dictionary] = await Promise.all([
      openSession(base, facts.graph, progress),
      facts.vocabulary && readPackedJson<Words>(base, facts.vocabulary, progress),
      facts.segmenter && readPackedJson<Dictionary>(base, facts.segmenter, progress),
    ]);
    const vocabulary = words && new Vocabulary(words.words, words.counts, facts.config);
    const segmenter = dictionary && new Segmenter(dictionary);
    const split = segmenter ? (text: string) => segmenter.tokenize(text) : tokenizer(facts.tokenizer);
    if (split === null) throw new Refused(422, `no tokenizer '${facts.tokenizer}' in a browser`);
    return new BrowserModel(facts, base, progress, session, vocabulary, split);
  }

  tokens(sentence: string): string[] {
    return this.#split(sentence);
  }

  /** All layers of sentences, as `/v1/encode` gives them. */
  async encode(sentences: readonly string[]): Promise<Encoded[]> {
    const tokens = sentences.map((sentence) => this.tokens(sentence));
    this.#check(tokens);
    const found: Encoded[] = [];
    for (let start = 0; start < tokens.length; start += BATCH_SENTENCES) {
      const batch = tokens.slice(start, start + BATCH_SENTENCES);
      const { layers } = await this.#read(batch.map((words) => this.#marked(words)));
      const read = rowsOf(layers);
      for (const [row, words] of batch.entries()) {
        const vectors = Array.from({ length: this.#facts.layers }, (_, layer) =>
          words.map((_, position) => [...read(layer, row, position + 1)]),
        );
        found.push({ tokens: words, vectors });
      }
    }
    return found;
  }

  /** The forward pass of a sentence as seen from one of its words, as `/v1/inspect` gives it. */
  async inspect(sentence: string, position: number, k: number): Promise<Inspection> {
    const tokens = this.#sentence(sentence, position);
    if (tokens.length > MOST_INSPECTED) {
      throw new Refused(422, `${tokens.length} tokens; sentences of at most ${MOST_INSPECTED} are inspected`);
    }
    const marked = this.#marked(tokens);
    const outputs = await this.#read([marked]);
    const read = rowsOf(outputs.layers);
    const width = this.#facts.config.lstm.width;
    const layers = Array.from({ length: this.#facts.layers - 1 }, (_, i) => ({
      number: i + 1,
      directions: Object.fromEntries(
        this.#directions.map((name, side) => {
          const half = (p: number) => read(i + 1, 0, p).subarray(side * width, (side + 1) * width);
          const norms = tokens.map((_, p) => length(half(p + 1)));
          return [name, { ...numbers(half(position + 1)), norms }];
        }),
      ),
    }));
    return {
      tokens,
      position,
      ...this.#characterCnn(outputs, marked, position, k),
      token_vector: numbers(read(0, 0, position + 1).subarray(0, width)),
      layers,
      guesses: this.#facts.predicts_words ? await this.#guesses(tokens, outputs, k) : null,
    };
  }

  /** Words that fit a position, as `/v1/substitutes` gives them. */
  async substitutes(sentence: string, position: number, k: number): Promise<Substitutes> {
    const tokens = this.#sentence(sentence, position);
    if (!this.#facts.predicts_words) {
      throw new Refused(422, `the model '${this.#facts.name}' has no softmax: it predicts no words`);
    }
    const { layers } = await this.#read([this.#marked(tokens)]);
    const [logps] = await this.#predictions(rowsOf(layers), [position]);
    const directions = logps ?? {};
    const rank = async (names: readonly Direction[]): Promise<Guess[]> => {
      let values = this.#product(names.map((name) => directions[name]!));
      if (names.length === 2 && this.#words.counts !== null) {
        values = await this.#withFit(tokens, position, values);
      }
      return this.#best(values, k).map((row) => ({
        word: at(this.#words.words, row),
        logprob: at(values, row),
        forward: at(directions.forward!, row),
        backward: directions.backward === undefined ? null : at(directions.backward, row),
      }));
    };
    const backward = this.#directions.includes("backward");
    return {
      tokens,
      position,
      both: await rank(this.#directions),
      forward: await rank(["forward"]),
      backward: backward ? await rank(["backward"]) : null,
    };
  }

  /** Loads the softmax, if there is one, so that all views work offline. */
  async prefetch(): Promise<void> {
    if (this.#facts.softmax !== null) await this.#openSoftmax();
  }

  /** Frees the memory of both graphs. */
  async release(): Promise<void> {
    await this.#session.release();
    await (await this.#softmax?.catch(() => null))?.release();
  }

  get #words(): Vocabulary {
    if (this.#vocabulary === null) throw new Error("the model has no vocabulary");
    return this.#vocabulary;
  }

  #openSoftmax(): Promise<ort.InferenceSession> {
    const file = this.#facts.softmax;
    if (file === null) throw new Error("the model has no softmax");
    this.#softmax ??= openSession(this.#base, file, this.#progress).catch((error: unknown) => {
      this.#softmax = null; // tried again with the next request
      throw error;
    });
    return this.#softmax;
  }

  #check(tokens: readonly string[][]): void {
    const count = tokens.reduce((sum, words) => sum + words.length, 0);
    if (count > MOST_TOKENS) {
      throw new Refused(422, `more than ${MOST_TOKENS} tokens; give fewer at a time`);
    }
  }

  #sentence(sentence: string, position: number): string[] {
    const tokens = this.tokens(sentence);
    this.#check([tokens]);
    if (position >= tokens.length) {
      throw new Refused(422, `no token ${position} in a sentence of ${tokens.length}`);
    }
    return tokens;
  }

  #marked(tokens: readonly string[]): string[] {
    const { begin, end } = this.#facts.config.text;
    return [begin, ...tokens, end];
  }

  /** Runs the graph on sentences; each starts from a zero state if no states are given. */
  async #read(batch: readonly (readonly string[])[], states?: States): Promise<Outputs> {
    const distinct = [...new Set(batch.flat())];
    const index = new Map(distinct.map((word, i) => [word, i]));
    const length = Math.max(...batch.map((tokens) => tokens.length));
    const tokens = batch.flatMap((words) =>
      Array.from({ length }, (_, i) => index.get(words[i] ?? "") ?? 0),
    );
    const { layers, cells, width } = this.#facts.config.lstm;
    const zeros = (size: number) => {
      const shape = [layers, this.#directions.length, batch.length, size];
      return new ort.Tensor("float32", new Float32Array(shape.reduce((a, b) => a * b)), shape);
    };
    const feeds: Record<string, ort.Tensor> = {
      tokens: whole(tokens, [batch.length, length]),
      lengths: whole(batch.map((words) => words.length), [batch.length]),
      cells: states?.cells ?? zeros(cells),
      hidden: states?.hidden ?? zeros(width),
    };
    if (this.#alphabet !== null) {
      const rows = this.#alphabet.rows(distinct);
      feeds.characters = whole(rows.flat(), [rows.length, at(rows, 0).length]);
    }
    if (this.#facts.config.words !== null) {
      const cut = this.#facts.config.characters?.max_characters;
      const ids = distinct.map((word) => {
        const id = this.#words.id(cut === undefined ? word : [...word].slice(0, cut - 2).join(""));
        if (id === null) throw new Refused(422, `the word '${word}' is not in the model's vocabulary`);
        return id;
      });
      feeds.words = whole(ids, [ids.length]);
    }
    const all = await this.#session.run(feeds);
    return { layers: all.layers!, cells: all.last_cells!, hidden: all.last_hidden!, all };
  }

  #characterCnn(
    { all }: Outputs,
    marked: readonly string[],
    position: number,
    k: number,
  ): Pick<Inspection, "characters" | "widths" | "filters" | "highways"> {
    const config = this.#facts.config.characters;
    if (this.#alphabet === null || config === null) {
      return { characters: [], widths: [], filters: [], highways: [] };
    }
    const word = at(marked, position + 1);
    const row = [...new Set(marked)].indexOf(word);
    const [ids = []] = this.#alphabet.rows([word]);
    const names = this.#alphabet.names(word, ids);
    const responses = at2(all.responses!, row);
    const starts = at2(all.starts!, row);
    const widths = config.filters.flatMap(([width, count]) => new Array<number>(count).fill(width));
    const values = [...responses].map((x) => (config.activation === "tanh" ? Math.tanh(x) : Math.max(0, x)));
    const filters = best(values, k).map((number) => {
      const start = Number(starts[number]);
      const width = at(widths, number);
      const characters = names.slice(start, start + width);
      return { number, width, value: at(values, number), start, characters };
    });
    const count = all.gates?.dims[0] ?? 0;
    const highways = Array.from({ length: count }, (_, i) => {
      const gates = at3(all.gates!, i, row);
      const bins = new Array<number>(GATE_BINS).fill(0);
      for (const gate of gates) {
        const bin = Math.min(GATE_BINS - 1, Math.floor(gate * GATE_BINS));
        bins[bin] = at(bins, bin) + 1;
      }
      const mean = gates.reduce((sum, gate) => sum + gate, 0) / gates.length;
      return { mean, bins, output: numbers(at3(all.highways!, i, row)) };
    });
    return {
      characters: names.map((character, i) => ({ character, id: at(ids, i) })),
      widths: [...new Set(widths)].sort((a, b) => a - b).map((width) => ({
        width,
        filters: widths.filter((one) => one === width).length,
        firing: widths.filter((one, i) => one === width && at(responses, i) > 0).length,
      })),
      filters,
      highways,
    };
  }

  async #guesses(
    tokens: readonly string[],
    { layers }: Outputs,
    k: number,
  ): Promise<NonNullable<Inspection["guesses"]>> {
    const predicted = await this.#predictions(rowsOf(layers), [...tokens.keys()]);
    const list = (logps: Rows | undefined) =>
      logps === undefined
        ? null
        : this.#best(logps, k).map((row) => ({
            word: at(this.#words.words, row),
            probability: Math.exp(at(logps, row)),
          }));
    return tokens.map((token, i) => ({
      token,
      forward: list(predicted[i]?.forward) ?? [],
      backward: list(predicted[i]?.backward),
    }));
  }

  /** Each direction's log-probabilities of all words at positions; the word there is not read. */
  async #predictions(
    read: Reader,
    positions: readonly number[],
  ): Promise<Partial<Record<Direction, Rows>>[]> {
    const rows = positions.flatMap((position) =>
      this.#directions.map((name) => this.#top(read, 0, position + (name === "forward" ? 0 : 2), name)),
    );
    const logps: Rows[] = [];
    for (let start = 0; start < rows.length; start += SOFTMAX_ROWS) {
      const block = rows.slice(start, start + SOFTMAX_ROWS);
      const { logprobs } = await this.#softmaxOf(block, new Array<number>(block.length).fill(0), "logprobs");
      for (const i of block.keys()) logps.push(at2(logprobs!, i).slice());
    }
    const sides = this.#directions.length;
    return positions.map((_, i) =>
      Object.fromEntries(this.#directions.map((name, side) => [name, logps[i * sides + side]!])),
    );
  }

  /** What one direction of the top layer gives at a position. */
  #top(read: Reader, row: number, position: number, direction: Direction): Rows {
    const { width } = this.#facts.config.lstm;
    const side = this.#directions.indexOf(direction);
    return read(this.#facts.layers - 1, row, position).subarray(side * width, (side + 1) * width);
  }

  async #softmaxOf(
    rows: readonly Rows[],
    targets: readonly number[],
    output: "logprobs" | "chosen",
  ): Promise<ort.InferenceSession.ReturnType> {
    const session = await this.#openSoftmax();
    const { width } = this.#facts.config.lstm;
    const x = new Float32Array(rows.length * width);
    rows.forEach((row, i) => x.set(row, i * width));
    const feeds = {
      x: new ort.Tensor("float32", x, [rows.length, width]),
      targets: whole(targets, [rows.length]),
    };
    return session.run(feeds, [output]);
  }

  /** Log of the directions' product over the unigram, normalised over all words. */
  #product(logps: readonly Rows[]): Float64Array {
    const { counts } = this.#words;
    const exponent = UNIGRAM_EXPONENT * (logps.length - 1);
    const values = Float64Array.from(this.#words.words, (_, row) => {
      if (!this.#words.isWord(row, this.#facts.config)) return -Infinity;
      const sum = logps.reduce((total, logp) => total + at(logp, row), 0);
      return sum - (counts === null ? 0 : exponent * Math.log(Math.max(1, at(counts, row))));
    });
    const total = logSumExp(values);
    return values.map((value) => value - total);
  }

  /** The rows of the best words. */
  #best(values: Rows | Float64Array, k: number): number[] {
    return best(values, k, (row) => this.#words.isWord(row, this.#facts.config));
  }

  /** Distributes the probability of the best words among them again, by how well they fit. */
  async #withFit(
    tokens: readonly string[],
    position: number,
    values: Float64Array,
  ): Promise<Float64Array> {
    const rows = this.#best(values, CANDIDATES);
    const fit = await this.#fit(tokens, position, rows.map((row) => at(this.#words.words, row)));
    const before = rows.map((row) => at(values, row));
    const scores = before.map((value, i) => value + FIT_EXPONENT * at(fit, i));
    const shift = logSumExp(before) - logSumExp(scores);
    const changed = values.slice();
    rows.forEach((row, i) => (changed[row] = at(scores, i) + shift));
    return changed;
  }

  /** How well each candidate predicts the words next to it, as log-probabilities. */
  async #fit(
    tokens: readonly string[],
    position: number,
    candidates: readonly string[],
  ): Promise<number[]> {
    const marked = this.#marked(tokens);
    const left = marked.slice(0, position + 1);
    const right = marked.slice(position + 2);
    const [fromLeft, fromRight] = [await this.#read([left]), await this.#read([right])];
    const count = candidates.length;
    const states: States = {
      cells: joined(fromLeft.cells, fromRight.cells, 2 * count),
      hidden: joined(fromLeft.hidden, fromRight.hidden, 2 * count),
    };
    // The last neighbour on either side is predicted and not read.
    const ahead = right.slice(0, Math.min(right.length, NEIGHBOURS) - 1);
    const behind = left.slice(left.length + 1 - Math.min(left.length, NEIGHBOURS));
    const batch = [
      ...candidates.map((word) => [word, ...ahead]),
      ...candidates.map((word) => [...behind, word]),
    ];
    const read = rowsOf((await this.#read(batch, states)).layers);
    const parts: { candidate: number; x: Rows; target: number }[] = [];
    const add = (candidate: number, row: number, names: readonly string[], direction: Direction) => {
      for (const [i, name] of names.entries()) {
        const target = this.#words.id(name);
        if (target !== null) parts.push({ candidate, x: this.#top(read, row, i, direction), target });
      }
    };
    for (const candidate of candidates.keys()) {
      add(candidate, candidate, right.slice(0, ahead.length + 1), "forward");
      add(candidate, count + candidate, left.slice(left.length - behind.length - 1), "backward");
    }
    const fit = new Array<number>(count).fill(0);
    for (let start = 0; start < parts.length; start += SOFTMAX_ROWS) {
      const block = parts.slice(start, start + SOFTMAX_ROWS);
      const rows = block.map(({ x }) => x);
      const { chosen } = await this.#softmaxOf(rows, block.map(({ target }) => target), "chosen");
      const logps = chosen!.data as Rows;
      block.forEach(({ candidate }, i) => (fit[candidate] = at(fit, candidate) + at(logps, i)));
    }
    return fit;
  }
}

async function openSession(
  base: URL,
  file: SiteFile,
  progress: Progress,
): Promise<ort.InferenceSession> {
  const bytes = await readFile(base, file, progress);
  return ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
}

/** The forward states of one batch of one and the backward states of another, for many rows. */
function joined(forward: ort.Tensor, backward: ort.Tensor, rows: number): ort.Tensor {
  const [layers = 0, sides = 0, , size = 0] = forward.dims;
  const data = new Float32Array(layers * sides * rows * size);
  for (let layer = 0; layer < layers; layer++) {
    for (let side = 0; side < sides; side++) {
      const from = (side === 0 ? forward : backward).data as Rows;
      const offset = layer * sides + side;
      const state = from.subarray(offset * size, (offset + 1) * size);
      for (let row = 0; row < rows; row++) data.set(state, (offset * rows + row) * size);
    }
  }
  return new ort.Tensor("float32", data, [layers, sides, rows, size]);
}

type Reader = (layer: number, row: number, position: number) => Rows;

/** Reads the vectors of (layers, batch, length, width). */
function rowsOf(tensor: ort.Tensor): Reader {
  const [, batch = 0, length = 0, width = 0] = tensor.dims;
  const data = tensor.data as Rows;
  return (layer, row, position) => {
    const start = ((layer * batch + row) * length + position) * width;
    return data.subarray(start, start + width);
  };
}

/** A row of a matrix. */
function at2(tensor: ort.Tensor, row: number): Rows {
  const width = tensor.dims[1] ?? 0;
  return (tensor.data as Rows).subarray(row * width, (row + 1) * width);
}

/** A row of one of several matrices. */
function at3(tensor: ort.Tensor, matrix: number, row: number): Rows {
  const [, rows = 0, width = 0] = tensor.dims;
  const start = (matrix * rows + row) * width;
  return (tensor.data as Rows).subarray(start, start + width);
}

function whole(values: readonly number[], shape: readonly number[]): ort.Tensor {
  return new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
}

function length(vector: Rows): number {
  return Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
}

function numbers(vector: Rows): { norm: number; first: number[] } {
  return { norm: length(vector), first: [...vector.subarray(0, SHOWN)] };
}

function logSumExp(values: ArrayLike<number>): number {
  let most = -Infinity;
  for (let i = 0; i < values.length; i++) most = Math.max(most, at(values, i));
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += Math.exp(at(values, i) - most);
  return most + Math.log(sum);
}

/** Indices of the largest values, the largest first; `allowed` leaves some out. */
function best(
  values: ArrayLike<number>,
  k: number,
  allowed: (index: number) => boolean = () => true,
): number[] {
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    const value = at(values, i);
    if (found.length === k && value <= at(values, at(found, k - 1))) continue;
    if (!allowed(i)) continue;
    let to = found.length;
    while (to > 0 && at(values, at(found, to - 1)) < value) to--;
    found.splice(to, 0, i);
    if (found.length > k) found.pop();
  }
  return found;
}
