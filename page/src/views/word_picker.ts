/** A sentence and one of its words: the input of two views. */

import { tokensOf, type Model } from "../api.ts";
import { field, h } from "../dom.ts";
import { t } from "../i18n.ts";
import { form, tokenPicker, Work, written } from "./common.ts";

export interface WordPickerState {
  sentence: string | null;
  position: number | null;
}

/**
 * Fields for a sentence and a word of it. `show` is called for every new choice.
 */
export class WordPicker {
  readonly work = new Work();
  readonly element: HTMLElement;
  readonly #picker = h("div", {});
  readonly #input = h("input", { type: "text", spellcheck: "false" });
  readonly #model: Model;
  readonly #state: WordPickerState;
  readonly #show: (sentence: string, position: number, signal: AbortSignal) => Promise<void>;
  readonly #word: string;

  constructor(
    model: Model,
    state: WordPickerState,
    example: { sentence: string; word: string },
    show: (sentence: string, position: number, signal: AbortSignal) => Promise<void>,
  ) {
    this.#model = model;
    this.#state = state;
    this.#show = show;
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
      this.work.status,
    );
  }

  submit(): void {
    this.work.run(async (signal) => {
      const sentence = written(this.#input.value);
      const tokens = await tokensOf(this.#model.name, sentence, signal);
      const example = Math.max(0, tokens.indexOf(this.#word));
      const position = Math.min(this.#state.position ?? example, tokens.length - 1);
      await this.#pick(sentence, tokens, position, signal);
    });
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
      this.work.run((next) => this.#pick(sentence, tokens, chosen, next));
    });
    this.#picker.replaceChildren(picker);
    // The buttons are new; the focus stays at the same one.
    if (again) picker.querySelectorAll("button")[position]?.focus();
    await this.#show(sentence, position, signal);
  }
}
