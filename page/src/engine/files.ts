/** The files of a site that `elmokit site` has written. */

import type { Model, Offer } from "../api.ts";
import type { Config } from "./inputs.ts";

/** A gzip-compressed file beside the page; its name changes with its contents. */
export interface SiteFile {
  readonly path: string;
  readonly bytes: number;
}

export interface SiteModel extends Model {
  readonly config: Config;
  readonly symbols: string[] | null;
  readonly graph: SiteFile;
  readonly softmax: SiteFile | null;
  readonly vocabulary: SiteFile | null;
  /** The dictionary by which Chinese is split, if the model needs one. */
  readonly segmenter: SiteFile | null;
}

export interface Site extends Offer {
  readonly runtime: SiteFile;
  readonly models: SiteModel[];
}

/** Called with the bytes that have arrived. */
export type Progress = (bytes: number) => void;

/** A file that cannot be loaded; shown as any other failure to reach the site. */
export class Unreachable extends TypeError {}

export async function readJson<T>(url: URL): Promise<T> {
  const answer = await fetch(url, { cache: "no-cache" });
  if (!answer.ok) throw new Unreachable(`${url.pathname}: ${answer.status}`);
  return (await answer.json()) as T;
}

/** The contents of a file, decompressed. */
export async function readFile(base: URL, file: SiteFile, progress: Progress): Promise<Uint8Array> {
  const answer = await fetch(new URL(file.path, base));
  if (!answer.ok || answer.body === null) throw new Unreachable(`${file.path}: ${answer.status}`);
  const counted = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(chunk, out) {
      progress(chunk.length);
      out.enqueue(chunk);
    },
  });
  const stream = answer.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function readPackedJson<T>(base: URL, file: SiteFile, progress: Progress): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await readFile(base, file, progress))) as T;
}
