/** A figure laid out from top to bottom: headings, chips, bars, strips of numbers. */

import { s } from "../dom.ts";
import { heat, inkOn, type Palette } from "../theme.ts";
import { FONT } from "./figure.ts";

export interface Chip {
  readonly top: string;
  readonly bottom?: string;
  readonly colour?: string | undefined;
}

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly text: string;
}

const MARGIN = 12;
const ruler = document.createElement("canvas").getContext("2d");

/** The width of a text in pixels. */
export function textWidth(text: string, size: number): number {
  if (ruler === null) return text.length * size;
  ruler.font = `${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

/** As much of a text as fits. */
export function shortened(text: string, size: number, room: number): string {
  if (textWidth(text, size) <= room) return text;
  const signs = [...text];
  while (signs.length > 1 && textWidth(`${signs.join("")}…`, size) > room) signs.pop();
  return `${signs.join("")}…`;
}

export class Sheet {
  readonly #svg: SVGSVGElement;
  readonly #colours: Palette;
  readonly #paper: SVGRectElement;
  readonly #full: number;
  #left = MARGIN;
  #width: number;
  #y = MARGIN;

  constructor(width: number, colours: Palette, label: string) {
    this.#full = width;
    this.#width = width - 2 * MARGIN;
    this.#colours = colours;
    this.#paper = s("rect", { width, fill: colours.paper });
    this.#svg = s("svg", { width, role: "img", "aria-label": label, "font-family": FONT }, this.#paper);
  }

  finish(): SVGSVGElement {
    const height = Math.ceil(this.#y + MARGIN);
    this.#svg.setAttribute("height", String(height));
    this.#svg.setAttribute("viewBox", `0 0 ${this.#full} ${height}`);
    this.#paper.setAttribute("height", String(height));
    return this.#svg;
  }

  heading(text: string): void {
    this.#y += 8;
    for (const line of this.#lines(text, 16)) this.#text(line, 0, (this.#y += 20), 16, "bold");
    this.#y += 8;
  }

  note(text: string): void {
    for (const line of this.#lines(text, 13)) {
      this.#text(line, 0, (this.#y += 18), 13, "normal", this.#colours.faint);
    }
    this.#y += 8;
  }

  /** Boxes, wrapped into lines. */
  chips(chips: readonly Chip[]): void {
    const height = chips.some((chip) => chip.bottom !== undefined) ? 42 : 26;
    let x = 0;
    for (const chip of chips) {
      const bottom = shortened(chip.bottom ?? "", 12, this.#width - 12);
      const top = shortened(chip.top, 14, this.#width - 12);
      const width = Math.max(24, textWidth(top, 14), textWidth(bottom, 12)) + 12;
      if (x > 0 && x + width > this.#width) {
        x = 0;
        this.#y += height + 4;
      }
      this.#box(x, this.#y, width, height, chip.colour ?? this.#colours.middle, this.#colours.line);
      const ink = inkOn(chip.colour ?? this.#colours.middle);
      this.#text(top, x + width / 2, this.#y + 18, 14, "normal", ink, "middle");
      this.#text(bottom, x + width / 2, this.#y + 35, 12, "normal", ink, "middle");
      x += width + 4;
    }
    this.#y += height + 8;
  }

  bars(bars: readonly Bar[], most = Math.max(...bars.map((bar) => bar.value))): void {
    const names = Math.min(
      this.#width * 0.4,
      Math.max(0, ...bars.map((bar) => textWidth(bar.label, 13))) + 8,
    );
    const numbers = Math.max(0, ...bars.map((bar) => textWidth(bar.text, 12))) + 8;
    const room = Math.max(10, this.#width - names - numbers);
    for (const bar of bars) {
      this.#text(shortened(bar.label, 13, names - 6), 0, this.#y + 14, 13);
      const width = most > 0 ? Math.max(1, (bar.value / most) * room) : 1;
      this.#box(names, this.#y + 3, width, 14, this.#colours.accent);
      this.#text(bar.text, names + width + 4, this.#y + 14, 12, "normal", this.#colours.faint);
      this.#y += 20;
    }
    this.#y += 8;
  }

  /** Numbers in boxes that are coloured by them. */
  strip(values: readonly number[]): void {
    const most = Math.max(...values.map(Math.abs), 1e-9);
    this.chips(
      values.map((value) => ({ top: value.toFixed(3), colour: heat(value / most, this.#colours) })),
    );
  }

  /** Parts as columns; below each other where the width does not suffice. */
  columns(parts: readonly (() => void)[], smallest = 220): void {
    const gap = 16;
    const width = (this.#width - gap * (parts.length - 1)) / parts.length;
    if (width < smallest) {
      for (const part of parts) part();
      return;
    }
    const before = { left: this.#left, width: this.#width, y: this.#y };
    let lowest = this.#y;
    parts.forEach((part, i) => {
      this.#left = before.left + i * (width + gap);
      this.#width = width;
      this.#y = before.y;
      part();
      lowest = Math.max(lowest, this.#y);
    });
    this.#left = before.left;
    this.#width = before.width;
    this.#y = lowest;
  }

  #lines(text: string, size: number): string[] {
    // Chinese may break after every character.
    const pieces = text.match(/[\u3000-\uffef]|[^\s\u3000-\uffef]+\s*|\s+/g) ?? [];
    const lines = [""];
    for (const piece of pieces) {
      const line = lines[lines.length - 1] ?? "";
      if (line !== "" && textWidth(line + piece.trimEnd(), size) > this.#width) lines.push(piece);
      else lines[lines.length - 1] = line + piece;
    }
    return lines;
  }

  #text(
    text: string,
    x: number,
    y: number,
    size: number,
    weight = "normal",
    fill = this.#colours.ink,
    anchor = "start",
  ): void {
    if (text === "") return;
    const attributes = { x: this.#left + x, y, fill, "font-size": size, "font-weight": weight };
    this.#svg.append(s("text", { ...attributes, "text-anchor": anchor }, text));
  }

  #box(x: number, y: number, width: number, height: number, fill: string, stroke = "none"): void {
    this.#svg.append(s("rect", { x: this.#left + x, y, width, height, rx: 3, fill, stroke }));
  }
}
