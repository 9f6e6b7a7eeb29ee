/** Fill the gap: what each direction guesses for a hidden word, and both together. */

import { post, type Guess, type Substitutes } from "../api.ts";
import { field, h, select, table } from "../dom.ts";
import { examplesFor } from "../examples.ts";
import { t } from "../i18n.ts";
import { at } from "../maths/vectors.ts";
import { Figure } from "../plots/figure.ts";
import { Sheet } from "../plots/sheet.ts";
import type { Request } from "../snippets.ts";
import { takeaway } from "../takeaway.ts";
import type { Palette } from "../theme.ts";
import { heading, type Setting } from "./common.ts";
import { GAP } from "../words.ts";
import { WordPicker, type WordPickerState } from "./word_picker.ts";

const state: WordPickerState & { count: number } = { sentence: null, position: null, count: 10 };

export function gap({ model }: Setting): HTMLElement {
  if (!model.predicts_words) {
    return h("section", {}, heading("view.gap", "gap.intro"), h("p", {}, t("gap.none")));
  }
  const figure = new Figure();
  const details = h("div", {});
  const results = h("div", {});
  let request: Request = { route: "v1/substitutes", body: {} };
  let data: Substitutes | null = null;
  const picker = new WordPicker(
    model,
    state,
    examplesFor(model).gap,
    { figure, results, gaps: true, show },
  );

  async function show(sentence: string, position: number, signal: AbortSignal): Promise<void> {
    const body = { model: model.name, sentence, position, k: state.count };
    request = { route: "v1/substitutes", body };
    const found = await post<Substitutes>(request, signal);
    data = found;
    figure.show((width, colours) => sheet(found, width, colours));
    const word = at(found.tokens, position);
    const hidden = word === GAP ? null : h("p", {}, t("gap.hidden", { word }));
    details.replaceChildren(...(hidden === null ? [] : [hidden]), tableOf(found));
  }

  const count = select(
    ["5", "10", "20", "50"].map((value) => [value, value] as const),
    String(state.count),
    (value) => {
      state.count = Number(value);
      picker.submit();
    },
  );
  results.append(takeaway("gap", figure, () => ({ request, data })), details);
  picker.submit();
  return h(
    "section",
    {},
    heading("view.gap", "gap.intro"),
    picker.element,
    h("div", { class: "controls" }, field(t("gap.count"), count)),
    figure.element,
    results,
  );
}

function sheet(found: Substitutes, width: number, colours: Palette): SVGSVGElement {
  const sentence = found.tokens.map((token, i) => (i === found.position ? GAP : token)).join(" ");
  const label = t("gap.figure", { sentence });
  const page = new Sheet(width, colours, label);
  page.heading(label);
  const panel = (title: string, guesses: readonly Guess[], value: (guess: Guess) => number) => () => {
    page.note(title);
    page.bars(
      guesses.map((guess) => ({
        label: guess.word,
        value: Math.exp(value(guess)),
        text: `${(100 * Math.exp(value(guess))).toFixed(1)} %`,
      })),
    );
  };
  const parts = [panel(t("gap.forward"), found.forward, (guess) => guess.forward)];
  parts.push(panel(t("gap.both"), found.both, (guess) => guess.logprob));
  if (found.backward !== null) {
    parts.push(panel(t("gap.backward"), found.backward, (guess) => guess.backward ?? -Infinity));
  }
  page.columns(parts, 180);
  return page.finish();
}

function tableOf(found: Substitutes): HTMLElement {
  const rows = found.both.map((guess) => [
    guess.word,
    guess.logprob.toFixed(3),
    guess.forward.toFixed(3),
    guess.backward?.toFixed(3) ?? "",
  ]);
  const directions = [t("gap.both"), t("gap.forward"), t("gap.backward")];
  return table(
    [t("gap.word"), ...directions.map((direction) => t("gap.logs", { direction }))],
    rows,
  );
}
