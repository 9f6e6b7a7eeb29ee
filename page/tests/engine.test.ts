import { describe, expect, it } from "vitest";

import { Alphabet, Vocabulary, type Config } from "../src/engine/inputs.ts";
import { tokenizer } from "../src/engine/tokenizers.ts";
// Made by tools/page_texts.py with the Python code.
import text from "./texts.json?raw";

const python = JSON.parse(text) as {
  symbols: string[];
  chars: string[];
  texts: { text: string; words: string[]; space: string[] }[];
  words: string[];
  ids: Record<"bytes" | "unicode", number[][]>;
};
const NONE = new Map<string, number>();

describe("tokenizers", () => {
  it.each(["words", "space"] as const)("split odd texts as Python does: %s", (name) => {
    const split = tokenizer(name, NONE);
    expect(python.texts.length).toBeGreaterThan(1000);
    const wrong = python.texts.filter(
      (row) => JSON.stringify(split?.(row.text)) !== JSON.stringify(row[name]),
    );
    expect(wrong.map((row) => [row.text, split?.(row.text), row[name]])).toEqual([]);
  });

  it("split odd texts into characters as Python does", () => {
    const split = python.texts.map((row) => tokenizer("chars", NONE)?.(row.text) ?? []);
    expect(split.map((found) => found.join(""))).toEqual(python.chars);
    expect(split.flat().every((found) => [...found].length === 1)).toBe(true);
  });

  it("take long texts in linear time", () => {
    const text = "a-".repeat(50_000) + "'".repeat(50_000) + " ".repeat(50_000);
    expect(tokenizer("words", NONE)?.(text).length).toBeGreaterThan(1);
  });

  it("are not all there", () => {
    expect(tokenizer("spacy:de", NONE)).toBeNull();
  });

  it("split Chinese into probable words", () => {
    const counts = new Map([["我", 9], ["在", 9], ["苹果", 5], ["上班", 4], ["果上", 1], ["上", 3]]);
    const split = tokenizer("jieba", counts);
    expect(split?.("我在苹果上班，用iPhone 3.5%。\n𠮷")).toEqual(
      ["我", "在", "苹果", "上班", "，", "用", "iPhone", "3.5%", "。", "𠮷"],
    );
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
