import { describe, expect, it } from "vitest";

import { itemsOf } from "../src/views/items.ts";

describe("items for predictors", () => {
  it("are lines for most tasks", () => {
    expect(itemsOf("tag", ["  Anna saw Paris\n\n it rains "])).toEqual(["Anna saw Paris", "it rains"]);
    expect(itemsOf("relation", ["<e1>Anna</e1> saw <e2>Paris</e2>"])).toHaveLength(1);
  });

  it("are two texts for pairs and questions", () => {
    expect(itemsOf("qa", ["Anna is here.", "Who is here?"])).toEqual([
      ["Anna is here.", "Who is here?"],
    ]);
  });

  it("have positions in whole characters for pronouns", () => {
    expect(itemsOf("coref", ["😀 Anna met Eva and she left", "she", "Anna", "Eva"])).toEqual([
      ["😀 Anna met Eva and she left", ["she", 19], ["Anna", 2], ["Eva", 11]],
    ]);
  });

  it("must be written, and must be there", () => {
    expect(() => itemsOf("tag", [" "])).toThrow("Enter something first.");
    expect(() => itemsOf("coref", ["Anna left", "she", "Anna", "Anna"])).toThrow("“she”");
  });
});
