// Tables: real ones, with heads and a caption, whose rows stay where they are while they are refreshed.

import { fill, h } from "./dom.js";

/**
 * Make a table. `columns`: [{title, cell: row → node or text, right, wraps, sort: row → number or text, help, head,
 * label, wide, under}]. `title` may be a node, then `label` names the column on a phone, where `wide` ones have a whole
 * line. `under`: {title, cell, sort, help} of a second figure, which stands below the first one in the same cell.
 * `head: true` marks the column that names its row. Options: `caption` (for screen readers), `key: row → string`,
 * `link: row → address` (its first cell becomes a link and the whole row opens it), `stacks` (a list on a phone),
 * `sorted: [index, "ascending" | "descending"]`.
 * Returns {element, update(rows)}: rows that did not change keep their elements, and the focus.
 */
export function table(columns, { caption, key = null, link = null, stacks = false, sorted = null, fingerprint = JSON.stringify } = {}) {
  let order = sorted && { by: columns[sorted[0]], turn: sorted[1] };
  const body = h("tbody", stacks ? { role: "rowgroup" } : {});
  const heads = columns.map((column, index) => head(column, index));
  const role = (name) => (stacks ? { role: name } : {}); // `display: block` takes a table's own roles away
  const grid = h("table", { class: stacks ? "stacks" : null, ...role("table") },
    h("caption", { class: "unseen" }, caption),
    h("thead", role("rowgroup"), h("tr", role("row"), heads)), body);
  const none = h("p", { class: "inside soft", hidden: true }, "Nothing yet.");
  const element = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, grid, none);
  let rows = [];
  let kept = new Map(); // key → {mark, tr}

  function head(column, index) {
    const props = { scope: "col", class: column.right ? "right" : null, title: column.help, ...(stacks ? { role: "columnheader" } : {}) };
    const { under } = column;
    return h("th", { ...props, "aria-sort": sorted?.[0] === index ? sorted[1] : null },
      titled(column, column), under ? h("div", { title: under.help }, titled(under, column)) : null);
  }

  /** The title of a column's figure, which sorts by it. */
  function titled(part, column) {
    if (!part.sort) return part.title || h("span", { class: "unseen" }, part.label);
    return h("button", { type: "button", class: "sort", "data-turn": order?.by === part ? order.turn : null, onclick: (event) => turn(part, column, event.currentTarget) }, part.title);
  }

  function turn(part, column, button) {
    const first = column.right ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    order = { by: part, turn: order?.by === part && order.turn === first ? other : first };
    for (const each of heads) {
      each.removeAttribute("aria-sort");
      for (const one of each.querySelectorAll(".sort")) delete one.dataset.turn;
    }
    button.closest("th").setAttribute("aria-sort", order.turn);
    button.dataset.turn = order.turn;
    update(rows);
  }

  function update(next) {
    rows = next;
    grid.hidden = !rows.length;
    none.hidden = rows.length > 0;
    const shown = new Map();
    const held = place(document.activeElement);
    ordered(rows).forEach((row, at) => {
      const name = key ? key(row) : String(at);
      const mark = fingerprint(row);
      const old = kept.get(name);
      shown.set(name, old?.mark === mark ? old : { mark, tr: line(row) });
    });
    const lines = [...shown.values()].map((each) => each.tr);
    if (lines.length !== body.children.length || lines.some((tr, at) => tr !== body.children[at])) {
      for (const [name, each] of kept) if (shown.get(name) !== each) each.tr.remove();
      lines.forEach((tr, at) => {
        if (body.children[at] !== tr) body.insertBefore(tr, body.children[at] ?? null);
      });
    }
    kept = shown;
    if (held && document.activeElement !== held.element) {
      const again = held.element.isConnected ? held.element : shown.get(held.name)?.tr.children[held.cell]?.querySelector("a, button, input");
      again?.focus({ preventScroll: true });
    }
  }

  function place(focused) {
    if (!focused || !body.contains(focused)) return null;
    for (const [name, { tr }] of kept) {
      const cell = [...tr.children].findIndex((each) => each.contains(focused));
      if (cell >= 0) return { element: focused, name, cell };
    }
    return null;
  }

  function ordered(all) {
    if (!order) return all;
    const { sort } = order.by;
    const sign = order.turn === "ascending" ? 1 : -1;
    return [...all].sort((one, other) => compared(sort(one), sort(other), sign));
  }

  function line(row) {
    const goes = link?.(row);
    return h("tr", { ...role("row"), class: goes ? "opens" : null, onclick: goes ? (event) => opened(event, goes) : null },
      columns.map((column, at) => {
        const { under } = column;
        const content = under ? [h("span", {}, column.cell(row)), h("div", { class: "under", "data-label": under.title }, under.cell(row))] : column.cell(row);
        const props = {
          class: [column.right && "right", column.wraps && "wraps", column.wide && "wide"].filter(Boolean).join(" ") || null,
          "data-label": stacks && !column.head ? column.label ?? column.title : null,
        };
        const inner = goes && at === 0 ? h("a", { href: goes }, content) : content;
        return column.head
          ? h("th", { ...props, scope: "row", ...role("rowheader") }, inner)
          : h("td", { ...props, ...role("cell") }, inner);
      }));
  }

  return { element, update };
}

/** A plain table at once, for what does not change: the data behind a picture. */
export function dataTable(caption, titles, lines) {
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, titles.map((each, at) => h("th", { scope: "col", class: at ? "right" : null }, each)))),
      h("tbody", {}, lines.map((cells) => h("tr", {}, cells.map((each, at) =>
        (at ? h("td", { class: "right" }, each) : h("th", { scope: "row" }, each))))))));
}

/** "Data" behind a picture: a table that is made when it is first opened. `make` returns its element. */
export function behind(make, title = "Data") {
  const box = h("div");
  const details = h("details", { ontoggle: () => details.open && fill(box, make()) }, h("summary", {}, title), box);
  return details;
}

function opened(event, address) {
  if (event.target.closest("a, button, input, select, label, summary") || String(getSelection())) return;
  if (event.metaKey || event.ctrlKey) open(address, "_blank", "noopener");
  else location.hash = address;
}

function compared(one, other, sign) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(one) || none(other)) return none(one) - none(other); // what is unknown comes last, either way
  return sign * (typeof one === "number" ? one - other : String(one).localeCompare(String(other)));
}
