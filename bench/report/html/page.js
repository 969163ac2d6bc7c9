"use strict";
// A chart's tooltips say what its table of values says: a row is a stop, data-at its place along the axis, data-y the place
// of a value. Texts go into the page as text only.
(() => {
  const tip = document.getElementById("tip");
  const ns = "http://www.w3.org/2000/svg";
  const draw = (into, name, attributes, kind) => {
    const e = document.createElementNS(ns, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (kind) e.setAttribute("class", kind);
    into.append(e);
  };
  const add = (into, name, text, kind) => {
    const e = document.createElement(name);
    e.textContent = text;
    if (kind) e.className = kind;
    into.append(e);
    return e;
  };

  for (const figure of document.querySelectorAll("figure.chart")) {
    const svg = figure.querySelector(".drawing svg"), cursor = svg.querySelector(".cursor");
    const body = figure.querySelector("tbody"), area = body.dataset;
    const rows = [...body.rows], at = rows.map((r) => Number(r.dataset.at));
    const [axis, ...names] = [...figure.querySelectorAll("thead th")].map((h) => h.textContent);
    const buttons = [...figure.querySelectorAll(".legend button")];
    const shown = (i) => buttons[i].getAttribute("aria-pressed") === "true";
    let current = -1;

    const hide = () => {
      current = -1;
      cursor.replaceChildren();
      tip.hidden = true;
    };
    const show = (k, x, y) => {
      if (k !== current) {
        current = k;
        cursor.replaceChildren();
        tip.replaceChildren();
        const row = rows[k];
        draw(cursor, "path", { d: `M${at[k]} ${area.top}V${area.bottom}` });
        add(tip, "b", axis + " " + row.cells[0].textContent);
        names.forEach((name, i) => {
          const cell = row.cells[i + 1];
          if (!shown(i) || cell.textContent === "") return;
          const look = buttons[i].className;
          const line = add(tip, "div", "");
          add(line, "i", "", look);
          add(line, "span", name);
          add(line, "em", cell.textContent);
          if (cell.dataset.y) draw(cursor, "circle", { cx: at[k], cy: cell.dataset.y, r: 4.5 }, look);
        });
      }
      tip.hidden = false;
      const box = tip.getBoundingClientRect(), room = 14;
      const left = x + room + box.width > innerWidth ? x - room - box.width : x + room;
      tip.style.left = Math.max(4, left) + "px";
      tip.style.top = Math.max(4, Math.min(y + room, innerHeight - box.height - 4)) + "px";
    };
    const nearest = (v) => at.reduce((best, a, i) => (Math.abs(a - v) < Math.abs(at[best] - v) ? i : best), 0);
    const showAtRow = (k) => {
      const m = svg.getScreenCTM();
      const middle = (Number(area.top) + Number(area.bottom)) / 2;
      const q = new DOMPoint(at[k], middle).matrixTransform(m);
      show(k, q.x, q.y);
    };

    const point = (e) => {
      if (rows.length === 0) return;
      const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
      if (p.x < area.left - 12 || p.x > Number(area.right) + 12 || p.y > Number(area.bottom) + 8) return hide();
      show(nearest(p.x), e.clientX, e.clientY);
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
      showAtRow(Math.max(0, Math.min(last, to)));
    });
    buttons.forEach((button, i) => button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(!shown(i)));
      for (const e of svg.querySelectorAll(`[data-i="${i}"]`)) e.classList.toggle("off", !shown(i));
      hide();
    }));
    figure.querySelector("button.png").addEventListener("click", async () => {
      hide();
      const a = document.createElement("a");
      a.href = await picture(figure, svg, buttons.filter((_, i) => shown(i)));
      a.download = figure.id + ".png";
      a.click();
    });
  }

  // picture draws a chart as it is shown, its title above and its legend below, and returns the PNG as an address.
  async function picture(figure, svg, buttons) {
    const scale = 3, top = 26, { width, height } = svg.viewBox.baseVal, rows = Math.ceil(buttons.length / 2);
    const image = async (element, w, h) => {
      const copy = element.cloneNode(true), from = [element, ...element.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
      const styles = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "display", "font-size", "font-family"];
      from.forEach((e, i) => styles.forEach((name) => to[i].style.setProperty(name, getComputedStyle(e).getPropertyValue(name))));
      copy.setAttribute("width", w * scale);
      copy.setAttribute("height", h * scale);
      copy.setAttribute("viewBox", `0 0 ${w} ${h}`);
      const img = new Image();
      img.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
      await img.decode();
      return img;
    };
    const canvas = document.createElement("canvas"), page = getComputedStyle(document.body);
    canvas.width = width * scale;
    canvas.height = (top + height + 18 * rows + 6) * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    c.fillStyle = page.backgroundColor;
    c.fillRect(0, 0, canvas.width, canvas.height);
    c.fillStyle = page.color;
    c.font = "bold 13px " + page.fontFamily;
    c.textAlign = "center";
    c.fillText(figure.querySelector(".title").textContent, width / 2, 17, width - 20);
    c.drawImage(await image(svg, width, height), 0, top, width, height);
    c.font = "12px " + page.fontFamily;
    c.textAlign = "left";
    for (const [i, button] of buttons.entries()) {
      const x = 20 + (Math.floor(i / rows) * width) / 2, y = top + height + 18 * (i % rows);
      c.drawImage(await image(button.querySelector("svg"), 26, 12), x, y, 26, 12);
      c.fillText(button.textContent, x + 32, y + 10, width / 2 - 60);
    }
    return canvas.toDataURL("image/png");
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
