/** The service worker of the page without a server: after the first visit it works offline. */

interface ExtendableEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}

interface FetchEvent extends ExtendableEvent {
  readonly request: Request;
  respondWith(answer: Promise<Response>): void;
}

interface Scope {
  readonly registration: ServiceWorkerRegistration;
  readonly clients: { claim(): Promise<void> };
  skipWaiting(): Promise<void>;
  addEventListener(type: "install" | "activate", listen: (event: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", listen: (event: FetchEvent) => void): void;
}

const scope = self as unknown as Scope;
const CACHE = "elmokit-site";
const SITE = "site.json";

function url(path: string): string {
  return new URL(path, scope.registration.scope).href;
}

/** Keeps the page itself; the files of models are kept when they are first needed. */
async function install(): Promise<void> {
  const cache = await caches.open(CACHE);
  const answer = await fetch(url(SITE), { cache: "no-cache" });
  const { files } = (await answer.clone().json()) as { files: string[] };
  await cache.put(url(SITE), answer);
  const page = files.filter((path) => path.startsWith("assets/"));
  await cache.addAll(["", ...page].map(url));
  await scope.skipWaiting();
}

/** Files whose names change with their contents: what is kept is right for ever. */
async function kept(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const found = await cache.match(request.url);
  if (found !== undefined) return found;
  const answer = await fetch(request);
  if (answer.ok) void cache.put(request.url, answer.clone()).catch(() => undefined);
  return answer;
}

/** The page and the list of its files: the newest, or without a connection what is kept. */
async function newest(request: Request, address: string): Promise<Response> {
  const cache = await caches.open(CACHE);
  try {
    const answer = await fetch(request);
    if (answer.ok) {
      await cache.put(address, answer.clone());
      if (address === url(SITE)) await forget(cache, answer.clone());
    }
    return answer;
  } catch (error) {
    const found = await cache.match(address);
    if (found === undefined) throw error;
    return found;
  }
}

/** Removes files that the site no longer has. */
async function forget(cache: Cache, answer: Response): Promise<void> {
  const { files } = (await answer.json()) as { files: string[] };
  const current = new Set(["", SITE, ...files].map(url));
  for (const request of await cache.keys()) {
    if (!current.has(request.url)) await cache.delete(request);
  }
}

scope.addEventListener("install", (event) => event.waitUntil(install()));
scope.addEventListener("activate", (event) => event.waitUntil(scope.clients.claim()));
scope.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(scope.registration.scope)) return;
  const path = request.url.slice(scope.registration.scope.length).replace(/[?#].*/, "");
  if (/^(assets|data)\//.test(path)) event.respondWith(kept(request));
  else if (path === SITE) event.respondWith(newest(request, url(SITE)));
  else if (path === "" || path === "index.html") event.respondWith(newest(request, url("")));
});
