import { describe, expect, it } from "vitest";

import { repeatedWords, typedGap, withGap } from "../src/words.ts";

const words = (...sentences: string[]) =>
  repeatedWords(sentences.map((sentence) => sentence.split(" "))).map(([word]) => word);

describe("the word that is chosen first", () => {
  it("is a content word, however often function words occur", () => {
    const found = words("The mouse ate the cheese in the kitchen .", "the mouse of the computer .");
    expect(found).toEqual(["mouse", "the"]);
  });

  it("is a content word in Chinese", () => {
    expect(words("他 的 苹果 的 皮", "我 的 苹果")).toEqual(["苹果", "的"]);
  });

  it("occurs in many sentences rather than often in one", () => {
    expect(words("ho ho ho bank", "a bank")[0]).toBe("bank");
  });

  it("may be a function word where there is nothing else", () => {
    expect(words("the one", "the other")).toEqual(["the"]);
    expect(words(". .", "no repeats")).toEqual([]);
  });
});

describe("a typed gap", () => {
  it("is a token of its own, whatever is beside it", () => {
    expect(withGap("The bank lent him ___.")).toBe("The bank lent him  ____ .");
    expect(withGap("我吃一个＿＿，")).toBe("我吃一个 ____ ，");
    expect(withGap("snake_case stays")).toBe("snake_case stays");
  });

  it("is found", () => {
    expect(typedGap(["him", "____", "."])).toBe(1);
    expect(typedGap(["him"])).toBe(-1);
  });
});
