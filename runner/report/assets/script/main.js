// The fragment says what is shown: `#t/DATASET/PROBLEM/SAMPLE` and `/TURN` a trajectory, `#list?…` a filtered
// list, anything else a part of the overview.

const overview = document.getElementById("overview");
const trajectory = document.getElementById("trajectory");
const contents = document.getElementById("contents");
const title = document.title;
const maps = [...document.querySelectorAll(".map")];

let left = null;

function showTrajectory() {
  if (trajectory.hidden) left = { top: window.scrollY, link: document.activeElement };
  overview.hidden = true;
  contents.hidden = true;
  trajectory.hidden = false;
}

// Where the reader left it, if that was here.
function showOverview(fragment) {
  const was = !trajectory.hidden;
  overview.hidden = false;
  contents.hidden = false;
  trajectory.hidden = true;
  trajectory.replaceChildren();
  document.title = title;
  if (!was) return;
  const place = document.getElementById(fragment);
  if (place && fragment !== "list") place.scrollIntoView();
  else if (left && left.link.isConnected && left.link !== document.body) {
    window.scrollTo(0, left.top);
    left.link.focus({ preventScroll: true });
  } else document.getElementById("list").scrollIntoView();
}

async function route(list, view, links) {
  const fragment = location.hash.slice(1);
  if (fragment.startsWith("t/")) {
    const row = links.get(fragment) ?? links.get(fragment.replace(/\/\d+$/, ""));
    if (row) {
      const turn = fragment === row.link ? 0 : Number(fragment.slice(fragment.lastIndexOf("/") + 1));
      showTrajectory();
      await list.settle();
      await view.open(row, turn);
      return;
    }
    document.getElementById("found").textContent = "There is no such trajectory in this run.";
    showOverview("list");
    return;
  }
  const [part, query] = fragment.split("?");
  const filters = query ?? (part === "list" ? "" : null);
  if (filters !== null) {
    list.back = `#${fragment}`;
    const fromTrajectory = !trajectory.hidden;
    await list.restore(filters);
    showOverview("list");
    if (query !== undefined && !fromTrajectory) document.getElementById("list").scrollIntoView();
    return;
  }
  showOverview(part);
}

// The map is one stop for the tab key; arrows go from cell to cell.
function walk(map, event) {
  const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const step = steps[event.key];
  if (!step || !event.target.classList.contains("cell")) return;
  const columns = [...map.children];
  const at = columns.indexOf(event.target.parentElement);
  const row = [...event.target.parentElement.children].indexOf(event.target);
  const next = columns[at + step[0]]?.children[row + step[1]];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function orderMaps() {
  const place = document.getElementById("map-order");
  const button = place.querySelector("button");
  const original = maps.map((map) => [...map.children]);
  place.hidden = false;
  button.addEventListener("click", () => {
    const bySolved = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(bySolved));
    maps.forEach((map, at) => {
      const columns = [...original[at]];
      if (bySolved) columns.sort((one, other) => Number(other.dataset.right) - Number(one.dataset.right));
      map.replaceChildren(...columns);
    });
  });
}

async function begin() {
  for (const map of maps) {
    map.addEventListener("keydown", (event) => walk(map, event));
    // A hint on hovering, made when it is wanted: twenty thousand of them would make the page twice as large.
    map.addEventListener("mouseover", (event) => {
      const label = event.target.getAttribute("aria-label");
      if (event.target.classList.contains("cell") && label) event.target.title = label;
    });
  }
  if (maps.length) orderMaps();
  if (typeof DecompressionStream === "undefined") {
    const said = "This browser cannot unpack the trajectories. They are in the folder traces beside this page.";
    document.getElementById("found").textContent = said;
    return;
  }
  const index = await unpacked("data-index");
  const list = new List(index);
  const view = new TrajectoryView(index, list);
  const links = new Map(index.rows.map((row) => [row.link, row]));
  await list.show();
  window.addEventListener("hashchange", () => route(list, view, links));
  await route(list, view, links);
  document.documentElement.dataset.ready = "yes";
}

begin().catch((error) => {
  const said = "The trajectories cannot be read out of this file. They are in the folder traces beside this page.";
  document.getElementById("found").textContent = said;
  throw error;
});
