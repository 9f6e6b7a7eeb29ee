/** A figure that follows the width of its container and the colours, and can be exported. */

import { h } from "../dom.ts";
import { palette, whenColoursChange, type Palette } from "../theme.ts";

export type Draw = (width: number, colours: Palette) => SVGSVGElement;

export const FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'WenQuanYi Micro Hei', sans-serif";

export class Figure {
  readonly element = h("figure", {});
  readonly #tip = h("div", { class: "tip", hidden: true });
  #draw: Draw | null = null;
  #width = 0;

  constructor() {
    new ResizeObserver(() => {
      const width = Math.floor(this.element.clientWidth);
      if (width !== this.#width) this.redraw();
    }).observe(this.element);
    whenColoursChange(() => this.redraw());
  }

  show(draw: Draw): void {
    this.#draw = draw;
    this.redraw();
  }

  /** Show nothing: what was drawn does not belong to what the user has entered. */
  clear(): void {
    this.#draw = null;
    this.element.replaceChildren();
  }

  redraw(): void {
    this.#width = Math.floor(this.element.clientWidth);
    if (this.#draw === null || this.#width === 0) return;
    this.element.replaceChildren(this.#draw(this.#width, palette()), this.#tip);
    this.hint(null, null);
  }

  /** Show a tooltip at a part of the figure; null hides it. */
  hint(part: Element | null, text: Node | string | null): void {
    this.#tip.hidden = part === null;
    if (part === null || text === null) return;
    this.#tip.replaceChildren(text);
    const room = this.element.getBoundingClientRect();
    const box = part.getBoundingClientRect();
    const left = box.left + box.width / 2 - room.left - this.#tip.offsetWidth / 2;
    this.#tip.style.left = `${Math.max(0, Math.min(left, room.width - this.#tip.offsetWidth))}px`;
    this.#tip.style.top = `${box.bottom - room.top + 6}px`;
  }

  /** The figure as a file of its own. */
  svg(): string {
    const picture = this.element.querySelector("svg");
    return picture === null ? "" : new XMLSerializer().serializeToString(picture);
  }

  async png(scale = 2): Promise<Blob> {
    const address = URL.createObjectURL(new Blob([this.svg()], { type: "image/svg+xml" }));
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = h("canvas", { width: image.width * scale, height: image.height * scale });
      canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
      return await new Promise((resolve, reject) =>
        canvas.toBlob((blob) => (blob === null ? reject(new Error("no picture")) : resolve(blob))),
      );
    } finally {
      URL.revokeObjectURL(address);
    }
  }
}
