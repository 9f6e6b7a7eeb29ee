/** Elements in one expression. */

type Value = string | number | boolean | null | undefined | ((event: Event) => void);
export type Attributes = Record<string, Value>;
export type Child = Node | string | null | undefined | false;

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that begin with `on` are listeners; false and null are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

let labels = 0;

/** A field with its label. */
export function field(
  label: string,
  control: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement,
  ...more: Child[]
): HTMLElement {
  control.id ||= `field-${++labels}`;
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, ...more);
}

/** A choice among a few. */
export function select(
  options: readonly (readonly [value: string, label: string])[],
  chosen: string,
  change: (value: string) => void,
): HTMLSelectElement {
  const control = h("select", { onchange: () => change(control.value) });
  for (const [value, label] of options) {
    control.append(h("option", { value, selected: value === chosen }, label));
  }
  return control;
}

/** A group of buttons of which one is pressed. */
export function choice(
  label: string,
  options: readonly (readonly [value: string, label: string])[],
  chosen: string,
  change: (value: string) => void,
): HTMLElement {
  const buttons = options.map(([value, name]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === chosen),
        onclick: (event) => {
          for (const button of buttons) {
            button.setAttribute("aria-pressed", String(button === event.currentTarget));
          }
          change(value);
        },
      },
      name,
    ),
  );
  return h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

/** A table with a line of headings. */
export function table(headings: readonly string[], rows: readonly (readonly Child[])[]): HTMLElement {
  const head = h("tr", {}, ...headings.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))));
  // A box that scrolls must be reachable by keyboard.
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": headings.join(", ") },
    h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)),
  );
}

/** A sentence with one token marked. */
export function marked(tokens: readonly string[], position: number): HTMLElement {
  const parts = tokens.flatMap((token, index): Child[] => [
    index > 0 ? " " : null,
    index === position ? h("mark", {}, token) : token,
  ]);
  return h("span", {}, ...parts);
}
