/** Requests and answers of the views, which do not know where the answers come from. */

import type { Key } from "./i18n.ts";
import type { Request } from "./snippets.ts";

export interface Mix {
  readonly s: number[];
  readonly gamma: number;
}

export interface Model {
  readonly name: string;
  readonly dim: number;
  readonly layers: number;
  readonly tokenizer: string;
  readonly predicts_words: boolean;
  readonly mix: Mix[];
}

export interface PredictorFacts {
  readonly name: string;
  readonly task: string;
  readonly layers: Record<string, Mix>;
  readonly form: readonly FormField[];
  readonly tokenizer: string;
}

/** A field of the form for a predictor's items, as its task declares it. */
export interface FormField {
  readonly name: string;
  /** lines: one item per line; text: a long text; line: a short one; mention: words of the text. */
  readonly kind: "lines" | "text" | "line" | "mention";
  readonly label: string;
  /** What the field holds at first, for tasks that the page does not know. */
  readonly example: string;
}

export interface Offer {
  readonly version: string;
  readonly models: Model[];
  readonly predictors: PredictorFacts[];
}

export interface Encoded {
  readonly tokens: string[];
  /** (layers, tokens, width) */
  readonly vectors: number[][][];
}

interface Numbers {
  readonly norm: number;
  readonly first: number[];
}

export interface Guess {
  readonly word: string;
  readonly logprob: number;
  readonly forward: number;
  readonly backward: number | null;
}

export interface Substitutes {
  readonly tokens: string[];
  readonly position: number;
  readonly both: Guess[];
  readonly forward: Guess[];
  readonly backward: Guess[] | null;
}

export interface WordProbability {
  readonly word: string;
  readonly probability: number;
}

export interface Inspection {
  readonly tokens: string[];
  readonly position: number;
  readonly characters: { character: string; id: number }[];
  readonly widths: { width: number; filters: number; firing: number }[];
  readonly filters: { number: number; width: number; value: number; characters: string[] }[];
  readonly highways: { mean: number; bins: number[]; output: Numbers }[];
  readonly token_vector: Numbers;
  readonly layers: { number: number; directions: Record<string, Numbers & { norms: number[] }> }[];
  readonly guesses: { token: string; forward: WordProbability[]; backward: WordProbability[] | null }[] | null;
}

export interface Predictions {
  readonly predictor: string;
  readonly task: string;
  readonly layers: Record<string, Mix>;
  readonly items: { texts: string[][]; answer: unknown }[];
}

/** The service refused a request; the message is its reason. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

/** Where the page's answers come from: a service, or a model that runs in the browser. */
export interface Backend {
  offer(): Promise<Offer>;
  post<T>(request: Request, signal: AbortSignal): Promise<T>;
  /** How a model splits a text. */
  tokens(model: string, sentence: string, signal: AbortSignal): Promise<string[]>;
  /** The request as Python or as a command; null where nothing but this page can answer it. */
  asPython(request: Request): string | null;
  asCurl(request: Request): string | null;
  /** Uses a token from now on, if the backend knows of tokens. */
  useToken(token: string): void;
  /** Whether it has saved predictors. */
  readonly hasTasks: boolean;
  readonly texts: {
    /** Says where what the user enters goes. */
    readonly privacy: Key;
    /** Says that no answer came. */
    readonly unreachable: Key;
  };
}

let chosen: Backend | null = null;

export function setBackend(backend: Backend): void {
  chosen = backend;
}

export function backend(): Backend {
  if (chosen === null) throw new Error("setBackend first");
  return chosen;
}

export function post<T>(request: Request, signal: AbortSignal): Promise<T> {
  return backend().post<T>(request, signal);
}

/** How the model splits a text. */
export function tokensOf(model: string, sentence: string, signal: AbortSignal): Promise<string[]> {
  return backend().tokens(model, sentence, signal);
}
