// The first page: is anything wrong, what costs most, what to do.

function verdict() {
  const t = DATA.totals, said = [];
  if (t.failures) said.push(count(t.failures, "failed compile"));
  if (t.breaks) said.push(count(t.breaks, "graph break"));
  if (t.recompiles) said.push(count(t.recompiles, "recompile"));
  if (t.limits) said.push("a recompile limit reached");
  if (t.skipped) said.push(count(t.skipped, "skipped function"));
  const others = DATA.findings.filter((one) => one.order !== "DAMAGE");
  if (!said.length && others.length) return count(others.length, "finding");
  if (!said.length) return t.defects ? "Nothing needs attention, but the trace is damaged" : "Nothing needs attention";
  return said.join(", ").replace(/, ([^,]*)$/, " and $1");
}

function stats() {
  const t = DATA.totals;
  const cell = (name, value, note, kind) =>
    h("div", { class: kind || "" }, h("dt", null, name), h("dd", null, value, note && h("small", null, note)));
  return h("dl.stats", null,
    DATA.laneCount > 1 ? cell("Compile time", duration(t.slowest[0]), `${t.slowest[1]}, the longest`) : cell("Compile time", duration(t.seconds)),
    cell("Compiles", t.compiles, `of ${count(t.functions, "function")}`),
    cell("Graph breaks", t.breaks, null, t.breaks && "warn"),
    cell("Recompiles", t.recompiles, null, t.recompiles && "again"),
    cell("Failed", t.failures, null, t.failures && "bad"),
    (t.hits || t.misses) ? cell("Cache", t.hits, `hit, ${t.misses} missed`) : null);
}

/** `4 ranks`, `4 processes`. */
const laneCount = () => count(DATA.laneCount, DATA.lanes[0].label.split(" ")[0]);

function timePart() {
  const total = DATA.totals.seconds;
  if (!total) return null;
  const top = [...DATA.functions].sort((a, b) => b.seconds - a.seconds).slice(0, 8);
  const most = top.length ? top[0].seconds : 1;
  const steps = DATA.steps.map(([name, seconds, phase]) => h("tr", null,
    h("td.mono", null, name), h("td", null, phase), h("td.num", null, duration(seconds)), h("td.num", null, percent(seconds, total))));
  return section("Where the time went", `${duration(total)} of compiling${DATA.laneCount > 1 ? `, all ${laneCount()} together` : ""}`,
    splitBar(DATA.phases), legend(DATA.phases),
    top.length > 1 && h("div.bars", null, top.map((fn) => [
      h("a", { href: link.fn(fn.name), title: fn.name }, fn.title),
      h("span.num", null, duration(fn.seconds)),
      h("div", null, h("div.gauge", { width: `${Math.max(0.4, (100 * fn.seconds) / most)}%` }, splitBar(phasesOf(fn), true)))])),
    h("p", null, h("a.row", { href: "#/time" }, "By function, compile and step →")),
    h("details", null, h("summary", null, "By step"),
      table(["step", "phase", ["own time", "num"], ["share", "num"]], steps)));
}

let functionFilter = "all";
const FILTERS = {
  all: () => true,
  "with findings": (fn) => !["ok", "cached"].includes(fn.status),
  recompiled: (fn) => fn.recompiles > 0,
  errors: (fn) => fn.status === "error",
};

const MOST_CARDS = 20, MOST_FUNCTIONS = 12, MOST_FILES = 8, MOST_LANES = 16;

/** `fix self.step: recompiles 5 → 1`: the changes that save most, in a line. */
function savings() {
  const first = new Map();  // the findings of a function share one forecast
  for (const one of DATA.findings.filter((one) => one.forecast.length)) {
    const step = one.forecast[0], key = [one.where.file, one.where.function, step].join("\n");
    if (!first.has(key) || fixedIn(step).includes(one.reason)) first.set(key, one);
  }
  const predicted = [...first.values()].slice(0, 3);
  if (!predicted.length) return null;
  return h("p.savings", null, "Predicted: ", predicted.map((one, n) => [n > 0 && " · ", h("a.row", { href: link.finding(one.id) }, "fix"), " ", forecastWords(one.forecast[0])]));
}

