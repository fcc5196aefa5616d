"""The files of a run that are derived from its journal, by name, and the text of the one that holds all."""

import json
from collections.abc import Mapping
from typing import Any

RESULTS_NAME = "evaluation_results.json"
SUMMARY_NAME = "summary.txt"


def results_text(results: Mapping[str, Any]) -> str:
    """Return the text of a results file."""
    return json.dumps(results, indent=1) + "\n"
