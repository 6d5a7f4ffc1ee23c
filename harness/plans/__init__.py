"""plans.jsonl: what every loop of a run saw and planned, written down and planned again."""

from harness.plans.reader import PlannedCell, read_plan_log
from harness.plans.writer import PLANS_FILE, PlanLog, PlanTap

__all__ = ["PLANS_FILE", "PlanLog", "PlanTap", "PlannedCell", "read_plan_log"]
