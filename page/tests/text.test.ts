import { describe, expect, it } from "vitest";

import { firstLanguage, setLanguage, t, TEXTS, type Key } from "../src/i18n.ts";
import { asCurl, asPython, literal, quoted } from "../src/snippets.ts";

const blanks = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(([blank]) => blank).sort();

describe("languages", () => {
  it("have the same texts with the same blanks", () => {
    expect(Object.keys(TEXTS.zh)).toEqual(Object.keys(TEXTS.en));
    for (const key of Object.keys(TEXTS.en) as Key[]) {
      expect(TEXTS.zh[key], key).not.toBe("");
      expect(blanks(TEXTS.zh[key]), key).toEqual(blanks(TEXTS.en[key]));
    }
  });

  it("are really two", () => {
    const same = (Object.keys(TEXTS.en) as Key[]).filter((k) => TEXTS.en[k] === TEXTS.zh[k]);
    expect(same).toEqual(["context.pca", "context.tsne", "layers.share", "layers.gamma"]);
  });

  it("fill in values", () => {
    setLanguage("zh");
    expect(t("layer.name", { number: 2 })).toBe("第 2 层");
    setLanguage("en");
    expect(t("layer.name", { number: 2 })).toBe("Layer 2");
  });

  it("are chosen by what was stored, then by the browser", () => {
    expect(firstLanguage("zh", ["en"])).toBe("zh");
    expect(firstLanguage(null, ["de-DE", "zh-TW", "en"])).toBe("zh");
    expect(firstLanguage("de", [])).toBe("en");
  });
});

describe("snippets", () => {
  const request = { route: "v1/encode", body: { model: "m", sentences: ["it's"], layers: [0.5] } };

  it("write Python", () => {
    expect(asPython(request, "http://h", false)).toBe(
      'from elmokit.server import Client\n\nwith Client("http://h", model="m") as client:\n' +
        '    answer = client.encode(["it\'s"], layers=[0.5])\n' +
        "print([vectors.shape for vectors in answer])\n",
    );
    expect(literal([true, null, "a\n"])).toBe('[True, None, "a\\n"]');
  });

  it("write command lines that survive quotes", () => {
    expect(asCurl(request, "http://h", true)).toBe(
      "curl -s 'http://h/v1/encode' -H 'Content-Type: application/json' " +
        "-H 'Authorization: Bearer YOUR TOKEN' " +
        `-d '{"model":"m","sentences":["it'\\''s"],"layers":[0.5]}'`,
    );
    expect(quoted("a'b")).toBe("'a'\\''b'");
  });
});
