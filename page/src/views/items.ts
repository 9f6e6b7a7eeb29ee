/** What is asked of a predictor. */

import { t } from "../i18n.ts";
import { at } from "../maths/vectors.ts";
import { linesOf, Mistake, written } from "./common.ts";

/** What was written, in the form that the task takes. */
export function itemsOf(task: string, values: readonly string[]): unknown[] {
  if (task === "pair" || task === "qa") return [values.map(written)];
  if (task !== "coref") return linesOf(at(values, 0));
  const [text, ...words] = values.map(written) as [string, ...string[]];
  const mentions = words.map((word) => {
    const start = text.indexOf(word);
    if (start < 0) throw new Mistake(t("tasks.notThere", { word }));
    // The service counts whole characters, not the halves that JavaScript has.
    return [word, [...text.slice(0, start)].length];
  });
  return [[text, ...mentions]];
}
