import { describe, expect, it } from "vitest";

import { Alphabet, Vocabulary, type Config } from "../src/engine/inputs.ts";
import { Segmenter, type Dictionary } from "../src/engine/segmenter.ts";
import { tokenizer } from "../src/engine/tokenizers.ts";
// Made by tools/page_texts.py with the Python code.
import text from "./texts.json?raw";

const python = JSON.parse(text) as {
  symbols: string[];
  chars: string[];
  texts: { text: string; words: string[]; space: string[] }[];
  words: string[];
  ids: Record<"bytes" | "unicode", number[][]>;
  jieba: Dictionary & { texts: { text: string; tokens: string[] }[] };
};

describe("tokenizers", () => {
  it.each(["words", "space"] as const)("split odd texts as Python does: %s", (name) => {
    const split = tokenizer(name);
    expect(python.texts.length).toBeGreaterThan(1000);
    const wrong = python.texts.filter(
      (row) => JSON.stringify(split?.(row.text)) !== JSON.stringify(row[name]),
    );
    expect(wrong.map((row) => [row.text, split?.(row.text), row[name]])).toEqual([]);
  });

  it("split odd texts into characters as Python does", () => {
    const split = python.texts.map((row) => tokenizer("chars")?.(row.text) ?? []);
    expect(split.map((found) => found.join(""))).toEqual(python.chars);
    expect(split.flat().every((found) => [...found].length === 1)).toBe(true);
  });

  it("take long texts in linear time", () => {
    const text = "a-".repeat(50_000) + "'".repeat(50_000) + " ".repeat(50_000);
    expect(tokenizer("words")?.(text).length).toBeGreaterThan(1);
  });

  it("are not all there", () => {
    expect(tokenizer("spacy:de")).toBeNull();
  });

  it("split Chinese as jieba does with this dictionary", () => {
    const segmenter = new Segmenter(python.jieba);
    const found = python.jieba.texts.map(({ text }) => ({ text, tokens: segmenter.tokenize(text) }));
    expect(found.length).toBeGreaterThan(200);
    expect(found).toEqual(python.jieba.texts);
  });
});

const TEXT = { begin: "<S>", end: "</S>", unknown: "<UNK>" };
const LSTM = { layers: 1, cells: 1, width: 1 };

describe("character ids", () => {
  it.each([["bytes", 50], ["unicode", 20]] as const)("are Python's: %s", (name, most) => {
    const filters = [[1, 4], [3, 4]] as const;
    const characters = { alphabet: name, max_characters: most, filters, activation: "relu" };
    const config: Config = { text: TEXT, characters, words: null, lstm: LSTM };
    const alphabet = new Alphabet(config, name === "unicode" ? python.symbols : null);
    expect(python.words.map((word) => alphabet.rows([word])[0])).toEqual(python.ids[name]);
  });
});

describe("vocabulary", () => {
  const config: Config = { text: TEXT, characters: null, words: {}, lstm: LSTM };

  it("finds words, and the unknown word for others", () => {
    const words = new Vocabulary(["<S>", "</S>", "<UNK>", "a", "", "a"], null, config);
    expect(["a", "b", "", "<S>"].map((word) => words.id(word))).toEqual([5, 2, 2, 0]);
    expect([0, 1, 2, 3, 4, 5].map((row) => words.isWord(row, config))).toEqual(
      [false, false, false, false, false, true],
    );
  });
});
