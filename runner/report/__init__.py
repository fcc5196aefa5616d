"""`report.html`: a run as one page that needs neither network nor server, made from its journal alone.

Templates are loaded when a page is written, not before: most commands write none.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.report.transcripts import Scores
from runner.state import RunState

REPORT_NAME = "report.html"
logger = logging.getLogger(__name__)

__all__ = ["REPORT_NAME", "Scores", "write_report", "write_report_if_possible"]


def write_report(run_dir: Path, *, scores: Scores | None = None) -> Path:
    """Write the page of a run from its journal; return its path.

    `scores` are those of further scorers, by their name: they stand beside the run's own. Raises
    `JournalError` for a journal that cannot be read, `InfrastructureError` where the disk refuses.
    """
    from runner.report.write import report_from_journal  # noqa: PLC0415 - see above

    return report_from_journal(run_dir, run_dir / REPORT_NAME, scores or {})


def write_report_if_possible(run_dir: Path, state: RunState, results: Mapping[str, Any]) -> bool:
    """Write the page of a run whose results are written already; say whether that worked.

    Whatever goes wrong here must not cost a run that is over: it is logged, and the page is written later.
    """
    try:
        from runner.report.write import report_of  # noqa: PLC0415 - see above

        report_of(run_dir, run_dir / REPORT_NAME, state, results, {})
    except Exception:
        logger.warning("%s was not written; `recount report` writes it again", REPORT_NAME, exc_info=True)
        return False
    return True
