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

async function drawNext() { // one after the other: the server draws with one hand
  if (drawing) return;
  drawing = true;
  for (const place of waiting) {
    waiting.delete(place);
    if (!place.isConnected) continue;
    place.dataset.stale = "no";
    place.setAttribute("aria-busy", "true");
    try {
      const svg = readSvg(await (await get(fitting(place.dataset.picture))).text());
      if (svg) place.replaceChildren(svg);
    } catch (error) {
      if (!place.firstElementChild) place.textContent = "This figure could not be drawn.";
    }
    place.removeAttribute("aria-busy");
  }
  drawing = false;
  if (!body.dataset.drawn) body.dataset.drawn = "yes";
}

const narrow = matchMedia("(max-width: 640px)");
narrow.addEventListener("change", () => { redrawPictures(); drawNext(); });

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
  drawNext();
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
    if (svg) document.getElementById("cell-now").replaceChildren(svg);
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

function replaceSections(page) {
  const main = document.getElementById("main");
  let before = null;
  for (const fresh of page.querySelectorAll("main > section[id]")) {
    const old = document.getElementById(fresh.id);
    if (old && old.hasAttribute("data-keep")) {
      before = old;
      continue;
    }
    const text = fresh.outerHTML;
    if (old && old.dataset.text === text) {
      before = old;
      continue;
    }
    const section = document.importNode(fresh, true);
    section.dataset.text = text;
    if (old) {
      keepState(old, section);
      old.replaceWith(section);
    } else if (before) before.after(section);
    else main.append(section);
    watchPictures(section);
    before = section;
  }
  const there = new Set([...page.querySelectorAll("main > section[id]")].map((one) => one.id));
  for (const section of main.querySelectorAll(":scope > section[id]")) if (!there.has(section.id)) section.remove();
}

function keepState(old, fresh) {
  const details = old.querySelectorAll("details");
  fresh.querySelectorAll("details").forEach((one, place) => { one.open = details[place] ? details[place].open : false; });
  for (const place of fresh.querySelectorAll("[data-picture]")) {
    const drawn = [...old.querySelectorAll("[data-picture]")].find((one) => one.dataset.picture === place.dataset.picture);
    if (drawn && drawn.firstElementChild) place.replaceChildren(...drawn.childNodes);
  }
}

let refreshing = false;
let again = false;
let pause = 0; // milliseconds until the next refresh: pages use a twentieth of the time of server and browser

async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  const start = performance.now();
  try {
    const page = parser.parseFromString(await (await get(location.href)).text(), "text/html");
    body.dataset.live = page.body.dataset.live;
    document.title = page.title;
    document.querySelector("main > header").replaceWith(document.importNode(page.querySelector("main > header"), true));
    replaceSections(page);
    addMoments(Number(page.getElementById("moment")?.max ?? 0));
    showMoment();
    redrawPictures();
  } catch (error) { /* the server is gone or busy; the next event tries again */ }
  pause = Math.min(8000, Math.max(1000, 20 * (performance.now() - start)));
  setTimeout(() => {
    refreshing = false;
    if (again) {
      again = false;
      refresh();
    }
  }, pause);
}

let source = null;
let lastMilestone = ""; // what the whole page shows; between two of them only the progress moves

async function showState() {
  const place = document.getElementById("state");
  if (!place) return;
  try {
    const address = body.dataset.events.replace("/events/", "/state/").split("?")[0];
    const part = parser.parseFromString(await (await get(address)).text(), "text/html");
    place.replaceChildren(...[...part.body.children].map((one) => document.importNode(one, true)));
  } catch (error) { /* the next event tries again */ }
}

function listen() {
  if (source || !body.dataset.events || document.hidden) return;
  source = new EventSource(body.dataset.events);
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    const milestone = JSON.stringify([state.state, state.done, state.updated, state.verdict, state.problem]);
    if (milestone === lastMilestone) {
      showState();
      return;
    }
    lastMilestone = milestone;
    if (state.kind === "search") addMoments(state.done);
    refresh();
  });
  source.addEventListener("note", () => refresh());
  source.addEventListener("runs", (event) => updateRows(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    stop();
    body.dataset.events = "";
    again = true;
    refresh();
  });
}

function stop() {
  if (source) source.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
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

function keepDrawing(old, row) { // the cell of a run changes with its records, its progress more often
  const drawn = old.querySelector("img"), fresh = row.querySelector("img");
  if (drawn && fresh && drawn.getAttribute("src") === fresh.getAttribute("src")) fresh.replaceWith(drawn);
}

async function updateRows(change) {
  for (const key of change.gone) rowsOf().find((row) => row.dataset.key === key)?.remove();
  for (let first = 0; first < change.changed.length; first += 50) {
    const keys = change.changed.slice(first, first + 50);
    const query = new URLSearchParams(keys.map((key) => ["run", key]));
    const page = parser.parseFromString(await (await get(`/rows?${query}`)).text(), "text/html");
    for (const fresh of page.querySelectorAll("tr[data-key]")) {
      const row = document.importNode(fresh, true);
      const old = rowsOf().find((one) => one.dataset.key === row.dataset.key);
      if (old) {
        const before = old.querySelector("input"), after = row.querySelector("input");
        if (before && after) after.checked = before.checked;
        keepDrawing(old, row);
        const focused = old.contains(document.activeElement) ? document.activeElement.localName : "";
        old.replaceWith(row);
        if (focused) row.querySelector(focused)?.focus();
      } else table.tBodies[0].append(row);
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

for (const section of document.querySelectorAll("main > section[id]")) section.dataset.text = section.outerHTML;
watchPictures(document);
showMoment();
listen();
body.dataset.ready = "yes";
