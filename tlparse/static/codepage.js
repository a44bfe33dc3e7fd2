// Three panes: your source, the graph, the kernels. A line lights up what became of it.

const PANES = ["source", "graph", "code"];
const PANE_WORDS = { source: "your source", graph: "graph", code: "kernels" };
const MOST_LINES = 6000;

/** The links of a compile, a kernel's nodes in place of their position among the sets. */
async function mapOf(one) {
  const map = JSON.parse((await packedOf(one, "code"))[0]);
  for (const { kernels, sets } of map.views) for (const kernel of kernels) kernel[3] = sets[kernel[3]];
  return map;
}

function codePage(slug, wanted) {
  const one = compileBySlug.get(slug);
  if (!one || !one.code) return missingPage(`code of ${bracket(slug)}`);
  const index = withCode.indexOf(one);
  const body = h("div", { id: "panes" }, h("p.soft", null, "Unpacking …"));
  fillPanes(one, body, wanted);
  return {
    title: `${bracket(slug)} ${one.title}: code${wanted ? `, ${wanted}` : ""}`,
    crumbs: [one.function && [one.function, link.fn(one.function)], [bracket(slug), link.compile(slug)], ["code"]].filter(Boolean),
    previous: siblingLink(withCode, index - 1, (other) => link.code(other.slug)),
    next: siblingLink(withCode, index + 1, (other) => link.code(other.slug)),
    up: link.compile(slug),
    wide: true,
    body: [lead([h("span.soft", null, bracket(slug)), " ", one.title]), body],
  };
}

async function fillPanes(one, body, wanted) {
  let map, texts;
  try {
    [map, texts] = await Promise.all([mapOf(one), textsOf(one)]);
  } catch {
    body.replaceChildren(h("p", null, "This browser cannot unpack the text (it lacks DecompressionStream)."));
    return;
  }
  const at = Math.max(0, map.views.findIndex((view) => view.name === wanted));
  const view = map.views[at];
  const status = h("p.status", { role: "status" });
  const model = linksOf(map, view);
  const panes = {};
  const choose = (name, ids, pin) => lightUp(panes, model, status, name, ids, pin);
  panes.source = sourcePane(map, model, choose);
  panes.graph = textPane("graph", one.artifacts[view.graph], texts[view.graph], model.rows.graph, choose);
  panes.code = textPane("code", one.artifacts[view.code], texts[view.code], model.rows.code, choose);
  const kernels = kernelsPart(map, view, panes, choose);
  body.replaceChildren(fragment(viewSwitch(one, map, at), kernels, status, h("div.panes", null, PANES.map((name) => panes[name].box))));
  for (const name of PANES) {
    const [first] = panes[name].linked;
    if (first !== undefined) reveal(panes[name].list, panes[name].lines[first]);
  }
  status.textContent = "Point at a line, or move to it with the arrow keys: what it became, or came from, lights up.";
}

function viewSwitch(one, map, at) {
  if (map.views.length < 2) return null;
  return h("div.filters", { role: "group", "aria-label": "Direction" }, map.views.map((view, n) =>
    h("a.way", { href: link.code(one.slug, view.name), "aria-current": n === at ? "true" : null }, view.name)),
  h("span.soft", null, " ", h("kbd", null, "f"), " switches"));
}

/** The kernels of a program, in the order of their calls: what of yours each computes, and where it stands. */
function kernelsPart(map, view, panes, choose) {
  if (!view.kernels.length) return null;
  const few = (all, most) => all.slice(0, most).join(", ") + (all.length > most ? ` and ${all.length - most} more` : "");
  const rows = view.kernels.map(([name, ranges, places, nodes], id) => {
    const mine = [...new Set([...places, ...nodes.map((node) => view.nodes[node][1])])].filter((at) => at >= 0).sort((a, b) => a - b);
    const at = ranges[0][0], lines = mine.map((source) => place(map.files[map.sources[source][0]][0], map.sources[source][1]));
    const pin = () => {
      panes.code.at = panes.code.linked.indexOf(at);
      choose("code", [id], true);
    };
    return h("tr", null, h("td", null, h("button.kernel", { type: "button", click: pin }, name)),
      h("td.mono", null, few(lines, 3)), h("td", null, few(nodes.map((node) => view.nodes[node][2]), 6)), h("td.num", null, at + 1));
  });
  const heading = `${count(view.kernels.length, "kernel call")} of this program`;
  return h("details.kernels", { open: true }, h("summary", null, heading),
    table(["kernel", "your lines", "nodes", ["line", "num"]], rows, { wide: "Kernels" }));
}

