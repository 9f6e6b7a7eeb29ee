// Builds the page into the Python package: for `elmokit serve`, which gives it out, and with
// --mode site for `elmokit site`, which writes it as a site that needs no server.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";

const root = import.meta.dirname;

/** Names what was built from what: a test compares it with the sources. */
function fingerprint() {
  const files = readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"));
  const hash = createHash("sha256");
  for (const name of [...files, "index.html", "package-lock.json"].sort()) {
    hash.update(`${name}\n`).update(readFileSync(join(root, name)));
  }
  return hash.digest("hex");
}

const WASM = "ort-wasm-simd-threaded.wasm";

/** The entry and the rights of the page without a server. */
function asSite(html) {
  return html
    .replace("/src/served.ts", "/src/site.ts")
    .replace("script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'");
}

/**
 * onnxruntime names its WASM file, which `elmokit site` adds and the worker reads itself, and a
 * home folder that its virtual file system never uses.
 */
const withoutWasm = {
  name: "without-wasm",
  enforce: "pre",
  transform(code, id) {
    if (!id.includes("onnxruntime-web")) return null;
    return code
      .replaceAll(`new URL("${WASM}",import.meta.url)`, `new URL("${WASM}",location.href)`)
      .replaceAll(/\/\w+\/web_user/g, "/");
  },
};

const SITE_INPUTS = {
  input: { index: join(root, "index.html"), sw: join(root, "src/sw.ts") },
  output: {
    // The service worker keeps its name: it controls the folder that it is in.
    entryFileNames: ({ name }) => (name === "sw" ? "sw.js" : "assets/[name]-[hash].js"),
  },
};

export default ({ mode }) => ({
  root,
  base: "./",
  build: {
    outDir: mode === "site" ? "../src/elmokit/server/static_page" : "../src/elmokit/server/page",
    emptyOutDir: true,
    rollupOptions: mode === "site" ? SITE_INPUTS : {},
    target: "es2022",
    modulePreload: { polyfill: false },
  },
  worker: { format: "es", plugins: () => [withoutWasm] },
  plugins: [
    ...(mode === "site"
      ? [
          {
            name: "as-site",
            transformIndexHtml: { order: "pre", handler: asSite },
            generateBundle() {
              const source = readFileSync(join(root, "licences.txt"), "utf-8");
              this.emitFile({ type: "asset", fileName: "licences.txt", source });
            },
          },
        ]
      : []),
    {
      name: "sources",
      transformIndexHtml: () => [
        { tag: "meta", attrs: { name: "sources", content: fingerprint() }, injectTo: "head" },
      ],
    },
  ],
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
  test: { include: ["tests/**/*.test.ts"] },
});
