/** Points on a map, by group: told apart by colour and by shape, reached by mouse and by keyboard. */

import { s } from "../dom.ts";
import type { Palette } from "../theme.ts";
import { FONT } from "./figure.ts";
import { shortened, textWidth } from "./sheet.ts";

export interface Point {
  readonly x: number;
  readonly y: number;
  readonly group: number;
  /** For screen readers. */
  readonly label: string;
  /** A few words beside the point. */
  readonly caption: string;
}

export interface Handlers {
  readonly pick: (point: number) => void;
  /** The mouse or the keyboard is at a point; null when it left. */
  readonly visit: (point: number | null, element: Element | null) => void;
}

export interface Labels {
  readonly figure: string;
  readonly x: string;
  readonly y: string;
  readonly groups: readonly string[];
}

const EDGE = 30;
const LEGEND = 26;
const SHAPES = [
  "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0",
  "M-5.5,-5.5h11v11h-11z",
  "M0,-7L6.5,5H-6.5z",
  "M0,-7L7,0L0,7L-7,0z",
  "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
  "M0,7L6.5,-5H-6.5z",
];

export function scatter(
  points: readonly Point[],
  chosen: number,
  labels: Labels,
  width: number,
  colours: Palette,
  handlers: Handlers,
): SVGSVGElement {
  const height = Math.round(Math.max(300, Math.min(520, width * 0.6)));
  const position = scaleTo(points, width, height);
  const svg = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": labels.figure,
    "font-family": FONT,
  });
  svg.append(s("rect", { width, height, fill: colours.paper }));
  svg.append(...axes(labels, width, height, colours), legend(labels.groups, colours));
  const captions = captionsOf(points.map((point) => point.caption), points.map(position), width, height, colours);
  const marks = points.map((point, i) => {
    const [x, y] = position(point);
    const mark = s(
      "g",
      {
        transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
        class: "point",
        role: "button",
        // One tab stop; arrow keys move between the points.
        tabindex: i === chosen ? 0 : -1,
        "aria-label": point.label,
        "aria-pressed": String(i === chosen),
        onclick: () => handlers.pick(i),
        onpointerenter: () => handlers.visit(i, mark),
        onpointerleave: () => handlers.visit(null, null),
        onfocus: () => handlers.visit(i, mark),
        onblur: () => handlers.visit(null, null),
      },
      s("path", {
        d: SHAPES[point.group % SHAPES.length],
        fill: colours.groups[point.group % colours.groups.length],
        stroke: i === chosen ? colours.ink : colours.paper,
        "stroke-width": i === chosen ? 2.5 : 1,
      }),
    );
    return mark;
  });
  svg.addEventListener("keydown", (event) => {
    const now = marks.findIndex((mark) => mark === document.activeElement);
    const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined) marks[(now + step + marks.length) % marks.length]?.focus();
    else if (event.key === "Enter" || event.key === " ") handlers.pick(now);
    else return;
    event.preventDefault();
  });
  svg.append(captions, ...marks);
  return svg;
}

interface Box {
  readonly left: number;
  readonly right: number;
  readonly y: number;
}

const CAPTION = { size: 11, line: 13, longest: 170, lines: 9 };

/** Words beside points, as near as they cover nothing; a line leads to those that are not beside. */
function captionsOf(
  captions: readonly string[],
  positions: readonly (readonly [number, number])[],
  width: number,
  height: number,
  colours: Palette,
): SVGGElement {
  const group = s("g", { "font-size": CAPTION.size, fill: colours.faint, "aria-hidden": "true" });
  const taken: Box[] = positions.map(([x, y]) => ({ left: x - 7, right: x + 7, y }));
  positions.forEach(([x, y], i) => {
    const text = shortened(captions[i] ?? "", CAPTION.size, Math.min(CAPTION.longest, width / 2 - 14));
    const box = freeBox(x, y, textWidth(text, CAPTION.size), taken, width, height);
    if (box === undefined) return; // among hundreds of points not every word has room
    taken.push(box);
    if (Math.abs(box.y - y) > CAPTION.line / 2) {
      const end = box.left > x ? box.left - 2 : Math.min(box.right + 2, x);
      group.append(s("path", { d: `M${x},${y}L${end},${box.y}`, stroke: colours.line, fill: "none" }));
    }
    group.append(s("text", { x: box.left.toFixed(1), y: (box.y + 4).toFixed(1) }, text));
  });
  return group;
}

/** Beside a point, on the side with more room if both are free; else above or below. */
function freeBox(
  x: number,
  y: number,
  long: number,
  taken: readonly Box[],
  width: number,
  height: number,
): Box | undefined {
  const sides = [x + 10, x - 10 - long];
  if (x > width / 2) sides.reverse();
  for (let step = 0; step <= 2 * CAPTION.lines; step++) {
    const shift = Math.ceil(step / 2) * (step % 2 === 0 ? CAPTION.line : -CAPTION.line);
    for (const left of sides) {
      const box = { left, right: left + long, y: y + shift };
      const inside =
        left >= EDGE / 2 && box.right <= width - 4 && box.y >= LEGEND && box.y <= height - EDGE / 2 - 6;
      const covered = taken.some(
        (other) =>
          Math.abs(other.y - box.y) < CAPTION.line && other.left < box.right && other.right > box.left,
      );
      if (inside && !covered) return box;
    }
  }
  return undefined;
}

function scaleTo(
  points: readonly Point[],
  width: number,
  height: number,
): (point: Point) => [number, number] {
  const range = (values: number[]): [number, number] => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? [low, high] : [low - 1, high + 1];
  };
  const [left, right] = range(points.map((point) => point.x));
  const [bottom, top] = range(points.map((point) => point.y));
  return ({ x, y }) => [
    EDGE + ((x - left) / (right - left)) * (width - 2 * EDGE),
    height - EDGE - ((y - bottom) / (top - bottom)) * (height - 2 * EDGE - LEGEND),
  ];
}

function axes(labels: Labels, width: number, height: number, colours: Palette): SVGElement[] {
  const style = { "font-size": 11, fill: colours.faint, "text-anchor": "middle" };
  const middle = height / 2;
  return [
    s("rect", { x: 0.5, y: 0.5, width: width - 1, height: height - 1, fill: "none", stroke: colours.line }),
    s("text", { x: width / 2, y: height - 8, ...style }, labels.x),
    s("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, ...style }, labels.y),
  ];
}

function legend(groups: readonly string[], colours: Palette): SVGGElement {
  const entries = groups.map((name, i) =>
    s(
      "g",
      { transform: `translate(${EDGE + i * 84},16)` },
      s("path", { d: SHAPES[i % SHAPES.length], fill: colours.groups[i % colours.groups.length] }),
      s("text", { x: 11, y: 4, "font-size": 12, fill: colours.ink }, name),
    ),
  );
  return s("g", { "aria-hidden": "true" }, ...entries);
}
