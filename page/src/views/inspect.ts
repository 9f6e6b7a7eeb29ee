/** How it works: the intermediate results of the forward pass for one word. */

import { post, type Inspection } from "../api.ts";
import { h, table } from "../dom.ts";
import { examplesFor } from "../examples.ts";
import { t } from "../i18n.ts";
import { at } from "../maths/vectors.ts";
import { Figure } from "../plots/figure.ts";
import { Sheet } from "../plots/sheet.ts";
import type { Request } from "../snippets.ts";
import { takeaway } from "../takeaway.ts";
import type { Palette } from "../theme.ts";
import { heading, type Setting } from "./common.ts";
import { WordPicker, type WordPickerState } from "./word_picker.ts";

const GUESSES = 5;
const state: WordPickerState = { sentence: null, position: null };

export function inspect({ model }: Setting): HTMLElement {
  const figure = new Figure();
  const guesses = h("div", {});
  const results = h("div", {});
  let request: Request = { route: "v1/inspect", body: {} };
  let data: Inspection | null = null;
  const picker = new WordPicker(
    model,
    state,
    examplesFor(model).inspect,
    { figure, results, gaps: false, show },
  );

  async function show(sentence: string, position: number, signal: AbortSignal): Promise<void> {
    request = { route: "v1/inspect", body: { model: model.name, sentence, position, k: 8 } };
    const found = await post<Inspection>(request, signal);
    data = found;
    figure.show((width, colours) => sheet(found, width, colours));
    guesses.replaceChildren(...tableOf(found));
  }

  results.append(takeaway("inspect", figure, () => ({ request, data })), guesses);
  picker.submit();
  return h(
    "section",
    {},
    heading("view.inspect", "inspect.intro"),
    picker.element,
    figure.element,
    results,
  );
}

function sheet(found: Inspection, width: number, colours: Palette): SVGSVGElement {
  const word = at(found.tokens, found.position);
  const page = new Sheet(width, colours, t("inspect.figure", { word }));
  page.heading(t("inspect.figure", { word }));
  if (found.characters.length > 0) characters(page, found);
  else page.note(t("inspect.noCharacters"));
  let step = found.highways.length > 0 ? 4 : found.characters.length > 0 ? 3 : 1;
  page.heading(t("inspect.token", { step: step++ }));
  page.note(t("inspect.tokenNote", { norm: found.token_vector.norm.toFixed(2) }));
  page.strip(found.token_vector.first);
  for (const layer of found.layers) {
    page.heading(t("inspect.lstm", { step: step++, number: layer.number }));
    const parts = Object.entries(layer.directions).map(([direction, numbers]) => () => {
      page.note(t(direction === "forward" ? "inspect.forward" : "inspect.backward"));
      page.note(t("inspect.state", { norm: numbers.norm.toFixed(2) }));
      page.strip(numbers.first);
      page.note(t("inspect.norms"));
      page.bars(
        found.tokens.map((token, i) => ({
          label: token,
          value: at(numbers.norms, i),
          text: at(numbers.norms, i).toFixed(2),
        })),
      );
    });
    page.columns(parts, 260);
  }
  const here = found.guesses?.[found.position];
  if (here !== undefined) {
    page.heading(t("inspect.guesses", { step }));
    page.columns(
      [
        { name: t("inspect.left"), chances: here.forward },
        { name: t("inspect.right"), chances: here.backward ?? [] },
      ].map(({ name, chances }) => () => {
        page.note(name);
        page.bars(
          chances.slice(0, GUESSES).map((chance) => ({
            label: chance.word,
            value: chance.probability,
            text: `${(chance.probability * 100).toFixed(1)} %`,
          })),
        );
      }),
    );
  }
  return page.finish();
}

function characters(page: Sheet, found: Inspection): void {
  // Every word is padded; the padding carries no information.
  const used = found.characters.filter(({ character }) => character !== "<pad>");
  page.heading(t("inspect.characters"));
  page.note(t("inspect.charactersNote"));
  page.chips(used.map(({ character, id }) => ({ top: character, bottom: String(id) })));
  page.heading(t("inspect.filters"));
  page.columns(
    [
      () => {
        page.note(t("inspect.filtersNote"));
        page.bars(
          found.widths.map(({ width, filters, firing }) => ({
            label: t("inspect.width", { width }),
            value: firing / filters,
            text: `${firing} / ${filters}`,
          })),
          1,
        );
      },
      () => {
        page.note(t("inspect.strongest"));
        page.bars(
          found.filters.map((filter) => ({
            label: filter.characters.map((character) => (character === "<pad>" ? "·" : character)).join(""),
            value: Math.max(0, filter.value),
            text: filter.value.toFixed(2),
          })),
        );
      },
    ],
    240,
  );
  found.highways.forEach(({ mean, bins }, i) => {
    const count = bins.reduce((a, b) => a + b, 0);
    page.heading(t("inspect.highway", { number: found.highways.length > 1 ? i + 1 : "" }).trim());
    page.note(t("inspect.highwayNote", { count, mean: mean.toFixed(2) }));
    page.bars(
      bins.map((value, bin) => ({
        label: `${(bin / bins.length).toFixed(1)}–${((bin + 1) / bins.length).toFixed(1)}`,
        value,
        text: String(value),
      })),
    );
  });
}

/** The predictions at every position. */
function tableOf(found: Inspection): HTMLElement[] {
  if (found.guesses === null) return [h("p", {}, t("inspect.noSoftmax"))];
  const list = (chances: readonly { word: string; probability: number }[] | null) =>
    (chances ?? [])
      .slice(0, GUESSES)
      .map(({ word, probability }) => `${word} ${(probability * 100).toFixed(1)} %`)
      .join(", ");
  const rows = found.guesses.map((guess, i) => [
    i === found.position ? h("mark", {}, guess.token) : guess.token,
    list(guess.forward),
    list(guess.backward),
  ]);
  return [
    h("p", {}, t("inspect.guessesNote")),
    table([t("gap.word"), t("inspect.left"), t("inspect.right")], rows),
  ];
}
