// A graph as a drawing, beside the list of its nodes: the list says all, the drawing is a help.

const GRAPHS = /^(dynamo_output_graph|aot_\w+_graph|inductor_p\w+_graph)$/;
const MOST_BOXES = 260, MOST_AROUND = 80;
const SVG = "http://www.w3.org/2000/svg";

const graphsOf = (one) => one.artifacts.filter((artifact) => GRAPHS.test(artifact[1]));

function graphPage(slug, number) {
  const one = compileBySlug.get(slug);
  const graphs = one ? graphsOf(one) : [];
  const artifact = graphs.find((other) => other[0] === number) || graphs[0];
  if (!artifact) return missingPage(`graph of ${bracket(slug)}`);
  const body = h("div", null, h("p.soft", null, "Unpacking …"));
  fillGraph(one, artifact, body);
  const list = DATA.compiles.filter((other) => graphsOf(other).length);
  const index = list.indexOf(one);
  return {
    title: `${bracket(slug)} ${one.title}: ${nameOf(artifact)}, drawn`,
    crumbs: [one.function && [one.function, link.fn(one.function)], [bracket(slug), link.compile(slug)], ["graph"]].filter(Boolean),
    previous: siblingLink(list, index - 1, (other) => link.graph(other.slug)),
    next: siblingLink(list, index + 1, (other) => link.graph(other.slug)),
    up: link.compile(slug),
    wide: true,
    body: [
      lead([h("span.soft", null, bracket(slug)), " ", one.title]),
      h("div.filters", { role: "group", "aria-label": "Graph" }, graphs.map((other) =>
        h("a.way", { href: link.graph(slug, other[0]), "aria-current": other === artifact ? "true" : null }, nameOf(other)))),
      body,
    ],
  };
}

async function fillGraph(one, artifact, body) {
  let text;
  try {
    text = (await textsOf(one))[artifact[0]];
  } catch {
    body.replaceChildren(h("p", null, "This browser cannot unpack the text (it lacks DecompressionStream)."));
    return;
  }
  const nodes = readGraph(text);
  let boxes = nodes;
  for (const apart of [true, false]) if (boxes.length > MOST_BOXES) boxes = foldByLine(nodes, apart);
  const sheet = h("div.drawing", { tabindex: "0", role: "region", "aria-label": "Drawing of the graph" });
  const view = viewOf(boxes, sheet);
  const folded = `${count(nodes.length, "node")}, drawn as ${boxes.length}: one box for each of your lines`;
  const summary = boxes.length > MOST_BOXES ? `${count(nodes.length, "node")}; drawn are those around the chosen one`
    : boxes.length < nodes.length ? folded : count(nodes.length, "node");
  body.replaceChildren(h("p.status", { role: "status", id: "chosen" }, summary), h("div.graph", null, nodeList(nodes, boxes, view), sheet));
  const first = boxes.find((box) => box.op !== "input");
  if (first) view.show(first.name, false);
}

/** What draws boxes on a sheet: all at once, or those around the chosen one if there are too many. */
function viewOf(boxes, sheet) {
  let drawn = null, latest = 0;
  const show = async (name, lit) => {
    const mine = ++latest;
    if (!drawn || !drawn.items.has(name)) {
      const made = await drawGraph(boxes.length > MOST_BOXES ? around(boxes, name) : boxes);
      if (mine !== latest) return; // another one was chosen in the meantime
      drawn = made;
      sheet.replaceChildren(drawn.picture);
    }
    if (lit) drawn.choose(name);
    const item = drawn.items.get(name);
    if (item) sheet.scrollTo(item.x - sheet.clientWidth / 2, item.y - sheet.clientHeight / 2);
  };
  return { show };
}

/** The boxes nearest to one, along the edges in both directions. */
function around(boxes, name) {
  const byName = new Map(boxes.map((box) => [box.name, box])), users = new Map();
  for (const box of boxes) for (const used of box.uses) users.set(used, [...(users.get(used) || []), box.name]);
  const found = new Set([name]);
  for (const next of found) { // grows while it is walked
    const box = byName.get(next);
    const near = next !== name && box.op === "input" ? [] : [...box.uses, ...(users.get(next) || [])];
    for (const other of near) if (found.size < MOST_AROUND && byName.has(other)) found.add(other);
  }
  return boxes.filter((box) => found.has(box.name));
}

