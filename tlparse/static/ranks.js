// Ranks of a job: who did the same, where the others first did otherwise, and why.

function ranksPage() {
  const { groups, divergences, estimates } = DATA.ranks;
  if (!groups.length) return missingPage("comparison of ranks");
  const alike = groups.length === 1;
  return {
    title: "Ranks",
    crumbs: [["ranks"]],
    body: [
      lead(alike ? `${sentenceOf(groups[0].name)} did the same` : `${sentenceOf(divergences[0].group)} did otherwise`,
        `${count(DATA.laneCount, "rank")}, compared by what they compiled, captured, looked up and planned to send`),
      groupsPart(groups),
      divergences.map(divergencePart),
      estimatesPart(estimates),
    ],
  };
}

const sentenceOf = (text) => text.replace(/^rank/, "Rank");

function groupsPart(groups) {
  const sent = (group) => group.collectives.map(([name, n]) => `${n} ${name}`).join(", ") || "–";
  const rows = groups.map((group, n) => h("tr", null,
    h("td", null, state(n ? "differs" : "same"), " ", h("b", null, group.name),
      group.all !== group.name && h("details", null, h("summary", null, "which"), h("span.soft", null, group.all))),
    h("td.num", null, group.compiles), h("td.num", null, group.steps), h("td", null, sent(group)),
    h("td.num", null, group.fastest === group.slowest ? duration(group.slowest) : `${duration(group.fastest)} – ${duration(group.slowest)}`)));
  return section("Who did the same", null,
    table(["ranks", ["compiles", "num"], ["steps", "num"], "collectives", ["compiling, each", "num"]], rows));
}

function divergencePart({ group, most, at, chain, rows, finding }) {
  const side = (step) => step && h("td", null, step[3] < 0 ? h("a.row", { href: link.compile(step[2]) }, step[1])
    : h("a.row", { href: link.artifact(step[2], step[3]) }, step[1]));
  const made = rows.flatMap(([alike, ofMost, ofGroup]) => [
    alike > 0 && h("tr.alike", null, h("td.soft", { colspan: 2 }, `${count(alike, "step")} alike`)),
    (ofMost || ofGroup) && h("tr", null, side(ofMost) || h("td.soft", null, "–"), side(ofGroup) || h("td.soft", null, "–")),
  ]).filter(Boolean);
  return section(`${sentenceOf(group)} and ${most}`, `the first difference comes after ${count(at, "step")}`,
    h("ol.chain", null, chain.map((text) => h("li", null, inlineCode(sentenceOf(text))))),
    finding && h("p", null, h("a.row", { href: link.finding(finding) }, "What to do about it →")),
    table([most, group], made, { wide: `Steps of ${most} and ${group}` }));
}

function estimatesPart(estimates) {
  if (!estimates.length) return null;
  const rows = estimates.map((one) => h("tr", null,
    h("td.mono", null, bracket(one.compile)), h("td.num", null, one.operations),
    h("td", null, one.sameTensors ? "the same on all" : h("b", null, "differ between ranks")),
    h("td.num", null, duration(one.fastest[0])), h("td", null, one.fastest[1]),
    h("td.num", null, duration(one.slowest[0])), h("td", null, one.slowest[0] > one.fastest[0] ? one.slowest[1] : "–")));
  return section("Estimated run time", "what PyTorch expects each graph to take",
    table(["graph", ["operations", "num"], "shapes, strides, dtypes", ["least", "num"], "on", ["most", "num"], "on"], rows));
}
