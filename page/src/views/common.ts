/** What the views share. */

import { backend, Refused, type Model, type Offer } from "../api.ts";
import { h, type Child } from "../dom.ts";
import { t, type Key } from "../i18n.ts";
import type { Figure } from "../plots/figure.ts";

/** What a view shows: a service and a model. */
export interface Setting {
  readonly offer: Offer;
  readonly model: Model;
}

export type MakeView = (setting: Setting) => HTMLElement;

/**
 * Runs one job at a time and shows its status or error; a new job aborts the one before. After an
 * error the results of the job before are gone: its figure, and what is below it.
 */
export class Work {
  readonly status = h("p", { class: "status", role: "status" });
  readonly #figure: Figure;
  readonly #results: HTMLElement;
  #running: AbortController | null = null;

  constructor(figure: Figure, results: HTMLElement) {
    this.#figure = figure;
    this.#results = results;
    results.hidden = true;
  }

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
    this.#results.hidden = message !== "";
    if (message !== "") this.#figure.clear();
    this.status.className = message === "" ? "status" : "status problem";
    this.status.textContent = message;
  }
}

/** Long enough for the browser to render. */
export function moment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

/** An error in what the user has entered. */
export class Mistake extends Error {}

function reason(error: unknown): string {
  if (error instanceof Refused || error instanceof Mistake) return error.message;
  if (error instanceof TypeError) return t(backend().texts.unreachable);
  throw error;
}

export function heading(title: Key, intro: Key): HTMLElement {
  return h("header", {}, h("h1", {}, t(title)), h("p", {}, t(intro)));
}

/** A view with its picture first, above the fold of a phone too, and its fields beside or below. */
export function split(
  title: HTMLElement,
  picture: readonly HTMLElement[],
  fields: readonly HTMLElement[],
  results: HTMLElement,
): HTMLElement {
  return h(
    "section",
    { class: "split" },
    title,
    h("div", { class: "picture" }, ...picture),
    h("div", { class: "fields" }, ...fields),
    results,
  );
}

/** A form with a submit button. */
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
  const buttons = tokens.map((token, index) => {
    const pressed = { type: "button", "aria-pressed": String(index === position) };
    return h("button", { ...pressed, onclick: () => pick(index) }, token);
  });
  return h("div", { class: "tokens", role: "group", "aria-label": t("form.pick") }, ...buttons);
}

/** The trimmed text, which must not be empty. */
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
