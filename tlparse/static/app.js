// Routes, keys, theme: what ties the pages together.

const main = document.getElementById("main");
const keysBox = document.getElementById("keys");
let page = null;

const COMPILE = /^c\/(.+?)(?:\/a\/(\d+)(?:\/vs\/(.+)\/(\d+))?)?$/;
const PASSES = /^c\/(.+?)\/passes(?:\/(\d+))?$/;
const versus = (match) => (match[3] ? { slug: decodeURI(match[3]), number: Number(match[4]) } : null);

function route() {
  const path = location.hash.replace(/^#\/?/, "");
  const part = (from) => { try { return decodeURIComponent(path.slice(from)); } catch { return path.slice(from); } };
  if (path === "") return overviewPage();
  if (path === "raw") return rawPage();
  const time = /^time(?:\/([\d.]+)-([\d.]+))?$/.exec(path);
  if (time) return timePage(time[1] && [Number(time[1]), Number(time[2])]);
  const running = /^running(?:\/(\d+))?$/.exec(path);
  if (running) return runningPage(Number(running[1] || 0));
  if (path === "ranks") return ranksPage();
  if (path === "cache") return cachePage();
  if (path === "functions") return functionsPage();
  if (path === "findings") return findingsPage();
  if (path === "source") return sourcesPage();
  if (path.startsWith("f/")) return findingPage(part(2));
  if (path.startsWith("fn/")) return functionPage(part(3));
  const source = /^src\/([^/]+)(?:\/(\d+))?$/.exec(path);
  if (source) return sourcePage(decodeURIComponent(source[1]), Number(source[2]));
  const passes = PASSES.exec(path);
  if (passes) return passesPage(decodeURI(passes[1]), passes[2] && Number(passes[2]));
  const code = /^c\/(.+?)\/code(?:\/(.+))?$/.exec(path);
  if (code) return codePage(decodeURI(code[1]), code[2] && decodeURIComponent(code[2]));
  const graph = /^c\/(.+?)\/graph(?:\/(\d+))?$/.exec(path);
  if (graph) return graphPage(decodeURI(graph[1]), graph[2] && Number(graph[2]));
  const match = COMPILE.exec(path);
  if (match) return compilePage(decodeURI(match[1]), match[2] === undefined ? null : Number(match[2]), versus(match));
  return missingPage(`page ${path}`);
}

function show() {
  if (searchBox.open) searchBox.close();
  const match = COMPILE.exec(location.hash.slice(2));
  const pane = document.getElementById("viewer");
  if (match && match[2] && page && pane && page.keep === `c/${decodeURI(match[1])}`) {
    pane.show(Number(match[2]), versus(match));
    return turnedTo();
  }
  const passes = PASSES.exec(location.hash.slice(2));
  if (passes && passes[2] && page && page.update && page.keep === `passes/${decodeURI(passes[1])}`) {
    page.update(Number(passes[2]));
    return turnedTo();
  }
  draw(built());
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  if (match && match[2]) document.getElementById("viewer")?.scrollIntoView();
}

/** The page at the address, and all that is in it. */
function built() {
  const made = route();
  return { made, content: h("div", null, made.body, pager(made)) };
}

let drawn = null; // of a served page, a copy: so it is known whether another state of the trace differs

/** The page shows another part of itself: its tab and what it is compared with say so. */
function turnedTo() {
  nameTab();
  if (DATA.live) drawn = built().content;
}

function draw({ made, content }) {
  page = made;
  if (DATA.live) drawn = content.cloneNode(true);
  showScreens();
  document.body.classList.toggle("wide", Boolean(page.wide));
  main.replaceChildren(...content.childNodes);
  nameTab();
  explainWords(main);
  document.getElementById("crumbs").replaceChildren(...page.crumbs.map(([words, href], n) =>
    h("li", { "aria-current": n === page.crumbs.length - 1 ? "page" : null }, href ? h("a", { href }, words) : words)));
}

/** Name the browser's tab: the page, what it shows of it, the report. No two tabs share a name. */
function nameTab() {
  const path = location.hash.slice(2), artifact = COMPILE.exec(path), pass = PASSES.exec(path);
  const shown = artifact && artifact[2] && document.getElementById("viewer")?.current;
  const other = shown && versus(artifact);
  const against = other && compileBySlug.get(other.slug)?.artifacts[other.number];
  const part = [
    shown && shown.words, against && `against ${bracket(other.slug)} ${nameOf(against)}`,
    pass && pass[2] && `step ${Number(pass[2]) + 1}`,
  ];
  document.title = [page.title, ...part, DATA.name, DATA.time, "tc report"].filter(Boolean).join(" · ");
}

function showScreens() {
  const path = location.hash.replace(/^#\/?/, "");
  document.getElementById("screens").replaceChildren(...SCREENS.map(([name, href, mine], n) =>
    h("li", null, h("a", { href, "aria-current": mine.test(path) ? "true" : null }, h("kbd", { "aria-hidden": "true" }, n + 1), name))));
}

function pager({ previous, next }) {
  if (!previous && !next) return "";
  return h("div.steps", null, previous ? h("a", { href: previous }, "← previous ", h("kbd", null, "[")) : h("span"),
    next ? h("a", { href: next }, h("kbd", null, "]"), " next →") : h("span"));
}

function step(by) {
  const rows = [...main.querySelectorAll("a.row")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by));
  rows[to].focus();
  rows[to].scrollIntoView({ block: "nearest" });
}

function toggleTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("tc-theme", next); } catch { /* not kept, then */ }
}

