/** The page around the views: which one, in which language, in which colours, for which model. */

import { backend, Refused, type Model, type Offer } from "./api.ts";
import { field, h, select } from "./dom.ts";
import { firstLanguage, language, LANGUAGES, setLanguage, t, type Language } from "./i18n.ts";
import { currentTheme, forgetPictures, setTheme, type Theme } from "./theme.ts";
import type { MakeView } from "./views/common.ts";
import { context } from "./views/context.ts";
import { gap } from "./views/gap.ts";
import { inspect } from "./views/inspect.ts";
import { layers } from "./views/layers.ts";
import { tasks } from "./views/tasks.ts";

const VIEWS = { context, layers, inspect, gap, tasks } satisfies Record<string, MakeView>;
type ViewName = keyof typeof VIEWS;

function viewNames(): ViewName[] {
  return (Object.keys(VIEWS) as ViewName[]).filter((name) => name !== "tasks" || backend().hasTasks);
}

const THEMES: readonly Theme[] = ["auto", "light", "dark"];
const STORAGE = { language: "elmokit-language", theme: "elmokit-theme" };

/** Shows how much of a model has arrived, while it arrives. */
const loading = h("div", { class: "loading", hidden: true });

export function showProgress(loaded: number, total: number): void {
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  const text = t("page.loading", { loaded: megabytes(loaded), total: megabytes(total) });
  loading.hidden = loaded >= total;
  loading.replaceChildren(h("label", {}, text, h("progress", { max: total, value: loaded })));
}

let served: Offer | null = null;
let chosenModel: string | null = null;

function viewName(): ViewName {
  const name = location.hash.replace("#/", "");
  return viewNames().find((known) => known === name) ?? "context";
}

function render(): void {
  forgetPictures();
  document.documentElement.lang = LANGUAGES[language()].code;
  document.title = `${t(`view.${viewName()}`)} · ${t("page.title")}`;
  const skip = (event: Event) => {
    event.preventDefault();
    document.querySelector("main")?.focus();
  };
  document.body.replaceChildren(
    h("a", { class: "skip", href: "#main", onclick: skip }, t("page.skip")),
    h("header", { class: "top" }, h("strong", {}, "elmokit"), navigation(), settings()),
    h("main", { id: "main", tabindex: -1 }, loading, content()),
    h("footer", {}, served && facts(served)),
  );
}

function navigation(): HTMLElement {
  const links = viewNames().map((name) =>
    h(
      "a",
      { href: `#/${name}`, "aria-current": name === viewName() ? "page" : null },
      t(`view.${name}`),
    ),
  );
  return h("nav", { "aria-label": t("page.views") }, ...links);
}

function settings(): HTMLElement {
  const languages = (Object.keys(LANGUAGES) as Language[]).map(
    (code) => [code, LANGUAGES[code].name] as const,
  );
  const chooseLanguage = select(languages, language(), (value) => {
    setLanguage(value as Language);
    localStorage.setItem(STORAGE.language, value);
    render();
    document.getElementById("language")?.focus();
  });
  chooseLanguage.id = "language";
  const chooseTheme = select(
    THEMES.map((theme) => [theme, t(`theme.${theme}`)] as const),
    currentTheme(),
    (value) => {
      setTheme(value as Theme);
      localStorage.setItem(STORAGE.theme, value);
    },
  );
  return h(
    "div",
    { class: "settings" },
    served && modelChoice(served),
    field(t("page.language"), chooseLanguage),
    field(t("page.theme"), chooseTheme),
  );
}

function modelChoice(found: Offer): HTMLElement {
  const names = found.models.map(({ name }) => [name, name] as const);
  const control = select(names, chosenModel ?? "", (value) => {
    chosenModel = value;
    render();
    document.getElementById("model")?.focus();
  });
  control.id = "model";
  return field(t("page.model"), control);
}

function content(): HTMLElement {
  if (served === null) return h("p", { role: "status" }, t("page.wait"));
  return VIEWS[viewName()]({ offer: served, model: currentModel(served) });
}

function currentModel(found: Offer): Model {
  const model = found.models.find(({ name }) => name === chosenModel) ?? found.models[0];
  if (model === undefined) throw new Error("the service offers no model");
  return model;
}

function facts(found: Offer): string {
  const { name, layers, dim } = currentModel(found);
  const version = t("page.version", { version: found.version });
  return `${name}: ${t("page.facts", { layers, dim })}. ${version} ${t(backend().texts.privacy)}`;
}

/** Shows a form for a token, then loads again. */
function askForToken(): void {
  const input = h("input", { type: "password", autocomplete: "off", required: true });
  const send = (event: Event) => {
    event.preventDefault();
    backend().useToken(input.value);
    void load();
  };
  const button = h("button", { type: "submit", class: "main" }, t("page.tokenSend"));
  const form = h("form", { onsubmit: send }, field(t("page.token"), input), button);
  document.querySelector("main")?.replaceChildren(form);
  input.focus();
}

async function load(): Promise<void> {
  render();
  try {
    served = await backend().offer();
    chosenModel = served.models[0]?.name ?? null;
    render();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken();
    const message = error instanceof Refused ? error.message : t(backend().texts.unreachable);
    document.querySelector("main")?.replaceChildren(h("p", { class: "status problem" }, message));
  }
}

/** Shows the page, with the backend that was set. */
export function start(): void {
  setLanguage(firstLanguage(localStorage.getItem(STORAGE.language), navigator.languages));
  const theme = localStorage.getItem(STORAGE.theme);
  setTheme(THEMES.find((known) => known === theme) ?? "auto");
  window.addEventListener("hashchange", () => {
    render();
    document.querySelector("main")?.focus();
  });
  void load();
}
