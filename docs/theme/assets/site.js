"use strict"

// The copy button of a console block takes the commands: neither the prompt nor what they printed.
for (const block of document.querySelectorAll(".language-console")) {
  const commands = []
  let open = false // whether the line before ends in a backslash
  for (const line of block.querySelector("code").textContent.split("\n")) {
    const begins = line.startsWith("$ ")
    if (begins || open) commands.push(begins ? line.slice(2) : line)
    open = (begins || open) && line.endsWith("\\")
  }
  if (commands.length) block.dataset.copy = commands.join("\n")
}

// A table that is too wide scrolls; the keyboard must reach it.
for (const table of document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre")) {
  if (table.scrollWidth > table.clientWidth) table.tabIndex = 0
}

// The theme's search dialog speaks English only.
if (document.documentElement.lang === "zh") {
  const words = {
    "Close search": "关闭搜索",
    Filters: "筛选",
    "Loading search…": "正在加载……",
    "No results": "没有结果",
    Search: "搜索",
    "Search results": "搜索结果",
    Tags: "标签",
  }
  const translated = (text) => words[text] ?? text.replace(/^([\d,]+) results?$/, "$1 个结果")
  const translate = (root) => {
    for (const element of root.querySelectorAll("[aria-label], [placeholder]")) {
      for (const name of ["aria-label", "placeholder"]) {
        const text = element.getAttribute(name)
        if (text !== null && translated(text) !== text) element.setAttribute(name, translated(text))
      }
    }
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (text.parentNode.closest("ol, style")) continue
      if (translated(text.data) !== text.data) text.data = translated(text.data)
    }
  }
  const dialog = [...document.body.children].find((element) => element.shadowRoot)
  if (dialog) {
    const watch = { attributes: true, characterData: true, childList: true, subtree: true }
    new MutationObserver(() => translate(dialog.shadowRoot)).observe(dialog.shadowRoot, watch)
    translate(dialog.shadowRoot)
  }
}
