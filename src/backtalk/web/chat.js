// The conversation is kept in this page alone and sent whole with every turn.
"use strict";

const log = document.getElementById("talk"), form = document.getElementById("say");
const text = document.getElementById("text"), sample = document.getElementById("sample");
let turns = [];

function make(tag, className, content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (content !== undefined) node.textContent = content;
  return node;
}

function show(node) {
  log.append(node);
  node.scrollIntoView({ block: "nearest" });
}

function showUser(said) {
  const turn = make("div", "utterance user");
  turn.append(make("span", "unseen", "You: "), make("bdi", "", said));
  show(turn);
}

function share(value) {
  return value < 0.0005 ? "<0.1%" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}

function showReply(said) {
  const turn = make("div", "utterance model");
  turn.append(make("span", "unseen", "Model: "));
  if (!said.words.length) turn.append(make("bdi", "reply", said.reply.trim() ? said.reply : "(says nothing)"));
  else {
    turn.append(make("bdi", "reply unseen", said.reply.trim() ? said.reply : "(says nothing)"));
    const list = make("ol", "words-said");
    for (const word of said.words) {
      const item = make("li", word === said.words.at(-1) ? "end" : "");
      const bar = make("progress");
      bar.max = 1;
      bar.value = word.share;
      bar.setAttribute("aria-hidden", "true");
      item.append(make("bdi", "word", word.text), bar, make("span", "share", share(word.share)));
      list.append(item);
    }
    turn.append(list, make("p", "whole-reply", `The whole reply: ${said.whole}`));
  }
  show(turn);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (!said || log.getAttribute("aria-busy") === "true") return;
  showProblem(null);
  log.setAttribute("aria-busy", "true");
  const asked = [...turns, { role: "user", text: said }];
  showUser(said);
  text.value = "";
  const mine = turns;
  let answer = null, problem = null;
  try {
    const seed = crypto.getRandomValues(new Uint32Array(1))[0];
    answer = await ask("api/chat", { turns: asked, sample: sample.checked, seed });
  } catch (error) { problem = error; }
  if (mine !== turns) return; // a new conversation was started meanwhile
  log.removeAttribute("aria-busy");
  if (answer) {
    turns = [...asked, { role: "model", text: answer.reply }];
    showReply(answer);
  } else {
    showProblem(problem);
    log.lastElementChild?.remove();
    text.value ||= said; // keep what was typed meanwhile
  }
  text.focus();
});

document.getElementById("new").addEventListener("click", () => {
  turns = [];
  log.replaceChildren();
  log.removeAttribute("aria-busy"); // the pending reply is dropped
  showProblem(null);
  text.focus();
});
form.querySelector(".ask").disabled = false; // now that this script can answer
text.focus();
