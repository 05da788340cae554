// Keeps the list of runs up to date: rows change in place, new ones appear on top.
"use strict";

const OFTEN_MS = 1000, SELDOM_MS = 5000;
const body = document.getElementById("runs"), live = document.getElementById("live");

function field(row, name) { return row.querySelector(`[data-field="${name}"]`); }

function put(node, text) { if (node.textContent !== text) node.textContent = text; }

function update(row, run) {
  row.className = run.state;
  put(field(row, "state"), run.state);
  put(field(row, "note"), run.note.slice(0, 200));
  put(field(row, "result"), run.result);
  put(field(row, "done"), run.total ? `${run.done.toLocaleString("en")} of ${run.total.toLocaleString("en")}` : "");
  put(field(row, "changed"), run.changed.slice(0, 16).replace("T", " "));
  const bar = field(row, "progress");
  bar.hidden = run.state !== "running" || !run.total;
  bar.max = run.total || 1;
  bar.value = run.done;
}

function add(run) {
  const row = document.getElementById("blank").content.querySelector("tr").cloneNode(true);
  row.dataset.key = run.key;
  const name = field(row, "name");
  name.href = (run.kind === "rating" ? "rate/" : "run/") + run.key;
  name.firstElementChild.textContent = run.name;
  put(field(row, "about"), [run.kind, run.model, run.search, run.criterion].filter(Boolean).join(" · "));
  const button = row.querySelector(".copy");
  if (run.command) {
    button.dataset.text = run.command;
    button.querySelector(".unseen").textContent = `of ${run.name}`;
  } else button.remove();
  body.prepend(row);
  return row;
}

async function refresh() {
  let pause = SELDOM_MS;
  if (!document.hidden) {
    try {
      const { runs } = await ask("api/runs");
      const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
      for (const run of runs) {
        const known = rows.get(run.key);
        const before = known ? field(known, "state").textContent : "";
        update(known || add(run), run);
        if (before === "running" && run.state !== "running") put(live, `${run.name} is ${run.state}.`);
        rows.delete(run.key);
      }
      for (const gone of rows.values()) gone.remove();
      document.getElementById("none").hidden = runs.length > 0;
      if (runs.some((run) => run.state === "running")) pause = OFTEN_MS;
    } catch (error) { put(live, error.message); }
  }
  setTimeout(refresh, pause);
}

setTimeout(refresh, OFTEN_MS);
