/** Word in context: all uses of a word on a map. */

import { post, type Encoded, type Model } from "../api.ts";
import { choice, field, h, marked, select, table } from "../dom.ts";
import { examplesFor } from "../examples.ts";
import { t } from "../i18n.ts";
import { bestCount, clusters, MOST_CLUSTERS } from "../maths/clusters.ts";
import { pca } from "../maths/pca.ts";
import { tsne } from "../maths/tsne.ts";
import { at, cosine, mean, pairs } from "../maths/vectors.ts";
import { Figure } from "../plots/figure.ts";
import { scatter } from "../plots/scatter.ts";
import type { Request } from "../snippets.ts";
import { takeaway } from "../takeaway.ts";
import { form, heading, linesOf, Mistake, moment, Work, type Setting } from "./common.ts";

/** One occurrence of a word, with its vector in every layer. */
interface Use {
  readonly sentence: number;
  readonly position: number;
  readonly tokens: readonly string[];
  readonly layers: readonly number[][];
}

const MOST_POINTS = 300;
const NEAREST = 10;

/** Kept between renders, so that a change of language loses nothing. */
const state = {
  text: null as string | null,
  word: null as string | null,
  layer: null as number | null,
  method: "pca" as "pca" | "tsne",
  groups: "auto",
  chosen: 0,
};

export function context({ model }: Setting): HTMLElement {
  const examples = examplesFor(model);
  const work = new Work();
  const figure = new Figure();
  const words = h("div", { class: "field" });
  const nearest = h("section", { class: "nearest" });
  const text = h("textarea", { rows: 6, spellcheck: "false" });
  text.value = state.text ?? examples.uses.sentences.join("\n");
  text.addEventListener("input", () => (state.text = text.value));
  let request: Request = { route: "v1/encode", body: {} };
  let sentences: Encoded[] = [];
  let map: MapOfUses | null = null;

  function submit(): void {
    work.run(async (signal) => {
      const body = { model: model.name, sentences: linesOf(text.value), layers: "all" };
      const wanted = { route: "v1/encode", body };
      const answer = await post<{ sentences: Encoded[] }>(wanted, signal);
      request = wanted;
      sentences = answer.sentences;
      offerWords();
      draw();
    });
  }

  function offerWords(): void {
    const counts = countWords(sentences);
    if (counts.length === 0) throw new Mistake(t("context.noWord"));
    const names = counts.map(([name]) => name);
    const preferred = [state.word, examples.uses.word].find((word) => names.includes(word ?? ""));
    state.word = preferred ?? at(names, 0);
    const control = select(
      counts.map(([word, count]) => [word, t("context.uses", { word, count })] as const),
      state.word,
      (word) => {
        state.word = word;
        state.chosen = 0;
        redraw();
      },
    );
    words.replaceChildren(field(t("context.word"), control));
  }

  function redraw(): void {
    if (sentences.length === 0) return;
    work.run(async (signal) => {
      await moment();
      // A newer position of the slider makes this map obsolete.
      if (!signal.aborted) draw();
    });
  }

  function draw(): void {
    const found = usesOf(sentences, state.word ?? "");
    if (state.chosen >= found.length) state.chosen = 0;
    map = mapOf(found, layerOf(model), model.layers);
    paint(map, found);
  }

  function paint(shown: MapOfUses, found: readonly Use[]): void {
    figure.show((width, colours) =>
      scatter(shown.points, state.chosen, shown.labels, width, colours, {
        pick(chosen) {
          state.chosen = chosen;
          paint(shown, found);
          figure.element.querySelector<SVGElement>('[tabindex="0"]')?.focus();
        },
        visit(index, element) {
          const use = index === null ? undefined : found[index];
          figure.hint(element, use === undefined ? null : marked(use.tokens, use.position));
        },
      }),
    );
    nearest.replaceChildren(...neighbours(shown, found));
  }

  const chooser = select(
    [
      ["auto", t("context.auto")],
      ...Array.from({ length: MOST_CLUSTERS }, (_, i) => [`${i + 1}`, `${i + 1}`] as const),
    ],
    state.groups,
    (value) => {
      state.groups = value;
      redraw();
    },
  );
  submit();
  return h(
    "section",
    {},
    heading("view.context", "context.intro"),
    form(submit, field(t("context.sentences"), text)),
    h(
      "div",
      { class: "controls" },
      words,
      h(
        "div",
        { class: "field" },
        h("span", { class: "label" }, t("context.map")),
        choice(
          t("context.map"),
          [
            ["pca", t("context.pca")],
            ["tsne", t("context.tsne")],
          ],
          state.method,
          (value) => {
            state.method = value === "tsne" ? "tsne" : "pca";
            redraw();
          },
        ),
      ),
      layerSlider(model, redraw),
      field(t("context.groups"), chooser),
    ),
    work.status,
    h("p", { class: "hint" }, t("context.keys")),
    figure.element,
    takeaway("context", figure, () => ({ request, data: map?.data })),
    nearest,
  );
}

