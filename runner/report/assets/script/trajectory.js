// One trajectory with its turns, in place of the overview.

const KINDS = {
  action: "command",
  format_check: "format check",
  final_answer: "final answer",
  parse_error: "cannot be read",
};

function holds(turn, needle) {
  const texts = [turn.assistant, turn.observation ?? "", turn.action ?? ""];
  return !needle || texts.some((text) => text.toLowerCase().includes(needle));
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    { class: "facts-list" },
    shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

function block(label, text, needle, kind, heading = "h4") {
  return [element(heading, { class: "of-text" }, label), element("pre", { class: kind }, marked(text, needle))];
}

function toolLine(tool) {
  const said = [tool.exit === null ? "no exit code" : `exit code ${tool.exit}`];
  if (tool.timedOut) said.push("timed out");
  if (tool.limits.length) said.push(`limit: ${tool.limits.join(", ")}`);
  said.push(seconds(tool.wall));
  if (tool.cpu !== null) said.push(`${seconds(tool.cpu)} of a processor`);
  if (tool.memory !== null) said.push(bytes(tool.memory));
  return said.join(", ");
}

class TrajectoryView {
  constructor(index, list) {
    this.index = index;
    this.list = list;
    this.place = document.getElementById("trajectory");
  }

  async open(row, turnNumber) {
    const address = location.hash;
    const turns = await turnsOf(row);
    // Who went on in the meantime wants what is there now.
    if (location.hash !== address) return;
    // What the list was searched for, if turns hold it and it hides none that was asked for.
    const searchedFor = turnNumber ? "" : this.list.needle;
    const needle = turns.some((turn) => holds(turn, searchedFor)) ? searchedFor : "";
    const problem = problemOf(this.index, row);
    const title = element("h2", { id: "trajectory-title", tabindex: "-1" }, isolated(nameOf(this.index, row)));
    this.find = element("input", { id: "find", type: "search", autocomplete: "off", spellcheck: "false", value: needle });
    this.kind = element("select", { id: "kind" }, element("option", { value: "" }, "all turns"));
    for (const kind of new Set(turns.map((turn) => turn.kind))) {
      this.kind.append(element("option", { value: kind }, KINDS[kind] ?? kind));
    }
    this.status = element("p", { role: "status", class: "hint" });
    this.turns = element("div", { class: "turns" });
    const refresh = () => this.render(row, turns);
    this.find.addEventListener("input", refresh);
    this.kind.addEventListener("change", refresh);
    this.place.replaceChildren(
      this.navigation(row),
      title,
      this.facts(row, problem),
      this.trouble(row),
      ...block("Problem", problem.question, searchedFor, "question", "h3"),
      element(
        "div",
        { class: "find", role: "search", "aria-label": "Turns" },
        element("p", {}, element("label", { for: "find" }, "Find in turns"), " ", this.find),
        element("p", {}, element("label", { for: "kind" }, "Show"), " ", this.kind),
      ),
      this.status,
      this.turns,
    );
    refresh();
    document.title = `${nameOf(this.index, row)} · Recount`;
    const wanted = turnNumber ? document.getElementById(`turn-${turnNumber}`) : null;
    (wanted ?? this.place).scrollIntoView();
    (wanted?.querySelector("h3") ?? title).focus({ preventScroll: true });
  }

  navigation(row) {
    const link = (text, other) =>
      other ? element("a", { href: `#${other.link}` }, text) : element("span", { class: "off" }, text);
    return element(
      "nav",
      { "aria-label": "Trajectory", class: "beside" },
      element("a", { href: this.list.back, id: "back" }, "Back to the run"),
      link("Previous", this.list.beside(row, -1)),
      link("Next", this.list.beside(row, 1)),
    );
  }

  facts(row, problem) {
    const scored = row.score !== undefined;
    return facts([
      ["outcome", element("span", { class: `outcome ${row.outcome}` }, OUTCOMES[row.outcome])],
      ["score", scored ? score(row.score) : "none"],
      ...this.index.scorers.map((name, at) => [`score by ${name}`, score(row.scores[at])]),
      ["expected", isolated(problem.answer)],
      ["answer", scored ? isolated(row.prediction || "none") : null],
      ["ended by", row.termination],
      ["scored by", row.method],
      ["turns", row.turns],
      ["tokens generated", scored ? count(row.tokens) : null],
      ["largest context", scored ? count(row.context) : null],
      ["time", scored ? seconds(row.seconds) : null],
      ["used bash", scored ? (row.usedBash ? "yes" : "no") : null],
      ["seed", row.seed],
      ["attempts", row.attempts > 1 ? row.attempts : null],
      ["data set", isolated(this.index.datasets[row.dataset].name)],
      ["trace", row.trace ? element("a", { href: row.trace }, "Markdown beside this page") : null],
    ]);
  }

  // What our own side did to it, and what is not here.
  trouble(row) {
    const said = [];
    if (row.cause) said.push(["No score, which is not a score of 0: ", row.cause]);
    if (row.error) said.push(["The engine refused: ", row.error]);
    for (const cause of row.givenUp ?? []) said.push(["An earlier part of the run gave it up: ", cause]);
    for (const cause of row.retries ?? []) said.push(["Started again after a failure of our own: ", cause]);
    if (row.left > 0) said.push([`${count(row.left)} characters are left out here; the trace beside the page has them.`, ""]);
    if (row.left < 0) said.push(["Its turns did not fit into this page; they are in the trace beside it.", ""]);
    if (row.outcome === "not-started") said.push(["It never started.", ""]);
    const notices = said.map(([what, cause]) => element("p", { class: "notice note" }, what, isolated(cause)));
    if (row.log?.length) notices.push(...block("Log of that moment", row.log.join("\n"), "", "log", "h3"));
    return element("div", {}, notices);
  }

  render(row, turns) {
    const needle = this.find.value.trim().toLowerCase();
    const kind = this.kind.value;
    const shown = turns.filter((turn) => (!kind || turn.kind === kind) && holds(turn, needle));
    this.status.textContent =
      shown.length === turns.length ? `${turns.length} turns` : `${shown.length} of ${turns.length} turns`;
    this.turns.replaceChildren(...shown.map((turn) => this.turn(row, turn, needle)));
  }

  turn(row, turn, needle) {
    const label = `Turn ${turn.turn}`;
    const times = [`${count(turn.prompt)} + ${count(turn.completion)} tokens`, `${seconds(turn.generate)} generated`];
    if (turn.wait >= 0.001) times.push(`${seconds(turn.wait)} waited`);
    const made = element(
      "section",
      { class: `turn ${turn.kind}`, id: `turn-${turn.turn}`, "aria-label": label },
      element(
        "h3",
        { tabindex: "-1" },
        element("a", { href: `#${row.link}/${turn.turn}` }, label),
        " ",
        element("small", {}, KINDS[turn.kind] ?? turn.kind),
      ),
      element("p", { class: "hint" }, times.join(", "), ", engine ", isolated(turn.engine), `, ended by ${turn.finish}`, `, seed ${turn.seeds.join(", ")}`),
      ...block("Completion", turn.assistant, needle, "assistant"),
    );
    if (turn.action !== undefined) made.append(...block("Command as read", turn.action, needle, "action"));
    if (turn.observation !== undefined) {
      const bad = turn.tool && (turn.tool.exit !== 0 || turn.tool.timedOut || turn.tool.limits.length);
      made.append(...block("Observation", turn.observation, needle, bad ? "observation bad" : "observation"));
      if (turn.tool) made.append(element("p", { class: bad ? "hint bad" : "hint" }, toolLine(turn.tool)));
    }
    return made;
  }
}