/** `2 settings differ from the defaults of torch 2.13: …` */
function settingsLine() {
  const { known, changed } = DATA.settings, most = 4;
  if (!known) return null;
  if (!changed.length) return h("p.soft", null, `All settings are at the defaults of ${known}.`);
  const names = [...new Set(changed.map((row) => `${row.name} = ${row.value}`))];
  return h("p", null, `${count(changed.length, "setting")} not at the default of ${known}: `,
    names.slice(0, most).map((one, n) => [n > 0 && ", ", h("code.inline", null, one)]), names.length > most && ` and ${names.length - most} more`,
    ". ", h("a.row", { href: "#/raw" }, "All settings that differ →"));
}

/** What the best fixes of several findings gave at the same time. */
function togetherLine() {
  const trial = DATA.together;
  return trial && h("p.savings", null, count(trial.findings.length, "fix"), " together (",
    trial.findings.map((id, n) => [n > 0 && ", ", h("a.row", { href: link.finding(id) }, id.split("-")[0])]), `): ${trial.outcome}, ran with the edits`);
}

function functionsPage() {
  return {
    title: "Functions", crumbs: [["functions"]],
    body: [lead("Functions", `${count(DATA.functions.length, "function")}, ${count(DATA.totals.compiles, "compile")}, ${duration(DATA.totals.seconds)} of compiling`), functionsPart(Infinity)],
  };
}

function findingsPage() {
  return { title: "Findings", crumbs: [["findings"]], body: [lead("Findings", `${count(DATA.findings.length, "cause")}, the most expensive first`), section("Causes", null, h("div.cards", null, DATA.findings.map(findingCard)))] };
}

const more = (list, most, href, noun) => list.length > most && h("p", null, h("a.row", { href }, `All ${count(list.length, noun)} →`));

function functionsPart(most = MOST_FUNCTIONS) {
  const body = h("tbody");
  const fill = () => {
    body.replaceChildren(...DATA.functions.filter(FILTERS[functionFilter]).slice(0, most).map(functionRow));
    if (!body.children.length) body.append(h("tr", null, h("td.soft", { colspan: 11 }, "No function of this kind.")));
  };
  const buttons = Object.keys(FILTERS).map((name) => h("button", {
    type: "button", "aria-pressed": String(name === functionFilter), click: (event) => {
      functionFilter = name;
      for (const one of event.target.parentNode.children) one.setAttribute("aria-pressed", String(one === event.target));
      fill();
    } }, name));
  fill();
  const columns = ["Function", "Where", "Status", ["Graphs", "num"], "Compiles", ["Kernels", "num"], ["Time", "num"], "Phases", "Cache"];
  if (callsCounted()) columns.push(["Calls", "num"], ["A call", "num"]);
  const made = table(columns, []);
  made.querySelector("tbody").replaceWith(body);
  return h("section", null,
    h("div.head", null, h("h2", null, "Functions"), h("div.filters.push", { role: "group", "aria-label": "Show" }, buttons)), made, more(DATA.functions, most, "#/functions", "function"));
}

const phasesOf = (fn) => fn.phases;

function cacheWords(fn) {
  if (!fn.hits && !fn.misses) return "–";
  if (fn.hits + fn.misses === 1) return fn.hits ? "hit" : "miss";
  return fn.hits ? `${fn.hits} hit, ${fn.misses} missed` : `${fn.misses} missed`;
}

function functionRow(fn) {
  const rows = phasesOf(fn);
  return h("tr", null,
    h("td", null, h("a.row", { href: link.fn(fn.name) }, h("b", null, fn.name))),
    h("td.mono.soft", { title: `${fn.file}:${fn.line}` }, place(fn.file, fn.line)),
    h("td", null, state(fn.refused ? "refused" : fn.status)),
    h("td.num", null, fn.graphs || "–"),
    h("td", null, chips(fn.compiles, 6)),
    h("td.num", null, fn.kernels || "–"),
    h("td.num", null, duration(fn.seconds)),
    h("td", null, rows.length ? splitBar(rows, true) : ""),
    h("td.soft", null, cacheWords(fn)),
    callsCounted() && callsCells(fn.calls));
}

