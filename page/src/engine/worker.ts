/** The worker of the page without a server: loads the site's models and answers requests. */

import { Refused } from "../api.ts";
import { readFile, type Site, type SiteModel } from "./files.ts";
import { BrowserModel, useRuntime } from "./model.ts";

/** What the page sends: the site, first of all; then requests, or the end of one. */
export type Message =
  | { readonly site: Site; readonly base: string }
  | { readonly id: number; readonly route: string; readonly body: Record<string, unknown> }
  | { readonly cancel: number };

/** What comes back. */
export type Reply =
  | { readonly id: number; readonly answer: unknown }
  | { readonly id: number; readonly status: number; readonly detail: string }
  | { readonly id: number; readonly unreachable: string }
  | { readonly loaded: number; readonly total: number };

let site: Site | null = null;
let base = new URL(self.location.href);
let runtime: Promise<void> | null = null;
let model: { readonly name: string; readonly loading: Promise<BrowserModel> } | null = null;
let queue = Promise.resolve();
const cancelled = new Set<number>();
const progress = { loaded: 0, total: 0 };

function reply(message: Reply): void {
  self.postMessage(message);
}

function arrived(bytes: number): void {
  progress.loaded += bytes;
  reply({ ...progress });
}

/** The model of a request; another one before it is freed. */
function modelOf(name: unknown): Promise<BrowserModel> {
  const found = site?.models.find((one) => one.name === name) ?? site?.models[0];
  if (site === null || found === undefined) throw new Refused(422, `no model ${String(name)}`);
  if (model?.name === found.name) return model.loading;
  void model?.loading.then((old) => old.release()).catch(() => undefined);
  const loading = load(site, found).catch((error: unknown) => {
    model = null; // tried again with the next request
    throw error;
  });
  model = { name: found.name, loading };
  return loading;
}

async function load(from: Site, facts: SiteModel): Promise<BrowserModel> {
  const files = [facts.graph, facts.vocabulary, facts.segmenter, facts.softmax, runtime ? null : from.runtime];
  progress.loaded = 0;
  progress.total = files.reduce((sum, file) => sum + (file?.bytes ?? 0), 0);
  arrived(0);
  runtime ??= readFile(base, from.runtime, arrived).then(useRuntime).catch((error: unknown) => {
    runtime = null;
    throw error;
  });
  await runtime;
  const loaded = await BrowserModel.load(facts, base, arrived);
  // The softmax comes after the first answer, which most views can give without it.
  setTimeout(() => {
    if (model?.name === facts.name) loaded.prefetch().catch(() => undefined);
  }, 1000);
  return loaded;
}

async function answer(route: string, body: Record<string, unknown>): Promise<unknown> {
  const chosen = await modelOf(body.model);
  const sentence = String(body.sentence);
  const [position, k] = [Number(body.position), Number(body.k)];
  switch (route) {
    case "tokens":
      return chosen.tokens(sentence);
    case "v1/encode":
      return { sentences: await chosen.encode(body.sentences as string[]) };
    case "v1/inspect":
      return chosen.inspect(sentence, position, k);
    case "v1/substitutes":
      return chosen.substitutes(sentence, position, k);
    default:
      throw new Refused(404, `${route}: not without a server`);
  }
}

async function work(id: number, route: string, body: Record<string, unknown>): Promise<void> {
  if (cancelled.delete(id)) return;
  try {
    reply({ id, answer: await answer(route, body) });
  } catch (error) {
    if (error instanceof Refused) reply({ id, status: error.status, detail: error.message });
    else if (error instanceof TypeError) reply({ id, unreachable: error.message });
    else reply({ id, status: 500, detail: String(error) }); // out of memory, most likely
  }
}

self.onmessage = ({ data }: MessageEvent<Message>) => {
  if ("site" in data) {
    site = data.site;
    base = new URL(data.base);
  } else if ("cancel" in data) {
    cancelled.add(data.cancel);
  } else {
    // One at a time: a session must not run twice at once.
    queue = queue.then(() => work(data.id, data.route, data.body));
  }
};
