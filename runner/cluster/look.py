"""Prints the nodes of a cluster as JSON, from outside of it: `python -m runner.cluster.look HEAD:PORT`.

A process of its own: Ray's client of the head waits long, prints, and cannot be interrupted.
"""

import json
import subprocess
import sys
from collections.abc import Mapping

from runner.cluster.nodes import Node, nodes_of
from runner.cluster.token import use_token
from runner.errors import InfrastructureError, UserError

LOOK_TIMEOUT_S = 60.0
"""Ray gives up after 15 s by itself; to import it may take as long on a busy machine."""
_REFUSED = "InvalidAuthToken"
_CAUSE_CHARS = 300


def look(address: str, environment: Mapping[str, str]) -> tuple[Node, ...]:
    """Return the nodes that are alive. Blocking, bounded.

    Raises `UserError` where no head answers, or it refuses the token.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "runner.cluster.look", address],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{address} did not say its nodes within {LOOK_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        if _REFUSED in done.stderr:
            raise UserError(
                f"the head at {address} refuses our token",
                remedy="use the head's: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token",
            )
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UserError(
            f"no Ray head answers at {address}: {(lines or ['nothing was said'])[-1][:_CAUSE_CHARS]}",
            remedy="start it there with `recount node --head`, and let its port through between the nodes",
        )
    return nodes_of(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Ask the head and print its table."""
    use_token()
    from ray._private.state import GlobalState  # noqa: PLC0415 - only where Ray is
    from ray._raylet import GcsClientOptions  # noqa: PLC0415

    state = GlobalState()
    state._initialize_global_state(  # noqa: SLF001 - without a Ray on this machine there is no other way
        GcsClientOptions.create(sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    sys.stdout.write(json.dumps(state.node_table()) + "\n")


if __name__ == "__main__":
    main()
