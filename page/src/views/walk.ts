/** How it works: the way of one word through the model, with its real numbers. */

import { post, type Walk } from "../api.ts";
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
import { Place, type PlaceState } from "./place.ts";

const GUESSES = 5;
const state: PlaceState = { sentence: null, position: null };

export function walk({ model }: Setting): HTMLElement {
  const figure = new Figure();
  const guesses = h("div", {});
  let request: Request = { route: "v1/inspect", body: {} };
  let data: Walk | null = null;
  const place = new Place(
    model,
    state,
    examplesFor(model).walk,
    async (sentence, position, signal) => {
      request = { route: "v1/inspect", body: { model: model.name, sentence, position, k: 8 } };
      const found = await post<Walk>(request, signal);
      data = found;
      figure.show((width, colours) => sheet(found, width, colours));
      guesses.replaceChildren(...tableOf(found));
    },
  );
  place.submit();
  return h(
    "section",
    {},
    heading("view.walk", "walk.intro"),
    place.element,
    figure.element,
    takeaway("walk", figure, () => ({ request, data })),
    guesses,
  );
}

function sheet(found: Walk, width: number, colours: Palette): SVGSVGElement {
  const word = at(found.tokens, found.position);
  const page = new Sheet(width, colours, t("walk.figure", { word }));
  page.heading(t("walk.figure", { word }));
  if (found.characters.length > 0) letters(page, found);
  else page.note(t("walk.noLetters"));
  let step = found.highways.length > 0 ? 4 : found.characters.length > 0 ? 3 : 1;
  page.heading(t("walk.token", { step: step++ }));
  page.note(t("walk.tokenNote", { norm: found.token_vector.norm.toFixed(2) }));
  page.strip(found.token_vector.first);
  for (const layer of found.layers) {
    page.heading(t("walk.lstm", { step: step++, number: layer.number }));
    const parts = Object.entries(layer.directions).map(([direction, numbers]) => () => {
      page.note(t(direction === "forward" ? "walk.forward" : "walk.backward"));
      page.note(t("walk.state", { norm: numbers.norm.toFixed(2) }));
      page.strip(numbers.first);
      page.note(t("walk.norms"));
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
    page.heading(t("walk.guesses", { step }));
    page.columns(
      [
        { name: t("walk.left"), chances: here.forward },
        { name: t("walk.right"), chances: here.backward ?? [] },
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

function letters(page: Sheet, found: Walk): void {
  // Padding fills the rest of every word and says nothing.
  const used = found.characters.filter(({ character }) => character !== "<pad>");
  page.heading(t("walk.characters"));
  page.note(t("walk.charactersNote"));
  page.chips(used.map(({ character, id }) => ({ top: character, bottom: String(id) })));
  page.heading(t("walk.filters"));
  page.columns(
    [
      () => {
        page.note(t("walk.filtersNote"));
        page.bars(
          found.widths.map(({ width, filters, firing }) => ({
            label: t("walk.width", { width }),
            value: firing / filters,
            text: `${firing} / ${filters}`,
          })),
          1,
        );
      },
      () => {
        page.note(t("walk.strongest"));
        page.bars(
          found.filters.map((filter) => ({
            label: filter.characters.map((sign) => (sign === "<pad>" ? "·" : sign)).join(""),
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
    page.heading(t("walk.highway", { number: found.highways.length > 1 ? i + 1 : "" }).trim());
    page.note(t("walk.highwayNote", { count, mean: mean.toFixed(2) }));
    page.bars(
      bins.map((value, bin) => ({
        label: `${(bin / bins.length).toFixed(1)}–${((bin + 1) / bins.length).toFixed(1)}`,
        value,
        text: String(value),
      })),
    );
  });
}

/** The guesses at every place. */
function tableOf(found: Walk): HTMLElement[] {
  if (found.guesses === null) return [h("p", {}, t("walk.noSoftmax"))];
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
    h("p", {}, t("walk.guessesNote")),
    table([t("gap.word"), t("walk.left"), t("walk.right")], rows),
  ];
}