/** For each pane: row -> ids of what is in it, and from an id of one pane to those of the others. */
function linksOf(map, view) {
  const rows = { source: new Map(), graph: new Map(), code: new Map() };
  const add = (pane, row, id) => rows[pane].set(row, [...(rows[pane].get(row) || []), id]);
  map.sources.forEach((_, id) => add("source", id, id));
  view.nodes.forEach(([row], id) => add("graph", row, id));
  view.kernels.forEach(([, ranges], id) => {
    for (const [from, to] of ranges) for (let row = from; row <= to; row++) add("code", row, id);
  });
  const nodesAt = (place) => view.nodes.flatMap(([, source], id) => (source === place ? [id] : []));
  const kernelsOf = (nodes) => view.kernels.flatMap(([, , , mine], id) => (mine.some((n) => nodes.includes(n)) ? [id] : []));
  const kernelsAt = (place) => view.kernels.flatMap(([, , places, mine], id) => (places.includes(place) && !mine.length ? [id] : []));
  const partners = {
    source: (id) => ({ source: [id], graph: nodesAt(id), code: [...kernelsOf(nodesAt(id)), ...kernelsAt(id)] }),
    graph: (id) => {
      const place = view.nodes[id][1];
      const kernels = kernelsOf([id]);
      return { source: place < 0 ? [] : [place], graph: [id], code: kernels.length ? kernels : kernelsAt(place) };
    },
    code: (id) => {
      const [, , places, nodes] = view.kernels[id];
      return { source: places, graph: nodes.length ? nodes : places.flatMap(nodesAt), code: [id] };
    },
  };
  const words = {
    source: (id) => place(map.files[map.sources[id][0]][0], map.sources[id][1]),
    graph: (id) => view.nodes[id][2],
    code: (id) => view.kernels[id][0],
  };
  return { rows, partners, words };
}

function sourcePane(map, model, choose) {
  const rows = [];
  const lines = [];
  let last = null;
  map.sources.forEach(([file, line, text, fn], id) => {
    const [path, framework] = map.files[file];
    const whose = ["", "library: ", /[/\\]torch[/\\]|^torch/.test(path) ? "torch: " : "Python: "][framework];
    if (!last || last[0] !== file) rows.push(h("div.file", { title: path }, `${whose}${basename(path)}`));
    else if (line > last[1] + 1) rows.push(h("div.gap", { "aria-hidden": "true" }, "⋮"));
    const shown = text ? coloured(text, "python") : h("span.soft", null, fn ? `in ${fn}` : "not quoted in the trace");
    lines.push(h(`div.line${framework ? ".theirs" : ""}`, { "data-no": line, title: `${path}:${line}${fn ? ` in ${fn}` : ""}` }, shown));
    rows.push(lines[lines.length - 1]);
    last = [file, line];
  });
  if (!rows.length) rows.push(h("div.file", null, "The trace names no line of the source."));
  return pane("source", "from what the trace quotes", rows, lines, model.rows.source, choose);
}

function textPane(name, artifact, text, ids, choose) {
  const all = text.replace(/\n$/, "").split("\n");
  const lines = all.slice(0, MOST_LINES).map((row, n) => h("div.line", { "data-no": n + 1 }, coloured(row.slice(0, LONGEST_LINE), artifact[4])));
  const rest = all.length > MOST_LINES ? [h("div.file", null, `${all.length - MOST_LINES} more lines: see the artifact`)] : [];
  return pane(name, nameOf(artifact), [...lines, ...rest], lines, ids, choose);
}

