import { describe, expect, it } from "vitest";

import type { FormField } from "../src/api.ts";
import { itemsOf } from "../src/views/items.ts";

const form = (...kinds: FormField["kind"][]): FormField[] =>
  kinds.map((kind) => ({ name: kind, kind, label: kind, example: "" }));
const LINES = form("lines");
const MENTIONS = form("text", "mention", "mention", "mention");

describe("items for predictors", () => {
  it("are lines for most tasks", () => {
    expect(itemsOf(LINES, ["  Anna saw Paris\n\n it rains "])).toEqual(["Anna saw Paris", "it rains"]);
    expect(itemsOf(LINES, ["<e1>Anna</e1> saw <e2>Paris</e2>"])).toHaveLength(1);
  });

  it("are one text for a form of one field", () => {
    expect(itemsOf(form("line"), [" Anna left "])).toEqual(["Anna left"]);
  });

  it("are two texts for pairs and questions", () => {
    expect(itemsOf(form("text", "line"), ["Anna is here.", "Who is here?"])).toEqual([
      ["Anna is here.", "Who is here?"],
    ]);
  });

  it("have positions in whole characters for pronouns", () => {
    expect(itemsOf(MENTIONS, ["😀 Anna met Eva and she left", "she", "Anna", "Eva"])).toEqual([
      ["😀 Anna met Eva and she left", ["she", 19], ["Anna", 2], ["Eva", 11]],
    ]);
  });

  it("must be written, and must be there", () => {
    expect(() => itemsOf(LINES, [" "])).toThrow("Enter something first.");
    expect(() => itemsOf(MENTIONS, ["Anna left", "she", "Anna", "Anna"])).toThrow("“she”");
  });
});
