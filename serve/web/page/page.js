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

// duration shows seconds with the unit that fits.
function duration(s) {
  if (s === 0) return "0 s";
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (s >= unit) return +(s / unit).toPrecision(3) + " " + name;
  }
  return +(s * 1e9).toPrecision(3) + " ns";
}

// short shows a number in a few characters.
function short(n) {
  for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) if (n >= unit) return +(n / unit).toPrecision(3) + name;
  return String(+n.toPrecision(3));
}

// runs splits points into stretches without a gap: one begins where nothing was asked, and where points are missing.
function runs(points, value) {
  const all = [];
  let last = null;
  for (const p of points) {
    const v = value(p);
    if (v === null) { last = null; continue; }
    if (last === null || p.time - p.seconds - last.time > 1.5 * p.seconds) all.push([]);
    all[all.length - 1].push([p.time, v]);
    last = p;
  }
  return all;
}

// above returns a round number at least as large, for the top of an axis.
function above(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 10].map((m) => m * unit).find((m) => m >= n * 0.9999);
}

// chart draws lines of values over time, none where a value is null. top is the end of the axis; null: above the largest value.
function chart(id, points, label, lines, top, text) {
  const w = $(id).clientWidth || 900, h = 200, left = 60, bottom = 26, over = 12;
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label });
  const drawn = lines.map((value) => runs(points, value)), values = drawn.flat(2).map((v) => v[1]);
  if (values.length === 0) {
    root.append(svg("text", { x: w / 2, y: h / 2, "text-anchor": "middle" }, "nothing was asked yet"));
    $(id).replaceChildren(root);
    return;
  }
  if (top === null) top = above(Math.max(...values) || 1);
  const from = points[0].time - points[0].seconds, to = points[points.length - 1].time;
  const x = (t) => (left + (w - left - 6) * (t - from) / Math.max(to - from, 1)).toFixed(1), y = (v) => (over + (1 - v / top) * (h - over - bottom)).toFixed(1);
  for (const part of [0, 0.5, 1]) {
    root.append(svg("line", { class: "grid", x1: left, x2: w, y1: y(part * top), y2: y(part * top) }),
      svg("text", { x: left - 6, y: +y(part * top) + 4, "text-anchor": "end" }, text(part * top)));
  }
  drawn.forEach((all, i) => {
    const second = i > 0 ? " second" : "";
    for (const run of all) {
      if (run.length > 1) root.append(svg("polyline", { class: "line" + second, points: run.map(([t, v]) => x(t) + "," + y(v)).join(" ") }));
      const [t, v] = run[run.length - 1];
      if (run.length === 1 || run === all[all.length - 1]) root.append(svg("circle", { class: "dot" + second, cx: x(t), cy: y(v), r: 3 }));
    }
  });
  for (const [t, anchor] of [[from, "start"], [to, "end"]]) {
    root.append(svg("text", { x: x(t), y: h - 4, "text-anchor": anchor }, new Date(1000 * t).toLocaleTimeString()));
  }
  $(id).replaceChildren(root);
}

function charts(points) {
  chart("hits", points, "hit rate over the last hour", [(p) => p.lookups > 0 ? p.hits / p.lookups : null], 1, (v) => Math.round(100 * v) + " %");
  chart("rates", points, "rows a second over the last hour", [(p) => p.lookups > 0 ? p.lookups / p.seconds : null], null, short);
  chart("times", points, "time of requests over the last hour", [(p) => p.requests > 0 ? p.p50_s : null, (p) => p.requests > 0 ? p.p99_s : null], null, duration);
}

// lately sums up why rows missed in the last minutes.
function lately(points) {
  const sum = {}, end = points.length ? points[points.length - 1].time : 0;
  for (const p of points) {
    if (p.time > end - 300) for (const reason in p.misses_by_reason) sum[reason] = (sum[reason] || 0) + p.misses_by_reason[reason];
  }
  return sum;
}

// reasons shows why rows missed, those of the last minutes first.
function reasons(s, points) {
  const recent = lately(points), all = Object.values(recent).reduce((a, b) => a + b, 0);
  rows("reasons", Object.entries(s.misses_by_reason).sort((a, b) => (recent[b[0]] || 0) - (recent[a[0]] || 0) || b[1] - a[1])
    .map(([reason, n]) => [reason, { n: count(recent[reason] || 0) }, { n: all ? percent((recent[reason] || 0) / all) : "–" }, { n: count(n) }, meanings[reason] || ""]));
}

// since says for how long a client has been there.
function since(seconds) {
  for (const [unit, name] of [[86400, " d"], [3600, " h"], [60, " min"]]) if (seconds >= 2 * unit) return Math.floor(seconds / unit) + name;
  return Math.floor(seconds) + " s";
}

function clients(s) {
  const attached = (s.attached || []).map((c) => [c.name, "attached", c.process ? "process " + c.process : "another container", { n: since((Date.now() - new Date(c.since)) / 1000) },
    { n: count(c.lookups) }, { n: c.lookups ? percent(c.hits / c.lookups) : "–" }, c.holds_s > 0 ? `has held back changes for ${since(c.holds_s)}` : "reads"]);
  const redis = (s.resp_clients || []).map((c) => [c.name || c.user || "", "Redis", c.from, { n: since(c.age_s) }, { n: "" }, { n: "" }, c.idle_s >= 10 ? `idle for ${since(c.idle_s)}` : c.command || ""]);
  rows("clients", [...attached, ...redis]);
  const more = (s.resp_clients_connected || 0) - redis.length;
  $("others").textContent = attached.length + redis.length + more === 0 ? "Nobody is connected." : more > 0 ? `${count(more)} ${redis.length ? "more " : ""}clients of Redis are connected.` : "";
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
  $("version").textContent = s.version ? `${s.version}, for ${since(s.uptime_s)}` : "";
  charts(points);
  reasons(s, points);
  clients(s);
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
    state((stats.draining ? "draining" : "serving") + ", as of " + new Date().toLocaleTimeString());
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
