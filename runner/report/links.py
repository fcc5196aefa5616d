"""Names of places in the page. The page's script has the same: a link that somebody kept must stay good."""

from urllib.parse import quote

from runner.engines.base import TrajectoryKey

_PREFIX = "t/"


def trajectory_link(key: TrajectoryKey) -> str:
    """Return a trajectory's fragment, without `#`: ASCII, whatever the ids hold."""
    return f"{_PREFIX}{quote(key.dataset, safe='')}/{quote(key.problem_id, safe='')}/{key.sample}"
