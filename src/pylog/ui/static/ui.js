// Refreshes the content of a page, unless the reader is in the middle of something.
"use strict";
const main = document.querySelector("main[data-live]");
const isBusy = () => document.hidden || main.contains(document.activeElement) || String(document.getSelection()) !== "";
async function refresh() {
  if (isBusy()) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (found && !isBusy()) main.replaceChildren(...found.childNodes);
  } catch {
    // The window has ended, or the machine slept: the next turn tries again.
  }
}
if (main) setInterval(refresh, Number(main.dataset.live));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    document.querySelector(".go input").focus();
  }
  const link = { "[": "a[rel=prev]", "]": "a[rel=next]" }[event.key];
  if (link && document.activeElement.tagName !== "INPUT") document.querySelector(link)?.click();
});
