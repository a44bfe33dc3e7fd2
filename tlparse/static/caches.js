// Every look into a cache: what was found, and why the rest was not.

function cachePage() {
  const looks = DATA.lookups, total = DATA.caches;
  const misses = realCompiles.filter((one) => one.misses.length);
  const explained = misses.filter((one) => one.misses.some((miss) => miss.sameGraph));
  const totals = total.map(([name, hits, missed, passed, saved]) => h("tr", null, h("td", null, name),
    h("td.num", null, hits), h("td.num", null, missed), h("td.num", null, passed), h("td.num", null, saved ? duration(saved) : "–")));
  const rows = looks.map(([slug, cache, found, artifact, saved, why]) => h("tr", null,
    h("td", null, compileChip(slug)), h("td", null, (compileBySlug.get(slug) || { title: "" }).title),
    h("td", null, h("a.row", { href: link.artifact(slug, artifact) }, cache)), h("td", null, state(found)),
    h("td", null, why ? h("span.plain", null, why) : "–"), h("td.num", null, saved ? duration(saved) : "–")));
  const passed = looks.filter((one) => one[2] === "bypass").length;
  const shown = rows.slice(0, MOST_LOOKS);
  return {
    title: "Cache",
    crumbs: [["cache"]],
    body: [
      lead("Cache", looks.length ? `${count(looks.length, "look-up")}, ${looks.filter((one) => one[2] === "hit").length} found${passed ? `, ${passed} bypassed` : ""}` : "The trace records no look into a cache."),
      looks.length > 0 && [
        section("By cache", null, table(["cache", ["hit", "num"], ["missed", "num"], ["bypassed", "num"], ["time saved", "num"]], totals)),
        explained.length > 0 && section("Missed though the graph was known", "what differs from the nearest earlier entry; settings and versions can be made the same",
          explained.slice(0, MOST_EXPLAINED).map((one) => h("div.block", null, h("h3", null, compileChip(one.slug), " ", one.title), missesOf(one)))),
        section("Each look-up", rows.length > shown.length && `the first ${shown.length}`,
          table(["compile", "function", "cache", "found", "why it was bypassed", ["time saved", "num"]], shown, { wide: "Look-ups" })),
      ],
    ],
  };
}

const MOST_LOOKS = 500, MOST_EXPLAINED = 20;
