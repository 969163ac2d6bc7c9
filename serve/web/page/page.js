"use strict";
// Shows /stats and /history, and reads them again every five seconds. Text from the server is only ever set as text.

const every = 5000;
const meanings = {
  cold: "the policy was never offered the row",
  rejected: "other rows were worth more: a larger budget would hold more of them",
  evicted: "the row was cached and gave way",
  invalidated: "an update or Invalidate withdrew the row",
  oversize: "the row is larger than a slab",
};
const $ = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en-US");
const percent = (x) => (100 * x).toFixed(1) + " %";

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) { n /= 1024; i++; } // above, three digits would not do
  return (i && n < 999.5 ? n.toPrecision(3) : Math.round(n)) + " " + units[i];
}

function row(body, cells) {
  const tr = body.insertRow();
  for (const c of cells) {
    const td = tr.insertCell();
    if (c instanceof Node) td.append(c);
    else if (typeof c === "object") { td.textContent = c.n; td.className = "n"; }
    else td.textContent = c;
  }
}

function rows(id, all) {
  const body = $(id).tBodies[0];
  body.replaceChildren();
  all.forEach((cells) => row(body, cells));
}

function numbers(all) {
  $("numbers").replaceChildren(...all.map(([value, name]) => {
    const div = document.createElement("div"), b = document.createElement("b"), span = document.createElement("span");
    b.textContent = value;
    span.textContent = name;
    div.append(b, span);
    return div;
  }));
}

function svg(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// chart draws the hit rate of each stretch of time that had lookups.
function chart(points) {
  const w = 900, h = 200, left = 45, bottom = 22, top = 8;
  const used = points.filter((p) => p.lookups > 0);
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "hit rate over the last hour" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = top + (1 - share) * (h - top - bottom);
    root.append(svg("line", { class: "grid", x1: left, x2: w, y1: y, y2: y }), svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, 100 * share + " %"));
  }
  if (used.length === 0) {
    root.append(svg("text", { x: w / 2, y: h / 2, "text-anchor": "middle" }, "no lookups yet"));
    $("hits").replaceChildren(root);
    return;
  }
  const from = points[0].time - points[0].seconds, to = points[points.length - 1].time;
  const x = (t) => left + (w - left - 6) * (t - from) / Math.max(to - from, 1), y = (p) => top + (1 - p.hits / p.lookups) * (h - top - bottom);
  root.append(svg("polyline", { class: "line", points: used.map((p) => x(p.time).toFixed(1) + "," + y(p).toFixed(1)).join(" ") }));
  const last = used[used.length - 1];
  root.append(svg("circle", { class: "dot", cx: x(last.time), cy: y(last), r: 3 }));
  for (const [t, anchor] of [[from, "start"], [to, "end"]]) {
    root.append(svg("text", { x: x(t), y: h - 4, "text-anchor": anchor }, new Date(1000 * t).toLocaleTimeString()));
  }
  $("hits").replaceChildren(root);
}

function estimate(s) {
  if (!s.estimate || s.estimate.keys === 0) {
    $("estimate").textContent = "No estimate yet: none of the rows that it follows has been looked up. --sample-keys sets how many it follows.";
    rows("budgets", []);
    return;
  }
  const at = (times) => s.estimate.budgets.find((b) => b.times === times);
  const once = at(1), twice = at(2);
  if (once && twice) {
    const more = 100 * (twice.hit_ratio - once.hit_ratio);
    $("estimate").textContent = `Twice the budget would bring ${more.toFixed(1)} points more hits` +
      ` (by LRU, from ${count(s.estimate.accesses)} accesses). Policies that follow frequency usually hit more.`;
  }
  rows("budgets", s.estimate.budgets.map((b) => {
    const bar = document.createElement("meter");
    bar.value = b.hit_ratio;
    return [b.times + " × " + bytes(s.gpu_memory), { n: percent(b.hit_ratio) }, bar];
  }));
}

function show(s, points) {
  $("main").hidden = false;
  const last = points[points.length - 1];
  numbers([
    [percent(s.hit_ratio), "hit rate since the start"],
    [last ? count(Math.round(last.lookups / last.seconds)) : "–", "rows a second"],
    [count(s.rows_cached), `of ${count(s.rows)} rows cached`],
    [bytes(s.payload_bytes + s.metadata_bytes + (s.resident_bytes || 0)), `of ${bytes(s.gpu_memory)} budget`],
    [bytes(s.host_bytes), "host tier"],
    [s.clients === undefined ? "–" : count(s.clients), "attached processes"],
  ]);
  chart(points);
  rows("reasons", Object.entries(s.misses_by_reason).sort((a, b) => b[1] - a[1])
    .map(([reason, n]) => [reason, { n: count(n) }, { n: s.misses ? percent(n / s.misses) : "–" }, meanings[reason] || ""]));
  estimate(s);
  rows("tables", s.tables.map((t) => [t.name, t.dtype, t.codec, { n: count(t.rows) }, { n: count(t.rows_cached) }, { n: t.row_bytes + " B" },
    { n: percent(1 / t.compression_ratio) }, { n: count(t.lookups) }, { n: t.lookups ? percent(t.hit_ratio) : "–" }]));
  rows("devices", s.devices.map((d) => [`${d.name || d.backend} ${d.index}`, { n: bytes(d.gpu_memory) }, { n: bytes(d.payload_bytes) }, { n: bytes(d.free_bytes) },
    { n: bytes(d.unallocated_bytes) }, { n: count(d.lookups) }, d.error || "serves"]));
  $("faults").textContent = Object.entries(s.errors).map(([what, text]) => `${what}: ${text}`).join("; ");
}

function state(text, bad) {
  $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

async function read(path) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, { headers: token ? { Authorization: "Bearer " + token } : {} });
  if (answer.status === 401) {
    $("login").hidden = false;
    throw new Error(token ? "the token is wrong" : "this needs a token");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  $("login").hidden = true;
  return answer.json();
}

async function update() {
  try {
    const [stats, points] = await Promise.all([read("stats"), read("history")]);
    show(stats, points);
    state("serving, as of " + new Date().toLocaleTimeString());
  } catch (e) {
    state(e.message, true);
  }
}

$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  update();
});
update();
setInterval(update, every);