/** Nodes of a printed graph: name, operation, what it uses, the user's line. Both compilers' forms are read. */
function readGraph(text) {
  const nodes = [], byName = new Map();
  const add = (name, op, uses, place, type) => {
    const node = { name, op, uses: [...new Set(uses.map((word) => byName.get(word).name))], place, type, returned: false };
    nodes.push(node);
    byName.set(name, node);
  };
  const known = (words) => (words.match(/[A-Za-z_]\w*/g) || []).filter((word) => byName.has(word));
  let place = "", ending = null;
  for (const row of text.split("\n")) {
    if (ending !== null) { ending += row; continue; }
    const comment = /#\s*File: (.+?):(\d+)/.exec(row);
    if (comment) { place = `${basename(comment[1])}:${comment[2]}`; continue; }
    const own = / {2}# (\S+?):(\d+)(?: in \S+)?\s*$/.exec(row);
    const where = own ? `${basename(own[1])}:${own[2]}` : place;
    const code = row.replace(/ {2}# .*$/, "").replace(/;\s.*$/, "");
    const input = /^\s+in\[\d+\]\s+(\w+): (.+)$/.exec(code);
    if (input) { add(input[1], "input", [], "", input[2]); continue; }
    for (const [, name, type] of code.includes(" = ") ? [] : code.matchAll(/(\w+): "([^"]*)"/g)) add(name, "input", [], "", type);
    const node = /^\s+([A-Za-z_]\w*)(?:\s*:\s*([^=]+?))?\s*= (.+)$/.exec(code);
    if (node && byName.has(node[3].trim())) byName.set(node[1], byName.get(node[3].trim())); // another name of the same
    else if (node) add(node[1], ...operation(node[3], known), where, (node[2] || "").replaceAll('"', ""));
    else if (/^\s+return\b/.test(row)) ending = row;
  }
  for (const name of known((ending || "").replace(/#.*$/gm, ""))) byName.get(name).returned = true;
  return nodes;
}

/** The operation of a right side and the names it uses: of `aten.mul.Tensor(a, b)`, `a.sin()`, `a + 1`. */
function operation(code, known) {
  const call = /^([\w.]+)\((.*)$/.exec(code);
  if (!call) return [(/ ([^\w\s()[\],.]+) /.exec(code) || [0, code.slice(0, 20)])[1], known(code)];
  const [, path, rest] = call;
  const owner = path.split(".")[0];
  const method = path.includes(".") && known(owner).length > 0 && !/^(torch|aten|prims|operator)$/.test(owner);
  if (method) return [path.slice(owner.length + 1), known(`${owner} ${rest}`)];
  return [path.replace(/^torch\.(?:ops\.)?/, "").replace(/^(?:_C\._nn|nn\.functional|aten)\./, "").replace(/\.default$/, ""), known(rest)];
}

/** One box for all nodes of a line of the user's; those with others between them stay apart, or not. */
function foldByLine(nodes, apart) {
  const boxes = [], boxOf = new Map(), boxAt = new Map();
  for (const node of nodes) {
    const last = apart ? boxes[boxes.length - 1] : boxAt.get(node.op === "input" ? "input" : node.place);
    const joins = last && (node.place ? last.place === node.place : node.op === "input" && last.op === "input");
    const box = joins ? last : { name: node.name, op: node.op, uses: [], place: node.place, type: "", returned: false, parts: [] };
    if (!joins) boxes.push(box);
    boxAt.set(node.op === "input" ? "input" : node.place, box);
    box.parts.push(node);
    boxOf.set(node.name, box);
    box.uses.push(...node.uses);
    box.returned ||= node.returned;
  }
  for (const box of boxes) {
    const names = box.uses.map((name) => boxOf.get(name)).filter((other) => other && other !== box).map((other) => other.name);
    box.uses = [...new Set(names)];
    if (box.parts.length > 1) box.op = box.place ? `${box.place} · ${box.parts.length} nodes` : `${box.parts.length} inputs`;
  }
  return boxes;
}

const shape = (tag, props, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props)) if (value !== null) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
};

/** What lays boxes out: dagre in a worker, unpacked when the first graph is drawn. */
let layouts = null;
async function layoutOf(boxes, edges) {
  layouts ||= unpack("layout").then(([source]) => {
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    const waiting = new Map();
    worker.addEventListener("message", ({ data }) => { waiting.get(data.ticket)(data); waiting.delete(data.ticket); });
    let ticket = 0;
    return (asked) => new Promise((resolve) => { waiting.set(++ticket, resolve); worker.postMessage({ ticket, ...asked }); });
  });
  return (await layouts)({ boxes, edges });
}

const BOX_HEIGHT = 26;

async function drawGraph(boxes) {
  const shown = new Map(), joins = [];
  // An input has a small box beside each of its uses: one box for all would draw lines across everything.
  const put = (key, words, box) => {
    const cut = box.op === "input" ? words : ending(words, 30);
    shown.set(key, { wide: cut.length * 7.4 + 22, words: cut, box });
  };
  const inputs = new Map(boxes.filter((box) => box.op === "input").map((box) => [box.name, box]));
  const plain = (name) => name.replace(/^l_(?:self_)?(?:modules_)?/i, "");
  const short = endings([...inputs.keys()].map(plain), 27);
  for (const box of boxes) if (!inputs.has(box.name)) put(box.name, box.op, box);
  for (const box of boxes) for (const used of box.uses) {
    const key = inputs.has(used) ? `${used} ${box.name}` : used;
    if (inputs.has(used)) put(key, short.get(plain(used)), inputs.get(used));
    if (shown.has(key)) joins.push([key, box.name]);
  }
  const { width, height, places, lines } = await layoutOf([...shown].map(([key, { wide }]) => [key, wide, BOX_HEIGHT]), joins);
  const items = new Map();
  const edges = lines.map(([from, to, points]) => [from.split(" ")[0], to,
    shape("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), class: "edge", "marker-end": "url(#tip)" })]);
  for (const [key, x, y] of places) {
    const { wide, words, box } = shown.get(key);
    const group = shape("g", { class: `box${box.op === "input" ? " input" : ""}${box.returned ? " returned" : ""}`, transform: `translate(${x - wide / 2},${y - BOX_HEIGHT / 2})` },
      shape("title", {}, `${box.name}${box.type ? `: ${box.type}` : ""}${box.place ? ` · ${box.place}` : ""}`),
      shape("rect", { width: wide, height: BOX_HEIGHT, rx: 5 }), shape("text", { x: wide / 2, y: 17 }, words));
    if (!items.has(box.name)) items.set(box.name, { groups: [], x, y });
    items.get(box.name).groups.push(group);
  }
  const tip = shape("marker", { id: "tip", viewBox: "0 0 6 6", refX: 5.5, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" }, shape("path", { d: "M0 0 6 3 0 6z" }));
  const picture = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The graph; the list has the same nodes" },
    shape("defs", {}, tip), ...edges.map(([, , path]) => path), ...[...items.values()].flatMap((item) => item.groups));
  const choose = (name) => {
    for (const [other, { groups }] of items) for (const group of groups) group.classList.toggle("lit", other === name);
    for (const [from, to, path] of edges) path.classList.toggle("lit", from === name || to === name);
  };
  for (const [name, { groups }] of items) for (const group of groups) group.addEventListener("click", () => choose(name));
  return { picture, choose, items };
}

function nodeList(nodes, boxes, view) {
  const boxOf = new Map(boxes.flatMap((box) => (box.parts || [box]).map((node) => [node.name, box.name])));
  const pick = (node) => {
    document.getElementById("chosen").textContent =
      [`${node.name} = ${node.op}(${node.uses.join(", ")})`, node.type, node.place].filter(Boolean).join(" · ");
    view.show(boxOf.get(node.name), true);
  };
  const short = endings(nodes.map((node) => node.name), 30);
  const words = nodes.map((node) => `${node.name} ${node.op} ${node.place}`);
  const rows = nodes.map((node, n) => h("li", null, h("button.node", { type: "button", title: words[n], click: () => pick(node), focus: () => pick(node) },
    h("b", null, short.get(node.name)), " ", h("span.soft", null, `${ending(node.op, 30)} ${node.place}`))));
  const filter = h("input", { type: "text", placeholder: "Filter nodes", "aria-label": "Filter nodes", spellcheck: "false", input: () => {
    rows.forEach((row, n) => { row.hidden = !words[n].toLowerCase().includes(filter.value.toLowerCase()); });
  } });
  return h("div.nodes", null, filter, h("ul", null, rows));
}
