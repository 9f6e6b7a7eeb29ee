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
import { repeatedWords } from "../words.ts";
import { form, heading, linesOf, Mistake, moment, split, Work, type Setting } from "./common.ts";

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
  /** What the user picked; null until then. */
  picked: null as string | null,
  layer: null as number | null,
  method: "pca" as "pca" | "tsne",
  groups: "auto",
  chosen: 0,
};

export function context({ model }: Setting): HTMLElement {
  const { uses } = examplesFor(model);
  const figure = new Figure();
  const results = h("div", { class: "results" });
  const work = new Work(figure, results);
  const words = h("div", { class: "field" });
  const nearest = h("section", { class: "nearest" });
  const text = h("textarea", { rows: 6, spellcheck: "false" });
  text.value = state.text ?? uses.join("\n");
  text.addEventListener("input", () => (state.text = text.value));
  let request: Request = { route: "v1/encode", body: {} };
  let sentences: Encoded[] = [];
  let word = "";
  let map: MapOfUses | null = null;

  function submit(): void {
    work.run(async (signal) => {
      try {
        const body = { model: model.name, sentences: linesOf(text.value), layers: "all" };
        const wanted = { route: "v1/encode", body };
        const answer = await post<{ sentences: Encoded[] }>(wanted, signal);
        request = wanted;
        sentences = answer.sentences;
        offerWords();
      } catch (error) {
        sentences = [];
        words.replaceChildren();
        throw error;
      }
      draw();
    });
  }

  function offerWords(): void {
    const counts = repeatedWords(sentences.map(({ tokens }) => tokens));
    const [first] = counts;
    if (first === undefined) throw new Mistake(t("context.noWord"));
    const again = counts.find(([name]) => name === state.picked);
    word = (again ?? first)[0];
    const control = select(
      counts.map(([name, count]) => [name, t("context.uses", { word: name, count })] as const),
      word,
      (name) => {
        state.picked = word = name;
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
    const found = usesOf(sentences, word);
    if (state.chosen >= found.length) state.chosen = 0;
    map = mapOf(word, found, layerOf(model), model.layers);
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
  results.append(
    h("p", { class: "hint" }, t("context.keys")),
    takeaway("context", figure, () => ({ request, data: map?.data })),
    nearest,
  );
  submit();
  return split(
    heading("view.context", "context.intro"),
    [work.status, figure.element],
    [
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
    ],
    results,
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

function mapOf(word: string, uses: readonly Use[], layer: number, layers: number) {
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
    label: `${use.tokens.join(" ")} (${t("context.group", { number: at(groups, i) + 1 })})`,
    caption: use.tokens.slice(Math.max(0, use.position - 2), use.position + 4).join(" "),
  }));
  const cosines = pairs(vectors, vectors, cosine);
  return {
    points,
    cosines,
    labels: {
      figure: t("context.figure", {
        count: uses.length,
        word,
        layer: layerName(layer, layers),
        method: t(`context.${state.method}`),
      }),
      x: axis(0),
      y: axis(1),
      groups: [...new Set(groups)].sort().map((g) => t("context.group", { number: g + 1 })),
    },
    data: {
      word,
      layer: layer === layers ? "mean" : layer,
      method: state.method,
      uses: uses.map((use, i) => ({
        sentence: use.sentence,
        position: use.position,
        tokens: use.tokens,
        group: at(groups, i) + 1,
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
    const group = t("context.group", { number: at(map.points, i).group + 1 });
    return [at(likeness, i).toFixed(3), marked(use.tokens, use.position), group];
  });
  return [
    h("h2", {}, t("context.nearest")),
    h("p", {}, `${t("context.chosen")} `, marked(chosen.tokens, chosen.position)),
    table([t("context.cosine"), t("form.sentence"), t("context.groupHead")], rows),
  ];
}
