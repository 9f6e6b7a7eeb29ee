/** Chinese words as jieba's default mode finds them, with jieba's dictionary and probabilities. */

import { at } from "../maths/vectors.ts";

type State = "B" | "M" | "E" | "S";

/** What `elmokit site` takes from jieba. */
export interface Dictionary {
  readonly words: readonly string[];
  readonly counts: readonly number[];
  readonly total: number;
  /** A hidden Markov model of characters, for words that are not in the dictionary. */
  readonly start: Record<State, number>;
  readonly trans: Record<State, Partial<Record<State, number>>>;
  readonly emit: Record<State, Record<string, number>>;
}

const BLOCK = /[\u4e00-\u9fd5a-zA-Z0-9+#&._%-]+/g;
const HAN = /[\u4e00-\u9fd5]+/g;
const LATIN = /[a-zA-Z0-9]+(?:\.\d+)?%?/g;
// Python's white space.
const NO_SPACE =
  /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/gu;
/** The log-probability of what never happens. */
const NEVER = -3.14e100;
const STATES: readonly State[] = ["B", "M", "E", "S"];
/** States before a state; of two equally probable ones the last wins. */
const BEFORE: Record<State, readonly State[]> = {
  B: ["E", "S"],
  M: ["B", "M"],
  S: ["E", "S"],
  E: ["B", "M"],
};

export class Segmenter {
  readonly #dictionary: Dictionary;
  readonly #counts: ReadonlyMap<string, number>;
  readonly #longest: number;
  readonly #logTotal: number;

  constructor(dictionary: Dictionary) {
    this.#dictionary = dictionary;
    this.#counts = new Map(dictionary.words.map((word, i) => [word, at(dictionary.counts, i)]));
    this.#longest = dictionary.words.reduce((most, word) => Math.max(most, word.length), 1);
    this.#logTotal = Math.log(dictionary.total);
  }

  tokenize(text: string): string[] {
    return pieces(text, BLOCK, (block) => this.#words(block), (rest) => rest.match(NO_SPACE) ?? []);
  }

  /** The most probable words of the dictionary; characters between them are joined to new words. */
  #words(block: string): string[] {
    const ends = this.#route(block);
    const found: string[] = [];
    let single = "";
    const flush = () => {
      if (single.length > 1 && !this.#counts.has(single)) found.push(...this.#newWords(single));
      else found.push(...single);
      single = "";
    };
    for (let start = 0; start < block.length; start = at(ends, start)) {
      const word = block.slice(start, at(ends, start));
      if (word.length === 1) single += word;
      else {
        flush();
        found.push(word);
      }
    }
    flush();
    return found;
  }

  /** Where the word that starts at each character ends. */
  #route(block: string): number[] {
    const best = new Float64Array(block.length + 1);
    const ends = new Array<number>(block.length).fill(0);
    for (let start = block.length - 1; start >= 0; start--) {
      const [most, before] = [Math.min(block.length, start + this.#longest), at(best, start + 1)];
      // A character that is no word counts as one seen once, if no word starts with it.
      [best[start], ends[start]] = [-this.#logTotal + before, start + 1];
      let known = false;
      for (let end = start + 1; end <= most; end++) {
        const count = this.#counts.get(block.slice(start, end));
        if (count === undefined) continue;
        const score = Math.log(count) - this.#logTotal + at(best, end);
        if (!known || score >= at(best, start)) [best[start], ends[start]] = [score, end];
        known = true;
      }
    }
    return ends;
  }

  /** Words that the dictionary lacks. */
  #newWords(text: string): string[] {
    return pieces(text, HAN, (han) => this.#tagged(han), (rest) => {
      return pieces(rest, LATIN, (latin) => [latin], (other) => [other]);
    });
  }

  #tagged(text: string): string[] {
    const states = this.#viterbi(text);
    const found: string[] = [];
    let [begin, next] = [0, 0];
    states.forEach((state, i) => {
      if (state === "B") begin = i;
      if (state === "E") found.push(text.slice(begin, i + 1));
      if (state === "S") found.push(text.slice(i, i + 1));
      if (state === "E" || state === "S") next = i + 1;
    });
    if (next < text.length) found.push(text.slice(next));
    return found;
  }

  /** The most probable states: begin, middle and end of a word, or a word of one character. */
  #viterbi(text: string): State[] {
    const { start, trans, emit } = this.#dictionary;
    const emitted = (state: State, i: number) => emit[state][at(text, i)] ?? NEVER;
    let paths = new Map<State, { score: number; states: State[] }>();
    for (const state of STATES) {
      paths.set(state, { score: start[state] + emitted(state, 0), states: [state] });
    }
    const score = (state: State) => paths.get(state)?.score ?? NEVER;
    for (let i = 1; i < text.length; i++) {
      const longer: typeof paths = new Map();
      for (const state of STATES) {
        const [a, b] = BEFORE[state].map(
          (one) => score(one) + (trans[one][state] ?? NEVER) + emitted(state, i),
        ) as [number, number];
        const from = at(BEFORE[state], b >= a ? 1 : 0);
        const states = [...(paths.get(from)?.states ?? []), state];
        longer.set(state, { score: Math.max(a, b), states });
      }
      paths = longer;
    }
    return paths.get(score("S") >= score("E") ? "S" : "E")?.states ?? [];
  }
}

/** The parts of a text that match a pattern and those between, each split further. */
function pieces(
  text: string,
  pattern: RegExp,
  inside: (part: string) => string[],
  between: (part: string) => string[],
): string[] {
  const found: string[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) found.push(...between(text.slice(end, match.index)));
    found.push(...inside(match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push(...between(text.slice(end)));
  return found;
}
