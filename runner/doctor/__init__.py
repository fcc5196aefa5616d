"""What a run needs, looked at before it starts: `recount doctor`, and the first step of `recount eval`."""

from runner.doctor.examination import examine
from runner.doctor.host import Host
from runner.doctor.question import Question
from runner.doctor.report import Check, Report, State

__all__ = ["Check", "Host", "Question", "Report", "State", "examine"]