function pane(name, about, rows, lines, ids, choose) {
  const list = h("div.rows", { tabindex: "0", role: "region", "aria-label": PANE_WORDS[name] }, rows);
  const linked = [...ids.keys()].filter((row) => lines[row]).sort((a, b) => a - b);
  for (const row of linked) lines[row].classList.add("linked");
  const made = { box: h("section.pane", { "data-pane": name }, h("header", null, h("b", null, PANE_WORDS[name]), h("span.soft", null, about)), list), list, lines, ids, linked, at: -1 };
  const rowOf = (event) => lines.indexOf(event.target.closest(".line"));
  const follow = (row, pin) => { if (ids.has(row)) { made.at = linked.indexOf(row); choose(name, ids.get(row), pin); } };
  list.addEventListener("mouseover", (event) => follow(rowOf(event), false));
  list.addEventListener("click", (event) => follow(rowOf(event), true));
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, j: 1, n: 1, ArrowUp: -1, k: -1, N: -1 }[event.key];
    if (by && linked.length) {
      const from = made.at, alike = (at) => linked[at] !== undefined && from >= 0 && `${ids.get(linked[at])}` === `${ids.get(linked[from])}`;
      made.at = Math.max(0, Math.min(linked.length - 1, from + by));
      if (event.key === "n" || event.key === "N") while (alike(made.at) && linked[made.at + by] !== undefined) made.at += by; // a kernel is one
      follow(linked[made.at], true);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const to = PANES[PANES.indexOf(name) + (event.key === "ArrowLeft" ? -1 : 1)];
      const other = to && document.querySelector(`[data-pane=${to}] .rows`);
      if (other) other.focus({ preventScroll: true });
    } else if (event.key === "Escape" && choose(null)) {
      made.at = -1;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return made;
}

let pinned = false;

/** Light up the partners of some ids; a pinned choice stays until the next one or Esc. */
function lightUp(panes, model, status, name, ids, pin) {
  if (name === null) {
    const was = pinned;
    pinned = false;
    for (const one of PANES) for (const row of panes[one].lines) row.classList.remove("lit", "from");
    status.textContent = "Nothing is chosen.";
    return was;
  }
  if (pinned && !pin) return true;
  pinned = Boolean(pin);
  const lit = { source: new Set(), graph: new Set(), code: new Set() };
  for (const id of ids) for (const [one, found] of Object.entries(model.partners[name](id))) for (const other of found) lit[one].add(other);
  for (const one of PANES) {
    const { lines, ids: idsOf, linked, list } = panes[one];
    let first = null;
    for (const row of linked) {
      const on = idsOf.get(row).some((id) => lit[one].has(id));
      lines[row].classList.toggle("lit", on);
      lines[row].classList.toggle("from", on && one === name);
      if (on && !first) first = lines[row];
    }
    if (first && (one !== name || pin)) reveal(list, one === name ? panes[name].lines[linked[panes[name].at]] || first : first);
  }
  const list = (one) => [...lit[one]].slice(0, 4).map(model.words[one]).join(", ") + (lit[one].size > 4 ? " …" : "");
  status.textContent = PANES.map((one) => (lit[one].size ? list(one) : `no ${one === "code" ? "kernel" : one}`)).join("  →  ");
  return true;
}

/** Scroll a pane, and the pane alone, so that a row is seen. */
function reveal(list, row) {
  const top = row.offsetTop; // the list is the offset parent of its rows
  if (top < list.scrollTop + 20 || top > list.scrollTop + list.clientHeight - 60) list.scrollTop = Math.max(0, top - list.clientHeight / 3);
}

/** The other direction of the same compile, for the key f. */
function otherWay() {
  const ways = [...main.querySelectorAll("a.way")];
  const at = ways.findIndex((one) => one.getAttribute("aria-current"));
  if (ways.length) location.hash = ways[(at + 1) % ways.length].getAttribute("href");
}
