// The little that a page can't do without a script: remember the mask, find and sort, export, open what a link
// names, copy. Nothing is fetched, and no text is ever taken for markup.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const KEY = "backtalk-unmask";
  // The mask is the style sheet's work; here it is only remembered. A browser may forbid that.
  const show = at("show");
  if (show) {
    try {
      show.checked = localStorage.getItem(KEY) === "yes";
    } catch { /* asked again on the next page */ }
    show.addEventListener("change", () => {
      try {
        localStorage.setItem(KEY, show.checked ? "yes" : "no");
      } catch { /* as above */ }
    });
  }

  const openNamed = () => {
    const named = location.hash.startsWith("#f-") && at(location.hash.slice(1));
    if (!named) return;
    if (named.tagName === "DETAILS") named.open = true;
    named.hidden = false;
    named.scrollIntoView({ block: "start" });
    const summary = named.querySelector("summary");
    if (summary) summary.focus();
  };
  addEventListener("hashchange", openNamed);

  for (const button of document.querySelectorAll("[data-copy]")) {
    const text = at(button.dataset.copy);
    if (!text) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = "Selected";
      }
    });
  }

  const unfold = at("unfold");
  const shownCases = () => [...document.querySelectorAll("#cases > details")].filter((one) => !one.hidden);
  if (unfold && shownCases().length) {
    unfold.hidden = false;
    unfold.addEventListener("click", () => {
      const open = unfold.textContent === "Open all";
      for (const one of shownCases()) one.open = open;
      unfold.textContent = open ? "Close all" : "Open all";
    });
  }

  // Escape closes the finding that one is in, and goes back to its row.
  document.addEventListener("keydown", (event) => {
    const one = event.key === "Escape" && event.target.closest("#cases > details[open]");
    if (!one) return;
    one.open = false;
    one.querySelector("summary").focus();
  });

  const seek = at("seek");
  const data = at("rows");
  if (seek && !data) {
    // The app answers: a choice is sent at once.
    for (const choice of seek.querySelectorAll("select")) {
      choice.addEventListener("change", () => seek.requestSubmit());
    }
  }
  if (!seek || !data) {
    openNamed();
    return;
  }

  // From here on: the file, which carries its rows in itself.
  const unseen = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}]/gu;
  const plain = (text) => text.replace(/[\t\r\n\u2028\u2029]/g, " ").replace(unseen, "");
  const rows = JSON.parse(data.textContent).map((row, place) => ({
    row,
    place,
    element: at(row.anchor),
    sought: plain([row.target, ...row.trigger, row.reply, ...(row.replies ?? []), row.case].join(" \n ")).toLowerCase(),
  }));
  const falling = (name) => (a, b) => (b.row[name] ?? -Infinity) - (a.row[name] ?? -Infinity) || a.place - b.place;
  const orders = {
    best: (a, b) => a.place - b.place,
    likeliest: falling("log_prob"),
    input: falling("input_mean"),
    severity: falling("severity"),
    similarity: falling("similarity"),
    toxicity: falling("toxicity"),
  };
  const kinds = {
    all: () => true,
    hits: (row) => row.hit,
    misses: (row) => !row.hit,
    said: (row) => row.said,
  };
  let shown = rows;
  const apply = () => {
    const value = (name) => (seek.elements[name] ? seek.elements[name].value : "");
    const words = plain(value("q")).toLowerCase().split(" ").filter(Boolean);
    const category = value("category");
    const fits = ({ row, sought }) =>
      kinds[value("show")](row) &&
      (category === "" || row.category_number === Number(category)) &&
      (value("meets") === "" || row.hits.includes(value("meets"))) &&
      words.every((word) => sought.includes(word));
    shown = rows.filter(fits).sort(orders[value("sort")]);
    const wanted = new Set(shown);
    for (const one of rows) if (one.element) one.element.hidden = !wanted.has(one);
    for (const one of shown) if (one.element) one.element.parentNode.append(one.element);
    at("counted").textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  };
  seek.hidden = false;
  seek.addEventListener("submit", (event) => event.preventDefault());
  seek.addEventListener("input", apply);

  const FIELDS = ["case", "category", "severity", "status", "hit", "target", "trigger", "reply", "log_prob",
    "mean", "min", "input_mean", "similarity", "toxicity", "hits", "anchor"];
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "number") return String(value);
    let text = plain(Array.isArray(value) ? value.join(" / ") : value);
    if (/^\s*[=+\-@＝＋－＠]/u.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const writers = {
    csv: () => [FIELDS, ...shown.map(({ row }) => FIELDS.map((name) => cell(row[name])))]
      .map((cells) => `${cells.join(",")}\r\n`).join(""),
    jsonl: () => shown.map(({ row }) =>
      `${JSON.stringify(Object.fromEntries(FIELDS.map((name) => [name, row[name]])))}\n`).join(""),
  };
  for (const button of document.querySelectorAll("[data-export]")) {
    button.addEventListener("click", () => {
      const kind = button.dataset.export;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([writers[kind]()], { type: "text/plain" }));
      link.download = `findings.${kind}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }
  at("give").hidden = false;
  apply();
  openNamed();
})();
