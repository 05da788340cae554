// Shared by all pages: copy buttons and requests to the server.
"use strict";

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch {
    throw new Error("the server does not answer; is backtalk serve still running?");
  }
  const said = await response.json();
  if (!response.ok) throw new Error(said.error);
  return said;
}

function showProblem(error) {
  const place = document.getElementById("problem");
  place.textContent = error ? error.message : "";
  place.hidden = !error;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.text);
  const label = button.querySelector("span"), before = "Copy command";
  label.textContent = "Copied";
  button.classList.add("copied");
  setTimeout(() => { label.textContent = before; button.classList.remove("copied"); }, 1500);
});
