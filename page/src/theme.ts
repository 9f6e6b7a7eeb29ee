/** Light or dark, and the colours of the figures, which must be in the SVG itself. */

export type Theme = "auto" | "light" | "dark";

export interface Palette {
  readonly paper: string;
  readonly ink: string;
  readonly faint: string;
  readonly line: string;
  readonly accent: string;
  readonly low: string;
  readonly middle: string;
  readonly high: string;
  /** Told apart by colour-blind people, too (Okabe and Ito, 2008). */
  readonly groups: readonly string[];
}

const LIGHT: Palette = {
  paper: "#ffffff",
  ink: "#1b1f24",
  faint: "#57606a",
  line: "#d0d7de",
  accent: "#0b5cad",
  low: "#2166ac",
  middle: "#f5f5f5",
  high: "#c2410c",
  groups: ["#0072b2", "#d55e00", "#007a5a", "#a8488a", "#8a6d00", "#4a4a4a"],
};

const DARK: Palette = {
  paper: "#14181d",
  ink: "#e6edf3",
  faint: "#a3adb8",
  line: "#39424d",
  accent: "#6cb6ff",
  low: "#6cb6ff",
  middle: "#232a32",
  high: "#ff9d6b",
  groups: ["#56b4e9", "#f0883e", "#3fcf9f", "#e08cc0", "#f0e442", "#c0c8d0"],
};

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let theme: Theme = "auto";

export function currentTheme(): Theme {
  return theme;
}

export function setTheme(chosen: Theme): void {
  theme = chosen;
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  for (const listener of listeners) listener();
}

system.addEventListener("change", () => setTheme(theme));

function isDark(): boolean {
  return theme === "dark" || (theme === "auto" && system.matches);
}

export function palette(): Palette {
  return isDark() ? DARK : LIGHT;
}

/** Calls back when the colours change, until `forgetPictures`. */
export function whenColoursChange(listener: () => void): void {
  listeners.add(listener);
}

/** Drop the callbacks of the last view. */
export function forgetPictures(): void {
  listeners.clear();
}

/** A colour between two, both written as #rrggbb. */
export function between(a: string, b: string, share: number): string {
  const part = (colour: string, offset: number) => parseInt(colour.slice(offset, offset + 2), 16);
  const mixed = [1, 3, 5].map((offset) =>
    Math.round(part(a, offset) + (part(b, offset) - part(a, offset)) * share)
      .toString(16)
      .padStart(2, "0"),
  );
  return `#${mixed.join("")}`;
}

/** The colour of a number from -1 to 1. */
export function heat(value: number, colours: Palette): string {
  const share = Math.min(1, Math.abs(value));
  return between(colours.middle, value < 0 ? colours.low : colours.high, share);
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour: string): string {
  const [r, g, b] = [1, 3, 5].map((offset) => {
    const value = parseInt(colour.slice(offset, offset + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}
