// What passes did to the graphs of a compile, a step at a time; and the strip of its stages.

/** Name of a stage, the artifacts that show it, the phase whose time it took. */
const STRIP = [
  ["bytecode", /_ORIGINAL_BYTECODE$/, null], ["graph", /^dynamo_output_graph$/, "capture"], ["joint", /^aot_joint_graph$/, null],
  ["inference", /^aot_inference_graph$/, "graph passes"], ["forward", /^aot_forward_graph$/, "graph passes"], ["backward", /^aot_backward_graph$/, null],
  ["post-grad", /^inductor_post_grad_graph$/, null], ["plan", /^tc_plan$/, null], ["code", /^inductor_output_code$/, "lowering"],
];
const NODE_LINE = /^\s+[A-Za-z_]\w*(?:\s*:[^=]+)?\s*= /;
const ONLY_NAMED = /^[^=]+ = [A-Za-z_]\w*(?:;.*)?\s*$/; // an input gets its name: `l_x_ = L_x_`
const nodeLines = (text) => text.split("\n").filter((line) => line.startsWith("  "));
const plainNode = (line) => line.replace(/\s+#.*$/, "").trim();

/** `source → graph → joint → … → binary`: size of each stage; the arrows lead to what changed between two. */
function stageStrip(one) {
  const last = Math.max(0, ...one.artifacts.map((row) => row[5]));
  const shown = STRIP.flatMap(([name, pattern, phase]) => {
    const found = one.artifacts.filter((row) => row[5] === last && pattern.test(row[1]));
    const ways = found.length === 2 && one.artifacts.some((row) => row[1] === "aot_backward_graph") ? ["forward", "backward"] : null;
    return found.map((row, n) => [found.length > 1 ? `${name}${ways ? `, ${ways[n]}` : ` ${n + 1}`}` : name, row, n ? null : phase]);
  });
  if (shown.length < 2) return null;
  const took = new Map(one.phases);
  const items = [], sizes = [];
  shown.forEach(([name, row, phase], n) => {
    if (n) {
      const before = shown[n - 1][1];
      items.push(h("li.arrow", null, h("a", { href: link.versus(one.slug, row[0], one.slug, before[0]), "aria-label": `What changed from ${shown[n - 1][0]} to ${name}`, title: "what changed" }, "→")));
    }
    const size = h("small", null, bytes(row[7]));
    sizes.push([row, size]);
    items.push(h("li.stage", null, h("a.row", { href: link.artifact(one.slug, row[0]) }, h("b", null, name), size,
      phase && took.has(phase) && h("small", null, duration(took.get(phase))))));
  });
  if (took.has("build")) items.push(h("li.arrow", { "aria-hidden": "true" }, "→"), h("li.stage", null, h("span", null, h("b", null, "binary"), h("small", null, "built"), h("small", null, duration(took.get("build"))))));
  textsOf(one).then((texts) => sizes.forEach(([row, size]) => {
    const ops = texts[row[0]].split("\n").filter((line) => NODE_LINE.test(line) && !ONLY_NAMED.test(line)).length;
    if (row[4] === "python" && /_graph$/.test(row[1]) && ops) size.textContent = count(ops, "op");
    else if (row[1] === "inductor_output_code") size.textContent = count(texts[row[0]].split("\n").length, "line");
  }), () => {});
  return h("ol.strip", { "aria-label": "Stages" }, items);
}

/** Lines before (or, forward, after) a pass, from those after (before) it; null where they do not fit. */
function stepOver(lines, ran, forward) {
  if (ran.refused) return lines;
  const [size, out, into] = forward ? [ran.before, "removed", "added"] : [ran.after, "added", "removed"];
  if (!lines || ran.left_out || lines.length !== size) return null;
  const result = [];
  let at = 0, grown = 0;
  for (const edit of ran.edits) {
    const start = edit.line + (forward ? 0 : grown), stop = start + edit[out].length;
    if (lines.slice(start, stop).join("\n") !== edit[out].join("\n")) return null;
    result.push(...lines.slice(at, start), ...edit[into]);
    at = stop;
    grown += edit.added.length - edit.removed.length;
  }
  return [...result, ...lines.slice(at)];
}

/** All steps of a compile: passes and rules of tc, or the graphs that PyTorch records before and after its passes. */
function walkOf(one, texts) {
  const steps = [], totals = [], known = new Map();
  const last = Math.max(0, ...one.artifacts.map((row) => row[5]));
  const rows = one.artifacts.filter((row) => row[5] === last);
  const textOf = (name) => rows.filter((row) => row[1] === name).map((row) => texts[row[0]]);
  for (const row of rows.filter((one) => one[1] === "tc_pass")) {
    let record;
    try { record = JSON.parse(texts[row[0]]); } catch { continue; }
    if (!Array.isArray(record.passes)) continue;
    const { graph, stage, passes } = record;
    const states = [];
    if (stage === "aot") {
      let lines = textOf(`aot_${graph}_graph`).map(nodeLines)[0] || null;
      known.set(graph, lines);
      for (let n = passes.length - 1; n >= 0; n--) { const after = lines; lines = stepOver(after, passes[n], false); states[n] = [lines, after]; }
    } else if (stage === "library") {
      let lines = known.get(graph) || null;
      passes.forEach((ran, n) => { const before = lines; lines = stepOver(before, ran, true); states[n] = [before, lines]; });
    }
    passes.forEach((ran, n) => {
      const [before, after] = states[n] || [];
      const texts = before && after ? [before.join("\n"), after.join("\n")] : ran.edits.length ? [ran.edits.flatMap((edit) => edit.removed).join("\n"), ran.edits.flatMap((edit) => edit.added).join("\n")] : null;
      steps.push({ group: `${graph} · ${stage}`, name: ran.name, first: ran.first, last: ran.last, changed: ran.changed, refused: ran.refused, note: ran.refused ? "refused" : ran.changed ? `${ran.before} → ${ran.after}` : "", texts });
    });
    for (const rule of record.firings || []) steps.push({ group: `${graph} · ${stage}`, name: rule.rule, first: rule.number, last: rule.number, changed: true, refused: false, note: [rule.buffer, rule.line && basename(rule.line)].filter(Boolean).join(" · "), texts: [rule.before, rule.after] });
    for (const total of record.steps || []) totals.push([`${graph} · ${stage}`, total]);
  }
  for (const [name, from, to] of [["pre-grad passes", "before_pre_grad_graph", "after_pre_grad_graph"], ["joint-graph passes", "before_joint_graph", "after_joint_graph"], ["post-grad passes", "before_post_grad_graph", "inductor_post_grad_graph"]]) {
    const before = textOf(from), after = textOf(to);
    before.forEach((text, n) => {
      if (after[n] === undefined) return;
      const nodes = [text, after[n]].map((one) => one.split("\n").filter((line) => NODE_LINE.test(line)).map(plainNode));
      const changed = nodes[0].join("\n") !== nodes[1].join("\n");
      steps.push({ group: before.length > 1 ? `graph ${n + 1}` : "graph", name, first: 0, last: 0, changed, refused: false, note: changed ? `${nodes[0].length} → ${nodes[1].length}` : "", texts: [text, after[n]] });
    });
  }
  return { steps, totals };
}

const hasPasses = (one) => one.artifacts.some((row) => row[1] === "tc_pass" || /^before_\w+_graph$/.test(row[1]));
let onlyChanged = true;

function passesPage(slug, wanted) {
  const one = compileBySlug.get(slug);
  if (!one || !hasPasses(one)) return missingPage(`record of passes for ${bracket(slug)}`);
  const many = realCompiles.filter(hasPasses);
  const index = many.indexOf(one);
  const body = h("div", { id: "passes" }, h("p.soft", null, "Unpacking …"));
  const made = {
    title: `${bracket(slug)} ${one.title}: passes`,
    crumbs: [one.function && [one.function, link.fn(one.function)], [bracket(slug), link.compile(slug)], ["passes"]].filter(Boolean),
    previous: siblingLink(many, index - 1, (other) => link.passes(other.slug)),
    next: siblingLink(many, index + 1, (other) => link.passes(other.slug)),
    up: link.compile(slug), wide: true, keep: `passes/${slug}`,
    body: [lead([h("span.soft", null, bracket(slug)), " ", one.title], "what each pass changed"), body],
  };
  textsOf(one).then((texts) => fillPasses(one, walkOf(one, texts), body, made, wanted),
    () => body.replaceChildren(h("p", null, "This browser cannot unpack the text (it lacks DecompressionStream).")));
  return made;
}

function fillPasses(one, { steps, totals }, body, made, wanted) {
  const list = h("nav.list", { "aria-label": "Passes" });
  const sheet = h("div.sheet");
  const shown = () => steps.map((step, n) => [step, n]).filter(([step, n]) => !onlyChanged || step.changed || step.refused || n === made.at);
  const draw = () => {
    const rows = [];
    let group = "";
    for (const [step, n] of shown()) {
      if (step.group !== group) rows.push(h("h3", null, (group = step.group)));
      rows.push(h("a.row", { href: link.passes(one.slug, n), "aria-current": n === made.at ? "true" : null, class: step.changed ? "" : "idle" },
        h("span", null, step.name.replace(/^\w+\./, "")), h("small", null, step.note || "no change")));
    }
    list.replaceChildren(...rows, ...(rows.length ? [] : [h("p.soft", null, steps.length ? "No pass changed anything." : "The trace records no single pass.")]));
  };
  const showStep = (n) => {
    made.at = n;
    draw();
    const step = steps[n];
    if (!step) return sheet.replaceChildren(h("header", null, h("b", null, "Nothing to show")));
    const number = step.first > 0 && (step.first === step.last ? `step ${step.first}` : `steps ${step.first}–${step.last}`);
    const off = step.first > 0 && `TC_BISECT=${step.first} stops before it`;
    const lines = h("div.lines.diff", { tabindex: "0", role: "region", "aria-label": `What ${step.name} changed` });
    sheet.replaceChildren(h("header", null, h("b", null, step.name), h("span.soft", null, [step.group, number, step.note, off].filter(Boolean).join(" · ")),
      h("span.soft", null, h("kbd", null, "←"), " ", h("kbd", null, "→"))), lines);
    if (step.refused) lines.append(h("div.more", null, "The gate did not let it run (TC_BISECT)."));
    else if (!step.texts) lines.append(h("div.more", null, step.changed ? "It works on another form of the graph: the plan, and what was fused, show what came of it." : "It changed nothing."));
    else {
      const { rows, came, went } = diffLines(step.texts[0], step.texts[1], "python");
      lines.append(h("div.more", { role: "status" }, came || went ? `${count(came, "line")} came, ${went} went` : "It changed nothing."), ...rows);
    }
    const now = list.querySelector("[aria-current]");
    if (now) reveal(list, now);
  };
  made.update = (n) => showStep(n);
  made.turn = (by) => {
    const all = shown().map(([, n]) => n);
    const at = all.indexOf(made.at), to = all[Math.max(0, Math.min(all.length - 1, at + by))];
    if (to !== undefined && to !== made.at) location.hash = link.passes(one.slug, to);
  };
  const toggle = h("button", { type: "button", "aria-pressed": String(onlyChanged), click: () => made.onlyChanged() }, "only what changed something");
  made.onlyChanged = () => { onlyChanged = !onlyChanged; toggle.setAttribute("aria-pressed", String(onlyChanged)); draw(); };
  body.replaceChildren(h("div.head", null, h("h2", null, "Passes"), h("div.filters", null, toggle), h("span.soft", null, h("kbd", null, "c"), ` ${count(steps.filter((step) => step.changed).length, "change")} in ${count(steps.length, "step")}`)),
    h("div.viewer.broad", null, list, sheet), ...(totals.length ? [totalsPart(totals)] : []));
  const first = steps.findIndex((step) => step.changed);
  showStep(wanted === undefined || !steps[wanted] ? Math.max(0, first) : wanted);
}

/** Decompositions, lowerings, rules and fusions: how often each, and for what. */
function totalsPart(totals) {
  const rows = totals.map(([group, { name, count: many, refused, first, last, at }]) => h("tr", null, h("td.soft", null, group), h("td.mono", null, name), h("td.num", null, many),
    h("td.num", null, refused || "–"), h("td.mono.soft", null, first === last ? first : `${first}–${last}`),
    h("td", null, h("span.plain.mono", null, at.slice(0, 6).map((one) => (/[/\\]/.test(one) ? basename(one) : one)).join(", ") + (at.length > 6 ? " …" : "")))));
  return section("All steps, by name", "numbers are those of TC_BISECT", table(["graph and stage", "step", ["times", "num"], ["refused", "num"], "numbers", "for"], rows, { wide: "Steps by name" }));
}
