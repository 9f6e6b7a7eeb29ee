/** Tasks: answers of saved predictors, and the layers they learned to listen to. */

import { post, type FormField, type Mix, type Predictions, type PredictorFacts } from "../api.ts";
import { field, h, select, table } from "../dom.ts";
import { taskExample } from "../examples.ts";
import { isKey, t, TEXTS } from "../i18n.ts";
import { at } from "../maths/vectors.ts";
import { Figure } from "../plots/figure.ts";
import { Sheet } from "../plots/sheet.ts";
import type { Request } from "../snippets.ts";
import { takeaway } from "../takeaway.ts";
import type { Palette } from "../theme.ts";
import { form, heading, Work, type Setting } from "./common.ts";
import { itemsOf } from "./items.ts";

const COMMAND = "elmokit serve --predictor NAME=FOLDER";

const state = { predictor: null as string | null, values: {} as Record<string, string[]> };

export function tasks({ offer }: Setting): HTMLElement {
  const intro = heading("view.tasks", "tasks.intro");
  const [first] = offer.predictors;
  if (first === undefined) {
    return h("section", {}, intro, h("p", {}, t("tasks.none")), h("pre", { tabindex: 0 }, COMMAND));
  }
  const body = h("div", {});
  const choose = (name: string) => {
    state.predictor = name;
    const found = offer.predictors.find((one) => one.name === name) ?? first;
    body.replaceChildren(...panel(found));
  };
  const control = select(
    offer.predictors.map(({ name, task }) => [name, t("tasks.option", { name, task })] as const),
    state.predictor ?? first.name,
    choose,
  );
  choose(control.value);
  return h("section", {}, intro, field(t("tasks.predictor"), control), body);
}

function panel(facts: PredictorFacts): HTMLElement[] {
  const figure = new Figure();
  const answers = h("div", {});
  const results = h("div", {});
  const work = new Work(figure, results);
  const values = (state.values[facts.name] ??= taskExample(facts));
  const controls = facts.form.map(({ kind }, i) => {
    const long = kind === "lines" || kind === "text";
    const control = long ? h("textarea", { rows: 4 }) : h("input", { type: "text" });
    control.value = values[i] ?? "";
    control.addEventListener("input", () => (values[i] = control.value));
    return control;
  });
  let request: Request = { route: "v1/predict", body: {} };
  let data: Predictions | null = null;

  function submit(): void {
    work.run(async (signal) => {
      const items = itemsOf(facts.form, controls.map((control) => control.value));
      request = { route: "v1/predict", body: { predictor: facts.name, items } };
      const found = await post<Predictions>(request, signal);
      data = found;
      figure.show((width, colours) => sheet(found, width, colours));
      const rows = found.items.map(({ texts, answer }) => [
        texts.map((tokens) => tokens.join(" ")).join(" | "),
        inWords(answer),
      ]);
      answers.replaceChildren(table([t("tasks.text"), t("tasks.answers")], rows));
    });
  }

  results.append(takeaway("tasks", figure, () => ({ request, data })), answers);
  if (values[0]) submit();
  return [
    form(submit, ...facts.form.map((entry, i) => field(labelOf(entry), at(controls, i)))),
    work.status,
    figure.element,
    results,
  ];
}

/** The label of a field: translated where the page has it, else as the task has it. */
function labelOf({ name, label }: FormField): string {
  const key = `tasks.${name}`;
  return isKey(key) && TEXTS.en[key] === label ? t(key) : label;
}

/** An answer of any task as a text. */
function inWords(answer: unknown): string {
  if (answer === null) return t("tasks.noAnswer");
  if (Array.isArray(answer)) return answer.join(" ");
  if (typeof answer !== "object") return String(answer);
  if (!isFrame(answer)) return JSON.stringify(answer);
  const { intent, slots } = answer;
  return `${t("tasks.intent", { intent })} ${slots.join(" ")}`;
}

function sheet(found: Predictions, width: number, colours: Palette): SVGSVGElement {
  const label = t("tasks.figure", { name: found.predictor });
  const page = new Sheet(width, colours, label);
  page.heading(label);
  const names: string[] = [];
  for (const { texts, answer } of found.items) {
    const tags = tagsOf(answer);
    texts.forEach((tokens, i) => {
      page.chips(
        tokens.map((token, index) => {
          const tag = i === 0 ? tags?.[index] : undefined;
          if (tag === undefined) return { top: token };
          return { top: token, bottom: tag, colour: colourOf(tag, names, colours) };
        }),
      );
    });
    if (!Array.isArray(answer)) {
      const text = isFrame(answer) ? t("tasks.intent", { intent: answer.intent }) : inWords(answer);
      page.chips([{ top: text, colour: colourOf(text, names, colours) }]);
    }
  }
  page.heading(t("tasks.weights"));
  const mixes = Object.entries(found.layers);
  if (mixes.length === 0) page.note(t("tasks.noWeights"));
  for (const [name, mix] of mixes) weights(page, name, mix);
  return page.finish();
}

function weights(page: Sheet, name: string, mix: Mix): void {
  page.note(t("tasks.mix", { name, gamma: mix.gamma.toFixed(3) }));
  page.bars(
    mix.s.map((share, i) => ({
      label: i === 0 ? t("layer.zero") : t("layer.name", { number: i }),
      value: share,
      text: share.toFixed(3),
    })),
    1,
  );
}

interface Frame {
  readonly intent: string;
  readonly slots: string[];
}

function isFrame(answer: unknown): answer is Frame {
  return answer !== null && typeof answer === "object" && "intent" in answer && "slots" in answer;
}

function tagsOf(answer: unknown): string[] | null {
  if (Array.isArray(answer)) return answer as string[];
  return isFrame(answer) ? answer.slots : null;
}

/** One colour for each kind of tag, whatever its prefix says; none for "outside". */
function colourOf(tag: string, names: string[], colours: Palette): string | undefined {
  const name = tag.replace(/^[BIESLU]-/, "");
  if (name === "O") return undefined;
  if (!names.includes(name)) names.push(name);
  return colours.groups[names.indexOf(name) % colours.groups.length];
}