const callsCounted = () => DATA.functions.some((fn) => fn.calls);

function ranksPart() {
  if (DATA.lanes.length < 2) return null;
  const rows = DATA.lanes.slice(0, MOST_LANES).map((lane) => h("tr", null,
    h("td", null, lane.label), h("td.num", null, lane.compiles), h("td.num", null, lane.breaks),
    h("td.num", null, lane.recompiles), h("td.num", null, lane.failures),
    h("td.num", null, duration(lane.seconds)), h("td", null, differenceOf(lane, DATA.lanes[0]))));
  const numbers = ["compiles", "breaks", "recompiles", "failed", "time"].map((one) => [one, "num"]);
  const differences = DATA.ranks.divergences.map((one) => h("p", null, state("differs"), " ", inlineCode(sentenceOf(one.chain[0])), "."));
  return section("Ranks and processes", `compared with ${DATA.lanes[0].label}`, differences,
    table(["", ...numbers, "difference"], rows),
    DATA.laneCount > rows.length && h("p.soft", null, `and ${DATA.laneCount - rows.length} more, which did as one of these or are compared on the page of ranks`),
    DATA.ranks.groups.length > 0 && h("p", null, h("a.row", { href: "#/ranks" }, "Ranks step by step →")));
}

function differenceOf(lane, first) {
  const only = (one, other) => one.ids.filter((id) => !other.ids.includes(id)).map(bracket).join(" ");
  const extra = only(lane, first), lacking = only(first, lane);
  if (!extra && !lacking) return h("span.soft", null, lane === first ? "" : "the same compiles");
  const parts = [extra && `also compiled ${extra}`, lacking && `did not compile ${lacking}`];
  return h("span.state.break", null, h("i", { "aria-hidden": "true" }, "!"), parts.filter(Boolean).join("; "));
}

function cachePart() {
  if (!DATA.lookups.length) return null;
  const rates = DATA.caches.map(([name, hits, missed, passed]) => `${name}: ${hits} hit, ${missed} missed${passed ? `, ${passed} bypassed` : ""}`).join(" · ");
  return section("Cache", rates, h("p", null, h("a.row", { href: "#/cache" }, "Every look-up, and why it missed →")));
}

function overviewPage() {
  const t = DATA.totals, causes = DATA.findings.length;
  const lanes = DATA.lanes.length > 1 && laneCount();
  const facts = [DATA.name, DATA.time, DATA.version, lanes].filter(Boolean).join(" · ");
  const older = `The folder holds ${count(DATA.otherRuns, "older run")}; this is the newest.`;
  const calm = h("div.calm", null, "✓ No graph break, no recompile, no failure.");
  return {
    title: verdict(),
    crumbs: [],
    body: [
      lead(verdict(), facts),
      DATA.otherRuns > 0 && h("p.soft", null, older),
      stats(),
      section("Needs attention", causes > 0 && `${count(causes, "cause")}, the most expensive first`,
        causes ? [savings(), togetherLine(), h("div.cards", null, DATA.findings.slice(0, MOST_CARDS).map(findingCard)), more(DATA.findings, MOST_CARDS, "#/findings", "cause")] : calm),
      timePart(), functionsPart(), sourcesPart(), ranksPart(), cachePart(),
      section("The trace", null, h("p", null,
        `${count(DATA.raw.records, "record")} in ${count(DATA.raw.logs, "log")}, `,
        t.defects ? h("b", null, `${t.defects} damaged`) : "none damaged", ". ",
        h("a.row", { href: "#/raw" }, "Records, damage, environment and all artifacts")),
      settingsLine()),
    ],
  };
}
