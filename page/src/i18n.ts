/** The page's language. */

import { en } from "./text/en.ts";
import { zh } from "./text/zh.ts";

export type Key = keyof typeof en;
export type Language = "en" | "zh";

export const TEXTS: Record<Language, Record<Key, string>> = { en, zh };
export const LANGUAGES: Record<Language, { name: string; code: string }> = {
  en: { name: "English", code: "en" },
  zh: { name: "中文", code: "zh-CN" },
};

let current: Language = "en";

export function language(): Language {
  return current;
}

export function setLanguage(chosen: Language): void {
  current = chosen;
}

/** What was chosen before, or else what the browser prefers. */
export function firstLanguage(kept: string | null, preferred: readonly string[]): Language {
  if (kept === "en" || kept === "zh") return kept;
  const known = preferred.map((code) => code.slice(0, 2)).find((code) => code in TEXTS);
  return (known as Language | undefined) ?? "en";
}

export function isKey(name: string): name is Key {
  return name in en;
}

export function t(key: Key, values: Record<string, string | number> = {}): string {
  return TEXTS[current][key].replace(/\{(\w+)\}/g, (whole, name: string) =>
    name in values ? String(values[name]) : whole,
  );
}