function goUp() {
  if (page.escape && page.escape()) return;
  if (page.up) location.hash = page.up;
  else if (page.crumbs.length > 1 && page.crumbs[0][1]) location.hash = page.crumbs[0][1];
  else location.hash = "#/";
}

/** Mark an artifact; the next one that is marked is compared with it. */
let marked = null;
function markForDiff() {
  const here = document.getElementById("viewer")?.current;
  if (!here) return toast("Open an artifact first: it can be marked, and compared with another");
  if (!marked || (marked.slug === here.slug && marked.number === here.number)) {
    marked = here;
    return toast(`Marked ${bracket(here.slug)} ${here.words}; press d on another artifact to compare`);
  }
  location.hash = link.versus(here.slug, here.number, marked.slug, marked.number);
  marked = null;
}

const onRow = (by) => (document.activeElement?.matches("a.row") ? (step(by), true) : false);
const KEYS = {
  g: () => page.graph && (location.hash = page.graph), d: markForDiff, c: () => page.onlyChanged && page.onlyChanged(),
  ArrowLeft: () => page.turn && page.turn(-1), ArrowRight: () => page.turn && page.turn(1), ArrowDown: () => onRow(1), ArrowUp: () => onRow(-1),
  "/": () => openSearch(), ">": () => openSearch(">"), j: () => step(1), k: () => step(-1), t: toggleTheme, "?": openKeys,
  "[": () => page.previous && (location.hash = page.previous),
  "]": () => page.next && (location.hash = page.next),
  Escape: goUp, y: () => copyText(location.href), f: otherWay, "0": () => (location.hash = "#/"), r: () => (location.hash = "#/raw"),
};

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { openSearch(">"); event.preventDefault(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (searchBox.open || keysBox.open || event.target.matches("input:not([type=range]), textarea, select")) return;
  if (/^[1-9]$/.test(event.key) && SCREENS[event.key - 1]) { location.hash = SCREENS[event.key - 1][1]; event.preventDefault(); return; }
  const act = KEYS[event.key];
  if (!act) return;
  const done = act();
  if (!event.key.startsWith("Arrow") || done) event.preventDefault();
});

const HELP = [
  ["1 … 9", "the screens, as numbered above"], ["/", "search"], ["> Ctrl-k", "commands"], ["j k", "next, previous entry"], ["Enter", "open it"], ["Esc", "up"], ["[ ]", "previous, next page of this kind"],
  ["f", "code page: forward or backward; graph page: the next graph"], ["g", "the graph of this compile, drawn"], ["← →", "passes: step through them; code page: the next pane"], ["c", "passes: only what changed something"], ["n N", "code page: next, previous linked line"], ["← → Tab", "time page, on an end of the line: the span that the tables are about"], ["d", "mark an artifact, and compare the next one marked with it"], ["y", "copy the link of this page"], ["t", "light or dark"], ["r", "the trace itself"], ["0", "overview"], ["?", "this card"],
];

function openKeys() {
  const term = (name, tag) => (tag ? name.split(" ").map((key) => [key === "…" ? key : h(tag, null, key), " "]) : h("b", null, name));
  const pairs = (rows, tag) =>
    h("dl.pair", null, rows.map(([name, text]) => [h("dt", null, term(name, tag)), h("dd", null, text)]));
  keysBox.replaceChildren(h("div.body", null,
    h("button.copy", { type: "button", click: () => keysBox.close() }, "Close"),
    h("h2", null, "Keys"), pairs(HELP, "kbd"), h("h2", null, "Words"), pairs(WORDS, null)));
  keysBox.showModal();
}

document.getElementById("find").addEventListener("click", openSearch);
document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("help").addEventListener("click", openKeys);
addEventListener("hashchange", show);
show();
if (DATA.live) watch();
