// A compile: where its time went, why it was made, and all that it left behind.

function compilePage(slug, number, against) {
  const one = compileBySlug.get(slug);
  if (!one) return missingPage(`compile ${bracket(slug)}`);
  const list = one.real ? realCompiles : DATA.compiles.filter((other) => !other.real);
  const index = list.indexOf(one);
  const wanted = number === null ? defaultArtifact(one) : number;
  const findings = one.findings.map((id) => findingById.get(id)).filter(Boolean);
  const facts = [
    DATA.lanes.length > 1 && one.lane, duration(one.seconds), count(one.attempts, "attempt"),
    one.cache && `cache ${one.cache}`, one.calls && callsText(one.calls),
  ];
  const badges = [
    state(one.status),
    one.file && h("span.mono.soft", { title: `${one.file}:${one.line}` }, place(one.file, one.line)),
    h("span.soft", null, facts.filter(Boolean).join(" · ")),
  ];
  const compared = one.of && `compared with ${bracket(one.of)}, the nearest earlier compile`;
  return {
    title: `${bracket(slug)} ${one.title}`,
    crumbs: [one.function && [one.function, link.fn(one.function)], [bracket(slug)]].filter(Boolean),
    previous: siblingLink(list, index - 1, (other) => link.compile(other.slug)),
    next: siblingLink(list, index + 1, (other) => link.compile(other.slug)),
    keep: `c/${slug}`,
    graph: graphsOf(one).length > 0 && link.graph(slug),
    body: [
      lead([h("span.soft", null, bracket(slug)), " ", one.title], null, badges),
      h("p.links", null,
        one.code && h("a.row.go", { href: link.code(one.slug) }, "Source, graph and kernels side by side →"),
        hasPasses(one) && h("a.row.go", { href: link.passes(one.slug) }, "What each pass changed →"),
        graphsOf(one).length > 0 && h("a.row.go", { href: link.graph(one.slug) }, "The graph, drawn →")),
      stageStrip(one),
      one.phases.length > 0 && [splitBar(one.phases), legend(one.phases)],
      findings.length > 0 && section("Found here", null, h("div.cards", null, findings.map(findingCard))),
      one.causes.length > 0 && section("Why it was compiled again", compared, causesTable(one.causes)),
      one.misses.length > 0 && missesPart(one),
      one.memory && memoryPart(one.memory),
      section("Artifacts", `${one.artifacts.length}, by stage`, viewer(one, wanted, against)),
      compileDetails(one),
    ],
  };
}

/** Why each cache had nothing: the parts of the key that differ from the nearest earlier entry. */
function missesPart(one) {
  return section("Why the cache missed", "key parts compared by their hash", missesOf(one));
}

function missesOf(one) {
  return one.misses.map((miss) => {
    const changes = miss.differing
      ? `${miss.differing} of ${count(miss.parts, "key part")} differ from the nearest earlier entry, `
      : "the same key was looked up before, so its entry was lost or could not be used: ";
    const rows = miss.changes.map(([name, was, now]) => h("tr", null, h("td.mono", null, h("span.plain", null, name)),
      h("td", null, h("span.plain.mono", null, was || "absent")), h("td", null, h("span.plain.mono", null, now || "absent"))));
    return [
      h("p.why", null, h("a", { href: link.artifact(one.slug, miss.artifact) }, miss.cache), ": ", changes, compileChip(miss.nearest),
        !miss.sameGraph && h("span.soft", null, " (a new graph has to miss)")),
      rows.length > 0 && table(["part of the key", "then", "now"], rows, { class: ".keys" }),
    ];
  });
}

