/** Layers: similarity of all pairs of tokens in each layer, and in an adjustable mix. */

import { post, type Encoded, type Mix } from "../api.ts";
import { choice, field, h, table } from "../dom.ts";
import { examplesFor } from "../examples.ts";
import { t } from "../i18n.ts";
import { at, cosine, dot, mix, norm, pairs, scaled, shares } from "../maths/vectors.ts";
import { Figure } from "../plots/figure.ts";
import { heatMaps } from "../plots/heatmap.ts";
import { takeaway } from "../takeaway.ts";
import { form, heading, split, Work, written, type Setting } from "./common.ts";

const MOST_GAMMA = 2;

const state = {
  sentence: null as string | null,
  other: "",
  weights: [] as number[],
  gamma: 1,
  measure: "cosine" as "cosine" | "dot",
};

export function layers({ model }: Setting): HTMLElement {
  const figure = new Figure();
  const results = h("div", { class: "results" });
  const work = new Work(figure, results);
  const numbers = h("div", {});
  const sentence = h("input", { type: "text", spellcheck: "false" });
  sentence.value = state.sentence ?? examplesFor(model).layers;
  sentence.addEventListener("input", () => (state.sentence = sentence.value));
  const other = h("input", { type: "text", spellcheck: "false" });
  other.value = state.other;
  other.addEventListener("input", () => (state.other = other.value));
  if (state.weights.length !== model.layers) state.weights = equal(model.layers);
  let given: string[] = [];
  let encoded: Encoded[] = [];
  let data: unknown = null;

  function submit(): void {
    work.run(async (signal) => {
      encoded = [];
      given = [written(sentence.value)];
      if (other.value.trim() !== "") given.push(other.value.trim());
      const body = { model: model.name, sentences: given, layers: "all" };
      const answer = await post<{ sentences: Encoded[] }>({ route: "v1/encode", body }, signal);
      encoded = answer.sentences;
      draw();
    });
  }

  function draw(): void {
    const [first, second = first] = encoded;
    if (first === undefined || second === undefined) return;
    const measure = state.measure === "cosine" ? cosine : dot;
    const factors = weights();
    const mixed = [first, second].map((one) => mix(one.vectors, factors));
    const [left, right] = mixed as [number[][], number[][]];
    const matrices = first.vectors.map((layer, i) => pairs(layer, at(second.vectors, i), measure));
    const result = pairs(left, right, measure);
    const lengths = left.map(norm);
    // A fixed scale, or the bars would not show what gamma does.
    const longest = Math.max(...first.vectors.flat().map(norm)) * MOST_GAMMA;
    const titles = matrices.map((_, i) =>
      i === 0 ? t("layer.zero") : t("layer.name", { number: i }),
    );
    const maps = [...matrices, result].map((values, i) => ({
      title: titles[i] ?? t("layers.mixed"),
      values,
      most: state.measure === "cosine" ? 1 : largest(matrices),
    }));
    figure.show((width, colours) =>
      heatMaps(
        maps,
        first.tokens,
        second.tokens,
        { title: t("layers.lengths"), values: lengths, most: longest },
        { figure: t("layers.figure"), scale: t(`layers.${state.measure}`) },
        width,
        colours,
        (element, text) => figure.hint(element, text),
      ),
    );
    const rows = first.tokens.map((token, i) => [
      token,
      ...at(result, i).map((value) => value.toFixed(3)),
    ]);
    numbers.replaceChildren(table(["", ...second.tokens], rows));
    data = {
      tokens: first.tokens,
      other_tokens: second.tokens,
      measure: state.measure,
      layers: matrices,
      mix: { s: shares(state.weights), gamma: state.gamma, matrix: result, lengths },
    };
  }

  function weights(): number[] {
    return scaled(shares(state.weights), state.gamma);
  }

  const mixer = new Mixer(draw);
  const own = model.mix[0];
  results.append(
    takeaway("layers", figure, () => ({
      request: {
        route: "v1/encode",
        body: { model: model.name, sentences: given, layers: weights() },
      },
      data,
    })),
    h("details", {}, h("summary", {}, t("layers.table")), numbers),
  );
  submit();
  return split(
    heading("view.layers", "layers.intro"),
    [work.status, figure.element],
    [
      form(submit, field(t("form.sentence"), sentence), field(t("layers.other"), other)),
      h(
        "fieldset",
        { class: "controls" },
        h("legend", {}, t("layers.mix")),
        mixer.element,
        h("button", { type: "button", onclick: () => mixer.set() }, t("layers.reset")),
        own && h("button", { type: "button", onclick: () => mixer.set(own) }, t("layers.own")),
        choice(
          t("layers.measure"),
          [
            ["cosine", t("layers.cosine")],
            ["dot", t("layers.dot")],
          ],
          state.measure,
          (value) => {
            state.measure = value === "dot" ? "dot" : "cosine";
            draw();
          },
        ),
      ),
      h("p", { class: "hint" }, t("layers.note")),
    ],
    results,
  );
}

/** The sliders: one per weight (they sum to 1), and one for gamma. */
class Mixer {
  readonly element = h("div", { class: "mixer" });
  readonly #change: () => void;

  constructor(change: () => void) {
    this.#change = change;
    this.#build();
  }

  /** Set the sliders to a mix; without one, to equal weights. */
  set(chosen?: Mix): void {
    state.weights = chosen ? [...chosen.s] : equal(state.weights.length);
    state.gamma = chosen?.gamma ?? 1;
    this.#build();
    this.#change();
  }

  #build(): void {
    const outputs = state.weights.map(() => h("output", {}));
    const show = () => {
      shares(state.weights).forEach((share, i) => (at(outputs, i).textContent = share.toFixed(2)));
    };
    const sliders = state.weights.map((weight, i) => {
      const slider = range(weight, 1, (value) => {
        state.weights[i] = value;
        show();
        this.#change();
      });
      return field(t("layers.share", { number: i }), slider, at(outputs, i));
    });
    const shown = h("output", {}, state.gamma.toFixed(2));
    const gamma = range(state.gamma, Math.max(MOST_GAMMA, state.gamma), (value) => {
      state.gamma = value;
      shown.textContent = value.toFixed(2);
      this.#change();
    });
    show();
    this.element.replaceChildren(...sliders, field(t("layers.gamma"), gamma, shown));
  }
}

function range(value: number, most: number, change: (value: number) => void): HTMLInputElement {
  const slider = h("input", { type: "range", min: 0, max: most, step: 0.01 });
  slider.value = String(value);
  slider.addEventListener("input", () => change(Number(slider.value)));
  return slider;
}

function equal(count: number): number[] {
  return new Array<number>(count).fill(0.5);
}

function largest(matrices: readonly number[][][]): number {
  return matrices.flat(2).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}
