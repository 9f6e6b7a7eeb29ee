// Builds the page into the Python package, from where `elmokit serve` gives it out.
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

export default {
  root,
  base: "./",
  build: {
    outDir: "../src/elmokit/server/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
  },
  plugins: [
    {
      name: "sources",
      transformIndexHtml: () => [
        { tag: "meta", attrs: { name: "sources", content: fingerprint() }, injectTo: "head" },
      ],
    },
  ],
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
  test: { include: ["tests/**/*.test.ts"] },
};
