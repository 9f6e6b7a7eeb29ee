/** A model in a worker of this page, with the files beside it; no service is needed. */

import { Refused, type Backend } from "../api.ts";
import { readJson, type Site } from "../engine/files.ts";
import type { Message, Reply } from "../engine/worker.ts";
import { asLocalPython, type Request } from "../snippets.ts";

/** Called with the bytes that have arrived of those that are needed. */
type Listener = (loaded: number, total: number) => void;

interface Waiting {
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

export class BrowserBackend implements Backend {
  readonly hasTasks = false;
  readonly texts = { privacy: "page.localPrivacy", unreachable: "page.localUnreachable" } as const;
  readonly #base = new URL(".", location.href);
  readonly #worker = new Worker(new URL("../engine/worker.ts", import.meta.url), { type: "module" });
  readonly #waiting = new Map<number, Waiting>();
  #count = 0;

  constructor(listen: Listener) {
    this.#worker.onmessage = ({ data }: MessageEvent<Reply>) => {
      if (!("id" in data)) return listen(data.loaded, data.total);
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ("answer" in data) waiting?.resolve(data.answer);
      else if ("detail" in data) waiting?.reject(new Refused(data.status, data.detail));
      else waiting?.reject(new TypeError(data.unreachable));
    };
  }

  async offer(): Promise<Site> {
    const site = await readJson<Site>(new URL("site.json", this.#base));
    this.#send({ site, base: this.#base.href });
    return site;
  }

  post<T>({ route, body }: Request, signal: AbortSignal): Promise<T> {
    const id = this.#count++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as (answer: unknown) => void, reject });
      signal.addEventListener("abort", () => {
        if (this.#waiting.delete(id)) this.#send({ cancel: id });
        reject(signal.reason);
      });
      this.#send({ id, route, body });
    });
  }

  tokens(model: string, sentence: string, signal: AbortSignal): Promise<string[]> {
    return this.post({ route: "tokens", body: { model, sentence } }, signal);
  }

  asPython(request: Request): string | null {
    return asLocalPython(request);
  }

  asCurl(): null {
    return null;
  }

  useToken(): void {
    // Nobody asks for one.
  }

  #send(message: Message): void {
    this.#worker.postMessage(message);
  }
}
