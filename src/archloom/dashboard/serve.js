// The script of the dashboard. It fills in pictures when they come into view, follows runs by server-sent events, and
// sorts and filters the overview. Texts from files are only ever set as text.
"use strict";

const body = document.body;
const parser = new DOMParser();

async function get(address) {
  const answer = await fetch(address, { headers: { Accept: "*/*" }, cache: "no-store" });
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer;
}

function readSvg(text) {
  const root = parser.parseFromString(text, "image/svg+xml").documentElement;
  return root.nodeName === "svg" ? document.importNode(root, true) : null;
}

// --- what changed: attributes and texts are set where they differ, so that the browser lays out and paints only these

function isAlike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && old.id === fresh.id;
}

function patch(old, fresh) { // returns the node that stands there now
  if (!isAlike(old, fresh)) {
    const node = document.importNode(fresh, true);
    old.replaceWith(node);
    return node;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return old;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !name.startsWith("data-") && name !== "open" && name !== "aria-busy") old.removeAttribute(name);
  }
  if (!old.hasAttribute("data-picture")) patchChildren(old, fresh); // a picture is drawn for itself
  return old;
}

function patchChildren(old, fresh) {
  const there = [...old.childNodes], wanted = [...fresh.childNodes];
  wanted.forEach((node, place) => {
    if (place < there.length) patch(there[place], node);
    else old.append(document.importNode(node, true));
  });
  for (const node of there.slice(wanted.length)) node.remove();
}

function show(place, svg) { // a drawing of the same parts as the one before is changed, not made again
  const old = place.firstElementChild;
  if (old && old.localName === "svg" && place.childNodes.length === 1) patch(old, svg);
  else place.replaceChildren(svg);
}

// --- pictures: drawn by the server when they are seen

const waiting = new Set();
let drawing = false;

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.dataset.seen = entry.isIntersecting ? "yes" : "no";
    if (entry.isIntersecting && entry.target.dataset.stale !== "no") waiting.add(entry.target);
  }
  drawNext();
}, { rootMargin: "200px" });

async function drawNext() { // one after the other: the server draws one at a time
  if (drawing || document.hidden) return;
  drawing = true;
  for (const place of waiting) {
    waiting.delete(place);
    if (!place.isConnected) continue;
    place.dataset.stale = "no";
    if (!place.firstElementChild) place.setAttribute("aria-busy", "true"); // one that is there stays as it is until then
    try {
      const svg = readSvg(await (await get(fitting(place.dataset.picture))).text());
      if (svg) show(place, svg);
    } catch (error) {
      if (!place.firstElementChild) place.textContent = "This figure could not be drawn.";
    }
    place.removeAttribute("aria-busy");
  }
  drawing = false;
  if (!body.dataset.drawn) body.dataset.drawn = "yes";
}

const narrow = matchMedia("(max-width: 640px)");
narrow.addEventListener("change", redrawPictures);

function fitting(picture) { // figures of a narrow page have fewer columns
  const address = new URL(picture, location.href);
  if (narrow.matches) address.searchParams.set("narrow", "1");
  return address.href;
}

function watchPictures(root) {
  for (const place of root.querySelectorAll("[data-picture]")) seen.observe(place);
}

function redrawPictures() {
  for (const place of document.querySelectorAll("[data-picture]")) {
    place.dataset.stale = "yes";
    if (place.dataset.seen === "yes") waiting.add(place);
  }
  return drawNext();
}

// --- the cells over time

let following = true; // the end of the slider follows the search
let wanted = null;

function findSlider() { // it comes with the first record
  return document.getElementById("moment");
}

