// Shows the progress of a running run and reloads the page when there is something new. Open findings stay open,
// and nobody is interrupted while typing.
"use strict";
(() => {
  const OFTEN_MS = 1000, SELDOM_MS = 3000, KEPT = `backtalk-open ${location.pathname}`;
  const address = `../api/run/${location.pathname.split("/").at(-1)}`;
  const main = document.getElementById("main");
  const bar = document.createElement("p");
  bar.className = "live";
  bar.setAttribute("role", "status");
  const first = document.body.dataset.stamp; // the state of the run when this page was made

  const kept = sessionStorage.getItem(KEPT);
  if (kept) {
    sessionStorage.removeItem(KEPT);
    const { open, y } = JSON.parse(kept);
    for (const id of open) {
      const one = document.getElementById(id);
      if (one) one.open = true;
    }
    scrollTo(0, y);
  }

  const reload = () => {
    const open = [...document.querySelectorAll("details[open][id]")].map((one) => one.id);
    sessionStorage.setItem(KEPT, JSON.stringify({ open, y: scrollY }));
    location.reload();
  };

  const look = async () => {
    try {
      const run = await ask(address);
      if (run.state === "running") {
        const far = `: ${run.done.toLocaleString("en")} of ${run.total.toLocaleString("en")} tried.`;
        bar.textContent = `At work${run.total ? far : "."}`;
        if (!bar.isConnected) main.prepend(bar);
      }
      const busy = document.activeElement?.matches("input, select, textarea") || !getSelection().isCollapsed;
      if (run.stamp !== first && !document.hidden && !busy) return reload();
      if (run.state !== "running" && run.stamp === first) return bar.remove();
    } catch (error) { bar.textContent = error.message; }
    // A page that takes long to make is reloaded less often.
    const took = performance.getEntriesByType("navigation")[0]?.duration ?? 0;
    setTimeout(look, Math.min(SELDOM_MS, Math.max(OFTEN_MS, 5 * took)));
  };
  look();
})();
