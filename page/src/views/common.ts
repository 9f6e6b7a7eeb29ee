/** What the views share. */

import { Refused, type Model, type Offer } from "../api.ts";
import { h, type Child } from "../dom.ts";
import { t, type Key } from "../i18n.ts";

/** What a view is made for. */
export interface Setting {
  readonly offer: Offer;
  readonly model: Model;
}

export type MakeView = (setting: Setting) => HTMLElement;

/** Runs one job at a time, says that it runs and why it failed; a new job ends the one before. */
export class Work {
  readonly status = h("p", { class: "status", role: "status" });
  #running: AbortController | null = null;

  run(job: (signal: AbortSignal) => Promise<void>): void {
    this.#running?.abort();
    const control = new AbortController();
    this.#running = control;
    this.status.className = "status";
    this.status.textContent = t("page.wait");
    job(control.signal).then(
      () => this.#end(control, ""),
      (error: unknown) => {
        if (!control.signal.aborted) this.#end(control, reason(error));
      },
    );
  }

  #end(control: AbortController, message: string): void {
    if (this.#running !== control) return;
    this.status.className = message === "" ? "status" : "status problem";
    this.status.textContent = message;
  }
}

/** Long enough for the browser to show what it has. */
export function moment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

/** A failure that the person at the page can mend. */
export class Mistake extends Error {}

function reason(error: unknown): string {
  if (error instanceof Refused || error instanceof Mistake) return error.message;
  if (error instanceof TypeError) return t("page.unreachable");
  throw error;
}

export function heading(title: Key, intro: Key): HTMLElement {
  return h("header", {}, h("h1", {}, t(title)), h("p", {}, t(intro)));
}

/** A form whose button starts the work. */
export function form(submit: () => void, ...fields: Child[]): HTMLFormElement {
  const send = (event: Event) => {
    event.preventDefault();
    submit();
  };
  const button = h("button", { type: "submit", class: "main" }, t("form.show"));
  return h("form", { onsubmit: send }, ...fields, button);
}

/** Tokens to choose from. */
export function tokenPicker(
  tokens: readonly string[],
  position: number,
  pick: (position: number) => void,
): HTMLElement {
  const buttons = tokens.map((token, place) => {
    const pressed = { type: "button", "aria-pressed": String(place === position) };
    return h("button", { ...pressed, onclick: () => pick(place) }, token);
  });
  return h("div", { class: "tokens", role: "group", "aria-label": t("form.pick") }, ...buttons);
}

/** The text without what surrounds it; there must be some. */
export function written(text: string): string {
  if (text.trim() === "") throw new Mistake(t("form.empty"));
  return text.trim();
}

export function linesOf(text: string): string[] {
  return written(text)
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}