async function showMoment() {
  const slider = findSlider();
  const number = slider ? Number(slider.value) : null;
  if (wanted === number) return;
  wanted = number;
  document.getElementById("moment-number").value = String(number);
  try {
    const found = await (await get(`${slider.dataset.cell}?place=${number - 1}`)).json();
    if (wanted !== number) return; // the slider moved on
    const svg = readSvg(found.svg);
    if (svg) show(document.getElementById("cell-now"), svg);
    document.getElementById("moment-text").textContent = found.text;
    for (const form of ["svg", "csv"]) {
      const link = document.getElementById(`cell-${form}`);
      link.href = `${link.href.split("?")[0]}?place=${number - 1}`;
    }
  } catch (error) {
    wanted = null;
  }
}

function moveTo(number) {
  const slider = findSlider();
  slider.value = String(number);
  following = Number(slider.value) === Number(slider.max);
  showMoment();
}

function addMoments(count) {
  const slider = findSlider();
  if (!slider || count <= Number(slider.max)) return;
  slider.max = String(count);
  if (following) moveTo(count);
}

document.addEventListener("input", (event) => {
  if (event.target.id === "moment") moveTo(event.target.value);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-moment]");
  if (button && findSlider()) {
    moveTo(button.dataset.moment);
    findSlider().focus();
  }
});

// --- live pages: parts that changed are replaced; what the reader opened stays open

const texts = new WeakMap(); // of sections, as the server sent them

function replaceSections(page) {
  const main = document.getElementById("main");
  let before = null;
  for (const fresh of page.querySelectorAll("main > section[id]")) {
    const old = document.getElementById(fresh.id);
    const text = fresh.outerHTML;
    if (old && (old.hasAttribute("data-keep") || texts.get(old) === text)) {
      before = old;
      continue;
    }
    const section = old ? patch(old, fresh) : document.importNode(fresh, true);
    texts.set(section, text);
    if (!old && before) before.after(section);
    else if (!old) main.append(section);
    watchPictures(section);
    before = section;
  }
  const there = new Set([...page.querySelectorAll("main > section[id]")].map((one) => one.id));
  for (const section of main.querySelectorAll(":scope > section[id]")) if (!there.has(section.id)) section.remove();
}

const SHORTEST = 5000, LONGEST = 20000; // milliseconds between two refreshes of figures and tables
const SHARE = 50; // a page refreshes for at most a fiftieth of the time

let refreshing = false;
let rest = 0; // the timer that runs between two refreshes
let again = false; // something changed since the last refresh began

async function refresh() {
  again = true;
  if (refreshing || rest || document.hidden) return; // a hidden page is refreshed when it is seen
  refreshing = true;
  again = false;
  const start = performance.now();
  try {
    const page = parser.parseFromString(await (await get(location.href)).text(), "text/html");
    body.dataset.live = page.body.dataset.live;
    body.dataset.milestone = page.body.dataset.milestone;
    if (document.title !== page.title) document.title = page.title;
    patch(document.querySelector("main > header"), page.querySelector("main > header"));
    replaceSections(page);
    addMoments(Number(page.getElementById("moment")?.max ?? 0));
    await showMoment();
    await redrawPictures();
  } catch (error) { /* the server is gone or busy; the next event tries again */ }
  refreshing = false;
  const pause = Math.min(LONGEST, Math.max(SHORTEST, SHARE * (performance.now() - start)));
  rest = setTimeout(endRest, body.dataset.events ? pause : 0);
}

function endRest() {
  clearTimeout(rest);
  rest = 0;
  if (again) refresh();
}

function refreshNow() { // a run that ends is not kept waiting
  again = true;
  if (rest) endRest();
  else refresh();
}

let source = null;

function showState(html) {
  const place = document.getElementById("state");
  if (place && html) patchChildren(place, parser.parseFromString(html, "text/html").body);
}

function listen() {
  if (source || !body.dataset.events || document.hidden) return;
  source = new EventSource(body.dataset.events);
  source.addEventListener("state", (event) => {
    const { state, milestone, html } = JSON.parse(event.data);
    const before = body.dataset.milestone; // what the whole page shows; between two of them only the progress moves
    showState(html);
    if (milestone === before) return;
    if (before.startsWith(`${state} `)) refresh();
    else refreshNow();
  });
  source.addEventListener("note", refresh);
  source.addEventListener("runs", (event) => updateRows(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    stop();
    body.dataset.events = "";
    refreshNow();
  });
}

