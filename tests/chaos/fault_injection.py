"""Kills and stalls everything a run is made of, at random moments from a seed, and compares what comes out.

    python tests/chaos/fault_injection.py --host 180 --sandboxes 20
    python tests/chaos/fault_injection.py --host 1 --seed 17 --keep

A schedule is a run with 16 trajectories to which three to six faults happen. It is gone on with until it is
done, and its results are compared, byte for byte, with those of an undisturbed run. `--host` counts schedules
whose commands run on this machine in a throw-away directory, `--sandboxes` those with real sandboxes.
`--seed` is the first schedule's seed; each prints its own, and can be repeated alone. Whatever differs, is
left, or does not end makes the exit code 1, and its directory stays.

The Docker engine is never touched, unless one that is nobody else's is named, with all of `--docker-host`,
`--daemon-pid-file` and `--start-daemon`, the command that starts it: then it is killed and stalled too.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

from chaos_harness import Harness, Outcome, write_input  # noqa: E402
from chaos_place import EnginePlace, HostPlace, OwnDaemon, Place  # noqa: E402
from chaos_schedule import ANYWHERE, DAEMON, schedule_of  # noqa: E402

PlaceOf = Callable[[Path, Path], Place]
_SHOWN_LINES = 40


def run_schedules(
    directory: Path,
    place_of: PlaceOf,
    *,
    seeds: range,
    with_daemon: bool,
    say: Callable[[str], None] = print,
    keep: bool = False,
) -> list[Outcome]:
    """Run an undisturbed run and one for each seed; return what came of the latter."""
    profile = write_input(directory / "input")
    undisturbed = Harness(directory / "undisturbed", profile, place_of, 0).run(())
    if not undisturbed.good:
        raise RuntimeError(f"the undisturbed run failed: {undisturbed.wrong}")
    say(f"undisturbed: {undisturbed.seconds:.1f} s")
    deeds = ANYWHERE + (DAEMON if with_daemon else ())
    outcomes = []
    for seed in seeds:
        steps = schedule_of(seed, deeds)
        place = directory / f"seed-{seed}"
        outcome = Harness(place, profile, place_of, seed).run(steps)
        if outcome.good and outcome.results != undisturbed.results:
            outcome.wrong.append("the results differ:\n" + _diff(undisturbed.results, outcome.results))
        outcomes.append(outcome)
        say(line_of(outcome))
        if outcome.good and not keep:
            shutil.rmtree(place, ignore_errors=True)
    return outcomes


def line_of(outcome: Outcome) -> str:
    """Return a schedule's line: its seed first, so that it can be repeated."""
    done = ", ".join(f"{deed} x{count}" if count > 1 else deed for deed, count in outcome.done.items())
    verdict = "ok" if outcome.good else "WRONG " + " | ".join(outcome.wrong)
    return (
        f"seed {outcome.seed}: {verdict}; {outcome.seconds:.1f} s, {len(outcome.exits)} starts,"
        f" {outcome.pauses} pauses; {done or 'nothing was done in time'}"
    )


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "undisturbed", "faulted", n=1)
    return "\n".join(list(lines)[:_SHOWN_LINES])


def summary_of(outcomes: list[Outcome]) -> dict[str, object]:
    """Return the numbers of all schedules of a place."""
    faults: Counter[str] = Counter()
    for one in outcomes:
        faults += one.done
    seconds = [one.seconds for one in outcomes]
    return {
        "schedules": len(outcomes),
        "good": sum(one.good for one in outcomes),
        "wrong_seeds": [one.seed for one in outcomes if not one.good],
        "faults": dict(sorted(faults.items())),
        "restarts": sum(len(one.exits) - 1 for one in outcomes),
        "pauses": sum(one.pauses for one in outcomes),
        "stall_reports": sum(one.stalls for one in outcomes),
        "seconds": round(sum(seconds), 1),
        "slowest_s": round(max(seconds, default=0.0), 1),
    }


def main() -> int:
    """Parse, run, print, and say by the exit code whether all was well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", type=int, default=0, metavar="N")
    parser.add_argument("--sandboxes", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docker-host")
    parser.add_argument("--daemon-pid-file", type=Path)
    parser.add_argument("--start-daemon", metavar="COMMAND")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--keep", action="store_true", help="keep the directories of good schedules")
    given = parser.parse_args()
    own = (given.docker_host, given.daemon_pid_file, given.start_daemon)
    if any(own) and not all(own):
        parser.error("a daemon of your own has --docker-host, --daemon-pid-file and --start-daemon")
    daemon = OwnDaemon(own[0], own[1], shlex.split(own[2])) if all(own) else None
    directory = Path(tempfile.mkdtemp(prefix="recount-chaos-"))
    places: dict[str, tuple[int, PlaceOf, bool]] = {
        "host": (given.host, HostPlace, True),
        "sandboxes": (
            given.sandboxes,
            lambda at, _: EnginePlace(at, daemon),
            daemon is not None,
        ),
    }
    began = time.monotonic()
    found: dict[str, dict[str, object]] = {}
    good = True
    for name, (count, place_of, with_daemon) in places.items():
        if count:
            sys.stdout.write(f"{count} schedules, commands on the {name}, in {directory / name}\n")
            outcomes = run_schedules(
                directory / name,
                place_of,
                seeds=range(given.seed, given.seed + count),
                with_daemon=with_daemon,
                say=lambda text: print(text, flush=True),
                keep=given.keep,
            )
            found[name] = summary_of(outcomes)
            good = good and all(one.good for one in outcomes)
    found["all"] = {"seconds": round(time.monotonic() - began, 1)}
    text = json.dumps(found, indent=2)
    sys.stdout.write(f"{text}\ngood: {good}\n")
    if given.json is not None:
        given.json.write_text(text + "\n")
    if good and not given.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
