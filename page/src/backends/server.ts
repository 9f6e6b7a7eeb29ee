/** The service that has served this page. Paths are relative, so that a proxy may add a prefix. */

import { Refused, type Backend, type Offer } from "../api.ts";
import { asCurl, asPython, type Request } from "../snippets.ts";

const TOKEN = "elmokit-token";

export const server: Backend = {
  hasTasks: true,
  texts: { privacy: "page.privacy", unreachable: "page.unreachable" },
  async offer() {
    return (await call("v1/models", {})) as Offer;
  },
  async post<T>(request: Request, signal: AbortSignal) {
    const init = { method: "POST", body: JSON.stringify(request.body), signal };
    return (await call(request.route, init, { "Content-Type": "application/json" })) as T;
  },
  async tokens(model, sentence, signal) {
    const body = { model, sentences: [sentence], pool: "mean" };
    const answer = await this.post<{ sentences: { tokens: string[] }[] }>(
      { route: "v1/encode", body },
      signal,
    );
    return answer.sentences[0]?.tokens ?? [];
  },
  asPython: (request) => asPython(request, address(), token() !== null),
  asCurl: (request) => asCurl(request, address(), token() !== null),
  useToken: (given) => sessionStorage.setItem(TOKEN, given),
};

function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

/** Where the service is, without a slash at the end. */
function address(): string {
  return new URL(".", location.href).href.replace(/\/$/, "");
}

async function call(
  path: string,
  init: RequestInit,
  headers: Record<string, string> = {},
): Promise<unknown> {
  const bearer = token();
  if (bearer !== null) headers = { ...headers, Authorization: `Bearer ${bearer}` };
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
