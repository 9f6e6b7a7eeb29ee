/** Heat maps, several in one figure. */

import { s } from "../dom.ts";
import { heat, type Palette } from "../theme.ts";
import type { Matrix } from "../maths/vectors.ts";
import { FONT } from "./figure.ts";
import { shortened, textWidth } from "./sheet.ts";

export interface HeatMap {
  readonly title: string;
  readonly values: Matrix;
  /** The number with the strongest colour. */
  readonly most: number;
}

export interface Lengths {
  readonly title: string;
  readonly values: readonly number[];
  /** The length of the longest bar. */
  readonly most: number;
}

export type Visit = (element: Element | null, text: string | null) => void;

const TITLE = 28;
const SCALE = { height: 44, width: 160 };
const LONGEST_LABEL = 90;

export function heatMaps(
  maps: readonly HeatMap[],
  rows: readonly string[],
  columns: readonly string[],
  lengths: Lengths,
  labels: { readonly figure: string; readonly scale: string },
  width: number,
  colours: Palette,
  visit: Visit,
): SVGSVGElement {
  const side = Math.min(LONGEST_LABEL, Math.max(...rows.map((token) => textWidth(token, 12))) + 8);
  const above = Math.min(LONGEST_LABEL, Math.max(...columns.map((token) => textWidth(token, 12))) + 8);
  const abreast = width >= 640 ? 2 : 1;
  const room = width / abreast - side - 24;
  const cell = Math.max(6, Math.min(34, Math.floor(room / columns.length)));
  const block = { width: width / abreast, height: TITLE + above + cell * rows.length + 20 };
  const positions = [...maps, lengths].map((_, i) => ({
    x: (i % abreast) * block.width,
    y: SCALE.height + Math.floor(i / abreast) * block.height,
  }));
  const height = SCALE.height + Math.ceil(Math.ceil((maps.length + 1) / abreast) * block.height);
  const svg = s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": labels.figure, "font-family": FONT },
    s("rect", { width, height, fill: colours.paper }),
  );
  const measures = { side, above, cell };
  maps.forEach((map, i) => {
    svg.append(moved(oneMap(map, rows, columns, measures, colours, visit), positions[i]));
  });
  svg.append(...scale(labels.scale, maps[0]?.most ?? 1, colours));
  svg.append(moved(bars(lengths, rows, measures, block.width, colours), positions[maps.length]));
  return svg;
}

interface Measures {
  readonly side: number;
  readonly above: number;
  readonly cell: number;
}

function oneMap(
  map: HeatMap,
  rows: readonly string[],
  columns: readonly string[],
  { side, above, cell }: Measures,
  colours: Palette,
  visit: Visit,
): SVGGElement {
  const group = s("g", {}, title(map.title, colours));
  columns.forEach((token, j) => {
    const [x, y] = [side + (j + 0.5) * cell + 4, TITLE + above - 4];
    const turned = `rotate(-90 ${x} ${y})`;
    group.append(name(token, above, { x, y, transform: turned }, colours));
  });
  rows.forEach((token, i) => {
    const y = TITLE + above + (i + 0.5) * cell + 4;
    group.append(name(token, side, { x: side - 4, y, "text-anchor": "end" }, colours));
    columns.forEach((other, j) => {
      const value = map.values[i]?.[j] ?? 0;
      const square = s("rect", {
        x: side + j * cell,
        y: TITLE + above + i * cell,
        width: cell - 1,
        height: cell - 1,
        fill: heat(map.most > 0 ? value / map.most : 0, colours),
        onpointerenter: () => visit(square, `${token} · ${other}: ${value.toFixed(3)}`),
        onpointerleave: () => visit(null, null),
      });
      group.append(square);
    });
  });
  return group;
}

function bars(
  lengths: Lengths,
  rows: readonly string[],
  { side, above, cell }: Measures,
  width: number,
  colours: Palette,
): SVGGElement {
  const room = width - side - 80;
  const group = s("g", {}, title(lengths.title, colours));
  rows.forEach((token, i) => {
    const value = lengths.values[i] ?? 0;
    const [y, long] = [TITLE + above + i * cell, Math.max(1, Math.min(1, value / lengths.most) * room)];
    const middle = y + cell / 2 + 4;
    group.append(
      name(token, side, { x: side - 4, y: middle, "text-anchor": "end" }, colours),
      s("rect", { x: side, y: y + 2, width: long, height: Math.max(2, cell - 5), fill: colours.accent }),
      s("text", { x: side + long + 4, y: middle, "font-size": 12, fill: colours.faint }, value.toFixed(2)),
    );
  });
  return group;
}

/** Which colour is which number. */
function scale(label: string, most: number, colours: Palette): SVGElement[] {
  const stops = [-1, 0, 1].map((value) =>
    s("stop", { offset: (value + 1) / 2, "stop-color": heat(value, colours) }),
  );
  const left = 8 + textWidth(label, 13) + 24;
  const style = { "font-size": 12, fill: colours.faint, "text-anchor": "middle" };
  const ticks = [-1, 0, 1].map((value) => {
    const text = String(Number((value * most).toPrecision(3)));
    return s("text", { x: left + ((value + 1) / 2) * SCALE.width, y: 36, ...style }, text);
  });
  const box = { x: left, y: 8, width: SCALE.width, height: 14, stroke: colours.line };
  return [
    s("linearGradient", { id: "scale" }, ...stops),
    s("text", { x: 8, y: 20, "font-size": 13, fill: colours.ink }, label),
    s("rect", { ...box, fill: "url(#scale)", class: "scale" }),
    ...ticks,
  ];
}

function title(text: string, colours: Palette): SVGTextElement {
  const style = { "font-size": 14, "font-weight": "bold", fill: colours.ink };
  return s("text", { x: 8, y: 19, ...style }, text);
}

function name(
  token: string,
  room: number,
  attributes: Record<string, string | number>,
  colours: Palette,
): SVGTextElement {
  const style = { "font-size": 12, fill: colours.ink };
  return s("text", { ...attributes, ...style }, shortened(token, 12, room - 6));
}

function moved(group: SVGGElement, to: { x: number; y: number } | undefined): SVGGElement {
  group.setAttribute("transform", `translate(${to?.x ?? 0},${to?.y ?? 0})`);
  return group;
}
