/** What every view exports: the request as code, the data, the figure. */

import { backend } from "./api.ts";
import { h } from "./dom.ts";
import { t } from "./i18n.ts";
import type { Figure } from "./plots/figure.ts";
import type { Request } from "./snippets.ts";

export interface Result {
  readonly request: Request;
  /** Ready for JSON. */
  readonly data: unknown;
}

/** Buttons below a figure; `name` is the prefix of the files' names. */
export function takeaway(name: string, figure: Figure, result: () => Result): HTMLElement {
  const said = h("span", { role: "status" });
  const code = h("code", {});
  const box = h("pre", { hidden: true, tabindex: 0, "aria-label": t("take.code") }, code);

  async function copy(text: string): Promise<void> {
    code.textContent = text;
    box.hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = t("take.copied");
    } catch {
      said.textContent = t("take.notCopied");
    }
  }

  function save(ending: string, content: Blob): void {
    const link = h("a", { href: URL.createObjectURL(content), download: `elmokit-${name}.${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  /** Copies the code that the backend has for the request; no button where it has none. */
  function copier(label: string, write: (request: Request) => string | null): HTMLElement | null {
    if (write(result().request) === null) return null;
    return button(label, () => void copy(write(result().request) ?? ""));
  }

  const button = (label: string, act: () => void) =>
    h("button", { type: "button", onclick: act }, label);
  return h(
    "section",
    { class: "takeaway", "aria-label": t("take.title") },
    copier(t("take.python"), (request) => backend().asPython(request)),
    copier(t("take.curl"), (request) => backend().asCurl(request)),
    button(t("take.data"), () => {
      const text = JSON.stringify(result().data, null, 1);
      save("json", new Blob([text], { type: "application/json" }));
    }),
    button(t("take.svg"), () => save("svg", new Blob([figure.svg()], { type: "image/svg+xml" }))),
    button(t("take.png"), () => void figure.png().then((blob) => save("png", blob))),
    said,
    box,
  );
}
