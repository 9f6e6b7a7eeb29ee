/** The service, as the page calls it. Paths are relative, so that a proxy may add a prefix. */

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
}

/** A field of the form for a predictor's items, as its task declares it. */
export interface FormField {
  readonly name: string;
  /** lines: one item per line; text: a long text; line: a short one; mention: words of the text. */
  readonly kind: "lines" | "text" | "line" | "mention";
  readonly label: string;
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

const TOKEN = "elmokit-token";

export function hasToken(): boolean {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function useToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
}

/** Where the service is, without a slash at the end. */
export function address(): string {
  return new URL(".", location.href).href.replace(/\/$/, "");
}

export async function offer(): Promise<Offer> {
  return (await call("v1/models", {})) as Offer;
}

export async function post<T>(request: Request, signal: AbortSignal): Promise<T> {
  const init = { method: "POST", body: JSON.stringify(request.body), signal };
  return (await call(request.route, init, { "Content-Type": "application/json" })) as T;
}

/** How the model splits a text. */
export async function tokensOf(
  model: string,
  sentence: string,
  signal: AbortSignal,
): Promise<string[]> {
  const body = { model, sentences: [sentence], pool: "mean" };
  const answer = await post<{ sentences: { tokens: string[] }[] }>(
    { route: "v1/encode", body },
    signal,
  );
  return answer.sentences[0]?.tokens ?? [];
}

async function call(
  path: string,
  init: RequestInit,
  headers: Record<string, string> = {},
): Promise<unknown> {
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers = { ...headers, Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { ...init, headers });
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let detail = text;
  try {
    detail = (JSON.parse(text) as { detail: string }).detail;
  } catch {
    // A proxy's answer need not be JSON: show its text.
  }
  throw new Refused(answer.status, detail);
}
