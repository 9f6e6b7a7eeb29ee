import { describe, expect, it } from "vitest";

import type { FormField, PredictorFacts } from "../src/api.ts";
import { taskExample } from "../src/examples.ts";

const field = (name: string, example = ""): FormField => ({ name, kind: "text", label: name, example });
const facts = (task: string, tokenizer: string, ...form: FormField[]): PredictorFacts => ({
  name: task,
  task,
  layers: {},
  tokenizer,
  form,
});

describe("examples of tasks", () => {
  it("are in the predictor's language", () => {
    const form = [field("text"), field("question")];
    expect(taskExample(facts("qa", "words", ...form)).join(" ")).toMatch(/Amazon.*Amazon/);
    expect(taskExample(facts("qa", "jieba", ...form)).join(" ")).toMatch(/长江.*长江/);
  });

  it("mark what the task asks for", () => {
    for (const tokenizer of ["words", "jieba"]) {
      const [text = "", predicate = ""] = taskExample(facts("tag", tokenizer, field("text"), field("predicate")));
      expect(text).toContain(predicate);
      const mentions = ["text", "pronoun", "nameA", "nameB"].map((name) => field(name));
      const [whole = "", ...others] = taskExample(facts("coref", tokenizer, ...mentions));
      for (const mention of others) expect(whole).toContain(mention);
      expect(taskExample(facts("relation", tokenizer, field("marked")))[0]).toMatch(/<e1>.*<e2>/);
    }
  });

  it("are those of a user's task itself", () => {
    expect(taskExample(facts("mine", "words", field("remark", "stop"), field("who")))).toEqual(["stop", ""]);
  });
});
