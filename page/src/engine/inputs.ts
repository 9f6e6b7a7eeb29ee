/** Character and word ids of words, as `elmokit.text.inputs` makes them. */

/** The part of a model's configuration that the page needs, as Python writes it. */
export interface Config {
  readonly text: { readonly begin: string; readonly end: string; readonly unknown: string };
  readonly characters: {
    readonly alphabet: string;
    readonly max_characters: number;
    readonly filters: readonly (readonly [width: number, count: number])[];
    readonly activation: string;
    readonly swapped_markers?: boolean;
  } | null;
  readonly words: object | null;
  readonly lstm: { readonly layers: number; readonly cells: number; readonly width: number };
}

const BEGIN_SENTENCE = 257;
const END_SENTENCE = 258;
const BYTE_SHIFT = 1;

/** Turns words into rows of character ids. */
export class Alphabet {
  readonly begin: number;
  readonly end: number;
  readonly padding: number;
  readonly #config: Config;
  readonly #longest: number;
  readonly #columns: number;
  readonly #margin: number;
  readonly #symbols: ReadonlyMap<string, number> | null;
  readonly #markers: ReadonlyMap<string, number>;

  /** `symbols` is the dictionary of a Unicode alphabet; bytes need none. */
  constructor(config: Config, symbols: readonly string[] | null) {
    const characters = config.characters;
    if (characters === null) throw new Error("the model reads no characters");
    this.#config = config;
    this.#columns = characters.max_characters;
    this.#longest = characters.max_characters - 2;
    this.#margin = Math.max(...characters.filters.map(([width]) => width));
    const { begin, end } = config.text;
    if (characters.alphabet === "bytes" || symbols === null) {
      this.#symbols = null;
      [this.begin, this.end, this.padding] = [259, 260, 261];
      this.#markers = new Map([[begin, BEGIN_SENTENCE], [end, END_SENTENCE]]);
      return;
    }
    const index = new Map(symbols.map((symbol, i) => [symbol, i]));
    const id = (symbol: string) => index.get(symbol) ?? 0;
    const ends = [id("<bow>"), id("<eow>")] as const;
    [this.begin, this.end] = characters.swapped_markers ? [ends[1], ends[0]] : ends;
    this.padding = id("<pad>");
    this.#markers = new Map([[begin, id(begin)], [end, id(end)]]);
    this.#symbols = index;
  }

  /** Ids of a word's characters, between no markers. */
  characters(word: string): number[] {
    const marker = this.#markers.get(word);
    if (marker !== undefined) return [marker];
    const symbols = this.#symbols;
    if (symbols !== null) {
      const unknown = symbols.get("<oov>") ?? 0;
      return [...word].slice(0, this.#longest).map((character) => symbols.get(character) ?? unknown);
    }
    // What UTF-8 cannot encode, half of a pair, is left out.
    const bytes = new TextEncoder().encode(word.replace(/\p{Surrogate}/gu, ""));
    return [...bytes.slice(0, this.#longest)].map((byte) => byte + BYTE_SHIFT);
  }

  /** Rows of ids, as wide as the longest word needs. */
  rows(words: readonly string[]): number[][] {
    const ids = words.map((word) => this.characters(word));
    const longest = Math.max(...ids.map((row) => row.length)) + 2;
    const columns = Math.min(this.#columns, longest + this.#margin);
    return ids.map((row) => {
      const filled = [this.begin, ...row, this.end];
      return [...filled, ...new Array<number>(columns - filled.length).fill(this.padding)];
    });
  }

  /** What each id of a word's row means: a character, a byte, or a marker. */
  names(word: string, row: readonly number[]): string[] {
    const { begin, end } = this.#config.text;
    const letters = [...word];
    return row.map((id, index) => {
      if (id === this.begin) return "<word>";
      if (id === this.end) return "</word>";
      if (id === this.padding) return "<pad>";
      if (word === begin || word === end) return word;
      if (this.#symbols !== null) return letters[index - 1] ?? "";
      const byte = id - BYTE_SHIFT;
      if (byte > 0x20 && byte < 0x7f) return String.fromCharCode(byte);
      return `0x${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    });
  }
}

/** The words of a model, and how often they occur in the text that it was trained on. */
export class Vocabulary {
  readonly words: readonly string[];
  readonly counts: readonly number[] | null;
  readonly unknown: number | null;
  readonly #index: ReadonlyMap<string, number>;

  constructor(words: readonly string[], counts: readonly number[] | null, config: Config) {
    this.words = words;
    this.counts = counts;
    // Of a repeated word the last id counts; an empty line is an id without a word.
    this.#index = new Map(words.map((word, i) => [word, i] as const).filter(([word]) => word !== ""));
    this.unknown = this.#index.get(config.text.unknown) ?? null;
  }

  id(word: string): number | null {
    return this.#index.get(word) ?? this.unknown;
  }

  /** Whether a row is a word that may be predicted. */
  isWord(row: number, config: Config): boolean {
    const word = this.words[row] ?? "";
    const special = [config.text.begin, config.text.end, config.text.unknown];
    return word !== "" && !special.includes(word) && this.#index.get(word) === row;
  }
}
