// Keeps the parts of a page that are marked live up to date: fetches the page again, and replaces the parts that changed.
// Everything else works without scripts.
"use strict";

const SECONDS = 5;
const button = document.querySelector("[data-live-switch]");
const status = document.querySelector("[data-live-status]");
let running = true;

async function refresh() {
  const response = await fetch(location.href, { headers: { "X-Console-Live": "1" }, redirect: "error" });
  if (response.status === 401) {
    location.reload();
    return;
  }
  if (!response.ok) throw new Error(`status ${response.status}`);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    // A part that has the keyboard focus is left alone.
    if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
      part.replaceChildren(...next.childNodes);
    }
  }
}

async function loop() {
  while (true) {
    await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
    if (!running || document.hidden) continue;
    try {
      await refresh();
      status.textContent = "";
    } catch {
      status.textContent = "Not up to date: the console does not answer.";
    }
  }
}

if (document.querySelector("[data-live]") && button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    running = !running;
    button.textContent = running ? "Pause refreshing" : "Go on refreshing";
    button.setAttribute("aria-pressed", String(!running));
  });
  loop();
}

// A search that has found nothing yet looks further by itself, until somebody stops it; letters that are being read are asked for again.
const further = document.querySelector("[data-go-on]");
if (further) {
  const going = setTimeout(() => location.replace(further.dataset.goOn), 300);
  const stop = further.querySelector("[data-stay]");
  if (stop) {
    stop.hidden = false;
    stop.addEventListener("click", () => clearTimeout(going));
  }
}
