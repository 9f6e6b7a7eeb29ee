/** What a predictor is given. */

import type { FormField } from "../api.ts";
import { t } from "../i18n.ts";
import { at } from "../maths/vectors.ts";
import { linesOf, Mistake, written } from "./common.ts";

/** What was written into the fields of a form, as the task takes it. */
export function itemsOf(form: readonly FormField[], values: readonly string[]): unknown[] {
  if (at(form, 0).kind === "lines") return linesOf(at(values, 0));
  const texts = values.map(written);
  const whole = texts[form.findIndex(({ kind }) => kind === "text")] ?? "";
  const parts = form.map(({ kind }, i) => (kind === "mention" ? mention(whole, at(texts, i)) : at(texts, i)));
  return [parts.length === 1 ? parts[0] : parts];
}

function mention(text: string, words: string): [string, number] {
  const start = text.indexOf(words);
  if (start < 0) throw new Mistake(t("tasks.notThere", { word: words }));
  // The service counts whole characters, not the halves that JavaScript has.
  return [words, [...text.slice(0, start)].length];
}