/** What a step holds, kernel after kernel, as the plan says; and who holds it at the peak. */
function memoryPart(memory) {
  const high = memory.peak || 1, wide = memory.moments.length;
  const at = memory.moments.findIndex((moment) => moment[3] === memory.peak);
  const bars = memory.moments.map(([graph, step, line, size], n) => shape("rect", { x: n, y: 100 - (100 * size) / high, width: 0.92, height: (100 * size) / high, class: `${graph}${n === at ? " peak" : ""}` },
    shape("title", {}, `${step} (${graph})${line ? `, ${basename(line)}` : ""}: ${bytes(size)}`)));
  const [graph, step, line] = memory.moments[at];
  const rows = memory.holders.slice(0, MOST_HOLDERS).map(([name, made, place, size]) => h("tr", null,
    h("td.num", null, percent(size, high)), h("td.num", null, bytes(size)), h("td.mono", { title: place }, place ? placeLink(place) : ""), h("td", null, h("code", null, place ? coloured(sourceAt(place), "python") : "")), h("td.mono", null, made), h("td.mono", null, name)));
  return section("Memory of a step", "predicted by the plan, beside inputs and parameters; what library calls take for themselves is not in it",
    shape("svg", { class: "skyline", viewBox: `0 0 ${wide} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `Memory over ${count(wide, "step")}; the table has the peak` }, ...bars),
    h("p.soft", null, `At the peak ${bytes(memory.peak)}, in ${step} (${graph})`, line && [", at ", placeLink(line)], ":"),
    table([["share", "num"], ["bytes", "num"], "line", "source", "made by", "buffer"], rows, { wide: "Memory at the peak" }));
}

const MOST_HOLDERS = 12;

function compileDetails(one) {
  const fold = (title, body) => h("details", null, h("summary", null, title), body);
  const steps = one.steps.map(([name, seconds, phase]) => h("tr", null,
    h("td.mono", null, name), h("td", null, phase), h("td.num", null, duration(seconds))));
  const numbers = one.metrics.map(([name, value]) => [
    h("dt", null, name.replaceAll("_", " ")), h("dd.mono", null, value)]);
  const reasons = one.reasons.map(([of, text]) => `[${of}] ${text}`).join("\n\n");
  const parts = [
    reasons && fold("What each earlier compile refused, in the compiler's words", h("pre.words", null, reasons)),
    steps.length > 0 && fold("Time by step", table(["step", "phase", ["own time", "num"]], steps)),
    numbers.length > 0 && fold("Numbers", h("dl.pair", null, numbers)),
    DATA.settings.known && one.real && fold("Settings that are not at their defaults", settingsPart(one) || h("p.soft", null, "None.")),
    one.stack.length > 0 && fold("Called from", stackTable(one.stack)),
  ].filter(Boolean);
  return parts.length > 0 && h("section", null, h("div.head", null, h("h2", null, "Details")), parts);
}

function defaultArtifact(one) {
  for (const name of ["tc_error", "dynamo_error", "dynamo_output_graph", "inductor_output_code"]) {
    const found = one.artifacts.find((artifact) => artifact[1] === name);
    if (found) return found[0];
  }
  return one.artifacts.length ? one.artifacts[0][0] : null;
}

/** What an artifact is called: no other one of its compile has that name. */
const nameOf = ([, , words, , , attempt]) => (attempt > 0 ? `${words} (attempt ${attempt + 1})` : words);

function viewer(one, wanted, against) {
  const sheet = h("div.sheet");
  const entry = (artifact) => {
    const [number, name, , , , , , size] = artifact;
    return h("a.row", { href: link.artifact(one.slug, number), title: name, "data-artifact": number },
      h("span", null, nameOf(artifact)), h("small", null, bytes(size)));
  };
  const groups = DATA.stages.map((stage, n) => [stage, one.artifacts.filter((item) => item[3] === n)]);
  const list = h("nav.list", { "aria-label": "Artifacts" }, groups
    .filter(([, items]) => items.length)
    .map(([stage, items]) => [h("h3", null, stage), items.map(entry)]));
  const pane = h("div.viewer", { id: "viewer" }, list, sheet);
  pane.show = (number, other) => {
    pane.current = one.artifacts[number] && { slug: one.slug, number, words: nameOf(one.artifacts[number]) };
    showArtifact(one, number, list, sheet, other);
  };
  if (wanted !== null) pane.show(wanted, against);
  return pane;
}

const FIRST_LINES = 1500;
const LONGEST_LINE = 20000;

async function showArtifact(one, number, list, sheet, against) {
  const artifact = one.artifacts[number];
  for (const item of list.querySelectorAll("a")) {
    if (item.dataset.artifact === String(number)) item.setAttribute("aria-current", "true");
    else item.removeAttribute("aria-current");
  }
  if (!artifact) {
    sheet.replaceChildren(h("header", null, h("b", null, `There is no artifact ${number} here`)));
    return;
  }
  const [, name, , , kind, , note, , record] = artifact;
  const words = nameOf(artifact);
  const lines = h("div.lines", { tabindex: "0", role: "region", "aria-label": words });
  const about = [name, basename(note), record].filter(Boolean).join(" · ");
  const head = h("header", null, h("b", null, words), h("span.soft", { title: note }, about));
  sheet.replaceChildren(head, lines);
  let text;
  try {
    text = (await textsOf(one))[number];
  } catch {
    lines.append(h("div.more", null, "This browser cannot unpack the text (it lacks DecompressionStream)."));
    return;
  }
  if (!sheet.contains(lines)) return;
  const box = compareBox(one, artifact, against && link.versus(one.slug, number, against.slug, against.number));
  const wrap = (event) =>
    event.target.setAttribute("aria-pressed", String(lines.classList.toggle("wrap")));
  if (box) head.append(box);
  head.append(
    h("button.copy", { type: "button", "aria-pressed": "false", click: wrap }, "Wrap"), copyButton(text, words));
  if (against) {
    lines.classList.add("diff");
    await fillDiff(one, artifact, against, lines);
    return;
  }
  const steps = name === "tc_pass" && passTexts(text);
  if (steps) {
    lines.classList.add("diff");
    lines.append(...diffLines(steps[0], steps[1], "python").rows);
    return;
  }
  const shown = kind === "json" ? pretty(text) : text;
  fillLines(lines, shown.replace(/\n$/, "").split("\n"), kind, 0);
}

function fillLines(lines, rows, kind, from) {
  const until = Math.min(rows.length, from + FIRST_LINES);
  const cut = (row) => (row.length > LONGEST_LINE ? `${row.slice(0, LONGEST_LINE)} …` : row);
  lines.append(fragment(rows.slice(from, until).map((row) => h("div", null, coloured(cut(row), kind)))));
  if (until === rows.length) return;
  const next = () => {
    more.remove();
    fillLines(lines, rows, kind, until);
  };
  const words = `Show more (${rows.length - until} lines)`;
  const more = h("div.more", null, h("button.copy", { type: "button", click: next }, words));
  lines.append(more);
}

/** Before and after of a pass, if its record holds both. */
function passTexts(text) {
  try {
    const { before, after } = JSON.parse(text);
    return typeof before === "string" && typeof after === "string" && [before, after];
  } catch {
    return false;
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
