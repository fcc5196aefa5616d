// The index and the parts with turns: gzip in base64, unpacked when something of them is shown.

async function unpacked(id) {
  const binary = atob(document.getElementById(id).textContent.trim());
  const packed = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) packed[at] = binary.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const parts = new Map();

function part(number) {
  if (!parts.has(number)) parts.set(number, unpacked(`data-part-${number}`));
  return parts.get(number);
}

async function turnsOf(row) {
  return row.part === undefined ? [] : (await part(row.part))[row.place];
}

const problemOf = (index, row) => index.datasets[row.dataset].problems[row.problem];
const nameOf = (index, row) => `${problemOf(index, row).id}, sample ${row.sample}`;

// All text of a trajectory that is searched, in lower case, kept once it was made.
const searched = new WeakMap();

async function searchedText(index, row) {
  if (!searched.has(row)) {
    const problem = problemOf(index, row);
    const texts = [index.datasets[row.dataset].name, problem.id, problem.question, problem.answer];
    texts.push(row.prediction ?? "", row.cause ?? "", row.error ?? "");
    for (const turn of await turnsOf(row)) texts.push(turn.assistant, turn.observation ?? "", turn.action ?? "");
    searched.set(row, texts.join("\n").toLowerCase());
  }
  return searched.get(row);
}

// What commands of a trajectory ran into, for the filter.
const ranInto = new WeakMap();

async function commandsOf(row) {
  if (!ranInto.has(row)) {
    const found = new Set();
    const tools = (await turnsOf(row)).map((turn) => turn.tool).filter(Boolean);
    if (!tools.length) found.add("none");
    for (const tool of tools) {
      if (tool.exit !== 0 && tool.exit !== null) found.add("failed");
      if (tool.timedOut) found.add("timed-out");
      if (tool.limits.length) found.add("limited");
    }
    ranInto.set(row, found);
  }
  return ranInto.get(row);
}
