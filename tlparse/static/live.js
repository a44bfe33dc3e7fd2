// A page that `tc-report serve` serves: how the job stands, and what its trace holds by now.

const EACH = 1000, HIDDEN = 5000; // milliseconds between two questions

/** What is packed of a compile, from the server; if it has another state by now, that is taken first. */
async function served(id) {
  const response = await fetch(`${DATA.folder}/${id}`, { cache: "no-store" });
  if (response.status === 200) return response.text();
  await update();
  throw new Error(`no ${id}`);
}

/** Whether somebody is in the midst of something that another state of the page would end. */
function busy() {
  const selected = getSelection();
  return (selected.type === "Range" && main.contains(selected.anchorNode)) || held
    || (main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"));
}
let held = false;

/** By what an element is found in another state of the page: its kind, its target, its text. */
const named = (node) => `${node.tagName} ${node.getAttribute("href") || node.textContent}`;
const BOXES = ".scroll, .list, .lines, .pane, .rows, pre, ul, ol";

/** Remember where the reader is; the function that is returned leads back there. */
function placeKept() {
  const within = (one) => [...main.querySelectorAll(one)];
  const anchor = within("a[href], h2, summary, tr").find((one) => one.getBoundingClientRect().top >= 60 && one.offsetParent);
  const [key, top, at] = [anchor && named(anchor), anchor?.getBoundingClientRect().top, scrollY];
  const open = new Map(within("details").map((one) => [named(one.firstElementChild), one.open]));
  const boxes = within(BOXES).map((one) => [one.scrollTop, one.scrollLeft]);
  const unroll = () => within(BOXES).forEach((one, n) => {
    if (boxes[n] && (boxes[n][0] || boxes[n][1])) [one.scrollTop, one.scrollLeft] = boxes[n];
  });
  const focus = main.contains(document.activeElement) && document.activeElement !== main && named(document.activeElement);
  return () => {
    for (const one of within("details")) one.open = open.get(named(one.firstElementChild)) ?? one.open;
    unroll();
    Promise.allSettled(unpacked.values()).then(() => setTimeout(unroll)); // texts come later
    if (focus) within("a, button, summary, [tabindex]").find((one) => named(one) === focus)?.focus({ preventScroll: true });
    const same = at > 0 && key && within("a[href], h2, summary, tr").find((one) => named(one) === key);
    scrollTo(0, same ? scrollY + same.getBoundingClientRect().top - top : at);
  };
}

let waiting = false; // for the reader, to show what is known already

/** Show the newest state; what did not change stays as it is. */
function refresh() {
  waiting = busy();
  if (waiting) return;
  const next = built();
  if (next.content.isEqualNode(drawn)) { showScreens(); nameTab(); return; }
  const back = placeKept();
  draw(next);
  back();
}

async function update() {
  const response = await fetch("index", { cache: "no-store" });
  if (!response.ok) return;
  const data = await response.json();
  if (data.live === DATA.live) return;
  take(data);
  refresh();
}

function watch() {
  const state = h("b", { role: "status" }), more = h("small"), box = h("div.job", { id: "job" }, state, more);
  document.querySelector(".tools").prepend(box);
  const setState = (kind, word, rest) => {
    box.className = `job ${kind}`;
    if (state.textContent !== word) state.textContent = word;
    more.textContent = more.title = rest;
  };
  let timer = 0;
  const look = async () => {
    clearTimeout(timer);
    try {
      const response = await fetch("state", { cache: "no-store" });
      const { version, state: kind, more: rest } = await response.json();
      setState(kind.split(" ")[0], kind, rest);
      if (version !== DATA.live) await update();
      else if (waiting) refresh();
    } catch {
      setState("away", "not served any more", "this is the last that was read");
    }
    timer = setTimeout(look, document.hidden ? HIDDEN : EACH);
  };
  addEventListener("pointerdown", () => { held = true; });
  addEventListener("pointerup", () => { held = false; });
  addEventListener("pointercancel", () => { held = false; });
  addEventListener("visibilitychange", () => document.hidden || look());
  look();
}
