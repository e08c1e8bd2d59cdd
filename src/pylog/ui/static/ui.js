// Refreshes pages, follows a topic, and moves by keys. Nothing moves while the reader is in the middle of something.
"use strict";
const main = document.querySelector("main");
const isTyping = () => /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
const isReading = () => String(document.getSelection()) !== "" || main.contains(document.activeElement);
const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

async function fetched(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" }, cache: "no-store" });
  return answer.ok ? parsed(await answer.text()) : null;
}

// ---- refreshing -------------------------------------------------------------------------------------------------------------

const OLD = " · not refreshed";

function sayOld() {
  const time = main.querySelector(".asof");
  if (time && !time.textContent.endsWith(OLD)) time.textContent += OLD;
}

async function refresh() {
  if (!document.hidden && !isReading()) {
    try {
      const found = (await fetched(location.href))?.querySelector("main");
      if (!found) {
        sayOld();
      } else if (!isReading()) {
        const open = [...main.querySelectorAll("details")].map((each) => each.open);
        main.replaceChildren(...found.childNodes);
        main.querySelectorAll("details").forEach((each, number) => { each.open = open[number] ?? false; });
        main.dataset.live = found.dataset.live;
      }
    } catch {
      sayOld();  // the window has ended, or the machine slept: the next turn tries again
    }
  }
  setTimeout(refresh, Number(main.dataset.live));
}
if (main.dataset.live) setTimeout(refresh, Number(main.dataset.live));

// ---- following a topic -------------------------------------------------------------------------------------------------------

const ROWS = 200;
const TURN_MS = 500;
const tail = document.querySelector("#tail");
const pace = document.querySelector("#pace");
let again = "";

function addRows(found) {
  const made = found.querySelectorAll("tbody tr");
  let body = tail.querySelector("tbody");
  if (!body && made.length) {
    tail.querySelector("p.quiet")?.replaceWith(found.querySelector("table"));
    return made.length;
  }
  made.forEach((row) => row.classList.add("new"));
  body?.prepend(...made);
  while (body && body.rows.length > ROWS) body.deleteRow(-1);
  return made.length;
}

const isPaused = () => document.hidden || window.scrollY > 200 || isReading();

function show(found) {
  tail.dataset.tail = found.dataset.tail;
  const passed = Number(found.dataset.passed);
  const added = addRows(found);
  const more = passed ? `; ${passed.toLocaleString("en")} more have passed` : "";
  again = found.dataset.again || again;  // it stays on the page, as the rows do
  const live = added || passed ? `Live: ${added} new${more}` : "Live: waiting for records";
  pace.textContent = again ? `${live}. ${again}` : live;
}

async function follow() {
  try {
    const found = isPaused() ? null : (await fetched(tail.dataset.tail))?.querySelector("#tail");
    if (isPaused()) {  // also since the request: its rows come again with the next one
      pace.textContent = "Paused while you read. Scroll to the top to go on.";
    } else if (found) {
      show(found);
    } else {
      pace.textContent = "No answer about this topic: it was deleted, or the window has too much to do. It tries again.";
    }
  } catch {
    pace.textContent = "The window does not answer.";
  }
  setTimeout(follow, TURN_MS);
}
if (tail) {
  pace.setAttribute("aria-live", "off");
  follow();
}

// ---- keys --------------------------------------------------------------------------------------------------------------------

function moveRow(step) {
  const links = [...main.querySelectorAll("tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
}

const keys = document.querySelector("#keys");
document.querySelector("#help").addEventListener("click", () => keys.showModal());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.key === "Escape") document.activeElement.blur();
  if (isTyping()) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".go input").focus();
  }
  if (event.key === "?") keys.showModal();
  if (event.key === "j") moveRow(1);
  if (event.key === "k") moveRow(-1);
  const link = { "[": "a[rel=prev]", "]": "a[rel=next]" }[event.key];
  if (link) document.querySelector(link)?.click();
});
