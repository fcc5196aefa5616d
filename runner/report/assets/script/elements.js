// Everything is built of elements and text nodes. No text ever becomes markup here; the page's policy
// forbids it besides.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

// Text of a model, which cannot reorder what stands beside it.
function isolated(text) {
  return element("bdi", {}, text);
}

// Text with every place marked at which `needle` (in lower case) stands.
function marked(text, needle) {
  if (!needle) return [text];
  const parts = [];
  const lower = text.toLowerCase();
  // Lower case can be longer than the text; then places do not fit, and nothing is marked.
  if (lower.length !== text.length) return [text];
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    parts.push(text.slice(from, at), element("mark", {}, text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  parts.push(text.slice(from));
  return parts;
}

function count(value) {
  return value.toLocaleString("en-US");
}

function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 9.995 ? 2 : 0)} s`;
  const whole = Math.floor(value);
  const rest = String(whole % 60).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

function bytes(value) {
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024 || unit === "GiB") return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return "";
}

function score(value) {
  if (value === null || value === undefined) return "none";
  return Number.isInteger(value) ? String(value) : value.toFixed(4);
}
