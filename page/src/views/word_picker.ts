/** A sentence and one of its words: the input of two views. */

import { tokensOf, type Model } from "../api.ts";
import { field, h } from "../dom.ts";
import { t } from "../i18n.ts";
import type { Figure } from "../plots/figure.ts";
import { contentWord, typedGap, withGap } from "../words.ts";
import { form, tokenPicker, Work, written } from "./common.ts";

export interface WordPickerState {
  sentence: string | null;
  position: number | null;
}

/** What a picker's choice is shown in. */
export interface Shown {
  readonly figure: Figure;
  /** What is below the figure. */
  readonly results: HTMLElement;
  /** Whether underscores are a gap, or a word like others. */
  readonly gaps: boolean;
  readonly show: (sentence: string, position: number, signal: AbortSignal) => Promise<void>;
}

/** Fields for a sentence and a word of it, or a gap that was typed. */
export class WordPicker {
  readonly element: HTMLElement;
  readonly #picker = h("div", {});
  readonly #input = h("input", { type: "text", spellcheck: "false" });
  readonly #model: Model;
  readonly #state: WordPickerState;
  readonly #shown: Shown;
  readonly #work: Work;
  readonly #word: string;

  constructor(
    model: Model,
    state: WordPickerState,
    example: { sentence: string; word: string },
    shown: Shown,
  ) {
    this.#model = model;
    this.#state = state;
    this.#shown = shown;
    this.#work = new Work(shown.figure, shown.results);
    this.#word = example.word;
    this.#input.value = state.sentence ?? example.sentence;
    this.#input.addEventListener("input", () => {
      state.sentence = this.#input.value;
      state.position = null;
    });
    this.element = h(
      "div",
      {},
      form(() => this.submit(), field(t("form.sentence"), this.#input)),
      this.#picker,
      this.#work.status,
    );
  }

  submit(): void {
    this.#work.run(async (signal) => {
      try {
        const given = written(this.#input.value);
        const sentence = this.#shown.gaps ? withGap(given) : given;
        const tokens = await tokensOf(this.#model.name, sentence, signal);
        const position = Math.min(this.#state.position ?? this.#first(tokens), tokens.length - 1);
        await this.#pick(sentence, tokens, position, signal);
      } catch (error) {
        this.#picker.replaceChildren();
        throw error;
      }
    });
  }

  /** The typed gap, the example's word, or else a content word. */
  #first(tokens: readonly string[]): number {
    const wanted = [this.#shown.gaps ? typedGap(tokens) : -1, tokens.indexOf(this.#word)];
    return wanted.find((position) => position >= 0) ?? contentWord(tokens);
  }

  async #pick(
    sentence: string,
    tokens: string[],
    position: number,
    signal: AbortSignal,
  ): Promise<void> {
    const again = this.#picker.contains(document.activeElement);
    const picker = tokenPicker(tokens, position, (chosen) => {
      this.#state.position = chosen;
      this.#work.run((next) => this.#pick(sentence, tokens, chosen, next));
    });
    this.#picker.replaceChildren(picker);
    // The buttons are new; the focus stays at the same one.
    if (again) picker.querySelectorAll("button")[position]?.focus();
    await this.#shown.show(sentence, position, signal);
  }
}