/** The chosen layer; the number after the last one means their mean. */
function layerOf(model: Model): number {
  return Math.min(state.layer ?? model.layers, model.layers);
}

function layerName(layer: number, layers: number): string {
  if (layer === layers) return t("layer.mean");
  return layer === 0 ? t("layer.zero") : t("layer.name", { number: layer });
}

function layerSlider(model: Model, change: () => void): HTMLElement {
  const shown = h("output", {}, layerName(layerOf(model), model.layers));
  const slider = h("input", { type: "range", min: 0, max: model.layers, step: 1 });
  slider.value = String(layerOf(model));
  slider.setAttribute("aria-valuetext", shown.textContent);
  slider.addEventListener("input", () => {
    state.layer = Number(slider.value);
    shown.textContent = layerName(state.layer, model.layers);
    slider.setAttribute("aria-valuetext", shown.textContent);
    change();
  });
  return field(t("context.layer"), slider, shown);
}

/** Words that occur more than once, the most frequent first; case is ignored. */
function countWords(sentences: readonly Encoded[]): [word: string, count: number][] {
  const counts = new Map<string, number>();
  for (const token of sentences.flatMap((sentence) => sentence.tokens)) {
    const word = token.toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const often = [...counts].filter(([word, count]) => count > 1 && /[\p{L}\p{N}]/u.test(word));
  return often.sort((a, b) => b[1] - a[1]);
}

function usesOf(sentences: readonly Encoded[], word: string): Use[] {
  return sentences.flatMap(({ tokens, vectors }, sentence) =>
    tokens.flatMap((token, position) =>
      token.toLowerCase() === word
        ? [{ sentence, position, tokens, layers: vectors.map((layer) => at(layer, position)) }]
        : [],
    ),
  );
}

type MapOfUses = ReturnType<typeof mapOf>;

function mapOf(uses: readonly Use[], layer: number, layers: number) {
  const vectors = uses.map((use) => (layer === layers ? mean(use.layers) : at(use.layers, layer)));
  if (state.method === "tsne" && uses.length > MOST_POINTS) {
    throw new Mistake(t("context.tooMany", { count: uses.length, most: MOST_POINTS }));
  }
  const components = pca(vectors);
  const coordinates =
    state.method === "tsne" ? tsne(vectors, components.coordinates) : components.coordinates;
  const count = state.groups === "auto" ? bestCount(vectors) : Number(state.groups);
  const groups = clusters(vectors, count);
  const axis = (number: number) =>
    state.method === "tsne"
      ? ""
      : t("context.axis", {
          number: number + 1,
          share: ((components.shares[number] ?? 0) * 100).toFixed(0),
        });
  const points = uses.map((use, i) => ({
    x: at(at(coordinates, i), 0),
    y: at(at(coordinates, i), 1),
    group: at(groups, i),
    label: `${use.tokens.join(" ")} (${t("context.sense", { number: at(groups, i) + 1 })})`,
    caption: use.tokens.slice(Math.max(0, use.position - 2), use.position + 4).join(" "),
  }));
  const cosines = pairs(vectors, vectors, cosine);
  return {
    points,
    cosines,
    labels: {
      figure: t("context.figure", {
        count: uses.length,
        word: state.word ?? "",
        layer: layerName(layer, layers),
        method: t(`context.${state.method}`),
      }),
      x: axis(0),
      y: axis(1),
      groups: [...new Set(groups)].sort().map((g) => t("context.sense", { number: g + 1 })),
    },
    data: {
      word: state.word,
      layer: layer === layers ? "mean" : layer,
      method: state.method,
      uses: uses.map((use, i) => ({
        sentence: use.sentence,
        position: use.position,
        tokens: use.tokens,
        sense: at(groups, i) + 1,
        coordinates: at(coordinates, i),
        vector: at(vectors, i),
      })),
      cosines,
    },
  };
}

function neighbours(map: MapOfUses, uses: readonly Use[]): HTMLElement[] {
  const chosen = at(uses, state.chosen);
  const likeness = at(map.cosines, state.chosen);
  const order = uses.map((_, i) => i).filter((i) => i !== state.chosen);
  order.sort((a, b) => at(likeness, b) - at(likeness, a));
  const rows = order.slice(0, NEAREST).map((i) => {
    const use = at(uses, i);
    const sense = t("context.sense", { number: at(map.points, i).group + 1 });
    return [at(likeness, i).toFixed(3), marked(use.tokens, use.position), sense];
  });
  return [
    h("h2", {}, t("context.nearest")),
    h("p", {}, `${t("context.chosen")} `, marked(chosen.tokens, chosen.position)),
    table([t("context.cosine"), t("form.sentence"), t("context.senseHead")], rows),
  ];
}