function stop() {
  if (source) source.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop();
    return;
  }
  listen();
  drawNext();
  if (again) refresh();
});
window.addEventListener("pagehide", stop);

// --- the overview

const table = document.getElementById("runs-table");
const sorting = { column: 9, down: true };

function rowsOf() {
  return [...table.tBodies[0].rows];
}

function valueOf(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value ?? cell.textContent;
  const number = value === "-inf" ? -Infinity : Number(value);
  return value !== "" && !Number.isNaN(number) ? number : value.toLowerCase();
}

function sortRows() {
  const values = new Map(rowsOf().map((row) => [row, valueOf(row, sorting.column)]));
  const sign = sorting.down ? -1 : 1;
  const sorted = [...values.keys()].sort((one, other) => {
    const a = values.get(one), b = values.get(other);
    return sign * (a < b ? -1 : a > b ? 1 : 0) || one.dataset.key.localeCompare(other.dataset.key);
  });
  const rows = rowsOf();
  if (sorted.some((row, place) => row !== rows[place])) { // moving a row takes the focus away from it
    const focused = document.activeElement;
    table.tBodies[0].append(...sorted);
    if (table.contains(focused)) focused.focus();
  }
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    if (place === sorting.column) cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
}

function filterRows() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = document.getElementById("kind").value;
  const state = document.getElementById("chosen-state").value;
  const parts = document.getElementById("parts").checked;
  let count = 0;
  for (const row of rowsOf()) {
    const text = row.textContent.toLowerCase();
    const shown = (!kind || row.dataset.kind === kind) && (!state || row.dataset.state === state)
      && (parts || row.dataset.part === "no") && words.every((word) => text.includes(word));
    row.hidden = !shown;
    count += shown ? 1 : 0;
  }
  const text = `${count} ${count === 1 ? "run" : "runs"}`;
  const place = document.getElementById("count");
  if (place.textContent !== text) place.textContent = text;
}

function countTicks() {
  const ticked = rowsOf().filter((row) => row.querySelector("input:checked")).length;
  document.getElementById("compare-button").disabled = ticked < 2;
}

async function updateRows(change) {
  for (const key of change.gone) rowsOf().find((row) => row.dataset.key === key)?.remove();
  for (let first = 0; first < change.changed.length; first += 50) {
    const keys = change.changed.slice(first, first + 50);
    const query = new URLSearchParams(keys.map((key) => ["run", key]));
    const page = parser.parseFromString(await (await get(`/rows?${query}`)).text(), "text/html");
    const rows = new Map(rowsOf().map((row) => [row.dataset.key, row]));
    for (const fresh of page.querySelectorAll("tr[data-key]")) {
      const old = rows.get(fresh.dataset.key);
      if (old) patch(old, fresh); // ticks and the focus stay
      else table.tBodies[0].append(document.importNode(fresh, true));
    }
  }
  sortRows();
  filterRows();
  countTicks();
}

if (table) {
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const column = Number(button.dataset.column);
    sorting.down = sorting.column === column ? !sorting.down : column >= 5;
    sorting.column = column;
    sortRows();
  });
  table.addEventListener("change", countTicks);
  for (const id of ["filter", "kind", "chosen-state", "parts"]) {
    document.getElementById(id).addEventListener("input", filterRows);
  }
  document.getElementById("compare").addEventListener("submit", (event) => {
    if (document.getElementById("compare-button").disabled) event.preventDefault();
  });
  filterRows();
  countTicks();
}

for (const section of document.querySelectorAll("main > section[id]")) texts.set(section, section.outerHTML);
watchPictures(document);
showMoment();
listen();
body.dataset.ready = "yes";
