// Blind pairs, or single replies: shows one, stores the answer, shows the next.
"use strict";

const pair = document.getElementById("pair"), who = document.getElementById("who");
const name = document.getElementById("rater"), place = `../api/rate/${pair.dataset.key}`;
const KEYS = { 1: "1", 2: "2", t: "tie", s: "skip", u: "undo" };
let rater = "", shown = null, busy = false;

function show(state) {
  shown = state.pair;
  who.hidden = true;
  name.blur(); // hidden, it would still take the next key
  pair.hidden = !shown;
  document.getElementById("done").hidden = Boolean(shown);
  document.getElementById("undoing").hidden = state.done === 0;
  document.getElementById("count").textContent = `${pair.dataset.noun} ${state.done + 1} of ${state.total}`;
  const bar = document.getElementById("progress");
  bar.max = state.total || 1;
  bar.value = state.done;
  if (!shown) return;
  for (const part of pair.querySelectorAll("bdi"))
    part.textContent = shown[part.id].trim() ? shown[part.id] : "(says nothing)";
}

async function step(asking) {
  if (busy) return;
  busy = true;
  showProblem(null);
  try { show(await asking()); } catch (error) { showProblem(error); } finally { busy = false; }
}

function choose(choice) {
  if (!rater || (choice !== "undo" && !shown)) return;
  step(async () => {
    try {
      return await ask(place, { rater, pair: shown ? shown.pair : "", choice });
    } catch (error) { // perhaps judged in another tab: show the next pair and keep the message
      showProblem(error);
      return stateOf(rater);
    }
  });
}

function stateOf(name) {
  return ask(`${place}?rater=${encodeURIComponent(name)}`);
}

who.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = name.value.trim();
  step(async () => {
    const state = await stateOf(given);
    rater = given;
    return state;
  });
});

document.addEventListener("click", (event) => {
  if (event.detail > 1) return; // the second of a double click would judge a pair that nobody has seen
  const button = event.target.closest("[data-choice]");
  if (button) choose(button.dataset.choice);
});

document.addEventListener("keydown", (event) => {
  if (event.repeat) return; // so would a key that is held
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
  if (Object.hasOwn(KEYS, event.key)) choose(KEYS[event.key]);
});
who.querySelector("button").disabled = false; // now that this script can answer
name.focus();
