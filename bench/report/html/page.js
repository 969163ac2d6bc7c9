"use strict";
// Charts are Vega-Lite specifications. What a chart says beside the pointer is a row of its table of values. Texts go into the page as text only.
(() => {
  const tip = document.getElementById("tip");
  const add = (into, name, text, kind) => {
    const e = document.createElement(name);
    e.textContent = text;
    if (kind) e.className = kind;
    into.append(e);
    return e;
  };
  // Vega's interpreter takes the place of eval, which the page's policy forbids.
  const viewOf = (spec, options) =>
    new vega.View(vega.parse(vegaLite.compile(spec).spec, null, { ast: true }), { expr: expressionInterpreter, ...options });

  for (const figure of document.querySelectorAll("figure.chart")) {
    const spec = JSON.parse(figure.querySelector("script").textContent), title = spec.title;
    delete spec.title; // the page has it above the chart
    const view = viewOf(spec, { renderer: "svg", container: figure.querySelector(".drawing") }).run();
    const svg = figure.querySelector(".drawing svg");
    svg.tabIndex = 0;
    const rows = [...figure.querySelectorAll("tbody tr")], xs = rows.map((r) => Number(r.dataset.x));
    const [axis, ...names] = [...figure.querySelectorAll("thead th")].map((h) => h.textContent);
    const buttons = [...figure.querySelectorAll(".legend button")];
    const hidden = (i) => buttons[i].getAttribute("aria-pressed") === "false";
    const places = () => xs.map((x) => view.scale("x")(x) + view.origin()[0]); // in the drawing's units
    let current = -1;

    const mark = (k) => {
      current = k;
      view.signal("at", k < 0 ? null : xs[k]).run();
    };
    const hide = () => {
      mark(-1);
      tip.hidden = true;
    };
    const show = (k, x, y) => {
      if (k !== current) {
        mark(k);
        tip.replaceChildren();
        add(tip, "b", axis + " " + rows[k].cells[0].textContent);
        names.forEach((name, i) => {
          const value = rows[k].cells[i + 1].textContent;
          if (hidden(i) || value === "") return;
          const line = add(tip, "div", "");
          add(line, "i", "", buttons[i].className);
          add(line, "span", name);
          add(line, "em", value);
        });
      }
      tip.hidden = false;
      const box = tip.getBoundingClientRect(), room = 14;
      const left = x + room + box.width > innerWidth ? x - room - box.width : x + room;
      tip.style.left = Math.max(4, left) + "px";
      tip.style.top = Math.max(4, Math.min(y + room, innerHeight - box.height - 4)) + "px";
    };
    const point = (e) => {
      if (rows.length === 0) return;
      const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const [left, top] = view.origin(), room = 12;
      if (p.x < left - room || p.x > left + view.signal("width") + room || p.y > top + view.signal("height") + room) return hide();
      show(places().reduce((best, at, i, all) => (Math.abs(at - p.x) < Math.abs(all[best] - p.x) ? i : best), 0), e.clientX, e.clientY);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (e) => {
      const last = rows.length - 1;
      const to = {
        ArrowRight: current + 1, ArrowDown: current + 1, ArrowLeft: current < 0 ? last : current - 1, ArrowUp: current < 0 ? last : current - 1,
        PageDown: current + 10, PageUp: current - 10, Home: 0, End: last,
      }[e.key];
      if (e.key === "Escape") return hide();
      if (to === undefined || last < 0) return;
      e.preventDefault();
      const k = Math.max(0, Math.min(last, to));
      const q = new DOMPoint(places()[k], view.origin()[1] + view.signal("height") / 2).matrixTransform(svg.getScreenCTM());
      show(k, q.x, q.y);
    });
    const hiddenNames = () => names.filter((_, i) => hidden(i));
    buttons.forEach((button, i) => button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(hidden(i)));
      view.signal("hidden", hiddenNames());
      hide();
    }));
    figure.querySelector("button.png").addEventListener("click", async () => {
      // A picture has the title and a legend, and colours as they are shown: a canvas knows no variables.
      const style = getComputedStyle(document.documentElement);
      const picture = JSON.parse(JSON.stringify({ ...spec, title }).replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim()));
      picture.config.legend.disable = false;
      picture.params[0].value = hiddenNames();
      const legend = { values: names.filter((_, i) => !hidden(i)) };
      for (const { encoding } of picture.layer) for (const channel of ["color", "shape"]) if (encoding[channel]) encoding[channel].legend = legend;
      picture.height += 30 + 18 * Math.ceil(legend.values.length / 2);
      const a = document.createElement("a");
      a.href = await viewOf(picture, { renderer: "none" }).toImageURL("png", 3);
      a.download = figure.id + ".png";
      a.click();
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const h of heads) h.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => row.cells[i].dataset.sort ?? row.cells[i].textContent;
      const order = (a, b) => {
        const x = key(a), y = key(b), d = Number(x) - Number(y);
        return Number.isNaN(d) ? x.localeCompare(y, "en", { numeric: true }) : d;
      };
      body.append(...[...body.rows].sort((a, b) => (descending ? order(b, a) : order(a, b))));
    }));
  }
})();
