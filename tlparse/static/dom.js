// Small helpers: elements from text only (never markup), and numbers as people read them.

/** Make an element. `props` are attributes; functions are listeners; children are nodes or text. */
function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else if (key === "class") node.className += ` ${value}`;
    else if (key === "width") node.style.width = value;
    else if (key === "grow") node.style.flexGrow = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const fragment = (...children) => {
  const made = document.createDocumentFragment();
  made.append(...children.flat(9).filter((one) => one !== null && one !== undefined && one !== false && one !== ""));
  return made;
};

/** The end of a name, from the beginning of a word on: of qualified names, the ends distinguish two. */
function ending(name, most) {
  if (name.length <= most) return name;
  const end = name.slice(1 - most), word = end.search(/[_.]/);
  return `…${word >= 0 && word < 8 ? end.slice(word + 1) : end}`;
}

/** Each name with its end; those that share one keep as much more as distinguishes them. */
function endings(names, most) {
  const shown = new Map();
  for (let size = most, left = [...new Set(names)]; left.length; size += 8) {
    const byEnd = new Map();
    for (const name of left) byEnd.set(ending(name, size), [...(byEnd.get(ending(name, size)) || []), name]);
    left = [];
    for (const [end, alike] of byEnd) alike.length === 1 ? shown.set(alike[0], end) : left.push(...alike);
  }
  return shown;
}

function duration(seconds) {
  if (!seconds) return "0 s";
  if (seconds < 0.001) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}m`;
}

const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "0 %");
/** The plural of a regular noun, by the same rules as `tc.trace.words.plural`. */
const plural = (noun) => (/(s|x|ch|sh)$/.test(noun) ? `${noun}es` : /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`);
const count = (number, noun) => `${number} ${number === 1 ? noun : plural(noun)}`;
const basename = (file) => file.replaceAll("\\", "/").split("/").pop();
const place = (file, line) => (file ? `${basename(file)}${line ? `:${line}` : ""}` : "");

function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

async function copyText(text) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const field = h("textarea", { "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    done = document.execCommand("copy");
    field.remove();
  }
  toast(done ? "Copied" : "The browser refused to copy");
}

let toastTimer = 0;
function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => node.classList.remove("on"), 1400);
}

const copyButton = (text, what) =>
  h("button.copy", { type: "button", "aria-label": `Copy ${what}`, click: () => copyText(text) }, "Copy");
