// Two artifacts compared: which lines went, which came. Computed here, when it is asked for.

const MOST_EDITS = 3000;
const CONTEXT = 3;

/** Edits from a to b by Myers: rows of [sign, line of a, line of b, text]; sign is " ", "-" or "+". */
function diffRows(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const rows = [];
  for (let i = 0; i < head; i++) rows.push([" ", i, i, a[i]]);
  rows.push(...middleRows(a, b, head, a.length - tail, b.length - tail));
  for (let i = tail; i > 0; i--) rows.push([" ", a.length - i, b.length - i, a[a.length - i]]);
  return rows;
}

function middleRows(a, b, from, aEnd, bEnd) {
  const all = () => [
    ...a.slice(from, aEnd).map((text, n) => ["-", from + n, null, text]),
    ...b.slice(from, bEnd).map((text, n) => ["+", null, from + n, text]),
  ];
  const n = aEnd - from, m = bEnd - from;
  if (!n || !m) return all();
  const most = Math.min(n + m, MOST_EDITS);
  const far = new Int32Array(2 * most + 3);
  const trace = [];
  for (let d = 0; d <= most; d++) {
    trace.push(far.slice(most - d, most + d + 3));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far[most + 1 + k - 1] < far[most + 1 + k + 1]);
      let x = down ? far[most + 1 + k + 1] : far[most + 1 + k - 1] + 1;
      while (x < n && x - k < m && a[from + x] === b[from + x - k]) x++;
      far[most + 1 + k] = x;
      if (x >= n && x - k >= m) return wayBack(a, b, from, n, m, trace);
    }
  }
  return all();
}

function wayBack(a, b, from, n, m, trace) {
  const rows = [];
  let x = n, y = m;
  for (let d = trace.length - 1; d > 0; d--) {
    const at = (k) => trace[d][k + d + 1];
    const k = x - y;
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const before = down ? k + 1 : k - 1;
    const px = at(before), py = px - before;
    while (x > px && y > py && x > 0 && y > 0 && a[from + x - 1] === b[from + y - 1]) { x--; y--; rows.push([" ", from + x, from + y, a[from + x]]); }
    if (down) { y--; rows.push(["+", null, from + y, b[from + y]]); } else { x--; rows.push(["-", from + x, null, a[from + x]]); }
  }
  while (x > 0 && y > 0) { x--; y--; rows.push([" ", from + x, from + y, a[from + x]]); }
  return rows.reverse();
}

/** Elements of a diff: changed lines with a few lines about them, the rest folded away. */
function diffLines(before, after, kind) {
  const rows = diffRows(before.replace(/\n$/, "").split("\n"), after.replace(/\n$/, "").split("\n"));
  const near = new Uint8Array(rows.length);
  rows.forEach(([sign], n) => { if (sign !== " ") near.fill(1, Math.max(0, n - CONTEXT), n + CONTEXT + 1); });
  const out = [];
  let hidden = 0;
  const fold = () => { if (hidden) out.push(h("div.folded", null, `${count(hidden, "equal line")}`)); hidden = 0; };
  rows.forEach(([sign, , line, text], n) => {
    if (!near[n]) { hidden++; return; }
    fold();
    const words = { "+": "added: ", "-": "removed: " }[sign];
    out.push(h(`div.row-${{ "+": "in", "-": "out", " ": "same" }[sign]}`, { "data-no": line === null ? "" : line + 1 },
      words && h("span.sr", null, words), h("span.sign", { "aria-hidden": "true" }, sign), coloured(text.slice(0, LONGEST_LINE), kind)));
  });
  fold();
  const came = rows.filter(([sign]) => sign === "+").length, went = rows.filter(([sign]) => sign === "-").length;
  return { rows: out, came, went };
}

/** Artifacts that another can be compared with: texts of this compile, and its twin in the nearest earlier one. */
function rivals(one, artifact) {
  const here = one.artifacts.filter((other) => other !== artifact && other[4] === artifact[4]).map((other) => [one, other]);
  const older = one.of && compileBySlug.get(one.slug.replace(one.id, one.of));
  const twins = older ? older.artifacts.filter((other) => other[1] === artifact[1]) : [];
  const nth = one.artifacts.filter((other) => other[1] === artifact[1]).indexOf(artifact);
  return [...(twins[nth] ? [[older, twins[nth]]] : []), ...here];
}

function compareBox(one, artifact, against) {
  const list = rivals(one, artifact);
  if (!list.length) return null;
  const names = list.map(([other, row]) => [link.versus(one.slug, artifact[0], other.slug, row[0]), `${other === one ? "" : `${bracket(other.slug)} `}${nameOf(row)}`]);
  const choose = (event) => { location.hash = event.target.value; };
  return h("select.copy", { "aria-label": "Compare with", change: choose },
    h("option", { value: link.artifact(one.slug, artifact[0]) }, "Compare with …"),
    names.map(([href, words]) => h("option", { value: href, selected: href === against ? true : null }, words)));
}

async function fillDiff(one, artifact, against, lines) {
  const other = compileBySlug.get(against.slug);
  if (!other || !other.artifacts[against.number]) {
    lines.append(h("div.more", null, "There is nothing to compare with."));
    return;
  }
  const [mine, theirs] = await Promise.all([textsOf(one), textsOf(other)]);
  const kind = artifact[4];
  const shown = (text) => (kind === "json" ? pretty(text) : text);
  const { rows, came, went } = diffLines(shown(theirs[against.number]), shown(mine[artifact[0]]), kind);
  const words = came || went ? `${count(came, "line")} came, ${went} went` : "No line differs";
  lines.append(h("div.more", { role: "status" }, `${words}, compared with ${bracket(other.slug)} ${nameOf(other.artifacts[against.number])}`), ...rows);
}
