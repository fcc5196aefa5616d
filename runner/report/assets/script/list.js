// The list of trajectories: filters stand in the fragment, so that a filtered list can be linked too.

const SHOWN_AT_ONCE = 100;
const FILTERS = ["q", "dataset", "outcome", "ended", "sample", "tool", "scorers", "order"];
const NUMBERS = new Set(["turns", "tokens", "time"]);
const OUTCOMES = {
  "right": "right",
  "partly": "partly right",
  "wrong": "wrong",
  "limit": "limit of the protocol",
  "unfinished": "no score",
  "not-started": "never started",
};

class List {
  constructor(index) {
    this.index = index;
    this.form = document.getElementById("filters");
    this.status = document.getElementById("found");
    this.place = document.getElementById("rows");
    this.found = index.rows;
    this.run = 0;
    this.timer = 0;
    this.back = "#list";
    this.stored = "";
    this.solved = new Map();
    for (const row of index.rows) {
      const key = `${row.dataset}/${row.problem}`;
      this.solved.set(key, (this.solved.get(key) ?? 0) + (row.outcome === "right" ? 1 : 0));
    }
    this.fillSelects();
    this.form.hidden = false;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.store();
    });
    this.form.addEventListener("change", (event) => {
      if (event.target.name !== "q") this.store();
    });
    this.form.addEventListener("input", (event) => {
      if (event.target.name === "q") this.later();
    });
    this.form.addEventListener("reset", () => setTimeout(() => this.store()));
  }

  fillSelects() {
    const options = (name, values) => {
      const select = this.form.elements[name];
      for (const [value, text] of values) select.append(element("option", { value }, text));
    };
    const distinct = (of) => [...new Set(this.index.rows.map(of).filter((one) => one !== undefined))].sort();
    options("dataset", this.index.datasets.map((one, at) => [at, one.name]));
    options("ended", distinct((row) => row.termination).map((one) => [one, one]));
    const samples = [...new Set(this.index.rows.map((row) => row.sample))].sort((a, b) => a - b);
    options("sample", samples.map((one) => [one, one]));
    const there = new Set(this.index.rows.map((row) => row.outcome));
    for (const option of [...this.form.elements.outcome.options]) {
      if (option.value && !there.has(option.value)) option.remove();
    }
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.store(), 250);
  }

  // What was typed a moment ago counts, though the address is another's by now.
  settle() {
    return this.timer ? this.store() : Promise.resolve();
  }

  // From the form into the fragment, which then shows what it says.
  store() {
    clearTimeout(this.timer);
    this.timer = 0;
    const query = new URLSearchParams();
    for (const name of FILTERS) {
      const value = this.form.elements[name]?.value;
      if (value) query.set(name, value);
    }
    const text = query.toString();
    this.stored = text;
    this.back = text ? `#list?${text}` : "#list";
    // A link may have been followed a moment ago: then the address is a trajectory's already.
    if (!location.hash.startsWith("#t/")) history.replaceState(null, "", this.back);
    return this.show();
  }

  // From the fragment into the form. A list that is shown already stays as it is, with all that it shows.
  restore(text) {
    if (text === this.stored) return Promise.resolve();
    this.stored = text;
    const query = new URLSearchParams(text);
    for (const name of FILTERS) {
      if (this.form.elements[name]) this.form.elements[name].value = query.get(name) ?? "";
    }
    return this.show();
  }

  value(name) {
    return this.form.elements[name]?.value ?? "";
  }

  get needle() {
    return this.value("q").trim().toLowerCase();
  }

  async show() {
    const run = ++this.run;
    const rows = await this.filtered(run);
    if (run !== this.run) return;
    this.found = this.ordered(rows);
    this.shown = SHOWN_AT_ONCE;
    this.render();
  }

  async filtered(run) {
    const [dataset, outcome, ended] = ["dataset", "outcome", "ended"].map((name) => this.value(name));
    const [sample, tool, scorers] = ["sample", "tool", "scorers"].map((name) => this.value(name));
    const needle = this.needle;
    const rows = this.index.rows.filter(
      (row) =>
        (!dataset || row.dataset === Number(dataset)) &&
        (!outcome || row.outcome === outcome) &&
        (!ended || row.termination === ended) &&
        (!sample || row.sample === Number(sample)) &&
        (!scorers || row.scores.some((one) => one !== (row.score ?? null))),
    );
    if (!needle && !tool) return rows;
    const found = [];
    for (const [at, row] of rows.entries()) {
      if (run !== this.run) return [];
      if (at % 50 === 0) this.status.textContent = `searching, ${at} of ${rows.length}`;
      if (tool && !(await commandsOf(row)).has(tool)) continue;
      if (needle && !(await searchedText(this.index, row)).includes(needle)) continue;
      found.push(row);
    }
    return found;
  }

  ordered(rows) {
    const order = this.value("order");
    if (order === "solved") {
      const of = (row) => this.solved.get(`${row.dataset}/${row.problem}`);
      return [...rows].sort((one, other) => of(one) - of(other));
    }
    return order ? [...rows].sort((one, other) => (other[order] ?? -1) - (one[order] ?? -1)) : rows;
  }

  render() {
    const all = this.index.rows.length;
    const rows = this.found.slice(0, this.shown);
    this.status.textContent =
      this.found.length === all ? `${count(all)} trajectories` : `${count(this.found.length)} of ${count(all)} trajectories`;
    this.place.replaceChildren();
    if (!rows.length) return;
    const heads = ["problem", "data set", "outcome", "score", ...this.index.scorers];
    heads.push("answer", "expected", "ended by", "turns", "tokens", "time");
    const table = element(
      "table",
      { class: "trajectories" },
      element("caption", { class: "unseen" }, "Trajectories"),
      element("thead", {}, element("tr", {}, heads.map((one) => element("th", { scope: "col", class: NUMBERS.has(one) && "number" }, one)))),
      element("tbody", {}, rows.map((row) => this.line(row, heads))),
    );
    this.place.append(element("div", { class: "scroll" }, table));
    if (this.found.length > this.shown) {
      const more = () => {
        this.shown += SHOWN_AT_ONCE;
        this.render();
        this.place.querySelectorAll("tbody a")[rows.length]?.focus();
      };
      const left = this.found.length - this.shown;
      this.place.append(element("button", { type: "button", onclick: more }, `Show more, ${count(left)} left`));
    }
  }

  line(row, heads) {
    const problem = problemOf(this.index, row);
    const scored = row.score !== undefined;
    const cells = [
      isolated(this.index.datasets[row.dataset].name),
      element("span", { class: `outcome ${row.outcome}` }, OUTCOMES[row.outcome]),
      score(row.score),
      ...row.scores.map(score),
      scored ? isolated(row.prediction || "none") : "-",
      isolated(problem.answer),
      row.termination ?? "-",
      row.turns === undefined ? "-" : count(row.turns),
      scored ? count(row.tokens) : "-",
      seconds(row.seconds),
    ];
    const link = element("a", { href: `#${row.link}` }, isolated(nameOf(this.index, row)));
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, link),
      cells.map((cell, at) => {
        const head = heads[at + 1];
        return element("td", { "data-label": head, class: NUMBERS.has(head) && "number" }, cell);
      }),
    );
  }

  beside(row, by) {
    const at = this.found.indexOf(row);
    return at < 0 ? undefined : this.found[at + by];
  }
}
